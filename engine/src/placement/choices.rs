//! Choices of several clusters of all that may take a part of a gang.

/// The most choices that are tried.
pub(crate) const CHOICES: usize = 64;

/// Choices of so many clusters that are enough, those with the most capacity first in each: all of them while they are
/// few, else those around the one that leaves least free.
pub(crate) fn choices<T: Copy>(
    parts: &[T],
    clusters: usize,
    enough: impl Fn(&[T]) -> bool,
) -> Vec<Vec<T>> {
    if combinations(parts.len(), clusters) <= CHOICES {
        let mut all = Vec::new();
        combine(parts, clusters, &mut Vec::new(), &mut all);
        all.retain(|choice| enough(choice));
        return all;
    }
    // The largest, the last of them replaced by each other that still does; smallest first.
    let (largest, rest) = parts.split_at(clusters.saturating_sub(1));
    let with_last = rest.iter().rev().map(|last| {
        let mut choice = largest.to_vec();
        choice.push(*last);
        choice
    });
    with_last
        .filter(|choice| enough(choice))
        .take(CHOICES)
        .collect()
}

fn combine<T: Copy>(parts: &[T], clusters: usize, chosen: &mut Vec<T>, all: &mut Vec<Vec<T>>) {
    if chosen.len() == clusters {
        all.push(chosen.clone());
        return;
    }
    // Where fewer are left than are missing there is none: else all subsets would be gone through.
    let missing = clusters - chosen.len();
    for (index, part) in parts
        .iter()
        .enumerate()
        .take((parts.len() + 1).saturating_sub(missing))
    {
        chosen.push(*part);
        combine(&parts[index + 1..], clusters, chosen, all);
        chosen.pop();
    }
}

/// How many ways there are to choose so many of all, as far as [`CHOICES`] matters.
fn combinations(all: usize, chosen: usize) -> usize {
    let chosen = chosen.min(all.saturating_sub(chosen));
    let mut ways = 1_usize;
    for step in 0..chosen {
        ways = ways * (all - step) / (step + 1);
        if ways > CHOICES {
            return ways;
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_choose_are_counted_as_far_as_they_matter() {
        for (all, chosen, ways) in [
            (5, 0, 1),
            (5, 1, 5),
            (5, 5, 1),
            (8, 2, 28),
            (8, 6, 28),
            (7, 3, 35),
            (64, 1, 64),
            (64, 63, 64),
        ] {
            assert_eq!(combinations(all, chosen), ways, "{chosen} of {all}");
        }
        // However many there are, the count ends: the last has more ways than can be told.
        for (all, chosen) in [(65, 1), (12, 2), (64, 2), (9, 4), (400, 200)] {
            assert!(combinations(all, chosen) > CHOICES, "{chosen} of {all}");
        }
    }
}
