//! What a member says of pods of a job that it has not made: the event on the job's object there.
//!
//! A controller whose pods the API server refuses writes that into an event of the object that it makes them for:
//! `FailedCreate` (Jobs and the kinds of apps), `FailedCreatePod` (training-operator), `FailedToCreateWorkerPod`
//! (KubeRay). Read when a job waits for too long, one page. A kind whose pods are made by objects of its own has its
//! events there, and says nothing here; so does a member in which Muster may not read events.

use crate::effects::waiting_groups::{line, newest};
use crds::kubernetes::symptom;
use engine::JobKey;
use engine::faults::Symptom;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use runtime::client::with_deadline;
use std::time::Duration;

/// Deadline of the read.
const LIMIT: Duration = Duration::from_secs(10);
/// The events that are read at most; a controller repeats one of a kind.
const EVENTS: u32 = 50;

/// Returns why the pods of a job cannot be made, as the newest event of its object says.
#[expect(clippy::disallowed_methods, reason = "of one page")]
pub(super) async fn why_not_made(client: &Client, key: &JobKey) -> Option<Symptom> {
    // The binding is named after the object and its kind.
    let (name, kind) = key.name.rsplit_once('-')?;
    let events: Api<Event> = Api::namespaced(client.clone(), &key.namespace);
    let of_it = format!("involvedObject.name={name},type=Warning");
    let params = ListParams::default().fields(&of_it).limit(EVENTS);
    let listed = with_deadline(events.list(&params), LIMIT).await.ok()?;
    let mut own = listed.items;
    own.retain(|event| is_of(event, name, kind) && is_failed_create(event));
    let newest = newest(own)?;
    let message = newest.message.as_deref();
    Some(symptom(
        newest.reason.as_deref().unwrap_or_default(),
        &line(message.into_iter()),
    ))
}

fn is_of(event: &Event, name: &str, kind: &str) -> bool {
    let object = &event.involved_object;
    let of_kind = object.kind.as_deref();
    object.name.as_deref() == Some(name)
        && of_kind.is_some_and(|its| its.eq_ignore_ascii_case(kind))
}

fn is_failed_create(event: &Event) -> bool {
    let reason = event.reason.as_deref().unwrap_or_default();
    reason.starts_with("Failed") && reason.contains("Create")
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::testing::{FakeApi, Fault};
    use serde_json::json;

    const EVENTS: &str = "/api/v1/namespaces/team/events";

    fn event(api: &FakeApi, at: &str, object: (&str, &str), reason: &str, message: &str) {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": at, "namespace": "team"},
            "involvedObject": {"kind": object.0, "name": object.1}, "type": "Warning",
            "reason": reason, "message": message, "lastTimestamp": format!("2026-11-25T{at}:00:00Z"),
        });
        api.put(&format!("{EVENTS}/{at}"), event);
    }

    async fn said(api: &FakeApi) -> String {
        let key = JobKey::new("team", "my-run-job");
        let said = why_not_made(&api.client(), &key).await;
        said.map_or("nothing".to_owned(), |said| said.to_string())
    }

    #[tokio::test]
    async fn the_newest_event_about_pods_that_cannot_be_made_counts() {
        let api = FakeApi::new();
        assert_eq!(said(&api).await, "nothing");
        let own = ("Job", "my-run");
        event(&api, "09", own, "FailedCreate", "an old one");
        event(
            &api,
            "10",
            own,
            "FailedCreate",
            "Error creating: pods \"my-run-\" is forbidden:\n RuntimeClass \"gvisor\" not found",
        );
        event(&api, "11", ("Job", "run"), "FailedCreate", "of another");
        event(
            &api,
            "12",
            ("JobSet", "my-run"),
            "FailedCreate",
            "of another",
        );
        event(&api, "13", own, "BackoffLimitExceeded", "no refusal");
        let why = "FailedCreate (Error creating: pods \"my-run-\" is forbidden: RuntimeClass \"gvisor\" not found)";
        assert_eq!(said(&api).await, why);
        api.fault(1, Fault::Status(403, "forbidden"), |_| true);
        assert_eq!(said(&api).await, "nothing");
    }
}
