//! What a member reports about its part of a RayCluster or a RayJob, or about a RayService.

use crate::outcome::{self, Outcome, PodCounts};
use serde_json::Value;

/// The field that deploy/interpreter-raycluster.yaml and deploy/interpreter-rayjob.yaml add to the status
/// of a part whose head is in another cluster: its stand-in does not count as a pod.
const HEAD_ELSEWHERE: &str = "headElsewhere";

/// Returns the outcome of a part of a RayCluster: it never finishes by itself.
pub(super) fn of_cluster(status: &Value) -> Outcome {
    let suspended = outcome::condition(status, "RayClusterSuspended").is_some();
    if suspended || outcome::text(status, "state") == "suspended" {
        return Outcome::Suspended;
    }
    outcome::active_if_reported(status)
}

/// Returns the outcome of a part of a RayJob.
pub(super) fn of_job(status: &Value) -> Outcome {
    let job = outcome::text(status, "jobStatus");
    let failed = || {
        Outcome::failed(&[
            job,
            outcome::text(status, "reason"),
            outcome::text(status, "message"),
        ])
    };
    match outcome::text(status, "jobDeploymentStatus") {
        "Complete" if matches!(job, "FAILED" | "STOPPED") => failed(),
        "Complete" => Outcome::Succeeded,
        "Failed" | "ValidationFailed" => failed(),
        "Suspended" => Outcome::Suspended,
        "" => Outcome::Unknown,
        _ => Outcome::Active,
    }
}

/// Returns workers and head of a RayCluster in one member.
pub(super) fn cluster_counts(status: &Value) -> PodCounts {
    counts(status, head_is_elsewhere(status))
}

fn head_is_elsewhere(status: &Value) -> bool {
    status.get(HEAD_ELSEWHERE).and_then(Value::as_bool) == Some(true)
}

fn counts(status: &Value, head_is_elsewhere: bool) -> PodCounts {
    let is_ready = outcome::text(status, "state") == "ready"
        || outcome::condition(status, "HeadPodReady").is_some();
    let workers = outcome::number(status, "availableWorkerReplicas");
    let wanted = outcome::number(status, "desiredWorkerReplicas");
    let heads = u32::from(!head_is_elsewhere);
    let head = u32::from(is_ready).min(heads);
    PodCounts {
        pending: wanted.saturating_sub(workers) + (heads - head),
        running: workers.saturating_add(head),
        ..PodCounts::default()
    }
}

/// Returns the pods of a RayJob's cluster in one member. While it waits for its user to submit an entrypoint
/// (`InteractiveMode`), KubeRay reports the cluster as it was before it was ready (`rayjob_controller.go`, v1.6).
pub(super) fn job_counts(status: &Value) -> PodCounts {
    let cluster = status.get("rayClusterStatus");
    let mut counts = cluster
        .map(|cluster| counts(cluster, head_is_elsewhere(status)))
        .unwrap_or_default();
    if outcome::text(status, "jobDeploymentStatus") == "Waiting" {
        counts.running = counts.running.saturating_add(counts.pending).max(1);
        counts.pending = 0;
    }
    counts
}

/// Returns the outcome of a RayService: it never finishes.
pub(super) fn of_service(status: &Value) -> Outcome {
    if outcome::condition(status, "Suspended").is_some() {
        return Outcome::Suspended;
    }
    outcome::active_if_reported(status)
}

/// Returns the pods of the clusters of a RayService: that which serves, and that of an upgrade. KubeRay writes
/// them only when something of the applications changes (`InconsistentRayServiceStatuses`, v1.6), so they may
/// be old: a service that is ready has all pods of the cluster that serves.
pub(super) fn service_counts(status: &Value) -> PodCounts {
    let of = |which| {
        let cluster = status.get(which)?;
        let exists = !outcome::text(cluster, "rayClusterName").is_empty();
        let reported = cluster.get("rayClusterStatus").filter(|_| exists)?;
        Some(counts(reported, false))
    };
    let mut serving = of("activeServiceStatus").unwrap_or_default();
    if outcome::condition(status, "Ready").is_some() {
        serving.running = serving.running.saturating_add(serving.pending);
        serving.pending = 0;
    }
    serving.plus(of("pendingServiceStatus").unwrap_or_default())
}
