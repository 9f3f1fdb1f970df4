//! One look at one job: from its standing to what the engine is told and what is written.
//!
//! Level-triggered: it reads the mirror and the engine, never the event that made the job
//! dirty. At most one write of a binding is open; a binding that the watch has not caught up
//! with is left alone until it has.

use crate::core::Core;
use crate::fact::{self, NamespaceFact};
use crate::notes::Note;
use crate::opened::opened_message;
use crate::parts::led;
use crate::standing::{Standing, has_karmada_finalizer, is_managed, standing, unreadable};
use crate::world::template_key;
use crds::karmada::{ResourceBinding, TargetCluster};
use crds::record::{AdmissionRecord, RecordState};
use engine::{Event, Explanation, JobKey, JobState, Progress, Reason, Time};
use scheduler::commit::Write;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Milliseconds in which the template of a binding should have been seen.
const TEMPLATE_WITHIN_MS: i64 = 5_000;

/// What one look is made from.
pub(crate) struct Look<'a> {
    pub(crate) key: &'a JobKey,
    pub(crate) binding: Arc<ResourceBinding>,
    pub(crate) now: Time,
}

impl Core {
    /// Brings engine and binding of `key` in line with what is seen.
    pub(crate) fn reconcile(&mut self, key: &JobKey, now: Time) {
        if self.waits_for_remains(key, now) {
            return;
        }
        let Some(binding) = self.world.bindings.get(key).cloned() else {
            return self.forget(key);
        };
        if self.track(key).is_busy(&binding, now) {
            return;
        }
        let namespace = self.namespace_of(key);
        let look = Look { key, binding, now };
        self.publisher.job(key);
        let rule = namespace.rule();
        if is_managed(&look.binding, rule) {
            if self.world.template_of(&look.binding).is_none() {
                // Perhaps the first of its kind.
                self.watch_kind(template_key(&look.binding).kind);
            }
            if self.track(key).guard.is_replaced() {
                return self.restore_record(&look);
            }
        }
        let standing = standing(&look.binding, rule);
        let standing = self.with_its_works(&look, standing);
        let Some(standing) = self.with_what_runs(&look, standing) else {
            return;
        };
        if !matches!(standing, Standing::NotTouched(_)) {
            self.touched(key);
        }
        match standing {
            Standing::Foreign if self.has_remains(key) => self.look_again(key, now),
            Standing::Foreign => self.forget(key),
            Standing::ToSpread => self.spread(&look),
            // Its namespace loses the mark first: else what is let go would be evicted when
            // the label comes back.
            Standing::ToLetGo if !namespace.managed && namespace.adopted => {}
            Standing::ToLetGo => {
                self.forget(key);
                self.write(key, &look.binding, Write::LetGo);
            }
            Standing::NotTouched(error) => self.not_touched(&look, &namespace, &error),
            Standing::Deleting(record) => self.deleting(&look, record),
            Standing::Ungated { by_hand } => self.ungated(&look, by_hand),
            Standing::ToAdopt => self.adopt(&look),
            Standing::OpenedByHand(record) => self.opened_by_hand(&look, record),
            Standing::Waiting(record) => self.waiting(&look, &namespace, record),
            Standing::Planned(record) => self.planned(&look, &namespace, record),
            Standing::Refused(record) => self.plan_refused(&look, record),
            Standing::Admitted(record) => self.admitted(&look, &namespace, record),
            Standing::Displaced(record) => self.displaced(&look, record),
            Standing::Ending(record) => self.ending(&look, &namespace, record),
        }
        self.keep_finalizer(&look);
    }

    /// The standing of a binding that still has Works, and by itself does not tell of what they run.
    fn with_its_works(&self, look: &Look<'_>, standing: Standing) -> Standing {
        if !self.has_works(look) {
            return standing;
        }
        let unknown = self.engine.job(look.key).is_none();
        match standing {
            Standing::Waiting(None) | Standing::Ungated { .. }
                if let Some(error) = unreadable(&look.binding) =>
            {
                Standing::NotTouched(error)
            }
            Standing::Ungated { .. } => Standing::OpenedByHand(None),
            // It was not placed by this plan.
            Standing::Planned(record) | Standing::Refused(record) if unknown => {
                Standing::OpenedByHand(Some(record))
            }
            standing => standing,
        }
    }

    /// A job that is not there, or not ours: nothing is charged for it any more.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        if self.engine.job(key).is_some() {
            self.tell(Event::JobGone(key.clone()));
        }
        if let Some(scheduler) = self.mode.scheduler() {
            scheduler.forget(key);
        }
        self.told.remove(key);
        self.tracks.remove(key);
        self.spread_bindings.remove(key);
        self.meeting.remove(key);
        self.touched(key);
        self.world.drop_claims(key);
        self.publisher.forget(key);
    }

    /// Goes to every cluster that its placement selects, and stays where it is while a cluster
    /// cannot be reached.
    fn spread(&mut self, look: &Look<'_>) {
        let spec = &look.binding.spec;
        let api = format!("{}/{}", spec.resource.api_version, spec.resource.kind);
        let placement = workload::cluster_placement(spec.placement.as_ref(), &api);
        let mut clusters: BTreeSet<String> = spec.clusters.iter().map(|c| c.name.clone()).collect();
        clusters.extend(
            self.engine
                .eligible_clusters(&placement)
                .iter()
                .map(ToString::to_string),
        );
        self.spread_bindings.insert(look.key.clone());
        if clusters.len() > spec.clusters.len() {
            let clusters = clusters
                .into_iter()
                .map(|name| TargetCluster {
                    name,
                    replicas: None,
                })
                .collect();
            self.write(look.key, &look.binding, Write::Spread { clusters });
        }
    }

    /// Kept by our finalizer until nothing of it is left in any member.
    fn deleting(&mut self, look: &Look<'_>, record: Option<AdmissionRecord>) {
        if let Some(record) = record.filter(|record| record.state != RecordState::Requeued) {
            self.tell_admission(look, &record, Progress::Ending);
            self.charge_excess(look, &record);
        } else if let Some(error) = unreadable(&look.binding) {
            let job = self.job_of(look.key, &look.binding, &self.namespace_of(look.key));
            self.charge_unreadable(look, &error, job.as_ref());
        } else if self
            .engine
            .job(look.key)
            .is_some_and(|job| job.admission.is_none())
        {
            self.tell(Event::JobGone(look.key.clone()));
            self.told.remove(look.key);
        }
        if has_karmada_finalizer(&look.binding) {
            return;
        }
        if self.has_works(look) {
            return self.sweep_works(look);
        }
        self.check_works(look);
    }

    /// The webhook was away when it was made, or somebody opened its gate.
    fn ungated(&mut self, look: &Look<'_>, by_hand: bool) {
        if by_hand {
            self.note(
                look,
                Note::warning(
                    Reason::OpenedByHand,
                    "Gate",
                    opened_message("its gate was opened"),
                ),
            );
            self.metrics.opened_by_hand.inc();
        }
        self.write(look.key, &look.binding, Write::Hold);
    }

    /// It ran before Muster managed it: charged as it is, never gated.
    fn adopt(&mut self, look: &Look<'_>) {
        if self
            .engine
            .job(look.key)
            .is_some_and(|job| job.admission.is_none())
        {
            // It was queued: it did not run before.
            return self.opened_by_hand(look, None);
        }
        let namespace = self.namespace_of(look.key);
        let job = self.job_of(look.key, &look.binding, &namespace);
        let overdue = self.track(look.key).adopting_since(look.now);
        let overdue = overdue.after(TEMPLATE_WITHIN_MS);
        if job.is_none() && look.now < overdue {
            return self.look_again(look.key, overdue);
        }
        let record = match &job {
            Some(job) => crate::adopt::record(&look.binding, job, look.now),
            // Its template is not to be seen: charged once it is.
            None => {
                let fact = fact::unread(look.key, &look.binding, &namespace);
                crate::adopt::unsized_record(&fact, look.now)
            }
        };
        self.note(
            look,
            Note::normal(Reason::Adopted, "Adopt", crate::adopt::message(&record)),
        );
        // Charged before the record is written: decisions of this very pass count with it.
        let progress = self.progress_of(look, &record, job.as_ref());
        self.tell_admission(look, &record, progress);
        self.write(look.key, &look.binding, Write::Adopt { record });
    }

    /// Gated: queued, as far as the engine is concerned.
    fn waiting(
        &mut self,
        look: &Look<'_>,
        namespace: &NamespaceFact,
        record: Option<AdmissionRecord>,
    ) {
        let view = self
            .engine
            .job(look.key)
            .map(|job| (job.admission.is_some(), job.attempts));
        match (view, &record) {
            // The engine holds it released although no record says so: its own decision that
            // came to nothing, or a record that was wiped. Charged until its Works are gone.
            (Some((true, _)), _) => {
                self.tell_ending(look, Reason::PlanRefused, "its admission record is gone");
                return match self.has_works(look) {
                    true => self.sweep_works(look),
                    false => self.check_works(look),
                };
            }
            // After a restart the attempts, and with them the back-off, come from the record.
            (known, Some(record))
                if known.is_none_or(|(_, attempts)| attempts < record.attempt) =>
            {
                self.tell_ended(look, record);
                self.tell_stopped(look, record);
                self.tell(Event::JobWorksGone {
                    key: look.key.clone(),
                    at: record_time(record, look.now),
                });
            }
            _ => {}
        }
        if self.has_unadmitted_works(look, view.is_none()) {
            return self.opened_by_hand(look, None);
        }
        self.track(look.key).ended();
        self.world.drop_claims(look.key);
        match self.job_of(look.key, &look.binding, namespace) {
            Some(job) => {
                self.note_meeting(look, &job);
                self.tell_fact(&job.fact);
                self.expire_stopped(look);
            }
            None => self.unread(look, namespace),
        }
    }

    /// Whether a job that is queued has Works that may start pods: Karmada was late with them, or
    /// its record was forged while nobody led (`unknown`). Those that a cluster which was given up
    /// has yet to remove are waited for by themselves.
    fn has_unadmitted_works(&self, look: &Look<'_>, unknown: bool) -> bool {
        let mut works = self.world.works_of(&look.binding);
        works.any(|work| !self.is_given_up(work) && (unknown || !work.deleting))
    }

    /// Templates arrive within milliseconds of their bindings; one that does not is said to be
    /// missing, and the job is held until it comes.
    pub(crate) fn unread(&mut self, look: &Look<'_>, namespace: &NamespaceFact) {
        let fact = fact::unread(look.key, &look.binding, namespace);
        let overdue = fact.queued_at.after(TEMPLATE_WITHIN_MS);
        if look.now >= overdue {
            self.tell_fact(&fact);
        } else {
            self.look_again(look.key, overdue);
        }
    }

    /// A scheduler process is to place it. With the scheduler in this process the plan is
    /// nobody's: an earlier process left it, and it is decided anew.
    fn planned(&mut self, look: &Look<'_>, namespace: &NamespaceFact, record: AdmissionRecord) {
        if self.mode.scheduler().is_some() {
            return self.plan_refused(look, record);
        }
        if let Some(job) = self.job_of(look.key, &look.binding, namespace) {
            self.tell_fact(&job.fact);
        }
        if let Some(why) = self.ending_of(look, &record) {
            // No scheduler process has answered in time. Should it answer now, the version that
            // this write is guarded by decides who was first.
            return self.evict(look, &record, why.reason, &why.message);
        }
        self.tell_admission(look, &record, Progress::Assumed);
    }

    /// Why the engine is taking the attempt of `record` back, if it is.
    pub(crate) fn ending_of(
        &self,
        look: &Look<'_>,
        record: &AdmissionRecord,
    ) -> Option<Explanation> {
        self.engine
            .job(look.key)
            .filter(|job| job.state == JobState::Ending)
            .filter(|job| job.admission.is_some_and(|a| a.attempt == record.attempt))
            .and_then(|_| self.engine.explain(look.key))
    }

    /// Nothing of the plan was written: quota and room go back, and it is queued again.
    fn plan_refused(&mut self, look: &Look<'_>, record: AdmissionRecord) {
        let reason = record.reason.unwrap_or(Reason::PlanRefused);
        let holds = self
            .engine
            .job(look.key)
            .and_then(|job| job.admission.map(|a| a.attempt));
        if holds == Some(record.attempt) {
            self.tell(Event::JobRefused {
                key: look.key.clone(),
                attempt: record.attempt,
                reason,
                message: record.message.clone(),
                avoid: None,
                at: look.now,
            });
        }
        let record = record.in_state(RecordState::Requeued, Some(reason), &record.message);
        self.write(look.key, &look.binding, Write::Record { record });
    }

    /// Evicted: charged until no Work is left, then queued again.
    fn ending(&mut self, look: &Look<'_>, namespace: &NamespaceFact, record: AdmissionRecord) {
        if let Some(job) = self.job_of(look.key, &look.binding, namespace) {
            self.tell_fact(&job.fact);
        }
        self.tell_evicted(look, &record);
        self.charge_excess(look, &record);
        if self.has_works(look) {
            self.track(look.key).works_seen = true;
            return self.sweep_works(look);
        }
        match self.track(look.key).has_settled(look.now) {
            Ok(()) => self.check_works(look),
            Err(settled) => self.look_again(look.key, settled),
        }
    }

    /// Closes a placed binding; it stays charged. What has ended by then is over, whatever it is
    /// evicted for: it would be run once more.
    pub(crate) fn evict(
        &mut self,
        look: &Look<'_>,
        record: &AdmissionRecord,
        reason: Reason,
        message: &str,
    ) {
        let led = led(&look.binding, record).map(|led| (led.reason, led.message));
        let end = self.end_of(look, record);
        let end = end.map(|(end, how)| (end, format!("{how}, and was evicted: {message}")));
        let over = led.or(end);
        let (reason, message) = over
            .as_ref()
            .map_or((reason, message), |(reason, how)| (*reason, how.as_str()));
        // Who may look at the namespace may read the record.
        let message = &self.discreet(look.key, message);
        let for_job = self.track(look.key).makes_room_for(record.attempt);
        let record = AdmissionRecord {
            for_job: for_job.filter(|preemptor| preemptor.namespace == look.key.namespace),
            evicted_at: Some(crds::record::timestamp(look.now)),
            exceeds_since: None,
            ..record.in_state(RecordState::Ending, Some(reason), message)
        };
        let note = match reason {
            Reason::Succeeded => Note::normal,
            _ => Note::warning,
        };
        self.note(look, note(reason, "Evict", message.to_owned()));
        self.write(look.key, &look.binding, Write::Evict { record });
    }

    /// Evicted for a reason of our own. One that was over, or aborted in its member, is
    /// charged again first: only what is charged can be evicted, and what is evicted may
    /// still have pods.
    pub(crate) fn tell_ending(&mut self, look: &Look<'_>, reason: Reason, message: &str) {
        let over = self
            .engine
            .job(look.key)
            .filter(|job| job.state == JobState::Finished)
            .and_then(|job| job.admission.map(|a| a.attempt));
        if let Some(attempt) = over {
            self.tell(Event::JobProgressed {
                key: look.key.clone(),
                attempt,
                progress: Progress::Placed,
                at: look.now,
            });
        }
        self.tell(Event::JobEnding {
            key: look.key.clone(),
            reason,
            message: message.to_owned(),
            avoid: None,
            at: look.now,
        });
    }

    /// Tells the job's user, on the template and in the log.
    pub(crate) fn note(&mut self, look: &Look<'_>, mut note: Note) {
        tracing::info!(job = %look.key, reason = %note.reason, action = note.action, message = %note.message, "noted");
        note.message = self.discreet(look.key, &note.message);
        self.notes.say(&look.binding.spec.resource, note);
    }
}

/// The back-off of a requeued job counts from when it was evicted.
fn record_time(record: &AdmissionRecord, now: Time) -> Time {
    record
        .not_before
        .map_or(now, |at| Time(at.as_millisecond().min(now.0)))
}
