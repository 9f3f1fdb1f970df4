//! A pass of one job: what it may read, and what it may change. Of other jobs it changes nothing but when they are
//! reconciled.

use crate::facts::job::ResolvedJob;
use crate::facts::view::View;
use crate::messages::action::{BoundJob, Effect, ReconcileAction};
use crate::messages::enforcement::Enforcement;
use crate::messages::job_event::JobEvent;
use crate::metrics::QueueSeries;
use crate::mirror::Mirror;
use crate::mirror::namespace::NamespaceFact;
use crate::reconcile::fleet::FleetState;
use crate::reconcile::in_flight::InFlight;
use crate::reconcile::known_jobs::KnownJobs;
use crate::reconcile::output::Output;
use crate::reconcile::placed::avoids::keep_avoided;
use crate::reconcile::placed::cannot_start::keep_generation;
use crate::reconcile::placed::growth::keep_requests;
use crate::reconcile::placed::lost_pods::LostPod;
use crate::reconcile::placed::retries::keep_retries;
use crate::reconcile::placed::shrink::keep_leaving;
use crate::reconcile::queue_places::{QueuePass, Queues, queues_above};
use crate::reconcile::reconciler::{self, ReconcileOptions};
use binding_writer::{Intent, Write};
use crds::karmada::ResourceBinding;
use crds::record::AdmissionRecord;
use engine::facts::{Admission, JobFact};
use engine::faults::FaultClass;
use engine::{Attempt, Engine, Event, JobKey, QueueName, Time};
use std::sync::Arc;

/// See the module's documentation.
pub(crate) struct JobPass<'a> {
    pub(crate) key: &'a JobKey,
    /// Its binding as last seen.
    pub(crate) binding: &'a Arc<ResourceBinding>,
    pub(crate) now: Time,
    pub(crate) options: ReconcileOptions,
    pub(crate) enforcement: &'a Enforcement,
    pub(crate) engine: &'a mut Engine,
    pub(crate) mirror: &'a mut Mirror,
    pub(crate) queues: &'a mut Queues,
    pub(crate) fleet: &'a FleetState,
    pub(crate) jobs: &'a mut KnownJobs,
    /// State of the job between passes.
    pub(crate) in_flight: &'a mut InFlight,
    pub(crate) out: &'a mut Output,
}

impl JobPass<'_> {
    /// Returns what the facts of jobs are computed from.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            mirror: self.mirror,
            engine: self.engine,
            rights: &self.queues.rights,
            ending_nodes: &self.fleet.ending_nodes,
            member_rules: &self.fleet.member_rules,
            last_facts: &self.jobs.last_facts,
        }
    }

    /// Lends what the places of queues are kept by.
    pub(crate) fn queue_pass(&mut self) -> QueuePass<'_> {
        QueuePass {
            places: &mut self.queues.places,
            mirror: self.mirror,
            engine: self.engine,
            jobs: self.jobs,
            out: self.out,
        }
    }

    /// Returns the job from its template and binding, once the template has been seen. It is held if the API server has
    /// refused its last attempt, as this process has seen.
    pub(crate) fn resolved_job(&self) -> Option<ResolvedJob> {
        let namespace = self.namespace();
        let view = self.view();
        let mut job = view.resolved_job(self.key, self.binding, &namespace)?;
        if let (None, Some(refused)) = (&job.fact.hold, &self.in_flight.refused) {
            job.fact.hold = refused.hold(self.binding, self.mirror.template_of(self.binding)?);
        }
        Some(job)
    }

    /// Returns the namespace of the job; an empty one if it was not seen.
    pub(crate) fn namespace(&self) -> NamespaceFact {
        self.view().namespace_of(self.key)
    }

    /// Returns the job and its binding, for an action.
    pub(crate) fn bound_job(&self) -> BoundJob {
        BoundJob {
            key: self.key.clone(),
            binding: Arc::clone(self.binding),
        }
    }

    /// Returns what the engine charges the job, if it does.
    pub(crate) fn admission(&self) -> Option<&Admission> {
        self.engine.job(self.key)?.admission
    }

    /// Returns what the engine charges the job for `attempt`; none if that is over.
    pub(crate) fn admission_of(&self, attempt: Attempt) -> Option<&Admission> {
        let admission = self.admission()?;
        (admission.attempt == attempt).then_some(admission)
    }

    /// Queues an action.
    pub(crate) fn push(&mut self, action: impl Into<ReconcileAction>) {
        self.out.push(action);
    }

    /// Applies an event to the engine.
    pub(crate) fn apply(&mut self, event: Event) {
        reconciler::apply(self.engine, event);
    }

    /// Applies the fact of a job, unless the engine has it.
    pub(crate) fn apply_fact(&mut self, fact: &JobFact) {
        if self.jobs.last_facts.get(&fact.key) != Some(fact) {
            self.jobs.last_facts.insert(fact.key.clone(), fact.clone());
            self.apply(Event::JobUpserted(fact.clone()));
        }
    }

    /// Queues a write of the binding for this pass. At most one write is open at a time.
    pub(crate) fn write(&mut self, mut write: Write) {
        if let Some(record) = write.record_mut() {
            let (key, binding) = (self.key, self.binding);
            let before = AdmissionRecord::own(binding);
            let before = before.as_ref();
            record.queues_above = queues_above(self.engine, &record.queue);
            let asked = self.jobs.last_facts.get(key).map(|fact| &fact.demand);
            keep_requests(record, before, asked);
            keep_generation(record, before, self.mirror.template_of(binding));
            keep_retries(self.mirror, record, before, binding);
            keep_leaving(self.engine, key, record);
            keep_avoided(record, before);
        }
        self.write_unchanged(write);
    }

    /// Does the same for a record that is already complete.
    pub(crate) fn write_unchanged(&mut self, write: Write) {
        self.in_flight.begin_write(self.binding, &write);
        let binding = Arc::clone(self.binding);
        let intent = Box::new(Intent { binding, write });
        self.push(Effect::WriteBinding(intent));
    }

    /// Records an event on the template, for the job's user, and in the log.
    pub(crate) fn record_event(&mut self, mut event: JobEvent) {
        tracing::info!(job = %self.key, reason = %event.reason, action = event.action, message = %event.message, "event");
        event.message = self.view().discreet(self.key, &event.message);
        let object = self.binding.spec.resource.clone();
        self.push(Effect::RecordEvent { object, event });
    }

    /// Returns the metrics of queues if `queue` exists.
    pub(crate) fn series_of(&self, queue: &QueueName) -> Option<&QueueSeries> {
        self.out.series_of(queue, self.mirror)
    }

    /// Returns the pod that the job lost through no fault of its own, and the class of that fault.
    pub(crate) fn infrastructure_fault(&self) -> Option<(&LostPod, FaultClass)> {
        let rules = self.engine.fault_rules();
        self.jobs.lost_pods.infrastructure_fault(self.key, rules)
    }

    /// Returns the pod by whose failure the job failed by itself, and the class of that fault.
    pub(crate) fn own_fault(&self) -> Option<(&LostPod, FaultClass)> {
        let rules = self.engine.fault_rules();
        self.jobs.lost_pods.own_fault(self.key, rules)
    }
}
