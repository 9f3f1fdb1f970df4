//! What the annotations of a template say about how its job may run: whether it is elastic, whether it may
//! be evicted, where its data is, and how close its pods must be.
//!
//! All kinds use the same annotations, except that a kind with resizable parts has its minimum in a field
//! of its own ([`crate::parts::PartResizing`]).

use crate::error::SpecError;
use crate::field::Field;
use crate::kinds::{self, WorkloadKind};
use crate::parts;
use crate::size::{self, MIN_AVAILABLE, Size};
use facts::{ClusterName, Topology};
use serde_json::Value;

/// Annotation: whether the job may run with fewer pods than its template has, and be resized.
pub(crate) const ELASTIC: &str = "muster.io/elastic";
/// Annotation: the least number of pods of an elastic job.
pub(crate) const MIN_REPLICAS: &str = "muster.io/min-replicas";
/// Annotation: comma-separated names of the clusters that hold the job's data.
const DATA_CLUSTERS: &str = "muster.io/data-clusters";
/// Volcano's label or annotation, on the job or its pods: whether they may be evicted.
const PREEMPTABLE: &str = "volcano.sh/preemptable";

/// Makes `size` elastic if the template asks for it: the minimum becomes the least number of pods. Returns
/// true if it is elastic.
///
/// # Errors
/// Returns an error if the kind cannot be resized while it runs, or the minimum is invalid.
pub(crate) fn elastic(
    template: &Field<'_>,
    replicas_held: bool,
    size: &mut Size,
) -> Result<bool, SpecError> {
    if !asks_elastic(template)? {
        return Ok(false);
    }
    let annotations = template.get("metadata.annotations")?;
    let asked = annotations.entry(ELASTIC)?;
    if let Some(resizing) = template.value().and_then(parts::resizing) {
        return (resizing.is_elastic)(template, size);
    }
    let surge = size.surge;
    let [role] = size.roles.as_mut_slice() else {
        return Err(asked.invalid(RESIZABLE));
    };
    let kind = template.value().and_then(kinds::of_template);
    if !replicas_held || kind.is_some_and(WorkloadKind::is_one_pod) {
        return Err(asked.invalid(RESIZABLE));
    }
    if surge > 0 {
        return Err(asked.invalid(
            "a Deployment whose updates start no pods beside its replicas: spec.strategy.type Recreate, or rollingUpdate.maxSurge 0",
        ));
    }
    let field = annotations.entry(MIN_REPLICAS)?;
    let stated = size::number_of_pods(&field, role.count)?;
    let gang = annotations.entry(MIN_AVAILABLE)?;
    let least = match (stated, gang.is_set()) {
        (Some(least), true) if least != size.min_available => {
            return Err(field.invalid(format!(
                "{}, what {MIN_AVAILABLE} says, or no {MIN_AVAILABLE}: an elastic job starts with what it may be shrunk to",
                size.min_available
            )));
        }
        (Some(least), _) => least,
        (None, true) => size.min_available,
        (None, false) => 1,
    };
    role.min = least.min(role.count);
    size.min_available = role.min;
    let smallest = [(&role.request, role.min)];
    size.min_resources = size::sum(&asked, smallest)?;
    Ok(role.min < role.count)
}

/// Returns true if the template asks to be elastic, whether or not that is possible.
///
/// # Errors
/// Returns an error if the annotation is neither true nor false.
pub(crate) fn asks_elastic(template: &Field<'_>) -> Result<bool, SpecError> {
    let asked = template.get("metadata.annotations")?.entry(ELASTIC)?;
    Ok(asked.truth()?.unwrap_or(false))
}

const RESIZABLE: &str = "false, or a kind that is resized while it runs: a Deployment, StatefulSet, batch/v1 Job or Volcano Job";

/// Returns true if the job may be evicted for another job: unless it, or the template of some of its pods,
/// opts out.
pub(crate) fn preemptible(template: &Field<'_>, pods: &[&Value]) -> Result<bool, SpecError> {
    let pods = pods
        .iter()
        .map(|pods| Field::at("(pod template)", pods))
        .chain([template.clone()]);
    for object in pods {
        for map in ["metadata.annotations", "metadata.labels"] {
            if object.get(map)?.entry(PREEMPTABLE)?.truth()? == Some(false) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Returns the clusters that hold its data, in the order of the annotation.
pub(crate) fn data_clusters(template: &Field<'_>) -> Result<Vec<ClusterName>, SpecError> {
    let field = template.get("metadata.annotations")?.entry(DATA_CLUSTERS)?;
    let names = field.text()?.unwrap_or_default().split(',').map(str::trim);
    Ok(names
        .filter(|name| !name.is_empty())
        .map(ClusterName::new)
        .collect())
}

/// Reads Volcano's `networkTopology`. A tier with only a name has no number here: the closest placement is
/// then preferred, and the member's Volcano enforces the name.
pub(crate) fn topology(stated: Option<&Value>) -> Result<Option<Topology>, SpecError> {
    let Some(stated) = stated else {
        return Ok(None);
    };
    let field = Field::at("spec.networkTopology", stated);
    let mode = field.get("mode")?;
    let hard = match mode.name()? {
        None | Some("hard") => true,
        Some("soft") => false,
        Some(_) => return Err(mode.invalid("hard or soft")),
    };
    let tier = field.get("highestTierAllowed")?;
    let only_named = !tier.is_set() && field.get("highestTierName")?.name()?.is_some();
    let highest_tier = match tier.count()? {
        Some(0) => return Err(tier.invalid("1 or more")),
        Some(tier) => tier,
        None => 1,
    };
    Ok(Some(Topology {
        hard: hard && !only_named,
        highest_tier,
    }))
}

#[cfg(test)]
mod tests;
