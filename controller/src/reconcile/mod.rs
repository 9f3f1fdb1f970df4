//! Reconciles one job: derives facts for the engine and writes from the phase of its binding.
//!
//! It is level-triggered: it reads the mirror and the engine, never the event that added the job to the work queue. At
//! most one write of a binding is open; a binding is left alone until the watch has caught up with that
//! write.

pub(crate) mod adoption;
pub(crate) mod binding_phase;
pub(crate) mod check_result;
pub(crate) mod decisions;
mod ending_pods;
pub(crate) mod engine_events;
pub(crate) mod evict;
pub(crate) mod faulty_places;
pub(crate) mod in_flight;
pub(crate) mod open_write;
pub(crate) mod opened;
mod orphaned;
pub(crate) mod out_of_service;
pub(crate) mod outcomes;
pub(crate) mod placed;
pub(crate) mod placement_refused;
pub(crate) mod pre_pull;
pub(crate) mod preserved;
pub(crate) mod queue_places;
pub(crate) mod reconciler;
pub(crate) mod record_guard;
pub(crate) mod remains;
pub(crate) mod unreadable;
pub(crate) mod work_queue;
pub(crate) mod works_end;

pub(crate) use crate::reconcile::reconciler::Reconciler;

use crate::facts::job::{self};
use crate::messages::action::{BoundJob, Effect, Publication, ReconcileAction};
use crate::messages::job_event::JobEvent;
use crate::mirror::binding::{has_karmada_finalizer, unreadable};
use crate::mirror::namespace::NamespaceFact;
use crate::mirror::template_key;
use crate::reconcile::binding_phase::{BindingPhase, binding_phase, is_managed};
use crate::reconcile::check_result::CheckResult;
use crate::reconcile::opened::opened_message;
use binding_writer::Write;
use crds::karmada::{ResourceBinding, TargetCluster};
use crds::record::{AdmissionRecord, RecordState};
use engine::{Event, JobKey, Progress, Reason, Time};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Milliseconds within which the template of a binding should have been seen.
const TEMPLATE_WITHIN_MS: i64 = 5_000;

/// Input of [`Reconciler::reconcile`]: the job, its binding as last seen, and the time.
pub(crate) struct ReconcileCtx<'a> {
    pub(crate) key: &'a JobKey,
    pub(crate) binding: Arc<ResourceBinding>,
    pub(crate) now: Time,
}

impl ReconcileCtx<'_> {
    /// Returns the job and its binding, for an action.
    pub(crate) fn job(&self) -> BoundJob {
        BoundJob {
            key: self.key.clone(),
            binding: Arc::clone(&self.binding),
        }
    }
}

impl Reconciler {
    /// Brings the engine and the binding of `key` in line with what is seen. Returns the actions to carry out,
    /// in order.
    pub(crate) fn reconcile(&mut self, key: &JobKey, now: Time) -> Vec<ReconcileAction> {
        self.reconcile_job(key, now);
        self.take_actions()
    }

    /// Does the same, but leaves the actions in the queue of this pass.
    pub(crate) fn reconcile_job(&mut self, key: &JobKey, now: Time) {
        let CheckResult::Continue = self.check_remains(key, now) else {
            return;
        };
        let Some(binding) = self.mirror.bindings().get(key).cloned() else {
            return self.forget(key);
        };
        if self.in_flight_of(key).open.is_busy(&binding, now) {
            return;
        }
        let namespace = self.view().namespace_of(key);
        let ctx = ReconcileCtx { key, binding, now };
        self.push(Publication::Job(key.clone()));
        let rule = namespace.rule();
        if is_managed(&ctx.binding, rule) {
            if self.mirror.template_of(&ctx.binding).is_none() {
                // It may be the first binding of its kind.
                let kind = template_key(&ctx.binding).kind;
                self.push(ReconcileAction::WatchTemplates(kind));
            }
            if self.in_flight_of(key).guard.is_replaced() {
                return self.restore_record(&ctx);
            }
            self.end_if_orphaned(&ctx);
        }
        let phase = binding_phase(&ctx.binding, rule);
        let phase = self.with_its_works(&ctx, phase);
        let Some(phase) = self.with_running_shares(&ctx, phase) else {
            return;
        };
        if !matches!(phase, BindingPhase::NotTouched(_)) {
            self.touched(key);
        }
        match phase {
            BindingPhase::Foreign if self.has_remains(key) => self.work_queue.add_at(key, now),
            BindingPhase::Foreign => self.forget(key),
            BindingPhase::ToSpread => self.spread(&ctx),
            // The namespace loses its mark first; otherwise the job would be evicted when the label comes back.
            BindingPhase::ToUnmanage if !namespace.managed && namespace.adopted => {}
            BindingPhase::ToUnmanage => {
                self.forget(key);
                self.write(key, &ctx.binding, Write::StopManaging);
            }
            BindingPhase::NotTouched(error) => self.not_touched(&ctx, &namespace, &error),
            BindingPhase::Deleting(record) => self.deleting(&ctx, record),
            BindingPhase::Ungated { by_hand } => self.ungated(&ctx, by_hand),
            BindingPhase::ToAdopt => self.adopt(&ctx),
            BindingPhase::OpenedByHand(record) => self.opened_by_hand(&ctx, record),
            BindingPhase::Waiting(record) => self.waiting(&ctx, &namespace, record),
            BindingPhase::Planned(record) => self.planned(&ctx, &namespace, record),
            BindingPhase::Refused(record) => self.plan_refused(&ctx, record),
            BindingPhase::Admitted(record) => self.admitted(&ctx, &namespace, record),
            BindingPhase::Displaced(record) => self.displaced(&ctx, record),
            BindingPhase::Ending(record) => self.ending(&ctx, &namespace, record),
        }
        self.keep_finalizer(&ctx);
    }

    /// Refines the phase of a binding that still has Works but does not say what they run.
    fn with_its_works(&self, ctx: &ReconcileCtx<'_>, phase: BindingPhase) -> BindingPhase {
        if !self.has_works(ctx) {
            return phase;
        }
        let unknown = self.engine.job(ctx.key).is_none();
        match phase {
            BindingPhase::Waiting(None) | BindingPhase::Ungated { .. }
                if let Some(error) = unreadable(&ctx.binding) =>
            {
                BindingPhase::NotTouched(error)
            }
            BindingPhase::Ungated { .. } => BindingPhase::OpenedByHand(None),
            // This plan did not place it.
            BindingPhase::Planned(record) | BindingPhase::Refused(record) if unknown => {
                BindingPhase::OpenedByHand(Some(record))
            }
            phase => phase,
        }
    }

    /// Drops all charges and state of a job that does not exist or is not managed.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        if self.engine.job(key).is_some() {
            self.apply(Event::JobGone(key.clone()));
        }
        self.push(Effect::ForgetPlacement(key.clone()));
        self.last_facts.remove(key);
        let before = self.in_flight.remove(key);
        if let Some(before) = before.filter(|before| before.guard.is_replaced())
            && self.mirror.bindings().contains_key(key)
        {
            // Its record stays foreign until it is gone, also if its namespace is managed meanwhile.
            self.in_flight_of(key).guard = before.guard;
        }
        self.lost_pods.attempt_over(key);
        self.spread_bindings.remove(key);
        self.rendezvous_jobs.remove(key);
        self.touched(key);
        self.mirror.drop_claims(key);
        self.push(Publication::Gone(key.clone()));
    }

    /// Returns every cluster that the placement of a binding without pods selects, and those where it is: it keeps
    /// a cluster that is unreachable.
    fn spread_clusters(&self, binding: &ResourceBinding) -> BTreeSet<String> {
        let spec = &binding.spec;
        let api = format!("{}/{}", spec.resource.api_version, spec.resource.kind);
        let placement = workload::cluster_placement(spec.placement.as_ref(), &api);
        let there = spec.clusters.iter().map(|cluster| cluster.name.clone());
        let selected = self.engine.fleet().clusters_for_objects(&placement);
        there
            .chain(selected.iter().map(ToString::to_string))
            .collect()
    }

    /// Places a binding on all of them.
    fn spread(&mut self, ctx: &ReconcileCtx<'_>) {
        let clusters = self.spread_clusters(&ctx.binding);
        self.spread_bindings.insert(ctx.key.clone());
        if clusters.len() > ctx.binding.spec.clusters.len() {
            let clusters = clusters
                .into_iter()
                .map(|name| TargetCluster {
                    name,
                    replicas: None,
                })
                .collect();
            self.write(ctx.key, &ctx.binding, Write::Spread { clusters });
        }
    }

    /// Handles a deleted binding, which the finalizer keeps until no member has anything of it: no Work, and, within
    /// what `ending_pods` allows, no pod that has not ended.
    fn deleting(&mut self, ctx: &ReconcileCtx<'_>, record: Option<AdmissionRecord>) {
        if let Some(record) = record.filter(|record| record.state != RecordState::Requeued) {
            self.apply_admission(ctx, &record, Progress::Ending);
            self.charge_excess(ctx, &record);
        } else if let Some(error) = unreadable(&ctx.binding) {
            let job = self.job_of(ctx.key, &ctx.binding, &self.view().namespace_of(ctx.key));
            self.charge_unreadable(ctx, &error, job.as_ref());
        } else if self
            .engine
            .job(ctx.key)
            .is_some_and(|job| job.admission.is_none())
        {
            self.apply(Event::JobGone(ctx.key.clone()));
            self.last_facts.remove(ctx.key);
        }
        if has_karmada_finalizer(&ctx.binding) {
            return;
        }
        if self.has_works(ctx) {
            return self.sweep_works(ctx);
        }
        self.check_works_after_pods(ctx);
    }

    /// Gates a binding: the webhook was away when it was created, or a user opened the gate.
    fn ungated(&mut self, ctx: &ReconcileCtx<'_>, by_hand: bool) {
        if by_hand {
            self.record_event(
                ctx,
                JobEvent::warning(
                    Reason::OpenedByHand,
                    "Gate",
                    opened_message("its gate was opened"),
                ),
            );
            self.metrics.opened_by_hand.inc();
        }
        self.write(ctx.key, &ctx.binding, Write::Hold);
    }

    /// Adopts a job that ran before Muster managed it: charged as it is, never gated.
    fn adopt(&mut self, ctx: &ReconcileCtx<'_>) {
        if self
            .engine
            .job(ctx.key)
            .is_some_and(|job| job.admission.is_none())
        {
            // It was queued, so it did not run before.
            return self.opened_by_hand(ctx, None);
        }
        let namespace = self.view().namespace_of(ctx.key);
        let job = self.job_of(ctx.key, &ctx.binding, &namespace);
        let since = &mut self.in_flight_of(ctx.key).adopting_since;
        let overdue = since.get_or_insert(ctx.now).after(TEMPLATE_WITHIN_MS);
        if job.is_none() && ctx.now < overdue {
            return self.work_queue.add_at(ctx.key, overdue);
        }
        let record = match &job {
            Some(job) => crate::facts::adopted::record(&ctx.binding, job, ctx.now),
            // Its template has not been seen: charged once it is.
            None => {
                let fact = job::unread(ctx.key, &ctx.binding, &namespace);
                crate::facts::adopted::unsized_record(&fact, ctx.now)
            }
        };
        self.record_event(
            ctx,
            JobEvent::normal(
                Reason::Adopted,
                "Adopt",
                crate::facts::adopted::message(&record),
            ),
        );
        // Charged before the record is written: decisions of this pass take it into account.
        let progress = self.progress_of(ctx, &record, job.as_ref());
        self.apply_admission(ctx, &record, progress);
        self.write(ctx.key, &ctx.binding, Write::Adopt { record });
    }

    /// Queues a gated job in the engine.
    fn waiting(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        namespace: &NamespaceFact,
        record: Option<AdmissionRecord>,
    ) {
        let view = self
            .engine
            .job(ctx.key)
            .map(|job| (job.admission.is_some(), job.attempts));
        match (view, &record) {
            // The engine counts it as admitted, but no record says so: its own decision failed, or the record was
            // wiped. It stays charged until its Works are gone.
            (Some((true, _)), _) => {
                self.apply_ending(
                    ctx,
                    Reason::PlanRefused,
                    "its admission record is gone",
                    None,
                );
                return match self.has_works(ctx) {
                    true => self.sweep_works(ctx),
                    false => self.check_works(ctx),
                };
            }
            // After a restart the attempts, and with them the back-off, come from the record.
            (known, Some(record))
                if known.is_none_or(|(_, attempts)| attempts < record.attempt) =>
            {
                self.apply_ended(ctx, record);
                self.apply_stopped(ctx, record);
                self.apply(Event::JobWorksGone {
                    key: ctx.key.clone(),
                    at: record_time(record, ctx.now),
                });
            }
            _ => {}
        }
        if self.has_unadmitted_works(ctx, view.is_none()) {
            return self.opened_by_hand(ctx, None);
        }
        self.in_flight_of(ctx.key).ended();
        self.lost_pods.attempt_over(ctx.key);
        self.mirror.drop_claims(ctx.key);
        let avoids = record.clone();
        if let Some(record) = avoids.and_then(|record| self.avoids_no_more(ctx, record)) {
            return self.write(ctx.key, &ctx.binding, Write::Record { record });
        }
        match self.job_of(ctx.key, &ctx.binding, namespace) {
            Some(job) => {
                self.note_rendezvous(ctx, &job);
                self.apply_fact(&job.fact);
                match self.keep_refusal(ctx, record.as_ref()) {
                    Some(record) => self.write(ctx.key, &ctx.binding, Write::Record { record }),
                    None => self.expire_stopped(ctx),
                }
            }
            None => self.unread(ctx, namespace),
        }
    }

    /// Returns true if a queued job has Works that may start pods: Karmada was late with them, or its record
    /// was forged while no replica led (`unknown`). Works that a cluster out of service has yet to remove are
    /// not counted here.
    fn has_unadmitted_works(&self, ctx: &ReconcileCtx<'_>, unknown: bool) -> bool {
        let mut works = self.mirror.works_of(&ctx.binding);
        works.any(|work| !self.view().is_given_up(work) && (unknown || !work.deleting))
    }

    /// Holds a job whose template has not been seen. Templates arrive within milliseconds of their bindings;
    /// after `TEMPLATE_WITHIN_MS` the job says that its template is missing.
    pub(crate) fn unread(&mut self, ctx: &ReconcileCtx<'_>, namespace: &NamespaceFact) {
        let fact = job::unread(ctx.key, &ctx.binding, namespace);
        let overdue = fact.queued_at.after(TEMPLATE_WITHIN_MS);
        if ctx.now >= overdue {
            self.apply_fact(&fact);
        } else {
            self.work_queue.add_at(ctx.key, overdue);
        }
    }

    /// Handles a planned job, which a scheduler process is to place. With the scheduler in this process, an
    /// earlier process left the plan, and it is decided again.
    fn planned(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        namespace: &NamespaceFact,
        record: AdmissionRecord,
    ) {
        if self.options.places_itself {
            return self.plan_refused(ctx, record);
        }
        if let Some(job) = self.job_of(ctx.key, &ctx.binding, namespace) {
            self.apply_fact(&job.fact);
        }
        if let Some((reason, message)) = self.ending_of(ctx, &record) {
            // No scheduler process has answered in time. If it answers now, the version that guards this write
            // decides which was first.
            return self.evict(ctx, &record, reason, &message);
        }
        self.apply_admission(ctx, &record, Progress::Assumed);
    }

    /// Returns why the engine is evicting the attempt of `record`, if so.
    pub(crate) fn ending_of(
        &self,
        ctx: &ReconcileCtx<'_>,
        record: &AdmissionRecord,
    ) -> Option<(Reason, String)> {
        let (attempt, reason, message) = self.engine.evicted_because(ctx.key)?;
        (attempt == record.attempt).then(|| (reason, message.to_owned()))
    }

    /// Releases the quota and capacity of a plan of which nothing was written, and queues the job again.
    fn plan_refused(&mut self, ctx: &ReconcileCtx<'_>, record: AdmissionRecord) {
        let reason = record.reason.unwrap_or(Reason::PlanRefused);
        let holds = self
            .engine
            .job(ctx.key)
            .and_then(|job| job.admission.map(|a| a.attempt));
        if holds == Some(record.attempt) {
            self.apply(Event::JobRefused {
                key: ctx.key.clone(),
                attempt: record.attempt,
                reason,
                message: record.message.clone(),
                avoid: None,
                at: ctx.now,
            });
        }
        // The engine does not consider it again if it is held.
        if let Some(job) = self.job_of(ctx.key, &ctx.binding, &self.view().namespace_of(ctx.key)) {
            self.apply_fact(&job.fact);
        }
        let record = record.in_state(RecordState::Requeued, Some(reason), &record.message);
        self.write(ctx.key, &ctx.binding, Write::Record { record });
    }

    /// Handles an evicted job: charged until no Work is left, then queued again.
    fn ending(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        namespace: &NamespaceFact,
        record: AdmissionRecord,
    ) {
        if let Some(job) = self.job_of(ctx.key, &ctx.binding, namespace) {
            self.apply_fact(&job.fact);
        }
        self.apply_evicted(ctx, &record);
        self.charge_excess(ctx, &record);
        if self.has_works(ctx) {
            self.in_flight_of(ctx.key).works.seen();
            return self.sweep_works(ctx);
        }
        match self.in_flight_of(ctx.key).works.has_settled(ctx.now) {
            Ok(()) => self.check_works_after_pods(ctx),
            Err(settled) => self.work_queue.add_at(ctx.key, settled),
        }
    }

    /// Checks whether the Works of an evicted or deleted job are gone, unless they were and its pods still end.
    fn check_works_after_pods(&mut self, ctx: &ReconcileCtx<'_>) {
        if self.in_flight_of(ctx.key).works.waits_for_pods()
            && let Some(at) = self.pods_still_end(ctx.key, ctx.now)
        {
            return self.work_queue.add_at(ctx.key, at);
        }
        self.check_works(ctx);
    }

    /// Records an event on the template, for the job's user, and in the log.
    pub(crate) fn record_event(&mut self, ctx: &ReconcileCtx<'_>, mut event: JobEvent) {
        tracing::info!(job = %ctx.key, reason = %event.reason, action = event.action, message = %event.message, "event");
        event.message = self.discreet(ctx.key, &event.message);
        let object = ctx.binding.spec.resource.clone();
        self.push(Effect::RecordEvent { object, event });
    }
}

/// Returns when a requeued job was evicted, from which its back-off counts.
fn record_time(record: &AdmissionRecord, now: Time) -> Time {
    record
        .not_before
        .map_or(now, |at| Time(at.as_millisecond().min(now.0)))
}
