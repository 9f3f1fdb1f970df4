//! The usage and the bounds of a queue, for its status.

use crate::amounts::resource_ids::ResourceVec;
use crate::api::decision::{PlacedUsage, PoolUsage, QueueUsage};
use crate::api::job::JobState;
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::scopes::OVERALL;
use crate::quota::store::{Quota, ROOT};
use facts::{QueueName, ResourceName, Resources};

impl Quota {
    /// The overall charge of a queue.
    pub(crate) fn charged(&self, queue: &QueueName) -> Resources {
        let node = self.get(queue);
        let charged = node.map(|node| self.resource_ids.resources(&node.overall().charged));
        charged.unwrap_or_default()
    }

    /// The overall deserved amounts of a queue, in resources that are named.
    pub(crate) fn deserved(&self, queue: &QueueName) -> Resources {
        let node = self.get(queue);
        let deserved = node.map(|node| node.overall().bounds.deserved.named(&self.resource_ids));
        deserved.unwrap_or_default()
    }

    /// The overall real capability of a queue, in resources that are bounded.
    pub(crate) fn real_capability(&self, queue: &QueueName) -> Resources {
        let node = self.get(queue);
        let real = node.map(|node| node.overall().bounds.real.named(&self.resource_ids));
        real.unwrap_or_default()
    }

    /// The total of the usable nodes of all clusters.
    pub(crate) fn fleet(&self) -> Resources {
        let fleet = &self.scopes.get(OVERALL).fleet;
        self.resource_ids.resources(fleet)
    }

    /// True if a queue or one below it is charged.
    pub(crate) fn is_charged(&self, queue: &QueueName) -> bool {
        let node = self.get(queue);
        node.is_some_and(|node| node.counts.charged > 0)
    }

    /// The overall deserved amount of a resource less the usage of a queue, below zero if it uses
    /// more; `None` if it names no deserved amount.
    pub(crate) fn unused_deserved(&self, queue: &QueueName, name: &ResourceName) -> Option<i128> {
        let id = self.resource_ids.find(name)?;
        let id = Some(id).filter(|id| id.competes())?;
        let account = self.get(queue)?.overall();
        Some(account.bounds.deserved.get(id)? - account.charged.get(id))
    }

    /// As [`unused_deserved`](Self::unused_deserved), of the amount that the queue names itself: an inner queue that
    /// names none deserves what those below it deserve, and those that deserve nothing are charged to it, too.
    pub(crate) fn unused_named(&self, queue: &QueueName, name: &ResourceName) -> Option<i128> {
        let id = self.resource_ids.find(name)?;
        let id = Some(id).filter(|id| id.competes())?;
        let account = self.get(queue)?.overall();
        Some(account.named.deserved.get(id)? - account.charged.get(id))
    }

    /// The usage of a queue without its head; `None` if it neither exists nor has jobs.
    pub(crate) fn usage(&self, queue: &QueueName) -> Option<QueueUsage> {
        let id = self.id(queue)?;
        let node = self.node(id);
        let (ids, account) = (&self.resource_ids, node.overall());
        let count = |state| node.counts.by_state.get(state);
        let problem = self.problem(queue);
        Some(QueueUsage {
            allocated: ids.resources(&account.charged),
            deserved: account.bounds.deserved.named(ids),
            real_capability: account.bounds.real.named(ids),
            borrowed: ids.resources(&self.borrowed(node)),
            lent: ids.resources(&self.lent(id)),
            pools: self.pool_usage(node),
            decayed_usage: self.decayed_usage(node),
            pending: ids.resources(&node.counts.pending),
            placed: self.placed(node),
            unadmitted: Vec::new(),
            pending_jobs: count(JobState::Queued),
            admitted_jobs: count(JobState::Assumed).saturating_add(count(JobState::Placed)),
            running_jobs: count(JobState::Running),
            ending_jobs: count(JobState::Ending),
            finished_jobs: count(JobState::Finished),
            head: None,
            closed: problem.filter(|_| queue.as_str() != ROOT || node.fact.is_some()),
        })
    }

    /// The usage of a queue above its deserved amounts.
    fn borrowed(&self, node: &QueueNode) -> ResourceVec {
        let mut borrowed = ResourceVec::default();
        let used = node.overall().charged.iter();
        for (id, used) in used.filter(|(id, _)| id.competes()) {
            borrowed.set(id, (used - node.deserved_usage(id)).max(0));
        }
        borrowed
    }

    /// The part of a queue's unused deserved amounts that siblings use, its own or those of a queue
    /// above it.
    fn lent(&self, id: QueueId) -> ResourceVec {
        let mut used_by_others = ResourceVec::default();
        for (at, node) in self.upwards(id) {
            let siblings = node.parent.map(|parent| &self.node(parent).children);
            let unused = node.unused_deserved();
            if unused.is_empty() {
                continue;
            }
            let mut borrowed = ResourceVec::default();
            for sibling in siblings.into_iter().flatten().filter(|id| **id != at) {
                borrowed.add_all(&self.borrowed(self.node(*sibling)), 1);
            }
            for (id, unused) in unused.iter() {
                used_by_others.add(id, unused.min(borrowed.get(id)));
            }
        }
        let mut lent = ResourceVec::default();
        for (id, unused) in self.node(id).unused_deserved().iter() {
            lent.set(id, unused.min(used_by_others.get(id)));
        }
        lent
    }

    fn pool_usage(&self, node: &QueueNode) -> Vec<PoolUsage> {
        let bounds = node.policy.iter().flat_map(|policy| &policy.pools);
        let usages = bounds.filter_map(|bound| {
            let account = node.account(self.scopes.find(&bound.into())?)?;
            Some(PoolUsage {
                class: bound.class.clone(),
                clusters: bound.clusters.iter().flatten().cloned().collect(),
                allocated: self.resource_ids.resources(&account.charged),
                deserved: account.bounds.deserved.named(&self.resource_ids),
                real_capability: account.bounds.real.named(&self.resource_ids),
            })
        });
        usages.collect()
    }

    /// The charge of its own jobs by pool, in order of cluster and class.
    fn placed(&self, node: &QueueNode) -> Vec<PlacedUsage> {
        let own = node.own.pools.iter();
        let mut placed: Vec<PlacedUsage> = own
            .map(|(pool, sums)| {
                let (cluster, class) = self.scopes.pool(*pool).clone();
                PlacedUsage {
                    cluster,
                    class,
                    allocated: self.resource_ids.resources(sums),
                }
            })
            .collect();
        placed.sort_by(|a, b| (&a.cluster, &a.class).cmp(&(&b.cluster, &b.class)));
        placed
    }
}

impl QueueNode {
    /// The unused part of its overall deserved amounts.
    fn unused_deserved(&self) -> ResourceVec {
        let account = self.overall();
        let mut unused = ResourceVec::default();
        for (id, deserved) in account.bounds.deserved.iter() {
            unused.set(id, (deserved - account.charged.get(id)).max(0));
        }
        unused
    }
}
