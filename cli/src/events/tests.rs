#![allow(clippy::unwrap_used)]
use super::*;
use crate::args::OutputArgs;
use crate::jobs::tests::job;
use runtime::testing::{FakeApi, Fault};

fn event(api: &FakeApi, name: &str, kind: &str, about: &str, at: &str, count: i32) {
    let object = json!({
        "metadata": {"name": name, "namespace": "vision"},
        "involvedObject": {"kind": kind, "name": about, "uid": about},
        "type": "Normal", "reason": name, "message": "it is\nso", "count": count, "lastTimestamp": at,
    });
    api.put(&format!("/api/v1/namespaces/vision/events/{name}"), object);
}

/// Returns a control plane with a job in a cluster, and the API server of that.
fn plane() -> (FakeApi, FakeApi) {
    let (plane, member) = (FakeApi::new(), FakeApi::new());
    let status = "{federation: {placement: [{cluster: gpu-a, pods: 1}]}}";
    let group = job("train", "batch/v1", "Job", "{}", status).object;
    let path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups/train-job";
    plane.put(path, serde_json::to_value(group).unwrap());
    plane.pass_on(
        "/apis/cluster.karmada.io/v1alpha1/clusters/gpu-a/proxy",
        &member,
    );
    let pod = json!({"metadata": {"name": "train-0", "namespace": "vision", "uid": "train-0",
    "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "t", "controller": true},
    ]}});
    member.put("/api/v1/namespaces/vision/pods/train-0", pod);
    event(
        &plane,
        "Admitted",
        "PodGroup",
        "train-job",
        "2026-11-30T10:00:01Z",
        1,
    );
    event(
        &plane,
        "Synced",
        "ResourceBinding",
        "train-job",
        "2026-11-30T10:00:02Z",
        1,
    );
    event(
        &plane,
        "Other",
        "PodGroup",
        "other-job",
        "2026-11-30T10:00:02Z",
        1,
    );
    event(
        &member,
        "Created",
        "Job",
        "train",
        "2026-11-30T10:00:03Z",
        1,
    );
    event(
        &member,
        "Started",
        "Pod",
        "train-0",
        "2026-11-30T10:00:04Z",
        3,
    );
    event(
        &member,
        "Foreign",
        "Pod",
        "other-0",
        "2026-11-30T10:00:04Z",
        1,
    );
    (plane, member)
}

fn command() -> EventsCommand {
    EventsCommand {
        job: "train".to_owned(),
        output: OutputArgs::default(),
        no_headers: false,
    }
}

#[tokio::test]
async fn the_events_of_a_job_are_those_of_its_objects_in_all_places_by_time() {
    let (plane, _) = plane();
    let client = plane.client_in("vision");
    let (events, why) = all("train", &client).await.unwrap();
    assert!(why.is_empty());
    let now: Timestamp = "2026-11-30T10:01:00Z".parse().unwrap();
    insta::assert_snapshot!(text(events, &command(), now).unwrap(), @r"
    AGE   CLUSTER           OBJECT                      TYPE     REASON     MESSAGE
    59s   <control plane>   podgroup/train-job          Normal   Admitted   it is so
    58s   <control plane>   resourcebinding/train-job   Normal   Synced     it is so
    57s   gpu-a             job/train                   Normal   Created    it is so
    56s   gpu-a             pod/train-0                 Normal   Started    it is so (x3)
    ");
}

#[tokio::test]
async fn a_member_that_refuses_is_named_and_the_others_are_shown() {
    let (plane, member) = plane();
    member.fault(9, Fault::Status(403, "events is forbidden"), |_| true);
    let (events, why) = all("train", &plane.client_in("vision")).await.unwrap();
    assert_eq!(events.len(), 2);
    assert!(
        why[0].starts_with("in gpu-a you may not list events in namespace \"vision\""),
        "{why:?}"
    );
}
