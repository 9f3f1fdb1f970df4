//! A control plane set up otherwise: it has Volcano's own PodGroup CRD, which is left as it is while jobs
//! still show, and Karmada's gate MultiplePodTemplatesScheduling, with which it refuses the bindings of
//! jobs whose tasks have long names.

use e2e::harness::jobs::{self, Gang};
use e2e::harness::kinds::{EVENT, NAMESPACE, POD_GROUP, QUEUE, VOLCANO_JOB};
use e2e::harness::muster::Part;
use e2e::harness::wait::eventually;
use e2e::testbed::{KarmadaSpec, MemberSpec, NodeGroup, Spec};
use serde_json::{Value, json};

use crate::case::SOON;
use crate::job::condition;
use crate::plane::{Plane, state_dir, without_plane};

const NAME: &str = "plain";

#[test]
fn jobs_show_their_state_in_volcanos_own_podgroups_and_refused_bindings_in_events() {
    without_plane(async || {
        let plane = Plane::up(spec(), &state_dir("e2e-volcano-podgroups")).await?;
        let outcome = async {
            plane.muster.start(&plane.testbed, Part::All).await?;
            let namespace =
                json!({"metadata": {"name": NAME, "labels": {"muster.io/managed": "true"}}});
            plane.karmada.create(NAMESPACE, &namespace).await?;
            plane.karmada.create(QUEUE, &jobs::queue(NAME, 0)).await?;
            queued_placed_and_shown(&plane).await?;
            a_long_task_name_is_told(&plane).await
        };
        let outcome = outcome.await;
        if outcome.is_err() {
            println!("{}", plane.log_end(Part::All, 60));
        }
        plane.testbed.down()?;
        outcome
    });
}

fn spec() -> Spec {
    let gate = "--feature-gates=MultiplePodTemplatesScheduling=true";
    Spec {
        karmada: KarmadaSpec {
            volcano_podgroup_crd_on_control_plane: true,
            controller_manager_flags: vec![gate.into()],
            ..KarmadaSpec::default()
        },
        members: vec![MemberSpec {
            name: "member1".into(),
            volcano: true,
            nodes: vec![NodeGroup::default()],
            ..MemberSpec::default()
        }],
        ..Spec::default()
    }
}

fn gang(name: &str) -> Gang {
    Gang {
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

async fn queued_placed_and_shown(plane: &Plane) -> anyhow::Result<()> {
    let template = gang("train").volcano();
    plane.karmada.create(VOLCANO_JOB, &template).await?;
    let waits = |group: &Value| {
        let admitted = condition(group, "Admitted");
        let message = admitted["message"].as_str().unwrap_or_default();
        admitted["status"] == "False" && !message.is_empty()
    };
    shows(plane, "waits", waits).await?;
    let raise = json!({"spec": {"capability": {"nvidia.com/gpu": 8}}});
    plane.karmada.merge(QUEUE, None, NAME, &raise).await?;
    let finished = |group: &Value| {
        let finished = condition(group, "Finished");
        finished["status"] == "True" && finished["reason"] == "Succeeded"
    };
    shows(plane, "finished", finished).await
}

async fn shows(plane: &Plane, what: &str, check: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
    eventually(
        SOON,
        &format!("the PodGroup shows: {what}"),
        async || match plane.karmada.get(POD_GROUP, Some(NAME), "train-job").await {
            Ok(Some(group)) if check(&group) => Ok(()),
            Ok(Some(group)) => Err(group["status"].to_string()),
            other => Err(format!("{other:?}")),
        },
    )
    .await
}

/// There is no binding and so no PodGroup: only the template's events can tell its user.
async fn a_long_task_name_is_told(plane: &Plane) -> anyhow::Result<()> {
    let task = "a-task-with-a-name-of-more-than-32-characters";
    let mut template = gang("longname").volcano();
    template["spec"]["tasks"][0]["name"] = json!(task);
    plane.karmada.create(VOLCANO_JOB, &template).await?;
    eventually(SOON, "an event that names the task", async || {
        let events = plane.karmada.list(EVENT, Some(NAME)).await;
        let events = events.map_err(|error| error.to_string())?;
        let own = events
            .iter()
            .filter(|event| event["involvedObject"]["name"] == "longname");
        let notes: Vec<String> = own
            .map(|event| format!("{}: {}", event["reason"], event["message"]))
            .collect();
        match notes
            .iter()
            .any(|note| note.contains(task) && note.contains("32"))
        {
            true => Ok(()),
            false => Err(notes.join("; ")),
        }
    })
    .await
}
