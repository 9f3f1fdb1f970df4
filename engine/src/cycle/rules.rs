//! What follows from other rules: a queue, a policy or a priority class that is another.
//!
//! Those whom it concerns move in their lines and are judged anew; what is charged stays.

use crate::api::facts::{PriorityClassFact, QueueFact};
use crate::api::ids::{JobKey, QueueName};
use crate::engine::Engine;
use crate::pending::inadmissible::RequeueCondition;
use crate::quota::ROOT;

impl Engine {
    /// A queue's bounds, state or place in the tree are others. Room knows nothing of those.
    pub(crate) fn queue_told(&mut self, name: &QueueName, fact: Option<QueueFact>) {
        let before = self.place_of_queue(name);
        let above_before = self.quota.path(name);
        if !self.quota.set_fact(name, fact) {
            return;
        }
        self.pending.shapes.forget_lets();
        self.queue_changed(name);
        if before != self.place_of_queue(name) {
            // Other policies are above it now, and above those that name it or stood on a circle
            // with it.
            self.policies_above_changed(&QueueName::from(ROOT));
            // What it holds does not count any more where it was.
            for above in &above_before {
                self.wake_for_quota(above);
            }
        }
    }

    /// The parent that a queue names, if the queue exists.
    fn place_of_queue(&self, name: &QueueName) -> Option<Option<QueueName>> {
        Some(self.quota.fact(name)?.parent.clone())
    }

    fn queue_changed(&mut self, name: &QueueName) {
        self.changed.queues.insert(name.clone());
        self.jobs.retry_scale_up();
        self.pending.backoff.hurry();
        self.stir_all();
        self.pending
            .queues
            .wake(&RequeueCondition::Quota(name.clone()));
        self.bounds_moved();
        // Its jobs, and those of every queue below it, are judged by other bounds now.
        let below: Vec<QueueName> = self
            .pending
            .queues
            .pending_queues()
            .map(|(pending_queue, _)| pending_queue.clone())
            .filter(|pending_queue| self.quota.is_within(pending_queue, name))
            .collect();
        for pending_queue in below {
            self.pending.queues.wake_queue(&pending_queue);
            self.name_first(&pending_queue);
        }
        let stopped: Vec<JobKey> = self
            .reservations
            .iter()
            .filter(|kept| self.quota.problem(&kept.queue).is_some())
            .map(|kept| kept.rank.key.clone())
            .collect();
        for key in stopped {
            self.drop_reservation_of(&key);
        }
    }

    pub(crate) fn policy_changed(&mut self, name: &QueueName, changed: bool) {
        if changed {
            self.pending.shapes.open_all();
            self.queue_changed(name);
            self.policies_above_changed(name);
            self.reorder(name);
        }
    }

    /// Jobs of the queue and of all below it go by other limits.
    fn policies_above_changed(&mut self, name: &QueueName) {
        self.reline_below(name);
        // The deadlines of what is released may be others, and who is stopped may not be.
        let held = self
            .jobs
            .preemptible()
            .below(|queue| self.quota.path(queue).contains(name));
        for key in held.into_iter().chain(self.jobs.stopped().clone()) {
            self.sync_indexes(&key);
        }
    }

    /// Puts the waiting jobs of a queue in the order that its policy asks for.
    fn reorder(&mut self, name: &QueueName) {
        let pending_queue = self.pending.queues.pending_queue(name);
        let ranks = pending_queue
            .into_iter()
            .flat_map(|pending_queue| pending_queue.ranks().iter());
        let most = self.max_clusters(name);
        let moved = ranks.filter(|rank| {
            let line = self.jobs.line_of(&rank.key);
            let shape = line.and_then(|line| self.pending.shapes.get(line.shape));
            let job = self.jobs.get(&rank.key);
            shape.is_some_and(|shape| shape.max_clusters != most)
                || job.is_some_and(|job| self.rank_of(&rank.key, job) != **rank)
        });
        let moved: Vec<JobKey> = moved.map(|rank| rank.key.clone()).collect();
        for key in moved {
            self.sync_indexes(&key);
        }
    }

    /// Whether users are told apart in line may be another now.
    fn reline_below(&mut self, name: &QueueName) {
        let differs = |(queue, pending_queue): &(
            &QueueName,
            &crate::pending::pending_queue::PendingQueue,
        )| {
            let apart = self.quota.counts_users(queue);
            let first = pending_queue
                .ranks()
                .first()
                .and_then(|rank| self.jobs.get(&rank.key));
            let line = first.and_then(|job| job.derived.line.as_ref());
            let shape = line.and_then(|line| self.pending.shapes.get(line.shape));
            let was_apart = shape.is_some_and(|shape| shape.user.is_some());
            self.quota.is_within(queue, name) && apart != was_apart
        };
        let pending_queues = self.pending.queues.pending_queues().filter(differs);
        let mut keys: Vec<JobKey> = pending_queues
            .flat_map(|(_, pending_queue)| {
                pending_queue.ranks().iter().map(|rank| rank.key.clone())
            })
            .collect();
        keys.sort_unstable();
        for key in keys {
            self.sync_indexes(&key);
        }
    }

    /// Names the first jobs of a queue as changed.
    fn name_first(&mut self, queue: &QueueName) {
        let pending_queue = self.pending.queues.pending_queue(queue);
        let first = pending_queue
            .into_iter()
            .flat_map(|pending_queue| pending_queue.ranks().iter())
            .take(10);
        self.changed.jobs.extend(first.map(|rank| rank.key.clone()));
        self.changed.queues.insert(queue.clone());
    }

    /// Queued jobs of the class move in their lines; released ones keep what they have, and
    /// are evicted by their new priority.
    pub(crate) fn class_told(&mut self, name: &str, fact: Option<PriorityClassFact>) {
        let before = self.jobs.priority_class(name).cloned();
        if before == fact {
            return;
        }
        self.pending.backoff.hurry();
        self.stir_all();
        let default = |fact: &Option<PriorityClassFact>| {
            fact.as_ref().is_some_and(|fact| fact.global_default)
        };
        let concerns_unnamed = default(&before) || default(&fact);
        self.jobs.observe_priority_class(name, fact);
        let mut concerned: Vec<JobKey> = self
            .jobs
            .iter()
            .filter(|(_, job)| match &job.priority_class {
                Some(class) => class.as_ref() == name,
                None => concerns_unnamed,
            })
            .map(|(key, _)| key.clone())
            .collect();
        concerned.sort_unstable();
        for key in concerned {
            self.sync_indexes(&key);
            // It may take from others now, or may not any more.
            self.rouse_job(&key);
        }
    }
}
