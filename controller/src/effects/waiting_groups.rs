//! What the Volcano of a member says of a job whose PodGroup it has not let in, so that there are no pods.
//!
//! Read when a job waits for too long, in three calls: one page of the PodGroups of its namespace, the events of the
//! one that waits, and its queue. Volcano writes no condition for a group that waits in its queue, but an event, and
//! nothing at all for a queue that is closed. A member without Volcano, and one in which Muster may not read these
//! objects, says nothing.

use crds::karmada::LooseCondition;
use crds::kubernetes::symptom;
use crds::podgroup::PodGroup;
use engine::JobKey;
use engine::faults::Symptom;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use runtime::client::with_deadline;
use serde_json::Value;
use std::time::Duration;

/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// The PodGroups that are read at most.
const PAGE: u32 = 500;
/// The events of one PodGroup that are read at most; Volcano repeats one of a kind.
const EVENTS: u32 = 50;
/// The phase of a PodGroup that Volcano has not let in. An empty one is as new.
const PENDING: &str = "Pending";

/// Returns what keeps the PodGroup of a job waiting, if there is one and it waits.
#[expect(clippy::disallowed_methods, reason = "of one page")]
pub(super) async fn what_keeps(client: &Client, key: &JobKey) -> Option<Symptom> {
    let groups = ApiResource::erase::<PodGroup>(&());
    let groups: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, &groups);
    let params = ListParams::default().limit(PAGE);
    let listed = with_deadline(groups.list(&params), LIMIT).await.ok()?;
    let mut own: Vec<DynamicObject> = listed.items;
    own.retain(|group| members::likely_job(&group.metadata).as_ref() == Some(key) && waits(group));
    let group = own.into_iter().min_by_key(|group| group.name_any())?;
    let said = match condition_of(&group) {
        Some(said) => Some(said),
        None => event_of(client, key, &group.name_any()).await,
    };
    let queue = group.data.pointer("/spec/queue").and_then(Value::as_str);
    let queue = match queue {
        Some(queue) => closed(client, queue).await,
        None => None,
    };
    Some(told(&group, said, queue))
}

fn phase(group: &DynamicObject) -> &str {
    let phase = group.data.pointer("/status/phase").and_then(Value::as_str);
    phase.filter(|phase| !phase.is_empty()).unwrap_or(PENDING)
}

fn waits(group: &DynamicObject) -> bool {
    phase(group) == PENDING
}

fn told(group: &DynamicObject, said: Option<String>, queue: Option<String>) -> Symptom {
    let words: Vec<String> = queue.into_iter().chain(said).collect();
    let name = group.name_any();
    let message = match words.as_slice() {
        [] => name,
        words => format!("{name}: {}", words.join("; ")),
    };
    symptom(&format!("PodGroup {}", phase(group)), &message)
}

/// Returns the newest condition of a PodGroup that is True, in one line.
fn condition_of(group: &DynamicObject) -> Option<String> {
    let conditions = group.data.pointer("/status/conditions")?.clone();
    let conditions: Vec<LooseCondition> = serde_json::from_value(conditions).ok()?;
    let holds = conditions.into_iter().filter(LooseCondition::is_true);
    let newest = holds.max_by_key(|condition| condition.last_transition_time)?;
    let parts = [&newest.type_, &newest.reason, &newest.message];
    Some(line(parts.into_iter().map(String::as_str)))
}

/// Returns the newest event of a PodGroup, in one line.
#[expect(clippy::disallowed_methods, reason = "of one page")]
async fn event_of(client: &Client, key: &JobKey, name: &str) -> Option<String> {
    let events: Api<Event> = Api::namespaced(client.clone(), &key.namespace);
    let of_it = format!("involvedObject.kind=PodGroup,involvedObject.name={name}");
    let params = ListParams::default().fields(&of_it).limit(EVENTS);
    let listed = with_deadline(events.list(&params), LIMIT).await.ok()?;
    let newest = newest(listed.items)?;
    let parts = [newest.reason, newest.message];
    Some(line(parts.iter().flatten().map(String::as_str)))
}

/// Returns the newest of some events.
pub(super) fn newest(events: Vec<Event>) -> Option<Event> {
    let at = |event: &Event| {
        let seen = event.last_timestamp.as_ref().map(|at| at.0);
        seen.or(event.event_time.as_ref().map(|at| at.0))
    };
    events.into_iter().max_by_key(at)
}

/// Returns the parts in one line: the status of jobs shows it.
pub(super) fn line<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let parts = parts.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

/// Returns what a queue of the member is, unless it is open.
async fn closed(client: &Client, name: &str) -> Option<String> {
    let queues = GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "Queue");
    let queues: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&queues));
    let queue = with_deadline(queues.get(name), LIMIT).await.ok()?;
    let state = queue
        .data
        .pointer("/status/state")
        .and_then(Value::as_str)?;
    let is_open = state.is_empty() || state == "Open";
    (!is_open).then(|| format!("its queue {name} is {state} in that cluster"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use runtime::testing::{FakeApi, Fault};
    use serde_json::json;

    const GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups";
    const EVENTS: &str = "/api/v1/namespaces/team/events";
    const QUEUE: &str = "/apis/scheduling.volcano.sh/v1beta1/queues/q";

    /// A PodGroup of the Volcano Job `owner`.
    fn group(api: &FakeApi, owner: &str, status: Value) {
        let name = format!("{owner}-7");
        let owner = json!([{
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": owner, "uid": "7",
            "controller": true,
        }]);
        let group = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "team", "ownerReferences": owner},
            "spec": {"queue": "q"}, "status": status,
        });
        api.put(&format!("{GROUPS}/{name}"), group);
    }

    fn event(api: &FakeApi, name: &str, message: &str, at: &str) {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "team"},
            "involvedObject": {"kind": "PodGroup", "name": "a-7"}, "reason": "Unschedulable",
            "message": message, "lastTimestamp": at,
        });
        api.put(&format!("{EVENTS}/{name}"), event);
    }

    fn queue(api: &FakeApi, state: &str) {
        let queue = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"},
            "status": {"state": state},
        });
        api.put(QUEUE, queue);
    }

    async fn said(api: &FakeApi) -> String {
        let key = JobKey::new("team", "a-job");
        let said = what_keeps(&api.client(), &key).await;
        said.map_or("nothing".to_owned(), |said| said.to_string())
    }

    #[tokio::test]
    async fn a_group_that_waits_says_why_as_far_as_that_can_be_read() {
        let api = FakeApi::new();
        assert_eq!(said(&api).await, "nothing");
        group(&api, "another", json!({"phase": "Pending"}));
        assert_eq!(said(&api).await, "nothing");
        group(&api, "a", json!({"phase": "Inqueue"}));
        assert_eq!(said(&api).await, "nothing");
        group(&api, "a", json!({}));
        assert_eq!(said(&api).await, "PodGroup Pending (a-7)");
        event(
            &api,
            "old",
            "resource in cluster is overused",
            "2026-11-25T10:00:00Z",
        );
        event(
            &api,
            "new",
            "queue resource\n quota insufficient",
            "2026-11-25T11:00:00Z",
        );
        group(&api, "a", json!({"phase": "Pending"}));
        let quota = "Unschedulable: queue resource quota insufficient";
        assert_eq!(said(&api).await, format!("PodGroup Pending (a-7: {quota})"));
        queue(&api, "Open");
        assert_eq!(said(&api).await, format!("PodGroup Pending (a-7: {quota})"));
        queue(&api, "Closed");
        let closed = "its queue q is Closed in that cluster";
        let both = format!("PodGroup Pending (a-7: {closed}; {quota})");
        assert_eq!(said(&api).await, both);
        let condition = |kind: &str, status: &str, at: &str| {
            json!({
                "type": kind, "status": status, "reason": "NotEnoughResources", "message": "2/2 tasks",
                "lastTransitionTime": at,
            })
        };
        let conditions = json!([
            condition("Old", "True", "2026-11-25T10:00:00Z"),
            condition("Unschedulable", "True", "2026-11-25T11:00:00Z"),
            condition("Scheduled", "False", "2026-11-25T12:00:00Z"),
        ]);
        group(
            &api,
            "a",
            json!({"phase": "Pending", "conditions": conditions}),
        );
        let condition = "Unschedulable: NotEnoughResources: 2/2 tasks";
        let both = format!("PodGroup Pending (a-7: {closed}; {condition})");
        assert_eq!(said(&api).await, both);
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_left_out() {
        let api = FakeApi::new();
        group(&api, "a", json!({"phase": "Pending"}));
        event(&api, "new", "overused", "2026-11-25T11:00:00Z");
        queue(&api, "Closed");
        let denied = |api: &FakeApi, path: &'static str| {
            api.fault(1, Fault::Status(403, "forbidden"), move |request| {
                request.path == path
            });
        };
        denied(&api, QUEUE);
        assert_eq!(
            said(&api).await,
            "PodGroup Pending (a-7: Unschedulable: overused)"
        );
        denied(&api, EVENTS);
        assert_eq!(
            said(&api).await,
            "PodGroup Pending (a-7: its queue q is Closed in that cluster)"
        );
        denied(&api, GROUPS);
        assert_eq!(said(&api).await, "nothing");
    }
}
