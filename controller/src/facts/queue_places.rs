//! Places of queues in the tree, which last as long as something is charged to them or below.
//!
//! ```text
//! Queue objects ─► what the engine receives ─► what is charged ─► our finalizer on Queue objects
//!                        ▲
//! queues above, in admission records (a queue that is gone when this process starts)
//! ```
//!
//! A deleted queue stays, by our finalizer, and takes no jobs. Where somebody takes the finalizer
//! off, what was last known of the queue stays; a new process finds its place in the records of
//! the jobs. A queue that is charged and names a parent that cannot be one keeps the parent that
//! it has. So what runs is always charged to all queues that it was admitted below, unless it is
//! moved to another valid place. It writes nothing of a Queue but our finalizer.

use crate::reconcile::Reconciler;
use crate::reconcile::action::ReconcileAction;
use crds::queue::{Queue, ROOT};
use crds::record::AdmissionRecord;
use engine::facts::{QueueFact, QueueState};
use engine::{Event, QueueName, Resources, Time};
use runtime::watch::Delta;
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds after which a patch that did not show is tried again.
const RETRY_MS: i64 = 5_000;
/// Milliseconds for which nothing has to be charged to a queue before it loses the finalizer: jobs
/// that follow each other cost no writes. A queue that is deleted loses it at once.
const IDLE_MS: i64 = 60_000;

/// What is known of places beside the objects.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Queues that have no object any more, while something is charged to them or below.
    gone: BTreeMap<QueueName, QueueFact>,
    /// Queues that keep a parent which their object does not name.
    misplaced: BTreeSet<QueueName>,
    /// Queues of which more or less may be charged than when they were last looked at.
    due: BTreeSet<QueueName>,
    /// Queues to look at again, and when.
    later: BTreeSet<(Time, QueueName)>,
    /// Since when nothing is charged to queues that have the finalizer.
    idle: BTreeMap<QueueName, Time>,
    /// The version of each queue for which the finalizer was last written, and when.
    asked: BTreeMap<QueueName, (String, Time)>,
}

impl Places {
    /// What is charged to `queues` may have changed.
    pub(crate) fn charged(&mut self, queues: &BTreeSet<QueueName>) {
        self.due.extend(queues.iter().cloned());
    }
}

impl Reconciler {
    /// A queue came, changed or went. Its policy is applied again, since the queue's strategy
    /// has a say in it.
    pub(crate) fn queue(&mut self, delta: Delta<Queue>) {
        let name = match delta {
            Delta::Upserted(queue) => {
                let name = QueueName::new(queue.metadata.name.as_deref().unwrap_or_default());
                let parent = queue.spec.parent.clone();
                let before = self.mirror.put_queue(name.clone(), queue);
                if before.is_some_and(|before| before.spec.parent != parent) {
                    self.dirty.extend(self.rendezvous_jobs.iter().cloned());
                }
                self.places.gone.remove(&name);
                self.apply_queue(&name);
                self.apply_policy(&name);
                name
            }
            Delta::Gone(object) => {
                let name = QueueName::new(&object.name);
                let last = self.mirror.drop_queue(&name);
                self.dirty.extend(self.rendezvous_jobs.iter().cloned());
                self.queue_gone(&name, last.as_ref());
                name
            }
            Delta::Listed => return,
        };
        for other in self.places.misplaced.clone() {
            self.apply_queue(&other);
        }
        self.places.due.insert(name.clone());
        self.push(ReconcileAction::PublishQueue(name));
    }

    /// Tells of a queue as its object says, in the place that it has.
    fn apply_queue(&mut self, name: &QueueName) {
        let Some(queue) = self.mirror.queues().get(name) else {
            self.places.misplaced.remove(name);
            return;
        };
        let mut fact = queue.to_fact();
        let problem = self.misplaced(&fact);
        match problem.filter(|_| self.engine.is_charged(name)) {
            Some(problem) => {
                fact = kept_in_place(fact, self.queues_above(name).pop(), &problem);
                self.places.misplaced.insert(name.clone());
            }
            None => _ = self.places.misplaced.remove(name),
        }
        self.apply(Event::QueueUpserted(fact));
    }

    fn queue_gone(&mut self, name: &QueueName, last: Option<&Queue>) {
        self.places.misplaced.remove(name);
        if self.places.gone.contains_key(name) {
            return; // told twice
        }
        let keeps = name.as_str() != ROOT && self.engine.is_charged(name);
        let Some(last) = last.filter(|_| keeps) else {
            return self.apply(Event::QueueGone(name.clone()));
        };
        let fact = QueueFact {
            parent: self.queues_above(name).pop(),
            state: QueueState::Deleting,
            ..last.to_fact()
        };
        tracing::warn!(queue = %name, "a queue was deleted while jobs are charged to it or below; it keeps its place until they have ended");
        self.places.gone.insert(name.clone(), fact.clone());
        self.apply(Event::QueueUpserted(fact));
    }

    /// Before a charge is applied that only its record has: the queues that it counts at are
    /// there, in the places that they had.
    pub(crate) fn remember_places(&mut self, record: &AdmissionRecord) {
        let mut above: Option<QueueName> = None;
        for name in record.queues_above.iter().chain([&record.queue]) {
            let object = self.mirror.queues().get(name).map(Queue::to_fact);
            match object {
                Some(fact) => {
                    let at_top = self.queues_above(name).is_empty();
                    if let Some(problem) = self.misplaced(&fact).filter(|_| at_top) {
                        let fact = kept_in_place(fact, above, &problem);
                        self.places.misplaced.insert(name.clone());
                        self.apply(Event::QueueUpserted(fact));
                    }
                }
                None if self.places.gone.contains_key(name) => {}
                None => {
                    let fact = unknown(name, above);
                    self.places.gone.insert(name.clone(), fact.clone());
                    self.apply(Event::QueueUpserted(fact));
                }
            }
            above = Some(name.clone());
        }
    }

    /// The queues above one, from the top down.
    pub(crate) fn queues_above(&self, queue: &QueueName) -> Vec<QueueName> {
        let mut path = self.engine.queue_path(queue);
        path.pop();
        path
    }

    /// Why the parent that a queue names cannot be its parent.
    fn misplaced(&self, fact: &QueueFact) -> Option<String> {
        let parent = fact.parent.clone()?;
        let above = |name: &QueueName| match self.mirror.queues().get(name) {
            Some(queue) => Some(queue.parent()),
            None => Some(self.places.gone.get(name)?.parent.clone()),
        };
        let Some(mut next) = above(&parent) else {
            return Some(format!("spec.parent: queue {parent} does not exist"));
        };
        let mut seen = BTreeSet::from([parent.clone()]);
        if parent == fact.name {
            return Some(format!("spec.parent: {parent} is the queue itself"));
        }
        while let Some(name) = next.filter(|name| seen.insert(name.clone())) {
            if name == fact.name {
                return Some(format!("spec.parent: queue {parent} is below {name}"));
            }
            next = above(&name).flatten();
        }
        None
    }

    /// Gives Queue objects our finalizer, or takes it off, by what is charged; drops queues
    /// without objects when nothing is.
    pub(crate) fn keep_places(&mut self, now: Time) {
        while self.places.later.first().is_some_and(|(at, _)| *at <= now) {
            let next = self.places.later.pop_first();
            self.places.due.extend(next.map(|(_, name)| name));
        }
        let mut due: BTreeSet<QueueName> = BTreeSet::new();
        for name in std::mem::take(&mut self.places.due) {
            due.extend(self.engine.queue_path(&name));
            due.insert(name);
        }
        for name in due {
            if self.engine.is_charged(&name) {
                self.places.idle.remove(&name);
            } else {
                self.drop_place(&name);
            }
            if name.as_str() != ROOT {
                self.keep_place(&name, now);
            }
        }
    }

    /// Nothing is charged to the queue: it is where its object says, or nowhere.
    fn drop_place(&mut self, name: &QueueName) {
        if self.places.gone.remove(name).is_some() {
            self.apply(Event::QueueGone(name.clone()));
            self.push(ReconcileAction::PublishQueue(name.clone()));
        }
        if self.places.misplaced.contains(name) {
            self.apply_queue(name);
        }
    }

    fn keep_place(&mut self, name: &QueueName, now: Time) {
        let Some(queue) = self.mirror.queues().get(name) else {
            self.places.idle.remove(name);
            self.places.asked.remove(name);
            return;
        };
        let (kept, deleting) = (queue.is_kept(), queue.is_deleting());
        let keep = if self.engine.is_charged(name) {
            // A finalizer cannot be added to what is deleted.
            kept || !deleting
        } else if kept && !deleting {
            let since = *self.places.idle.entry(name.clone()).or_insert(now);
            let until = since.after(IDLE_MS);
            if now < until {
                self.places.later.insert((until, name.clone()));
            }
            now < until
        } else {
            false
        };
        if keep == kept {
            return;
        }
        let version = queue.metadata.resource_version.clone().unwrap_or_default();
        let retry_at = match self.places.asked.get(name) {
            Some((asked, at)) if *asked == version => at.after(RETRY_MS),
            _ => now,
        };
        if now < retry_at {
            self.places.later.insert((retry_at, name.clone()));
            return;
        }
        let queue = Box::new(queue.clone());
        self.push(ReconcileAction::WriteQueueFinalizer { queue, keep });
        self.places.asked.insert(name.clone(), (version, now));
        self.places
            .later
            .insert((now.after(RETRY_MS), name.clone()));
    }
}

/// The fact of a queue that stays below `above`, whatever its object says.
fn kept_in_place(fact: QueueFact, above: Option<QueueName>, problem: &str) -> QueueFact {
    let place = match &above {
        Some(above) => format!("below {above}"),
        None => "at the top".to_owned(),
    };
    let problem = format!(
        "{problem}; name one that can be its parent. It stays {place} and takes no jobs while some are charged to it or below"
    );
    QueueFact {
        parent: above,
        invalid: fact.invalid.or(Some(problem)),
        ..fact
    }
}

/// A queue of which only its place is known.
fn unknown(name: &QueueName, parent: Option<QueueName>) -> QueueFact {
    QueueFact {
        name: name.clone(),
        parent,
        priority: 0,
        weight: 1,
        guarantee: Resources::new(),
        deserved: Resources::new(),
        capability: Resources::new(),
        reclaimable: true,
        state: QueueState::Deleting,
        invalid: None,
    }
}
