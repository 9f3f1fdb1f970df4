//! Jobs that ran before Muster managed them: charged as they are, never gated. Pure.

use crate::facts::job::ResolvedJob;
use crds::karmada::{ResourceBinding, TargetCluster};
use crds::record::{AdmissionRecord, RecordState};
use engine::facts::{Admission, Held, JobFact, Role, RolePods, Share};
use engine::{Attempt, ClusterName, PoolClass, Resources, Time, Uid};

#[cfg(test)]
mod tests;

/// The class to charge for adopted workloads: the member chose their nodes.
const CLASS: &str = "adopted";

/// Returns the record of a job that was placed without Muster. Each cluster is charged what Karmada starts
/// there, which is the whole job unless Karmada divides the replicas.
pub(crate) fn record(binding: &ResourceBinding, job: &ResolvedJob, now: Time) -> AdmissionRecord {
    record_in(&binding.spec.clusters, binding, job, now)
}

/// Returns the same record for a job that runs in `clusters`.
pub(crate) fn record_in(
    clusters: &[TargetCluster],
    binding: &ResourceBinding,
    job: &ResolvedJob,
    now: Time,
) -> AdmissionRecord {
    let admission = Admission {
        uid: Uid::new(&binding.spec.resource.uid),
        attempt: Attempt(1),
        queue: job.fact.queue.clone(),
        admitted_at: now,
        declared_ms: job.fact.expected_duration_ms,
        shares: clusters.iter().map(|cluster| share(cluster, job)).collect(),
    };
    AdmissionRecord {
        adopted: true,
        ..AdmissionRecord::new(&admission, RecordState::Admitted)
    }
}

/// Returns the record of a placed job of unknown size: it says that the job ran before Muster managed it,
/// and the job is charged once its template is seen.
pub(crate) fn unsized_record(fact: &JobFact, now: Time) -> AdmissionRecord {
    let admission = Admission {
        uid: fact.uid.clone(),
        attempt: Attempt(1),
        queue: fact.queue.clone(),
        admitted_at: now,
        declared_ms: fact.expected_duration_ms,
        shares: Vec::new(),
    };
    AdmissionRecord {
        adopted: true,
        ..AdmissionRecord::new(&admission, RecordState::Admitted)
    }
}

fn share(cluster: &TargetCluster, job: &ResolvedJob) -> Share {
    let roles = &job.fact.demand.roles;
    let held = job.fact.demand.held == Held::ByReplicas && roles.len() == 1;
    let count = |role: &Role| match cluster.replicas.and_then(|r| u32::try_from(r).ok()) {
        Some(replicas) if held => replicas,
        _ => role.count,
    };
    let pods: Vec<RolePods> = roles
        .iter()
        .map(|role| RolePods {
            role: role.name.clone(),
            count: count(role),
        })
        .collect();
    // An overflow was refused when the template was read.
    let charge = roles
        .iter()
        .try_fold(Resources::new(), |sum, role| {
            let request = role.request_in(&ClusterName::new(&cluster.name));
            sum.checked_add(&request.checked_mul(count(role))?)
        })
        .unwrap_or_default();
    Share {
        cluster: ClusterName::new(&cluster.name),
        pods,
        charge: [(PoolClass::new(CLASS), charge)].into(),
        slots: Vec::new(),
    }
}

/// Returns the message to its user.
pub(crate) fn message(record: &AdmissionRecord) -> String {
    let clusters: Vec<&str> = record
        .clusters
        .iter()
        .map(|share| share.name.as_str())
        .collect();
    format!(
        "it ran in {} before Muster managed it; it runs on and is charged to queue {}",
        clusters.join(", "),
        record.queue
    )
}
