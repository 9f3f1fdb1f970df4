//! Handles changes of objects that Muster writes itself, and of templates: what differs from its desired state is
//! published again, and users are warned of what is wrong.

use crate::core::Core;
use crate::messages::action::Effect;
use crate::messages::job_event::{JobEvent, VALIDATE};
use crate::mirror::template::{Template, TemplateKey, TemplateKind};
use crate::status::kept_policies;
use crds::karmada::{ObjectReference, PropagationPolicy};
use crds::names;
use crds::podgroup::PodGroup;
use engine::{JobKey, Reason, Time};
use runtime::watch::Delta;
use std::hash::{DefaultHasher, Hash, Hasher};

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
                    self.publishing().podgroup_seen(&key);
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
            self.reconciler.out.work_queue.add(&job);
        }
        if self.leads() {
            self.warn(&key);
            self.publishing().note_unselected(&key, now);
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
            let event = JobEvent::warning(Reason::InvalidTemplate, VALIDATE, note);
            self.reconciler.out.push(Effect::RecordEvent {
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
        self.reconciler.out.push(Effect::RecordEvent {
            object: own.clone(),
            event,
        });
        let event = JobEvent::warning(Reason::BindingNameCollision, "Bind", to_holder);
        self.reconciler.out.push(Effect::RecordEvent {
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
