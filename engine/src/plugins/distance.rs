//! How far apart clusters are.

use crate::facts::ClusterFact;

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
