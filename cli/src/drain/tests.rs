#![allow(clippy::unwrap_used)]
use super::*;
use crate::args::{DryRun, WriteArgs};
use crate::jobs::tests::plane;
use kube::Client;
use runtime::testing::{FakeApi, Fault};
use serde_json::{Value, json};

const CLUSTER: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/gpu-a";
const NODE: &str = "/api/v1/nodes/n1";

fn command(place: &str) -> DrainCommand {
    DrainCommand {
        place: place.to_owned(),
        yes: true,
        wait: false,
        write: WriteArgs::default(),
    }
}

async fn drained(command: &DrainCommand, client: &Client) -> Result<ExitCode> {
    match DrainPlace::of(&command.place)? {
        DrainPlace::Cluster(name) => cluster::drain(name, command, client).await,
        DrainPlace::Node { cluster, node } => node::drain(cluster, node, command, client).await,
    }
}

fn annotation(api: &FakeApi) -> Value {
    api.get(CLUSTER).unwrap()["metadata"]["annotations"]["muster.io/drain"].clone()
}

#[test]
fn a_place_is_a_cluster_or_a_node_of_it() {
    assert!(matches!(
        DrainPlace::of("gpu-a"),
        Ok(DrainPlace::Cluster("gpu-a"))
    ));
    let node = DrainPlace::of("gpu-a/n1");
    assert!(matches!(
        node,
        Ok(DrainPlace::Node {
            cluster: "gpu-a",
            node: "n1"
        })
    ));
    for wrong in ["", "/", "gpu-a/", "/n1", "a/b/c"] {
        assert!(DrainPlace::of(wrong).is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_cluster_is_drained_and_undrained_once() {
    let api = plane();
    api.put(
        CLUSTER,
        json!({"metadata": {"name": "gpu-a", "uid": "c"}, "spec": {}}),
    );
    let client = api.client();
    let drain = command("gpu-a");
    for _ in 0..2 {
        drained(&drain, &client).await.unwrap();
        assert_eq!(annotation(&api), "true");
    }
    for _ in 0..2 {
        cluster::undrain("gpu-a", &WriteArgs::default(), &client)
            .await
            .unwrap();
        assert_eq!(annotation(&api), Value::Null);
    }
    let patches = api.requests_of("PATCH");
    assert_eq!(patches.len(), 2, "what changes nothing is not sent");
    assert_eq!(patches[0].body["metadata"]["uid"], "c");
    let error = drained(&command("gone"), &client).await.unwrap_err();
    assert!(
        error.to_string().contains("\"gone\" does not exist"),
        "{error}"
    );
}

#[tokio::test]
async fn jobs_in_the_cluster_are_shown_first() {
    let api = plane();
    api.put(
        CLUSTER,
        json!({"metadata": {"name": "gpu-a", "uid": "c"}, "spec": {}}),
    );
    let mut asks = command("gpu-a");
    asks.yes = false;
    let there = cluster::there("gpu-a", &api.client()).await.unwrap();
    let preview = cluster::preview("gpu-a", &there.unwrap());
    // The age and the run time change by themselves.
    let cut = |line| str::rsplit_once(line, "  ").map_or(line, |(line, _)| line.trim_end());
    let lines = preview.lines().map(|line| cut(cut(line)));
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
    1 job will be evicted from gpu-a, with all parts, and start again elsewhere when there is room. Those that tolerate muster.io/drain stay:
    NAMESPACE   NAME   KIND                   QUEUE    USER   STATUS    REASON    POS      GPUS   PODS   CLUSTERS
    vision      runs   job.batch.volcano.sh   vision   ann    Running   Running   <none>   48     5/6    gpu-a:4,gpu-b:2
    ");
    // Nobody is asked before a dry run.
    for dry_run in [DryRun::Client, DryRun::Server] {
        asks.write.dry_run = dry_run;
        drained(&asks, &api.client()).await.unwrap();
    }
    let patches = api.requests_of("PATCH");
    assert_eq!(
        (patches.len(), patches[0].query["dryRun"].as_str()),
        (1, "All")
    );
    // A cluster without jobs needs none.
    let other = CLUSTER.replace("gpu-a", "gpu-z");
    api.put(
        &other,
        json!({"metadata": {"name": "gpu-z", "uid": "z"}, "spec": {}}),
    );
    let mut empty = command("gpu-z");
    empty.yes = false;
    drained(&empty, &api.client()).await.unwrap();
}

#[tokio::test]
async fn who_may_not_list_jobs_may_still_drain() {
    let api = plane();
    api.put(
        CLUSTER,
        json!({"metadata": {"name": "gpu-a", "uid": "c"}, "spec": {}}),
    );
    let denied = Fault::Status(403, "podgroups is forbidden");
    api.fault(1, denied, |request| request.path.ends_with("podgroups"));
    drained(&command("gpu-a"), &api.client()).await.unwrap();
    assert_eq!(annotation(&api), "true");
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_when_the_jobs_have_left() {
    let api = plane();
    api.put(
        CLUSTER,
        json!({"metadata": {"name": "gpu-a", "uid": "c"}, "spec": {}}),
    );
    let mut waits = command("gpu-a");
    waits.wait = true;
    let client = api.client();
    let leave = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(annotation(&api), "true");
        let group = "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups/runs-job";
        let waits = json!({"status": {"phase": "Pending", "federation": {"reason": "ClusterDrained", "placement": []}}});
        api.merge(group, &waits);
    };
    let (done, ()) = tokio::join!(drained(&waits, &client), leave);
    assert_eq!(done.unwrap(), ExitCode::SUCCESS);
}

/// Returns a control plane and a member behind its proxy with a node, three pods there and one elsewhere.
fn member() -> (FakeApi, FakeApi) {
    let (api, member) = (FakeApi::new(), FakeApi::new());
    api.pass_on(&format!("{CLUSTER}/proxy"), &member);
    member.put(
        NODE,
        json!({"metadata": {"name": "n1", "uid": "n"}, "spec": {}}),
    );
    let owner = |kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]);
    for (name, node, kind, phase) in [
        ("job", "n1", "Job", "Running"),
        ("daemon", "n1", "DaemonSet", "Running"),
        ("over", "n1", "Job", "Succeeded"),
        ("other", "n2", "Job", "Running"),
    ] {
        let pod = json!({
            "metadata": {"name": name, "namespace": "team", "ownerReferences": owner(kind)},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase},
        });
        let path = format!("/api/v1/namespaces/team/pods/{name}");
        member.put(&path, pod);
        member.answers(
            &format!("{path}/eviction"),
            move |_| json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
        );
    }
    (api, member)
}

#[tokio::test]
async fn a_node_is_cordoned_and_its_pods_are_evicted() {
    let (api, member) = member();
    let mut drain = command("gpu-a/n1");
    drain.write.dry_run = DryRun::Client;
    drained(&drain, &api.client()).await.unwrap();
    assert!(
        member
            .requests()
            .iter()
            .all(|request| request.verb == "GET")
    );
    drain.write.dry_run = DryRun::None;
    for _ in 0..2 {
        let done = drained(&drain, &api.client()).await.unwrap();
        assert_eq!(done, ExitCode::SUCCESS);
        member.remove("/api/v1/namespaces/team/pods/job");
    }
    assert_eq!(member.get(NODE).unwrap()["spec"]["unschedulable"], true);
    let evicted: Vec<String> = member
        .requests_of("POST")
        .into_iter()
        .map(|it| it.path)
        .collect();
    assert_eq!(evicted, ["/api/v1/namespaces/team/pods/job/eviction"]);
    for _ in 0..2 {
        node::undrain("gpu-a", "n1", &WriteArgs::default(), &api.client())
            .await
            .unwrap();
    }
    assert_eq!(
        member.get(NODE).unwrap()["spec"]["unschedulable"],
        Value::Null
    );
    assert_eq!(member.requests_of("PATCH").len(), 2);
}

#[tokio::test]
async fn without_rights_in_the_member_it_says_what_to_do() {
    let (api, member) = member();
    member.fault(1, Fault::Status(403, "nodes is forbidden"), |_| true);
    let error = drained(&command("gpu-a/n1"), &api.client())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("kubectl drain n1 --ignore-daemonsets"),
        "{error}"
    );
    // A budget may refuse the eviction; the command says so and may be repeated.
    let is_eviction = |request: &runtime::testing::Recorded| request.path.ends_with("eviction");
    member.fault(
        1,
        Fault::Status(429, "would violate the budget"),
        is_eviction,
    );
    let done = drained(&command("gpu-a/n1"), &api.client()).await.unwrap();
    assert_eq!(done, ExitCode::FAILURE);
    let done = drained(&command("gpu-a/n1"), &api.client()).await.unwrap();
    assert_eq!(done, ExitCode::SUCCESS);
}
