//! Which clusters a job may use: the `spec.placement` that its binding has from its policy.

use crate::error::SpecError;
use crate::field::Field;
use crate::kinds;
use crate::nodes;
use facts::matching::{ClusterRule, Operator, Requirement};
use facts::{
    ClusterName, ClusterPlacement, ClusterWeight, Division, Filters, GroupBy, GroupSpread,
};
use serde_json::Value;
use std::collections::BTreeMap;

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
    let constraints = constraints(&placement);
    let (min_clusters, max_clusters) = of_clusters(&constraints);
    ClusterPlacement {
        api: api.to_owned(),
        groups: groups(&placement).unwrap_or_else(|_| vec![no_cluster()]),
        tolerations: placement
            .get("clusterTolerations")
            .and_then(|list| nodes::tolerations(&list))
            .unwrap_or_default(),
        max_clusters,
        min_clusters,
        refused_in: BTreeMap::new(),
        data_clusters: Vec::new(),
        filters: Filters::default(),
        spread: of_groups(constraints),
        division: division(&placement).unwrap_or_default(),
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

/// One spread constraint: by single clusters if it names no group.
struct Constraint {
    by: Option<GroupBy>,
    min: Option<u32>,
    max: Option<u32>,
}

fn constraints(placement: &Field<'_>) -> Vec<Constraint> {
    let items = placement
        .get("spreadConstraints")
        .and_then(|list| list.items())
        .unwrap_or_default();
    let each = items.iter().map(|item| {
        let text = |key| item.get(key).ok().and_then(|field| field.text().ok()?);
        let bound = |key| {
            let count = item.get(key).and_then(|field| field.count()).ok();
            count.flatten().filter(|count| *count > 0)
        };
        let label = text("spreadByLabel").filter(|label| !label.is_empty());
        let by = match (text("spreadByField"), label) {
            (_, Some(label)) => Some(GroupBy::Label(label.to_owned())),
            (Some("provider"), None) => Some(GroupBy::Provider),
            (Some("region"), None) => Some(GroupBy::Region),
            (Some("zone"), None) => Some(GroupBy::Zone),
            (_, None) => None,
        };
        Constraint {
            by,
            min: bound("minGroups"),
            max: bound("maxGroups"),
        }
    });
    each.collect()
}

/// Returns the least and most clusters that the constraints allow. So many groups need as many clusters: for zones,
/// of which a cluster may have several, that is stricter than needed.
fn of_clusters(constraints: &[Constraint]) -> (Option<u32>, Option<u32>) {
    let least = constraints.iter().filter_map(|constraint| constraint.min);
    let most = constraints
        .iter()
        .filter(|constraint| constraint.by.is_none())
        .filter_map(|constraint| constraint.max);
    (least.max(), most.min())
}

fn of_groups(constraints: Vec<Constraint>) -> Vec<GroupSpread> {
    let groups = constraints.into_iter().filter_map(|constraint| {
        Some(GroupSpread {
            by: constraint.by?,
            min: constraint.min.unwrap_or(1),
            max: constraint.max,
        })
    });
    groups.collect()
}

/// Returns how the pods of a job that Karmada divides are shared out. Without weights it is as with `Aggregated`:
/// Karmada would give every cluster the same number.
fn division(placement: &Field<'_>) -> Result<Division, SpecError> {
    let scheduling = placement.get("replicaScheduling")?;
    let preference = scheduling.get("replicaDivisionPreference")?;
    if preference.text()? == Some("Aggregated") {
        return Ok(Division::Fewest);
    }
    let weights = scheduling.get("weightPreference")?;
    if weights.get("dynamicWeight")?.text()? == Some("AvailableReplicas") {
        return Ok(Division::ByCapacity);
    }
    let list = weights.get("staticWeightList")?.items()?;
    if list.is_empty() {
        return Ok(Division::Fewest);
    }
    let weight = |item: &Field<'_>| {
        Ok(ClusterWeight {
            clusters: rule(&item.get("targetCluster")?)?,
            weight: item.get("weight")?.count()?.unwrap_or(0).into(),
        })
    };
    let weights: Result<Vec<_>, SpecError> = list.iter().map(weight).collect();
    Ok(Division::ByWeight(weights?))
}

mod size;
mod unfollowed;

pub use size::too_large;
pub use unfollowed::not_followed;

#[cfg(test)]
mod tests;
