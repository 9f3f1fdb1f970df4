//! Random fleets, queues and events; what must hold after every step.
//!
//! Checked from outside, by code that shares nothing with the engine but its types: admissions
//! never pass a capability nor take what is guaranteed to others (S1), plans never pass a node (S2), gangs are
//! whole (S3), one attempt at most is live (S4), attempts are counted (S5), nobody is passed by his like (S6),
//! what a queue is charged is what its jobs hold (S10), who is evicted may be evicted, a restored engine goes
//! on alike, the same events give the same decisions, jobs that pull at each other come to rest, and what fits
//! alone is released in the end.

use proptest::prelude::*;

mod bytes;
mod checks;
mod fleet;
mod fresh;
mod guarantees;
mod jobs;
mod layout;
mod model;
mod parked;
mod pools;
mod queues;
mod settle;
mod step;
mod taking;
mod wide;

use layout::{Layout, Span};
use model::Model;
use step::{Step, lively, step};

/// Leaf queues; `a` and `b` are below `dept`.
const QUEUES: [&str; 4] = ["a", "b", "c", "d"];
const CLUSTERS: [&str; 3] = ["x", "y", "z"];
const JOBS: usize = 12;

/// Takes all steps, and what follows where nothing else happens.
fn tell(steps: Vec<Step>) {
    tell_to(Model::new(Layout::small()), steps);
}

fn tell_to(mut model: Model, steps: Vec<Step>) {
    for step in steps {
        model.take(step);
    }
    model.decide();
    model.come_to_rest();
    model.settle();
    model.replay();
}

proptest! {
    // Few by default, for each is long.
    #![proptest_config(ProptestConfig { cases: crate::random::cases(32), max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn what_must_hold_holds(steps in proptest::collection::vec(step(Span::SMALL), 1..120)) {
        tell(steps);
    }

    #[test]
    fn it_holds_where_much_runs(steps in proptest::collection::vec(lively(Span::SMALL), 1..160)) {
        tell(steps);
    }
}
