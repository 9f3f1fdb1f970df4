//! Events on a user's object: what happened to the job and why.
//!
//! An event is recorded once until another event of the same object is recorded. A task of its own posts
//! events from bounded queues, so that events can get lost but never delay a decision. The reasons of jobs
//! come at a lower rate ([`crate::status::reason_events`]) and go before what happens to jobs, so that they arrive
//! within seconds while hundreds of jobs are admitted.

use crate::avoided_nodes::ClusterEvent;
use crate::messages::job_event::{JobEvent, LONGEST_NOTE, PLACE, VALIDATE, WAIT, truncated};
use crate::notices::Notices;
use crds::karmada::ObjectReference;
use k8s_openapi::api::core::v1 as core_v1;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Capacity of the queue of events; more are dropped.
const QUEUE: usize = 200;
/// Capacity of the queue of reasons, which has few entries while the API server answers.
const REASONS: usize = 50;
/// Most events posted in a second, because they share the API server with more important writes.
const PER_SECOND: u32 = 5;
/// Most objects whose last event is remembered.
const REMEMBERED: usize = 100_000;

/// Where it is reported what happens.
#[derive(Debug)]
pub(crate) struct Reports {
    pub(super) events: EventRecorder,
    /// Where notices are posted, if the operator wants them.
    notices: Option<Notices>,
}

impl Reports {
    pub(crate) fn new(events: EventRecorder, notices: Option<Notices>) -> Self {
        Self { events, notices }
    }

    /// Posts a notice of what happened to a cluster or its nodes.
    pub(super) fn notify(&self, event: ClusterEvent) {
        if let Some(notices) = &self.notices {
            notices.notify(event);
        }
    }
}

/// Records events of jobs and posts them at a limited rate.
#[derive(Debug)]
pub(crate) struct EventRecorder {
    queue: mpsc::Sender<(core_v1::ObjectReference, JobEvent)>,
    /// The queue of events that say what a job waits for.
    reasons: mpsc::Sender<(core_v1::ObjectReference, JobEvent)>,
    /// The queue of events that repeat those of Karmada's scheduler.
    placements: mpsc::Sender<(core_v1::ObjectReference, JobEvent)>,
    /// The last event of each object, and the last about the values of its template.
    last: HashMap<(String, bool), JobEvent>,
}

impl EventRecorder {
    /// Starts the task that posts events.
    pub(crate) fn spawn(client: kube::Client, cancel: CancellationToken) -> Self {
        let (queue, mut events) = mpsc::channel::<(core_v1::ObjectReference, JobEvent)>(QUEUE);
        let (reasons, mut first) = mpsc::channel(REASONS);
        let (placements, mut last) = mpsc::channel(QUEUE);
        runtime::task::spawn(async move {
            let reporter = Reporter {
                controller: "muster-controller".into(),
                instance: None,
            };
            let mut pace = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
            // Otherwise a burst would follow a pause.
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                pace.tick().await;
                let (object, event) = tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    Some(next) = first.recv() => next,
                    Some(next) = events.recv() => next,
                    Some(next) = last.recv() => next,
                    else => return,
                };
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
            reasons,
            placements,
            last: HashMap::new(),
        }
    }

    /// Records `event` of `object` if it differs from the last one. What happens to a job does not make what is wrong
    /// with its template new.
    pub(crate) fn record(&mut self, object: &ObjectReference, event: JobEvent) {
        let slot = (object.uid.clone(), event.action == VALIDATE);
        if self.last.get(&slot) == Some(&event) {
            return;
        }
        if self.last.len() >= REMEMBERED {
            self.last.clear();
        }
        self.last.insert(slot, event.clone());
        let reference = core_v1::ObjectReference {
            api_version: Some(object.api_version.clone()),
            kind: Some(object.kind.clone()),
            namespace: Some(object.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(object.name.clone()),
            uid: Some(object.uid.clone()),
            ..core_v1::ObjectReference::default()
        };
        let queue = match event.action {
            WAIT => &self.reasons,
            PLACE => &self.placements,
            _ => &self.queue,
        };
        if queue.try_send((reference, event)).is_err() {
            tracing::debug!(object = %object.name, "too many events wait to be posted; one is dropped");
        }
    }
}

fn as_event(event: JobEvent) -> Event {
    let message = truncated(event.message, LONGEST_NOTE);
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

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Reason;
    use runtime::testing::FakeApi;

    fn object(name: &str) -> ObjectReference {
        ObjectReference {
            api_version: "batch/v1".into(),
            kind: "Job".into(),
            namespace: "team".into(),
            name: name.to_owned(),
            uid: format!("{name}-uid"),
            resource_version: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reasons_go_before_what_happens_and_both_at_a_limited_rate() {
        let api = FakeApi::new();
        let cancel = CancellationToken::new();
        let mut recorder = EventRecorder::spawn(api.client(), cancel.clone());
        for index in 0..1_000 {
            let event = JobEvent::normal(Reason::Admitted, "Release", "runs".into());
            recorder.record(&object(&format!("job-{index}")), event);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let event = JobEvent::normal(Reason::WaitingForQuota, WAIT, "waits".into());
        recorder.record(&object("waits"), event.clone());
        recorder.record(&object("waits"), event);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let posted = api.requests_of("POST");
        assert!((14..=17).contains(&posted.len()), "{}", posted.len());
        let waits = posted
            .iter()
            .filter(|request| request.body["note"] == "waits");
        assert_eq!(waits.count(), 1);
        tokio::time::sleep(Duration::from_secs(600)).await;
        let posted = api.requests_of("POST").len();
        assert!(posted <= QUEUE + 20, "{posted} of a thousand");
        cancel.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_complained_about_once_and_placements_come_last() {
        let api = FakeApi::new();
        let cancel = CancellationToken::new();
        let mut recorder = EventRecorder::spawn(api.client(), cancel.clone());
        let wrong = JobEvent::warning(Reason::InvalidTemplate, VALIDATE, "wrong".into());
        let placed = JobEvent::normal(Reason::ScheduleBindingSucceed, PLACE, "placed".into());
        for note in ["first", "second"] {
            recorder.record(&object("job"), placed.clone());
            recorder.record(&object("job"), wrong.clone());
            let runs = JobEvent::normal(Reason::Admitted, "Release", note.into());
            recorder.record(&object("job"), runs);
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let posted = api.requests_of("POST");
        let notes = posted
            .iter()
            .filter_map(|request| request.body["note"].as_str());
        let notes: Vec<&str> = notes.collect();
        assert_eq!(notes, ["wrong", "first", "second", "placed", "placed"]);
        cancel.cancel();
    }
}
