//! What keeps an admitted job from running, by the three ways in which devices fail their jobs in a cluster:
//!
//! - Nodes refuse its pods (`PodsRefused`): what the scheduler saw of a node was not so.
//! - Its pods do not run on nodes that have taken them (`PodsNotStarting`, by the engine).
//! - The scheduler of a cluster does not bind its pods (`PodsNotScheduled`), although they fit there.
//!
//! This says what it is, for reasons, events, metrics and alerts. The start deadline ends it.

use crate::facts::view::View;
use crate::messages::action::{Effect, Publication};
use crate::messages::unbound_pods::UnboundPods;
use crate::mirror::Mirror;
use crate::mirror::binding::own_record;
use crate::reconcile::JobPass;
use crate::reconcile::placed::lost_pods::LostPods;
use crds::record::{AdmissionRecord, Parts};
use engine::facts::Share;
use engine::{Attempt, ClusterName, JobKey, Progress, Reason, Time};
use std::collections::BTreeMap;

/// Milliseconds that the scheduler of a cluster has to bind the pods of an admitted job.
const BOUND_WITHIN_MS: i64 = 60_000;

/// Milliseconds after which such a job is looked at again.
const RECHECK_MS: i64 = 10_000;

/// Milliseconds after which a scheduler is asked again why.
const ASK_AGAIN_MS: i64 = 30_000;

/// The reasons of the kubelet for a pod that it does not admit (pkg/kubelet/lifecycle, cm/admission and
/// cm/topologymanager, v1.35), besides those that begin with [`OUT_OF`].
const REFUSALS: [&str; 5] = [
    "UnexpectedAdmissionError",
    "TopologyAffinityError",
    "NodeAffinity",
    "NodeName",
    "PodOSNotSupported",
];

/// How the kubelet's reasons begin for a pod that requests more than a node has left: `OutOfcpu`.
const OUT_OF: &str = "OutOf";

/// The pods of a job that the scheduler of a cluster has not bound in time.
#[derive(Debug, Default)]
pub(crate) struct UnscheduledPods {
    /// Which these are.
    message: Option<String>,
    /// When the schedulers were last asked why.
    asked_at: Option<Time>,
    /// The last answers, each of an attempt.
    answers: BTreeMap<ClusterName, (Attempt, UnboundPods)>,
}

impl LostPods {
    /// Returns true if a node has refused a pod of the job's present attempt.
    fn refused(&self, job: &JobKey) -> bool {
        let mut reasons = self.of(job).iter().map(|pod| pod.symptom.reason.as_str());
        reasons.any(|reason| reason.starts_with(OUT_OF) || REFUSALS.contains(&reason))
    }
}

/// Notes whether the pods of a placed job wait for the scheduler of a cluster for too long.
pub(crate) fn note_unscheduled(
    pass: &mut JobPass<'_>,
    record: &AdmissionRecord,
    progress: Progress,
) {
    let waits = progress == Progress::Placed && is_with_schedulers(record);
    let late = late_from(record);
    if waits && pass.now < late {
        pass.out.work_queue.add_at(pass.key, late);
    }
    let is_late = waits && pass.now >= late;
    let found = match is_late {
        true => unscheduled(
            pass.view(),
            Some(&pass.in_flight.unscheduled),
            pass.key,
            record,
        ),
        false => None,
    };
    if let Some((cluster, _)) = &found {
        ask_scheduler(pass, record, cluster);
    }
    let found = found.map(|(_, message)| message);
    if is_late {
        // No event comes when nothing happens.
        pass.out
            .work_queue
            .add_at(pass.key, pass.now.after(RECHECK_MS));
    }
    let unscheduled = &mut pass.in_flight.unscheduled;
    if unscheduled.message != found {
        unscheduled.message = found;
        pass.push(Publication::Job(pass.key.clone()));
    }
}

/// Asks the scheduler of a cluster why it has not bound the pods of a job, unless that was asked a moment ago.
fn ask_scheduler(pass: &mut JobPass<'_>, record: &AdmissionRecord, cluster: &ClusterName) {
    let asked_at = &mut pass.in_flight.unscheduled.asked_at;
    if asked_at.is_some_and(|at| pass.now < at.after(ASK_AGAIN_MS)) {
        return;
    }
    *asked_at = Some(pass.now);
    pass.push(Effect::AskScheduler {
        key: pass.key.clone(),
        attempt: record.attempt,
        cluster: cluster.clone(),
    });
}

/// Notes what the scheduler of a cluster says of the pods of a job.
pub(crate) fn scheduler_said(
    pass: &mut JobPass<'_>,
    attempt: Attempt,
    cluster: ClusterName,
    pods: UnboundPods,
) {
    let answers = &mut pass.in_flight.unscheduled.answers;
    answers.insert(cluster, (attempt, pods));
    pass.out.work_queue.add(pass.key);
}

/// Returns which pods of an admitted job no scheduler has bound, and in which cluster. A cluster that cannot be
/// seen says nothing.
fn unscheduled(
    view: View<'_>,
    asked: Option<&UnscheduledPods>,
    key: &JobKey,
    record: &AdmissionRecord,
) -> Option<(ClusterName, String)> {
    let demand = &view.last_facts.get(key)?.demand;
    let shares = record.admission().shares;
    let admitted: u64 = shares.iter().map(|share| u64::from(share.replicas())).sum();
    let visible = |share: &&Share| {
        let fact = view.engine.fleet().cluster(&share.cluster);
        fact.is_some_and(|fact| fact.usable)
    };
    shares.iter().filter(visible).find_map(|share| {
        let least = demand.min_of_part(share.replicas(), admitted);
        let bound = view.engine.pods_of(key).bound_in(&share.cluster, share.replicas());
        let cluster = &share.cluster;
        (bound < least).then(|| {
            let have = format!("placed; {bound} of the {least} pods it needs on {cluster} have a node");
            let late = "the scheduler there has not bound the others for more than a minute";
            let answer = asked.and_then(|asked| asked.answers.get(cluster));
            let answer = answer.filter(|(attempt, _)| *attempt == record.attempt);
            if let Some(field) = suspended_in(view.mirror, key, cluster) {
                let message = format!(
                    "{have}: nothing of it is sent there, because its propagation policy suspends that \
                     ({field})"
                );
                return (cluster.clone(), message);
            }
            let message = match answer.map(|(_, pods)| pods) {
                Some(UnboundPods::Said(said)) => format!("{have}: {late}: {said}"),
                Some(UnboundPods::Waits(said)) => format!(
                    "{have}: after more than a minute no others are there, because Volcano there has not \
                     let them in: {said}"
                ),
                Some(UnboundPods::NotMade(said)) => format!(
                    "{have}: after more than a minute no others are there, because they cannot be made: {said}"
                ),
                Some(UnboundPods::Absent) => format!(
                    "{have}: after more than a minute no others are there, and the events of its objects \
                     there say why"
                ),
                Some(UnboundPods::Silent(why)) => format!("{have}: {late}: {why}"),
                None => format!("{have}: {late}, and their events there say why"),
            };
            (cluster.clone(), message)
        })
    })
}

/// Returns the field by which the policy of a job suspends its dispatch to a cluster, if it does.
fn suspended_in(mirror: &Mirror, key: &JobKey, cluster: &ClusterName) -> Option<&'static str> {
    let suspension = mirror.bindings().get(key)?.spec.suspension.as_ref()?;
    match suspension.dispatching {
        Some(true) => Some("spec.suspension.dispatching"),
        _ => suspension
            .clusters()
            .any(|name| name == cluster.as_str())
            .then_some("spec.suspension.dispatchingOnClusters"),
    }
}

/// Returns the reason of a placed job, more exactly than the engine's `reason`.
pub(crate) fn what_keeps(
    view: View<'_>,
    lost_pods: &LostPods,
    asked: Option<&UnscheduledPods>,
    key: &JobKey,
    (reason, message): (Reason, String),
    now: Time,
) -> (Reason, String) {
    match reason {
        Reason::PodsNotStarting if lost_pods.refused(key) => (Reason::PodsRefused, message),
        Reason::Placed => match unscheduled_now(view, asked, key, now) {
            Some(why) => (Reason::PodsNotScheduled, why),
            None => (reason, message),
        },
        _ => (reason, message),
    }
}

/// Returns which pods of a placed job have not been bound in time. This does not need an earlier look at the job:
/// a new leader publishes before its first one.
fn unscheduled_now(
    view: View<'_>,
    asked: Option<&UnscheduledPods>,
    key: &JobKey,
    now: Time,
) -> Option<String> {
    let record = own_record(view.mirror.bindings().get(key)?)?;
    let is_late = is_with_schedulers(&record) && now >= late_from(&record);
    let found = is_late
        .then(|| unscheduled(view, asked, key, &record))
        .flatten();
    found.map(|(_, message)| message)
}

/// Returns true if the schedulers of the members have the pods of an admitted job.
fn is_with_schedulers(record: &AdmissionRecord) -> bool {
    record.parts != Some(Parts::Held) && !record.adopted
}

/// Returns from when on the pods of an admitted job should have nodes.
fn late_from(record: &AdmissionRecord) -> Time {
    Time(record.time.as_millisecond()).after(BOUND_WITHIN_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::facts::{PodFact, PodPhase};
    use engine::faults::Symptom;
    use engine::{Event, NodeName, Resources, Uid};

    #[test]
    fn what_the_kubelet_does_not_admit_is_refused_and_what_it_ends_later_is_not() {
        for (reason, refused) in [
            ("UnexpectedAdmissionError", true),
            ("TopologyAffinityError", true),
            ("OutOfcpu", true),
            ("OutOfnvidia.com/gpu", true),
            ("Evicted", false),
            ("NodeShutdown", false),
        ] {
            let job = JobKey::new("team", "a");
            let mut pods = LostPods::default();
            let pod = PodFact {
                cluster: ClusterName::new("m1"),
                uid: Uid::new("p"),
                node: Some(NodeName::new("n1")),
                request: Resources::new(),
                job: Some(job.clone()),
                phase: PodPhase::Disrupted,
                symptom: Some(Box::new(Symptom {
                    reason: reason.to_owned(),
                    message: String::new(),
                    exit_code: None,
                })),
                grace_s: 0,
            };
            pods.note(&Event::PodUpserted(pod), |_, _| Default::default());
            assert_eq!(pods.refused(&job), refused, "{reason}");
        }
    }
}
