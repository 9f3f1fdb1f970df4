//! Invalid trees of queues.
//!
//! docs/scheduling.md, "Quota": an invalid queue (guarantee over capability, a circle of parents, a
//! child over its parent) blocks itself and the queues below it, and no others. volcano.md, bug
//! class 11: one bad queue blocks only itself. A queue whose parent does not exist has a broken
//! chain, too (docs/reference/reasons.md, `QueueInvalid`). Only leaf queues take jobs
//! (docs/tenants.md).
//!
//! Every leaf queue gets a job that requests CPU only, which no bound here counts: it runs if and
//! only if the chain of its parents is valid, whatever was observed before.

use crate::case::queue_name;
use crate::world::{World, pods, queue, res};
use engine::JobState;
use engine::facts::QueueFact;
use proptest::option::weighted;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Names of parents may be of queues beyond these, which do not exist.
const QUEUES: usize = 5;

/// A fact of a queue, once or again; bounds in GPUs.
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

    /// Returns true if guarantee ≤ deserved ≤ capability, as far as they are named.
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

/// Returns true if the chain from the queue up to the root is valid.
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
    // More steps than queues: a circle.
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
            // A guarantee must be deserved, and by name only; and the guarantees of siblings must
            // be within their parent's. Both are left to queues below the root.
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
    fn an_invalid_queue_blocks_itself_and_those_below_it_only(steps in steps()) {
        compare(&steps).map_err(TestCaseError::fail)?;
    }
}

/// The rule would hold for trees that are all valid, or all invalid.
#[test]
fn the_random_trees_are_valid_and_invalid() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let all = (0..50).map(|_| steps().new_tree(&mut runner).unwrap().current());
    let told: Vec<(usize, usize)> = all.map(|steps| compare(&steps).unwrap()).collect();
    let runs: usize = told.iter().map(|(runs, _)| runs).sum();
    let stops: usize = told.iter().map(|(_, stops)| stops).sum();
    assert!(runs > 100 && stops > 100, "{runs} {stops}");
}
