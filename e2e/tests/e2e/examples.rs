//! Applies every example with kubectl, as its reader would.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{
    BATCH_JOB, CAPACITY_POLICY, DEPLOYMENT, FAULT_POLICY, JOB_SET, MPI_JOB, ObjectKind,
    PYTORCH_JOB, RAY_JOB, VOLCANO_JOB,
};
use testbed::tools::Tool;
use testbed::{NodeGroup, Testbed};
use tokio::process::Command;

use crate::case::{Case, SOON};
use crate::job::{Job, condition};
use crate::story::managed_alone;
use e2e::harness::wait::eventually;

/// The examples in the order in which examples/README.md names them.
const FILES: [&str; 12] = [
    "namespace.yaml",
    "queue.yaml",
    "priority-class.yaml",
    "volcano-job.yaml",
    "batch-job.yaml",
    "pytorch-job.yaml",
    "propagation-policy.yaml",
    "split-job.yaml",
    "split-jobset.yaml",
    "split-mpijob.yaml",
    "split-rayjob.yaml",
    "elastic-gang.yaml",
];

/// Examples that never end, or are for several teams: applied last, and deleted again.
const LASTING: [&str; 3] = [
    "fault-policy.yaml",
    "sharing.yaml",
    "elastic-deployment.yaml",
];

/// The queues of these examples, and their job.
const SHARING: [&str; 3] = ["lab", "speech", "robotics"];
const SERVICE: &str = "serve";

/// The jobs of all examples, in the namespace `vision`.
const JOBS: [(ObjectKind, &str); 9] = [
    (VOLCANO_JOB, "resnet"),
    (BATCH_JOB, "render"),
    (PYTORCH_JOB, "finetune"),
    (BATCH_JOB, "sweep"),
    (BATCH_JOB, "embed"),
    (JOB_SET, "trials"),
    (MPI_JOB, "bench"),
    (RAY_JOB, "search"),
    (VOLCANO_JOB, "tune"),
];

/// The timeout for all jobs: they run up to half a minute each, and not all at once.
const DONE: Duration = Duration::from_secs(200);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

#[test]
fn every_example_is_applied_here() {
    let entries = std::fs::read_dir(folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".yaml")).collect();
    names.sort();
    let files = FILES.into_iter().chain(LASTING);
    let mut files: Vec<String> = files.map(str::to_owned).collect();
    files.sort();
    assert_eq!(names, files);
}

#[test]
fn every_example_runs_as_it_is() {
    managed_alone("examples", async |case| {
        for (member, product) in [
            ("member1", "NVIDIA-H100-80GB"),
            ("member2", "NVIDIA-A100-80GB"),
            ("member3", "NVIDIA-L40S"),
        ] {
            add_nodes(&case.plane.testbed, member, product).await?;
        }
        for file in FILES {
            kubectl(case, "apply", file).await?;
        }
        for (kind, name) in JOBS {
            let template = case.karmada().get(kind, Some("vision"), name).await?;
            let job = Job::of(kind, template.with_context(|| format!("no {name}"))?);
            case.submitted(&job);
            let what = format!("{name} finished");
            eventually(DONE, &what, async || {
                let group = case.pod_group(&job).await?.unwrap_or_default();
                let finished = condition(&group, "Finished");
                match finished["status"] == "True" && finished["reason"] == "Succeeded" {
                    true => Ok(()),
                    false => Err(group["status"].to_string()),
                }
            })
            .await?;
        }
        lasting(case).await
    });
}

/// Checks that every queue of these examples is valid, and that the service runs.
async fn lasting(case: &Case) -> anyhow::Result<()> {
    for file in LASTING {
        kubectl(case, "apply", file).await?;
    }
    let queues = SHARING.map(|queue| (CAPACITY_POLICY, queue));
    for (kind, name) in queues.into_iter().chain([(FAULT_POLICY, "avoid-nodes")]) {
        eventually(SOON, &format!("{name} is valid"), async || {
            let policy = case.karmada().get(kind, None, name).await;
            let policy = policy.map_err(|error| error.to_string())?;
            let policy = policy.unwrap_or_default();
            match condition(&policy, "Valid")["status"] == "True" {
                true => Ok(()),
                false => Err(policy["status"].to_string()),
            }
        })
        .await?;
    }
    let service = case.karmada().get(DEPLOYMENT, Some("vision"), SERVICE);
    let service = Job::of(DEPLOYMENT, service.await?.context("no service")?);
    case.submitted(&service);
    case.running(&service).await?;
    for file in LASTING {
        kubectl(case, "delete", file).await?;
    }
    case.gone(&service).await
}

async fn add_nodes(testbed: &Testbed, member: &str, product: &str) -> anyhow::Result<()> {
    let group = NodeGroup {
        count: 3,
        prefix: Some("examples".into()),
        product: Some(product.into()),
        ..NodeGroup::default()
    };
    testbed.add_nodes(member, &group).await?;
    Ok(())
}

async fn kubectl(case: &Case, verb: &str, file: &str) -> anyhow::Result<()> {
    let mut command = Command::new(case.plane.tools.program(Tool::Kubectl)?);
    command
        .arg("--kubeconfig")
        .arg(case.plane.testbed.karmada().kubeconfig)
        .args([verb, "-f"])
        .arg(folder().join(file))
        .kill_on_drop(true);
    let output = command.output().await.context("run kubectl")?;
    ensure!(
        output.status.success(),
        "kubectl {verb} -f {file}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
