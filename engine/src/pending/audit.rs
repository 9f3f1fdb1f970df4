//! Recomputes the indexes over pending jobs from the classes.

use crate::amounts::hashed::HashedSet;
use crate::api::job::OwnedTurn;
use crate::pending::pending_queue::{ClassState, PendingClass, PendingQueue};
use crate::pending::queues::PendingQueues;
use crate::pending::shapes::{ShapeId, Shapes};
use crate::pending::store::Pending;
use crate::pending::waiting_list::WaitingList;
use facts::QueueName;
use std::collections::{BTreeMap, BTreeSet};

impl Pending {
    /// Returns what is indexed otherwise than the classes say, in words.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, queue) in &self.queues.by_name {
            audit_queue(name, queue, &mut wrong);
            self.audit_passed(name, queue, &mut wrong);
        }
        audit_waiting(&self.queues, &mut wrong);
        audit_active(&self.queues, &mut wrong);
        audit_windows(&self.queues, &mut wrong);
        audit_shapes(&self.queues, &self.shapes, &mut wrong);
        if self.backoff.rebuilt() != self.backoff {
            wrong.push("preemption back-off: its list is not that of its jobs".to_owned());
        }
        wrong
    }

    /// The shapes of classes that are passed over are infeasible, and have them asked again once they may not be.
    fn audit_passed(&self, name: &QueueName, queue: &PendingQueue, wrong: &mut Vec<String>) {
        for (_, shape) in &queue.passed {
            let is_listed = self.queues.passed.contains(&(*shape, name.clone()));
            let may_fit = self.shapes.maybe_feasible().contains(shape);
            if !is_listed || (self.shapes.infeasible(*shape).is_none() && !may_fit) {
                wrong.push(format!("queue {name}: {shape:?} is passed over"));
            }
        }
    }
}

/// The classes of a queue hold its jobs, and its indexes hold the first job of each.
fn audit_queue(name: &QueueName, queue: &PendingQueue, wrong: &mut Vec<String>) {
    let classes = || queue.classes.iter();
    let jobs: BTreeSet<_> = classes().flat_map(|(_, class)| &class.jobs).collect();
    if jobs.is_empty() || jobs != queue.ranks.sorted() {
        wrong.push(format!(
            "queue {name}: its classes and its order hold different jobs"
        ));
    }
    let wrong_share = classes().find(|(_, class)| {
        let users: BTreeSet<_> = class.jobs.iter().map(|rank| rank.user).collect();
        users.len() > 1
            || users
                .into_iter()
                .any(|user| queue.ranks.share(user) != class.share)
    });
    if let Some((shape, class)) = wrong_share {
        let share = class.share;
        wrong.push(format!(
            "queue {name}: {shape:?} is listed by the share {share}"
        ));
    }
    let firsts = |of: &dyn Fn(&PendingClass) -> bool| {
        let of = classes().filter(|(_, class)| of(class));
        let firsts = of.filter_map(|(shape, class)| Some((first_of(class)?, *shape)));
        firsts.collect::<BTreeSet<_>>()
    };
    let active: Vec<_> = queue.active().collect();
    if !firsts(&|class| !class.is_parked())
        .iter()
        .eq(active.iter().copied())
    {
        wrong.push(format!("queue {name}: active {active:?}"));
    }
    if firsts(&|class| class.is_admissible_later()) != queue.admissible_later {
        let listed = &queue.admissible_later;
        wrong.push(format!("queue {name}: admissible later {listed:?}"));
    }
    let mut by_slots: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (shape, class) in classes() {
        if let Some(first) = first_of(class)
            && (!class.is_parked() || class.is_admissible_later())
        {
            let heads = by_slots.entry(class.slots).or_default();
            heads.insert((first, *shape));
        }
    }
    if by_slots != queue.by_slots {
        wrong.push(format!("queue {name}: by slots {:?}", queue.by_slots));
    }
    let rechecked = classes().filter(|(_, class)| matches!(class.state, ClassState::Recheck));
    if !rechecked.map(|(shape, _)| shape).eq(&queue.rechecked) {
        wrong.push(format!("queue {name}: rechecked {:?}", queue.rechecked));
    }
}

/// The entry of the first job of a class.
fn first_of(class: &PendingClass) -> Option<OwnedTurn> {
    let first = class.jobs.first()?;
    Some(OwnedTurn::of(first.clone(), class.share))
}

/// Each parked class is listed under all that it waits for, and nothing else is.
fn audit_waiting(queues: &PendingQueues, wrong: &mut Vec<String>) {
    let (mut waiting, mut freed) = (WaitingList::default(), WaitingList::default());
    for (name, queue) in &queues.by_name {
        for (shape, class) in &queue.classes {
            let (parked, met) = match &class.state {
                ClassState::Parked(parked) => (parked, None),
                ClassState::Freed(class) => (&class.parked, Some(&class.met)),
                _ => continue,
            };
            let waiter = (name.clone(), *shape);
            for condition in &parked.conditions {
                match Some(condition) == met {
                    true => freed.add(&waiter, condition),
                    false => waiting.add(&waiter, condition),
                }
            }
        }
    }
    if waiting != queues.waiting {
        wrong.push(format!("parked classes: listed {:?}", queues.waiting));
    }
    if freed != queues.freed {
        let listed = &queues.freed;
        wrong.push(format!(
            "classes woken by what was freed: listed {listed:?}"
        ));
    }
}

/// Classes, and of these the active ones, are listed by shape.
fn audit_active(queues: &PendingQueues, wrong: &mut Vec<String>) {
    let mut active: BTreeMap<ShapeId, BTreeSet<_>> = BTreeMap::new();
    for queue in queues.by_name.values() {
        for (_, shape) in queue.active() {
            active.entry(*shape).or_default().insert(queue.id);
        }
    }
    let listed = queues.active.iter();
    let listed: BTreeMap<_, BTreeSet<_>> = listed
        .map(|(shape, ids)| (*shape, ids.iter().copied().collect()))
        .collect();
    if active != listed {
        wrong.push(format!("active classes: listed {listed:?}"));
    }
    let classes = queues.by_name.iter().flat_map(|(name, queue)| {
        let shapes = queue.classes.keys();
        shapes.map(|shape| (*shape, name.clone()))
    });
    if classes.collect::<BTreeSet<_>>() != queues.with_shape {
        wrong.push(format!("classes by shape: listed {:?}", queues.with_shape));
    }
}

/// Shapes are listed with the windows that they are in.
fn audit_windows(queues: &PendingQueues, wrong: &mut Vec<String>) {
    let mut listed: BTreeMap<ShapeId, HashedSet<QueueName>> = BTreeMap::new();
    for (queue, window) in &queues.windows {
        for shape in window {
            listed.entry(*shape).or_default().insert(queue.clone());
        }
    }
    if listed != queues.in_window {
        let listed = &queues.in_window;
        wrong.push(format!("reservation windows: listed {listed:?}"));
    }
}

/// Each shape counts its jobs, and is listed by what may make it feasible.
fn audit_shapes(queues: &PendingQueues, shapes: &Shapes, wrong: &mut Vec<String>) {
    let mut counts: BTreeMap<ShapeId, usize> = BTreeMap::new();
    for (shape, class) in queues.by_name.values().flat_map(|queue| &queue.classes) {
        *counts.entry(*shape).or_default() += class.jobs.len();
    }
    if counts != shapes.counted() {
        wrong.push(format!("shapes: jobs counted {:?}", shapes.counted()));
    }
    if !shapes.are_listed() {
        wrong.push("shapes: listed otherwise than they are infeasible".to_owned());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pending::inadmissible::RequeueCondition;
    use crate::testing::pending;
    use facts::{JobKey, Time};

    /// What breaks one index, and the words that name it.
    type Break<'a> = (&'a str, fn(&mut Pending));

    fn queue(pending: &mut Pending) -> &mut PendingQueue {
        pending.queues.by_name.values_mut().next().unwrap()
    }

    #[test]
    fn each_index_that_does_not_follow_from_the_classes_is_named() {
        let pending = pending().pending;
        assert_eq!(pending.audit(), Vec::<String>::new());
        let shape = *queue(&mut pending.clone()).classes.keys().next().unwrap();
        let passed = format!("queue q: {shape:?} is passed over");
        let breaks: &[Break<'_>] = &[
            ("queue q: its classes and its order", |pending| {
                let first = queue(pending).ranks.first().unwrap().clone();
                queue(pending).ranks.remove(&first);
            }),
            ("queue q: active", |pending| {
                let queue = queue(pending);
                queue.asked.clear();
                queue.passed.clear();
            }),
            ("queue q: admissible later", |pending| {
                let queue = queue(pending);
                queue.admissible_later = queue.active().cloned().collect();
            }),
            (&passed, |pending| {
                pending.queues.passed.clear();
                let queue = queue(pending);
                queue.passed.append(&mut queue.asked);
            }),
            ("queue q: rechecked", |pending| {
                let queue = queue(pending);
                queue.rechecked = queue.classes.keys().copied().collect();
            }),
            ("parked classes: listed", |pending| {
                let shape = *queue(pending).classes.keys().next().unwrap();
                let class = ("gone".into(), shape);
                let waiting = &mut pending.queues.waiting;
                waiting.add(&class, &RequeueCondition::Fleet);
            }),
            ("active classes: listed", |pending| {
                pending.queues.active.clear()
            }),
            ("classes by shape: listed", |pending| {
                pending.queues.with_shape.clear()
            }),
            ("reservation windows: listed", |pending| {
                let shape = *queue(pending).classes.keys().next().unwrap();
                let queues = pending.queues.in_window.entry(shape).or_default();
                queues.insert("gone".into());
            }),
            ("preemption back-off: its list", |pending| {
                let key = JobKey::new("ns", "waits");
                let conditions = vec![RequeueCondition::Victims(Time(7))];
                pending.backoff.rest(&key, conditions);
                pending.backoff.waiting = WaitingList::default();
            }),
        ];
        for (words, breaks) in breaks {
            let mut broken = pending.clone();
            breaks(&mut broken);
            let wrong = broken.audit();
            let named = wrong.iter().any(|wrong| wrong.starts_with(words));
            assert!(named, "{words}: {wrong:#?}");
        }
        let mut broken = pending.clone();
        broken.shapes.release(shape);
        let counts = |wrong: &String| wrong.starts_with("shapes: jobs counted");
        assert!(broken.audit().iter().any(counts));
    }
}
