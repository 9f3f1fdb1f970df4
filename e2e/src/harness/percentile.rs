//! Percentiles by nearest rank: each is a value that occurred, never one between two.

/// Returns the value of `ordered` that `percent` of the values do not exceed; `None` for no values.
#[must_use]
pub fn percentile<T: Copy>(ordered: &[T], percent: usize) -> Option<T> {
    let rank = (ordered.len() * percent).div_ceil(100).max(1);
    ordered.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<u32> = (1..=150).collect();
        let of = |percent| percentile(&values, percent);
        assert_eq!([0, 50, 99, 100].map(of), [1, 75, 149, 150].map(Some));
        assert_eq!(percentile(&[7, 9], 50), Some(7));
        assert_eq!(percentile::<u32>(&[], 99), None);
    }
}
