//! What a part asks of its whole gang, and how often the gang was restarted.
//!
//! The policies of a job (a Volcano Job's `RestartJob`, `AbortJob`, ...) act in a member on its part only. So
//! parts stop, and the way in which one stops asks all others to follow (`workload::gang_action`). A gang
//! that is restarted is evicted, and queued again at its old place.
//!
//! Muster counts these restarts, and those of tasks and pods inside the parts, against the job's `maxRetry`.
//! The count is in the admission record, so that it survives every restart, requeue and placement. Evictions
//! for any other reason do not change it.

use crate::mirror::Mirror;
use crate::reconcile::check_result::EvictionCause;
use crate::reconcile::placed::status_in;
use crds::karmada::ResourceBinding;
use crds::record::AdmissionRecord;
use engine::{ClusterName, Reason};
use serde_json::Value;
use workload::{GangAction, GangPolicies};

/// Completes a record, before it is written, with the retries of the job so far, and with the policies of
/// an attempt in several parts. An attempt keeps those that it was placed with.
pub(crate) fn keep_retries(
    mirror: &Mirror,
    record: &mut AdmissionRecord,
    before: Option<&AdmissionRecord>,
    binding: &ResourceBinding,
) {
    if let Some(before) = before {
        record.retries = record.retries.max(before.retries);
        let failures = before.infrastructure_failures;
        record.infrastructure_failures = record.infrastructure_failures.max(failures);
        record.own_failures = record.own_failures.max(before.own_failures);
    }
    if before.is_some_and(|before| before.attempt == record.attempt) {
        return;
    }
    let shares = record.admission().shares;
    let ask = mirror.ask_of(binding).filter(|_| record.is_split());
    record.set_policies(ask.and_then(|ask| ask.gang_policies(&shares)));
}

/// Returns the retries of a job with the placement of `record`: those of earlier attempts, and those that its
/// members report of this one.
pub(crate) fn retries(binding: &ResourceBinding, record: &AdmissionRecord) -> u32 {
    let resource = &binding.spec.resource;
    // Another user may have changed where it is.
    let clusters = record.clusters.iter().filter(|_| record.is_split());
    let parts = clusters.map(|share| status_in(binding, share.name.as_str()));
    let parts: Vec<Value> = parts.collect();
    let now = workload::retries(&resource.api_version, &resource.kind, &parts);
    record.retries.saturating_add(now)
}

/// Returns the stop for a part that asks its gang to stop or to start again, or for a gang whose retries are
/// used up. `disrupted` says whether the gang has lost a pod by no fault of its own.
///
/// A stop for good comes before a restart: when a part stops, the pods of the others often fail too, and their
/// policies restart the gang.
pub(crate) fn requested(
    binding: &ResourceBinding,
    record: &AdmissionRecord,
    disrupted: bool,
) -> Option<EvictionCause> {
    let policies = record.policies()?;
    let asks = |request| part_that_asks(binding, record, &policies, request);
    if let Some(cluster) = asks(GangAction::Terminate) {
        let how = format!("the part on {cluster} was terminated (TerminateJob)");
        return Some(stopped(Reason::PartFailed, &how));
    }
    if let Some(cluster) = asks(GangAction::Abort) {
        let how = format!("the part on {cluster} was aborted (AbortJob)");
        return Some(stopped(Reason::Aborted, &how));
    }
    let retries = retries(binding, record);
    if let Some(cluster) = asks(GangAction::Restart) {
        return Some(restarted(cluster, &policies, retries, disrupted));
    }
    let used_up = retries > record.retries && retries >= policies.max_retry;
    used_up.then(|| {
        let how =
            format!("its tasks and pods were restarted {retries} times, which is its maxRetry");
        stopped(Reason::PartFailed, &how)
    })
}

/// Returns the stop for a gang that a policy restarts. A restart because of a lost node or an eviction is no
/// retry.
fn restarted(
    cluster: &ClusterName,
    policies: &GangPolicies,
    retries: u32,
    disrupted: bool,
) -> EvictionCause {
    let most = policies.max_retry;
    let how = format!("the part on {cluster} asked for a restart of the job (RestartJob)");
    let (reason, message) = if disrupted {
        let message = format!("{how} after pods of it were lost with their node, or evicted");
        (Reason::PodsLost, message)
    } else if policies.may_restart(retries) {
        let number = retries.saturating_add(1);
        let message = format!("{how}: retry {number} of {most}");
        (Reason::GangRestarted, message)
    } else {
        let how = format!("{how}, and its maxRetry of {most} is reached");
        return stopped(Reason::PartFailed, &how);
    };
    EvictionCause::new(reason, message)
}

fn stopped(reason: Reason, how: &str) -> EvictionCause {
    EvictionCause::new(reason, format!("{how}; the others were stopped"))
}

/// Returns how a policy has completed the whole gang: by a task in all clusters, or by a part.
pub(crate) fn completed(binding: &ResourceBinding, record: &AdmissionRecord) -> Option<String> {
    let policies = record.policies()?;
    let resource = &binding.spec.resource;
    let clusters = record.clusters.iter();
    let statuses: Vec<Value> = clusters
        .map(|share| status_in(binding, share.name.as_str()))
        .collect();
    let task =
        workload::completed_task(&resource.api_version, &resource.kind, &statuses, &policies);
    if let Some(task) = task {
        return Some(format!(
            "all pods of task {task} have succeeded, which completes the job (CompleteJob by TaskCompleted)"
        ));
    }
    let cluster = part_that_asks(binding, record, &policies, GangAction::Complete)?;
    Some(format!(
        "a policy completed the part on {cluster} (CompleteJob), and with it the job"
    ))
}

/// Returns the cluster of the first part that asks for this.
fn part_that_asks<'a>(
    binding: &ResourceBinding,
    record: &'a AdmissionRecord,
    policies: &GangPolicies,
    wanted: GangAction,
) -> Option<&'a ClusterName> {
    let resource = &binding.spec.resource;
    let mut clusters = record.clusters.iter().map(|share| &share.name);
    clusters.find(|cluster| {
        let status = status_in(binding, cluster.as_str());
        let asked = workload::gang_action(&resource.api_version, &resource.kind, &status, policies);
        asked == Some(wanted)
    })
}
