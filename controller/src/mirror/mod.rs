//! The mirror: what the controller has seen of the control plane, by key. Every pass reads it.
//!
//! Deltas go in, and keys of jobs that may have changed come out. The mirror decides and writes nothing;
//! every start rebuilds it from the API server.

pub(crate) mod binding;
mod binding_identity;
mod claim_templates;
pub(crate) mod heartbeat;
pub(crate) mod namespace;
mod objects;
mod override_policies;
mod queue_objects;
pub(crate) mod seen_work;
mod seen_works;
pub(crate) mod template;

pub(crate) use crate::mirror::binding_identity::BindingIdentity;

use crate::mirror::binding::{is_workload, version};
use crate::mirror::binding_identity::permanent_id;
use crate::mirror::claim_templates::ClaimTemplates;
use crate::mirror::namespace::NamespaceFact;
use crate::mirror::override_policies::OverridePolicies;
use crate::mirror::queue_objects::QueueObjects;
use crate::mirror::seen_work::{ReadWork, SeenWork};
use crate::mirror::seen_works::SeenWorks;
use crate::mirror::template::{Template, TemplateKey, TemplateKind};
use crds::fault_policy::FaultPolicy;
use crds::karmada::ResourceBinding;
use crds::kubernetes::Namespace;
use crds::namespace_queue::NamespaceQueue;
use crds::podgroup::PodGroup;
use engine::{JobKey, QueueName};
use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use workload::WorkloadSpec;

#[cfg(test)]
mod tests;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    bindings: BTreeMap<JobKey, Arc<ResourceBinding>>,
    /// The highest resourceVersion of any binding seen so far.
    newest_binding: u64,
    templates: HashMap<TemplateKey, Template>,
    namespaces: BTreeMap<String, NamespaceFact>,
    pub(crate) queueing: QueueObjects,
    fault_policies: BTreeMap<String, FaultPolicy>,
    podgroups: HashMap<JobKey, Arc<PodGroup>>,
    /// By namespace and name.
    namespace_queues: BTreeMap<(String, QueueName), NamespaceQueue>,
    pub(crate) overrides: OverridePolicies,
    pub(crate) claims: ClaimTemplates,
    pub(crate) works: SeenWorks,
    /// The job of each template.
    by_template: HashMap<TemplateKey, JobKey>,
}

/// The binding of a name that has been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeenBinding {
    Nothing,
    Same,
    /// One with another uid, which is gone.
    Another,
}

impl Mirror {
    /// Compares a binding with the one of its name that has been seen.
    pub(crate) fn seen(&self, binding: &ResourceBinding) -> SeenBinding {
        match self.bindings.get(&binding.job_key()) {
            None => SeenBinding::Nothing,
            Some(known) if known.metadata.uid == binding.metadata.uid => SeenBinding::Same,
            Some(_) => SeenBinding::Another,
        }
    }

    /// Applies a binding's delta and returns the job that may have changed.
    pub(crate) fn binding(&mut self, delta: Delta<ResourceBinding>) -> Option<JobKey> {
        match delta {
            Delta::Upserted(mut binding) => {
                self.newest_binding = self.newest_binding.max(version(&binding));
                binding.metadata.managed_fields = None;
                let key = binding.job_key();
                if self.seen(&binding) == SeenBinding::Another {
                    self.drop_binding(&key);
                }
                let template = template_key(&binding);
                // Karmada binds no template of another namespace. A user may write such a binding.
                if template.namespace == *key.namespace {
                    self.by_template.insert(template, key.clone());
                }
                self.bindings.insert(key.clone(), Arc::new(binding));
                Some(key)
            }
            Delta::Gone(object) => {
                let key = JobKey::new(
                    object.namespace.as_deref().unwrap_or_default(),
                    &object.name,
                );
                self.drop_binding(&key);
                Some(key)
            }
            Delta::Listed => None,
        }
    }

    fn drop_binding(&mut self, key: &JobKey) {
        if let Some(binding) = self.bindings.remove(key) {
            let template = template_key(&binding);
            if self.by_template.get(&template) == Some(key) {
                self.by_template.remove(&template);
            }
        }
    }

    /// Applies a Work's delta and returns the job that it belongs to.
    pub(crate) fn work(&mut self, delta: Delta<ReadWork>) -> Option<JobKey> {
        let owner = self.works.file(delta)?;
        self.exists(&owner).then_some(owner.job)
    }

    /// Returns the Works of missing bindings.
    pub(crate) fn works_without_binding(
        &self,
    ) -> impl Iterator<Item = (&BindingIdentity, Vec<&SeenWork>)> {
        self.works.all().filter(|(owner, _)| !self.exists(owner))
    }

    /// Returns true if the watch shows the binding.
    fn exists(&self, owner: &BindingIdentity) -> bool {
        let binding = self.bindings.get(&owner.job);
        binding.and_then(|binding| permanent_id(binding)) == Some(&*owner.id)
    }

    /// Applies a template's delta; returns its job and the template's key.
    pub(crate) fn template(
        &mut self,
        kind: &TemplateKind,
        delta: Delta<Template>,
    ) -> Option<TemplateKey> {
        match delta {
            Delta::Upserted(template) => {
                let key = template.key.clone();
                self.templates.insert(key.clone(), template);
                Some(key)
            }
            Delta::Gone(object) => {
                let namespace = object.namespace.unwrap_or_default();
                let key = TemplateKey {
                    kind: kind.clone(),
                    namespace,
                    name: object.name,
                };
                self.templates.remove(&key);
                Some(key)
            }
            Delta::Listed => None,
        }
    }

    /// Applies a namespace's delta; returns the namespace if its fact changed.
    pub(crate) fn namespace(&mut self, delta: Delta<Namespace>) -> Option<String> {
        match delta {
            Delta::Upserted(namespace) => {
                let name = namespace.metadata.name.clone().unwrap_or_default();
                let fact = NamespaceFact::of(&namespace);
                let before = self.namespaces.insert(name.clone(), fact.clone());
                let same = before.is_some_and(|before| before.equals(&fact));
                (!same).then_some(name)
            }
            Delta::Gone(object) => self.namespaces.remove(&object.name).map(|_| object.name),
            Delta::Listed => None,
        }
    }

    /// Keeps the claims of a job when it is placed: its pods have what its ResourceClaimTemplates claim now,
    /// whatever becomes of these.
    pub(crate) fn keep_claims(&mut self, job: &JobKey) {
        let binding = self.bindings.get(job);
        if let Some(ask) = binding.and_then(|binding| self.ask_of(binding)) {
            let names = ask.claim_templates().into_iter().map(str::to_owned);
            let names: Vec<String> = names.collect();
            self.claims.keep(job, &names);
        }
    }

    /// Returns the jobs whose pods claim devices by a ResourceClaimTemplate.
    pub(crate) fn jobs_that_claim(&self, template: &ObjectKey) -> Vec<JobKey> {
        let namespace = template.namespace.as_deref().unwrap_or_default();
        let claims = |key: &JobKey| {
            let binding = self.bindings.get(key);
            let ask = binding.and_then(|binding| self.ask_of(binding));
            ask.is_some_and(|ask| ask.claim_templates().contains(template.name.as_str()))
        };
        let jobs = self.jobs_in(namespace).into_iter();
        jobs.filter(claims).collect()
    }

    /// Returns the job of a template, if its binding exists.
    pub(crate) fn job_of_template(&self, template: &TemplateKey) -> Option<&JobKey> {
        self.by_template.get(template)
    }

    /// Returns the template of a binding, if it has been seen and is the one that is bound.
    pub(crate) fn template_of(&self, binding: &ResourceBinding) -> Option<&Template> {
        self.templates
            .get(&template_key(binding))
            .filter(|template| template.uid == *binding.spec.resource.uid)
    }

    /// Returns what the template of a binding requests, if known. Devices that it claims have the names of
    /// their ResourceClaimTemplates.
    pub(crate) fn ask_of(&self, binding: &ResourceBinding) -> Option<&WorkloadSpec> {
        self.template_of(binding)?.ask.as_ref().ok()
    }

    /// Returns the jobs of a namespace.
    pub(crate) fn jobs_in(&self, namespace: &str) -> Vec<JobKey> {
        let from = JobKey::new(namespace, "");
        self.bindings
            .range(from..)
            .take_while(|(key, _)| &*key.namespace == namespace)
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Returns the kinds of all workloads that bindings name. Muster does not read kinds that start no pods.
    pub(crate) fn template_kinds(&self) -> BTreeSet<TemplateKind> {
        self.bindings
            .values()
            .filter(|binding| is_workload(binding))
            .map(|binding| template_key(binding).kind)
            .collect()
    }
}

/// Returns the template that a binding names.
pub(crate) fn template_key(binding: &ResourceBinding) -> TemplateKey {
    let resource = &binding.spec.resource;
    TemplateKey {
        kind: TemplateKind {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
        },
        namespace: resource.namespace.clone(),
        name: resource.name.clone(),
    }
}

fn object_key(metadata: &kube::core::ObjectMeta) -> ObjectKey {
    ObjectKey {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
