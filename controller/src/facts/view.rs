//! What the facts of jobs are computed from, all of it read only.

use crate::ending_nodes::EndingNodes;
use crate::facts::holds;
use crate::facts::job::{self, Permission, QueueRules, ResolvedJob};
use crate::facts::member_rules::KnownMemberRules;
use crate::facts::queue_rights::QueueRights;
use crate::mirror::Mirror;
use crate::mirror::binding::own_record;
use crate::mirror::namespace::NamespaceFact;
use crate::mirror::seen_work::SeenWork;
use crds::capacity_policy::CapacityPolicy;
use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::AvoidedByJob;
use engine::facts::{Filters, JobFact, Split};
use engine::matching::ends_toleration;
use engine::{ClusterName, Engine, JobKey, QueueName};
use std::collections::{BTreeSet, HashMap};
use workload::{Addresses, Meeting};

/// See the module's documentation.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) mirror: &'a Mirror,
    pub(crate) engine: &'a Engine,
    /// Which namespaces may use which queues.
    pub(crate) rights: &'a QueueRights,
    /// The nodes that end at a known time.
    pub(crate) ending_nodes: &'a EndingNodes,
    /// What members apply to pods before they store them.
    pub(crate) member_rules: &'a KnownMemberRules,
    /// The fact of each job that the engine has.
    pub(crate) last_facts: &'a HashMap<JobKey, JobFact>,
}

impl View<'_> {
    /// Returns the namespace of a job; an empty one if it was not seen.
    pub(crate) fn namespace_of(&self, key: &JobKey) -> NamespaceFact {
        self.mirror
            .namespaces()
            .get(&*key.namespace)
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the job from its template and binding, once the template has been seen. What only the reconciler knows
    /// of it is left out.
    pub(crate) fn resolved_job(
        &self,
        key: &JobKey,
        binding: &ResourceBinding,
        namespace: &NamespaceFact,
    ) -> Option<ResolvedJob> {
        let template = self.mirror.template_of(binding)?;
        let permitted = |queue: &QueueName| self.permission(&key.namespace, namespace, queue);
        let class_refused = |queue: &QueueName, classes: &BTreeSet<String>| {
            self.mirror.queueing.refused_class(queue, classes)
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
        let claimed = |template: &str| self.mirror.claims.claimed_by(key, template);
        let mut job = job::job(key, binding, template, namespace, rules, &claimed);
        if job.fact.hold.is_none() {
            let preserved = holds::preserved(binding);
            job.fact.hold = preserved.or_else(|| holds::still_overridden(self.mirror, binding));
        }
        self.member_rules.apply(key, binding, template, &mut job);
        self.let_end(&mut job.fact);
        if let Some(record) = own_record(binding) {
            AvoidedByJob::keep_off(&record.avoided_nodes, &mut job.fact.demand);
        }
        Some(job)
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
        let Some(why) = self
            .mirror
            .queueing
            .closed_to(queue, name, &namespace.labels)
        else {
            return Permission::Granted;
        };
        match self.rights.of(name, queue) {
            Some(true) => Permission::Granted,
            Some(false) => Permission::Refused(why),
            None => Permission::Unknown,
        }
    }

    /// Returns why pods of a job of `queue` could not find each other from every cluster, if so.
    fn rendezvous_problem(&self, queue: &QueueName, meeting: Meeting) -> Option<String> {
        let Some((name, addresses)) = self.addresses(queue) else {
            return Some(format!(
                "spec.placement.addresses of capacitypolicy {queue}, or of one above it, does not say how its pods reach those of other clusters"
            ));
        };
        let missing = addresses.missing(self.engine.fleet().cluster_names(), meeting)?;
        let which = match meeting {
            Meeting::All => " with {host} or {service} in it, for each of its pods to be found",
            Meeting::Nobody | Meeting::First => "",
        };
        Some(format!(
            "spec.placement.addresses of capacitypolicy {name} has no address for cluster {missing}{which}"
        ))
    }

    /// Returns the addresses that apply to a queue, its own or those of the nearest queue above, and that
    /// queue.
    pub(crate) fn addresses(&self, queue: &QueueName) -> Option<(QueueName, Addresses)> {
        let mut seen = BTreeSet::new();
        let mut name = Some(queue.clone());
        while let Some(queue) = name.filter(|queue| seen.insert(queue.clone())) {
            let policy = self.mirror.policies().get(&queue);
            let addresses = policy.map(|policy| policy.addresses());
            if let Some(addresses) = addresses.filter(|addresses| !addresses.is_empty()) {
                return Some((queue, addresses));
            }
            let above = self.mirror.queues().get(&queue);
            name = above.and_then(|queue| queue.spec.parent.as_ref().map(QueueName::new));
        }
        None
    }

    /// Returns true if a Work is being deleted in a cluster that is out of service: nobody waits for its pods.
    pub(crate) fn is_given_up(&self, work: &SeenWork) -> bool {
        let cluster = self
            .engine
            .fleet()
            .cluster(&ClusterName::new(&work.cluster));
        work.deleting
            && cluster.is_some_and(|cluster| cluster.has_taint(names::OUT_OF_SERVICE_ANNOTATION))
    }
}
