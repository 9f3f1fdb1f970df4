//! Charges what pods in members use beyond the charge of their jobs.
//!
//! A member may run more than any template says: its API server adds defaults and overheads, webhooks inject
//! sidecars, pods outlive their job or make others. So in each cluster a job is charged the largest of what was
//! admitted, what its Works request, and what its pods request that are bound and have not ended. The first two are
//! its own charge; the rest is charged here, also for a job that is pending, has ended or is forgotten, and for pods
//! of no known job in a managed namespace.
//!
//! Charges are computed before decisions, for the keys of which something has changed.

use crate::amounts::totals::ResourceTotals;
use crate::api::charge::{Pools, add_charge};
use crate::cycle::react::{Change, react};
use crate::jobs::excess::NOT_ADMITTED;
use crate::pod_charges::PodCharge;
use crate::quota::ChargeOwner;
use crate::state::{Engine, Inputs};
use facts::matching::OUT_OF_SERVICE;
use facts::{ClusterName, JobKey, PodFact, PoolClass, QueueName};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Amounts by class, for one cluster.
type ByClass = BTreeMap<PoolClass, ResourceTotals>;

/// A namespace is managed from now on, uses another queue by default, or is not managed any more.
pub(crate) fn observe_namespace(engine: &mut Engine, name: &Arc<str>, queue: Option<QueueName>) {
    if !engine.pod_charges.set_namespace(name, queue) {
        return;
    }
    let keys = engine.capacity.keys_of_pods();
    let keys: Vec<JobKey> = keys.filter(|key| key.namespace == *name).cloned().collect();
    keys.iter().for_each(|key| engine.pod_charges.note(key));
}

/// Makes the charges of all jobs with pods in a cluster be computed again.
pub(crate) fn note_cluster(engine: &mut Engine, cluster: &ClusterName) {
    for key in engine.capacity.keys_of_pods_in(cluster) {
        engine.pod_charges.note(&key);
    }
}

/// Makes the charge of a job's pods be computed again after a change of the job.
pub(crate) fn note_job(engine: &mut Engine, key: &JobKey) {
    if engine.capacity.has_pods(key) || engine.pod_charges.of(key).is_some() {
        engine.pod_charges.note(key);
    }
}

/// Returns true if another user than that of a job is charged for its pods.
pub(crate) fn is_of_another(inputs: Inputs<'_>, key: &JobKey) -> bool {
    let charged = inputs.pod_charges.of(key);
    let user = inputs.jobs.get(key).map(|job| &job.user);
    charged.is_some_and(|charged| user.is_some_and(|user| charged.user != *user))
}

/// Remembers the queue of a job that will be forgotten, if pods of it are left.
pub(crate) fn remember_queue(engine: &mut Engine, key: &JobKey) {
    let queue = engine.jobs.get(key).map(|job| job.queue_now().clone());
    if let Some(queue) = queue.filter(|_| engine.capacity.has_pods(key)) {
        engine.pod_charges.forget_job(key, queue);
    } else {
        note_job(engine, key);
    }
}

/// Computes the charges again that may have changed. Returns whether quota became free.
pub(crate) fn settle(engine: &mut Engine) -> bool {
    let mut freed = false;
    for key in engine.pod_charges.take_stale() {
        if engine.jobs.get(&key).is_some() || !engine.capacity.has_pods(&key) {
            engine.pod_charges.drop_forgotten(&key);
        }
        let now = charge_for_pods(engine.inputs(), &key);
        if engine.pod_charges.of(&key) == now.as_ref() {
            continue;
        }
        let before = engine.pod_charges.set(&key, now.clone());
        freed |= before.is_some();
        // What is charged more comes first, so that no queue is without charge in between.
        for (charge, sign) in now
            .iter()
            .map(|now| (now, 1))
            .chain(before.iter().map(|was| (was, -1)))
        {
            let owner = ChargeOwner {
                user: &charge.user,
                namespace: &key.namespace,
            };
            let (queue, freed) = (&charge.queue, sign < 0);
            engine.quota.charge(queue, owner, &charge.pools, sign);
            react(engine, Change::Usage { queue, freed });
            if !freed {
                react(engine, Change::OwnerCharged { queue, owner });
            }
        }
        engine.changed.jobs.insert(key);
    }
    freed
}

/// Returns what the pods of a key use beyond the charge of their job, and the queue to charge for that.
pub(crate) fn charge_for_pods(inputs: Inputs<'_>, key: &JobKey) -> Option<PodCharge> {
    let in_service = |pod: &&PodFact| {
        let cluster = inputs.capacity.cluster_fact(&pod.cluster);
        !cluster.is_some_and(|cluster| cluster.has_taint(OUT_OF_SERVICE))
    };
    let mut beyond = used(inputs.capacity.live_pods(key).filter(in_service));
    if beyond.is_empty() {
        return None;
    }
    let charge = inputs.jobs.charge_of(key);
    for ((cluster, _), resources) in charge.iter().flat_map(|(_, pools)| pools.iter()) {
        if let Some(used) = beyond.get_mut(cluster) {
            used.add(resources, -1);
        }
    }
    beyond.values_mut().for_each(ResourceTotals::drop_negative);
    beyond.retain(|_, more| !more.is_empty());
    if beyond.is_empty() {
        return None;
    }
    let job = inputs.jobs.get(key);
    let queue = match job {
        Some(job) => job.queue_now(),
        None => inputs.pod_charges.queue_of_unknown(key)?,
    };
    let charged = charge.map(|(_, pools)| &**pools);
    let mut pools = Pools::new();
    for (cluster, more) in beyond {
        let by_class = by_class(inputs, key, &cluster, charged);
        for (class, resources) in divide(more, by_class) {
            add_charge(&mut pools, &cluster, &class, &resources.to_resources());
        }
    }
    Some(PodCharge {
        queue: queue.clone(),
        user: Arc::clone(job.map_or(&key.namespace, |job| &job.user)),
        pools: Arc::new(pools),
    })
}

/// Returns what pods use, by cluster.
fn used<'a>(pods: impl Iterator<Item = &'a PodFact>) -> BTreeMap<ClusterName, ResourceTotals> {
    let mut used: BTreeMap<ClusterName, ResourceTotals> = BTreeMap::new();
    for pod in pods {
        match used.get_mut(&pod.cluster) {
            Some(sum) => sum.add(&pod.request, 1),
            None => drop(used.insert(pod.cluster.clone(), ResourceTotals::from(&pod.request))),
        }
    }
    used
}

/// Returns what the pods of a key in a cluster use beyond what is charged there, class by class.
fn by_class(
    inputs: Inputs<'_>,
    key: &JobKey,
    cluster: &ClusterName,
    charged: Option<&Pools>,
) -> ByClass {
    let mut classes = ByClass::new();
    for pod in inputs
        .capacity
        .live_pods(key)
        .filter(|pod| pod.cluster == *cluster)
    {
        let class = pod
            .node
            .as_ref()
            .and_then(|node| inputs.capacity.class_of(cluster, node));
        let class = class
            .cloned()
            .unwrap_or_else(|| PoolClass::from(NOT_ADMITTED));
        classes.entry(class).or_default().add(&pod.request, 1);
    }
    for ((_, class), resources) in charged
        .into_iter()
        .flatten()
        .filter(|((of, _), _)| of == cluster)
    {
        if let Some(used) = classes.get_mut(class) {
            used.add(resources, -1);
        }
    }
    classes.values_mut().for_each(ResourceTotals::drop_negative);
    classes
}

/// Divides `more` among classes, each at most what it uses beyond its charge. These amounts together are never less
/// than `more`: a class with less than its charge counts as nothing here.
fn divide(more: ResourceTotals, classes: ByClass) -> ByClass {
    let mut left = more;
    let mut divided = ByClass::new();
    for (class, beyond) in classes {
        let mut part = ResourceTotals::default();
        for (name, amount) in beyond.iter() {
            part.add_amount(name, amount.min(left.get(name).max(0)));
        }
        left.add_totals(&part, -1);
        if !part.is_empty() {
            divided.insert(class, part);
        }
    }
    divided
}
