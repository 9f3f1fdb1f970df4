//! Bisection over sizes.

/// The size closest to `fails` at which `find` finds something, with what it finds there. `fits`
/// is a size where it does, `fails` one where it does not. `find` should change once between the
/// two; if it changes more often, the result is one of its boundaries.
pub(crate) fn boundary<T>(
    mut fits: (u32, T),
    mut fails: u32,
    mut find: impl FnMut(u32) -> Option<T>,
) -> (u32, T) {
    while fits.0.abs_diff(fails) > 1 {
        let middle = u32::midpoint(fits.0, fails);
        match find(middle) {
            Some(found) => fits = (middle, found),
            None => fails = middle,
        }
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::boundary;

    #[test]
    fn finds_the_largest_and_the_smallest_that_fit() {
        for last in 0..20 {
            let up = boundary((0, "none"), 20, |size| (size <= last).then_some("some"));
            assert_eq!(up, (last, if last == 0 { "none" } else { "some" }));
            let down = boundary((20, ()), 0, |size| (size > last).then_some(()));
            assert_eq!(down.0, last + 1);
        }
    }

    #[test]
    fn adjacent_sizes_need_no_search() {
        assert_eq!(boundary((3, ()), 4, |_| None), (3, ()));
        assert_eq!(boundary((4, ()), 3, |_| None), (4, ()));
    }
}
