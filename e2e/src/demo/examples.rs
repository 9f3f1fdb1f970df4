//! Applies the examples with kubectl, as a user would.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;

use super::plane::DemoPlane;
use super::world::DemoJob;
use crate::harness::kinds::{BATCH_JOB, ObjectKind, POD_GROUP, PYTORCH_JOB, VOLCANO_JOB};
use crate::harness::wait::eventually;

/// The namespace of the examples, and the queue that it names.
pub(super) const TEAM: &str = "vision";
/// The quota of the example's queue, in GPUs.
pub(super) const CAPABILITY: u64 = 32;
/// The quota of H100s within it.
pub(super) const H100_CAPABILITY: u64 = 16;
/// The objects that the operator and the queue's admin apply before jobs are submitted.
const SETTING: [&str; 3] = ["namespace.yaml", "queue.yaml", "priority-class.yaml"];
/// The timeout until the last example runs; each waits for others.
const UNTIL_RUNNING: Duration = Duration::from_secs(180);
/// The timeout until a PodGroup shows the state of the pods.
const UNTIL_SHOWN: Duration = Duration::from_secs(60);

/// An example that is a job.
pub(super) struct Example {
    file: &'static str,
    pub(super) kind: ObjectKind,
    pub(super) name: &'static str,
    pods: u32,
    gpus: u32,
}

pub(super) const JOBS: [Example; 5] = [
    Example {
        file: "batch-job.yaml",
        kind: BATCH_JOB,
        name: "render",
        pods: 4,
        gpus: 4,
    },
    Example {
        file: "pytorch-job.yaml",
        kind: PYTORCH_JOB,
        name: "finetune",
        pods: 4,
        gpus: 16,
    },
    Example {
        file: "propagation-policy.yaml",
        kind: BATCH_JOB,
        name: "sweep",
        pods: 12,
        gpus: 12,
    },
    Example {
        file: "split-job.yaml",
        kind: BATCH_JOB,
        name: "embed",
        pods: 6,
        gpus: 24,
    },
    Example {
        file: "volcano-job.yaml",
        kind: VOLCANO_JOB,
        name: "resnet",
        pods: 3,
        gpus: 16,
    },
];

/// Applies all examples and waits until every job of them has run.
///
/// # Errors
/// Returns an error if one is refused, or does not run in time.
pub(super) async fn play(dir: &Path, plane: &DemoPlane) -> Result<()> {
    let kubectl = &plane.kubectl;
    for file in SETTING {
        kubectl.run(&["apply", "-f", &path(dir, file)]).await?;
    }
    for example in &JOBS {
        plane
            .world
            .lock()
            .submit((TEAM.into(), example.name.into()), example.job());
        kubectl
            .run(&["apply", "-f", &path(dir, example.file)])
            .await?;
    }
    let gpus: u32 = JOBS.iter().map(|example| example.gpus).sum();
    println!(
        "\nThey ask for {gpus} GPUs, and the quota of the queue is {CAPABILITY}. After a few seconds:\n"
    );
    tokio::time::sleep(Duration::from_secs(4)).await;
    kubectl.run(&["get", "podgroups", "-n", TEAM]).await?;
    kubectl.run(&["get", "capacitypolicies", TEAM]).await?;
    all_have_run(plane).await?;
    println!("\nAll of them have run by now.\n");
    kubectl.run(&["get", "podgroups", "-n", TEAM]).await
}

/// Waits until all pods of every example have been seen running, and its PodGroup shows it.
async fn all_have_run(plane: &DemoPlane) -> Result<()> {
    eventually(UNTIL_RUNNING, "every example runs", async || {
        let world = plane.world.lock();
        let waiting = world.jobs().filter(|(_, job)| job.ran.is_none());
        none(waiting.map(|((_, name), job)| format!("{name} is {:?}", job.stage())))
    })
    .await?;
    // Karmada reports running pods a moment after their clusters do.
    eventually(UNTIL_SHOWN, "every example is shown to run", async || {
        let groups = plane.karmada.list(POD_GROUP, Some(TEAM)).await;
        let groups = groups.map_err(|error| format!("{error:#}"))?;
        let phases = groups.iter().map(|group| {
            let phase = group["status"]["phase"].as_str().unwrap_or_default();
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            (phase, format!("{name} is {phase}"))
        });
        let waiting = phases.filter(|(phase, _)| !["Running", "Completed"].contains(phase));
        none(waiting.map(|(_, words)| words))
    })
    .await
}

/// Returns an error with the remaining items if there are any.
fn none(left: impl Iterator<Item = String>) -> Result<(), String> {
    let left: Vec<String> = left.collect();
    left.is_empty().then_some(()).ok_or_else(|| left.join(", "))
}

/// Returns the path of a file as a user would type it.
fn path(dir: &Path, file: &str) -> String {
    let path = dir.join(file);
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here)
        .unwrap_or(&path)
        .display()
        .to_string()
}

impl Example {
    fn job(&self) -> DemoJob {
        DemoJob {
            queue: TEAM.into(),
            pods: self.pods,
            gpus: self.gpus,
            submitted: Timestamp::now(),
            admitted: None,
            ran: None,
            ended: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::harness::audit::Footprint;
    use serde_json::Value;

    /// The descriptions of the examples here match their files.
    #[test]
    fn examples_are_as_they_are_described() {
        let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples"));
        for example in &JOBS {
            let text = std::fs::read_to_string(dir.join(example.file)).unwrap();
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            let job = objects
                .iter()
                .find(|object| object["kind"] == example.kind.name)
                .unwrap();
            assert_eq!(job["metadata"]["name"], example.name, "{}", example.file);
            assert_eq!(job["metadata"]["namespace"], TEAM, "{}", example.file);
            assert_eq!(
                Footprint::of(job).unwrap().gpus(),
                u64::from(example.gpus),
                "{}",
                example.file
            );
        }
        let queue = std::fs::read_to_string(dir.join("queue.yaml")).unwrap();
        let queue: Vec<Value> = serde_saphyr::from_multiple(&queue).unwrap();
        assert_eq!(queue[1]["spec"]["capability"]["nvidia.com/gpu"], CAPABILITY);
        let pool = &queue[0]["spec"]["pools"][0];
        assert_eq!(pool["class"], "nvidia-h100-80gb");
        let bounds = &pool["resources"][0];
        assert_eq!(bounds["name"], "nvidia.com/gpu");
        assert_eq!(bounds["capability"], H100_CAPABILITY);
    }
}
