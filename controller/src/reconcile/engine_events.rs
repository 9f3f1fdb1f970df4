//! Gives the engine the facts and events of one job: its demand, its admission, its end.
//!
//! Repeating a fact changes nothing, so each reconcile may apply all of them.

use crate::facts::job::ResolvedJob;
use crate::facts::view::View;
use crate::mirror::namespace::NamespaceFact;
use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::karmada::ResourceBinding;
use crds::record::AdmissionRecord;
use engine::facts::{Hold, JobFact};
use engine::{Event, JobKey, JobState, Progress, Reason};

impl Reconciler {
    /// Returns what the facts of jobs are computed from.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            mirror: &self.mirror,
            engine: &self.engine,
            rights: &self.rights,
            ending_nodes: &self.ending_nodes,
            member_rules: &self.member_rules,
        }
    }

    /// Returns the job from its template and binding, once the template has been seen. It is held if the API server has
    /// refused its last attempt, as this process has seen.
    pub(crate) fn job_of(
        &self,
        key: &JobKey,
        binding: &ResourceBinding,
        namespace: &NamespaceFact,
    ) -> Option<ResolvedJob> {
        let mut job = self.view().resolved_job(key, binding, namespace)?;
        if job.fact.hold.is_none() {
            job.fact.hold = self.refused_hold(key, binding);
        }
        Some(job)
    }

    /// Returns the hold of a job whose last attempt the API server has refused, as this process has seen.
    fn refused_hold(&self, key: &JobKey, binding: &ResourceBinding) -> Option<Hold> {
        let refused = self.in_flight.get(key)?.refused.as_ref()?;
        refused.hold(binding, self.mirror.template_of(binding)?)
    }

    /// Applies the fact of a job, unless the engine has it.
    pub(crate) fn apply_fact(&mut self, fact: &JobFact) {
        if self.last_facts.get(&fact.key) != Some(fact) {
            self.last_facts.insert(fact.key.clone(), fact.clone());
            self.apply(Event::JobUpserted(fact.clone()));
        }
    }

    /// Makes the engine charge `record`, and applies the job's progress.
    pub(crate) fn apply_admission(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        record: &AdmissionRecord,
        progress: Progress,
    ) {
        let known = self.engine.job(ctx.key).and_then(|job| {
            job.admission
                .map(|a| (a.uid.clone(), a.attempt, reached(job.state)))
        });
        match known {
            Some((uid, attempt, at)) if uid == record.template_uid && attempt == record.attempt => {
                if at != Some(progress) {
                    let (key, at) = (ctx.key.clone(), ctx.now);
                    self.apply(Event::JobProgressed {
                        key,
                        attempt,
                        progress,
                        at,
                    });
                }
            }
            _ => {
                self.remember_places(record);
                self.apply(Event::JobAdmitted {
                    key: ctx.key.clone(),
                    admission: record.admission(),
                    progress,
                });
                self.apply_leaving(ctx.key, record);
            }
        }
    }

    /// Charges an ending job until its Works are gone, whatever the engine had before.
    pub(crate) fn apply_evicted(&mut self, ctx: &ReconcileCtx<'_>, record: &AdmissionRecord) {
        if self.is_over(ctx, record) {
            let reason = record.reason.unwrap_or(Reason::Evicted);
            return self.apply_ending(ctx, reason, &record.message, None);
        }
        self.apply_ended(ctx, record);
    }

    /// Applies the eviction of an attempt with its reason, on which it depends whether it counts as a failure
    /// of the job and whether the job may compete again.
    pub(crate) fn apply_ended(&mut self, ctx: &ReconcileCtx<'_>, record: &AdmissionRecord) {
        let holds = self
            .engine
            .job(ctx.key)
            .and_then(|job| job.admission.map(|a| a.attempt));
        match record.reason {
            // Only after a restart: the engine does not evict an attempt that it does not have.
            Some(reason) if holds != Some(record.attempt) => {
                self.apply_admission(ctx, record, Progress::Placed);
                self.apply_ending(ctx, reason, &record.message, None);
            }
            _ => self.apply_admission(ctx, record, Progress::Ending),
        }
    }

    /// Applies the stop of an attempt that ran longer than its queue allows: the job does not compete again
    /// until the limit changes. The record has the time of the admission, not of the start, so the run time is
    /// shorter than computed.
    pub(crate) fn apply_stopped(&mut self, ctx: &ReconcileCtx<'_>, record: &AdmissionRecord) {
        if let (Some(Reason::RuntimeLimitExceeded), Some(at)) = (record.reason, record.evicted_at) {
            let ran = at
                .as_millisecond()
                .saturating_sub(record.time.as_millisecond());
            self.apply(Event::JobStopped {
                key: ctx.key.clone(),
                uid: record.template_uid.clone(),
                ran_ms: ran,
            });
        }
    }
}

/// Returns the progress of an admitted job in the engine.
fn reached(state: JobState) -> Option<Progress> {
    match state {
        JobState::Queued => None,
        JobState::Assumed => Some(Progress::Assumed),
        JobState::Placed => Some(Progress::Placed),
        JobState::Running => Some(Progress::Running),
        JobState::Ending => Some(Progress::Ending),
        JobState::Finished => Some(Progress::Finished),
    }
}
