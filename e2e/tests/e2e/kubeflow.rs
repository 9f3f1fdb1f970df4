//! JAXJobs and XGBoostJobs over several clusters, run by training-operator.

use anyhow::ensure;
use e2e::harness::jobs::annotated;
use serde_json::{Value, json};
use testbed::free_port;

use crate::case::Case;
use crate::job::Job;
use crate::leading_part::{Middle, room_for_seven, shows, succeeds_with_its_master};
use crate::rendezvous::all_meet;
use crate::split::{environment, play, pods_of};
use crate::story::managed;
use crate::ttl::SECONDS;

/// Returns the cluster with the first worker of all.
async fn first_cluster(case: &Case, job: &Job) -> anyhow::Result<String> {
    let pods = pods_of(case, job).await?;
    ensure!(pods.len() == 2, "{} is in {:?}", job.name, pods.keys());
    let begins = |pods: &[Value]| {
        let mut offsets = pods
            .iter()
            .map(|pod| environment(pod, "MUSTER_RANK_OFFSET"));
        offsets.any(|offset| offset == Some("0"))
    };
    let first = pods.iter().find(|(_, pods)| begins(pods));
    Ok(first
        .map(|(cluster, _)| cluster.clone())
        .unwrap_or_default())
}

/// The processes of a JAXJob over two clusters are numbered once and meet at the first; it has
/// succeeded when all of them have.
pub(crate) async fn jax(case: &Case) -> anyhow::Result<()> {
    room_for_seven(case).await?;
    let mut template = annotated(case.gang("spmd", 7, 2).jax(), "muster.io/split", "Allowed");
    let container = template.pointer_mut("/spec/jaxReplicaSpecs/Worker/template/spec/containers/0");
    let container = container.expect("a container");
    // The program of the other stories, with the variables of JAX.
    let program = env!("CARGO_BIN_EXE_rendezvous");
    let script = format!(
        "MASTER_ADDR=$COORDINATOR_ADDRESS MASTER_PORT=$COORDINATOR_PORT WORLD_SIZE=$NUM_PROCESSES \
         RANK=$PROCESS_ID exec {program}"
    );
    container["command"] = json!(["/bin/sh", "-c", script]);
    container["ports"] = json!([{"name": "jaxjob-port", "containerPort": free_port()?}]);
    let job = case.submit(&template).await?;
    case.running(&job).await?;
    let leading = first_cluster(case, &job).await?;
    let address = format!("spmd-worker-0.{}.svc.{leading}.fleet.example", case.name);
    let names = |cluster: &str| match cluster == leading {
        true => vec!["spmd-worker-0".to_owned()],
        false => vec![address.clone()],
    };
    all_meet(case, &job, 7, &names).await?;
    play(case, &job, |_, _| true, json!({"muster.io/run-for": "1ms"})).await?;
    case.finished(&job, "Succeeded").await?;
    shows(case, &job, "Succeeded").await?;
    let report = case.audit(14, [&job])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

/// The operator of the cluster without the master has a stand-in for it, which never runs; the
/// master's end is that of the whole.
pub(crate) async fn xgboost(case: &Case) -> anyhow::Result<()> {
    room_for_seven(case).await?;
    let mut template = annotated(
        case.gang("light", 7, 2).xgboost(),
        "muster.io/split",
        "Allowed",
    );
    for group in ["Master", "Worker"] {
        let path = format!("/spec/xgbReplicaSpecs/{group}/template/spec/containers/0");
        let container = template.pointer_mut(&path).expect("a container");
        container["command"] = json!(["train"]);
    }
    template["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    succeeds_with_its_master(case, template, "Succeeded", Middle::Ended).await
}

#[test]
fn a_jaxjob_over_two_clusters_meets_at_its_first_worker() {
    managed("jax", jax);
}

#[test]
fn an_xgboostjob_over_two_clusters_succeeds_with_its_master() {
    managed("xgboost", xgboost);
}
