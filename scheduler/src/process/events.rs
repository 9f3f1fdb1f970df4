//! Events on bindings: posted in the background, each once for a binding while it is remembered.

use crds::karmada::ResourceBinding;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use std::collections::HashSet;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Capacity of the queue of events; more are lost.
const QUEUE: usize = 256;
/// Most bindings that are remembered.
const REMEMBERED: usize = 100_000;

/// Handle of the task that posts events.
#[derive(Debug)]
pub(super) struct Events {
    queue: mpsc::Sender<(ObjectReference, Event)>,
    told: HashSet<String>,
}

impl Events {
    pub(super) fn spawn(client: Client, cancel: CancellationToken) -> Self {
        let (queue, mut events) = mpsc::channel::<(ObjectReference, Event)>(QUEUE);
        let posting = async move {
            let reporter = Reporter {
                controller: "muster-scheduler".into(),
                instance: None,
            };
            let recorder = Recorder::new(client, reporter);
            while let Some((object, event)) = events.recv().await {
                if let Err(error) = recorder.publish(&event, &object).await {
                    tracing::debug!(%error, "an event was not posted");
                }
            }
        };
        runtime::task::spawn(cancel.run_until_cancelled_owned(posting));
        Self {
            queue,
            told: HashSet::new(),
        }
    }

    /// Posts a warning on `binding`; returns false if the last one was the same.
    pub(super) fn warn(&mut self, binding: &ResourceBinding, reason: &str, message: &str) -> bool {
        if self.told.len() >= REMEMBERED {
            self.told.clear();
        }
        if !self
            .told
            .insert(binding.metadata.uid.clone().unwrap_or_default())
        {
            return false;
        }
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(message.to_owned()),
            action: "Place".to_owned(),
            secondary: None,
        };
        // A full queue drops it: events may get lost.
        let _ = self.queue.try_send((binding.object_ref(&()), event));
        true
    }
}
