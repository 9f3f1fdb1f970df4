//! Events on a user's object: what happened to the job and why.
//!
//! An event is recorded once until another event of the same object is recorded. A task of its own posts
//! events from a bounded queue, so that events can get lost but never delay a decision.

use crds::karmada::ObjectReference;
use engine::Reason;
use k8s_openapi::api::core::v1 as core_v1;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Capacity of the queue of events; more are dropped.
const QUEUE: usize = 200;
/// Kubernetes' limit of an event's note, in bytes.
const LONGEST_NOTE: usize = 1_024;
/// Most events posted in a second, because they share the API server with more important writes.
const PER_SECOND: u32 = 5;
/// Most objects whose last event is remembered.
const REMEMBERED: usize = 100_000;

/// An event on a user's object: a reason, an action and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobEvent {
    pub(crate) reason: Reason,
    pub(crate) action: &'static str,
    pub(crate) message: String,
    warning: bool,
}

impl JobEvent {
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

/// Records events of jobs and posts them at a limited rate.
#[derive(Debug)]
pub(crate) struct EventRecorder {
    queue: mpsc::Sender<(core_v1::ObjectReference, JobEvent)>,
    last: HashMap<String, JobEvent>,
}

impl EventRecorder {
    /// Starts the task that posts events.
    pub(crate) fn spawn(client: kube::Client, cancel: CancellationToken) -> Self {
        let (queue, mut events) = mpsc::channel::<(core_v1::ObjectReference, JobEvent)>(QUEUE);
        runtime::task::spawn(async move {
            let reporter = Reporter {
                controller: "muster-controller".into(),
                instance: None,
            };
            let mut pace = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
            while let Some(Some((object, event))) = cancel.run_until_cancelled(events.recv()).await
            {
                pace.tick().await;
                // A recorder that is reused would treat a note with the same reason as a repetition of the last one,
                // and drop its text.
                let recorder = Recorder::new(client.clone(), reporter.clone());
                if let Err(error) = recorder.publish(&as_event(event), &object).await {
                    tracing::debug!(%error, "an event was not posted");
                }
            }
        });
        Self {
            queue,
            last: HashMap::new(),
        }
    }

    /// Records `event` of `object` if it differs from the last one.
    pub(crate) fn record(&mut self, object: &ObjectReference, event: JobEvent) {
        if self.last.get(&object.uid) == Some(&event) {
            return;
        }
        if self.last.len() >= REMEMBERED {
            self.last.clear();
        }
        self.last.insert(object.uid.clone(), event.clone());
        let reference = core_v1::ObjectReference {
            api_version: Some(object.api_version.clone()),
            kind: Some(object.kind.clone()),
            namespace: Some(object.namespace.clone()),
            name: Some(object.name.clone()),
            uid: Some(object.uid.clone()),
            ..core_v1::ObjectReference::default()
        };
        if self.queue.try_send((reference, event)).is_err() {
            tracing::debug!(object = %object.name, "too many events wait to be posted; one is dropped");
        }
    }
}

fn as_event(event: JobEvent) -> Event {
    let mut message = event.message;
    if message.len() > LONGEST_NOTE {
        let end = (0..=LONGEST_NOTE - 3)
            .rev()
            .find(|&i| message.is_char_boundary(i))
            .unwrap_or(0);
        message.truncate(end);
        message.push_str("...");
    }
    Event {
        type_: if event.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: event.reason.to_string(),
        note: Some(message),
        action: event.action.to_owned(),
        secondary: None,
    }
}
