//! Whether a job may be placed over several clusters: what its template asks for, and whether
//! its kind can be.
//!
//! A kind can be split where each cluster's part is whole to the operator that runs it there:
//! Volcano Jobs, batch/v1 Jobs and JobSets, whose pods find their place in the gang in their
//! environment ([`mod@crate::parts`]), and PyTorchJobs, TFJobs, MPIJobs, RayClusters and RayJobs, where
//! their pods can find each other, too ([`crate::rendezvous`]). Other kinds whose operators give their pods names of each
//! other, which only one cluster resolves, stay in one; so does a job with rules that only make
//! sense where all of it is seen. Asking for what cannot be is no error: the job runs in one
//! cluster, and [`refused`] tells why.

use crate::error::AskError;
use crate::field::Field;
use crate::kinds::{self, jobset, kubeflow, ray, volcano};
use crate::rendezvous::Meeting;
use crate::{leading, parts, wishes};
use engine::facts::Split;
use serde_json::Value;

/// Annotation: over how many clusters the job may be placed.
pub(crate) const SPLIT: &str = "muster.io/split";

/// Volcano's plugins that give the pods each other's names, for a rendezvous inside one cluster
/// (pkg/controllers/job/plugins, v1.14).
const RENDEZVOUS_PLUGINS: [&str; 5] = ["hcclrank", "mpi", "pytorch", "ray", "tensorflow"];

/// What a template says of being split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wish {
    /// Whether, and how readily; `None` where it leaves that to its queue.
    pub(crate) split: Option<Split>,
    /// Over at most so many clusters, where it names a number.
    pub(crate) max_clusters: Option<u32>,
}

/// What `template` asks for, and may have: never, where it cannot be split.
///
/// # Errors
/// Where the annotation holds no answer.
pub(crate) fn wish(template: &Field<'_>) -> Result<Wish, AskError> {
    let asked = asked(template)?;
    let can = template
        .value()
        .is_some_and(|object| cannot(object).is_none());
    Ok(if can { asked } else { Wish::of(Split::Never) })
}

/// Why a template that asks to be split is not, in words; `None` where it is, or does not ask.
pub(crate) fn refused(template: &Value) -> Option<String> {
    let asked = asked(&Field::root(template)).ok()?.split;
    let why = cannot(template).filter(|_| asked.is_some_and(|asked| asked != Split::Never))?;
    Some(format!(
        "annotation {SPLIT} is not followed: {why}; it runs in one cluster"
    ))
}

/// Whom the pods of a job of this kind have to find from other clusters.
pub(crate) fn meeting(template: &Field<'_>) -> Result<Meeting, AskError> {
    let group = kinds::group(template.get("apiVersion")?.text()?.unwrap_or_default());
    Ok(match (group, template.get("kind")?.text()?) {
        ("kubeflow.org", Some("PyTorchJob")) => Meeting::First,
        ("kubeflow.org", Some("TFJob" | "MPIJob")) => Meeting::All,
        ("ray.io", Some("RayCluster" | "RayJob")) => Meeting::First,
        // Each of its pods is told where the coordinator is.
        ("jobset.x-k8s.io", Some("JobSet")) if template.get("spec.coordinator")?.is_set() => {
            Meeting::First
        }
        _ => Meeting::Nobody,
    })
}

/// What a job that must meet, and cannot, is told: why its fleet does not let it.
#[must_use]
pub fn cannot_meet(why: &str) -> String {
    format!(
        "annotation {SPLIT} is not followed: its pods could not find each other from different clusters: {why}; it runs in one cluster"
    )
}

fn asked(template: &Field<'_>) -> Result<Wish, AskError> {
    let field = template.get("metadata.annotations")?.entry(SPLIT)?;
    Ok(match field.name()? {
        None => Wish::default(),
        Some("Never" | "1") => Wish::of(Split::Never),
        Some("Allowed") => Wish::of(Split::Allowed),
        Some("Preferred") => Wish::of(Split::Preferred),
        Some(text) => {
            let most = text.parse::<u32>().ok().filter(|most| *most > 0);
            let most = most.ok_or_else(|| {
                field.invalid("Never, Allowed, Preferred, or the most clusters it may be in")
            })?;
            Wish {
                max_clusters: Some(most),
                ..Wish::of(Split::Allowed)
            }
        }
    })
}

impl Wish {
    fn of(split: Split) -> Self {
        Self {
            split: Some(split),
            max_clusters: None,
        }
    }
}

/// Why a job cannot be split.
fn cannot(template: &Value) -> Option<String> {
    let text = |key| template.get(key).and_then(Value::as_str);
    let (api_version, kind) = (text("apiVersion").unwrap_or_default(), text("kind")?);
    // What cannot be read is complained of elsewhere.
    let elastic = wishes::asks_elastic(&Field::root(template)) == Ok(true);
    if elastic && !parts::may_be_resized(template) {
        return Some(format!(
            "an elastic {kind} is grown and shrunk in one cluster"
        ));
    }
    match (kinds::group(api_version), kind) {
        ("batch.volcano.sh", "Job") => volcano(template),
        ("batch", "Job") => batch(template),
        ("kubeflow.org", "PyTorchJob") => kubeflow::pytorch::cannot(template),
        ("kubeflow.org", "TFJob") => kubeflow::tensorflow::cannot(template),
        ("kubeflow.org", "MPIJob") => kubeflow::mpi::cannot(template),
        ("jobset.x-k8s.io", "JobSet") => jobset::unsplittable::cannot(template),
        ("ray.io", "RayCluster" | "RayJob") => ray::unsplittable::cannot(template),
        ("apps", "Deployment") => Some(
            "Karmada divides a Deployment itself, where its policy says replicaSchedulingType Divided"
                .to_owned(),
        ),
        ("", "Pod") => Some("a Pod is one".to_owned()),
        _ => Some(format!(
            "the pods of a {kind} find each other by names that only one cluster resolves"
        )),
    }
}

/// What of a Volcano Job makes sense only where all of it is.
fn volcano(template: &Value) -> Option<String> {
    let spec = template.get("spec")?;
    let plugins = spec.get("plugins").and_then(Value::as_object);
    let named = |name: &&&str| plugins.is_some_and(|plugins| plugins.contains_key(**name));
    if let Some(plugin) = RENDEZVOUS_PLUGINS.iter().find(named) {
        return Some(format!(
            "spec.plugins.{plugin} gives its pods names that only one cluster resolves"
        ));
    }
    if leading::completes(spec) {
        return Some(
            "spec.policies: CompleteJob would end the part of one cluster and not the others"
                .to_owned(),
        );
    }
    let tasks = spec.get("tasks").and_then(Value::as_array)?;
    let leads = leading::role(template);
    tasks.iter().enumerate().find_map(|(index, task)| {
        let of_one_cluster = |key: &str, why: &str| {
            let set = task.get(key).is_some_and(|value| !value.is_null());
            set.then(|| format!("spec.tasks[{index}].{key} {why}"))
        };
        let name = volcano::task_name(index, task.get("name").and_then(Value::as_str));
        if leading::completes(task) && leads.as_ref() != Some(&name) {
            return Some(format!(
                "spec.tasks[{index}].policies: CompleteJob would end the part of one cluster and not the others, unless it is by TaskCompleted of a single task of one pod"
            ));
        }
        of_one_cluster("dependsOn", "waits for pods that may be in another cluster")
            .or_else(|| of_one_cluster("partitionPolicy", "counts partitions over all of its pods"))
    })
}

/// What of a batch/v1 Job makes sense only where all of it is.
pub(crate) fn batch(template: &Value) -> Option<String> {
    let set = |key: &str| {
        let value = template.pointer(&format!("/spec/{key}"));
        value.is_some_and(|value| !value.is_null())
    };
    let of_all = [
        ("successPolicy", "names indexes of the whole job"),
        ("maxFailedIndexes", "counts indexes of the whole job"),
    ];
    let found = of_all.iter().find(|(key, _)| set(key));
    found.map(|(key, why)| format!("spec.{key} {why}"))
}

#[cfg(test)]
mod tests;
