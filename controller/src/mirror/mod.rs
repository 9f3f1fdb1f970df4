//! The mirror: what the controller has seen of the control plane, by key. Every pass reads it.
//!
//! Deltas go in, and keys of jobs that may have changed come out. The mirror decides and writes nothing;
//! every start rebuilds it from the API server.

pub(crate) mod binding;
mod binding_identity;
pub(crate) mod heartbeat;
pub(crate) mod namespace;
mod objects;
pub(crate) mod seen_work;
pub(crate) mod template;

pub(crate) use crate::mirror::binding_identity::BindingIdentity;

use crate::mirror::binding::is_workload;
use crate::mirror::binding_identity::permanent_id;
use crate::mirror::namespace::NamespaceFact;
use crate::mirror::seen_work::{ReadWork, SeenWork};
use crate::mirror::template::{Template, TemplateKey, TemplateKind};
use crds::capacity_policy::{self, CapacityPolicy, RefusedClass};
use crds::devices::ResourceClaimTemplate;
use crds::fault_policy::FaultPolicy;
use crds::karmada::{AppliedOverride, ResourceBinding};
use crds::kubernetes::Namespace;
use crds::names;
use crds::podgroup::PodGroup;
use crds::queue::Queue;
use engine::facts::PriorityClassFact;
use engine::{ClusterName, JobKey, QueueName};
use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use workload::{ClaimedDevices, WorkloadSpec};

#[cfg(test)]
mod tests;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    bindings: BTreeMap<JobKey, Arc<ResourceBinding>>,
    templates: HashMap<TemplateKey, Template>,
    namespaces: BTreeMap<String, NamespaceFact>,
    queues: BTreeMap<QueueName, Queue>,
    policies: BTreeMap<QueueName, CapacityPolicy>,
    fault_policies: BTreeMap<String, FaultPolicy>,
    /// Each PriorityClass, with its priority if jobs that name none get it; Kubernetes expects one such class.
    priority_classes: BTreeMap<String, Option<i32>>,
    podgroups: HashMap<JobKey, Arc<PodGroup>>,
    /// Generations of override policies of other managers, by namespace and name; a policy without a namespace
    /// applies to all of them.
    overrides: HashMap<ObjectKey, i64>,
    /// What ResourceClaimTemplates claim for one pod.
    claim_templates: HashMap<ObjectKey, ClaimedDevices>,
    /// What these claimed, by name, when the jobs that name them were placed.
    claimed: HashMap<JobKey, BTreeMap<String, ClaimedDevices>>,
    /// Works by their binding, then by namespace and name.
    works: HashMap<BindingIdentity, BTreeMap<ObjectKey, SeenWork>>,
    /// By binding, the clusters in which deleted Works have left their objects.
    left: HashMap<BindingIdentity, BTreeSet<ClusterName>>,
    /// The binding under which a Work is filed, for deltas that carry only its name.
    work_index: HashMap<ObjectKey, BindingIdentity>,
    /// The job of each template.
    by_template: HashMap<TemplateKey, JobKey>,
}

impl Mirror {
    /// Returns why a namespace with `labels` may not use a queue without an explicit right, if so.
    pub(crate) fn closed_to(
        &self,
        queue: &QueueName,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Option<String> {
        let policy = |name: &str| self.policies.get(&QueueName::new(name));
        let root = policy(names::ROOT_POLICY);
        let own = policy(queue.as_str());
        capacity_policy::closed_to(queue.as_str(), own, root, namespace, labels)
    }

    /// Returns the first of a job's PriorityClasses that a queue does not allow. A job without a class has the
    /// default class.
    pub(crate) fn refused_class(
        &self,
        queue: &QueueName,
        classes: &BTreeSet<String>,
    ) -> Option<RefusedClass> {
        let policy = self.policies.get(queue);
        let named = classes.iter().map(String::as_str);
        let default = self.default_class().filter(|_| classes.is_empty());
        capacity_policy::refused_class(policy, named.chain(default))
    }

    /// Returns the PriorityClass of jobs that name none; of several defaults Kubernetes takes the lowest.
    pub(crate) fn default_class(&self) -> Option<&str> {
        let classes = self.priority_classes.iter();
        let defaults = classes.filter_map(|(name, priority)| Some((name, (*priority)?)));
        let lowest = defaults.min_by_key(|(_, priority)| *priority);
        lowest.map(|(name, _)| name.as_str())
    }

    /// Returns the names of all PriorityClasses.
    pub(crate) fn priority_classes(&self) -> impl Iterator<Item = &String> {
        self.priority_classes.keys()
    }

    /// Records a PriorityClass.
    pub(crate) fn put_priority_class(&mut self, class: &PriorityClassFact) {
        let priority = class.global_default.then_some(class.value);
        self.priority_classes.insert(class.name.clone(), priority);
    }

    /// Drops a PriorityClass that is gone.
    pub(crate) fn drop_priority_class(&mut self, name: &str) {
        self.priority_classes.remove(name);
    }

    /// Returns the job whose binding `delta` replaces by another one of the same name.
    pub(crate) fn is_another(&self, delta: &Delta<ResourceBinding>) -> Option<JobKey> {
        let Delta::Upserted(binding) = delta else {
            return None;
        };
        let key = job_key(
            binding.metadata.namespace.as_deref(),
            binding.metadata.name.as_deref(),
        );
        let known = self.bindings.get(&key)?;
        (known.metadata.uid != binding.metadata.uid).then_some(key)
    }

    /// Returns true if `delta` shows a binding that has not been seen, or another one of the same name.
    pub(crate) fn is_new(&self, delta: &Delta<ResourceBinding>) -> bool {
        let Delta::Upserted(binding) = delta else {
            return false;
        };
        let known = self.bindings.get(&binding.job_key());
        known.is_none_or(|known| known.metadata.uid != binding.metadata.uid)
    }

    /// Applies a binding's delta and returns the job that may have changed.
    pub(crate) fn binding(&mut self, delta: Delta<ResourceBinding>) -> Option<JobKey> {
        match delta {
            Delta::Upserted(mut binding) => {
                binding.metadata.managed_fields = None;
                let key = job_key(
                    binding.metadata.namespace.as_deref(),
                    binding.metadata.name.as_deref(),
                );
                if self
                    .bindings
                    .get(&key)
                    .is_some_and(|known| known.metadata.uid != binding.metadata.uid)
                {
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
                let key = job_key(object.namespace.as_deref(), Some(&object.name));
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
        let (object, seen) = match delta {
            Delta::Upserted(work) => (work.object, work.owner.map(|owner| (owner, work.seen))),
            Delta::Gone(object) => (object, None),
            Delta::Listed => return None,
        };
        let owner = match &seen {
            Some((owner, _)) => owner.clone(),
            None => self.work_index.get(&object)?.clone(),
        };
        if seen.is_some() {
            self.refile(&object, &owner);
        }
        if let Some((_, work)) = &seen
            && work.deleting
            && work.preserves
        {
            let left = self.left.entry(owner.clone()).or_default();
            left.insert(ClusterName::new(&work.cluster));
        }
        let filed = self.works.entry(owner.clone()).or_default();
        let changed = match seen {
            Some((_, work)) => filed.insert(object, work.clone()) != Some(work),
            None => {
                self.work_index.remove(&object);
                filed.remove(&object).is_some()
            }
        };
        if filed.is_empty() {
            self.works.remove(&owner);
        }
        (changed && self.exists(&owner)).then_some(owner.job)
    }

    /// Files a Work under `owner`. If an earlier binding of the same name left the Work, Karmada gives it the id
    /// of the new binding; it then no longer belongs to the earlier one.
    fn refile(&mut self, object: &ObjectKey, owner: &BindingIdentity) {
        let before = self.work_index.insert(object.clone(), owner.clone());
        let Some(before) = before.filter(|before| before != owner) else {
            return;
        };
        if let Some(filed) = self.works.get_mut(&before) {
            filed.remove(object);
            if filed.is_empty() {
                self.works.remove(&before);
            }
        }
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

    /// Applies the delta of a ResourceClaimTemplate; returns its key if it changed.
    pub(crate) fn claim_template(
        &mut self,
        delta: Delta<ResourceClaimTemplate>,
    ) -> Option<ObjectKey> {
        match delta {
            Delta::Upserted(template) => {
                let key = object_key(&template.metadata);
                let claims = template.claimed_devices();
                let before = self.claim_templates.insert(key.clone(), claims.clone());
                (before != Some(claims)).then_some(key)
            }
            Delta::Gone(key) => self.claim_templates.remove(&key).map(|_| key),
            Delta::Listed => None,
        }
    }

    /// Returns what a ResourceClaimTemplate that `job` names claims for one pod: as of the job's placement,
    /// else the present one, if it exists.
    pub(crate) fn claimed_by(&self, job: &JobKey, template: &str) -> Option<&ClaimedDevices> {
        let placed = self.claimed.get(job);
        let placed = placed.and_then(|claimed| claimed.get(template));
        placed.or_else(|| {
            self.claim_templates.get(&ObjectKey {
                namespace: Some(job.namespace.to_string()),
                name: template.to_owned(),
            })
        })
    }

    /// Keeps the claims of a job when it is placed: its pods have what its ResourceClaimTemplates claim now,
    /// whatever becomes of these.
    pub(crate) fn keep_claims(&mut self, job: &JobKey) {
        if self.claimed.contains_key(job) {
            return;
        }
        let binding = self.bindings.get(job);
        let Some(ask) = binding.and_then(|binding| self.ask_of(binding)) else {
            return;
        };
        let names = ask.claim_templates().into_iter();
        let claimed: BTreeMap<_, _> = names
            .filter_map(|name| Some((name.to_owned(), self.claimed_by(job, name)?.clone())))
            .collect();
        if !claimed.is_empty() {
            self.claimed.insert(job.clone(), claimed);
        }
    }

    /// Drops the kept claims of a job that is queued or gone: its next pods have what its templates claim
    /// then.
    pub(crate) fn drop_claims(&mut self, job: &JobKey) {
        self.claimed.remove(job);
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

    /// Returns the Works of a binding that the watch shows.
    pub(crate) fn works_of<'a>(
        &'a self,
        binding: &ResourceBinding,
    ) -> impl Iterator<Item = &'a SeenWork> {
        BindingIdentity::of(binding)
            .and_then(|owner| self.works.get(&owner))
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    /// Returns the clusters in which deleted Works of a binding have left their objects.
    pub(crate) fn left_by(&self, binding: &ResourceBinding) -> BTreeSet<ClusterName> {
        let left = BindingIdentity::of(binding).and_then(|owner| self.left.get(&owner));
        left.cloned().unwrap_or_default()
    }

    /// Drops the clusters of `left_by`: no member has anything of the binding.
    pub(crate) fn drop_left(&mut self, binding: &ResourceBinding) {
        if let Some(owner) = BindingIdentity::of(binding) {
            self.left.remove(&owner);
        }
    }

    /// Returns the Works of a binding, even if it is gone.
    pub(crate) fn works_with(&self, owner: &BindingIdentity) -> impl Iterator<Item = &SeenWork> {
        let works = self.works.get(owner).into_iter();
        works.flat_map(BTreeMap::values)
    }

    /// Returns the Works of missing bindings.
    pub(crate) fn works_without_binding(
        &self,
    ) -> impl Iterator<Item = (&BindingIdentity, Vec<&SeenWork>)> {
        let left = self.works.iter();
        let left = left.filter(|(owner, _)| !self.exists(owner));
        left.map(|(owner, works)| (owner, works.values().collect()))
    }

    /// Records the generation of an override policy, or its end; returns true if it changed.
    pub(crate) fn note_override(&mut self, policy: ObjectKey, generation: Option<i64>) -> bool {
        match generation {
            Some(generation) => {
                let before = self.overrides.insert(policy, generation);
                before != Some(generation)
            }
            None => self.overrides.remove(&policy).is_some(),
        }
    }

    /// Returns the generation of a policy that can override a job of `namespace`, if it exists.
    pub(crate) fn override_generation(
        &self,
        policy: &AppliedOverride,
        namespace: &str,
    ) -> Option<i64> {
        let key = ObjectKey {
            namespace: (!policy.cluster_wide).then(|| namespace.to_owned()),
            name: policy.name.clone(),
        };
        self.overrides.get(&key).copied()
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

fn job_key(namespace: Option<&str>, name: Option<&str>) -> JobKey {
    JobKey::new(namespace.unwrap_or_default(), name.unwrap_or_default())
}

fn object_key(metadata: &kube::core::ObjectMeta) -> ObjectKey {
    ObjectKey {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
