//! Gives the engine the facts and events of one job: its demand, its admission, its end.
//!
//! Repeating a fact changes nothing, so each reconcile may apply all of them.

use crate::facts::job::{self, Permission, QueueRules, ResolvedJob};
use crate::mirror::binding::own_record;
use crate::mirror::namespace::NamespaceFact;
use crate::mirror::template::Template;
use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::capacity_policy::CapacityPolicy;
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, AvoidedByJob};
use engine::facts::{Filters, Hold, JobFact, Split};
use engine::matching::ends_toleration;
use engine::{Event, JobKey, JobState, Progress, QueueName, Reason};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Reconciler {
    pub(crate) fn namespace_of(&self, key: &JobKey) -> NamespaceFact {
        self.mirror
            .namespaces()
            .get(&*key.namespace)
            .cloned()
            .unwrap_or_default()
    }

    /// Tells the engine which queue is charged for pods in a namespace that belong to no known job: the one that
    /// its jobs use by default, while it is managed.
    pub(crate) fn charge_pods_in(&mut self, namespace: &str) {
        let fact = self.mirror.namespaces().get(namespace);
        let queue = fact.filter(|fact| fact.managed);
        let queue = queue.map(|fact| QueueName::new(fact.queue()));
        self.apply(Event::Namespace {
            name: Arc::from(namespace),
            queue,
        });
    }

    /// Returns the job from its template and binding, once the template has been seen.
    pub(crate) fn job_of(
        &self,
        key: &JobKey,
        binding: &ResourceBinding,
        namespace: &NamespaceFact,
    ) -> Option<ResolvedJob> {
        let template = self.mirror.template_of(binding)?;
        let permitted = |queue: &QueueName| self.permission(&key.namespace, namespace, queue);
        let class_refused = |queue: &QueueName, classes: &BTreeSet<String>| {
            self.mirror.refused_class(queue, classes)
        };
        let split = |queue: &QueueName| {
            let policy = self.mirror.policies().get(queue);
            policy.map_or(Split::Never, CapacityPolicy::split)
        };
        let filters = |queue: &QueueName| {
            let policy = self.mirror.policies().get(queue);
            policy.map_or_else(Filters::default, CapacityPolicy::filters)
        };
        let rendezvous_problem =
            |queue: &QueueName, meeting| self.rendezvous_problem(queue, meeting);
        let rules = QueueRules {
            permitted: &permitted,
            class_refused: &class_refused,
            split: &split,
            filters: &filters,
            rendezvous_problem: &rendezvous_problem,
        };
        let claimed = |template: &str| self.mirror.claimed_by(key, template);
        let mut job = job::job(key, binding, template, namespace, rules, &claimed);
        if job.fact.hold.is_none() {
            let preserved = crate::reconcile::preserved::hold(binding);
            job.fact.hold = preserved
                .or_else(|| self.still_overridden(binding))
                .or_else(|| self.refused_hold(key, binding, template));
        }
        self.apply_member_rules(key, binding, template, &mut job);
        self.let_end(&mut job.fact);
        if let Some(record) = own_record(binding) {
            AvoidedByJob::keep_off(&record.avoided_nodes, &mut job.fact.demand);
        }
        Some(job)
    }

    /// Returns the hold of a job whose last attempt the API server has refused, as this process has seen.
    fn refused_hold(
        &self,
        key: &JobKey,
        binding: &ResourceBinding,
        template: &Template,
    ) -> Option<Hold> {
        let refused = self.in_flight.get(key)?.refused.as_ref()?;
        refused.hold(binding, template)
    }

    /// Lets a job that declares how long it runs go to nodes that end after that.
    fn let_end(&self, job: &mut JobFact) {
        let Some(lasts) = job.expected_duration_ms else {
            return;
        };
        if self.ending_nodes.is_any() {
            for role in &mut job.demand.roles {
                role.tolerations.push(ends_toleration(lasts));
            }
        }
    }

    /// Returns whether jobs of a namespace may be in a queue; asks if only a right could permit it.
    fn permission(&self, name: &str, namespace: &NamespaceFact, queue: &QueueName) -> Permission {
        let Some(why) = self.mirror.closed_to(queue, name, &namespace.labels) else {
            return Permission::Granted;
        };
        match self.rights.of(name, queue) {
            Some(true) => Permission::Granted,
            Some(false) => Permission::Refused(why),
            None => Permission::Unknown,
        }
    }

    /// Handles the answer whether a namespace may use a queue.
    pub(crate) fn right_asked(&mut self, namespace: String, queue: QueueName, allowed: bool) {
        let jobs = self
            .last_facts
            .iter()
            .filter(|(key, fact)| *key.namespace == *namespace && fact.queue == queue);
        let jobs: Vec<JobKey> = jobs.map(|(key, _)| key.clone()).collect();
        if self.rights.note((namespace, queue), allowed) {
            self.dirty.extend(jobs);
        }
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
            return self.apply_ending(ctx, reason, &record.message);
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
                self.apply_ending(ctx, reason, &record.message);
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
