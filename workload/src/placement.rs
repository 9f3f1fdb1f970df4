//! Which clusters a job may use: the `spec.placement` that its binding has from its policy.

use crate::error::SpecError;
use crate::field::Field;
use crate::kinds;
use crate::nodes;
use engine::ClusterName;
use engine::facts::{ClusterPlacement, Filters};
use engine::matching::{ClusterRule, Operator, Requirement};
use serde_json::Value;

/// Returns the clusters that `placement` allows for an object of `api` (`apiVersion/Kind`). Karmada has
/// checked it; a part that cannot be read selects no cluster rather than any.
#[must_use]
pub fn cluster_placement(placement: Option<&Value>, api: &str) -> ClusterPlacement {
    let Some(placement) = placement.filter(|placement| placement.is_object()) else {
        return ClusterPlacement {
            api: api.to_owned(),
            ..ClusterPlacement::default()
        };
    };
    let placement = Field::root(placement);
    let (min_clusters, max_clusters) = spread(&placement);
    ClusterPlacement {
        api: api.to_owned(),
        groups: groups(&placement).unwrap_or_else(|_| vec![no_cluster()]),
        tolerations: placement
            .get("clusterTolerations")
            .and_then(|list| nodes::tolerations(&list))
            .unwrap_or_default(),
        max_clusters,
        min_clusters,
        data_clusters: Vec::new(),
        filters: Filters::default(),
    }
}

/// Returns true if `placement` divides replicas over clusters; otherwise, and by default, each cluster gets
/// all of them.
#[must_use]
pub fn divided(placement: Option<&Value>) -> bool {
    let kind = placement
        .and_then(|placement| placement.pointer("/replicaScheduling/replicaSchedulingType"));
    kind.and_then(Value::as_str) == Some("Divided")
}

/// Returns true if Karmada itself may divide `template` over clusters under `placement`.
#[must_use]
pub fn natively_divisible(template: &Value, placement: Option<&Value>) -> bool {
    divided(placement) && kinds::divisible_kind(template)
}

/// Returns `clusterAffinities` in order, or the one `clusterAffinity`.
fn groups(placement: &Field<'_>) -> Result<Vec<ClusterRule>, SpecError> {
    let several = placement.get("clusterAffinities")?.items()?;
    if !several.is_empty() {
        return several.iter().map(rule).collect();
    }
    let one = placement.get("clusterAffinity")?;
    if one.is_set() {
        Ok(vec![rule(&one)?])
    } else {
        Ok(Vec::new())
    }
}

/// Reads a cluster affinity; empty lists and selectors select every cluster.
fn rule(affinity: &Field<'_>) -> Result<ClusterRule, SpecError> {
    let names = names(&affinity.get("clusterNames")?)?;
    let mut labels = Vec::new();
    for (key, value) in affinity.get("labelSelector.matchLabels")?.entries()? {
        let values = value.text()?.map(str::to_owned).into_iter().collect();
        labels.push(Requirement {
            key: key.to_owned(),
            operator: Operator::In,
            values,
        });
    }
    labels.extend(nodes::requirements(
        &affinity.get("labelSelector.matchExpressions")?,
    )?);
    Ok(ClusterRule {
        name: affinity
            .get("affinityName")?
            .text()?
            .unwrap_or_default()
            .to_owned(),
        names: (!names.is_empty()).then(|| names.into_iter().collect()),
        exclude: self::names(&affinity.get("exclude")?)?
            .into_iter()
            .collect(),
        labels,
        fields: nodes::requirements(&affinity.get("fieldSelector.matchExpressions")?)?,
    })
}

fn names(list: &Field<'_>) -> Result<Vec<ClusterName>, SpecError> {
    let name = |item: &Field<'_>| {
        item.text()?
            .map(ClusterName::new)
            .ok_or_else(|| item.invalid("a name"))
    };
    list.items()?.iter().map(name).collect()
}

fn no_cluster() -> ClusterRule {
    ClusterRule {
        names: Some(std::iter::empty().collect()),
        ..ClusterRule::default()
    }
}

/// Returns the least and most clusters that the spread constraints allow. Groups by region, zone, provider
/// or label consist of clusters, so n groups need n clusters, and n clusters are at most n groups: counting
/// clusters instead is stricter, and never wrong.
fn spread(placement: &Field<'_>) -> (Option<u32>, Option<u32>) {
    let constraints = placement
        .get("spreadConstraints")
        .and_then(|list| list.items())
        .unwrap_or_default();
    let bound = |item: &Field<'_>, key| {
        item.get(key)
            .and_then(|field| field.count())
            .ok()
            .flatten()
            .filter(|n| *n > 0)
    };
    let least = constraints
        .iter()
        .filter_map(|item| bound(item, "minGroups"))
        .max();
    let most = constraints
        .iter()
        .filter_map(|item| bound(item, "maxGroups"))
        .min();
    (least, most)
}

#[cfg(test)]
mod tests;
