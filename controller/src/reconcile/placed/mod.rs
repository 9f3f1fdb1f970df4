//! Placed jobs: charged by their record, followed by what their members report, and evicted if what runs is
//! not what was admitted.

pub(crate) mod attempt_end;
pub(crate) mod avoids;
pub(crate) mod cannot_start;
pub(crate) mod cluster_removed;
pub(crate) mod ending_node;
pub(crate) mod excess;
pub(crate) mod expiry;
pub(crate) mod failures;
pub(crate) mod growth;
pub(crate) mod lost_pods;
pub(crate) mod member_refused;
pub(crate) mod not_running;
pub(crate) mod parts;
pub(crate) mod rendezvous;
pub(crate) mod renew;
pub(crate) mod retries;
pub(crate) mod shrink;
pub(crate) mod stuck;

use crate::facts::job::ResolvedJob;
use crate::mirror::Mirror;
use crate::mirror::binding::own_record;
use crate::reconcile::check_result::{CheckResult, EvictionCause, follow};
use crate::reconcile::decisions::hand_over;
use crate::reconcile::engine_events::apply_admission;
use crate::reconcile::evict::evict;
use crate::reconcile::out_of_service::has_works;
use crate::reconcile::placed::cluster_removed::check_cluster_removed;
use crate::reconcile::placed::ending_node::check_ending_node;
use crate::reconcile::placed::excess::check_excess;
use crate::reconcile::placed::expiry::expire;
use crate::reconcile::placed::failures::check_failed;
use crate::reconcile::placed::growth::pin_growth;
use crate::reconcile::placed::lost_pods::note_whole;
use crate::reconcile::placed::member_refused::check_member_refused;
use crate::reconcile::placed::not_running::note_unscheduled;
use crate::reconcile::placed::parts::{check_parts, led};
use crate::reconcile::placed::rendezvous::check_services;
use crate::reconcile::placed::shrink::{check_leaving_pods, confirm_shrinks};
use crate::reconcile::placed::stuck::check_heartbeat;
use crate::reconcile::preserved::check_preserving;
use crate::reconcile::queue_places::check_queue_moved;
use crate::reconcile::{JobPass, ending_of};
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, RecordedShare};
use engine::decision::without_slots;
use engine::facts::{Admission, Held, Share};
use engine::{Engine, Event, JobKey, JobState, Progress, Reason, Resources, Time};
use workload::{GangRules, Outcome, WorkloadSpec};

/// A placed job in one pass.
pub(crate) struct Placed {
    pub(crate) record: AdmissionRecord,
    /// What its template asks for, if that has been seen.
    job: Option<ResolvedJob>,
    /// What its members report.
    pub(crate) outcome: Outcome,
    pub(crate) progress: Progress,
    /// True if the engine knew its attempt as ended before this pass.
    was_over: bool,
}

impl Placed {
    /// Writes its record again: the write completes it.
    pub(crate) fn written_again(&self) -> CheckResult {
        let record = self.record.clone();
        CheckResult::write(Write::Record { record })
    }
}

/// When a step applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// Its template has been seen.
    Templated,
    /// Its members do not report its end.
    Unfinished,
}

/// One step of a pass.
enum PassStep {
    /// May end the pass.
    Check(fn(&mut JobPass<'_>, &Placed) -> CheckResult),
    /// Ends nothing.
    Do(fn(&mut JobPass<'_>, &Placed)),
}

use PassStep::{Check, Do};
use When::{Always, Templated, Unfinished};

/// The steps of a pass, in order. The first check with a consequence ends the pass: each pass writes once, and the
/// change that the write causes starts the next pass.
///
/// - First is what the engine or the end of the job has decided already: it holds whatever else is true.
/// - Then the job is charged by its record, since all that follows may count on that.
/// - What ends the attempt anyway comes before what its owner wants, so that no edit delays it.
/// - What its owner wants comes before what its members do: a job that is to end needs no repair.
/// - What only looks after it is last.
const STEPS: [(When, PassStep); 23] = [
    (Always, Check(check_evicted)),
    (Always, Check(check_failed)),
    (Always, Check(check_cluster_removed)),
    (Always, Check(check_preserving)),
    (Always, Do(charge)),
    (Always, Check(check_runs_after_end)),
    (Unfinished, Check(check_ending_node)),
    (Unfinished, Check(check_heartbeat)),
    (Templated, Do(apply_template)),
    (Templated, Check(check_stopped_by_owner)),
    (Templated, Check(check_adopted)),
    (Templated, Do(pin_growth)),
    (Templated, Check(check_resized)),
    (Templated, Check(check_leaving_pods)),
    (Templated, Check(check_queue_moved)),
    (Unfinished, Check(check_member_refused)),
    (Unfinished, Check(check_excess)),
    (Unfinished, Check(check_parts)),
    (Unfinished, Do(check_services)),
    (Unfinished, Do(renew::renew)),
    (Always, Do(confirm_shrinks)),
    (Always, Do(expire)),
    (Always, Do(acknowledge)),
];

/// Handles an admitted and placed job: charges its record and follows its members' reports.
pub(crate) fn admitted(pass: &mut JobPass<'_>, record: AdmissionRecord) {
    if has_works(pass) {
        pass.in_flight.works.seen();
    }
    pass.jobs.rendezvous.remove(pass.key);
    pass.mirror.keep_claims(pass.key);
    let outcome = outcome(pass.binding);
    let job = pass.resolved_job();
    if outcome.is_finished() {
        let end = &mut pass.in_flight.end;
        end.note(record.attempt, outcome.clone());
    }
    let placed = Placed {
        progress: progress_of(pass, &record, job.as_ref()),
        was_over: is_over(pass.engine, pass.key, &record),
        outcome,
        job,
        record,
    };
    for (when, step) in &STEPS {
        let applies = match when {
            Always => true,
            Templated => placed.job.is_some(),
            Unfinished => !placed.outcome.is_finished(),
        };
        match step {
            _ if !applies => {}
            Do(step) => step(pass, &placed),
            Check(check) => match check(pass, &placed) {
                CheckResult::Continue => {}
                result => return follow(pass, &placed.record, result),
            },
        }
    }
}

/// Evicts a job that the engine has evicted, if that write has failed or is still open.
fn check_evicted(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    let record = &placed.record;
    let Some((reason, message)) = ending_of(pass.engine, pass.key, record) else {
        return CheckResult::Continue;
    };
    evict(pass, record, reason, &message);
    CheckResult::Done
}

/// Charges a job by its record, and notes how far it has come.
fn charge(pass: &mut JobPass<'_>, placed: &Placed) {
    let (record, progress) = (&placed.record, placed.progress);
    note_start(pass, record, progress);
    apply_admission(pass, record, progress);
    note_unscheduled(pass, record, progress);
    note_whole(pass, progress == Progress::Running);
}

/// Gives the engine what the template asks for now.
fn apply_template(pass: &mut JobPass<'_>, placed: &Placed) {
    if let Some(job) = &placed.job {
        pass.apply_fact(&job.fact);
    }
}

/// Evicts a job that its owner has suspended or scaled to zero.
fn check_stopped_by_owner(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    let record = &placed.record;
    let ask = placed.job.as_ref().and_then(|job| job.ask.as_ref());
    let over = placed.outcome.is_finished() || led(pass.binding, record).is_some();
    match ask.and_then(stopped_by_owner) {
        Some((reason, message)) if !over && !record.adopted => {
            EvictionCause::new(reason, message).into()
        }
        _ => CheckResult::Continue,
    }
}

/// Records how long the job took to run, when it is seen to run for the first time in its attempt.
fn note_start(pass: &JobPass<'_>, record: &AdmissionRecord, progress: Progress) {
    let before = pass.engine.job(pass.key).map(|job| job.state);
    // A job that is not known to be placed ran under an earlier leader, or before it was managed.
    let starts = matches!(before, Some(JobState::Assumed | JobState::Placed));
    if starts && progress == Progress::Running && !record.adopted {
        let admitted = Time(record.time.as_millisecond());
        if let Some(queues) = pass.series_of(&record.queue) {
            queues.started_after(&record.queue, pass.now.millis_since(admitted));
        }
    }
}

/// Returns how far a placed job has come. Without its template it is unknown whether it keeps its pods
/// after its end; its last known end then stays.
pub(crate) fn progress_of(
    pass: &JobPass<'_>,
    record: &AdmissionRecord,
    job: Option<&ResolvedJob>,
) -> Progress {
    let minimum = job.map_or(1, |job| job.fact.demand.min_available);
    let keeps_pods = job.map(|job| job.ask.as_ref().is_some_and(|ask| ask.keeps_pods));
    match progress(pass.binding, minimum, record.is_split()) {
        // Pods that stay until the job is deleted stay charged.
        Progress::Finished if keeps_pods == Some(true) => Progress::Running,
        Progress::Finished if keeps_pods.is_none() && !is_over(pass.engine, pass.key, record) => {
            Progress::Running
        }
        // A job that ran before Muster managed it has no deadline to start.
        Progress::Placed if record.adopted => Progress::Running,
        progress => progress,
    }
}

/// Updates the record and charge of an adopted job that its own scheduler has scaled or moved.
fn check_adopted(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    let (record, progress) = (&placed.record, placed.progress);
    let job = placed.job.as_ref().filter(|job| job.ask.is_some());
    let Some(job) = job.filter(|_| record.adopted && progress != Progress::Finished) else {
        return CheckResult::Continue;
    };
    let now = crate::facts::adopted::record(pass.binding, job, pass.now);
    if now.clusters == record.clusters {
        return CheckResult::Continue;
    }
    // An adopted job may exceed the quota of its queue, but it may not exceed it further.
    let is_known = !record.clusters.is_empty();
    let grows = is_known && !within(&total(&now.clusters), &total(&record.clusters));
    let record = AdmissionRecord {
        queue: match is_known {
            true => record.queue.clone(),
            false => now.queue,
        },
        clusters: now.clusters,
        ..record.clone()
    };
    pass.apply(Event::JobAdmitted {
        key: pass.key.clone(),
        admission: record.admission(),
        progress,
    });
    match pass.engine.bound_passed_by(pass.key).filter(|_| grows) {
        Some(over) => {
            let message = format!("it was scaled by another scheduler, and {over}");
            let cause = EvictionCause::new(Reason::GrowthHeld, message);
            cause.with_record(record).into()
        }
        None => CheckResult::write(Write::Adopt { record }),
    }
}

/// Evicts a finished job that runs again if that exceeds a quota, because other jobs may use what it gave back.
/// Its member came back empty and Karmada created it again, or an aborted Volcano Job was resumed. It is
/// charged already.
fn check_runs_after_end(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    let attempt = placed.record.attempt;
    let over = (
        is_over(pass.engine, pass.key, &placed.record),
        placed.was_over,
    );
    let runs = placed.outcome == Outcome::Active;
    let end = &mut pass.in_flight.end;
    if !end.runs_again(attempt, over, runs) {
        return CheckResult::Continue;
    }
    let passed = pass.engine.bound_passed_by(pass.key);
    tracing::warn!(job = %pass.key, passed, "it runs again after it was over, and is charged again");
    match passed.filter(|_| !placed.record.adopted) {
        Some(passed) => {
            let message = format!("it runs again after it was over, and {passed}");
            EvictionCause::new(Reason::Evicted, message).into()
        }
        None => CheckResult::Continue,
    }
}

/// Returns true if the engine knows the attempt of `record` as ended.
pub(crate) fn is_over(engine: &Engine, key: &JobKey, record: &AdmissionRecord) -> bool {
    engine.job(key).is_some_and(|job| {
        job.state == JobState::Finished
            && job.admission.is_some_and(|a| a.attempt == record.attempt)
    })
}

/// Writes shares that the engine has changed since the record was written.
fn check_resized(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    let record = &placed.record;
    let is_held = |job: &ResolvedJob| job.fact.demand.held != Held::Not;
    let admission = pass.admission().cloned();
    let admission = admission.filter(|_| placed.job.as_ref().is_some_and(is_held));
    let Some(admission) = admission.filter(|a| {
        let other_shares = without_slots(&a.shares) != record.admission().shares;
        other_shares || is_placed_otherwise(pass.mirror, pass.binding, record, a)
    }) else {
        return CheckResult::Continue;
    };
    let before = record.admission().shares;
    pass.in_flight.shrinks.note(&before, &admission);
    hand_over(pass, admission);
    CheckResult::Done
}

/// Returns true if a job that has all its pods is placed with other replicas than its template has: the pods
/// of a rolling update became replicas, or the other way round. Replicas and surge come from two objects, which
/// have to agree: the newer one could exceed the charge together with what the older one says.
fn is_placed_otherwise(
    mirror: &Mirror,
    binding: &ResourceBinding,
    record: &AdmissionRecord,
    admission: &Admission,
) -> bool {
    let spec = &binding.spec;
    let ask = mirror.ask_of(binding);
    let Some(ask) = ask.filter(|ask| ask.replicas_held && !record.adopted) else {
        return false;
    };
    let pods: u32 = ask.roles.iter().map(|role| role.count).sum();
    let admitted: u32 = admission.shares.iter().map(Share::replicas).sum();
    let replicas = i64::from(pods.saturating_sub(ask.surge));
    // A cluster without a number has the whole template.
    let placed = spec.clusters.iter().map(|of| of.replicas.map(i64::from));
    let placed: Option<i64> = placed.sum();
    let differs = placed.is_some_and(|placed| placed != replicas);
    admitted == pods && spec.replicas == Some(replicas) && differs
}

/// Writes the status that Karmada's components expect from a scheduler after a placement.
fn acknowledge(pass: &mut JobPass<'_>, _: &Placed) {
    if !pass.options.places_itself || pass.in_flight.open.is_open() {
        return;
    }
    if let Some(write) = binding_writer::ack(pass.binding, pass.now) {
        pass.write(write);
    }
}

/// Handles a placement that another user has changed: the gang is not the admitted one any more.
pub(crate) fn displaced(pass: &mut JobPass<'_>, record: AdmissionRecord) {
    if is_over(pass.engine, pass.key, &record) {
        return; // it has ended; its clusters may go
    }
    let clusters = pass.binding.spec.clusters.iter();
    let clusters: Vec<&str> = clusters.map(|cluster| cluster.name.as_str()).collect();
    let message = format!(
        "another user changed its clusters to [{}]; it is queued again",
        clusters.join(", ")
    );
    apply_admission(pass, &record, Progress::Placed);
    let cause = EvictionCause::new(Reason::RoomLost, message);
    follow(pass, &record, cause.into());
}

/// Returns why a placed job holds nothing any more, if its owner has suspended it or scaled it to zero.
fn stopped_by_owner(ask: &WorkloadSpec) -> Option<(Reason, &'static str)> {
    if ask.suspended {
        let message = "suspended by its owner; its quota is free when its pods are gone";
        return Some((Reason::Suspended, message));
    }
    let message = "its template asks for no pods; its quota is free when its pods are gone, and it is queued at its \
                   size once it asks for some";
    ask.scaled_to_zero
        .then_some((Reason::ScaledToZero, message))
}

/// Returns the sum of the charges of `shares`.
pub(crate) fn total(shares: &[RecordedShare]) -> Resources {
    let charges = shares.iter().flat_map(|share| share.charge.values());
    // Each charge was checked for overflow before.
    charges.fold(Resources::new(), |sum, charge| {
        sum.checked_add(charge).unwrap_or(sum)
    })
}

/// Returns true if `some` exceeds `all` in no resource.
pub(crate) fn within(some: &Resources, all: &Resources) -> bool {
    some.iter()
        .all(|(resource, amount)| amount <= all.amount_of(resource))
}

/// Returns the outcome of a placed job, as its members report it.
pub(crate) fn outcome(binding: &ResourceBinding) -> Outcome {
    let resource = &binding.spec.resource;
    let record = own_record(binding);
    let leading = record.as_ref().and_then(|record| record.leading.as_ref());
    let leading = leading.and_then(|leading| {
        let mut clusters = binding.spec.clusters.iter();
        clusters.position(|cluster| cluster.name == leading.as_str())
    });
    let policies = record.as_ref().and_then(AdmissionRecord::policies);
    workload::outcome(
        &resource.api_version,
        &resource.kind,
        &statuses(binding),
        &GangRules {
            leading,
            policies: policies.as_ref(),
            retries: record.map_or(0, |record| retries::retries(binding, &record)),
        },
    )
}

/// Returns the status of each part, null if its member has not reported: a part without a report has not
/// ended.
pub(crate) fn statuses(binding: &ResourceBinding) -> Vec<serde_json::Value> {
    let clusters = binding.spec.clusters.iter();
    clusters
        .map(|cluster| status_in(binding, &cluster.name))
        .collect()
}

/// Returns the status of the part in one cluster, null if there is no report.
pub(crate) fn status_in(binding: &ResourceBinding, cluster: &str) -> serde_json::Value {
    let reported = &binding.status.aggregated_status;
    let part = reported.iter().find(|item| item.cluster_name == cluster);
    part.and_then(|item| item.status.clone())
        .unwrap_or_default()
}

/// Returns how far a placed job has come. It runs once its gang minimum runs and, if it has parts, once
/// each part has started something. A job that has no pods on its own account (an aborted Volcano Job) is
/// charged nothing, and is charged again at once if it is resumed in its member.
fn progress(binding: &ResourceBinding, minimum: u32, in_parts: bool) -> Progress {
    let outcome = outcome(binding);
    if outcome.is_finished() || outcome == Outcome::Suspended {
        return Progress::Finished;
    }
    let resource = &binding.spec.resource;
    let started = |status: &serde_json::Value| {
        let part = std::slice::from_ref(status);
        let counts = workload::counts(&resource.api_version, &resource.kind, part);
        // A failed job has started: its own operator decides how it ends.
        let over = counts.succeeded.saturating_add(counts.failed);
        counts.running.saturating_add(over)
    };
    let started: Vec<u32> = statuses(binding).iter().map(started).collect();
    let all = started
        .iter()
        .fold(0, |sum: u32, part| sum.saturating_add(*part));
    let waits = in_parts && started.contains(&0);
    if all >= minimum.max(1) && !waits {
        Progress::Running
    } else {
        Progress::Placed
    }
}
