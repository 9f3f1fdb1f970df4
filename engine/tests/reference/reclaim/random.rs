//! Random queues, of which the first borrows and others reclaim.

use super::{CLUSTERS, Case, Class, Job, Queue, Round};
use proptest::option::weighted;
use proptest::prelude::*;

pub fn case() -> impl Strategy<Value = Case> {
    let mostly = || proptest::bool::weighted(0.9);
    let queue = (
        weighted(0.85, 0..13_i64),
        weighted(0.3, 1..5_i64),
        mostly(),
        mostly(),
        weighted(0.2, 1..200_i64),
    )
        .prop_map(
            |(deserved, guarantee, reclaimable, reclaims, min_runtime)| Queue {
                parent: None,
                deserved,
                guarantee: guarantee.unwrap_or(0),
                reclaimable,
                reclaims,
                min_runtime: min_runtime.unwrap_or(0),
            },
        );
    let class = prop_oneof![3 => Just(Class::Low), 3 => Just(Class::High), 1 => Just(Class::Never)];
    let job = (0..4_usize, 1..4_u32, 1..4_i64, class, mostly()).prop_map(
        |(queue, count, gpus, class, preemptible)| Job {
            queue,
            count,
            gpus,
            class,
            preemptible,
        },
    );
    let jobs = |range| proptest::collection::vec(job.clone(), range);
    let round =
        (weighted(0.3, 0..8_usize), jobs(0..5), 0..120_i64).prop_map(|(finish, submit, wait)| {
            Round {
                finish,
                submit,
                wait,
            }
        });
    // One queue comes first, and borrows all it can.
    let first = jobs(3..9).prop_map(|mut submit| {
        submit.iter_mut().for_each(|job| job.queue = 0);
        Round {
            finish: None,
            submit,
            wait: 0,
        }
    });
    // In some cases a queue is above some of the others.
    let inner = weighted(0.5, (queue.clone(), any::<[bool; 4]>(), any::<bool>()));
    (
        proptest::collection::vec(queue, 2..5),
        inner,
        proptest::collection::vec((0..CLUSTERS, 2..7_i64), 1..5),
        first,
        proptest::collection::vec(round, 1..6),
    )
        .prop_map(|(mut queues, inner, nodes, first, mut rounds)| {
            rounds.insert(0, first);
            if let Some((inner, below, names)) = inner {
                let parent = queues.len();
                for (queue, below) in queues.iter_mut().zip(below) {
                    queue.parent = below.then_some(parent);
                }
                queues.push(Queue {
                    deserved: inner.deserved.filter(|_| names),
                    guarantee: if names { inner.guarantee } else { 0 },
                    ..inner
                });
            }
            sane(Case {
                within: false,
                queues,
                nodes,
                rounds,
            })
        })
}

/// Guarantees are within the deserved amounts and, together, within the fleet and their parent's
/// guarantee; the first queue, which borrows, deserves little.
fn sane(mut case: Case) -> Case {
    case.queues[0].deserved = case.queues[0].deserved.map(|gpus| gpus % 4);
    let mut left: i64 = case.nodes.iter().map(|(_, gpus)| gpus).sum();
    for at in 0..case.queues.len() {
        let below = case.queues.iter().filter(|below| below.parent == Some(at));
        let below: i64 = below.map(|below| below.guarantee).sum();
        let queue = &mut case.queues[at];
        let named = queue.guarantee > 0;
        let more = queue.deserved.unwrap_or(0).min(queue.guarantee) - below;
        let more = more.clamp(0, left);
        queue.guarantee = if named || below == 0 { below + more } else { 0 };
        queue.deserved = queue.deserved.map(|gpus| gpus.max(queue.guarantee));
        left -= more;
    }
    let is_leaf = |at: &usize| case.queues.iter().all(|queue| queue.parent != Some(*at));
    let leaves: Vec<usize> = (0..case.queues.len()).filter(is_leaf).collect();
    for job in case.rounds.iter_mut().flat_map(|round| &mut round.submit) {
        job.queue = leaves[job.queue % leaves.len()];
    }
    case
}

/// The same with jobs that preempt in their own queue only, and bounds that do not bind.
pub fn inside(mut case: Case) -> Case {
    case.within = true;
    for queue in &mut case.queues {
        (queue.guarantee, queue.deserved) = (0, None);
    }
    for round in &mut case.rounds {
        round.submit.iter_mut().for_each(|job| job.queue %= 2);
    }
    case.queues.truncate(2);
    case.queues.iter_mut().for_each(|queue| queue.parent = None);
    case
}
