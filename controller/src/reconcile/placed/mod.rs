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
use crate::mirror::binding::own_record;
use crate::mirror::namespace::NamespaceFact;
use crate::reconcile::check_result::{CheckResult, EvictionCause};
use crate::reconcile::placed::parts::led;
use crate::reconcile::{ReconcileCtx, Reconciler};
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, RecordedShare};
use engine::decision::without_slots;
use engine::facts::{Admission, Held, Share};
use engine::{Event, JobState, Progress, Reason, Resources, Time};
use workload::{GangRules, Outcome, WorkloadSpec};

/// A placed job in one pass.
pub(crate) struct Placed<'a> {
    pub(crate) ctx: &'a ReconcileCtx<'a>,
    pub(crate) record: AdmissionRecord,
    /// What its template asks for, if that has been seen.
    job: Option<ResolvedJob>,
    /// What its members report.
    pub(crate) outcome: Outcome,
    pub(crate) progress: Progress,
    /// True if the engine knew its attempt as ended before this pass.
    was_over: bool,
}

impl Placed<'_> {
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
    Check(fn(&mut Reconciler, &Placed<'_>) -> CheckResult),
    /// Ends nothing.
    Do(fn(&mut Reconciler, &Placed<'_>)),
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
    (Always, Check(Reconciler::check_evicted)),
    (Always, Check(Reconciler::check_failed)),
    (Always, Check(Reconciler::check_cluster_removed)),
    (Always, Check(Reconciler::check_preserving)),
    (Always, Do(Reconciler::charge)),
    (Always, Check(Reconciler::check_runs_after_end)),
    (Unfinished, Check(Reconciler::check_ending_node)),
    (Unfinished, Check(Reconciler::check_heartbeat)),
    (Templated, Do(Reconciler::apply_template)),
    (Templated, Check(Reconciler::check_stopped_by_owner)),
    (Templated, Check(Reconciler::check_adopted)),
    (Templated, Do(Reconciler::pin_growth)),
    (Templated, Check(Reconciler::check_resized)),
    (Templated, Check(Reconciler::check_leaving_pods)),
    (Templated, Check(Reconciler::check_queue_moved)),
    (Unfinished, Check(Reconciler::check_member_refused)),
    (Unfinished, Check(Reconciler::check_excess)),
    (Unfinished, Check(Reconciler::check_parts)),
    (Unfinished, Do(Reconciler::check_services)),
    (Unfinished, Do(Reconciler::renew)),
    (Always, Do(Reconciler::confirm_shrinks)),
    (Always, Do(Reconciler::expire)),
    (Always, Do(Reconciler::acknowledge)),
];

impl Reconciler {
    /// Handles an admitted and placed job: charges its record and follows its members' reports.
    pub(crate) fn admitted(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        namespace: &NamespaceFact,
        record: AdmissionRecord,
    ) {
        if self.has_works(ctx) {
            self.in_flight_of(ctx.key).works.seen();
        }
        self.rendezvous_jobs.remove(ctx.key);
        self.mirror.keep_claims(ctx.key);
        let outcome = outcome(&ctx.binding);
        let job = self.job_of(ctx.key, &ctx.binding, namespace);
        if outcome.is_finished() {
            let end = &mut self.in_flight_of(ctx.key).end;
            end.note(record.attempt, outcome.clone());
        }
        let placed = Placed {
            ctx,
            progress: self.progress_of(ctx, &record, job.as_ref()),
            was_over: self.is_over(ctx, &record),
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
                Do(step) => step(self, &placed),
                Check(check) => match check(self, &placed) {
                    CheckResult::Continue => {}
                    result => return self.follow(ctx, &placed.record, result),
                },
            }
        }
    }

    /// Evicts a job that the engine has evicted, if that write has failed or is still open.
    fn check_evicted(&mut self, placed: &Placed<'_>) -> CheckResult {
        let (ctx, record) = (placed.ctx, &placed.record);
        let Some((reason, message)) = self.ending_of(ctx, record) else {
            return CheckResult::Continue;
        };
        self.evict(ctx, record, reason, &message);
        CheckResult::Done
    }

    /// Charges a job by its record, and notes how far it has come.
    fn charge(&mut self, placed: &Placed<'_>) {
        let (ctx, record, progress) = (placed.ctx, &placed.record, placed.progress);
        self.note_start(ctx, record, progress);
        self.apply_admission(ctx, record, progress);
        self.note_unscheduled(ctx, record, progress);
        self.note_whole(ctx.key, progress == Progress::Running, ctx.now);
    }

    /// Gives the engine what the template asks for now.
    fn apply_template(&mut self, placed: &Placed<'_>) {
        if let Some(job) = &placed.job {
            self.apply_fact(&job.fact);
        }
    }

    /// Evicts a job that its owner has suspended or scaled to zero.
    fn check_stopped_by_owner(&mut self, placed: &Placed<'_>) -> CheckResult {
        let (ctx, record) = (placed.ctx, &placed.record);
        let ask = placed.job.as_ref().and_then(|job| job.ask.as_ref());
        let over = placed.outcome.is_finished() || led(&ctx.binding, record).is_some();
        match ask.and_then(stopped_by_owner) {
            Some((reason, message)) if !over && !record.adopted => {
                EvictionCause::new(reason, message).into()
            }
            _ => CheckResult::Continue,
        }
    }

    /// Records how long the job took to run, when it is seen to run for the first time in its attempt.
    fn note_start(&self, ctx: &ReconcileCtx<'_>, record: &AdmissionRecord, progress: Progress) {
        let before = self.engine.job(ctx.key).map(|job| job.state);
        // A job that is not known to be placed ran under an earlier leader, or before it was managed.
        let starts = matches!(before, Some(JobState::Assumed | JobState::Placed));
        if starts && progress == Progress::Running && !record.adopted {
            let admitted = Time(record.time.as_millisecond());
            if let Some(queues) = self.metrics_of(&record.queue) {
                queues.started_after(&record.queue, ctx.now.millis_since(admitted));
            }
        }
    }

    /// Returns how far a placed job has come. Without its template it is unknown whether it keeps its pods
    /// after its end; its last known end then stays.
    pub(crate) fn progress_of(
        &self,
        ctx: &ReconcileCtx<'_>,
        record: &AdmissionRecord,
        job: Option<&ResolvedJob>,
    ) -> Progress {
        let minimum = job.map_or(1, |job| job.fact.demand.min_available);
        let keeps_pods = job.map(|job| job.ask.as_ref().is_some_and(|ask| ask.keeps_pods));
        match progress(&ctx.binding, minimum, record.is_split()) {
            // Pods that stay until the job is deleted stay charged.
            Progress::Finished if keeps_pods == Some(true) => Progress::Running,
            Progress::Finished if keeps_pods.is_none() && !self.is_over(ctx, record) => {
                Progress::Running
            }
            // A job that ran before Muster managed it has no deadline to start.
            Progress::Placed if record.adopted => Progress::Running,
            progress => progress,
        }
    }

    /// Updates the record and charge of an adopted job that its own scheduler has scaled or moved.
    fn check_adopted(&mut self, placed: &Placed<'_>) -> CheckResult {
        let (ctx, record, progress) = (placed.ctx, &placed.record, placed.progress);
        let job = placed.job.as_ref().filter(|job| job.ask.is_some());
        let Some(job) = job.filter(|_| record.adopted && progress != Progress::Finished) else {
            return CheckResult::Continue;
        };
        let now = crate::facts::adopted::record(&ctx.binding, job, ctx.now);
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
        self.apply(Event::JobAdmitted {
            key: ctx.key.clone(),
            admission: record.admission(),
            progress,
        });
        match self.engine.bound_passed_by(ctx.key).filter(|_| grows) {
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
    fn check_runs_after_end(&mut self, placed: &Placed<'_>) -> CheckResult {
        let (ctx, attempt) = (placed.ctx, placed.record.attempt);
        let over = (self.is_over(ctx, &placed.record), placed.was_over);
        let runs = placed.outcome == Outcome::Active;
        let end = &mut self.in_flight_of(ctx.key).end;
        if !end.runs_again(attempt, over, runs) {
            return CheckResult::Continue;
        }
        let passed = self.engine.bound_passed_by(ctx.key);
        tracing::warn!(job = %ctx.key, passed, "it runs again after it was over, and is charged again");
        match passed.filter(|_| !placed.record.adopted) {
            Some(passed) => {
                let message = format!("it runs again after it was over, and {passed}");
                EvictionCause::new(Reason::Evicted, message).into()
            }
            None => CheckResult::Continue,
        }
    }

    /// Returns true if the engine knows the attempt of `record` as ended.
    pub(crate) fn is_over(&self, ctx: &ReconcileCtx<'_>, record: &AdmissionRecord) -> bool {
        self.engine.job(ctx.key).is_some_and(|job| {
            job.state == JobState::Finished
                && job.admission.is_some_and(|a| a.attempt == record.attempt)
        })
    }

    /// Writes shares that the engine has changed since the record was written.
    fn check_resized(&mut self, placed: &Placed<'_>) -> CheckResult {
        let (ctx, record) = (placed.ctx, &placed.record);
        let is_held = |job: &ResolvedJob| job.fact.demand.held != Held::Not;
        let engine_job = self
            .engine
            .job(ctx.key)
            .filter(|_| placed.job.as_ref().is_some_and(is_held));
        let admission = engine_job.and_then(|job| job.admission.cloned());
        let Some(admission) = admission.filter(|a| {
            let other_shares = without_slots(&a.shares) != record.admission().shares;
            other_shares || self.is_placed_otherwise(ctx, record, a)
        }) else {
            return CheckResult::Continue;
        };
        let before = record.admission().shares;
        self.in_flight_of(ctx.key).shrinks.note(&before, &admission);
        self.hand_over(ctx.key, &ctx.binding, admission, ctx.now);
        CheckResult::Done
    }

    /// Returns true if a job that has all its pods is placed with other replicas than its template has: the pods
    /// of a rolling update became replicas, or the other way round. Replicas and surge come from two objects, which
    /// have to agree: the newer one could exceed the charge together with what the older one says.
    fn is_placed_otherwise(
        &self,
        ctx: &ReconcileCtx<'_>,
        record: &AdmissionRecord,
        admission: &Admission,
    ) -> bool {
        let spec = &ctx.binding.spec;
        let ask = self.mirror.ask_of(&ctx.binding);
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
    fn acknowledge(&mut self, placed: &Placed<'_>) {
        let ctx = placed.ctx;
        if !self.options.places_itself || self.in_flight_of(ctx.key).open.is_open() {
            return;
        }
        if let Some(write) = binding_writer::ack(&ctx.binding, ctx.now) {
            self.write(ctx.key, &ctx.binding, write);
        }
    }

    /// Handles a placement that another user has changed: the gang is not the admitted one any more.
    pub(crate) fn displaced(&mut self, ctx: &ReconcileCtx<'_>, record: AdmissionRecord) {
        if self.is_over(ctx, &record) {
            return; // it has ended; its clusters may go
        }
        let clusters: Vec<&str> = ctx
            .binding
            .spec
            .clusters
            .iter()
            .map(|c| c.name.as_str())
            .collect();
        let message = format!(
            "another user changed its clusters to [{}]; it is queued again",
            clusters.join(", ")
        );
        self.apply_admission(ctx, &record, Progress::Placed);
        self.follow(
            ctx,
            &record,
            EvictionCause::new(Reason::RoomLost, message).into(),
        );
    }
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
