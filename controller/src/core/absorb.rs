//! Files one input at a time: it updates the mirror and the engine, and adds the affected jobs to the work queue.

use crate::core::{Core, Leading};
use crate::messages::enforcement::Enforcement;
use crate::messages::input::Input;
use crate::mirror::SeenBinding;
use crate::reconcile::adoption::note_adoption;
use crate::reconcile::placed::excess;
use crate::reconcile::{JobPass, Reconciler, answers, record_guard, remains};
use crds::fault_policy::FaultPolicy;
use crds::karmada::ResourceBinding;
use crds::kubernetes::Namespace;
use engine::{JobKey, Time};
use kube::core::ObjectMeta;
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
            Input::Binding(delta) => self.binding(delta, now),
            Input::Work(delta) => {
                self.reconciler.fleet.pre_pulls.work(&delta, now);
                let key = self.reconciler.mirror.work(delta);
                self.reconciler.out.work_queue.extend(key);
            }
            Input::Override(delta) => {
                let delta = delta.map(|policy| policy.metadata);
                self.override_policy(delta);
            }
            Input::ClusterOverride(delta) => {
                let delta = delta.map(|policy| policy.metadata);
                self.override_policy(delta);
            }
            Input::Template(kind, delta) => self.template(&kind, delta, now),
            Input::Namespace(delta) => self.namespace(delta, now),
            Input::Propagation(delta) => self.propagation(delta),
            Input::Queue(delta) => self.reconciler.queue_pass().queue(delta),
            Input::Policy(delta) => self.reconciler.policy(delta),
            Input::FaultPolicy(delta) => self.fault_policy(delta),
            Input::NodeRemediation(delta) => self.reconciler.fleet.avoided_nodes.remediation(delta),
            Input::Config(delta) => self.reconciler.config(delta),
            Input::PriorityClass(delta) => self.reconciler.priority_class(delta),
            Input::ClaimTemplate(delta) => self.reconciler.claim_template(delta),
            Input::PodGroup(delta) => self.podgroup(delta),
            Input::NamespaceQueue(delta) => {
                if let Some(namespace) = self.reconciler.mirror.namespace_queue(delta) {
                    self.publisher.due.namespaces.namespace(&namespace);
                }
            }
            Input::UnselectedKinds(kinds) => self.watch_unselected(&kinds),
            Input::Member(event) => self.reconciler.member(event, now),
            Input::Enforcement(enforcement) => self.enforcement(enforcement),
            Input::Answer(key, answer) => {
                let take = |pass: &mut JobPass<'_>| answers::take(pass, answer);
                self.reconciler.answer(&key, now, take);
            }
            Input::RightAsked {
                namespace,
                queue,
                allowed,
            } => {
                self.publisher.due.namespaces.namespace(&namespace);
                self.reconciler.right_asked(namespace, queue, allowed);
            }
            Input::Alerts(alerts) => {
                let Reconciler {
                    fleet, engine, out, ..
                } = &mut self.reconciler;
                fleet.alerts(alerts, engine, out, now);
            }
            Input::NodeTainted(change) => {
                let Reconciler { fleet, out, .. } = &mut self.reconciler;
                fleet.node_tainted(&change, out);
            }
        }
    }

    /// Handles a change of a fault policy.
    fn fault_policy(&mut self, delta: Delta<FaultPolicy>) {
        if let Delta::Upserted(policy) = &delta {
            let name = policy.metadata.name.as_deref().unwrap_or_default();
            self.publisher.due.fault_policy(name);
        }
        self.reconciler.fault_policy(delta);
    }

    /// Handles a change of a binding.
    fn binding(&mut self, delta: Delta<ResourceBinding>, now: Time) {
        let leads = self.leads();
        let reconciler = &mut self.reconciler;
        let mut is_new = false;
        if let Delta::Upserted(binding) = &delta {
            let key = binding.job_key();
            let seen = reconciler.mirror.seen(binding);
            is_new = seen != SeenBinding::Same;
            if leads {
                reconciler.job(&key, now, |pass| record_guard::watch_record(pass, binding));
            }
            // The watch may show a new binding of the same name before a pass saw that the old one went.
            if seen == SeenBinding::Another {
                remains::forget_unless_charged(reconciler, &key);
            }
        }
        if let Delta::Gone(object) = &delta {
            let namespace = object.namespace.as_deref().unwrap_or_default();
            let key = JobKey::new(namespace, &object.name);
            remains::binding_gone(reconciler, &key);
        }
        let key = reconciler.mirror.binding(delta);
        if let Some(key) = key.as_ref().filter(|_| leads && is_new) {
            reconciler.job(key, now, record_guard::begin_binding);
        }
        reconciler.out.work_queue.extend(key);
    }

    /// Handles a change of an override policy.
    fn override_policy(&mut self, delta: Delta<ObjectMeta>) {
        let Reconciler { mirror, out, .. } = &mut self.reconciler;
        excess::override_policy(mirror, out, delta);
    }

    /// Handles a change of a namespace.
    fn namespace(&mut self, delta: Delta<Namespace>, now: Time) {
        let leads = self.leads();
        let reconciler = &mut self.reconciler;
        let Some(namespace) = reconciler.mirror.namespace(delta) else {
            return;
        };
        let jobs = reconciler.mirror.jobs_in(&namespace);
        reconciler.out.work_queue.extend(jobs);
        reconciler.charge_pods_in(&namespace);
        if leads {
            let fact = reconciler.mirror.namespaces().get(&namespace);
            self.publisher.namespace(&namespace, fact);
            self.publisher.due.namespaces.namespace(&namespace);
            self.publishing().note_unselected_in(&namespace, now);
        }
        let Reconciler {
            marking, mirror, ..
        } = &mut self.reconciler;
        note_adoption(marking, mirror, &namespace, now);
    }

    /// Handles a change of the admission policies' state, which the status of pending jobs shows.
    fn enforcement(&mut self, enforcement: Enforcement) {
        self.reconciler.enforcement = enforcement;
        for key in self.reconciler.jobs.last_facts.keys() {
            self.publisher.due.job(key);
        }
    }
}
