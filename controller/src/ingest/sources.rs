//! Handles changes of objects that are not jobs: policies, priority classes, members, templates. Each goes
//! to the mirror and, if the engine needs it, on to the engine.

use crate::core::Core;
use crate::mirror::template::{Template, TemplateKey, TemplateKind};
use crate::reconcile::Reconciler;
use crate::reconcile::action::ReconcileAction;
use crate::status::events::JobEvent;
use crate::status::kept_policies;
use crds::capacity_policy::CapacityPolicy;
use crds::devices::ResourceClaimTemplate;
use crds::karmada::{ObjectReference, PropagationPolicy};
use crds::kubernetes::PriorityClass;
use crds::names;
use crds::podgroup::PodGroup;
use engine::{Event, JobKey, QueueName, Reason, Time};
use members::MemberEvent;
use runtime::watch::Delta;
use std::hash::{DefaultHasher, Hash, Hasher};

impl Reconciler {
    /// Handles a change of a capacity policy.
    pub(crate) fn policy(&mut self, delta: Delta<CapacityPolicy>) {
        let name = match delta {
            Delta::Upserted(policy) => {
                let name = QueueName::new(policy.metadata.name.as_deref().unwrap_or_default());
                let seen = self.mirror.put_policy(name.clone(), policy.clone());
                if seen.is_some_and(|seen| seen.spec == policy.spec) {
                    return; // only its status changed, which Muster writes
                }
                name
            }
            Delta::Gone(object) => {
                let name = QueueName::new(&object.name);
                self.mirror.drop_policy(&name);
                self.apply(Event::PolicyGone(name.clone()));
                name
            }
            Delta::Listed => return,
        };
        self.apply_policy(&name);
        self.push(ReconcileAction::PublishQueue(name.clone()));
        self.dirty.extend(self.rendezvous_jobs.iter().cloned());
        // The right to submit may have changed; `root` affects every queue.
        let all = name.as_str() == names::ROOT_POLICY;
        let affected = self
            .last_facts
            .iter()
            .filter(|(_, fact)| all || fact.queue == name);
        let keys: Vec<JobKey> = affected.map(|(key, _)| key.clone()).collect();
        self.dirty.extend(keys);
    }

    pub(crate) fn apply_policy(&mut self, name: &QueueName) {
        let Some(policy) = self.mirror.policies().get(name) else {
            return;
        };
        let strategy = self
            .mirror
            .queues()
            .get(name)
            .and_then(|queue| queue.spec.dequeue_strategy.as_deref());
        let fact = policy.to_fact(strategy);
        self.apply(Event::PolicyUpserted(fact));
    }

    pub(crate) fn priority_class(&mut self, delta: Delta<PriorityClass>) {
        let before = self.mirror.default_class().map(str::to_owned);
        match delta {
            Delta::Upserted(class) => {
                let fact = class.to_fact();
                self.mirror.put_priority_class(&fact);
                self.apply(Event::PriorityClassUpserted(fact));
            }
            Delta::Gone(object) => {
                self.mirror.drop_priority_class(&object.name);
                self.apply(Event::PriorityClassGone(object.name));
            }
            Delta::Listed => {}
        }
        if self.mirror.default_class() != before.as_deref() {
            // Queues may not allow the class.
            self.dirty.extend(self.last_facts.keys().cloned());
        }
    }

    /// Handles a change of a ResourceClaimTemplate: the jobs that name it have another size.
    pub(crate) fn claim_template(&mut self, delta: Delta<ResourceClaimTemplate>) {
        if let Some(template) = self.mirror.claim_template(delta) {
            self.dirty.extend(self.mirror.jobs_that_claim(&template));
        }
    }

    pub(crate) fn member(&mut self, event: MemberEvent, now: Time) {
        match event {
            MemberEvent::NodeHealth {
                cluster,
                node,
                health,
            } => self.node_health(cluster, node, health),
            MemberEvent::Rules { cluster, rules } => self.member_rules(cluster, rules, now),
            MemberEvent::Marks { cluster, marks } => self.cluster_marks(cluster, marks),
            MemberEvent::Fact(mut fact) => {
                match &mut fact {
                    Event::ClusterUpserted(cluster) => {
                        cluster.paused = self.breakers.pause_of(&cluster.name);
                        self.dirty.extend(self.spread_bindings.iter().cloned());
                        self.note_leaving(cluster);
                        if self.engine.fleet().cluster(&cluster.name).is_none() {
                            self.dirty.extend(self.rendezvous_jobs.iter().cloned());
                        }
                    }
                    Event::NodeUpserted(node) => self.ending_nodes.mark(node, now),
                    Event::ClusterGone(cluster) => {
                        self.forget_member_rules(cluster);
                        self.dirty.extend(self.rendezvous_jobs.iter().cloned());
                    }
                    _ => {}
                }
                self.note_faults(&fact, now);
                self.pods.note(&fact);
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
                    self.lost_pods
                        .note(&fact, |cluster, node| engine.fleet().jobs_on(cluster, node));
                }
                self.apply(fact);
            }
            MemberEvent::Listed { cluster } => tracing::debug!(%cluster, "member listed"),
            MemberEvent::Ready => {}
        }
    }
}

impl Core {
    /// Handles a change of the policy that Muster keeps in a managed namespace: it is applied again. If the
    /// API server does not take the change, it is not applied a second time.
    pub(crate) fn propagation(&mut self, delta: Delta<PropagationPolicy>) {
        let namespace = match delta {
            Delta::Upserted(policy) => {
                let namespace = policy.metadata.namespace.clone().unwrap_or_default();
                if policy.metadata.deletion_timestamp.is_some() {
                    return; // nothing can be applied to a deleted object; its end follows
                }
                let fact = self.reconciler.mirror.namespaces().get(&namespace);
                if fact.is_some_and(|fact| !fact.managed) {
                    // An earlier leader wrote it late; a policy of another manager stays.
                    if self.leads() {
                        self.publisher.namespace(&namespace, fact);
                    }
                    return;
                }
                if kept_policies::is_kept(&policy) {
                    self.policies_seen.remove(&namespace);
                    return;
                }
                let seen = digest(&policy.spec.to_string());
                if self.policies_seen.insert(namespace.clone(), seen) == Some(seen) {
                    tracing::warn!(%namespace, "policy {} differs from its desired state and does not change", names::DEFAULT_POLICY);
                    return;
                }
                namespace
            }
            Delta::Gone(object) => object.namespace.unwrap_or_default(),
            Delta::Listed => return,
        };
        let fact = self.reconciler.mirror.namespaces().get(&namespace);
        if self.leads() && fact.is_some_and(|fact| fact.managed) {
            self.publisher.namespace(&namespace, fact);
        }
    }

    /// Handles a PodGroup; what it already shows is not written again.
    pub(crate) fn podgroup(&mut self, delta: Delta<PodGroup>) {
        match delta {
            Delta::Upserted(mut podgroup) => {
                podgroup.metadata.managed_fields = None;
                let podgroup = podgroup.with_annotated_federation();
                let namespace = podgroup.metadata.namespace.as_deref().unwrap_or_default();
                let key = JobKey::new(
                    namespace,
                    podgroup.metadata.name.as_deref().unwrap_or_default(),
                );
                if self
                    .reconciler
                    .mirror
                    .put_podgroup(key.clone(), podgroup)
                    .is_none()
                {
                    self.podgroup_seen(&key);
                }
                self.sweep_podgroup(&key);
            }
            Delta::Gone(object) => {
                let key = JobKey::new(
                    object.namespace.as_deref().unwrap_or_default(),
                    &object.name,
                );
                self.reconciler.mirror.drop_podgroup(&key);
                self.publisher.podgroup_gone(key);
            }
            Delta::Listed => {}
        }
    }

    /// Handles a change of a template.
    pub(crate) fn template(&mut self, kind: &TemplateKind, delta: Delta<Template>, now: Time) {
        let Some(key) = self.reconciler.mirror.template(kind, delta) else {
            return;
        };
        if let Some(job) = self.reconciler.mirror.job_of_template(&key).cloned() {
            self.reconciler.dirty.insert(job);
        }
        if self.leads() {
            self.warn(&key);
            self.note_unselected(&key, now);
        }
    }

    /// Warns the template's user of fields that Karmada or a member would refuse, and of a binding name that
    /// another workload uses.
    pub(crate) fn warn(&mut self, key: &TemplateKey) {
        let Some(template) = self.reconciler.mirror.templates().get(key) else {
            return;
        };
        let managed = self
            .reconciler
            .mirror
            .namespaces()
            .get(&key.namespace)
            .is_some_and(|n| n.managed);
        if !managed || template.deleting {
            return;
        }
        let own = template.reference();
        if !template.warnings.is_empty() {
            let note = template.warnings.join("; ");
            let event = JobEvent::warning(Reason::InvalidTemplate, "Validate", note);
            self.reconciler.push(ReconcileAction::RecordEvent {
                object: own.clone(),
                event,
            });
        }
        self.warn_of_collision(key, &own);
    }

    fn warn_of_collision(&mut self, key: &TemplateKey, own: &ObjectReference) {
        let name = self
            .reconciler
            .mirror
            .templates()
            .get(key)
            .map(Template::binding_name)
            .unwrap_or_default();
        let job = JobKey::new(&key.namespace, &name);
        let Some(binding) = self.reconciler.mirror.bindings().get(&job) else {
            return;
        };
        let holder = binding.spec.resource.clone();
        if holder.kind == own.kind
            && holder.api_version == own.api_version
            && holder.name == own.name
        {
            return;
        }
        let (theirs, ours) = (describe(&holder), describe(own));
        let to_own = format!(
            "its ResourceBinding {name} belongs to {theirs}: Karmada names bindings by name and kind without the API group. \
             It waits until that one is deleted; give one of them another name"
        );
        let to_holder = format!(
            "{ours} wants the same ResourceBinding {name} and waits; give one of them another name"
        );
        let event = JobEvent::warning(Reason::BindingNameCollision, "Bind", to_own);
        self.reconciler.push(ReconcileAction::RecordEvent {
            object: own.clone(),
            event,
        });
        let event = JobEvent::warning(Reason::BindingNameCollision, "Bind", to_holder);
        self.reconciler.push(ReconcileAction::RecordEvent {
            object: holder.clone(),
            event,
        });
    }
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn describe(object: &ObjectReference) -> String {
    format!("{} {} ({})", object.kind, object.name, object.api_version)
}
