//! TFJobs over clusters: each pod receives the addresses of all others, and reaches them.

use std::collections::BTreeMap;

use anyhow::Context as _;
use e2e::harness::jobs::annotated;
use serde_json::{Value, json};
use testbed::free_port;

use crate::case::Case;
use crate::job::{Job, record};
use crate::leading_part::{end_leader, room_for_seven, shows};
use crate::rendezvous::{said_by, start};
use crate::split::{no_pods, pods_of};
use crate::story::managed;

/// Returns a TFJob of a chief, a parameter server and five workers with two GPUs each, which may be
/// split.
pub(crate) fn training(case: &Case) -> Value {
    let mut job = case.gang("tune", 2, 2).pytorch();
    let mut group = job["spec"]["pytorchReplicaSpecs"]["Master"].take();
    let container = &mut group["template"]["spec"]["containers"][0];
    container["name"] = json!("tensorflow");
    container["command"] = json!([env!("CARGO_BIN_EXE_cluster_spec")]);
    let of = |replicas: u32| {
        let mut group = group.clone();
        group["replicas"] = json!(replicas);
        group
    };
    job["kind"] = json!("TFJob");
    job["spec"] = json!({
        "runPolicy": {"cleanPodPolicy": "None"},
        "tfReplicaSpecs": {"Chief": of(1), "PS": of(1), "Worker": of(5)},
    });
    annotated(job, "muster.io/split", "Allowed")
}

/// Runs the whole gang as local processes, each at a port of its own. The pod's names resolve to
/// that port: its name in its own cluster, and the name that `elsewhere` returns for its cluster
/// and pod in others.
pub(crate) async fn all_meet(
    case: &Case,
    job: &Job,
    elsewhere: &dyn Fn(&str, &str, &Value) -> String,
) -> anyhow::Result<()> {
    let pods = pods_of(case, job).await?;
    assert_eq!(pods.len(), 2, "{:?}", pods.keys());
    let all: Vec<(&str, &Value)> = pods
        .iter()
        .flat_map(|(cluster, pods)| pods.iter().map(|pod| (cluster.as_str(), pod)))
        .collect();
    let ports = all.iter().map(|_| free_port());
    let ports = ports.collect::<Result<Vec<u16>, _>>()?;
    let mut processes = Vec::new();
    for (cluster, pod) in &all {
        let mut names = BTreeMap::new();
        for ((there, other), port) in all.iter().zip(&ports) {
            let name = other["metadata"]["name"].as_str().unwrap_or_default();
            let name = match there == cluster {
                true => format!("{name}.{}.svc", case.name),
                false => elsewhere(cluster, there, other),
            };
            names.insert(format!("\"{name}:2222\""), format!("\"127.0.0.1:{port}\""));
        }
        let resolve = |value: &str| {
            let names = names.iter();
            names.fold(value.to_owned(), |text, (name, to)| text.replace(name, to))
        };
        processes.push(start(pod, &resolve)?);
    }
    let said = said_by(processes)?;
    let tasks = ["chief 0", "ps 0"].map(str::to_owned).into_iter();
    let tasks = tasks.chain((0..5).map(|index| format!("worker {index}")));
    let all: Vec<String> = tasks
        .map(|task| format!("{task} of 7: all there"))
        .collect();
    assert_eq!(said, all);
    Ok(())
}

/// All processes meet, and the job ends when its chief succeeds, although the parameter server and
/// workers would run for ever.
pub(crate) async fn tensorflow(case: &Case) -> anyhow::Result<()> {
    room_for_seven(case).await?;
    let job = case.submit(&training(case)).await?;
    case.running(&job).await?;
    let binding = case.binding(&job).await.map_err(anyhow::Error::msg)?;
    let record = record(&binding.context("no binding")?);
    let hosts = record["hosts"].as_object().context("no hosts")?;
    assert_eq!(hosts.len(), 2, "{record}");
    let elsewhere = |_: &str, there: &str, pod: &Value| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        format!("{name}.{}.svc.{there}.fleet.example", case.name)
    };
    all_meet(case, &job, &elsewhere).await?;
    end_leader(case, &job).await?;
    case.midway().await?;
    case.finished(&job, "Succeeded").await?;
    shows(case, &job, "Succeeded").await?;
    no_pods(case, &job).await?;
    case.shows_gpus(&case.name, "allocated", 0).await?;
    let report = case.audit(14, [&job])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_tfjob_over_two_clusters_knows_all_of_its_pods_and_ends_with_its_chief() {
    managed("tfsplit", tensorflow);
}
