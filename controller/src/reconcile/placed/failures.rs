//! Jobs that have failed, because their own controllers have given up: whose fault it was, and whether they are
//! queued again.
//!
//! ```text
//! a rule of its own template ended it ─────────────────────────────────► it stays failed
//! pods were evicted on request, as by kubectl drain ───────────────────► queued again
//! pods were lost through no fault of its own ─► retries.infrastructure ─► queued again
//! it failed by itself ─► retries.onExitCodes, retries.user ─────────────► queued again
//! ```
//!
//! The limits are those of its queue (`spec.retries` of the CapacityPolicy). Each kind of failure has a count of
//! its own in the admission record, so that a fault of a node costs a job none of its own retries.
//!
//! A member's controller may count a pod that its node lost as a failure of the job: a batch/v1 Job with
//! `backoffLimit: 0` fails as soon as a node is emptied. Only a failure that this process has seen coming
//! counts: one that is found at the start may be days old.

use crate::messages::job_event::JobEvent;
use crate::reconcile::JobPass;
use crate::reconcile::check_result::{CheckResult, EvictionCause};
use crate::reconcile::engine_events::apply_admission;
use crate::reconcile::in_flight::InFlight;
use crate::reconcile::placed::{Placed, statuses};
use crds::capacity_policy::{CapacityPolicy, RetryLimits};
use crds::record::AdmissionRecord;
use engine::faults::{FaultClass, Symptom};
use engine::{ClusterName, Engine, JobKey, JobState, Progress, Reason};
use workload::Outcome;

/// What follows from the failure of a job.
#[derive(Debug, Clone)]
enum FailureVerdict {
    /// It is evicted and queued again.
    Retry(EvictionCause),
    /// It has failed for good: whose fault it was, and why it is not queued again.
    Final(String),
}

/// Evicts a job that has failed and is queued again.
pub(crate) fn check_failed(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    let record = &placed.record;
    let Outcome::Failed { message: failed } = &placed.outcome else {
        return CheckResult::Continue;
    };
    let job = pass.engine.job(pass.key);
    let ran = job.is_some_and(|job| {
        let current = job.admission.map(|admission| admission.attempt);
        matches!(job.state, JobState::Placed | JobState::Running) && current == Some(record.attempt)
    });
    if !ran {
        return CheckResult::Continue;
    }
    count_failure(pass, record);
    match verdict(pass, record, failed) {
        FailureVerdict::Retry(cause) => {
            apply_admission(pass, record, Progress::Running);
            cause.into()
        }
        FailureVerdict::Final(why) => {
            let message = pass
                .view()
                .discreet(pass.key, &format!("it failed ({failed}): {why}"));
            pass.record_event(JobEvent::warning(Reason::Failed, "Finish", message));
            pass.in_flight.end.note_failure(record.attempt, why);
            CheckResult::Continue
        }
    }
}

/// Returns why a gang of which a part has failed is evicted: it is queued again if the failure allows that.
pub(crate) fn cause_of_failed_part(
    pass: &mut JobPass<'_>,
    record: &AdmissionRecord,
    cause: EvictionCause,
) -> EvictionCause {
    if cause.reason != Reason::PartFailed {
        return cause;
    }
    count_failure(pass, record);
    match verdict(pass, record, &cause.message) {
        FailureVerdict::Retry(retry) => retry,
        FailureVerdict::Final(why) => {
            let message = format!("{}: {why}", cause.message);
            EvictionCause { message, ..cause }
        }
    }
}

/// Returns why the attempt of `record` failed for good, as far as this process saw it.
pub(crate) fn told_failure<'a>(
    engine: &Engine,
    in_flight: &'a InFlight,
    key: &JobKey,
) -> Option<&'a str> {
    let current = engine.job(key)?.admission?.attempt;
    in_flight.end.failure_of(current)
}

/// Returns true if the end of a job does not count in an eviction for `reason`: it is queued again in spite
/// of it, or its nodes caused both.
pub(crate) fn is_excused(pass: &JobPass<'_>, reason: Reason) -> bool {
    match reason {
        Reason::InfrastructureFailed | Reason::FailureRetried => true,
        Reason::PodsLost | Reason::NodeEnding => pass.infrastructure_fault().is_some(),
        _ => false,
    }
}

/// Counts the failure of a job, or of a part of it, by whose fault it was.
fn count_failure(pass: &JobPass<'_>, record: &AdmissionRecord) {
    let infrastructure = pass.infrastructure_fault();
    if infrastructure.is_some_and(|(pod, _)| pod.symptom.is_on_request()) {
        return;
    }
    let fault = infrastructure.or_else(|| pass.own_fault());
    let class = fault.map_or(FaultClass::Unknown, |(_, class)| class);
    if let Some(queues) = pass.series_of(&record.queue) {
        queues.failed(&record.queue, class);
    }
}

/// Returns what follows from the failure of a job, which its members describe as `failed`.
fn verdict(pass: &JobPass<'_>, record: &AdmissionRecord, failed: &str) -> FailureVerdict {
    let policy = pass.mirror.policies().get(&record.queue);
    let limits = policy.map_or_else(RetryLimits::default, CapacityPolicy::retries);
    if let Some((pod, class)) = pass.infrastructure_fault() {
        let fault = fault_on(class, &pod.cluster, &pod.symptom);
        if let Some(rule) = own_rule(pass, record) {
            return FailureVerdict::Final(format!("{fault}; {rule}"));
        }
        if pod.symptom.is_on_request() {
            return drained(failed, &pod.cluster);
        }
        return infrastructure(record, &limits, failed, &fault, &pod.cluster);
    }
    let fault = pass.own_fault();
    let fault = fault.map_or_else(
        || "no pod says why".to_owned(),
        |(pod, class)| fault_on(class, &pod.cluster, &pod.symptom),
    );
    match own_rule(pass, record).or_else(|| bars(pass, &limits)) {
        Some(why) => FailureVerdict::Final(format!("{fault}; {why}")),
        None => own(record, &limits, failed, &fault),
    }
}

/// Returns which rule of its own template keeps a job from being queued again.
fn own_rule(pass: &JobPass<'_>, record: &AdmissionRecord) -> Option<String> {
    if record.adopted {
        return Some("it ran before Muster managed it, and is not queued again".to_owned());
    }
    let template = pass.mirror.template_of(pass.binding);
    if template.is_some_and(|template| template.shown.ended) {
        return Some("its object says already that it has ended, which is final".to_owned());
    }
    let resource = &pass.binding.spec.resource;
    let policies = record.policies();
    let rule = workload::ended_by_rule(
        &resource.api_version,
        &resource.kind,
        &statuses(pass.binding),
        policies.as_ref(),
    );
    rule.map(|rule| format!("its {rule} says that it is not tried again"))
}

/// Returns why the exit codes of a job that failed by itself keep it from being queued again.
fn bars(pass: &JobPass<'_>, limits: &RetryLimits) -> Option<String> {
    if limits.user == 0 {
        return None; // its queue retries no such job, which says more
    }
    let template = pass.mirror.template_of(pass.binding);
    let permanent = template.is_some_and(|template| template.permanent_exit_codes);
    let mut codes = pass.jobs.lost_pods.exit_codes(pass.key);
    if permanent && let Some(code) = codes.find(|code| (1..128).contains(code)) {
        return Some(format!(
            "its restartPolicy ExitCode says that exit code {code} is permanent"
        ));
    }
    let wanted = &limits.on_exit_codes;
    let matches = wanted.is_empty()
        || pass
            .jobs
            .lost_pods
            .exit_codes(pass.key)
            .any(|c| wanted.contains(&c));
    (!matches).then(|| {
        let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        format!(
            "its queue allows retries of its own failures only after the exit codes {} \
             (spec.retries.onExitCodes)",
            wanted.join(", ")
        )
    })
}

/// Returns what follows if pods were evicted on request: nothing has failed, so it counts nowhere, and the job keeps
/// its place.
fn drained(failed: &str, cluster: &ClusterName) -> FailureVerdict {
    let message = format!(
        "its pods on {cluster} were evicted on request, as by kubectl drain, which ended it ({failed}); it is queued \
         again, which costs it no retry"
    );
    FailureVerdict::Retry(EvictionCause::new(Reason::NodeEnding, message))
}

/// Returns what follows from a failure through no fault of the job's own.
fn infrastructure(
    record: &AdmissionRecord,
    limits: &RetryLimits,
    failed: &str,
    fault: &str,
    cluster: &ClusterName,
) -> FailureVerdict {
    let number = record.infrastructure_failures.saturating_add(1);
    let most = limits.infrastructure;
    if number > most {
        return FailureVerdict::Final(format!(
            "{fault}; it is not queued again: its queue allows that {most} times for such faults \
             (spec.retries.infrastructure)"
        ));
    }
    let message = format!(
        "it failed ({failed}) after {fault}; it is queued again, which costs it no retry of its own (failure {number} \
         of {most} of this kind)"
    );
    let next = AdmissionRecord {
        infrastructure_failures: number,
        ..record.clone()
    };
    let cause = EvictionCause::new(Reason::InfrastructureFailed, message).with_record(next);
    FailureVerdict::Retry(cause.avoiding(cluster.clone()))
}

/// Returns what follows from a failure of the job's own.
fn own(
    record: &AdmissionRecord,
    limits: &RetryLimits,
    failed: &str,
    fault: &str,
) -> FailureVerdict {
    let number = record.own_failures.saturating_add(1);
    let most = limits.user;
    if number > most {
        return FailureVerdict::Final(match most {
            0 => format!("{fault}; it is not queued again (spec.retries.user of its queue is 0)"),
            _ => format!(
                "{fault}; it was queued again {most} times, as often as its queue allows (spec.retries.user)"
            ),
        });
    }
    let message = format!(
        "it failed ({failed}) by itself, {fault}; it is queued again: retry {number} of {most} of its queue"
    );
    let next = AdmissionRecord {
        own_failures: number,
        ..record.clone()
    };
    FailureVerdict::Retry(EvictionCause::new(Reason::FailureRetried, message).with_record(next))
}

/// Describes a fault: `a fault of class Device on gpu-a: Error, exit code 134 (NVRM: Xid 79)`.
fn fault_on(class: FaultClass, cluster: &ClusterName, symptom: &Symptom) -> String {
    format!("a fault of class {class} on {cluster}: {symptom}")
}
