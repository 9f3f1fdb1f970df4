//! Random fleets, queues and events; what must hold after every step.
//!
//! The checks share only types with the engine: admissions exceed neither a capability nor what one
//! user or one namespace may have, nor use what is guaranteed to others (S1), plans exceed no node
//! (S2), gangs are whole (S3), at most one attempt is live (S4), attempts are counted (S5), no job is
//! passed by a similar one (S6), the charge of a queue is that of its jobs (S10), victims may be
//! evicted, a restored engine continues in the same way, the same events give the same decisions,
//! evictions come to an end, and a job that fits alone is admitted in the end.

use proptest::prelude::*;

mod bytes;
mod checks;
mod evicted;
mod fleet;
mod found;
mod fresh;
mod guarantees;
mod jobs;
mod layout;
mod model;
mod owners;
mod parked;
mod pools;
mod queues;
mod settle;
mod step;
mod taking;
mod wide;
mod woken;

use layout::{Layout, Span};
use model::Model;
use step::{Step, lively, owned, step};

/// Leaf queues; `a` and `b` are below `dept`.
const QUEUES: [&str; 4] = ["a", "b", "c", "d"];
const CLUSTERS: [&str; 3] = ["x", "y", "z"];
const JOBS: usize = 12;

/// Runs all steps, and then until nothing happens any more.
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
    // Few by default, since each is long.
    #![proptest_config(ProptestConfig { cases: crate::random::cases(32), max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_invariants_hold(steps in proptest::collection::vec(step(Span::SMALL), 1..120)) {
        tell(steps);
    }

    #[test]
    fn the_invariants_hold_with_limits_on_owners(steps in proptest::collection::vec(owned(Span::SMALL), 1..140)) {
        tell(steps);
    }

    #[test]
    fn the_invariants_hold_with_many_running_jobs(steps in proptest::collection::vec(lively(Span::SMALL), 1..160)) {
        tell(steps);
    }
}
