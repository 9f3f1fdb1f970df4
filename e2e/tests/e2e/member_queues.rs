//! A member whose own users ask for more than it has: their pending jobs hold up nothing that Muster has
//! admitted there.

use anyhow::ensure;
use e2e::harness::jobs::{self, TestGang};
use e2e::harness::kinds::{NAMESPACE, POD, POD_GROUP, QUEUE, VOLCANO_JOB};
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::{KarmadaSpec, MemberSpec, NodeGroup, TestbedSpec};

use crate::audited;
use crate::case::SOON;
use crate::job::Job;
use crate::plane::{Plane, on_own_plane};

const NAME: &str = "shared";
const MEMBER: &str = "member1";
/// The queue and the job of the member's own users.
const THEIRS: &str = "theirs";

#[test]
fn a_members_own_pending_jobs_do_not_hold_up_an_admitted_gang() {
    let spec = TestbedSpec {
        karmada: KarmadaSpec {
            audit_log: true,
            ..KarmadaSpec::default()
        },
        members: vec![MemberSpec {
            name: MEMBER.into(),
            volcano: true,
            nodes: vec![NodeGroup::default()],
            ..MemberSpec::default()
        }],
        ..TestbedSpec::default()
    };
    on_own_plane("member-queues", spec, async |plane| {
        plane.muster.start(&plane.testbed, ProcessRole::All).await?;
        let namespace =
            json!({"metadata": {"name": NAME, "labels": {"muster.io/managed": "true"}}});
        plane.karmada.create(NAMESPACE, &namespace).await?;
        plane.karmada.create(QUEUE, &jobs::queue(NAME, 8)).await?;
        they_ask_for_the_whole_member(plane).await?;
        // Six of eight devices: by equal weights Volcano would give the queue four.
        let train = TestGang {
            run_for: Some("3s".into()),
            ..gang(NAME, "train", 6)
        };
        let template = train.volcano();
        let template = plane.karmada.create(VOLCANO_JOB, &template).await?;
        let job = Job::of(VOLCANO_JOB, template);
        eventually(SOON, "the admitted gang runs to its end", async || {
            let karmada = &plane.karmada;
            let group = karmada.get(POD_GROUP, Some(NAME), &job.binding()).await;
            let group = group.map_err(|e| e.to_string())?.unwrap_or_default();
            match group["status"]["phase"].as_str() {
                Some("Completed") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
        let queue = plane.member(MEMBER).await?.get(QUEUE, None, NAME).await?;
        let queue = queue.unwrap_or_default();
        ensure!(queue["spec"]["reclaimable"] == false, "{queue}");
        audited::audit(plane, NAME, &[job]).await?;
        plane.ensure_healthy().await
    });
}

fn gang(namespace: &str, name: &str, pods: u32) -> TestGang {
    TestGang {
        namespace: namespace.into(),
        name: name.into(),
        queue: Some(namespace.into()),
        pods,
        gpus: 1,
        product: None,
        run_for: None,
        fail: false,
        priority_class: None,
    }
}

/// A job of a queue of the member's own requests all of its devices, and fits on no node.
async fn they_ask_for_the_whole_member(plane: &Plane) -> anyhow::Result<()> {
    let member = plane.member(MEMBER).await?;
    let queue = json!({"metadata": {"name": THEIRS}, "spec": {"weight": 1}});
    member.create(QUEUE, &queue).await?;
    let namespace = json!({"metadata": {"name": THEIRS}});
    member.create(NAMESPACE, &namespace).await?;
    let mut template = gang(THEIRS, "wants-all", 8).volcano();
    template["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"] = json!({"no": "node"});
    member.create(VOLCANO_JOB, &template).await?;
    eventually(SOON, "the pods of the member's own job wait", async || {
        let pods = member.list(POD, Some(THEIRS)).await;
        let pods: Vec<Value> = pods.map_err(|e| e.to_string())?;
        match pods.len() {
            8 => Ok(()),
            other => Err(format!("{other} pods")),
        }
    })
    .await
    .map(drop)
}
