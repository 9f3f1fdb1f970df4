#![allow(clippy::unwrap_used)]
use crate::args::{OutputArgs, PodChoice, PodsCommand};
use crate::jobs::tests::job;
use crate::pods::{JobPlace, find};
use jiff::Timestamp;
use runtime::testing::{FakeApi, Fault};
use serde_json::{Value, json};

const PROXY: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

fn pod(api: &FakeApi, name: &str, job: &str, index: u32, node: &str) {
    let object = json!({
        "metadata": {"name": name, "namespace": "vision", "uid": name, "creationTimestamp": "2026-11-30T10:00:00Z",
            "annotations": {"batch.kubernetes.io/job-completion-index": index.to_string()},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true},
            ]},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "train:1",
            "env": [{"name": "MUSTER_RANK_OFFSET", "value": if node == "b1" { "1" } else { "0" }}],
            "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"name": "main", "image": "i",
            "imageID": "i", "ready": true, "restartCount": 0, "state": {"running": {}}}]},
    });
    api.put(&format!("/api/v1/namespaces/vision/pods/{name}"), object);
}

/// Returns a control plane with a job over two clusters, and the API servers of these.
fn plane() -> (FakeApi, [FakeApi; 2]) {
    let (plane, members) = (FakeApi::new(), [FakeApi::new(), FakeApi::new()]);
    let placement =
        "{federation: {placement: [{cluster: gpu-a, pods: 1}, {cluster: gpu-b, pods: 1}]}}";
    for (name, status) in [("train", placement), ("other", "{}")] {
        let group = job(name, "batch/v1", "Job", "{}", status).object;
        let path =
            format!("/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups/{name}-job");
        plane.put(&path, serde_json::to_value(group).unwrap());
    }
    for (cluster, member) in ["gpu-a", "gpu-b"].iter().zip(&members) {
        plane.pass_on(&format!("{PROXY}/{cluster}/proxy"), member);
    }
    pod(&members[0], "train-0-x", "train", 0, "a1");
    pod(&members[0], "other-0-x", "other", 0, "a1");
    pod(&members[1], "train-0-y", "train", 0, "b1");
    (plane, members)
}

fn command(choice: PodChoice) -> PodsCommand {
    PodsCommand {
        job: "train".to_owned(),
        choice,
        output: OutputArgs::default(),
        no_headers: false,
    }
}

#[tokio::test]
async fn the_pods_of_a_job_are_those_of_all_of_its_clusters_by_rank() {
    let (plane, _) = plane();
    let found = find("job/train", &plane.client_in("vision")).await.unwrap();
    let all = command(PodChoice::default());
    let now: Timestamp = "2026-11-30T10:01:00Z".parse().unwrap();
    let text = super::text(&all.choice.of(&found).unwrap(), &all, now).unwrap();
    insta::assert_snapshot!(text, @r"
    RANK   TASK   POD         CLUSTER   NODE   STATUS    READY   RESTARTS   DEVICES            AGE   REASON
    0      main   train-0-x   gpu-a     a1     Running   1/1     0          nvidia.com/gpu:8   60s   <none>
    1      main   train-0-y   gpu-b     b1     Running   1/1     0          nvidia.com/gpu:8   60s   <none>
    ");
    let last = PodChoice {
        rank: Some(1),
        ..PodChoice::default()
    };
    assert_eq!(last.of(&found).unwrap()[0].name(), "train-0-y");
    for (choice, want) in [
        (
            PodChoice {
                rank: Some(7),
                ..PodChoice::default()
            },
            "--rank 7: job.batch/train has no pod of this rank; it has 0, 1",
        ),
        (
            PodChoice {
                task: Some("ps".to_owned()),
                ..PodChoice::default()
            },
            "--task ps: job.batch/train has no pod of this task; it has main",
        ),
        (
            PodChoice {
                pod: Some("gpu-b/train-0-x".to_owned()),
                ..PodChoice::default()
            },
            "--pod gpu-b/train-0-x: job.batch/train has no such pod; it has gpu-a/train-0-x, gpu-b/train-0-y",
        ),
    ] {
        assert_eq!(choice.of(&found).unwrap_err().to_string(), want);
    }
}

#[tokio::test]
async fn a_cluster_that_refuses_is_named_and_the_others_are_shown() {
    let (plane, members) = plane();
    members[0].fault(9, Fault::Status(403, "pods is forbidden"), |_| true);
    let found = find("train", &plane.client_in("vision")).await.unwrap();
    assert_eq!(found.pods.len(), 1);
    assert_eq!(found.away[0].cluster, "gpu-a");
    let why = &found.away[0].why;
    assert!(
        why.starts_with(
            "in gpu-a you may not list pods in namespace \"vision\"; docs/how-to/logs.md"
        ),
        "{why}"
    );
}

/// A custom operator starts the pods of a job below objects that Muster does not know.
#[tokio::test]
async fn pods_whose_names_say_no_job_are_found_by_their_owners() {
    let (plane, members) = plane();
    pod(&members[0], "made-0", "made-by-operator", 2, "a1");
    let owner = json!({"metadata": {"name": "made-by-operator", "namespace": "vision", "uid": "made-by-operator",
    "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "t", "controller": true},
    ]}});
    let train = json!({"metadata": {"name": "train", "namespace": "vision", "uid": "t", "annotations": {
        "resourcebinding.karmada.io/name": "train-job", "resourcebinding.karmada.io/namespace": "vision"}}});
    let path = |name: &str| format!("/apis/batch/v1/namespaces/vision/jobs/{name}");
    members[0].put(&path("made-by-operator"), owner);
    members[0].put(&path("train"), train);
    let kinds: Value = json!({"kind": "APIResourceList", "groupVersion": "batch/v1", "resources": [
        {"name": "jobs", "singularName": "job", "namespaced": true, "kind": "Job", "verbs": ["get", "list"]}]});
    members[0].document("/apis/batch/v1", kinds);
    let client = plane.client_in("vision");
    let mut place = JobPlace::of("train", &client).await.unwrap();
    let found = place.look(&client).await;
    let names: Vec<String> = found.pods.iter().map(|pod| pod.name()).collect();
    assert_eq!(names, ["train-0-x", "train-0-y", "made-0"]);
}
