//! Random federations with valid trees of queues: bounds are cut to those of the parent.

use crate::case::{Bounds, Case, Job, Node, PRIORITIES, Queue, Role, Round};
use proptest::option::weighted;
use proptest::prelude::*;

pub fn case() -> impl Strategy<Value = Case> {
    let queues = proptest::collection::vec(queue(), 1..7);
    let nodes = proptest::collection::vec(node(), 1..6);
    let rounds = proptest::collection::vec(round(), 1..8);
    (queues, nodes, rounds).prop_map(|(queues, nodes, rounds)| {
        sane(Case {
            queues,
            nodes,
            rounds,
        })
    })
}

fn queue() -> impl Strategy<Value = Queue> {
    let tree = (
        weighted(0.6, 0..6_usize),
        weighted(0.3, -1..2_i32),
        1..4_u32,
    );
    let bounds = || (weighted(0.3, 1..13_i64), weighted(0.2, 1..25_i64));
    let limit = || weighted(0.1, 1..4_u32);
    let gpus = || weighted(0.1, 0..9_i64);
    (
        tree,
        bounds(),
        bounds(),
        bounds(),
        (weighted(0.15, 0..13_i64), weighted(0.3, 1..9_i64)),
        proptest::bool::weighted(0.3),
        (
            limit(),
            limit(),
            limit(),
            gpus(),
            gpus(),
            proptest::bool::weighted(0.3),
        ),
    )
        .prop_map(
            |(tree, guarantee, deserved, capability, of_class, strict, limits)| Queue {
                parent: tree.0,
                priority: tree.1.unwrap_or(0),
                weight: tree.2,
                guarantee: guarantee.into(),
                deserved: deserved.into(),
                capability: capability.into(),
                of_class: of_class.0,
                deserved_of_class: of_class.1,
                strict,
                jobs: limits.0,
                jobs_per_user: limits.1,
                pending: limits.2,
                gpus_per_user: limits.3,
                gpus_per_namespace: limits.4,
                by_user: limits.5 && !strict,
            },
        )
}

fn node() -> impl Strategy<Value = Node> {
    (
        0..3_usize,
        proptest::bool::weighted(0.2),
        0..9_i64,
        2..13_i64,
    )
        .prop_map(|(cluster, _big, gpus, cores)| Node {
            cluster,
            big: cluster == 2,
            has: [gpus, cores],
        })
}

fn round() -> impl Strategy<Value = Round> {
    (
        proptest::collection::vec(job(), 0..5),
        proptest::collection::vec(0..8_usize, 0..3),
        weighted(0.1, (0..6_usize, any::<bool>())),
        weighted(0.1, (0..6_usize, weighted(0.7, 1..13_i64))),
    )
        .prop_map(|(submit, finish, node, capability)| Round {
            submit,
            finish,
            node,
            capability,
        })
}

fn job() -> impl Strategy<Value = Job> {
    let role = (1..4_u32, 0..5_i64, 1..5_i64).prop_map(|(count, gpus, cores)| Role {
        count,
        each: [gpus, cores],
    });
    (
        0..6_usize,
        0..PRIORITIES.len(),
        0..10_i64,
        0..2_u8,
        proptest::collection::vec(role, 1..3),
    )
        .prop_map(|(queue, class, queued_at, user, roles)| Job {
            queue,
            class,
            queued_at,
            user,
            roles,
        })
}

/// The same case with existing queues and nodes only, at most three levels, and bounds within those
/// of the parents.
fn sane(mut case: Case) -> Case {
    for index in 0..case.queues.len() {
        let parent = case.queues[index].parent.filter(|parent| *parent < index);
        let parent = parent.filter(|parent| depth(&case.queues, *parent) < 3);
        case.queues[index].parent = parent;
        bound(&mut case.queues, index);
    }
    let leaves: Vec<usize> = (0..case.queues.len())
        .filter(|at| case.queues.iter().all(|queue| queue.parent != Some(*at)))
        .collect();
    let flat = |at: &usize| case.queues[*at].parent.is_none();
    let free: Vec<usize> = leaves.iter().copied().filter(flat).collect();
    for round in &mut case.rounds {
        for job in &mut round.submit {
            job.queue = leaves[job.queue % leaves.len()];
        }
        round.node = round
            .node
            .map(|(at, usable)| (at % case.nodes.len(), usable));
        // Only if no queue above or below has another value, and no less than is deserved.
        round.capability = round
            .capability
            .filter(|_| !free.is_empty())
            .map(|(at, most)| {
                let queue = free[at % free.len()];
                let least = case.queues[queue].deserved[0].unwrap_or(0);
                (queue, most.map(|most| most.max(least)))
            });
    }
    case
}

fn depth(queues: &[Queue], queue: usize) -> usize {
    queues[queue]
        .parent
        .map_or(1, |parent| 1 + depth(queues, parent))
}

/// Cuts to guarantee ≤ deserved ≤ capability ≤ the parent's, and the sum of guarantees to the
/// parent's, if it names one. What is cut to zero is left out: explicit zeros have tests of their
/// own.
fn bound(queues: &mut [Queue], index: usize) {
    let parent = queues[index].parent;
    let above = std::iter::successors(parent, |at| queues[*at].parent);
    let above = above.filter_map(|at| queues[at].of_class).min();
    let of_class = queues[index].of_class;
    queues[index].of_class = of_class.map(|own| above.map_or(own, |above| own.min(above)));
    let most = queues[index].of_class.or(above).unwrap_or(i64::MAX);
    let deserved = queues[index].deserved_of_class.map(|own| own.min(most));
    queues[index].deserved_of_class = deserved.filter(|deserved| *deserved > 0);
    for dim in 0..2 {
        let above = inherited(queues, queues[index].parent, dim);
        let left = left_of_guarantee(queues, index, dim);
        let queue = &mut queues[index];
        let cut = |bound: Option<i64>, most: Option<i64>| {
            let bound = bound.map(|bound| most.map_or(bound, |most| bound.min(most)));
            bound.filter(|bound| *bound > 0)
        };
        let capability: Bounds = queue.capability;
        queue.capability[dim] = cut(capability[dim], above);
        let most = queue.capability[dim].or(above);
        queue.deserved[dim] = cut(queue.deserved[dim], most);
        let most = queue.deserved[dim]
            .unwrap_or(0)
            .min(left.unwrap_or(i64::MAX));
        queue.guarantee[dim] = cut(queue.guarantee[dim], Some(most));
    }
}

/// The nearest bound above; bounds above are cut already.
fn inherited(queues: &[Queue], at: Option<usize>, dim: usize) -> Option<i64> {
    let queue = &queues[at?];
    queue.capability[dim].or_else(|| inherited(queues, queue.parent, dim))
}

/// The part of the parent's guarantee that earlier siblings have left; `None` below the root.
fn left_of_guarantee(queues: &[Queue], index: usize, dim: usize) -> Option<i64> {
    let parent = queues[index].parent?;
    let before = queues[..index]
        .iter()
        .filter(|queue| queue.parent == Some(parent));
    let taken: i64 = before.filter_map(|queue| queue.guarantee[dim]).sum();
    Some(queues[parent].guarantee[dim].unwrap_or(0) - taken)
}
