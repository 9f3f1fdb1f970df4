//! A seeded random sequence of whole numbers, the same on every machine.

/// splitmix64. The same seed gives the same sequence.
#[derive(Debug, Clone)]
pub struct RandomSequence(u64);

impl RandomSequence {
    /// Returns the sequence that follows on a state.
    #[must_use]
    pub fn from_state(state: u64) -> Self {
        Self(state)
    }

    /// Returns the sequence of a seed. Sequences of different `stream`s are independent.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self::from_state(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.draw();
        random
    }

    /// Draws any number of 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number from 0 to `end - 1`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let product = u128::from(self.draw()) * u128::from(end);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// Draws an exponentially distributed number with this mean.
    ///
    /// By von Neumann's method, which only compares uniform numbers: logarithms differ in their last
    /// bits between platforms.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole = 0_u64;
        loop {
            let first = self.draw() >> 32;
            let (mut last, mut descending) = (first, 1_u32);
            loop {
                let next = self.draw() >> 32;
                if next >= last {
                    break;
                }
                (last, descending) = (next, descending + 1);
            }
            if descending % 2 == 1 {
                let units = (u128::from(whole) << 32) + u128::from(first);
                let scaled = (units * u128::from(mean)) >> 32;
                return u64::try_from(scaled).unwrap_or(u64::MAX);
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RandomSequence;

    #[test]
    fn exponential_numbers_have_their_mean_median_and_tail() {
        let mut random = RandomSequence::new(7, 0);
        let mut all: Vec<u64> = (0..100_000)
            .map(|_| random.exponential(1_000_000))
            .collect();
        all.sort_unstable();
        let mean = all.iter().sum::<u64>() / 100_000;
        // The standard error of the mean is 3,162. Half are below ln 2, and 1 % above ln 100.
        assert!((990_000..1_010_000).contains(&mean), "{mean}");
        assert!((683_000..703_000).contains(&all[50_000]), "{}", all[50_000]);
        assert!(
            (4_450_000..4_760_000).contains(&all[99_000]),
            "{}",
            all[99_000]
        );
    }

    #[test]
    fn a_seed_gives_one_sequence_and_its_streams_differ() {
        let draw = |seed, stream| {
            let mut random = RandomSequence::new(seed, stream);
            [(); 4].map(|()| random.below(1_000_000))
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }
}
