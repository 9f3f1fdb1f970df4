//! Whether a job may be placed over several clusters: what its template asks for, and whether its kind can
//! be split.
//!
//! A kind can be split if the operator of each cluster can run its part as a whole job. Pods of Volcano
//! Jobs, batch/v1 Jobs and JobSets find their place in the gang in their environment
//! ([`mod@crate::parts`]). Those of Kubeflow's kinds, RayClusters and RayJobs also have to find each other
//! ([`crate::rendezvous`]). A kind stays in one cluster if its operator passes names of pods to
//! each other, which only one cluster resolves. A job stays in one cluster if it has rules that need to see
//! all of it. A request for an impossible split is no error: the job runs in one cluster, and [`refused`]
//! says why.

use crate::error::SpecError;
use crate::field::Field;
use crate::kinds;
use crate::rendezvous::Meeting;
use crate::{annotations, parts};
use facts::Split;
use serde_json::Value;

/// Annotation: over how many clusters the job may be placed.
pub(crate) const SPLIT: &str = "muster.io/split";

/// What a template says about being split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SplitRequest {
    /// Whether, and how readily; `None` if its queue decides.
    pub(crate) split: Option<Split>,
    /// The most clusters, if it names a number.
    pub(crate) max_clusters: Option<u32>,
}

/// Returns what `template` asks for and may have: `Never` if it cannot be split.
///
/// # Errors
/// Returns an error if the annotation has an invalid value.
pub(crate) fn request(template: &Field<'_>) -> Result<SplitRequest, SpecError> {
    let requested = read_annotation(template)?;
    let can = template
        .value()
        .is_some_and(|object| unsplittable(object).is_none());
    Ok(if can {
        requested
    } else {
        SplitRequest::of(Split::Never)
    })
}

/// Returns why a template that asks to be split is not; `None` if it is, or does not ask.
pub(crate) fn refused(template: &Value) -> Option<String> {
    let split = read_annotation(&Field::root(template)).ok()?.split;
    let why =
        unsplittable(template).filter(|_| split.is_some_and(|split| split != Split::Never))?;
    Some(format!(
        "annotation {SPLIT} is not followed: {why}; it runs in one cluster"
    ))
}

/// Returns which pods the pods of a job of this kind have to find in other clusters.
pub(crate) fn meeting(template: &Field<'_>) -> Result<Meeting, SpecError> {
    let api_version = template.get("apiVersion")?.text()?.unwrap_or_default();
    let kind = template.get("kind")?.text()?.unwrap_or_default();
    let kind = kinds::of(api_version, kind);
    kind.map_or(Ok(Meeting::Nobody), |kind| kind.meeting(template))
}

/// Returns the reason for a job that needs a rendezvous and has none; `why` says why not.
#[must_use]
pub fn without_rendezvous(why: &str) -> String {
    format!(
        "annotation {SPLIT} is not followed: its pods could not find each other from different clusters: {why}; it runs in one cluster"
    )
}

fn read_annotation(template: &Field<'_>) -> Result<SplitRequest, SpecError> {
    let field = template.get("metadata.annotations")?.entry(SPLIT)?;
    let Some(text) = field.name()? else {
        return Ok(SplitRequest::default());
    };
    let (split, max_clusters) = split_of(text).ok_or_else(|| field.invalid(SPLIT_WORDS))?;
    Ok(SplitRequest {
        split: Some(split),
        max_clusters,
    })
}

/// What [`split_of`] reads.
pub const SPLIT_WORDS: &str = "Never, Allowed, Preferred, or the most clusters it may be in";

/// Reads over how many clusters a job may be placed, and the most of them if a number is named; `None` if the text is
/// none of [`SPLIT_WORDS`].
#[must_use]
pub fn split_of(text: &str) -> Option<(Split, Option<u32>)> {
    Some(match text {
        "Never" | "1" => (Split::Never, None),
        "Allowed" => (Split::Allowed, None),
        "Preferred" => (Split::Preferred, None),
        number => {
            let most = number.parse::<u32>().ok().filter(|most| *most > 0);
            (Split::Allowed, Some(most?))
        }
    })
}

impl SplitRequest {
    fn of(split: Split) -> Self {
        Self {
            split: Some(split),
            max_clusters: None,
        }
    }
}

/// Returns why a job cannot be split.
fn unsplittable(template: &Value) -> Option<String> {
    let kind = template.get("kind").and_then(Value::as_str)?;
    // An unreadable value is reported elsewhere.
    let elastic = annotations::asks_elastic(&Field::root(template)) == Ok(true);
    if elastic && parts::resizing(template).is_none() {
        return Some(format!(
            "an elastic {kind} is grown and shrunk in one cluster"
        ));
    }
    match kinds::of_template(template) {
        Some(known) => known.unsplittable(template),
        None => Some(kinds::only_one_cluster_resolves(kind)),
    }
}

#[cfg(test)]
mod tests;
