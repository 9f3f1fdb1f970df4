//! NamespaceQueues: what each queue is to the users of a namespace, who may read no queue, policy or pool.
//!
//! A managed namespace has one for its default queue and for each queue that has jobs of it. Names of other tenants are
//! hidden as everywhere; sums over all namespaces are shown.

use crate::facts::running::sum;
use crate::facts::view::View;
use crate::status::namespace_usage::{JobPart, NamespacePart};
use crate::status::queue_status::{self, Said};
use crate::status::{Publishing, target_in};
use crds::capacity_policy::CapacityPolicy;
use crds::conditions::{self, Statement};
use crds::loose::QuantityText;
use crds::namespace_queue::{NamespaceQueue, NamespaceQueueStatus, NamespaceResource};
use engine::facts::Share;
use engine::{
    Amount, JobKey, JobState, QueueName, QueueUsage, Reason, ResourceName, Resources, Time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use kube::Resource;
use kube::api::ApiResource;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many pending jobs of a queue are searched for the first of a namespace.
const SEARCHED: usize = 100;

impl Publishing<'_> {
    /// Notes what a job is to its namespace.
    pub(super) fn note_part(&mut self, key: &JobKey) {
        let part = part_of(self.reconciler.view(), key);
        self.publisher.due.namespaces.note(key, part);
    }

    /// Publishes the queues of the namespaces that are due.
    pub(super) fn publish_namespaces(&mut self, now: Time) {
        let mirror = &self.reconciler.mirror;
        let usage = &mut self.publisher.due.namespaces;
        let fleet = self.reconciler.engine.fleet();
        let has_changed = usage.look_at_free(now, || {
            let pools = fleet.pools();
            sum(pools.iter().map(|pool| &pool.free))
        });
        let known = mirror.namespace_queues();
        if has_changed {
            for (namespace, _) in known.keys() {
                usage.namespace(namespace);
            }
        }
        let Some((mut namespaces, queues)) = usage.take_due(now, known.len()) else {
            return;
        };
        let of_queues = known.keys().filter(|(_, queue)| queues.contains(queue));
        namespaces.extend(of_queues.map(|(namespace, _)| Arc::from(&**namespace)));
        for (name, fact) in mirror.namespaces() {
            if fact.managed && queues.contains(&QueueName::new(fact.queue())) {
                namespaces.insert(Arc::from(&**name));
            }
        }
        // What a queue uses has its first job explained, which costs more than all else here.
        let mut usages = BTreeMap::new();
        for namespace in namespaces {
            self.publish_namespace(&namespace, &mut usages, now);
        }
    }

    fn publish_namespace(
        &mut self,
        namespace: &str,
        usages: &mut BTreeMap<QueueName, QueueUsage>,
        now: Time,
    ) {
        let mirror = &self.reconciler.mirror;
        let fact = mirror.namespaces().get(namespace);
        let Some(fact) = fact.filter(|fact| !fact.terminating) else {
            return; // they go with it
        };
        let mut parts = match fact.managed {
            true => self.publisher.due.namespaces.of(namespace),
            false => BTreeMap::new(),
        };
        if fact.managed {
            parts.entry(QueueName::new(fact.queue())).or_default();
        }
        parts.retain(|queue, _| mirror.queues().contains_key(queue));
        let kind = ApiResource::erase::<NamespaceQueue>(&());
        for (queue, part) in &parts {
            let key = (namespace.to_owned(), queue.clone());
            let Some(seen) = mirror.namespace_queues().get(&key) else {
                let object = json!({
                    "apiVersion": NamespaceQueue::api_version(&()),
                    "kind": NamespaceQueue::kind(&()),
                    "metadata": {"namespace": namespace, "name": queue.as_str()},
                    "spec": {},
                });
                let objects = &self.publisher.objects;
                objects.apply(&kind, Some(namespace), queue.as_str(), object);
                continue; // its status follows once it exists
            };
            let view = self.reconciler.view();
            let usage = usages
                .entry(queue.clone())
                .or_insert_with(|| view.engine.queue_usage(queue).unwrap_or_default());
            let free = self.publisher.due.namespaces.free();
            let status = status(view, seen, (namespace, queue), (part, usage, free), now);
            if seen.status.as_ref() != Some(&status) {
                let target = target_in::<NamespaceQueue>(Some(namespace), queue.as_str());
                let mut status = json!(status);
                // A merge patch removes a field only if it says so.
                for field in ["pendingAhead", "lastPendingStart"] {
                    if status.get(field).is_none() {
                        status[field] = Value::Null;
                    }
                }
                self.publisher
                    .status
                    .write(target, json!({ "status": status }));
            }
        }
        let from = (namespace.to_owned(), QueueName::new(""));
        let here = mirror.namespace_queues().range(from..);
        for ((_, queue), _) in here.take_while(|((of, _), _)| of == namespace) {
            if !parts.contains_key(queue) {
                self.publisher
                    .objects
                    .delete(&kind, Some(namespace), queue.as_str());
            }
        }
    }
}

/// Returns what a job is to its namespace; none if nothing is known of it.
fn part_of(view: View<'_>, key: &JobKey) -> Option<JobPart> {
    let job = view.engine.job(key)?;
    let amount = match (job.state, job.admission) {
        (JobState::Finished, _) => Resources::new(),
        (_, Some(admission)) => {
            let charges = admission
                .shares
                .iter()
                .flat_map(|share: &Share| share.charge.values());
            let excess = view
                .engine
                .excess(key)
                .into_iter()
                .flat_map(BTreeMap::values);
            sum(charges.chain(excess))
        }
        (_, None) => view.last_facts.get(key)?.demand.total().unwrap_or_default(),
    };
    Some(JobPart {
        queue: job.queue.clone(),
        state: job.state,
        amount,
    })
}

/// Returns the status of a queue for a namespace in which its jobs are `part`.
fn status(
    view: View<'_>,
    seen: &NamespaceQueue,
    (namespace, queue): (&str, &QueueName),
    (part, usage, free): (&NamespacePart, &QueueUsage, &Resources),
    now: Time,
) -> NamespaceQueueStatus {
    let policy = view.mirror.policies().get(queue);
    let mut conditions = seen.status.clone().unwrap_or_default().conditions;
    let (type_, holds, reason, message) = open(view, namespace, queue, usage);
    let statement = Statement {
        type_,
        holds: Some(holds),
        reason: &reason,
        message: &message,
    };
    let (generation, at) = (seen.metadata.generation, crds::record::timestamp(now));
    conditions::set(&mut conditions, &statement, generation, at);
    let mut pending = view.engine.first_pending(queue, SEARCHED);
    let ahead = pending.position(|job| &*job.namespace == namespace);
    let last_start = last_pending_start(view, queue).filter(|start| start.0 > at);
    NamespaceQueueStatus {
        conditions,
        resources: resources(policy, part, usage, free),
        counts: part.counts.clone(),
        queue_pending: usage.pending_jobs.into(),
        pending_ahead: ahead.and_then(|ahead| i64::try_from(ahead).ok()),
        last_pending_start: last_start,
    }
}

/// Returns the latest expected start of the last pending job of a queue of which one is shown. It is what the job's
/// PodGroup shows, and not a fresh estimate, so that it changes as seldom.
fn last_pending_start(view: View<'_>, queue: &QueueName) -> Option<MetaTime> {
    let shown = |job: &JobKey| {
        let status = view.mirror.podgroups().get(job)?.status.as_ref()?;
        status.federation.as_ref()?.start.as_ref()?.latest.clone()
    };
    let pending = view.engine.first_pending(queue, SEARCHED);
    pending.filter_map(shown).last()
}

/// Returns whether jobs of a namespace may be admitted from a queue, and why not.
fn open(view: View<'_>, namespace: &str, queue: &QueueName, usage: &QueueUsage) -> Said {
    let reader = JobKey::of_namespace(namespace);
    let (type_, holds, reason, message) = queue_status::open(usage);
    if !holds {
        return (type_, holds, reason, view.discreet(&reader, &message));
    }
    let labels = view.namespace_of(&reader).labels;
    let closed = view.mirror.queueing.closed_to(queue, namespace, &labels);
    match closed.filter(|_| view.rights.of(namespace, queue) != Some(true)) {
        Some(why) => (type_, false, Reason::QueueNotPermitted.to_string(), why),
        None => (type_, holds, reason, message),
    }
}

/// Returns every resource that is limited, used or requested.
fn resources(
    policy: Option<&CapacityPolicy>,
    part: &NamespacePart,
    usage: &QueueUsage,
    free: &Resources,
) -> Vec<NamespaceResource> {
    let limits = policy.map(|policy| policy.to_fact(None).limits.resources_per_namespace);
    let limits = limits.unwrap_or_default();
    let lists = [
        &part.used,
        &part.pending,
        &usage.real_capability,
        &usage.deserved,
        &limits,
    ];
    let names: BTreeSet<&ResourceName> = lists
        .into_iter()
        .flat_map(|list| list.iter().map(|(name, _)| name))
        .collect();
    let resource = |name: &ResourceName| {
        let text = |amount: Amount| QuantityText(name.format(amount));
        let left = |limits: &Resources, used: &Resources| {
            let limit = limits.get(name)?;
            Some(Amount(
                limit.0.saturating_sub(used.amount_of(name).0).max(0),
            ))
        };
        let by_queue = left(&usage.real_capability, &usage.allocated);
        let by_namespace = left(&limits, &part.used);
        NamespaceResource {
            name: name.to_string(),
            used: text(part.used.amount_of(name)),
            pending: text(part.pending.amount_of(name)),
            limit: limits.get(name).map(text),
            queue_used: text(usage.allocated.amount_of(name)),
            queue_deserved: usage.deserved.get(name).map(text),
            queue_limit: usage.real_capability.get(name).map(text),
            free: by_queue.into_iter().chain(by_namespace).min().map(text),
            free_in_clusters: free.get(name).map(text),
        }
    };
    names.into_iter().map(resource).collect()
}
