//! The one bisection: of sizes, the last one at which something is found.

/// Moves `fits`, a size with what is found there, next to `fails`, a size at which nothing is, and
/// returns it. `find` must find something on one side of a boundary and nothing on the other; where
/// it does not, the result is still a size at which it found what is returned.
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
    fn the_largest_and_the_smallest_that_fit_are_found() {
        for last in 0..20 {
            let up = boundary((0, "none"), 20, |size| (size <= last).then_some("some"));
            assert_eq!(up, (last, if last == 0 { "none" } else { "some" }));
            let down = boundary((20, ()), 0, |size| (size > last).then_some(()));
            assert_eq!(down.0, last + 1);
        }
    }

    #[test]
    fn sizes_beside_each_other_need_no_look() {
        assert_eq!(boundary((3, ()), 4, |_| None), (3, ()));
        assert_eq!(boundary((4, ()), 3, |_| None), (4, ()));
    }
}
