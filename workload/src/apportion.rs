//! Divides a whole number into whole parts in proportion.

/// Divides `whole` in proportion to `weights` by the method of largest remainders; the first wins a tie.
/// The parts add up to `whole`, unless all weights are zero. No part exceeds its weight if `whole` is at
/// most their sum.
#[must_use]
pub fn apportion(whole: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let exact = |weight: u64| u128::from(whole) * u128::from(weight);
    let mut parts: Vec<u128> = weights.iter().map(|weight| exact(*weight) / sum).collect();
    let left = u128::from(whole).saturating_sub(parts.iter().sum());
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|index| std::cmp::Reverse(exact(weights[*index]) % sum));
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    for index in by_remainder.into_iter().take(left) {
        parts[index] += 1;
    }
    let fits = |part| u64::try_from(part).unwrap_or(u64::MAX);
    parts.into_iter().map(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rest_goes_to_the_largest_remainders() {
        assert_eq!(apportion(7, &[4, 4]), [4, 3]);
        assert_eq!(apportion(10, &[3, 1]), [8, 2]);
        assert_eq!(apportion(1, &[5, 3]), [1, 0]);
        assert_eq!(apportion(3, &[0, 0]), [0, 0]);
    }

    proptest! {
        #[test]
        fn parts_add_up_and_none_exceeds_its_weight(
            weights in prop::collection::vec(0u64..1000, 1..8), permille in 0u64..=1000,
        ) {
            let whole = weights.iter().sum::<u64>() * permille / 1000;
            let parts = apportion(whole, &weights);
            prop_assert_eq!(parts.iter().sum::<u64>(), whole);
            for (part, weight) in parts.iter().zip(&weights) {
                prop_assert!(part <= weight);
            }
        }
    }
}
