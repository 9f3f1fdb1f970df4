//! Templates of all kinds, and their requests.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::harness::jobs::TestGang;
use serde_json::json;

fn gang() -> TestGang {
    TestGang {
        namespace: "n".into(),
        name: "j".into(),
        queue: Some("q".into()),
        pods: 3,
        gpus: 8,
        product: Some("H100-SXM".into()),
        run_for: None,
        fail: false,
        priority_class: None,
    }
}

fn tensorflow() -> Value {
    let mut job = gang().pytorch();
    let roles = job["spec"]["pytorchReplicaSpecs"].take();
    job["spec"]["tfReplicaSpecs"] = roles;
    job["kind"] = json!("TFJob");
    job
}

fn of_kind(kind: &str, mut like: Value) -> Value {
    like["kind"] = json!(kind);
    like
}

#[test]
fn every_kind_asks_for_pods_times_what_each_asks_for() {
    let gang = gang();
    let templates = [
        (gang.volcano(), 24, 300),
        (gang.batch(), 24, 300),
        (gang.pytorch(), 24, 300),
        (tensorflow(), 24, 300),
        // The job also has a launcher without GPUs.
        (gang.mpi(), 24, 400),
        (gang.job_set(), 24, 300),
        (gang.leader_worker_set(2), 48, 600),
        // Workers wait for the head with more than they request later.
        (gang.ray_cluster(), 24, 500),
        (gang.ray_job(), 24, 500),
        (gang.deployment(), 24, 300),
        (of_kind("ReplicaSet", gang.deployment()), 24, 300),
        (of_kind("StatefulSet", gang.deployment()), 24, 300),
        (gang.pod(), 8, 100),
    ];
    for (template, gpus, cpu) in templates {
        let kind = template["kind"].to_string();
        let footprint = Footprint::of(&template).unwrap();
        assert_eq!(footprint.queue.as_deref(), Some("q"), "{kind}");
        assert_eq!(footprint.gpus(), gpus, "{kind}");
        let whole = footprint.whole();
        assert_eq!(whole["h100-sxm"]["cpu"], cpu, "{kind}");
        assert_eq!(whole.len(), 1, "{kind}");
    }
}

#[test]
fn leaders_may_differ_from_workers() {
    let mut set = gang().leader_worker_set(2);
    let group = &mut set["spec"]["leaderWorkerTemplate"];
    let mut leader = group["workerTemplate"].clone();
    leader["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    group["leaderTemplate"] = leader;
    let footprint = Footprint::of(&set).unwrap();
    assert_eq!((footprint.count(), footprint.gpus()), (6, 32));
    assert_eq!(footprint.whole()["h100-sxm"]["cpu"], 2_400);
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_it() {
    let mut count = gang().batch();
    count["spec"]["parallelism"] = json!("many");
    let mut amount = gang().pod();
    amount["spec"]["containers"][0]["resources"]["limits"][GPU] = json!("two");
    let mut empty = gang().pod();
    empty["spec"]["containers"].take();
    let mut roles = gang().volcano();
    roles["spec"]["tasks"].take();
    let mut core = gang().pod();
    core["apiVersion"] = json!("example.com/v1");
    let cases = [
        (of_kind("TrainJob", gang().pytorch()), "TrainJob"),
        (core, "example.com/v1 Pod"),
        (count, "\"many\" is no count"),
        (amount, "\"two\" is no amount"),
        (empty, "without containers"),
        (roles, "no list of roles"),
    ];
    for (template, words) in cases {
        let error = format!("{:#}", Footprint::of(&template).unwrap_err());
        assert!(error.contains(words), "{words}: {error}");
    }
}

fn asks(spec: Value) -> AuditedAmounts {
    let template = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec});
    let mut whole = Footprint::of(&template).unwrap().whole();
    whole.remove("").unwrap_or_default()
}

fn cpu(amount: &str) -> Value {
    json!({"requests": {"cpu": amount}})
}

#[test]
fn a_pod_asks_for_what_kubernetes_counts() {
    let limited = json!({"limits": {"cpu": "2", "memory": "1Ki"}, "requests": {"cpu": "1"}});
    let amounts = asks(json!({"containers": [{"resources": limited}, {"resources": cpu("500m")}]}));
    let expected = [("cpu".into(), 1_500), ("memory".into(), 1_024_000)];
    assert_eq!(amounts, expected.into(), "a limit stands for a request");

    let init = |amount: &str| json!({"resources": cpu(amount)});
    let sidecar = json!({"restartPolicy": "Always", "resources": cpu("1")});
    let plain = json!([{"resources": cpu("3")}]);
    let cases = [
        (json!([init("2")]), 3_000),
        (json!([init("5"), init("4")]), 5_000),
        (json!([sidecar.clone()]), 4_000),
        (json!([sidecar.clone(), init("5")]), 6_000),
        (json!([init("5"), sidecar]), 5_000),
    ];
    for (before, expected) in cases {
        let amounts = asks(json!({"containers": plain, "initContainers": before}));
        assert_eq!(amounts["cpu"], expected, "{before}");
    }

    let over = json!({"containers": plain, "overhead": {"cpu": "250m"}});
    assert_eq!(asks(over)["cpu"], 3_250);
    let whole = json!({"containers": plain, "resources": cpu("7")});
    assert_eq!(asks(whole)["cpu"], 7_000);
    let gated = json!({"containers": plain, "schedulingGates": [{"name": "g"}]});
    assert_eq!(asks(gated).get("cpu").copied().unwrap_or(0), 0);
}

#[test]
fn a_job_runs_no_more_pods_than_are_left_to_complete() {
    let mut job = gang().batch();
    job["spec"]["parallelism"] = json!(5);
    assert_eq!(Footprint::of(&job).unwrap().gpus(), 24);
    job["spec"]["completions"] = json!(12);
    assert_eq!(Footprint::of(&job).unwrap().gpus(), 40);
}

#[test]
fn an_autoscaler_may_start_its_most_workers() {
    let mut cluster = gang().ray_cluster();
    let group = &mut cluster["spec"]["workerGroupSpecs"][0];
    (group["minReplicas"], group["maxReplicas"]) = (json!(0), json!(5));
    let of = |template: &Value| Footprint::of(template).unwrap();
    assert_eq!(of(&cluster).gpus(), 24, "it scales nothing");
    cluster["spec"]["enableInTreeAutoscaling"] = json!(true);
    assert_eq!(of(&cluster).gpus(), 48);
    // Five workers that wait for the head, and the head with the autoscaler.
    assert_eq!(of(&cluster).whole()["h100-sxm"]["cpu"], 5 * 200 + 600);
    cluster["spec"]["autoscalerOptions"] = json!({"resources": cpu("1")});
    assert_eq!(of(&cluster).whole()["h100-sxm"]["cpu"], 5 * 200 + 1_100);
}

#[test]
fn a_claim_stands_for_the_devices_of_its_template() {
    let mut job = gang().batch();
    let pod = &mut job["spec"]["template"]["spec"];
    pod["resourceClaims"] = json!([{"name": "c", "resourceClaimTemplateName": "two"}]);
    let mut footprint = Footprint::of(&job).unwrap();
    let unknown = footprint.clone().resolve(&BTreeMap::new()).unwrap_err();
    assert!(unknown.to_string().contains("claim:two"), "{unknown}");
    let exactly = json!({"deviceClassName": "gpu.example.com", "count": 2});
    let requests = json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}});
    let template = json!({"metadata": {"name": "two"}, "spec": {"spec": requests}});
    let claims = [("claim:two".to_owned(), claim(&template).unwrap())];
    footprint.resolve(&claims.into()).unwrap();
    let whole = footprint.whole();
    let held = &whole["h100-sxm"];
    assert_eq!(
        held["deviceclass.resource.kubernetes.io/gpu.example.com"],
        6_000
    );
}

#[test]
fn part_of_a_job_is_known_where_its_pods_are_alike() {
    let of = |template: Value| Footprint::of(&template).unwrap();
    let two = of(gang().volcano()).part(2).unwrap();
    assert_eq!(two["h100-sxm"][GPU], 16_000);
    assert_eq!(of(gang().mpi()).part(2), None);
}
