//! Which clusters meet the spread constraints of a job together.
//!
//! Constraints on the number of clusters bound how many are chosen. Those on groups of clusters (regions, zones, ...)
//! are checked here for each choice. Where the usual choices break them, clusters are chosen one after another, each
//! as the first once.

use facts::{ClusterFact, GroupSpread};
use std::collections::BTreeSet;

/// True if these clusters meet every constraint.
pub(crate) fn is_met(rules: &[GroupSpread], clusters: &[&ClusterFact]) -> bool {
    rules.iter().all(|rule| {
        let groups = used(rule, clusters.iter().copied()).len();
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        rule.min <= groups && rule.max.is_none_or(|max| groups <= max)
    })
}

/// The constraints in words, such as `at least 2 by region`.
pub(crate) fn words(rules: &[GroupSpread]) -> String {
    let each = rules.iter().map(|rule| match rule.max {
        Some(max) if max == rule.min => format!("{max} by {}", rule.by),
        Some(max) => format!("{} to {max} by {}", rule.min, rule.by),
        None => format!("at least {} by {}", rule.min, rule.by),
    });
    each.collect::<Vec<_>>().join(" and ")
}

fn used<'a>(
    rule: &GroupSpread,
    clusters: impl Iterator<Item = &'a ClusterFact>,
) -> BTreeSet<&'a str> {
    clusters
        .flat_map(|cluster| rule.by.groups(cluster))
        .collect()
}

/// Choices of `count` of these clusters that meet every constraint, as indexes: those that come first in `clusters`
/// as far as possible, with each cluster as the first of a choice.
pub(crate) fn choices(
    rules: &[GroupSpread],
    clusters: &[&ClusterFact],
    count: usize,
) -> Vec<Vec<usize>> {
    let mut found = Vec::new();
    for first in 0..clusters.len() {
        if let Some(mut choice) = beginning_with(rules, clusters, count, first) {
            choice.sort_unstable();
            if !found.contains(&choice) {
                found.push(choice);
            }
        }
    }
    found
}

/// A choice with the cluster `first`, and after it those that come first and leave the constraints possible.
fn beginning_with(
    rules: &[GroupSpread],
    clusters: &[&ClusterFact],
    count: usize,
    first: usize,
) -> Option<Vec<usize>> {
    let mut groups: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); rules.len()];
    let mut chosen = Vec::new();
    let others = (0..clusters.len()).filter(|other| *other != first);
    for next in std::iter::once(first).chain(others) {
        if chosen.len() == count {
            break;
        }
        let after: Vec<BTreeSet<&str>> = rules
            .iter()
            .zip(&groups)
            .map(|(rule, groups)| {
                let more = rule.by.groups(clusters[next]);
                groups.iter().copied().chain(more).collect()
            })
            .collect();
        let left = count - chosen.len() - 1;
        let possible = rules.iter().zip(&after).all(|(rule, groups)| {
            let number = u32::try_from(groups.len()).unwrap_or(u32::MAX);
            let missing = rule.min.saturating_sub(number) as usize;
            missing <= left && rule.max.is_none_or(|max| number <= max)
        });
        if possible {
            groups = after;
            chosen.push(next);
        }
    }
    let all: Vec<&ClusterFact> = chosen.iter().map(|index| clusters[*index]).collect();
    (chosen.len() == count && is_met(rules, &all)).then_some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use facts::GroupBy;

    fn cluster(region: &str, zones: &[&str]) -> ClusterFact {
        ClusterFact {
            region: region.to_owned(),
            zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
            ..crate::testing::cluster("c")
        }
    }

    fn rule(by: GroupBy, min: u32, max: Option<u32>) -> GroupSpread {
        GroupSpread { by, min, max }
    }

    #[test]
    fn clusters_are_chosen_in_order_as_far_as_regions_allow() {
        let [a, b, c] = ["a", "b", "c"].map(|region| cluster(region, &[]));
        let fleet = [&a, &a, &a, &b, &c];
        let choose = |min, max, count| {
            let rules = [rule(GroupBy::Region, min, max)];
            choices(&rules, &fleet, count)
        };
        assert_eq!(choose(1, None, 2)[0], [0, 1]);
        assert_eq!(choose(2, None, 2)[0], [0, 3]);
        assert_eq!(choose(2, None, 3)[0], [0, 1, 3]);
        assert_eq!(choose(3, None, 3)[0], [0, 3, 4]);
        assert_eq!(choose(1, Some(1), 3), [[0, 1, 2]]);
        assert_eq!(choose(1, Some(1), 1).len(), 5);
        assert!(choose(1, Some(1), 4).is_empty());
        assert!(choose(4, None, 5).is_empty());
        assert!(choose(2, None, 6).is_empty());
    }

    #[test]
    fn a_cluster_is_in_the_group_of_each_of_its_zones() {
        let (one, two) = (cluster("a", &["x"]), cluster("a", &["x", "y"]));
        let rules = [rule(GroupBy::Zone, 2, None)];
        assert!(!is_met(&rules, &[&one]));
        assert!(is_met(&rules, &[&two]));
        let rules = [
            rule(GroupBy::Zone, 1, Some(1)),
            rule(GroupBy::Region, 1, None),
        ];
        assert!(is_met(&rules, &[&one, &one]) && !is_met(&rules, &[&one, &two]));
        assert_eq!(words(&rules), "1 by zone and at least 1 by region");
    }
}
