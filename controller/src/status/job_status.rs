//! What one job shows: its PodGroup with its status, and events for the reasons why it waits.

use crate::messages::action::Effect;
use crate::messages::job_event::JobEvent;
use crate::mirror::binding::own_record;
use crate::reconcile::Reconciler;
use crate::reconcile::placed::failures::told_failure;
use crate::reconcile::placed::not_running::what_keeps;
use crate::reconcile::placed::statuses;
use crate::status::Publishing;
use crate::status::job_trace::TracedObject;
use crate::status::podgroups::{self, StatusInputs};
use crate::status::reason_events::{self, QueuedReason};
use crate::status::template_status::TemplateSays;
use crate::status::timeline::StageNow;
use crds::karmada::ResourceBinding;
use crds::podgroup::PodGroup;
use crds::record::RecordState;
use engine::facts::Share;
use engine::{Explanation, JobKey, JobState, Reason, Time};
use std::sync::Arc;

/// The reason that a job shows.
struct ShownReason {
    state: JobState,
    shown: QueuedReason,
    message: String,
    position: Option<usize>,
}

impl ShownReason {
    /// Returns the reason if it needs an event.
    fn to_record(&self) -> Option<QueuedReason> {
        let needs_event = reason_events::needs_event(self.state, self.shown.reason);
        needs_event.then(|| self.shown.clone())
    }

    /// Returns what the template should say of a job with this binding.
    fn of_template(&self, binding: &ResourceBinding) -> TemplateSays<'_> {
        let over = matches!(self.state, JobState::Queued | JobState::Finished);
        match self.state {
            JobState::Queued if self.shown.reason.is_of_waiting() => {
                TemplateSays::Queued(&self.shown, &self.message)
            }
            _ if over && self.shown.reason == Reason::Failed => {
                TemplateSays::Failed(statuses(binding), &self.message)
            }
            _ => {
                let record = own_record(binding);
                let admitted = record.filter(|record| record.state == RecordState::Admitted);
                TemplateSays::Reported(admitted.map(|record| record.time))
            }
        }
    }
}

impl Publishing<'_> {
    pub(crate) fn publish_job(&mut self, key: &JobKey, now: Time) {
        let Some(mut explanation) = explanation(self.reconciler, key) else {
            return;
        };
        match explanation.position {
            // An answer from before is none any more: no size and no bound helps there.
            Some(_) if explanation.reason.is_of_queue() => self.publisher.advice.forget(key),
            Some(1) => explanation.helps = self.advise(key, now),
            Some(_) => explanation.helps = self.advice_in_turn(key, now),
            None => self.publisher.advice.forget(key),
        }
        self.reconciler.view().make_discreet(key, &mut explanation);
        let Some(reason) = shown_reason(self.reconciler, key, &explanation, now) else {
            return;
        };
        let publisher = &mut self.publisher;
        publisher.not_running.observe(key, reason.shown.reason);
        let to_record = reason.to_record();
        let seen = self.reconciler.mirror.podgroups().get(key);
        let published = || seen.and_then(|seen| reason_events::published(seen));
        publisher.reasons.remember(key, published, now);
        publisher
            .reasons
            .observe(key, to_record, reason.position, now);
        let binding = self.reconciler.mirror.bindings().get(key);
        let template = binding.and_then(|binding| self.reconciler.mirror.template_of(binding));
        if let (Some(binding), Some(template)) = (binding, template) {
            let says = reason.of_template(binding);
            publisher.templates.show(key, template, &says, now);
        }
        if !self.reconciler.view().namespace_of(key).terminating {
            // Nothing can be created in a namespace that is being deleted.
            self.publish_podgroup(key, &explanation, &reason, now);
        }
    }

    /// Keeps the PodGroup of a job and its status.
    fn publish_podgroup(
        &mut self,
        key: &JobKey,
        explanation: &Explanation,
        reason: &ShownReason,
        now: Time,
    ) {
        let Some(binding) = self.reconciler.mirror.bindings().get(key).cloned() else {
            return;
        };
        self.note_stage(key, now);
        let (Some(view), Some(fact)) = (
            self.reconciler.engine.job(key),
            self.reconciler.jobs.last_facts.get(key),
        ) else {
            return;
        };
        let namespace = self.reconciler.view().namespace_of(key);
        let resolved = self
            .reconciler
            .view()
            .resolved_job(key, &binding, &namespace);
        let ask = resolved.and_then(|job| job.ask);
        let spec = podgroups::object(key, &binding, fact, view.queue, ask.as_ref());
        let seen = self.reconciler.mirror.podgroups().get(key).cloned();
        // Garbage collection removes the PodGroup with its owner, so it must not be created again. Without a
        // template nothing better is known than the existing PodGroup.
        let template = self.reconciler.mirror.template_of(&binding);
        let going = binding.metadata.deletion_timestamp.is_some()
            || template.map_or(seen.is_some(), |template| template.deleting);
        self.publisher.podgroup(key, seen.as_deref(), spec, going);
        let Some(seen) = seen else {
            // The status follows once the PodGroup exists.
            return;
        };
        let works: Vec<_> = self.reconciler.mirror.works.of(&binding).cloned().collect();
        let start = match &explanation.start {
            Some(start) => Some(self.publisher.history.starts.range(key, start, now)),
            None => {
                self.publisher.history.starts.forget(key);
                None
            }
        };
        let not_followed = match &ask {
            Some(_) => workload::not_followed(binding.spec.placement.as_ref(), &fact.demand),
            None => Vec::new(),
        };
        let not_followed = not_followed.join("; ");
        let is_new = !not_followed.is_empty()
            && !podgroups::tells_of_policy(seen.status.as_ref(), &not_followed);
        let in_flight = self.reconciler.in_flight.get(key);
        let status = podgroups::status(&StatusInputs {
            seen: seen.status.as_ref(),
            explanation,
            view: &view,
            timeline: self.publisher.history.stages.times(key),
            start,
            binding: &binding,
            fact: template.is_some().then_some(fact),
            works: &works,
            excess: in_flight.and_then(|in_flight| in_flight.excess.message()),
            reason: (reason.shown.reason, &reason.message),
            record_changed: in_flight.and_then(|in_flight| in_flight.guard.changed()),
            not_followed: &not_followed,
            now: crds::record::timestamp(now),
        });
        if let Some(federation) = &status.federation {
            let template = self.reconciler.mirror.template_of(&binding);
            let object = TracedObject {
                uid: &binding.spec.resource.uid,
                traceparent: template.and_then(|template| template.traceparent.as_deref()),
                api_version: &binding.spec.resource.api_version,
                kind: &binding.spec.resource.kind,
                queue: view.queue.as_str(),
            };
            let published = seen
                .status
                .as_ref()
                .and_then(|seen| seen.federation.as_ref());
            let traces = &mut self.publisher.history.traces;
            traces.observe(key, &object, published, federation);
        }
        self.write_podgroup_status(key, &seen, status);
        if is_new {
            let object = binding.spec.resource.clone();
            let event = JobEvent::warning(Reason::PolicyNotFollowed, "Place", not_followed);
            self.reconciler
                .out
                .push(Effect::RecordEvent { object, event });
        }
    }

    fn write_podgroup_status(
        &self,
        key: &JobKey,
        seen: &Arc<PodGroup>,
        mut status: crds::podgroup::PodGroupStatus,
    ) {
        let federation = status.federation.iter_mut();
        for back in federation.flat_map(|federation| &mut federation.eviction) {
            self.reconciler.view().make_eviction_discreet(key, back);
        }
        if !podgroups::status_equals(seen.status.as_ref(), &status) {
            let (target, patch) = self.publisher.podgroups.patch(key, &status);
            self.publisher.status.write(target, patch);
        }
    }

    /// Notes the stage of a job, for the times that its PodGroup shows.
    pub(crate) fn note_stage(&mut self, key: &JobKey, now: Time) {
        let engine = &self.reconciler.engine;
        let (Some(view), Some(fact)) = (engine.job(key), self.reconciler.jobs.last_facts.get(key))
        else {
            return;
        };
        let stage = StageNow {
            attempt: view.attempts.0,
            state: view.state,
            competes: engine.competes(key),
            pods: view.admission.map_or(0, |admission| {
                admission.shares.iter().map(Share::replicas).sum()
            }),
            queued_at: fact.queued_at,
            admitted_at: view.admission.map(|admission| admission.admitted_at),
            now,
        };
        let seen = self.reconciler.mirror.podgroups().get(key);
        let published = seen.and_then(|seen| seen.status.as_ref()?.federation.as_ref());
        let admitted = self.publisher.history.stages.observe(key, published, stage);
        if admitted {
            self.compare_start(key, now);
        }
    }

    /// Compares the start of a job with the ranges that its PodGroup has shown.
    fn compare_start(&mut self, key: &JobKey, now: Time) {
        let queue = self.reconciler.engine.job(key).map(|job| job.queue.clone());
        let Some(queue) = queue else { return };
        for fared in self.publisher.history.starts.started(key, now) {
            let Reconciler { out, mirror, .. } = &*self.reconciler;
            if let Some(queues) = out.series_of(&queue, mirror) {
                queues.started_as_expected(&queue, fared.result);
            }
        }
    }

    /// Records events for the reasons of jobs that have lasted.
    pub(crate) fn record_reasons(&mut self, now: Time) {
        for key in self.publisher.reasons.take_due(now) {
            let Some(reason) = reason_now(self.reconciler, &key, now) else {
                continue;
            };
            let Some(shown) = reason.to_record() else {
                continue;
            };
            if let Some(binding) = self.reconciler.mirror.bindings().get(&key) {
                let object = binding.spec.resource.clone();
                let event = reason_events::event(&object, &shown, &reason.message);
                self.publisher.reasons.recorded(&key, shown, now);
                self.reconciler
                    .out
                    .push(Effect::RecordEvent { object, event });
            }
        }
    }
}

/// Returns the explanation of a job, as operators may see it.
fn explanation(reconciler: &Reconciler, key: &JobKey) -> Option<Explanation> {
    let mut explanation = reconciler.engine.explain(key)?;
    reconciler.enforcement.show_in(&mut explanation);
    Some(explanation)
}

/// Returns the reason that a job shows now, as readers of its namespace may see it.
fn reason_now(reconciler: &Reconciler, key: &JobKey, now: Time) -> Option<ShownReason> {
    let mut explanation = explanation(reconciler, key)?;
    reconciler.view().make_discreet(key, &mut explanation);
    shown_reason(reconciler, key, &explanation, now)
}

/// Returns the reason that a job shows with an explanation.
fn shown_reason(
    reconciler: &Reconciler,
    key: &JobKey,
    explanation: &Explanation,
    now: Time,
) -> Option<ShownReason> {
    let view = reconciler.view();
    let binding = view.mirror.bindings().get(key)?;
    let job = view.engine.job(key)?;
    let works = view.mirror.works.of(binding);
    let in_flight = reconciler.in_flight.get(key);
    let excess = in_flight.and_then(|in_flight| in_flight.excess.message());
    let failure = in_flight.and_then(|in_flight| told_failure(view.engine, in_flight, key));
    let failure = failure.map(|why| view.discreet(key, why));
    let failure = failure.as_deref();
    let found = podgroups::reason_of(explanation, job.state, binding, works, excess, failure);
    let asked = in_flight.map(|in_flight| &in_flight.unscheduled);
    let (reason, message) = what_keeps(view, &reconciler.jobs.lost_pods, asked, key, found, now);
    // A job without a fact is not published yet.
    view.last_facts.get(key)?;
    let queue = job.queue.clone();
    Some(ShownReason {
        state: job.state,
        shown: QueuedReason { reason, queue },
        message,
        position: explanation.position,
    })
}
