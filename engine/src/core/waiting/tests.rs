use super::super::shapes::{RequestShape, Shapes};
use super::*;
use crate::ids::{JobKey, Time};
use crate::resources::Resources;
use crate::room::testing::demand;
use std::cmp::Reverse;
use std::sync::Arc;

fn rank(name: &str, at: i64) -> Rank {
    Rank {
        priority: Reverse(0),
        at: Time(at),
        key: JobKey::new("ns", name),
    }
}

fn asleep(wake: Wake) -> Sleep {
    Sleep {
        reason: Reason::WaitingForRoom,
        hopeful: true,
        wakes: vec![wake],
    }
}

/// Two queues with a job each, both asleep for want of room.
fn sleeping() -> (Waiting, [QueueName; 2], ShapeId) {
    let mut waiting = Waiting::default();
    let queues = ["a", "b"].map(QueueName::from);
    let shape = Shapes::default().acquire(RequestShape {
        demand: Arc::new(demand(1, "cpu 1")),
        total: Resources::new(),
        duration: None,
        user: None,
        max_clusters: None,
        avoid: BTreeSet::new(),
        preempts: true,
    });
    for queue in &queues {
        let name = queue.as_str();
        waiting.insert(queue, QueueId::ROOT, shape, &rank(name, 1));
        waiting.sleep(queue, shape, asleep(Wake::Room));
    }
    waiting.take_woken();
    waiting.take_stirred();
    (waiting, queues, shape)
}

fn awake(waiting: &Waiting, queues: &[QueueName; 2]) -> [usize; 2] {
    queues
        .each_ref()
        .map(|queue| waiting.leaf(queue).map_or(0, Leaf::awake))
}

#[test]
fn a_queue_wakes_alone_and_is_stirred() {
    let (mut waiting, queues, shape) = sleeping();
    assert_eq!(awake(&waiting, &queues), [0, 0]);
    assert!(!waiting.is_stirred());
    waiting.wake_queue(&queues[0]);
    assert_eq!(awake(&waiting, &queues), [1, 0]);
    assert!(waiting.is_stirred());
    let woken = BTreeSet::from([(queues[0].clone(), shape)]);
    assert_eq!(waiting.take_woken(), woken);
    assert_eq!(waiting.take_woken(), BTreeSet::new());
}

#[test]
fn a_group_was_judged_until_it_is_woken() {
    let (mut waiting, queues, shape) = sleeping();
    let judged = |waiting: &Waiting| waiting.leaf(&queues[0]).map(|leaf| leaf.was_judged(shape));
    waiting.wake(&Wake::Room);
    assert_eq!(judged(&waiting), Some(false));
    waiting.note_judged(&queues[0], shape);
    assert_eq!(judged(&waiting), Some(true));
    waiting.rouse(&queues[0], shape);
    assert_eq!(judged(&waiting), Some(false));
}
