//! Output for users: PodGroups, statuses of queues and capacity policies, and the objects that the
//! controller maintains. No decision reads any of it.
//!
//! Each is written on change; the writers coalesce writes to at most one a second for each object.

pub(crate) mod advice;
mod applied_podgroups;
pub(crate) mod due;
mod effective;
mod fault_policy_status;
mod job_history;
mod job_status;
mod job_trace;
pub(crate) mod jobs_not_running;
pub(crate) mod kept_policies;
mod namespace_queues;
mod namespace_usage;
pub(crate) mod outlook;
pub(crate) mod podgroups;
mod positions;
pub(crate) mod queue_status;
pub(crate) mod reason_events;
mod template_status;
mod timeline;
pub(crate) mod unselected;

use crate::effects::object_writer::ObjectWriter;
use crate::mirror::namespace::NamespaceFact;
use crate::reconcile::Reconciler;
use crate::status::advice::Advice;
use crate::status::applied_podgroups::AppliedPodGroups;
use crate::status::due::DuePublications;
use crate::status::effective::KnownNames;
use crate::status::job_history::JobHistory;
use crate::status::job_trace::JobTraces;
use crate::status::jobs_not_running::JobsNotRunning;
use crate::status::positions::Positions;
use crate::status::reason_events::ReasonEvents;
use crate::status::template_status::TemplateStatuses;
use crate::status::unselected::Unselected;
use crds::capacity_policy::CapacityPolicy;
use crds::fault_policy::FaultPolicy;
use crds::podgroup::PodGroup;
use crds::queue::Queue;
use engine::{Changed, JobKey, QueueName, Time};
use kube::Resource;
use kube::api::ApiResource;
use runtime::status_writer::{StatusTarget, StatusWriter};
use runtime::traces::TraceSink;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Milliseconds after which it is looked again which names mean something.
const NAMES_EVERY_MS: i64 = 10_000;

/// How long one pass may explain jobs; decisions wait meanwhile.
const PASS: Duration = Duration::from_millis(25);

/// The writers, and what has to be published.
#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) status: StatusWriter,
    /// Statuses of templates.
    templates: TemplateStatuses,
    pub(crate) objects: ObjectWriter,
    pub(crate) due: DuePublications,
    /// What names mean something, and since when that is known.
    known: (KnownNames, Option<Time>),
    /// Advice for pending jobs.
    pub(crate) advice: Advice,
    /// Queues whose jobs show their positions again.
    pub(crate) positions: Positions,
    history: JobHistory,
    /// Jobs whose reasons get events.
    pub(crate) reasons: ReasonEvents,
    /// Admitted jobs that something keeps from running.
    pub(crate) not_running: JobsNotRunning,
    /// Objects that no policy selects.
    pub(crate) unselected: Unselected,
    podgroups: AppliedPodGroups,
}

impl Publisher {
    pub(crate) fn new(
        [status, templates]: [StatusWriter; 2],
        objects: ObjectWriter,
        status_subresource: bool,
    ) -> Self {
        Self {
            status,
            templates: TemplateStatuses::new(templates),
            objects,
            podgroups: AppliedPodGroups::new(status_subresource),
            due: DuePublications::default(),
            known: (KnownNames::default(), None),
            advice: Advice::default(),
            positions: Positions::default(),
            history: JobHistory::default(),
            reasons: ReasonEvents::new(),
            not_running: JobsNotRunning::default(),
            unselected: Unselected::default(),
        }
    }

    /// Sends the traces of jobs to `sink`.
    pub(crate) fn send_traces_to(&mut self, sink: TraceSink) {
        self.history.traces = JobTraces::new(sink);
    }

    /// Handles a namespace that was labelled, unlabelled or deleted.
    pub(crate) fn namespace(&self, name: &str, fact: Option<&NamespaceFact>) {
        match fact {
            Some(fact) if fact.managed && !fact.terminating => {
                kept_policies::keep_propagation(&self.objects, name)
            }
            Some(fact) if !fact.terminating => kept_policies::drop_propagation(&self.objects, name),
            _ => {}
        }
    }

    /// Drops what has to be published: another replica publishes it.
    pub(crate) fn clear(&mut self) {
        self.due.clear();
        self.not_running.clear();
        self.positions = Positions::default();
        self.history.clear();
    }

    /// Applies the PodGroup of a job if it is missing or differs and the job is not `going`.
    fn podgroup(&mut self, key: &JobKey, seen: Option<&PodGroup>, spec: Value, going: bool) {
        self.podgroups.learn(key, seen, &spec);
        if !going && !self.podgroups.is_applied(key, &spec) {
            let resource = ApiResource::erase::<PodGroup>(&());
            let (namespace, name) = (&key.namespace, &key.name);
            self.podgroups.note(key, spec.clone());
            self.objects.apply(&resource, Some(namespace), name, spec);
        }
    }

    /// Drops the state of a job; the owner reference deletes its PodGroup with its template.
    pub(crate) fn forget(&mut self, key: &JobKey, now: Time) {
        self.due.forget(key);
        let target = self.podgroups.forget(key);
        self.advice.forget(key);
        self.history.forget(key, now);
        self.reasons.forget(key);
        self.not_running.forget(key);
        self.templates.forget(key);
        self.status.forget(&target);
    }

    /// Handles a deleted PodGroup, which is created again while the job exists.
    pub(crate) fn podgroup_gone(&mut self, key: JobKey) {
        let target = self.podgroups.forget(&key);
        self.status.forget(&target);
        self.due.job(&key);
    }
}

/// What publishing reads and changes. It writes nothing else: what it wants done goes to the reconciler as an action.
pub(crate) struct Publishing<'a> {
    pub(crate) reconciler: &'a mut Reconciler,
    pub(crate) publisher: &'a mut Publisher,
}

impl Publishing<'_> {
    /// Publishes what has changed since the last pass.
    pub(crate) fn publish(&mut self, changed: Changed, now: Time) {
        for key in changed.jobs {
            // Publishing may come later, and a stage has the time at which it is reached.
            self.note_stage(&key, now);
            self.note_part(&key);
            self.publisher.due.job(&key);
        }
        for name in &changed.queues {
            self.publisher.due.queue(name);
        }
        self.show_positions(changed.order, now);
        let started = Instant::now();
        while started.elapsed() < PASS
            && let Some(key) = self.publisher.due.next_job()
        {
            self.publish_job(&key, now);
        }
        self.publisher
            .not_running
            .export(&self.reconciler.out.metrics);
        self.advise_due(now);
        self.record_reasons(now);
        self.warn_of_unselected(now);
        self.learn_names(now);
        self.publish_namespaces(now);
        for name in self.publisher.due.take_queues() {
            self.publish_queue(&name, now);
        }
        for name in self.publisher.due.take_fault_policies() {
            self.publish_fault_policy(&name, now);
        }
        if self.publisher.due.take_keep(now) {
            self.keep();
        }
    }

    /// Learns which names mean something, from time to time; all policies are checked again when that changes.
    fn learn_names(&mut self, now: Time) {
        let last = self.publisher.known.1;
        if last.is_some_and(|at| now.millis_since(at) < NAMES_EVERY_MS) {
            return;
        }
        let fleet = self.reconciler.engine.fleet();
        let pools = fleet.pools();
        let unusable = |name| fleet.cluster(name).is_none_or(|cluster| !cluster.usable);
        let known = KnownNames {
            resources: pools
                .iter()
                .flat_map(|pool| effective::names(&pool.total))
                .collect(),
            classes: pools.iter().map(|pool| pool.class.to_string()).collect(),
            clusters: fleet.cluster_names().map(ToString::to_string).collect(),
            priority_classes: self
                .reconciler
                .mirror
                .queueing
                .priority_classes()
                .cloned()
                .collect(),
            complete: !pools.is_empty() && !fleet.cluster_names().any(unusable),
        };
        if self.publisher.known.0 != known {
            let queues = self.reconciler.mirror.queues().keys();
            queues.for_each(|name| self.publisher.due.queue(name));
        }
        self.publisher.known = (known, Some(now));
    }

    /// Queues the jobs whose positions may have changed.
    fn show_positions(&mut self, moved: BTreeSet<QueueName>, now: Time) {
        let Publisher { positions, due, .. } = &mut self.publisher;
        for queue in moved {
            positions.moved(queue, now);
        }
        let engine = &self.reconciler.engine;
        let first = |queue: &QueueName, most: usize| {
            let first = engine.first_pending(queue, most);
            first.cloned().collect()
        };
        for key in positions.take_due(now, first) {
            due.job(&key);
        }
    }

    fn publish_queue(&mut self, name: &QueueName, now: Time) {
        let Some(queue) = self.reconciler.mirror.queues().get(name) else {
            self.reconciler.out.metrics.queues.forget(name);
            return self.publish_without_queue(name, now);
        };
        let Some(usage) = self.reconciler.engine.queue_usage(name) else {
            return;
        };
        let engine = &self.reconciler.engine;
        let head = usage.head.as_ref().and_then(|(job, _)| engine.job(job));
        let head_queued = head.map(|job| job.queued_at);
        let queues = &self.reconciler.out.metrics.queues;
        queues.used(&queue.to_fact(), &usage, engine.reserved(name), head_queued);
        let patch = queue_status::queue(queue, &usage);
        self.publisher
            .status
            .write(target::<Queue>(name.as_str()), patch);
        let Some(policy) = self.reconciler.mirror.policies().get(name) else {
            return self.make_policy(name, now);
        };
        self.publisher.due.paired(name);
        let stated = queue_status::StatedBy {
            policy,
            queue,
            conflicts: self.reconciler.mirror.queueing.conflicts(name),
        };
        let spares = self.reconciler.engine.spare_nodes(name);
        let now = crds::record::timestamp(now);
        let status = queue_status::policy(&stated, &usage, spares, &self.publisher.known.0, now);
        if policy.status.as_ref() != Some(&status) {
            self.publisher.status.write(
                target::<CapacityPolicy>(name.as_str()),
                serde_json::json!({ "status": status }),
            );
        }
    }

    fn publish_fault_policy(&mut self, name: &str, now: Time) {
        let policy = self.reconciler.mirror.fault_policies().get(name);
        let Some(policy) = policy else { return };
        let effects = self.reconciler.fleet.policy_effects(name);
        let status = fault_policy_status::status(policy, effects, crds::record::timestamp(now));
        if policy.status.as_ref() != Some(&status) {
            let target = target::<FaultPolicy>(name);
            let status = serde_json::json!({ "status": status });
            self.publisher.status.write(target, status);
        }
    }

    /// Deletes the policy that was created for a deleted queue. A policy that a user has edited stays, since
    /// its queue may come back, and says that it has no queue.
    fn publish_without_queue(&mut self, name: &QueueName, now: Time) {
        if let Some(orphan) = self.reconciler.mirror.queueing.orphan(name) {
            kept_policies::drop_queue(&self.publisher.objects, orphan);
        }
        let Some(policy) = self.reconciler.mirror.policies().get(name) else {
            return self.publisher.due.paired(name);
        };
        if policy.is_empty() {
            return kept_policies::drop_policy(&self.publisher.objects, name.as_str());
        }
        if policy.states_queue() {
            match self.publisher.due.is_long_alone(name, now) {
                true => kept_policies::make_queue(&self.publisher.objects, name.as_str()),
                false => self.publisher.due.queue(name),
            }
        }
        let status = queue_status::policy_without_queue(policy, crds::record::timestamp(now));
        if policy.status.as_ref() != Some(&status) {
            self.publisher.status.write(
                target::<CapacityPolicy>(name.as_str()),
                serde_json::json!({ "status": status }),
            );
        }
    }

    /// Creates the policy of a queue without one, after its author had time to apply one: applying a file with
    /// both must not fail because this policy was first.
    fn make_policy(&mut self, name: &QueueName, now: Time) {
        let Some(queue) = self.reconciler.mirror.queues().get(name) else {
            return;
        };
        match self.publisher.due.is_long_alone(name, now) {
            true => kept_policies::make_policy(&self.publisher.objects, queue),
            false => self.publisher.due.queue(name),
        }
    }

    /// Applies the maintained objects again, in case a user removed them.
    fn keep(&mut self) {
        for (name, fact) in self.reconciler.mirror.namespaces() {
            if fact.managed {
                self.publisher.namespace(name, Some(fact));
            }
        }
    }

    /// Queues the status of a PodGroup that was just created.
    pub(crate) fn podgroup_seen(&mut self, key: &JobKey) {
        if self.reconciler.engine.job(key).is_some() {
            self.publisher.due.job(key);
        }
    }

    /// Deletes a PodGroup that has no owner any more and no binding: its job was deleted with --cascade=orphan, and the
    /// garbage collector leaves it. One that another client created stays.
    pub(crate) fn sweep_podgroup(&mut self, key: &JobKey) {
        let mirror = &self.reconciler.mirror;
        let seen = mirror.podgroups().get(key);
        let is_alone = seen.is_some_and(|seen| {
            let owners = seen.metadata.owner_references.as_ref();
            owners.is_none_or(Vec::is_empty) && !mirror.bindings().contains_key(key)
        });
        if is_alone {
            let kind = ApiResource::erase::<PodGroup>(&());
            let namespace = Some(&*key.namespace);
            self.publisher.objects.delete(&kind, namespace, &key.name);
        }
    }
}

fn target<K: Resource<DynamicType = ()>>(name: &str) -> StatusTarget {
    target_in::<K>(None, name)
}

fn target_in<K: Resource<DynamicType = ()>>(namespace: Option<&str>, name: &str) -> StatusTarget {
    StatusTarget {
        api_resource: ApiResource::erase::<K>(&()),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        subresource: Some("status"),
        strategic: false,
    }
}
