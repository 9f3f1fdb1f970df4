//! Places of queues in the tree. A place lasts as long as something is charged to the queue or below it,
//! whatever happens to its object.
//!
//! ```text
//! Queue objects ─► what the engine receives ─► what is charged ─► places without an object
//!                        ▲                                             │
//!                        └── queues above, in admission records ◄──────┘
//! ```
//!
//! Nothing keeps a deleted Queue object, so that one that is applied again at once is a new object, which takes
//! the place over with its jobs. Until then the last known facts of the queue stay, and it takes no jobs; a new
//! process finds the place in the records of its jobs, without its bounds, and those of the queues above hold. A
//! charged queue whose spec names an invalid parent keeps its present parent. So a running job is always
//! charged to all queues that it was admitted below, unless its queue moves to another valid parent; then its
//! record follows. Of a Queue object this module writes only that it has lost the finalizer of earlier versions.

use crate::facts::queue_rights::QueueRights;
use crate::messages::action::{Effect, Publication};
use crate::mirror::Mirror;
use crate::reconcile::JobPass;
use crate::reconcile::check_result::CheckResult;
use crate::reconcile::known_jobs::KnownJobs;
use crate::reconcile::output::Output;
use crate::reconcile::placed::Placed;
use crate::reconcile::reconciler::apply;
use crds::queue::{Queue, ROOT};
use crds::record::AdmissionRecord;
use engine::facts::{QueueFact, QueueState};
use engine::{Engine, Event, JobKey, QueueName, Resources, Time};
use runtime::watch::Delta;
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds after which a patch that the watch has not shown is sent again.
const RETRY_MS: i64 = 5_000;

/// What is known of places besides the Queue objects.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Queues without an object to which, or below which, something is still charged.
    gone: BTreeMap<QueueName, QueueFact>,
    /// Queues that keep a parent other than the one in their object.
    misplaced: BTreeSet<QueueName>,
    /// Queues whose charge may have changed since they were last reconciled.
    due: BTreeSet<QueueName>,
    /// Queues to reconcile again, and when.
    later: BTreeSet<(Time, QueueName)>,
    /// For each queue with the finalizer of an earlier version, the version that was last patched, and when.
    asked: BTreeMap<QueueName, (String, Time)>,
}

impl Places {
    /// Marks `queues`, whose charge may have changed.
    pub(crate) fn charged(&mut self, queues: &BTreeSet<QueueName>) {
        self.due.extend(queues.iter().cloned());
    }
}

/// What is known of queues besides their objects.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) places: Places,
    /// Which namespaces may use which queues.
    pub(crate) rights: QueueRights,
}

/// What the places of queues are kept by.
pub(crate) struct QueuePass<'a> {
    pub(crate) places: &'a mut Places,
    pub(crate) mirror: &'a mut Mirror,
    pub(crate) engine: &'a mut Engine,
    pub(crate) jobs: &'a KnownJobs,
    pub(crate) out: &'a mut Output,
}

impl QueuePass<'_> {
    /// Handles a change of a queue. Applies its policy again, because the policy depends on the queue's
    /// strategy.
    pub(crate) fn queue(&mut self, delta: Delta<Queue>) {
        let name = match delta {
            Delta::Upserted(queue) => {
                let name = QueueName::new(queue.metadata.name.as_deref().unwrap_or_default());
                let before = self.mirror.queueing.put_queue(name.clone(), queue);
                self.restated(&name, before.as_ref());
                return;
            }
            Delta::Gone(object) => {
                let name = QueueName::new(&object.name);
                let last = self.mirror.queueing.drop_queue(&name);
                self.out
                    .work_queue
                    .extend(self.jobs.rendezvous.iter().cloned());
                self.queue_gone(&name, last.as_ref());
                name
            }
            Delta::Listed => return,
        };
        self.apply_misplaced();
        self.places.due.insert(name.clone());
        self.out.push(Publication::Queue(name));
    }

    /// Applies a queue again after one of its objects changed. `before` is what they stated until then, if there was a
    /// Queue.
    pub(crate) fn restated(&mut self, name: &QueueName, before: Option<&Queue>) {
        let place = queues_above(self.engine, name);
        let parent = |queue: &Queue| queue.spec.parent.clone();
        let now = self.mirror.queues().get(name);
        let is_queue = now.is_some();
        if before.is_some() && before.map(parent) != now.map(parent) {
            let all = self.jobs.rendezvous.iter().cloned();
            self.out.work_queue.extend(all);
        }
        match before {
            _ if is_queue => {
                self.places.gone.remove(name);
                self.apply_queue(name);
            }
            Some(last) => self.queue_gone(name, Some(last)),
            None => {}
        }
        self.apply_policy(name);
        if queues_above(self.engine, name) != place {
            self.out.work_queue.extend(self.charged_below(name));
        }
        self.apply_misplaced();
        self.places.due.insert(name.clone());
        self.out.push(Publication::Queue(name.clone()));
    }

    /// Looks again at queues with an invalid parent: another queue may have made it valid.
    fn apply_misplaced(&mut self) {
        for other in self.places.misplaced.clone() {
            self.apply_queue(&other);
        }
    }

    /// Gives the engine the policy of a queue, which depends on the strategy of the queue.
    fn apply_policy(&mut self, name: &QueueName) {
        let Some(policy) = self.mirror.policies().get(name) else {
            return;
        };
        let queue = self.mirror.queues().get(name);
        let strategy = queue.and_then(|queue| queue.spec.dequeue_strategy.as_deref());
        let fact = policy.to_fact(strategy);
        self.apply(Event::PolicyUpserted(fact));
    }

    /// Gives the engine the queue as its object says, in its present place.
    fn apply_queue(&mut self, name: &QueueName) {
        let Some(queue) = self.mirror.queues().get(name) else {
            self.places.misplaced.remove(name);
            return;
        };
        let mut fact = queue.to_fact();
        let problem = self.misplaced(&fact);
        match problem.filter(|_| self.engine.is_charged(name)) {
            Some(problem) => {
                fact = kept_in_place(fact, queues_above(self.engine, name).pop(), &problem);
                self.places.misplaced.insert(name.clone());
            }
            None => _ = self.places.misplaced.remove(name),
        }
        self.apply(Event::QueueUpserted(fact));
    }

    fn queue_gone(&mut self, name: &QueueName, last: Option<&Queue>) {
        self.places.misplaced.remove(name);
        if self.places.gone.contains_key(name) {
            return; // the watch repeated it
        }
        let keeps = name.as_str() != ROOT && self.engine.is_charged(name);
        let Some(last) = last.filter(|_| keeps) else {
            return self.apply(Event::QueueGone(name.clone()));
        };
        let fact = QueueFact {
            parent: queues_above(self.engine, name).pop(),
            state: QueueState::Deleting,
            ..last.to_fact()
        };
        tracing::warn!(queue = %name, "a queue was deleted while jobs are charged to it or below; its place stays until they have ended");
        self.places.gone.insert(name.clone(), fact.clone());
        self.apply(Event::QueueUpserted(fact));
    }

    /// Restores the queues that a record counts at, in their earlier places. Call it before a charge is
    /// applied that only the record has.
    pub(crate) fn remember_places(&mut self, record: &AdmissionRecord) {
        let mut above: Option<QueueName> = None;
        for name in record.queues_above.iter().chain([&record.queue]) {
            let object = self.mirror.queues().get(name).map(Queue::to_fact);
            match object {
                Some(fact) => {
                    let at_top = queues_above(self.engine, name).is_empty();
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

    /// Returns the jobs that are charged to a queue or below it.
    fn charged_below(&self, name: &QueueName) -> Vec<JobKey> {
        let is_below = |key: &&JobKey| {
            let admission = self.engine.job(key).and_then(|job| job.admission);
            let path = admission.map(|admission| self.engine.queue_path(&admission.queue));
            path.is_some_and(|path| path.contains(name))
        };
        self.mirror
            .bindings()
            .keys()
            .filter(is_below)
            .cloned()
            .collect()
    }

    /// Returns why the parent that a queue names is invalid.
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

    /// Drops queues without objects once nothing is charged, and frees Queue objects of the finalizer with which
    /// earlier versions kept them.
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
            if !self.engine.is_charged(&name) {
                self.drop_place(&name);
            }
            self.free_object(&name, now);
        }
    }

    /// Moves a queue without charge to where its object says, or drops it.
    fn drop_place(&mut self, name: &QueueName) {
        if self.places.gone.remove(name).is_some() {
            self.apply(Event::QueueGone(name.clone()));
            self.out.push(Publication::Queue(name.clone()));
        }
        if self.places.misplaced.contains(name) {
            self.apply_queue(name);
        }
    }

    /// Removes the finalizer of an earlier version from the object of a queue.
    fn free_object(&mut self, name: &QueueName, now: Time) {
        let Some(queue) = self.mirror.queues().get(name).filter(|q| q.is_kept()) else {
            self.places.asked.remove(name);
            return;
        };
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
        self.out.push(Effect::FreeQueue(queue));
        self.places.asked.insert(name.clone(), (version, now));
        self.places
            .later
            .insert((now.after(RETRY_MS), name.clone()));
    }

    fn apply(&mut self, event: Event) {
        apply(self.engine, event);
    }
}

/// Writes the record of a job whose queue has moved in the tree: a new process finds the place of a queue
/// without an object there.
pub(crate) fn check_queue_moved(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    match placed.record.queues_above == queues_above(pass.engine, &placed.record.queue) {
        true => CheckResult::Continue,
        false => placed.written_again(),
    }
}

/// Returns the queues above a queue, from the top down.
pub(crate) fn queues_above(engine: &Engine, queue: &QueueName) -> Vec<QueueName> {
    let mut path = engine.queue_path(queue);
    path.pop();
    path
}

/// Returns the fact of a queue that stays below `above`, whatever its object says.
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

/// Returns the fact of a queue of which only the place is known.
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
