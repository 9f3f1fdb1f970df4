//! Events on a user's own object: what was done with the job and why.
//!
//! A note is said once until something else is said of the same object; posting is a task of
//! its own with a bounded queue, so that events can be lost but never hold a decision up.

use crds::karmada::ObjectReference;
use engine::Reason;
use k8s_openapi::api::core::v1 as core_v1;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Notes that may wait to be posted; more are dropped.
const QUEUE: usize = 200;
/// Kubernetes' own bound on an event's note, in bytes.
const LONGEST_NOTE: usize = 1_024;
/// Events posted a second at most, since they share the API server with
/// the writes that matter.
const PER_SECOND: u32 = 5;
/// Objects whose last note is remembered.
const REMEMBERED: usize = 100_000;

/// One thing to tell a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) reason: Reason,
    pub(crate) action: &'static str,
    pub(crate) message: String,
    warning: bool,
}

impl Note {
    pub(crate) fn normal(reason: Reason, action: &'static str, message: String) -> Self {
        Self {
            reason,
            action,
            message,
            warning: false,
        }
    }

    pub(crate) fn warning(reason: Reason, action: &'static str, message: String) -> Self {
        Self {
            reason,
            action,
            message,
            warning: true,
        }
    }
}

/// Where notes go.
#[derive(Debug)]
pub(crate) struct Notes {
    queue: mpsc::Sender<(core_v1::ObjectReference, Note)>,
    last: HashMap<String, Note>,
}

impl Notes {
    /// Starts the task that posts.
    pub(crate) fn spawn(client: kube::Client, cancel: CancellationToken) -> Self {
        let (queue, mut notes) = mpsc::channel::<(core_v1::ObjectReference, Note)>(QUEUE);
        runtime::task::spawn(async move {
            let reporter = Reporter {
                controller: "muster-controller".into(),
                instance: None,
            };
            let mut pace = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
            while let Some(Some((object, note))) = cancel.run_until_cancelled(notes.recv()).await {
                pace.tick().await;
                // One that remembers would take a note with the same reason for a repetition of
                // the last, and count it without its words.
                let recorder = Recorder::new(client.clone(), reporter.clone());
                if let Err(error) = recorder.publish(&event(note), &object).await {
                    tracing::debug!(%error, "an event was not posted");
                }
            }
        });
        Self {
            queue,
            last: HashMap::new(),
        }
    }

    /// Says `note` of `object`, unless it was the last thing said of it.
    pub(crate) fn say(&mut self, object: &ObjectReference, note: Note) {
        if self.last.get(&object.uid) == Some(&note) {
            return;
        }
        if self.last.len() >= REMEMBERED {
            self.last.clear();
        }
        self.last.insert(object.uid.clone(), note.clone());
        let reference = core_v1::ObjectReference {
            api_version: Some(object.api_version.clone()),
            kind: Some(object.kind.clone()),
            namespace: Some(object.namespace.clone()),
            name: Some(object.name.clone()),
            uid: Some(object.uid.clone()),
            ..core_v1::ObjectReference::default()
        };
        if self.queue.try_send((reference, note)).is_err() {
            tracing::debug!(object = %object.name, "too many events wait to be posted; one is dropped");
        }
    }
}

fn event(note: Note) -> Event {
    let mut message = note.message;
    if message.len() > LONGEST_NOTE {
        let end = (0..=LONGEST_NOTE - 3)
            .rev()
            .find(|&i| message.is_char_boundary(i))
            .unwrap_or(0);
        message.truncate(end);
        message.push_str("...");
    }
    Event {
        type_: if note.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: note.reason.to_string(),
        note: Some(message),
        action: note.action.to_owned(),
        secondary: None,
    }
}
