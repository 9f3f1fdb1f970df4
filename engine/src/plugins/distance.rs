//! The distance between clusters.

use facts::ClusterFact;

/// The distance between two clusters in thousandths, 0 for one and the same. It is the round-trip
/// time that either of them states (`muster.io/network`) relative to `farthest`, the longest of
/// the fleet. Without such a time it depends on what they share: zone, region, provider or nothing.
pub(super) fn distance(one: &ClusterFact, other: &ClusterFact, farthest: u64) -> i64 {
    if one.name == other.name {
        return 0;
    }
    let there = one.network.get(&other.name);
    let longest = there.max(other.network.get(&one.name));
    if let Some(time) = longest.filter(|_| farthest > 0) {
        let part = u128::from(*time) * 1000 / u128::from(farthest);
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
    use facts::ClusterName;

    fn cluster(name: &str, [zone, region, provider]: [&str; 3]) -> ClusterFact {
        ClusterFact {
            provider: provider.to_owned(),
            region: region.to_owned(),
            zones: Vec::from_iter((!zone.is_empty()).then(|| zone.to_owned())),
            ..crate::testing::cluster(name)
        }
    }

    #[test]
    fn distance_depends_on_the_innermost_common_location() {
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
    fn distance_is_the_longer_stated_time_relative_to_the_longest() {
        let mut one = cluster("a", ["z", "r", "p"]);
        let mut other = cluster("b", ["z", "r", "p"]);
        one.network.insert(ClusterName::from("b"), 300);
        for (back, farthest, far) in [(200, 1000, 300), (400, 1000, 400), (0, 100, 1000)] {
            other.network.insert(ClusterName::from("a"), back);
            assert_eq!(distance(&one, &other, farthest), far);
            assert_eq!(distance(&other, &one, farthest), far);
        }
        // If all times are zero, they are ignored.
        one.network.insert(ClusterName::from("b"), 0);
        assert_eq!(distance(&one, &other, 0), 250);
    }
}
