//! How far apart clusters are.

use crate::api::facts::ClusterFact;

/// In thousandths: what the clusters tell of the time between them (`muster.io/network`),
/// against the longest that any tells; else 0 for the same cluster, then the same zone, region,
/// provider, and nothing in common.
pub(super) fn distance(one: &ClusterFact, other: &ClusterFact, farthest: u64) -> i64 {
    if one.name == other.name {
        return 0;
    }
    let told = one
        .network
        .get(&other.name)
        .max(other.network.get(&one.name));
    if let Some(told) = told.filter(|_| farthest > 0) {
        let part = u128::from(*told) * 1000 / u128::from(farthest);
        return i64::try_from(part).unwrap_or(1000).min(1000);
    }
    let same = |a: &str, b: &str| !a.is_empty() && a == b;
    if one.zones.iter().any(|zone| other.zones.contains(zone)) {
        250
    } else if same(&one.region, &other.region) {
        500
    } else if same(&one.provider, &other.provider) {
        750
    } else {
        1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ids::ClusterName;
    use std::collections::BTreeMap;

    fn cluster(name: &str, [zone, region, provider]: [&str; 3]) -> ClusterFact {
        ClusterFact {
            name: ClusterName::from(name),
            labels: BTreeMap::new(),
            provider: provider.to_owned(),
            region: region.to_owned(),
            zones: Vec::from_iter((!zone.is_empty()).then(|| zone.to_owned())),
            taints: Vec::new(),
            price_milli: None,
            network: BTreeMap::new(),
            apis: None,
            usable: true,
            unusable_because: String::new(),
        }
    }

    #[test]
    fn clusters_are_as_near_as_the_innermost_that_they_have_in_common() {
        for (here, there, far) in [
            (["z", "r", "p"], ["z", "", ""], 250),
            (["z", "r", "p"], ["y", "r", ""], 500),
            (["z", "r", "p"], ["y", "s", "p"], 750),
            (["z", "r", "p"], ["y", "s", "q"], 1000),
            (["", "", ""], ["", "", ""], 1000),
        ] {
            let (one, other) = (cluster("a", here), cluster("b", there));
            assert_eq!(distance(&one, &other, 0), far, "{here:?} {there:?}");
            assert_eq!(distance(&one, &one, 0), 0);
        }
    }

    #[test]
    fn what_was_measured_counts_by_the_longest_that_was() {
        let mut one = cluster("a", ["z", "r", "p"]);
        let mut other = cluster("b", ["z", "r", "p"]);
        one.network.insert(ClusterName::from("b"), 300);
        for (back, farthest, far) in [(200, 1000, 300), (400, 1000, 400), (0, 100, 1000)] {
            other.network.insert(ClusterName::from("a"), back);
            assert_eq!(distance(&one, &other, farthest), far);
            assert_eq!(distance(&other, &one, farthest), far);
        }
        // Where every distance is zero, that distinguishes nothing.
        one.network.insert(ClusterName::from("b"), 0);
        assert_eq!(distance(&one, &other, 0), 250);
    }
}
