//! Handles changes of objects that are not jobs: policies, priority classes, members. Each goes to the mirror and, if
//! the engine needs it, on to the engine.

use crate::reconcile::Reconciler;
use crate::reconcile::placed::cluster_removed::note_leaving;
use crds::capacity_policy::CapacityPolicy;
use crds::devices::ResourceClaimTemplate;
use crds::kubernetes::PriorityClass;
use crds::muster_config::MusterConfig;
use engine::{Event, JobKey, QueueName, Time};
use members::MemberEvent;
use runtime::watch::Delta;
use std::sync::Arc;

impl Reconciler {
    /// Handles a change of a capacity policy.
    pub(crate) fn policy(&mut self, delta: Delta<CapacityPolicy>) {
        let (name, queue) = match delta {
            Delta::Upserted(policy) => {
                let name = QueueName::new(policy.metadata.name.as_deref().unwrap_or_default());
                let queue = self.mirror.queues().get(&name).cloned();
                let seen = self
                    .mirror
                    .queueing
                    .put_policy(name.clone(), policy.clone());
                if seen.is_some_and(|seen| seen.spec == policy.spec) {
                    return; // only its status changed, which Muster writes
                }
                (name, queue)
            }
            Delta::Gone(object) => {
                let name = QueueName::new(&object.name);
                let queue = self.mirror.queues().get(&name).cloned();
                self.mirror.queueing.drop_policy(&name);
                self.apply(Event::PolicyGone(name.clone()));
                (name, queue)
            }
            Delta::Listed => return,
        };
        self.queue_pass().restated(&name, queue.as_ref());
        self.out
            .work_queue
            .extend(self.jobs.rendezvous.iter().cloned());
        // The right to submit may have changed.
        let affected = self.jobs.last_facts.iter();
        let affected = affected.filter(|(_, fact)| fact.queue == name);
        let keys: Vec<JobKey> = affected.map(|(key, _)| key.clone()).collect();
        self.out.work_queue.extend(keys);
    }

    /// Handles a change of the MusterConfig: who may submit to any queue may have changed.
    pub(crate) fn config(&mut self, delta: Delta<MusterConfig>) {
        if self.mirror.queueing.file_config(delta) {
            let all = self.jobs.last_facts.keys().cloned();
            self.out.work_queue.extend(all);
        }
    }

    pub(crate) fn priority_class(&mut self, delta: Delta<PriorityClass>) {
        let before = self.mirror.queueing.default_class().map(str::to_owned);
        match delta {
            Delta::Upserted(class) => {
                let fact = class.to_fact();
                self.mirror.queueing.put_priority_class(&fact);
                self.apply(Event::PriorityClassUpserted(fact));
            }
            Delta::Gone(object) => {
                self.mirror.queueing.drop_priority_class(&object.name);
                self.apply(Event::PriorityClassGone(object.name));
            }
            Delta::Listed => {}
        }
        if self.mirror.queueing.default_class() != before.as_deref() {
            // Queues may not allow the class.
            self.out
                .work_queue
                .extend(self.jobs.last_facts.keys().cloned());
        }
    }

    /// Handles a change of a ResourceClaimTemplate: the jobs that name it have another size.
    pub(crate) fn claim_template(&mut self, delta: Delta<ResourceClaimTemplate>) {
        if let Some(template) = self.mirror.claims.file(delta) {
            self.out
                .work_queue
                .extend(self.mirror.jobs_that_claim(&template));
        }
    }

    pub(crate) fn member(&mut self, event: MemberEvent, now: Time) {
        match event {
            MemberEvent::NodeHealth {
                cluster,
                node,
                health,
            } => {
                let Self {
                    fleet, jobs, out, ..
                } = self;
                fleet.node_health(cluster, node, health, jobs, out);
            }
            MemberEvent::Rules { cluster, rules } => self.member_rules(cluster, rules, now),
            MemberEvent::Marks { cluster, marks } => {
                let Self {
                    fleet, jobs, out, ..
                } = self;
                fleet.cluster_marks(cluster, marks, jobs, out);
            }
            MemberEvent::Fact(fact) => self.member_fact(fact, now),
            MemberEvent::Listed { cluster } => tracing::debug!(%cluster, "member listed"),
            MemberEvent::Ready => {}
        }
    }

    /// Handles a fact of a member: what follows from it for jobs and faults, and then the engine.
    fn member_fact(&mut self, mut fact: Event, now: Time) {
        match &mut fact {
            Event::ClusterUpserted(cluster) => {
                cluster.paused = self.fleet.breakers.pause_of(&cluster.name);
                self.out.work_queue.extend(self.jobs.spread.iter().cloned());
                note_leaving(&self.engine, &self.mirror, &mut self.out, cluster);
                if self.engine.fleet().cluster(&cluster.name).is_none() {
                    self.out
                        .work_queue
                        .extend(self.jobs.rendezvous.iter().cloned());
                }
            }
            Event::NodeUpserted(node) => self.fleet.ending_nodes.mark(node, now),
            Event::ClusterGone(cluster) => {
                self.fleet.member_rules.forget(cluster);
                self.out
                    .work_queue
                    .extend(self.jobs.rendezvous.iter().cloned());
            }
            _ => {}
        }
        let engine = &self.engine;
        self.fleet.note_faults(&fact, engine, &self.jobs, now);
        self.jobs.pods.note(&fact);
        let engine = &self.engine;
        // Members have ended pods of jobs that are none of Muster's.
        let of_ours = match &fact {
            Event::PodUpserted(pod) => pod
                .job
                .as_ref()
                .is_some_and(|job| engine.job(job).is_some()),
            _ => true,
        };
        if of_ours {
            self.jobs
                .lost_pods
                .note(&fact, |cluster, node| engine.fleet().jobs_on(cluster, node));
        }
        self.apply(fact);
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

    /// Handles the answer whether a namespace may use a queue.
    pub(crate) fn right_asked(&mut self, namespace: String, queue: QueueName, allowed: bool) {
        let jobs = self
            .jobs
            .last_facts
            .iter()
            .filter(|(key, fact)| *key.namespace == *namespace && fact.queue == queue);
        let jobs: Vec<JobKey> = jobs.map(|(key, _)| key.clone()).collect();
        if self.queues.rights.note((namespace, queue), allowed) {
            self.out.work_queue.extend(jobs);
        }
    }
}
