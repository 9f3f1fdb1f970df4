//! A control plane with another setup. It has Volcano's own PodGroup CRD, which Muster leaves
//! unchanged while jobs still show their status. It enables Karmada's feature gate
//! MultiplePodTemplatesScheduling, with which Karmada refuses the bindings of jobs whose tasks have
//! long names. It does not enable the gate MultiClusterService, which is off by default.

use e2e::harness::jobs::{self, TestGang};
use e2e::harness::kinds::{
    BATCH_JOB, BINDING, CAPACITY_POLICY, EVENT, MULTI_CLUSTER_SERVICE, NAMESPACE, POD_GROUP, QUEUE,
    SERVICE, VOLCANO_JOB,
};
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::{KarmadaSpec, MemberSpec, NodeGroup, TestbedSpec};

use crate::audited;
use crate::case::SOON;
use crate::job::{Job, condition};
use crate::plane::{Plane, on_own_plane};

const NAME: &str = "plain";

#[test]
fn jobs_show_their_state_in_volcanos_own_podgroups_and_what_karmada_does_not_do_in_events() {
    on_own_plane("volcano-podgroups", spec(), async |plane| {
        plane.muster.start(&plane.testbed, ProcessRole::All).await?;
        let namespace =
            json!({"metadata": {"name": NAME, "labels": {"muster.io/managed": "true"}}});
        plane.karmada.create(NAMESPACE, &namespace).await?;
        plane.karmada.create(QUEUE, &jobs::queue(NAME, 0)).await?;
        let train = queued_placed_and_shown(plane).await?;
        a_long_task_name_gets_an_event(plane).await?;
        let apart = services_that_karmada_does_not_carry_get_an_event(plane).await?;
        audited::audit(plane, NAME, &[train, apart]).await?;
        plane.ensure_healthy().await
    });
}

fn spec() -> TestbedSpec {
    let gates =
        "--feature-gates=MultiplePodTemplatesScheduling=true,MultiClusterService=false".into();
    let member = |name: &str, volcano| MemberSpec {
        name: name.into(),
        volcano,
        nodes: vec![NodeGroup::default()],
        ..MemberSpec::default()
    };
    TestbedSpec {
        karmada: KarmadaSpec {
            audit_log: true,
            volcano_podgroup_crd_on_control_plane: true,
            controller_manager_flags: vec![gates],
            ..KarmadaSpec::default()
        },
        members: vec![member("member1", true), member("member2", false)],
        ..TestbedSpec::default()
    }
}

fn gang(name: &str) -> TestGang {
    TestGang {
        namespace: NAME.into(),
        name: name.into(),
        queue: Some(NAME.into()),
        pods: 1,
        gpus: 8,
        product: None,
        run_for: Some("2s".into()),
        fail: false,
        priority_class: None,
    }
}

async fn queued_placed_and_shown(plane: &Plane) -> anyhow::Result<Job> {
    let template = gang("train").volcano();
    let job = plane.karmada.create(VOLCANO_JOB, &template).await?;
    let waits = |group: &Value| {
        let admitted = condition(group, "Admitted");
        let message = admitted["message"].as_str().unwrap_or_default();
        let federation = annotated(group);
        admitted["status"] == "False"
            && !message.is_empty()
            && federation["status"] == "Queued"
            && !federation["evidence"].is_null()
    };
    shows(plane, "train-job", "waits", waits).await?;
    let raise = json!({"spec": {"capability": {"nvidia.com/gpu": 8}}});
    plane.karmada.merge(QUEUE, None, NAME, &raise).await?;
    let finished = |group: &Value| {
        let finished = condition(group, "Finished");
        finished["status"] == "True"
            && finished["reason"] == "Succeeded"
            && annotated(group)["status"] == "Succeeded"
    };
    shows(plane, "train-job", "finished", finished).await?;
    Ok(Job::of(VOLCANO_JOB, job))
}

/// Returns what Volcano's CRD would prune of a PodGroup's status; null if it is not there.
fn annotated(group: &Value) -> Value {
    let text = group["metadata"]["annotations"]["muster.io/federation"].as_str();
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

async fn shows(
    plane: &Plane,
    name: &str,
    what: &str,
    check: impl Fn(&Value) -> bool,
) -> anyhow::Result<()> {
    eventually(
        SOON,
        &format!("PodGroup {name} shows: {what}"),
        async || match plane.karmada.get(POD_GROUP, Some(NAME), name).await {
            Ok(Some(group)) if check(&group) => Ok(()),
            Ok(Some(group)) => Err(group["status"].to_string()),
            other => Err(format!("{other:?}")),
        },
    )
    .await
}

/// Without a binding there is no PodGroup: only the template's events inform its user.
async fn a_long_task_name_gets_an_event(plane: &Plane) -> anyhow::Result<()> {
    let task = "a-task-with-a-name-of-more-than-32-characters";
    let mut template = gang("longname").volcano();
    template["spec"]["tasks"][0]["name"] = json!(task);
    plane.karmada.create(VOLCANO_JOB, &template).await?;
    told(plane, "longname", &[task, "32"]).await
}

/// Waits until an event on the job contains all of `words`.
async fn told(plane: &Plane, name: &str, words: &[&str]) -> anyhow::Result<()> {
    eventually(SOON, &format!("an event says {words:?}"), async || {
        let events = plane.karmada.list(EVENT, Some(NAME)).await;
        let events = events.map_err(|error| error.to_string())?;
        let own = events
            .iter()
            .filter(|event| event["involvedObject"]["name"] == name);
        let notes: Vec<String> = own
            .map(|event| format!("{}: {}", event["reason"], event["message"]))
            .collect();
        let says = |note: &String| words.iter().all(|word| note.contains(word));
        match notes.iter().any(says) {
            true => Ok(()),
            false => Err(notes.join("; ")),
        }
    })
    .await
}

/// A gang whose pods would find each other by Services still runs, and none of its objects is left
/// when it goes.
async fn services_that_karmada_does_not_carry_get_an_event(plane: &Plane) -> anyhow::Result<Job> {
    let raise = json!({"spec": {"capability": {"nvidia.com/gpu": 16}}});
    plane.karmada.merge(QUEUE, None, NAME, &raise).await?;
    let addresses = json!({"*": "{service}.{namespace}.svc"});
    let addresses = json!({"spec": {"placement": {"addresses": addresses}}});
    let policies = plane.karmada.merge(CAPACITY_POLICY, None, NAME, &addresses);
    policies.await?;
    let gang = TestGang {
        pods: 8,
        gpus: 2,
        run_for: None,
        ..gang("apart")
    };
    let mut template = jobs::annotated(gang.batch(), "muster.io/split", "Allowed");
    template["spec"]["completionMode"] = json!("Indexed");
    let job = plane.karmada.create(BATCH_JOB, &template).await?;
    let runs = |group: &Value| condition(group, "Ready")["status"] == "True";
    shows(plane, "apart-job", "running", runs).await?;
    told(
        plane,
        "apart",
        &["PodsApart", "feature gate MultiClusterService"],
    )
    .await?;
    shows(plane, "apart-job", "still running", runs).await?;
    let made = plane
        .karmada
        .list(MULTI_CLUSTER_SERVICE, Some(NAME))
        .await?;
    assert_eq!(made.len(), 1, "{made:?}");
    plane.karmada.delete(BATCH_JOB, Some(NAME), "apart").await?;
    eventually(SOON, "nothing of the job is left", async || {
        let mut left = Vec::new();
        for kind in [BINDING, SERVICE, MULTI_CLUSTER_SERVICE] {
            let found = plane.karmada.list(kind, Some(NAME)).await;
            let found = found.map_err(|error| error.to_string())?;
            let names = found
                .iter()
                .map(|object| object["metadata"]["name"].to_string());
            left.extend(names.filter(|name| name.contains("apart")));
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(left.join(", ")),
        }
    })
    .await?;
    Ok(Job::of(BATCH_JOB, job))
}
