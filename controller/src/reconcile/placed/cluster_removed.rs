//! Finished jobs in clusters that are being removed from the federation.
//!
//! Karmada removes all Works from such a cluster, drops what was reported of them, and removes the cluster
//! once no placement names it. A running job is evicted as from any cluster that is emptied
//! (`engine::matching::LEAVING`) and runs elsewhere. A finished job must not run again: Muster removes its
//! placement too, and its record keeps how it ended.

use crate::mirror::Mirror;
use crate::reconcile::JobPass;
use crate::reconcile::check_result::{CheckResult, EvictionCause};
use crate::reconcile::in_flight::InFlight;
use crate::reconcile::output::Output;
use crate::reconcile::placed::Placed;
use crds::karmada::ResourceBinding;
use crds::record::AdmissionRecord;
use engine::facts::ClusterFact;
use engine::matching::LEAVING;
use engine::{ClusterName, Engine, Reason};
use workload::Outcome;

/// Removes the placement of a finished job in a cluster that is being removed.
pub(crate) fn check_cluster_removed(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    if ended(pass.in_flight, &placed.record).is_none() {
        return CheckResult::Continue;
    }
    let Some(cluster) = leaving_cluster(pass.engine, pass.binding) else {
        return CheckResult::Continue;
    };
    let message = format!("cluster {cluster}, where it was, is being removed");
    EvictionCause::new(Reason::ClusterDrained, message).into()
}

/// Returns how an attempt ended, if it is over; the report itself may be gone by now.
fn ended<'a>(in_flight: &'a InFlight, record: &AdmissionRecord) -> Option<&'a Outcome> {
    in_flight.end.outcome_of(record.attempt)
}

/// Returns the same as the reason and message of a record.
pub(crate) fn end_of(in_flight: &InFlight, record: &AdmissionRecord) -> Option<(Reason, String)> {
    Some(match ended(in_flight, record)? {
        Outcome::Failed { message } => (Reason::PartFailed, format!("it has failed: {message}")),
        _ => (Reason::Succeeded, "it has succeeded".to_owned()),
    })
}

/// Returns a cluster of a placement that is being removed.
fn leaving_cluster(engine: &Engine, binding: &ResourceBinding) -> Option<ClusterName> {
    let clusters = binding.spec.clusters.iter();
    let mut names = clusters.map(|cluster| ClusterName::new(&cluster.name));
    names.find(|name| engine.fleet().cluster(name).is_some_and(is_leaving))
}

/// Marks all jobs in a cluster whose removal begins.
pub(crate) fn note_leaving(
    engine: &Engine,
    mirror: &Mirror,
    out: &mut Output,
    cluster: &ClusterFact,
) {
    let known = engine.fleet().cluster(&cluster.name);
    if !is_leaving(cluster) || known.is_some_and(is_leaving) {
        return;
    }
    let bindings = mirror.bindings().iter().filter(|(_, binding)| {
        let mut clusters = binding.spec.clusters.iter();
        clusters.any(|placed| placed.name == cluster.name.as_str())
    });
    out.work_queue.extend(bindings.map(|(key, _)| key.clone()));
}

fn is_leaving(cluster: &ClusterFact) -> bool {
    cluster.has_taint(LEAVING)
}
