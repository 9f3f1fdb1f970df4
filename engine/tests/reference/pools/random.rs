//! Random queues with bounds on pools, fleets of two classes of GPUs, and jobs that are submitted
//! and end.

use super::{Case, Node, Pool, Queue, Round};
use crate::case::{Job, Role};
use proptest::option::weighted;
use proptest::prelude::*;

pub fn case() -> impl Strategy<Value = Case> {
    let clusters = prop_oneof![
        1 => Just([true; 3]),
        3 => any::<[bool; 3]>(),
    ];
    let pool = (
        0..2_usize,
        clusters,
        weighted(0.15, 1..5_i64),
        weighted(0.9, 0..9_i64),
    )
        .prop_map(|(class, clusters, guarantee, capability)| Pool {
            class,
            clusters,
            guarantee: guarantee.unwrap_or(0),
            capability,
        });
    let queue = (
        weighted(0.5, 0..5_usize),
        proptest::collection::vec(pool, 0..4),
    )
        .prop_map(|(parent, pools)| Queue { parent, pools });
    let node = (0..3_usize, 0..2_usize, 1..9_i64).prop_map(|(cluster, class, gpus)| Node {
        cluster,
        class,
        gpus,
    });
    let role = (1..4_u32, 0..4_i64).prop_map(|(count, gpus)| Role {
        count,
        each: [gpus, 1],
    });
    let job = (0..5_usize, proptest::collection::vec(role, 1..3)).prop_map(|(queue, roles)| Job {
        queue,
        class: 0,
        queued_at: 0,
        user: 0,
        roles,
    });
    let round = (
        proptest::collection::vec(0..8_usize, 0..3),
        proptest::collection::vec(job, 0..5),
        weighted(0.2, (0..5_usize, 0..4_usize, 0..9_i64)),
    )
        .prop_map(|(finish, submit, bound)| Round {
            finish,
            submit,
            bound,
        });
    (
        proptest::collection::vec(queue, 1..6),
        proptest::collection::vec(node, 2..6),
        proptest::collection::vec(round, 1..6),
        proptest::bool::weighted(0.3),
    )
        .prop_map(|(queues, nodes, rounds, guarantees)| {
            sane(
                Case {
                    queues,
                    nodes,
                    rounds,
                },
                guarantees,
            )
        })
}

/// Two levels. Guarantees are in the upper one only, in some cases, and within the fleet; a bound
/// of a queue is within those of its parent that count the same pools.
fn sane(mut case: Case, guarantees: bool) -> Case {
    for index in 0..case.queues.len() {
        let parent = case.queues[index]
            .parent
            .filter(|parent| *parent < index && case.queues[*parent].parent.is_none());
        case.queues[index].parent = parent;
        let mut pools: Vec<Pool> = Vec::new();
        for mut pool in std::mem::take(&mut case.queues[index].pools) {
            let same = |of: &Pool| of.class == pool.class && of.clusters == pool.clusters;
            if pool.clusters == [false; 3] || pools.iter().any(same) {
                continue;
            }
            let all = case.queues.iter().flat_map(|queue| &queue.pools);
            let taken: i64 = all.chain(&pools).map(|of| of.guarantee).sum();
            let left = (case.has(&pool) - taken).max(0);
            let left = left.min(pool.capability.unwrap_or(left));
            let may_keep = guarantees && parent.is_none();
            pool.guarantee = if may_keep {
                pool.guarantee.min(left)
            } else {
                0
            };
            pool.capability = within(&case, parent, &pool);
            pools.push(pool);
        }
        case.queues[index].pools = pools;
    }
    let is_leaf = |at: &usize| case.queues.iter().all(|queue| queue.parent != Some(*at));
    let leaves: Vec<usize> = (0..case.queues.len()).filter(is_leaf).collect();
    let queues = case.queues.clone();
    for round in &mut case.rounds {
        for job in &mut round.submit {
            job.queue = leaves[job.queue % leaves.len()];
        }
        // Only for queues without parent and children, so that the tree stays valid.
        round.bound = round.bound.and_then(|(at, pool, gpus)| {
            let queue = leaves[at % leaves.len()];
            let pools = &queues[queue].pools;
            if queues[queue].parent.is_some() || pools.is_empty() {
                return None;
            }
            let pool = pool % pools.len();
            Some((queue, pool, gpus.max(pools[pool].guarantee)))
        });
    }
    case
}

/// The capability of a bound, cut to that of the parent on the same pools.
fn within(case: &Case, parent: Option<usize>, pool: &Pool) -> Option<i64> {
    let above = parent
        .into_iter()
        .flat_map(|parent| &case.queues[parent].pools);
    let same = above.filter(|of| of.class == pool.class && of.clusters == pool.clusters);
    let most = same.filter_map(|of| of.capability).min();
    match (pool.capability, most) {
        (Some(own), Some(most)) => Some(own.min(most)),
        (own, most) => own.or(most),
    }
}
