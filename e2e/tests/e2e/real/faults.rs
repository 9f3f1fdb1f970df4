//! Faults that kubelets tell of: what keeps a pod from running, and a kubelet that is silent.

use anyhow::ensure;
use e2e::harness::kinds::{CAPACITY_POLICY, NODE, POD};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::NodeProcess;

use super::{AMPLE, REAL, REGISTRY, SHORT, SIMULATED, not_on};
use crate::case::{A_WHILE, Case, SOON};
use crate::cli::MusterCli;
use crate::job::{Job, clusters, record, says};

/// Never ends.
const FOR_EVER: &str = "sleep 1000000";

/// Waits until a job names what keeps its pod, in the words of one of these reasons, and then until it is held with a
/// message that has this text.
async fn held(case: &Case, job: &Job, reasons: &[&str], text: &str) -> anyhow::Result<()> {
    let named = |group: &Value| {
        let mut reasons = reasons.iter();
        reasons.any(|reason| says(group, "PodsNotStarting", reason))
    };
    case.pod_group_when(job, &format!("names {}", reasons[0]), named)
        .await?;
    let held = |group: &Value| says(group, "PodsCannotStart", text);
    let what = format!("held with {text:?}");
    let group = case.pod_group_when(job, &what, held).await?;
    println!("HELD {}", group["status"]["federation"]["message"]);
    case.shows(&case.name, "allocated", "cpu", 0).await?;
    case.stays_unplaced(job, A_WHILE).await
}

/// The registry answers that it does not have the image.
pub(super) async fn no_such_image(case: &Case) -> anyhow::Result<()> {
    case.real_queue(SHORT).await?;
    let mut template = case.script("pulls", 1, FOR_EVER);
    template["spec"]["template"]["spec"]["containers"][0]["image"] =
        json!(format!("127.0.0.1:{}/train:1", registry_port(case)?));
    let job = case.submit(&template).await?;
    // A kubelet says the second one for a moment of each try.
    let reasons = ["ImagePullBackOff", "ErrImagePull"];
    held(case, &job, &reasons, "train:1: not found").await
}

/// Returns the port of the registry.
fn registry_port(case: &Case) -> anyhow::Result<u16> {
    let processes = case.plane.testbed.status();
    let registry = processes
        .into_iter()
        .find(|process| process.name == REGISTRY);
    registry
        .and_then(|registry| registry.port)
        .ok_or_else(|| anyhow::anyhow!("no registry"))
}

/// No registry answers: the job is tried in the other cluster.
pub(super) async fn registry_unreachable(case: &Case) -> anyhow::Result<()> {
    case.real_queue(SHORT).await?;
    let mut template = case.script("pulls", 1, FOR_EVER);
    let nobody = testbed::free_port()?;
    template["spec"]["template"]["spec"]["containers"][0]["image"] =
        json!(format!("127.0.0.1:{nobody}/train:1"));
    let job = case.submit(&template).await?;
    ensure!(case.placed(&job).await? == [REAL]);
    let elsewhere = |binding: &Value| {
        clusters(binding) == [SIMULATED] && record(binding)["attempt"].as_u64() > Some(1)
    };
    case.binding_when(&job, "placed in the other cluster", elsewhere)
        .await?;
    case.running(&job).await.map(drop)
}

/// A ConfigMap that the container needs does not exist.
pub(super) async fn no_such_config(case: &Case) -> anyhow::Result<()> {
    case.real_queue(SHORT).await?;
    let mut template = case.script("reads", 1, FOR_EVER);
    template["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "settings"}}]);
    let job = case.submit(&template).await?;
    held(
        case,
        &job,
        &["CreateContainerConfigError"],
        "configmap \"settings\" not found",
    )
    .await
}

/// A program takes more memory than its limit.
pub(super) async fn out_of_memory(case: &Case) -> anyhow::Result<()> {
    case.real_queue(AMPLE).await?;
    let mut template = case.script("grows", 1, "tail /dev/zero");
    template["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] =
        json!({"memory": "16Mi"});
    let job = case.submit(&template).await?;
    case.finished(&job, "Failed").await?;
    case.explains(&job, "class User on real: OOMKilled, exit code 137")
        .await
        .map(drop)
}

/// Returns the status of a node's condition Ready.
async fn readiness(case: &Case, node: &str) -> Result<String, String> {
    let member = case.plane.member(REAL).await;
    let member = member.map_err(|error| format!("{error:#}"))?;
    let node = member.get(NODE, None, node).await;
    let node = node.map_err(|error| error.to_string())?.unwrap_or_default();
    let conditions = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    let ready = ready.next().map(|condition| condition["status"].clone());
    Ok(ready
        .and_then(|status| status.as_str().map(str::to_owned))
        .unwrap_or_default())
}

/// Waits until a node is Ready, or is not.
async fn becomes(case: &Case, node: &str, ready: bool) -> anyhow::Result<()> {
    let what = format!("{node} is Ready: {ready}");
    eventually(SOON, &what, async || {
        let status = readiness(case, node).await?;
        match (status == "True") == ready {
            true => Ok(()),
            false => Err(status),
        }
    })
    .await
}

/// Waits until a queue is charged for this much CPU.
async fn is_charged(case: &Case, cpu: &str) -> anyhow::Result<()> {
    eventually(SOON, &format!("charged for {cpu}"), async || {
        let policies = case.karmada();
        let policy = policies.get(CAPACITY_POLICY, None, &case.name).await;
        let policy = policy.map_err(|error| error.to_string())?;
        let status = &policy.unwrap_or_default()["status"];
        let mut resources = status["resources"].as_array().into_iter().flatten();
        match resources.any(|resource| resource["name"] == "cpu" && resource["allocated"] == cpu) {
            true => Ok(()),
            false => Err(status["resources"].to_string()),
        }
    })
    .await
}

/// A person drains the second node: the pod leaves it, which ends its Job. That is no failure: the job runs elsewhere,
/// and costs nothing.
async fn drained_by_hand(case: &Case, template: &Value) -> anyhow::Result<()> {
    let mut template = template.clone();
    template["metadata"]["name"] = json!("leaves");
    let job = case.submit(&template).await?;
    case.running(&job).await?;
    case.real_pods(&job, 1).await?;
    let cli = MusterCli::of_admin(case);
    let node = format!("{REAL}/{}", case.plane.testbed.real_node(REAL, 2)?);
    cli.done(&format!("drain {node} --yes")).await?;
    let again = |binding: &Value| {
        clusters(binding) == [SIMULATED] && record(binding)["attempt"].as_u64() == Some(2)
    };
    let moved = case.binding_when(&job, "in the other cluster", again).await;
    cli.done(&format!("undrain {node}")).await?;
    let failures = record(&moved?)["infrastructureFailures"].clone();
    ensure!(failures.as_u64().unwrap_or_default() == 0, "{failures}");
    case.running(&job).await?;
    case.delete(&job).await?;
    case.gone(&job).await
}

/// The second node is drained. Then its kubelet stops. The node is not Ready after a while, and the job runs elsewhere;
/// its queue is charged too for the pod that may still run. When the kubelet is back, it ends that.
pub(super) async fn kubelet_stopped(case: &Case) -> anyhow::Result<()> {
    case.real_queue(AMPLE).await?;
    let policy = json!({"spec": {"placement": {"recoveryDeadlineSeconds": 5}}});
    case.capacity_policy(policy).await?;
    let testbed = &case.plane.testbed;
    // All other stories keep off the second node.
    let mut template = case.script("outlives", 1, FOR_EVER);
    template["spec"]["template"]["spec"]["affinity"] = not_on(&testbed.real_node(REAL, 1)?);
    drained_by_hand(case, &template).await?;
    let job = case.submit(&template).await?;
    case.running(&job).await?;
    let pod = case.real_pods(&job, 1).await?.remove(0);
    let (node, kubelet) = (
        testbed.real_node(REAL, 2)?,
        NodeProcess::Kubelet.of(REAL, 2),
    );
    testbed.kill(&kubelet)?;
    let meanwhile = without_kubelet(case, &job, &node).await;
    testbed.restart(&kubelet).await?;
    becomes(case, &node, true).await?;
    meanwhile?;
    let member = case.plane.member(REAL).await?;
    eventually(SOON, "the pod of the first attempt is gone", async || {
        let found = member.get(POD, Some(&case.name), &pod).await;
        match found.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(pod) => Err(pod["metadata"].to_string()),
        }
    })
    .await?;
    is_charged(case, "100m").await?;
    case.running(&job).await?;
    power_lost(case, &node).await
}

/// The second node loses its power, and runs programs again when it has that back.
async fn power_lost(case: &Case, node: &str) -> anyhow::Result<()> {
    let testbed = &case.plane.testbed;
    testbed.kill(&NodeProcess::Kubelet.of(REAL, 2))?;
    let runtime = NodeProcess::Containerd.of(REAL, 2);
    testbed.kill(&runtime)?;
    testbed.restart(&runtime).await?;
    becomes(case, node, true).await?;
    let mut template = case.script("after", 1, "true");
    template["spec"]["template"]["spec"]["affinity"] = not_on(&testbed.real_node(REAL, 1)?);
    let job = case.submit(&template).await?;
    case.finished(&job, "Succeeded").await?;
    ensure!(
        case.pods(REAL).await?.iter().any(|pod| job.owns(pod)),
        "not in {REAL}"
    );
    Ok(())
}

async fn without_kubelet(case: &Case, job: &Job, node: &str) -> anyhow::Result<()> {
    becomes(case, node, false).await?;
    let again = |binding: &Value| {
        clusters(binding) == [SIMULATED] && record(binding)["attempt"].as_u64() > Some(1)
    };
    case.binding_when(job, "in its second attempt", again)
        .await?;
    case.running(job).await?;
    is_charged(case, "200m").await
}
