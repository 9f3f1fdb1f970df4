#![allow(clippy::unwrap_used)]

use super::*;
use crate::api::job::UserId;
use crate::capacity::testing::demand;
use crate::pending::shapes::{Shapes, SlotSetId};
use crate::pending::testing::shape;
use facts::{JobKey, ResourceName, Time};
use std::cmp::Reverse;

fn rank(name: &str, at: i64) -> QueueOrder {
    QueueOrder {
        priority: Reverse(0),
        at: Time(at),
        key: JobKey::new("ns", name),
        user: UserId::NONE,
    }
}

fn inadmissible(wake: RequeueCondition) -> Inadmissible {
    Inadmissible {
        reason: Reason::WaitingForRoom,
        admissible_later: true,
        conditions: vec![wake],
    }
}

/// Two shapes.
fn shapes() -> [ShapeId; 2] {
    let mut shapes = Shapes::default();
    [1, 2].map(|count| shapes.acquire(shape(demand(count, "cpu 1"))))
}

/// Two queues with a job each, both parked for capacity.
fn parked() -> (PendingQueues, [QueueName; 2], ShapeId) {
    let mut pending = PendingQueues::default();
    let queues = ["a", "b"].map(QueueName::from);
    let [shape, _] = shapes();
    for queue in &queues {
        let name = queue.as_str();
        pending.insert(
            queue,
            QueueId::ROOT,
            (shape, SlotSetId::default()),
            &rank(name, 1),
        );
        pending.park(queue, shape, inadmissible(RequeueCondition::Room));
    }
    pending.take_woken();
    pending.take_changed(usize::MAX);
    (pending, queues, shape)
}

/// Wakes all that wait for a condition.
fn wake(pending: &mut PendingQueues, condition: &RequeueCondition) {
    pending.wake(condition);
    pending.wake_some(usize::MAX, |_, _, _| 0, |_| false);
}

fn active(pending: &PendingQueues, queues: &[QueueName; 2]) -> [usize; 2] {
    queues.each_ref().map(|queue| {
        let pending_queue = pending.pending_queue(queue);
        pending_queue.map_or(0, |pending_queue| pending_queue.active().count())
    })
}

#[test]
fn a_queue_wakes_alone_and_has_changed() {
    let (mut pending, queues, shape) = parked();
    assert_eq!(active(&pending, &queues), [0, 0]);
    assert!(!pending.has_changed());
    pending.wake_queue(&queues[0]);
    assert_eq!(active(&pending, &queues), [1, 0]);
    assert!(pending.has_changed());
    let woken = BTreeSet::from([(queues[0].clone(), shape)]);
    assert_eq!(pending.take_woken(), woken);
    assert_eq!(pending.take_woken(), BTreeSet::new());
}

#[test]
fn a_class_was_evaluated_until_it_is_woken() {
    let (mut pending, queues, shape) = parked();
    let due = |pending: &PendingQueues, strict| {
        let pending_queue = pending.pending_queue(&queues[0]);
        pending_queue.map(|pending_queue| pending_queue.is_due(shape, strict))
    };
    wake(&mut pending, &RequeueCondition::Room);
    assert_eq!(due(&pending, true), Some(true));
    pending.wait_for_shape(&queues[0], shape);
    assert_eq!(due(&pending, true), Some(false));
    pending.activate(&queues[0], shape);
    assert_eq!(due(&pending, true), Some(true));
    assert_eq!(due(&pending, false), Some(false));
}

#[test]
fn a_class_is_rechecked_once_in_any_queue() {
    let (mut pending, queues, shape) = parked();
    let due = |pending: &PendingQueues| {
        let pending_queue = pending.pending_queue(&queues[0]);
        pending_queue.map(|pending_queue| pending_queue.is_due(shape, false))
    };
    pending.recheck(&queues[0], shape);
    assert_eq!(due(&pending), Some(true));
    // To be woken once more does not change that.
    pending.activate(&queues[0], shape);
    assert_eq!(due(&pending), Some(true));
    pending.wait_for_shape(&queues[0], shape);
    assert_eq!(due(&pending), Some(false));
}

/// Parks the class of a shape in queues, to wait for two of the root's GPUs, or for a change of the first queue.
fn wait_for_gpus(pending: &mut PendingQueues, queues: &[QueueName], shape: ShapeId) {
    use crate::pending::inadmissible::QueueNeed;

    let need = RequeueCondition::Headroom(QueueNeed {
        queue: QueueName::from("root"),
        class: None,
        resource: ResourceName::new("gpu"),
        needs: 2,
    });
    let own = RequeueCondition::Quota(queues[0].clone());
    for queue in queues {
        let parked = Inadmissible {
            reason: Reason::WaitingForQuota,
            admissible_later: true,
            conditions: vec![need.clone(), own.clone()],
        };
        pending.park(queue, shape, parked);
    }
}

/// The root has so many GPUs left: wakes and parks classes, at most so many.
fn gpus_left(pending: &mut PendingQueues, gpus: i128, most: usize) -> usize {
    pending.note_headroom(&QueueName::from("root"));
    pending.wake_some(most, |_, _, _| gpus, |_| false)
}

#[test]
fn a_class_that_headroom_woke_is_parked_again_once_that_is_used() {
    let (mut pending, queues, shape) = parked();
    wake(&mut pending, &RequeueCondition::Room);
    wait_for_gpus(&mut pending, &queues, shape);
    let listed = pending.waiting.clone();
    gpus_left(&mut pending, 1, 9);
    assert_eq!(active(&pending, &queues), [0, 0]);
    gpus_left(&mut pending, 2, 9);
    assert_eq!(active(&pending, &queues), [1, 1]);
    gpus_left(&mut pending, 2, 9);
    assert_eq!(active(&pending, &queues), [1, 1], "there is still enough");
    pending.note_headroom(&QueueName::from("root"));
    pending.wake_some(9, |_, _, _| 1, |_| true);
    assert_eq!(active(&pending, &queues), [1, 1], "its shape says why");
    gpus_left(&mut pending, 1, 9);
    assert_eq!(active(&pending, &queues), [0, 0]);
    assert_eq!(pending.waiting, listed);
    // What is woken for another reason meanwhile is evaluated.
    gpus_left(&mut pending, 2, 9);
    pending.activate(&queues[0], shape);
    gpus_left(&mut pending, 1, 9);
    assert_eq!(active(&pending, &queues), [1, 0]);
    wake(&mut pending, &RequeueCondition::Quota(queues[0].clone()));
    assert_eq!(active(&pending, &queues), [1, 1]);
}

#[test]
fn classes_are_woken_and_parked_again_some_at_a_time() {
    let (mut pending, queues, shape) = parked();
    pending.wake(&RequeueCondition::Room);
    assert_eq!(active(&pending, &queues), [0, 0], "none is woken at once");
    for (left, count) in [(true, [1, 0]), (false, [1, 1])] {
        assert_eq!(pending.wake_some(1, |_, _, _| 0, |_| false), 1);
        assert_eq!(active(&pending, &queues), count);
        assert_eq!(pending.has_to_wake(), left);
    }
    wait_for_gpus(&mut pending, &queues, shape);
    assert_eq!(gpus_left(&mut pending, 2, 1), 1);
    assert_eq!(active(&pending, &queues), [1, 0]);
    // It is used before the other one was woken.
    assert_eq!(gpus_left(&mut pending, 1, 9), 1);
    assert_eq!(active(&pending, &queues), [0, 0]);
    assert!(!pending.has_to_wake());
    // One that was evaluated since it was noted is not woken.
    pending.wake(&RequeueCondition::Quota(queues[0].clone()));
    pending.activate(&queues[0], shape);
    pending.wait_for_shape(&queues[0], shape);
    pending.wake_some(9, |_, _, _| 0, |_| false);
    let pending_queue = pending.pending_queue(&queues[0]).unwrap();
    assert!(!pending_queue.is_due(shape, true));
}

#[test]
fn a_queue_has_changed_when_any_job_joins_or_leaves_it() {
    let (mut pending, queues, shape) = parked();
    let [a, _] = &queues;
    let behind = rank("behind", 2);
    let changed = BTreeSet::from([a.clone()]);
    pending.insert(a, QueueId::ROOT, (shape, SlotSetId::default()), &behind);
    assert_eq!(active(&pending, &queues), [0, 0]);
    assert_eq!(pending.take_changed(usize::MAX), changed);
    pending.remove(a, shape, &behind);
    assert_eq!(active(&pending, &queues), [0, 0]);
    assert_eq!(pending.take_changed(usize::MAX), changed);
}

#[test]
fn the_first_job_of_a_class_is_active_unless_the_class_is_parked() {
    let (mut pending, queues, shape) = parked();
    let first = |pending: &PendingQueues| {
        let pending_queue = pending.pending_queue(&queues[0]).unwrap();
        let first = pending_queue.first_active(shape);
        first.map(|(rank, _)| rank.key.name.to_string())
    };
    assert_eq!(first(&pending), None);
    pending.activate(&queues[0], shape);
    assert_eq!(first(&pending).as_deref(), Some("a"));
}

#[test]
fn another_reason_of_a_class_is_new_once() {
    let (mut pending, queues, shape) = parked();
    let reasons = [
        Reason::WaitingForRoom,
        Reason::ReservedForAnother,
        Reason::ReservedForAnother,
    ];
    let new = reasons.map(|reason| pending.note_reason(&queues[0], shape, reason));
    assert_eq!(new, [false, true, false]);
}

/// A class whose reservation may move to freed nodes is active, until it is known that it does not.
#[test]
fn a_class_may_move_until_it_is_parked_or_known_not_to() {
    let (mut pending, queues, shape) = parked();
    let [a, b] = &queues;
    let moves = |pending: &PendingQueues| {
        [a, b].map(|queue| {
            pending
                .pending_queue(queue)
                .is_some_and(|queue| queue.may_move(shape))
        })
    };
    pending.recheck_if_moving(a, shape);
    assert_eq!(active(&pending, &queues), [1, 0]);
    assert_eq!(moves(&pending), [true, false]);
    assert!(pending.has_changed());
    pending.take_changed(usize::MAX);
    pending.take_woken();
    // An active class is not woken once more, and its queue is asked again.
    pending.recheck_if_moving(a, shape);
    assert!(pending.has_changed());
    pending.park(a, shape, inadmissible(RequeueCondition::Room));
    assert_eq!(moves(&pending), [false, false]);
    for queue in [a, b] {
        pending.recheck_if_moving(queue, shape);
    }
    pending.none_moves(a);
    assert_eq!(moves(&pending), [false, true]);
    // The only job of the class leaves, and another one of its shape comes.
    let [_, other] = shapes();
    pending.insert(
        b,
        QueueId::ROOT,
        (other, SlotSetId::default()),
        &rank("beside", 2),
    );
    pending.remove(b, shape, &rank("b", 1));
    pending.insert(
        b,
        QueueId::ROOT,
        (shape, SlotSetId::default()),
        &rank("b", 1),
    );
    assert_eq!(moves(&pending), [false, false]);
}

#[test]
fn a_window_has_the_first_jobs_of_all_classes_active_or_parked() {
    let mut pending = PendingQueues::default();
    let queue = QueueName::from("q");
    let [one, other] = shapes();
    for (shape, name, at) in [
        (one, "a", 3),
        (one, "b", 1),
        (other, "c", 2),
        (other, "d", 4),
    ] {
        pending.insert(
            &queue,
            QueueId::ROOT,
            (shape, SlotSetId::default()),
            &rank(name, at),
        );
    }
    pending.park(&queue, one, inadmissible(RequeueCondition::Room));
    let pending_queue = pending.pending_queue(&queue).unwrap();
    let all = [("b", 1), ("c", 2), ("a", 3), ("d", 4)].map(|(name, at)| rank(name, at));
    for most in 0..=5 {
        let first: Vec<&QueueOrder> = all.iter().take(most).collect();
        assert_eq!(
            pending_queue.window(most, |_| None, |_| false),
            first,
            "{most}"
        );
    }
}

#[test]
fn a_shape_is_in_a_window_until_it_is_in_that_of_no_queue() {
    let (mut pending, [a, b], shape) = parked();
    assert!(!pending.is_in_window(shape));
    for queue in [&a, &b] {
        pending.note_window(queue, BTreeSet::from([shape]));
    }
    pending.note_window(&a, BTreeSet::new());
    assert!(pending.is_in_window(shape));
    assert_eq!(pending.with_window().collect::<Vec<_>>(), [&b]);
    pending.note_window(&b, BTreeSet::new());
    assert!(!pending.is_in_window(shape));
}

#[test]
fn in_a_long_queue_the_classes_that_are_passed_over_are_not_asked() {
    let mut pending = PendingQueues::default();
    let queue = QueueName::from("q");
    let mut shapes = Shapes::default();
    let ids: Vec<ShapeId> = (1..=1_000)
        .map(|count| shapes.acquire(shape(demand(count, "cpu 1"))))
        .collect();
    for (at, id) in ids.iter().enumerate() {
        let order = rank(&format!("job-{at}"), at as i64);
        pending.insert(&queue, QueueId::ROOT, (*id, SlotSetId::default()), &order);
        pending.wait_for_shape(&queue, *id);
        pending.pass_over(&queue, *id);
    }
    assert_eq!(active(&pending, &[queue.clone(), queue.clone()])[0], 1_000);
    let [first, later, last] = [ids[0], ids[700], ids[999]];
    let found = |pending: &PendingQueues, besides: &[ShapeId], feasible: &[ShapeId]| {
        let asked = std::cell::Cell::new(0);
        let of_queue = pending.pending_queue(&queue).unwrap();
        let found = of_queue.candidate_among_asked(besides.iter().copied(), |_, shape| {
            asked.set(asked.get() + 1);
            feasible.contains(&shape)
        });
        assert!(asked.get() <= 2, "{} were asked", asked.get());
        found.map(|(_, shape)| shape)
    };
    // Which classes are asked besides, which are feasible, and the one that is found.
    let cases: [(&[ShapeId], &[ShapeId], Option<ShapeId>); 6] = [
        (&[], &[first], None),
        (&[first], &[first], Some(first)),
        (&[last, later], &[], None),
        (&[last], &[last], Some(last)),
        (&[last, later], &[last, later], Some(later)),
        (&[last, later], &[last], Some(last)),
    ];
    for (besides, feasible, expected) in cases {
        assert_eq!(found(&pending, besides, feasible), expected);
    }
    // Those whose shapes may be feasible, that are rechecked, or may have nearer nodes, are asked in any case.
    pending.ask_again(&BTreeSet::from([later]));
    assert_eq!(found(&pending, &[], &[later]), Some(later));
    assert_eq!(found(&pending, &[last], &[last]), Some(last));
    pending.pass_over(&queue, later);
    assert_eq!(found(&pending, &[], &[later]), None);
    pending.recheck(&queue, later);
    assert_eq!(found(&pending, &[], &[later]), Some(later));
    pending.wait_for_shape(&queue, later);
    pending.pass_over(&queue, later);
    assert_eq!(found(&pending, &[], &[later]), None);
    pending.recheck_if_moving(&queue, last);
    assert_eq!(found(&pending, &[], &[last]), Some(last));
    // A parked class is no candidate, whatever names it.
    pending.park(&queue, last, inadmissible(RequeueCondition::Room));
    assert_eq!(found(&pending, &[last], &[last]), None);
}
