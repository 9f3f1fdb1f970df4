//! Kinds that start pods, whose size no template says, and that the default policy of a managed namespace
//! does not select: what a user can do to have an object of such a kind queued.
//!
//! Some of them only make jobs. A policy that selects one would not help: a member would make the jobs, past
//! every queue. Where their controller runs on the control plane, the jobs are made there, and are queued
//! like those of a user.

use super::{OTHER_KINDS, known_kinds};
use serde_json::Value;

/// Returns group and name of each kind that starts pods and that no policy of Muster selects.
pub fn unselected_kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    let others = OTHER_KINDS.iter();
    others.flat_map(|(group, names)| names.iter().map(|name| (*group, *name)))
}

/// Returns what a user can do with an object of a kind that no policy selects; `None` if the default policy
/// selects the kind, or it is not known to start pods.
#[must_use]
pub fn unselected_advice(api_version: &str, kind: &str) -> Option<String> {
    let group = super::group(api_version);
    let is_it = |(of_group, name): (&str, &str)| of_group == group && name == kind;
    unselected_kinds()
        .any(is_it)
        .then(|| advice(api_version, kind))
}

fn advice(api_version: &str, kind: &str) -> String {
    maker_advice(api_version, kind).unwrap_or_else(|| {
        let mut kinds: Vec<&str> = known_kinds().map(|kind| kind.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        format!(
            "Muster cannot read its size from its template; use one of {}, or create a PropagationPolicy in this \
             namespace that selects {api_version} {kind} and has spec.schedulerName: muster, with a \
             ResourceInterpreterCustomization that returns its replicas",
            kinds.join(", ")
        )
    })
}

/// Returns, in short, what a user can do with an object that starts pods, or makes jobs, and is of no kind that is
/// queued; `None` for all others.
#[must_use]
pub fn unqueued_advice(object: &Value) -> Option<String> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if super::is_known_kind(api_version, kind) {
        return None;
    }
    let starts = super::may_start_pods(api_version, kind) || has_pod_template(object, DEEPEST);
    maker_advice(api_version, kind).or_else(|| {
        starts.then(|| {
            format!(
                "Muster queues {api_version} {kind} only where Karmada can tell its size and a PropagationPolicy with \
                 schedulerName: muster selects it (docs/reference/jobs.md)"
            )
        })
    })
}

/// How deep a pod template is searched for.
const DEEPEST: usize = 8;

/// Returns true if a field `template` with containers is somewhere in `value`.
fn has_pod_template(value: &Value, depth: usize) -> bool {
    let Some(less) = depth.checked_sub(1) else {
        return false;
    };
    match value {
        Value::Object(fields) => fields.iter().any(|(name, field)| {
            let is_template = name == "template" && field["spec"]["containers"].is_array();
            is_template || has_pod_template(field, less)
        }),
        Value::Array(items) => items.iter().any(|item| has_pod_template(item, less)),
        _ => false,
    }
}

/// Returns what a user can do with an object of a kind that only makes jobs; `None` for other kinds.
pub(crate) fn maker_advice(api_version: &str, kind: &str) -> Option<String> {
    let made = |what: &str, controller: &str| {
        format!(
            "Muster queues the {what} that it makes, where an operator runs {controller} on the control plane \
             (docs/how-to/cronjob.md)"
        )
    };
    Some(match (super::group(api_version), kind) {
        ("batch", "CronJob") => format!(
            "{}; else create each Job in this namespace, as with kubectl create job NAME --from=cronjob/CRONJOB",
            made("Jobs", "the cronjob-controller"),
        ),
        ("trainer.kubeflow.org", "TrainJob") => format!(
            "{}; else create that JobSet, or a job of the framework, in this namespace",
            made("JobSet", "the controller of Kubeflow Trainer"),
        ),
        (
            _,
            "CronJob"
            | "JobFlow"
            | "HyperJob"
            | "ScheduledSparkApplication"
            | "RayCronJob"
            | "CronWorkflow"
            | "AdvancedCronJob",
        ) => format!(
            "Muster queues jobs, not what makes them; create the jobs of the {kind} in this namespace"
        ),
        _ => return None,
    })
}
