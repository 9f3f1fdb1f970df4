//! How long a job stays after its end.
//!
//! Kinds specify it in their templates and a controller in the member acts on it. Members must not do that:
//! Karmada would create the deleted object again, and the job would run again. Karmada removes the field
//! from every kind named Job, but not from other kinds. So Muster deletes jobs where they were submitted.

use crate::kinds;
use crate::outcome::text;
use serde_json::{Value, json};

/// How long a job stays after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeToLive {
    /// Milliseconds.
    pub after_ms: i64,
    /// The path in its template (a JSON pointer), if its members would act on it.
    pub in_members: Option<&'static str>,
    /// True if the control plane's own controller acts on it, once the template's status shows an end: that of
    /// batch/v1 Jobs.
    pub by_control_plane: bool,
}

/// The field of a kind that says how long it stays after its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TtlField {
    /// Its path.
    pub(crate) path: &'static str,
    /// True if members would act on it.
    pub(crate) in_members: bool,
    /// True if the control plane's own controller acts on it.
    pub(crate) by_control_plane: bool,
}

/// Returns the time to live in a job's template; `None` if it has none, or its kind has no such field.
#[must_use]
pub fn time_to_live(template: &Value) -> Option<TimeToLive> {
    let (api_version, kind) = (text(template, "apiVersion"), text(template, "kind"));
    let field = kinds::of_group(api_version, kind)?.ttl_field()?;
    let seconds = template.pointer(field.path)?.as_i64()?;
    Some(TimeToLive {
        by_control_plane: field.by_control_plane,
        after_ms: seconds.max(0).saturating_mul(1000),
        in_members: field.in_members.then_some(field.path),
    })
}

/// Returns when a part of a job ended, as its member reports (RFC 3339); `None` while it runs.
#[must_use]
pub fn ended_at<'a>(api_version: &str, kind: &str, status: &'a Value) -> Option<&'a str> {
    let at = kinds::of_group(api_version, kind)?.ended_at(status)?;
    Some(at).filter(|at| !at.is_empty())
}

/// Returns what its members get instead: the longest possible time, about 68 years.
#[must_use]
pub fn for_ever() -> Value {
    json!(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::yaml;

    fn told(template: &str) -> String {
        let template = yaml(template);
        let Some(ttl) = time_to_live(&template) else {
            return "none".to_owned();
        };
        let path = match ttl.by_control_plane {
            true => "the control plane",
            false => ttl.in_members.unwrap_or("-"),
        };
        let (api_version, kind) = (text(&template, "apiVersion"), text(&template, "kind"));
        let ended = ended_at(api_version, kind, &template["status"]).unwrap_or("runs");
        format!("{} ms, {path}, {ended}", ttl.after_ms)
    }

    #[test]
    fn each_kind_has_its_own_ttl_field() {
        for (template, want) in [
            (
                "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {ttlSecondsAfterFinished: 5}, status: {state: {phase: Running, lastTransitionTime: t}}}",
                "5000 ms, -, runs",
            ),
            (
                "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {ttlSecondsAfterFinished: 0}, status: {state: {phase: Completed, lastTransitionTime: t}}}",
                "0 ms, -, t",
            ),
            (
                "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {runPolicy: {ttlSecondsAfterFinished: 5}}, status: {completionTime: t, conditions: [{type: Succeeded, status: 'True', lastTransitionTime: u}]}}",
                "5000 ms, /spec/runPolicy/ttlSecondsAfterFinished, t",
            ),
            (
                "{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {runPolicy: {ttlSecondsAfterFinished: 5}}, status: {conditions: [{type: Failed, status: 'True', lastTransitionTime: u}, {type: Running, status: 'False'}]}}",
                "5000 ms, /spec/runPolicy/ttlSecondsAfterFinished, u",
            ),
            (
                "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {ttlSecondsAfterFinished: 5}, status: {conditions: [{type: Completed, status: 'True', lastTransitionTime: u}]}}",
                "5000 ms, /spec/ttlSecondsAfterFinished, u",
            ),
            (
                "{apiVersion: batch/v1, kind: Job, spec: {ttlSecondsAfterFinished: 5}}",
                "5000 ms, the control plane, runs",
            ),
            (
                "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {runPolicy: {}}}",
                "none",
            ),
        ] {
            assert_eq!(told(template), want, "{template}");
        }
    }
}
