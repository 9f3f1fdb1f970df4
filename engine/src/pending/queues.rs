//! Waiting jobs in line: by queue, grouped by what they want, parked until that may be had.
//!
//! What holds for the first job of a group holds for those behind it, so a group is evaluated by
//! its first, sleeps as one and wakes as one. A sleeping group is named in the list of each
//! thing it waits for.

use crate::amounts::hashed::{Hashed, HashedSet};
use crate::amounts::resources::ResourceName;
use crate::api::ids::{PoolClass, QueueName};
use crate::api::job::QueueOrder;
use crate::api::reason::Reason;
use crate::pending::inadmissible::{Inadmissible, RequeueCondition};
use crate::pending::pending_queue::{ClassState, PendingQueue};
use crate::pending::shapes::ShapeId;
use crate::quota::QueueId;
use std::collections::{BTreeMap, BTreeSet};

/// All waiting jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingQueues {
    pending_queues: Hashed<QueueName, PendingQueue>,
    inadmissible_by: BTreeMap<RequeueCondition, BTreeSet<(QueueName, ShapeId)>>,
    /// Groups that were woken since this was last taken.
    woken: BTreeSet<(QueueName, ShapeId)>,
    /// Queues whose first job to be evaluated may be another than when this was last taken.
    dirty: BTreeSet<QueueName>,
    /// What groups that are active want, and in which queues.
    ready: BTreeMap<ShapeId, HashedSet<QueueId>>,
    /// What those want in each queue for whom something may be kept.
    fronts: BTreeMap<QueueName, BTreeSet<ShapeId>>,
    /// In how many queues each of that is wanted so.
    in_window: BTreeMap<ShapeId, usize>,
}

impl PendingQueues {
    pub(crate) fn pending_queue(&self, queue: &QueueName) -> Option<&PendingQueue> {
        self.pending_queues.get(queue)
    }

    /// In no order.
    pub(crate) fn pending_queues(&self) -> impl Iterator<Item = (&QueueName, &PendingQueue)> {
        self.pending_queues.iter()
    }

    /// Queues whose first job to be evaluated may be another than when this was last asked.
    pub(crate) fn take_dirty(&mut self) -> BTreeSet<QueueName> {
        std::mem::take(&mut self.dirty)
    }

    /// Whether [`Self::take_dirty`] would name any.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// A job joins the line of a queue, which keeps its number as long as it has jobs. Its group
    /// wakes if it now stands first in it.
    pub(crate) fn insert(
        &mut self,
        queue: &QueueName,
        id: QueueId,
        shape: ShapeId,
        rank: &QueueOrder,
    ) {
        self.mark_dirty(queue);
        let pending_queue = self.pending_queues.entry(queue.clone());
        let pending_queue = pending_queue.or_insert_with(|| PendingQueue::new(id));
        pending_queue.ranks.insert(rank.clone());
        let group = pending_queue.groups.entry(shape).or_default();
        let before = group.jobs.first().cloned();
        group.jobs.insert(rank.clone());
        if before.as_ref().is_none_or(|first| rank < first) {
            let was_active = pending_queue.unlist(shape, before);
            let id = pending_queue.id;
            self.note_ready(id, shape, was_active, false);
            self.activate(queue, shape);
        }
    }

    /// Notes what those want in a queue for whom something may be kept.
    pub(crate) fn note_fronts(&mut self, queue: &QueueName, shapes: BTreeSet<ShapeId>) {
        if self.fronts.get(queue).unwrap_or(&BTreeSet::new()) == &shapes {
            return;
        }
        for shape in self.fronts.remove(queue).into_iter().flatten() {
            if let Some(count) = self.in_window.get_mut(&shape) {
                *count -= 1;
                if *count == 0 {
                    self.in_window.remove(&shape);
                }
            }
        }
        for shape in &shapes {
            *self.in_window.entry(*shape).or_default() += 1;
        }
        if !shapes.is_empty() {
            self.fronts.insert(queue.clone(), shapes);
        }
    }

    /// The queues with jobs in their reservation window.
    pub(crate) fn with_window(&self) -> impl Iterator<Item = &QueueName> {
        self.fronts.keys()
    }

    /// Whether anybody wants this for whom something may be kept.
    pub(crate) fn is_in_window(&self, shape: ShapeId) -> bool {
        self.in_window.contains_key(&shape)
    }

    /// What groups that are active want, and in which queues.
    pub(crate) fn ready(&self) -> impl Iterator<Item = (ShapeId, &HashedSet<QueueId>)> {
        self.ready.iter().map(|(shape, queues)| (*shape, queues))
    }

    /// The queues in which somebody active wants this, if any.
    pub(crate) fn ready_in(&self, shape: ShapeId) -> Option<&HashedSet<QueueId>> {
        self.ready.get(&shape)
    }

    /// What those want for whom something may be kept.
    pub(crate) fn in_window(&self) -> impl Iterator<Item = ShapeId> {
        self.in_window.keys().copied()
    }

    fn note_ready(&mut self, queue: QueueId, shape: ShapeId, was: bool, is: bool) {
        if is && !was {
            let queues = self.ready.entry(shape).or_default();
            queues.insert(queue);
        }
        if was
            && !is
            && let Some(queues) = self.ready.get_mut(&shape)
        {
            queues.remove(&queue);
            if queues.is_empty() {
                self.ready.remove(&shape);
            }
        }
    }

    /// A job leaves the line. Those who stand first then are evaluated again.
    pub(crate) fn remove(&mut self, queue: &QueueName, shape: ShapeId, rank: &QueueOrder) {
        self.mark_dirty(queue);
        let Some(pending_queue) = self.pending_queues.get_mut(queue) else {
            return;
        };
        let head_of_parked = pending_queue
            .admissible_later
            .first()
            .is_some_and(|(first, _)| first == rank);
        pending_queue.ranks.remove(rank);
        let Some(group) = pending_queue.groups.get_mut(&shape) else {
            return;
        };
        let before = group.jobs.first().cloned();
        group.jobs.remove(rank);
        if before.as_ref() == Some(rank) {
            let was_active = pending_queue.unlist(shape, before);
            let id = pending_queue.id;
            self.note_ready(id, shape, was_active, false);
            self.activate(queue, shape);
        }
        if head_of_parked {
            self.activate_head(queue);
        }
        let pending_queue_is_empty = self
            .pending_queues
            .get(queue)
            .is_some_and(|pending_queue| pending_queue.ranks.is_empty());
        if pending_queue_is_empty {
            self.pending_queues.remove(queue);
        }
    }

    /// Puts a group to sleep. Whether its reason is another than when it slept last.
    pub(crate) fn sleep(&mut self, queue: &QueueName, shape: ShapeId, sleep: Inadmissible) -> bool {
        let Some(pending_queue) = self.pending_queues.get_mut(queue) else {
            return false;
        };
        let Some(group) = pending_queue.groups.get_mut(&shape) else {
            return false;
        };
        let changed = group.last.replace(sleep.reason) != Some(sleep.reason);
        let first = group.jobs.first().cloned();
        for wake in &sleep.conditions {
            let inadmissible_by = self.inadmissible_by.entry(wake.clone()).or_default();
            inadmissible_by.insert((queue.clone(), shape));
        }
        let admissible_later = sleep.admissible_later;
        group.state = ClassState::Parked(sleep);
        let was_active = pending_queue.unlist(shape, first.clone());
        if let Some(first) = first.filter(|_| admissible_later) {
            pending_queue.admissible_later.insert((first, shape));
        }
        let id = pending_queue.id;
        self.note_ready(id, shape, was_active, false);
        self.mark_dirty(queue);
        changed
    }

    /// Wakes all that wait for `wake`.
    pub(crate) fn wake(&mut self, wake: &RequeueCondition) {
        for (queue, shape) in self.inadmissible_by.remove(wake).unwrap_or_default() {
            self.activate(&queue, shape);
        }
    }

    /// Has a parked class wait for another condition, too.
    pub(crate) fn wait_also(
        &mut self,
        queue: &QueueName,
        shape: ShapeId,
        condition: RequeueCondition,
    ) {
        let pending_queue = self.pending_queues.get_mut(queue);
        let class = pending_queue.and_then(|pending_queue| pending_queue.groups.get_mut(&shape));
        if let Some(ClassState::Parked(parked)) = class.map(|class| &mut class.state) {
            let waiting = self.inadmissible_by.entry(condition.clone()).or_default();
            waiting.insert((queue.clone(), shape));
            parked.conditions.push(condition);
        }
    }

    /// Rechecks all that wait for a condition.
    pub(crate) fn recheck_waiting(&mut self, condition: &RequeueCondition) {
        for (queue, shape) in self.inadmissible_by.remove(condition).unwrap_or_default() {
            self.call(&queue, shape);
        }
    }

    /// Wakes those who wait for no more headroom of a queue's bounds than there is.
    pub(crate) fn wake_for_headroom(
        &mut self,
        queue: &QueueName,
        headroom: impl Fn(Option<&PoolClass>, &ResourceName) -> i128,
    ) {
        let first = RequeueCondition::Headroom {
            queue: queue.clone(),
            class: None,
            resource: ResourceName::new(""),
            needs: i128::MIN,
        };
        let of_queue = self.inadmissible_by.range(first..).map(|(wake, _)| wake);
        let may = of_queue
            .map_while(|wake| match wake {
                RequeueCondition::Headroom {
                    queue: of,
                    class,
                    resource,
                    needs,
                } if of == queue => Some((wake, class, resource, needs)),
                _ => None,
            })
            .filter(|(_, class, resource, needs)| headroom(class.as_ref(), resource) >= **needs)
            .map(|(wake, ..)| wake.clone());
        for wake in may.collect::<Vec<_>>() {
            self.wake(&wake);
        }
    }

    /// The groups that wait for room on a node, by what they want.
    pub(crate) fn parked_for_capacity(&self) -> impl Iterator<Item = (&QueueName, ShapeId)> {
        let inadmissible_by = self
            .inadmissible_by
            .get(&RequeueCondition::Room)
            .into_iter()
            .flatten();
        inadmissible_by.map(|(queue, shape)| (queue, *shape))
    }

    /// Wakes those of them for whom there may be some.
    pub(crate) fn wake_for_room(&mut self, may: impl Fn(ShapeId) -> bool) {
        let woken: Vec<(QueueName, ShapeId)> = self
            .parked_for_capacity()
            .filter(|(_, shape)| may(*shape))
            .map(|(queue, shape)| (queue.clone(), shape))
            .collect();
        for (queue, shape) in woken {
            self.activate(&queue, shape);
        }
    }

    /// Notes what stops a group that stays active. Whether that is another reason than before.
    pub(crate) fn note_reason(
        &mut self,
        queue: &QueueName,
        shape: ShapeId,
        reason: Reason,
    ) -> bool {
        let pending_queue = self.pending_queues.get_mut(queue);
        let group = pending_queue.and_then(|pending_queue| pending_queue.groups.get_mut(&shape));
        group.is_some_and(|group| group.last.replace(reason) != Some(reason))
    }

    /// Notes that the first of a group was evaluated, and stays active.
    pub(crate) fn note_evaluated(&mut self, queue: &QueueName, shape: ShapeId) {
        let pending_queue = self.pending_queues.get_mut(queue);
        let class = pending_queue.and_then(|pending_queue| pending_queue.groups.get_mut(&shape));
        if let Some(class) = class {
            class.state = ClassState::ShapeInfeasible;
        }
    }

    /// Wakes one group, and has its first evaluated whatever is known of the room for what it wants.
    pub(crate) fn call(&mut self, queue: &QueueName, shape: ShapeId) {
        self.activate(queue, shape);
        let pending_queue = self.pending_queues.get_mut(queue);
        let class = pending_queue.and_then(|pending_queue| pending_queue.groups.get_mut(&shape));
        if let Some(class) = class {
            class.state = ClassState::Recheck;
        }
    }

    /// Wakes all that wait for `wake` in other queues than one.
    pub(crate) fn wake_others(&mut self, wake: &RequeueCondition, queue: &QueueName) {
        let inadmissible_by: Vec<(QueueName, ShapeId)> = self
            .inadmissible_by
            .get(wake)
            .into_iter()
            .flatten()
            .filter(|(parked_class, _)| parked_class != queue)
            .cloned()
            .collect();
        for (parked_class, shape) in inadmissible_by {
            self.activate(&parked_class, shape);
        }
    }

    /// Wakes every group of a queue, and of none other.
    pub(crate) fn wake_queue(&mut self, queue: &QueueName) {
        let pending_queue = self.pending_queues.get(queue);
        let shapes: Vec<ShapeId> = pending_queue
            .into_iter()
            .flat_map(|pending_queue| pending_queue.groups.keys())
            .copied()
            .collect();
        for shape in shapes {
            self.activate(queue, shape);
        }
    }

    /// Wakes the group whose first stands first among the parked classes of a queue.
    pub(crate) fn activate_head(&mut self, queue: &QueueName) {
        let head = self
            .pending_queues
            .get(queue)
            .and_then(|pending_queue| pending_queue.admissible_later.first());
        if let Some((_, shape)) = head.cloned() {
            self.activate(queue, shape);
        }
    }

    /// Wakes one group, whether it sleeps or not.
    pub(crate) fn activate(&mut self, queue: &QueueName, shape: ShapeId) {
        let Some(pending_queue) = self.pending_queues.get_mut(queue) else {
            return;
        };
        let Some(group) = pending_queue.groups.get_mut(&shape) else {
            return;
        };
        let woken = match group.state {
            ClassState::Recheck => ClassState::Recheck,
            _ => ClassState::Woken,
        };
        if let ClassState::Parked(sleep) = std::mem::replace(&mut group.state, woken) {
            self.woken.insert((queue.clone(), shape));
            for wake in sleep.conditions {
                if let Some(inadmissible_by) = self.inadmissible_by.get_mut(&wake) {
                    inadmissible_by.remove(&(queue.clone(), shape));
                    if inadmissible_by.is_empty() {
                        self.inadmissible_by.remove(&wake);
                    }
                }
            }
        }
        let first = group.jobs.first().cloned();
        let was_active = pending_queue.unlist(shape, first.clone());
        let is_active = first.is_some();
        match first {
            Some(first) => {
                pending_queue.active.insert((first, shape));
            }
            None => {
                pending_queue.groups.remove(&shape);
            }
        }
        let id = pending_queue.id;
        self.note_ready(id, shape, was_active, is_active);
        self.mark_dirty(queue);
    }

    /// Groups that were woken since the last call.
    pub(crate) fn take_woken(&mut self) -> BTreeSet<(QueueName, ShapeId)> {
        std::mem::take(&mut self.woken)
    }

    fn mark_dirty(&mut self, queue: &QueueName) {
        if !self.dirty.contains(queue) {
            self.dirty.insert(queue.clone());
        }
    }
}

#[cfg(test)]
mod tests;
