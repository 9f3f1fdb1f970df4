//! What an act changes in the workload of a job.

use crate::connect::{Existence, existence};
use crate::jobs::ListedJob;
use anyhow::{Result, bail, ensure};
use crds::names::{HOLD_LABEL, PRIORITY_CLASS_LABEL, RESUME_ANNOTATION};
use crds::podgroup::StatusWord;
use crds::queue::Queue;
use engine::Reason;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Client;
use serde_json::{Value, json};

/// An act on jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobAct {
    Cancel,
    Hold,
    Release,
    /// Resumes one that is suspended or was aborted.
    Resume,
    /// Gives it this PriorityClass.
    Priority(String),
    /// Moves it to this queue.
    Move(String),
}

/// A change of a workload, with a note for the user.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum JobChange {
    Delete(Option<String>),
    /// A JSON merge patch.
    Merge(Value, Option<String>),
    Nothing(Option<String>),
}

impl JobAct {
    /// Returns what was done, as kubectl says it of an object.
    pub(crate) fn done(&self) -> String {
        match self {
            Self::Cancel => "cancelled".to_owned(),
            Self::Hold => "held".to_owned(),
            Self::Release => "released".to_owned(),
            Self::Resume => "resumed".to_owned(),
            Self::Priority(class) => format!("given the PriorityClass {class}"),
            Self::Move(queue) => format!("moved to the queue {queue}"),
        }
    }

    /// Fails if the queue or the PriorityClass does not exist. Users who may not read it get a note.
    pub(super) async fn check(&self, client: &Client) -> Result<()> {
        let (target, found) = match self {
            Self::Priority(class) => (
                format!("PriorityClass {class:?}"),
                existence::<PriorityClass>(class, client).await?,
            ),
            Self::Move(queue) => (
                format!("queue {queue:?}"),
                existence::<Queue>(queue, client).await?,
            ),
            Self::Cancel | Self::Hold | Self::Release | Self::Resume => return Ok(()),
        };
        match found {
            Existence::Exists => {}
            Existence::Missing => bail!("{target} does not exist"),
            Existence::Unreadable => {
                eprintln!("note: you may not read {target}, so it was not checked that it exists");
            }
        }
        Ok(())
    }

    /// Returns what the act changes in `template`, the workload of `job`.
    pub(super) fn change(&self, job: &ListedJob, template: &Value) -> Result<JobChange> {
        let label = |key: &str| template["metadata"]["labels"][key].as_str();
        let status = job.status();
        Ok(match self {
            Self::Cancel if !template["metadata"]["deletionTimestamp"].is_null() => {
                unchanged("it is being deleted already")
            }
            Self::Cancel => JobChange::Delete(None),
            Self::Hold if label(HOLD_LABEL) == Some("true") => unchanged("it is held already"),
            Self::Hold => set_label(HOLD_LABEL, json!("true"), held_note(status)),
            Self::Release if label(HOLD_LABEL).is_none() => unchanged("it is not held"),
            Self::Release => set_label(HOLD_LABEL, Value::Null, None),
            Self::Resume => resume(job, template)?,
            Self::Priority(class) if label(PRIORITY_CLASS_LABEL) == Some(class) => {
                unchanged("it has that PriorityClass already")
            }
            Self::Priority(class) => set_label(PRIORITY_CLASS_LABEL, json!(class), None),
            Self::Move(queue) if workload::named_queue(template).as_ref() == Some(queue) => {
                unchanged("it is in that queue already")
            }
            Self::Move(queue) => {
                ensure!(
                    !status.is_admitted(),
                    "it is {status} and charged to queue {}; only pending jobs can be moved",
                    job.group.spec.queue
                );
                JobChange::Merge(workload::to_queue(template, queue), over_note(status))
            }
        })
    }
}

/// The fields by which kinds are suspended.
const SUSPEND: [&[&str]; 2] = [&["spec", "suspend"], &["spec", "runPolicy", "suspend"]];

/// Returns what resumes a job: the field that suspends it becomes false, or an annotation names the attempt that its
/// own policy has aborted.
fn resume(job: &ListedJob, template: &Value) -> Result<JobChange> {
    let field = SUSPEND.iter().find(|path| {
        let value = path.iter().fold(template, |value, name| &value[*name]);
        *value == json!(true)
    });
    if let Some(path) = field {
        let patch = path
            .iter()
            .rev()
            .fold(json!(false), |value, name| json!({(*name): value}));
        return Ok(JobChange::Merge(patch, None));
    }
    let is_aborted = job.reason() == Reason::Aborted.as_str();
    let attempt = job.federation().and_then(|federation| federation.attempt);
    if let (true, Some(attempt)) = (is_aborted, attempt) {
        let annotations = json!({RESUME_ANNOTATION: attempt.to_string()});
        let patch = json!({"metadata": {"annotations": annotations}});
        return Ok(JobChange::Merge(
            patch,
            Some(format!("as attempt {}", attempt + 1)),
        ));
    }
    ensure!(
        job.reason() != Reason::Suspended.as_str(),
        "it was aborted in its member: resume it there (`vcctl job resume`)"
    );
    let is_held = template["metadata"]["labels"][HOLD_LABEL] == json!("true");
    Ok(match is_held {
        true => unchanged("it is held, and not suspended: `kubectl muster release` releases it"),
        false => unchanged("it is not suspended"),
    })
}

fn unchanged(why: &str) -> JobChange {
    JobChange::Nothing(Some(why.to_owned()))
}

fn set_label(key: &str, value: Value, note: Option<String>) -> JobChange {
    JobChange::Merge(json!({"metadata": {"labels": {key: value}}}), note)
}

fn held_note(status: StatusWord) -> Option<String> {
    match status.is_admitted() {
        true => Some(format!(
            "it is {status}: the hold acts only once it is queued again"
        )),
        false => over_note(status),
    }
}

fn over_note(status: StatusWord) -> Option<String> {
    status.is_over().then(|| "it has ended".to_owned())
}
