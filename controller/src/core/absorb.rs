//! Files one input at a time: it updates the mirror and the engine, and adds the affected jobs to the work queue.

use crate::core::{Core, Leading};
use crate::messages::enforcement::Enforcement;
use crate::messages::input::Input;
use crate::reconcile::open_write::version;
use crds::fault_policy::FaultPolicy;
use crds::karmada::ResourceBinding;
use crds::kubernetes::Namespace;
use engine::{JobKey, Time};
use runtime::watch::Delta;

impl Core {
    /// Files one input and adds the affected jobs to the work queue.
    pub(crate) fn absorb(&mut self, input: Input, now: Time) {
        self.readiness.note(&input);
        self.file(input, now);
        self.run_actions();
    }

    fn file(&mut self, input: Input, now: Time) {
        match input {
            Input::Lead(lead) if !self.leads() => self.role = Leading::CatchesUp(lead),
            Input::Lead(lead) => lead.caught_up(),
            Input::Binding(delta) => self.binding(delta),
            Input::Work(delta) => {
                self.reconciler.pre_pulls.work(&delta, now);
                let key = self.reconciler.mirror.work(delta);
                self.reconciler.work_queue.extend(key);
            }
            Input::Override(delta) => {
                let delta = delta.map(|policy| policy.metadata);
                self.reconciler.override_policy(delta);
            }
            Input::ClusterOverride(delta) => {
                let delta = delta.map(|policy| policy.metadata);
                self.reconciler.override_policy(delta);
            }
            Input::Template(kind, delta) => self.template(&kind, delta, now),
            Input::Namespace(delta) => self.namespace(delta, now),
            Input::Propagation(delta) => self.propagation(delta),
            Input::Queue(delta) => self.reconciler.queue(delta),
            Input::Policy(delta) => self.reconciler.policy(delta),
            Input::FaultPolicy(delta) => self.fault_policy(delta),
            Input::NodeRemediation(delta) => self.reconciler.avoided_nodes.remediation(delta),
            Input::PriorityClass(delta) => self.reconciler.priority_class(delta),
            Input::ClaimTemplate(delta) => self.reconciler.claim_template(delta),
            Input::PodGroup(delta) => self.podgroup(delta),
            Input::UnselectedKinds(kinds) => self.watch_unselected(&kinds),
            Input::Member(event) => self.reconciler.member(event, now),
            Input::Enforcement(enforcement) => self.enforcement(enforcement),
            Input::Outcome(outcome) => self.reconciler.outcome(outcome, now),
            Input::Prepared {
                key,
                attempt,
                result,
            } => self.reconciler.prepared(&key, attempt, *result, now),
            Input::WorksChecked { key, uid, gone } => {
                self.reconciler
                    .works_checked(&key, uid.as_deref(), gone, now)
            }
            Input::PartsWritten {
                key,
                attempt,
                result,
            } => self.reconciler.parts_written(&key, attempt, result),
            Input::ServicesSeen {
                key,
                attempt,
                result,
            } => self.reconciler.services_seen(&key, attempt, result, now),
            Input::RightAsked {
                namespace,
                queue,
                allowed,
            } => self.reconciler.right_asked(namespace, queue, allowed),
            Input::Alerts(alerts) => self.reconciler.alerts(alerts, now),
            Input::NodeTainted(change) => self.reconciler.node_tainted(&change),
            Input::SchedulerSaid {
                key,
                attempt,
                cluster,
                pods,
            } => self.reconciler.scheduler_said(&key, attempt, cluster, pods),
            Input::SizeChecked {
                key,
                attempt,
                cluster,
                small,
            } => self
                .reconciler
                .size_checked(&key, attempt, cluster, small, now),
        }
    }

    /// Handles a change of a fault policy.
    fn fault_policy(&mut self, delta: Delta<FaultPolicy>) {
        if let Delta::Upserted(policy) = &delta {
            let name = policy.metadata.name.as_deref().unwrap_or_default();
            self.publisher.fault_policy(name);
        }
        self.reconciler.fault_policy(delta);
    }

    /// Handles a change of a binding.
    fn binding(&mut self, delta: Delta<ResourceBinding>) {
        if let Delta::Upserted(binding) = &delta {
            self.seen = self.seen.max(version(binding));
        }
        let leads = self.leads();
        let reconciler = &mut self.reconciler;
        let is_new = reconciler.mirror.is_new(&delta);
        reconciler.watch_record(&delta, leads);
        // The watch may show a new binding of the same name before a pass saw that the old one went.
        if let Some(key) = reconciler.mirror.is_another(&delta)
            && !reconciler.has_remains(&key)
        {
            reconciler.forget(&key);
        }
        if let Delta::Gone(object) = &delta {
            let namespace = object.namespace.as_deref().unwrap_or_default();
            reconciler.has_remains(&JobKey::new(namespace, &object.name));
        }
        let key = reconciler.mirror.binding(delta);
        if let Some(key) = key.as_ref().filter(|_| leads && is_new) {
            reconciler.begin_binding(key);
        }
        reconciler.work_queue.extend(key);
    }

    /// Handles a change of a namespace.
    fn namespace(&mut self, delta: Delta<Namespace>, now: Time) {
        let leads = self.leads();
        let reconciler = &mut self.reconciler;
        let Some(namespace) = reconciler.mirror.namespace(delta) else {
            return;
        };
        let jobs = reconciler.mirror.jobs_in(&namespace);
        reconciler.work_queue.extend(jobs);
        reconciler.charge_pods_in(&namespace);
        if leads {
            let fact = reconciler.mirror.namespaces().get(&namespace);
            self.publisher.namespace(&namespace, fact);
            self.publishing().note_unselected_in(&namespace, now);
        }
        self.reconciler.note_adoption(&namespace, now);
    }

    /// Handles a change of the admission policies' state, which the status of pending jobs shows.
    fn enforcement(&mut self, enforcement: Enforcement) {
        self.reconciler.enforcement = enforcement;
        for key in self.reconciler.last_facts.keys() {
            self.publisher.job(key);
        }
    }
}
