//! Trees of queues that contradict themselves.
//!
//! docs/scheduling.md, "Quota": a queue that contradicts itself (guarantee over
//! capability, a circle of parents, a child over its parent) stops itself and what is below it,
//! and stops nobody else. volcano.md, bug class 11: one bad queue stops only itself. A queue whose
//! parent nobody has told of has a broken chain as well (docs/reference/reasons.md,
//! `QueueInvalid`). Jobs go to queues without children only (docs/tenants.md).
//!
//! Every queue without children gets a job that asks for CPU alone, which no bound here counts:
//! it runs exactly where nothing up the chain of parents is broken, whatever was told before.

use crate::case::queue_name;
use crate::world::{World, pods, queue, res};
use engine::JobState;
use engine::facts::QueueFact;
use proptest::option::weighted;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Names of parents may be of queues beyond these: those are never told.
const QUEUES: usize = 5;

/// A queue as it is reported, once or again; bounds in GPUs.
#[derive(Debug, Clone)]
struct Stated {
    queue: usize,
    parent: Option<usize>,
    guarantee: Option<i64>,
    deserved: Option<i64>,
    capability: Option<i64>,
}

impl Stated {
    fn fact(&self) -> QueueFact {
        let gpus =
            |gpus: Option<i64>| res(&gpus.map_or_else(String::new, |gpus| format!("gpu {gpus}")));
        QueueFact {
            parent: self.parent.map(|parent| queue_name(parent).as_str().into()),
            guarantee: gpus(self.guarantee),
            deserved: gpus(self.deserved),
            capability: gpus(self.capability),
            ..queue(&queue_name(self.queue))
        }
    }

    /// guarantee ≤ deserved ≤ capability, as far as they are named.
    fn contradicts_itself(&self) -> bool {
        let over = |low: Option<i64>, high: Option<i64>| {
            low.zip(high).is_some_and(|(low, high)| low > high)
        };
        over(self.guarantee, self.deserved)
            || over(self.deserved, self.capability)
            || over(self.guarantee, self.capability)
    }
}

type Told = BTreeMap<usize, Stated>;

/// Whether nothing is broken from the queue up to the root.
fn is_sound(told: &Told, queue: usize) -> bool {
    let mut at = queue;
    for _ in 0..=QUEUES {
        let Some(stated) = told.get(&at).filter(|stated| !stated.contradicts_itself()) else {
            return false;
        };
        let Some(parent) = stated.parent else {
            return true;
        };
        let above = told.get(&parent).and_then(|above| above.capability);
        let is_over = |own: i64| above.is_some_and(|above| own > above);
        if stated.capability.is_some_and(is_over) {
            return false;
        }
        at = parent;
    }
    // More steps than there are queues: a circle.
    false
}

fn compare(steps: &[Stated]) -> Result<(usize, usize), String> {
    let mut world = World::new();
    world.cluster("x", 4, "cpu 64, gpu 64");
    let mut told = Told::new();
    let (mut runs, mut stops) = (0, 0);
    for (step, stated) in steps.iter().enumerate() {
        world.queue(stated.fact());
        told.insert(stated.queue, stated.clone());
        let has_children = |queue: usize| told.values().any(|of| of.parent == Some(queue));
        let leaves: Vec<usize> = told
            .keys()
            .copied()
            .filter(|queue| !has_children(*queue))
            .collect();
        let name = |queue: usize| format!("{}-{step}", queue_name(queue));
        for queue in &leaves {
            let job = world.job(&name(*queue), &queue_name(*queue), pods(1, "cpu 1"));
            world.submit(job);
        }
        while world.decided().more {}
        for queue in &leaves {
            let sound = is_sound(&told, *queue);
            let started = world.state(&name(*queue)) != JobState::Queued;
            if sound != started {
                let why = world.why(&name(*queue));
                return Err(format!("q{queue} is sound: {sound}, its job: {why}"));
            }
            runs += usize::from(started);
            stops += usize::from(!started);
            world.apply(engine::Event::JobGone(crate::world::key(&name(*queue))));
            world.works_gone(&name(*queue));
        }
    }
    Ok((runs, stops))
}

fn steps() -> impl Strategy<Value = Vec<Stated>> {
    let gpus = || weighted(0.3, 1..6_i64);
    let parent = weighted(0.6, 0..=QUEUES);
    let stated = (0..QUEUES, parent, weighted(0.2, 1..6_i64), gpus(), gpus()).prop_map(
        |(queue, parent, guarantee, deserved, capability)| Stated {
            queue,
            parent,
            // What is guaranteed has to be deserved, and only that by name; and the guarantees of
            // siblings have to be their parent's: both are left to queues below the root.
            guarantee: guarantee.filter(|_| deserved.is_some() && parent.is_none()),
            deserved: deserved.filter(|_| parent.is_none()),
            capability,
        },
    );
    proptest::collection::vec(stated, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: crate::cases(200),
        max_shrink_iters: 5_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_broken_queue_stops_itself_and_those_below_it_and_nobody_else(steps in steps()) {
        compare(&steps).map_err(TestCaseError::fail)?;
    }
}

/// The rule would hold of trees that are all sound, or all broken.
#[test]
fn the_random_trees_are_sound_and_broken() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let all = (0..50).map(|_| steps().new_tree(&mut runner).unwrap().current());
    let told: Vec<(usize, usize)> = all.map(|steps| compare(&steps).unwrap()).collect();
    let runs: usize = told.iter().map(|(runs, _)| runs).sum();
    let stops: usize = told.iter().map(|(_, stops)| stops).sum();
    assert!(runs > 100 && stops > 100, "{runs} {stops}");
}
