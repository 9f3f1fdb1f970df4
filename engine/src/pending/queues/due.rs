//! Classes that are to be woken, some at a time.
//!
//! What many classes wait for wakes them all: to wake each of them at once would be a long step. So a change only notes
//! what has come, and the search for the next head wakes them before it asks any queue, some at a time. For the
//! headroom of a queue it notes the queue: what waits for no more than there is then is woken, and what was woken for
//! more than that is parked again.

use super::{PendingQueues, class_mut};
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::pending_queue::ClassState;
use crate::pending::shapes::ShapeId;
use facts::{PoolClass, QueueName, ResourceName};
use std::collections::BTreeSet;

/// What is to be woken.
#[derive(Debug, Clone, Default)]
pub(super) struct DueWakes {
    /// All that wait for one of these are to be woken.
    conditions: BTreeSet<RequeueCondition>,
    /// To be woken besides, where they wait for anything.
    classes: BTreeSet<(QueueName, ShapeId)>,
    /// Queues whose headroom has changed since what waits for it was last looked at.
    headroom_of: BTreeSet<QueueName>,
}

impl PendingQueues {
    /// Has all woken that wait for a condition.
    pub(crate) fn wake(&mut self, condition: &RequeueCondition) {
        if self.waiting.of(condition).next().is_some() {
            self.due.conditions.insert(condition.clone());
        }
    }

    /// The classes that wait for a condition, each with its queue.
    pub(crate) fn waiting_for(
        &self,
        condition: &RequeueCondition,
    ) -> impl Iterator<Item = &(QueueName, ShapeId)> {
        self.waiting.of(condition)
    }

    /// Has those woken that wait for a condition in other queues than one.
    pub(crate) fn wake_others(&mut self, condition: &RequeueCondition, queue: &QueueName) {
        self.wake_those(condition, |other, _| other != queue);
    }

    /// Has the classes woken that wait for a condition and have one of these shapes.
    pub(crate) fn wake_shapes(
        &mut self,
        condition: &RequeueCondition,
        which: impl Fn(ShapeId) -> bool,
    ) {
        self.wake_those(condition, |_, shape| which(shape));
    }

    fn wake_those(
        &mut self,
        condition: &RequeueCondition,
        which: impl Fn(&QueueName, ShapeId) -> bool,
    ) {
        let waiting = self.waiting.of(condition);
        let woken = waiting.filter(|(queue, shape)| which(queue, *shape));
        self.due.classes.append(&mut woken.cloned().collect());
    }

    /// Has a class woken, if it waits for anything by then.
    pub(crate) fn wake_class(&mut self, queue: &QueueName, shape: ShapeId) {
        self.due.classes.insert((queue.clone(), shape));
    }

    /// Has those woken that wait for a charge to a queue to become less while it does not use all that it is
    /// guaranteed.
    pub(crate) fn wake_for_guarantee(
        &mut self,
        queue: &QueueName,
        unused: impl Fn(&ResourceName) -> i128,
    ) {
        let kind = RequeueCondition::Guarantee;
        let unused = |_: Option<&PoolClass>, resource: &ResourceName| unused(resource);
        for condition in self.waiting.met(kind, queue, unused) {
            self.wake(&condition);
        }
    }

    /// Notes that the headroom of a queue has changed.
    pub(crate) fn note_headroom(&mut self, queue: &QueueName) {
        if !self.due.headroom_of.contains(queue) {
            self.due.headroom_of.insert(queue.clone());
        }
    }

    /// Returns true if [`Self::wake_some`] has anything to do.
    pub(crate) fn has_to_wake(&self) -> bool {
        let DueWakes {
            conditions,
            classes,
            headroom_of,
        } = &self.due;
        let waits = |condition| self.waiting.of(condition).next().is_some();
        conditions.iter().any(waits) || !classes.is_empty() || !headroom_of.is_empty()
    }

    /// Wakes classes that are to be woken, and parks those again that were woken by headroom of which there is less
    /// now, at most so many. Returns how many there were.
    pub(crate) fn wake_some(
        &mut self,
        most: usize,
        headroom: impl Fn(&QueueName, Option<&PoolClass>, &ResourceName) -> i128,
        is_infeasible: impl Fn(ShapeId) -> bool,
    ) -> usize {
        let mut count = 0;
        while count < most
            && let Some(condition) = self.due.conditions.first()
        {
            match self.waiting.take_first(condition) {
                Some((queue, shape)) => {
                    count += 1;
                    self.activate(&queue, shape);
                }
                None => drop(self.due.conditions.pop_first()),
            }
        }
        while count < most
            && let Some((queue, shape)) = self.due.classes.pop_first()
        {
            count += 1;
            let class = class_mut(&mut self.by_name, &queue, shape);
            let waits =
                |state: &ClassState| matches!(state, ClassState::Parked(_) | ClassState::Freed(_));
            if class.is_some_and(|class| waits(&class.state)) {
                self.activate(&queue, shape);
            }
        }
        while count < most
            && let Some(queue) = self.due.headroom_of.first().cloned()
        {
            let has = |class: Option<&PoolClass>, resource: &ResourceName| {
                headroom(&queue, class, resource)
            };
            count += self.park_for_headroom(&queue, most - count, has, &is_infeasible);
            count += self.wake_for_headroom(&queue, most - count, has);
            if count < most {
                self.due.headroom_of.remove(&queue);
            }
        }
        count
    }
}
