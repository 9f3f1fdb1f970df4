//! Spare nodes: whole nodes that a queue keeps for its large gangs, so that a gang that loses a node finds
//! another one at once.
//!
//! - *When.* In each cluster where such a gang runs, as many nodes as the policy says, of those that are free or
//!   lent; no running job gives way for one. They stay while a gang that lost pods there is queued again.
//! - *For whom.* The controller of a gang starts pods in the place of those that were lost, and a gang that was
//!   evicted because it lost pods uses them when it starts again. Other new gangs do not.
//! - *Quota.* They count at their queue, like what a reservation withholds, and never beyond what the queue deserves,
//!   and those above it that name an amount: no other queue is kept from what it could reclaim. What the root and inner
//!   queues deserve without naming it is no bound: queues that deserve nothing are charged to it, and reclaimed first.
//! - *Lent.* Jobs that may be evicted at any time use them: preemptible ones without a minimum run time, of another
//!   queue or of lower priority than all these gangs. They are evicted when a gang needs the node.
//! - *No starvation.* A node that is reserved never becomes a spare one. A job that lacks them gets a reservation
//!   like any other: on other nodes, or if only these are enough, on these, for when their gangs have ended. While
//!   none of the gangs runs, the spare binds the jobs behind them only.

use crate::backfill::assume;
use crate::backfill::spare_quota::is_within_quota;
use crate::capacity::{NodeInfo, NodeView};
use crate::jobs::job::Job;
use crate::overlay::Overlay;
use crate::placement::request::Request;
use crate::reservation::spares::Spare;
use crate::reservation::store::ReservedNode;
use crate::state::Inputs;
use facts::matching::{Taint, TaintEffect};
use facts::{ClusterName, JobKey, NodeName, PoolClass, Progress, QueueName, Reason, SpareRule};
use std::collections::{BTreeMap, BTreeSet};

/// The large gangs of a queue in one cluster, and the classes of the nodes that they use there.
type GangsIn = BTreeMap<ClusterName, (BTreeSet<JobKey>, BTreeSet<PoolClass>)>;

/// The spares as they should be now.
pub(crate) fn spares_now(inputs: Inputs<'_>) -> Vec<Spare> {
    let mut spares: Vec<Spare> = Vec::new();
    let mut overlay = Overlay::default();
    for policy in inputs.quota.policies() {
        let Some(rule) = policy.spare.as_ref() else {
            continue;
        };
        if inputs.quota.problem(&policy.queue).is_some() {
            continue;
        }
        for (cluster, (gangs, classes)) in gangs_of(inputs, &policy.queue, rule) {
            let mut spare = Spare {
                queue: policy.queue.clone(),
                cluster,
                gangs,
                nodes: Vec::new(),
                lent: BTreeSet::new(),
            };
            let classes = rule
                .class
                .clone()
                .map_or(classes, |class| BTreeSet::from([class]));
            for (lent, node) in candidates(inputs, &spare, &classes, rule, &spares) {
                let name = node.node.clone();
                spare.nodes.push(node);
                spare.lent.extend((lent > 0).then(|| name.clone()));
                if !is_within_quota(inputs, &overlay, &spare) {
                    spare.nodes.pop();
                    spare.lent.remove(&name);
                    break;
                }
            }
            if !spare.nodes.is_empty() {
                overlay.keep_spare(inputs, &spare);
                spares.push(spare);
            }
        }
    }
    spares
}

/// The gangs of a queue for which nodes are kept, by cluster.
fn gangs_of(inputs: Inputs<'_>, queue: &QueueName, rule: &SpareRule) -> GangsIn {
    let mut gangs = GangsIn::new();
    for (_, key) in inputs.jobs.preemptible().of(queue) {
        let Some(released) = inputs.jobs.released(key) else {
            continue;
        };
        let shares = &released.admission.shares;
        let pods: u64 = shares.iter().map(|share| u64::from(share.replicas())).sum();
        if pods < u64::from(rule.for_gangs_of) {
            continue;
        }
        for share in shares {
            let (keys, classes) = gangs.entry(share.cluster.clone()).or_default();
            keys.insert(key.clone());
            classes.extend(share.charge.keys().cloned());
        }
    }
    let before = inputs.spares.iter().filter(|spare| spare.queue == *queue);
    for spare in before {
        let returning = spare.gangs.iter().filter(|key| returns(inputs, queue, key));
        let returning: BTreeSet<JobKey> = returning.cloned().collect();
        if !returning.is_empty() {
            let (keys, classes) = gangs.entry(spare.cluster.clone()).or_default();
            keys.extend(returning);
            classes.extend(spare.nodes.iter().map(|node| node.class.clone()));
        }
    }
    gangs
}

/// Returns true if a gang was evicted because it had lost pods, and is not running again yet.
fn returns(inputs: Inputs<'_>, queue: &QueueName, key: &JobKey) -> bool {
    let lost = |reason: Reason| matches!(reason, Reason::PodsLost | Reason::RoomLost);
    let Some(job) = inputs.jobs.get(key) else {
        return false;
    };
    match &job.released {
        Some(released) => {
            let cause = released.ending.as_ref().map(|(cause, _)| cause.reason);
            released.progress == Progress::Ending && cause.is_some_and(lost)
        }
        None => {
            let pending = job.derived.line.as_ref();
            pending.is_some_and(|entry| entry.queue == *queue)
                && job.cold.last.as_ref().is_some_and(|last| lost(last.reason))
        }
    }
}

/// The nodes for a spare, with the number of pods of other jobs on each: those that were chosen before, then the
/// ones with the fewest such pods, by name.
fn candidates(
    inputs: Inputs<'_>,
    spare: &Spare,
    classes: &BTreeSet<PoolClass>,
    rule: &SpareRule,
    others: &[Spare],
) -> Vec<(u32, ReservedNode)> {
    let most = usize::try_from(rule.nodes).unwrap_or(usize::MAX);
    let Some(room) = inputs.capacity.cluster(&spare.cluster) else {
        return Vec::new();
    };
    let before = inputs.spares.of(&spare.queue, &spare.cluster);
    let before = before.into_iter().flat_map(|before| &before.nodes);
    let before: BTreeSet<&NodeName> = before.map(|node| &node.node).collect();
    let taken = others.iter().flat_map(|other| &other.nodes);
    let taken = taken.filter(|node| node.cluster == spare.cluster);
    let taken: BTreeSet<&NodeName> = taken.map(|node| &node.node).collect();
    let usable = |node: &&NodeInfo| {
        let repels = |taint: &Taint| !matches!(taint.effect, TaintEffect::PreferNoSchedule);
        node.fact.usable
            && classes.contains(&node.fact.class)
            && !taken.contains(&node.fact.name)
            && !node.fact.taints.iter().any(repels)
    };
    let chosen = |node: &NodeInfo| {
        let lent = pods_lent(inputs, spare, node)?;
        Some((lent, whole(&spare.cluster, node)))
    };
    let kept = before.iter().filter_map(|name| room.nodes().get(*name));
    let mut found: Vec<(u32, ReservedNode)> = kept.filter(usable).filter_map(chosen).collect();
    found.truncate(most);
    if found.len() < most {
        let reserved = |node: &&NodeInfo| {
            let at = (&spare.cluster, &node.fact.name);
            inputs.reservations.kept_on(at.0, at.1).is_some()
        };
        let new = room.nodes().values().filter(usable);
        let new = new.filter(|node| !before.contains(&node.fact.name) && !reserved(node));
        let mut new: Vec<(u32, ReservedNode)> = new.filter_map(chosen).collect();
        new.sort_by(|a, b| (a.0, &a.1.node).cmp(&(b.0, &b.1.node)));
        new.truncate(most - found.len());
        found.extend(new);
    }
    found
}

/// The pods on a node that other jobs run there until they are evicted; `None` if something else has a part of the
/// node. Pods that belong to no job may use what is not a device.
fn pods_lent(inputs: Inputs<'_>, spare: &Spare, node: &NodeInfo) -> Option<u32> {
    let room = inputs.capacity.cluster(&spare.cluster)?;
    let mut lent = 0;
    for pod in room.pods_on(&node.fact.name) {
        let uses_it = match pod.job() {
            Some(key) => !lends_to(inputs, spare, key),
            None => node
                .device
                .as_ref()
                .is_some_and(|device| pod.request.amount_of(device).0 > 0),
        };
        if uses_it {
            return None;
        }
        lent += u32::from(pod.job().is_some());
    }
    for key in room.placed_on(&node.fact.name) {
        if lends_to(inputs, spare, key) {
            lent += 1;
        } else if !(spare.gangs.contains(key) && has_lost_pods(inputs, key)) {
            // What is held for a pod that a gang has lost is what the node is kept for.
            return None;
        }
    }
    Some(lent)
}

fn has_lost_pods(inputs: Inputs<'_>, key: &JobKey) -> bool {
    let released = inputs.jobs.released(key);
    released.is_some_and(|released| released.loss.is_some())
}

fn whole(cluster: &ClusterName, node: &NodeInfo) -> ReservedNode {
    ReservedNode {
        cluster: cluster.clone(),
        node: node.fact.name.clone(),
        class: node.fact.class.clone(),
        resources: node.fact.allocatable.clone(),
    }
}

/// Returns true if a job may use the nodes of a spare until they are needed.
fn lends_to(inputs: Inputs<'_>, spare: &Spare, key: &JobKey) -> bool {
    let Some(job) = inputs.jobs.get(key).filter(|_| !spare.gangs.contains(key)) else {
        return false;
    };
    let rules = inputs.quota.policy(job.queue_now());
    let rules = rules.map(|policy| policy.preemption).unwrap_or_default();
    let stays = (rules.allow_non_preemptible && !job.preemptible) || rules.min_runtime_ms > 0;
    let priority = |job: &Job| inputs.jobs.priority_of(job).unwrap_or_default();
    let lower = || {
        let gangs = spare.gangs.iter().filter_map(|key| inputs.jobs.get(key));
        gangs
            .map(priority)
            .min()
            .is_some_and(|least| priority(job) < least)
    };
    !stays && (*job.queue_now() != spare.queue || lower())
}

/// The spares that a request may not use.
pub(crate) struct BindingSpares<'a>(Vec<&'a Spare>);

pub(crate) fn binding<'a>(inputs: Inputs<'a>, request: Request<'_>) -> BindingSpares<'a> {
    let spares = inputs.spares.iter();
    BindingSpares(
        spares
            .filter(|spare| binds(inputs, spare, request))
            .collect(),
    )
}

fn binds(inputs: Inputs<'_>, spare: &Spare, request: Request<'_>) -> bool {
    let key = &request.rank.key;
    if spare.gangs.contains(key) || lends_to(inputs, spare, key) {
        return false;
    }
    let lines = spare.gangs.iter().map(|gang| inputs.jobs.line_of(gang));
    let mut pending = Vec::new();
    for line in lines {
        match line {
            Some(line) => pending.push(line),
            // One of them runs.
            None => return true,
        }
    }
    let here = (request.queue, request.rank);
    pending.iter().any(|line| {
        inputs
            .quota
            .compare((&line.queue, &line.rank), here)
            .is_lt()
    })
}

impl BindingSpares<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The words for them, to follow others.
    pub(crate) fn words(&self) -> String {
        let nodes: usize = self.0.iter().map(|spare| spare.nodes.len()).sum();
        let queues: BTreeSet<&str> = self.0.iter().map(|spare| spare.queue.as_str()).collect();
        let queues: Vec<&str> = queues.into_iter().collect();
        let queues = queues.join(" and ");
        match nodes {
            1 => format!("; 1 node is kept as a spare for large gangs of queue {queues}"),
            _ => format!("; {nodes} nodes are kept as spares for large gangs of queue {queues}"),
        }
    }
}

impl Overlay {
    /// In addition, without the spares that bind a request.
    pub(crate) fn with_spares(mut self, inputs: Inputs<'_>, request: Request<'_>) -> Self {
        for spare in binding(inputs, request).0 {
            self.keep_spare(inputs, spare);
        }
        self
    }
}

/// Returns true if the pods that a gang has lost in a cluster fit there once all that is terminating is gone.
pub(crate) fn comes_back(inputs: Inputs<'_>, key: &JobKey, cluster: &ClusterName) -> bool {
    let queue = inputs.jobs.get(key).map(|job| job.queue_now().clone());
    let spare = queue.and_then(|queue| inputs.spares.of(&queue, cluster));
    let spare = spare.filter(|spare| spare.gangs.contains(key));
    spare.is_some() && fits(inputs, key, cluster, &terminating(inputs))
}

/// The jobs on spare nodes that are evicted so that the lost pods of a gang fit again: on as few nodes as are enough,
/// and none if that does not help or is not needed.
pub(crate) fn lent_victims(
    inputs: Inputs<'_>,
    key: &JobKey,
    cluster: &ClusterName,
) -> BTreeSet<JobKey> {
    let none = BTreeSet::new();
    let queue = inputs.jobs.get(key).map(|job| job.queue_now());
    let spare = queue.and_then(|queue| inputs.spares.of(queue, cluster));
    let Some(spare) = spare.filter(|spare| spare.gangs.contains(key)) else {
        return none;
    };
    let lacks = inputs
        .jobs
        .released(key)
        .is_some_and(|released| released.loss.as_ref().is_some_and(|loss| !loss.devices));
    let mut overlay = terminating(inputs);
    if !lacks || fits(inputs, key, cluster, &overlay) {
        return none;
    }
    let ends = |job: &JobKey| {
        let released = inputs.jobs.released(job);
        released.is_none_or(|released| released.progress == Progress::Ending)
    };
    let mut victims = BTreeSet::new();
    let mut lent: Vec<(usize, BTreeSet<JobKey>)> = Vec::new();
    for name in &spare.lent {
        let on = crate::backfill::expected_start::jobs_on(inputs, cluster, name);
        let on: BTreeSet<JobKey> = on.into_keys().filter(|job| !ends(job)).cloned().collect();
        lent.push((on.len(), on));
    }
    lent.sort();
    for (_, on) in lent {
        for job in on {
            if victims.insert(job.clone()) {
                overlay.free(&inputs.capacity.holdings(&job));
            }
        }
        if fits(inputs, key, cluster, &overlay) {
            return victims;
        }
    }
    none
}

/// Returns what is free once all that is terminating is gone.
fn terminating(inputs: Inputs<'_>) -> Overlay {
    let mut overlay = Overlay::default();
    assume::terminating(inputs).for_each(|leaving| overlay.free(&leaving.nodes));
    overlay
}

/// Returns true if the pods of a job for which no node is assumed fit in a cluster.
fn fits(inputs: Inputs<'_>, key: &JobKey, cluster: &ClusterName, overlay: &Overlay) -> bool {
    let Some((demand, counts)) = inputs.capacity.unplaced_pods(key, cluster) else {
        return true;
    };
    let needs = counts.iter().map(|(index, count)| crate::capacity::Need {
        index: *index,
        role: &demand.roles[*index],
        count: *count,
    });
    let needs: Vec<_> = needs.collect();
    let packing = inputs.capacity.pack(cluster, &needs, NodeView::of(overlay));
    packing.lack.is_none()
}

/// Spares that are not as they should be, in words.
pub(crate) fn audit(inputs: Inputs<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for spare in inputs.spares.iter() {
        let said = format!("spare of queue {} in {}", spare.queue, spare.cluster);
        if spare.nodes.is_empty() || spare.gangs.is_empty() {
            wrong.push(format!(
                "{said}: {} nodes, for {:?}",
                spare.nodes.len(),
                spare.gangs
            ));
        }
        for node in &spare.nodes {
            if node.cluster != spare.cluster || !seen.insert((&node.cluster, &node.node)) {
                wrong.push(format!("{said}: node {} is another's", node.node));
            }
        }
        let nodes: BTreeSet<&NodeName> = spare.nodes.iter().map(|node| &node.node).collect();
        if !spare.lent.iter().all(|node| nodes.contains(node)) {
            wrong.push(format!("{said}: lent {:?}", spare.lent));
        }
    }
    wrong
}
