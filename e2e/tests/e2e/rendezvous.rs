//! Gangs over clusters whose pods find each other by the addresses that the queue's policy
//! configures.

use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::annotated;
use e2e::harness::kinds::{CAPACITY_POLICY, EVENT, OVERRIDE_POLICY};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::free_port;

use crate::case::{Case, SOON};
use crate::job::{Job, record};
use crate::split::{environment, pods_of};
use crate::story::managed;

/// The address of a cluster's names in other clusters, in this fleet.
pub(crate) const ADDRESSES: &str = "{host}.{namespace}.svc.{cluster}.fleet.example";

/// Returns a PyTorchJob of a master and `workers` workers with two GPUs each, which may be split.
pub(crate) fn training(case: &Case, name: &str, workers: u32, port: u16) -> Value {
    let job = case.gang(name, workers + 1, 2).pytorch();
    let mut job = annotated(job, "muster.io/split", "Allowed");
    for group in ["Master", "Worker"] {
        let container = job
            .pointer_mut(&format!(
                "/spec/pytorchReplicaSpecs/{group}/template/spec/containers/0"
            ))
            .unwrap();
        container["command"] = json!([env!("CARGO_BIN_EXE_rendezvous")]);
        container["ports"] = json!([{"name": "pytorchjob-port", "containerPort": port}]);
    }
    job
}

/// Starts the command of a pod's container as a local process, with the environment that its
/// kubelet would set, where names resolve to this machine as `resolve` says.
pub(crate) fn start(
    pod: &Value,
    resolve: &dyn Fn(&str) -> String,
) -> anyhow::Result<std::process::Child> {
    let container = &pod["spec"]["containers"][0];
    let words = |field: &str| {
        let words = container[field].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned)
    };
    let mut command = words("command").chain(words("args"));
    let mut process = Command::new(command.next().context("no command")?);
    process.args(command).env_clear().stdout(Stdio::piped());
    let environment = container["env"].as_array().into_iter().flatten();
    for variable in environment {
        let name = variable["name"]
            .as_str()
            .context("a variable without name")?;
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            None => variable["value"].as_str().unwrap_or_default(),
            Some(path) => {
                let label = path.trim_start_matches("metadata.labels['");
                let label = label.trim_end_matches("']");
                let value = pod["metadata"]["labels"][label].as_str();
                value.with_context(|| format!("{name}: no {path}"))?
            }
        };
        process.env(name, resolve(value));
    }
    Ok(process.spawn()?)
}

/// Returns the output of the processes, in order; each must succeed.
pub(crate) fn said_by(processes: Vec<Child>) -> anyhow::Result<Vec<String>> {
    let mut said = Vec::new();
    for process in processes {
        let Output { status, stdout, .. } = process.wait_with_output()?;
        let stdout = String::from_utf8_lossy(&stdout).trim().to_owned();
        ensure!(status.success(), "{status}: {stdout}");
        said.push(stdout);
    }
    said.sort();
    Ok(said)
}

/// Runs the whole gang as local processes, where `names` are the names of its master in a cluster,
/// and checks that all of them meet.
pub(crate) async fn all_meet(
    case: &Case,
    job: &Job,
    size: u64,
    names: &dyn Fn(&str) -> Vec<String>,
) -> anyhow::Result<()> {
    let mut processes = Vec::new();
    for (cluster, pods) in &pods_of(case, job).await? {
        let names = names(cluster);
        let resolve = |value: &str| match names.iter().any(|name| name == value) {
            true => "127.0.0.1".to_owned(),
            false => value.to_owned(),
        };
        for pod in pods {
            processes.push(start(pod, &resolve)?);
        }
    }
    let said = said_by(processes)?;
    let sum = size * (size - 1) / 2;
    let all: Vec<String> = (0..size)
        .map(|rank| format!("rank {rank} of {size}: sum {sum}"))
        .collect();
    assert_eq!(said, all);
    Ok(())
}

/// A master and six workers run in one cluster while the policy has no addresses, and over two
/// clusters when it has.
pub(crate) async fn pytorch(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let job = case
        .submit(&training(case, "tune", 6, free_port()?))
        .await?;
    case.waits(&job, &["ExceedsFleet"]).await?;
    told(case, "spec.placement.addresses of capacitypolicy").await?;

    let one = json!({"spec": {"placement": {"addresses": {"member1": ADDRESSES}}}});
    case.capacity_policy(one).await?;
    told(case, "has no address for cluster member2").await?;

    let wrong = json!({"spec": {"placement": {"addresses": {"*": "{pod}.fleet.example"}}}});
    let refused = case
        .karmada()
        .merge(CAPACITY_POLICY, None, &case.name, &wrong)
        .await;
    let refused = refused.err().context("an invalid address was accepted")?;
    let refused = refused.to_string();
    for word in [
        "spec.placement.addresses.*",
        "{pod}",
        "host|service|namespace",
    ] {
        ensure!(refused.contains(word), "{word}: {refused}");
    }
    let all = json!({"spec": {"placement": {"addresses": {"*": ADDRESSES}}}});
    case.capacity_policy(all).await?;
    case.running(&job).await?;
    let binding = case.binding(&job).await.map_err(anyhow::Error::msg)?;
    let record = record(&binding.context("no binding")?);
    let leading = record["clusters"][0]["name"].as_str().unwrap_or_default();
    let address = format!("tune-master-0.{}.svc.{leading}.fleet.example", case.name);
    assert_eq!(record["address"], json!(address));
    let pods = pods_of(case, &job).await?;
    assert_eq!(pods.len(), 2, "{:?}", pods.keys());
    assert_eq!(pods.values().map(Vec::len).sum::<usize>(), 7);
    for (cluster, pods) in &pods {
        let expected = if cluster == leading {
            "tune-master-0"
        } else {
            &address
        };
        for pod in pods {
            assert_eq!(environment(pod, "MUSTER_LEADER_ADDRESS"), Some(expected));
        }
    }
    let names = |_: &str| vec!["tune-master-0".to_owned(), address.clone()];
    all_meet(case, &job, 7, &names).await?;
    case.midway().await?;

    case.end(&job).await?;
    case.finished(&job, "Succeeded").await?;
    eventually(SOON, "the template says that it is over", async || {
        let template = case.template(&job).await?.unwrap_or_default();
        let conditions = template["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        match conditions.any(|c| c["type"] == "Succeeded" && c["status"] == "True") {
            true => Ok(()),
            false => Err(template["status"].to_string()),
        }
    })
    .await?;
    case.delete(&job).await?;
    case.gone(&job).await?;
    eventually(SOON, "its overrides are gone", async || {
        let left = case.karmada().list(OVERRIDE_POLICY, Some(&case.name)).await;
        let left = left.map_err(|error| error.to_string())?;
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:?}")),
        }
    })
    .await?;
    let report = case.audit(24, [&job])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

/// Waits until an event of this test contains `words`.
pub(crate) async fn told(case: &Case, words: &str) -> anyhow::Result<()> {
    eventually(SOON, &format!("an event says {words:?}"), async || {
        let events = case.karmada().list(EVENT, Some(&case.name)).await;
        let events = events.map_err(|error| error.to_string())?;
        let notes: Vec<&str> = events
            .iter()
            .filter_map(|event| event["message"].as_str())
            .collect();
        match notes.iter().any(|note| note.contains(words)) {
            true => Ok(()),
            false => Err(format!("{notes:?}")),
        }
    })
    .await
}

#[test]
fn a_pytorchjob_over_two_clusters_meets_at_its_master() {
    managed("torchsplit", pytorch);
}
