//! Exact hierarchical weighted water filling, and the engine against it.
//!
//! All leaves have more unit jobs than the fleet can run. The test checks after every admission: at
//! each level, the children of a queue share what the queue uses then.
//!
//! What must hold of an order that gives the next job to the queue that has least:
//! - nobody is ever more than one job above the exact filling;
//! - wherever the exact filling is in whole jobs for all, it is met exactly;
//! - among equals nobody is more than one job below it either. (Among unequal ones that cannot be
//!   had together with the first: ten queues of weight 1 get their first job before one of weight
//!   10 gets its second.)

use crate::fraction::Fraction;
use crate::world;
use engine::{Decision, Engine, EngineConfig, Event, Progress, Time};
use proptest::prelude::*;

/// A queue of the tree, in GPUs.
#[derive(Debug, Clone)]
struct Queue {
    parent: Option<usize>,
    weight: u32,
    deserved: Option<i64>,
    capability: Option<i64>,
}

#[derive(Debug, Clone)]
struct Case {
    fleet: i64,
    queues: Vec<Queue>,
}

/// The limits and the rate of a child.
#[derive(Debug, Clone, Copy)]
struct Cup {
    /// Its first level, which fills at a rate of its own size.
    deserved: Fraction,
    /// The rate above the first level.
    rate: Fraction,
    /// The highest level.
    most: Fraction,
}

/// Pours `total` into the cups: first all rise to their deserved levels at the same part of them,
/// then by their rates. Full cups leave the rest to the others.
fn fill(cups: &[Cup], total: Fraction) -> Vec<Fraction> {
    let first: Vec<_> = cups
        .iter()
        .map(|cup| (cup.deserved, cup.deserved.min(cup.most)))
        .collect();
    let deserved = pour(&first, total);
    let poured = deserved
        .iter()
        .fold(Fraction::ZERO, |sum, part| sum.plus(*part));
    let then: Vec<_> = cups
        .iter()
        .zip(&first)
        .map(|(cup, (_, level))| (cup.rate, cup.most.minus(*level)))
        .collect();
    let above = pour(&then, total.minus(poured));
    deserved
        .iter()
        .zip(&above)
        .map(|(a, b)| a.plus(*b))
        .collect()
}

/// Pours into cups of (rate, size), to the same level for all that are not full.
fn pour(cups: &[(Fraction, Fraction)], total: Fraction) -> Vec<Fraction> {
    let mut filled = vec![None; cups.len()];
    loop {
        let full = filled.iter().flatten();
        let left = total.minus(
            full.fold(Fraction::ZERO, |sum, part| sum.plus(*part))
                .min(total),
        );
        let open = || (0..cups.len()).filter(|at| filled[*at].is_none());
        let rates = open().fold(Fraction::ZERO, |sum, at| sum.plus(cups[at].0));
        if rates == Fraction::ZERO {
            return filled
                .into_iter()
                .map(|part| part.unwrap_or(Fraction::ZERO))
                .collect();
        }
        let level = left.per(rates);
        let bursts = open().find(|at| cups[*at].0.times(level) > cups[*at].1);
        match bursts {
            // A cup that is over its size at this level is full at the final level, too, which
            // only rises.
            Some(at) => filled[at] = Some(cups[at].1),
            None => {
                let part = |at: usize| filled[at].unwrap_or(cups[at].0.times(level));
                return (0..cups.len()).map(part).collect();
            }
        }
    }
}

impl Case {
    fn children(&self, parent: Option<usize>) -> Vec<usize> {
        let all = 0..self.queues.len();
        all.filter(|at| self.queues[*at].parent == parent).collect()
    }

    /// The most that a queue and those below it can use.
    fn most(&self, queue: usize) -> i64 {
        let own = self.queues[queue].capability.unwrap_or(self.fleet);
        let children = self.children(Some(queue));
        let below: i64 = children.iter().map(|child| self.most(*child)).sum();
        if children.is_empty() {
            own
        } else {
            own.min(below)
        }
    }

    fn cup(&self, queue: usize) -> Cup {
        let stated = &self.queues[queue];
        let of = stated.capability.unwrap_or(self.fleet);
        Cup {
            deserved: Fraction::whole(stated.deserved.unwrap_or(0)),
            rate: Fraction::whole(of * i64::from(stated.weight)),
            most: Fraction::whole(self.most(queue)),
        }
    }

    /// Compares every level with the exact filling of its parent's usage.
    fn check(&self, held: &[i64]) -> Result<(), String> {
        let parents = (0..self.queues.len()).map(Some).chain([None]);
        for parent in parents {
            let children = self.children(parent);
            let total: i64 = children.iter().map(|child| held[*child]).sum();
            let cups: Vec<Cup> = children.iter().map(|child| self.cup(*child)).collect();
            let exact = fill(&cups, Fraction::whole(total));
            let alike = cups.windows(2).all(|two| {
                (two[0].deserved, two[0].rate, two[0].most)
                    == (two[1].deserved, two[1].rate, two[1].most)
            });
            let whole = exact.iter().all(|part| part.is_whole());
            for (child, part) in children.iter().zip(&exact) {
                let has = Fraction::whole(held[*child]);
                let one = Fraction::whole(1);
                let fair = has <= part.plus(one)
                    && (!whole || has == *part)
                    && (!alike || *part <= has.plus(one));
                if !fair {
                    let exact: Vec<_> = exact.iter().map(ToString::to_string).collect();
                    return Err(format!(
                        "below {parent:?}, queues {children:?} of {held:?} should have {exact:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn name(queue: usize) -> String {
    format!("q{queue}")
}

/// Admits all jobs that fit, one by one, and checks the shares after each.
fn share_out(case: &Case) -> Result<(), String> {
    let mut engine = Engine::new(EngineConfig::default());
    let now = Time(1_000_000);
    engine.apply(Event::ClusterUpserted(world::cluster("x")));
    for node in 0..case.fleet {
        let fact = world::node("x", &format!("n{node}"), "gpu 1, cpu 8");
        engine.apply(Event::NodeUpserted(fact));
    }
    for (index, queue) in case.queues.iter().enumerate() {
        engine.apply(Event::QueueUpserted(fact(index, queue)));
    }
    let leaves = (0..case.queues.len()).filter(|at| case.children(Some(*at)).is_empty());
    for leaf in leaves {
        for job in 0..=case.fleet {
            engine.apply(Event::JobUpserted(unit_job(leaf, job)));
        }
    }
    let mut held = vec![0; case.queues.len()];
    loop {
        let decided = engine.decide(now);
        for decision in &decided.decisions {
            let Decision::Release { key, admission, .. } = decision else {
                return Err(format!("nothing but releases was expected: {decision:?}"));
            };
            let queue: usize = admission.queue.as_str()[1..].parse().unwrap();
            std::iter::successors(Some(queue), |at| case.queues[*at].parent)
                .for_each(|at| held[at] += 1);
            case.check(&held)
                .map_err(|wrong| format!("after {key}: {wrong}"))?;
            engine.apply(Event::JobProgressed {
                key: key.clone(),
                attempt: admission.attempt,
                progress: Progress::Running,
                at: now,
            });
        }
        if !decided.more {
            break;
        }
    }
    let total: i64 = case.children(None).into_iter().map(|at| held[at]).sum();
    let most: i64 = case
        .children(None)
        .into_iter()
        .map(|at| case.most(at))
        .sum();
    if total == most.min(case.fleet) {
        return Ok(());
    }
    Err(format!("{total} of {} run, {held:?}", most.min(case.fleet)))
}

fn fact(index: usize, queue: &Queue) -> engine::facts::QueueFact {
    let gpus = |most: Option<i64>| {
        most.map_or_else(engine::Resources::new, |most| {
            world::res(&format!("gpu {most}"))
        })
    };
    engine::facts::QueueFact {
        parent: queue.parent.map(|parent| name(parent).as_str().into()),
        weight: queue.weight,
        deserved: gpus(queue.deserved),
        capability: gpus(queue.capability),
        ..world::queue(&name(index))
    }
}

fn unit_job(queue: usize, job: i64) -> engine::facts::JobFact {
    let role = crate::case::Role {
        count: 1,
        each: [1, 0],
    };
    let job_of = crate::case::Job {
        queue,
        class: 0,
        queued_at: job,
        user: 0,
        roles: vec![role],
    };
    engine::facts::JobFact {
        priority_class: None,
        ..job_of.fact(&format!("{}-{job:03}", name(queue)))
    }
}

fn case() -> impl Strategy<Value = Case> {
    let queue = (
        proptest::option::of(0..8_usize),
        1..5_u32,
        proptest::option::weighted(0.5, 1..9_i64),
        proptest::option::weighted(0.3, 1..25_i64),
    );
    let queues = proptest::collection::vec(queue, 2..9);
    (4..25_i64, queues, any::<bool>()).prop_map(|(fleet, queues, alike)| {
        let queues: Vec<Queue> = queues
            .into_iter()
            .enumerate()
            .map(|(index, (parent, weight, deserved, capability))| Queue {
                parent: parent.filter(|parent| *parent < index),
                weight: if alike { 1 } else { weight },
                deserved: deserved.filter(|_| !alike),
                capability: capability.filter(|_| !alike),
            })
            .collect();
        sane(Case { fleet, queues })
    })
}

/// Cuts capability and deserved to those of the levels above, and the deserved amounts of siblings
/// to their parent's, or the fleet.
fn sane(mut case: Case) -> Case {
    for index in 0..case.queues.len() {
        let above = case.queues[index]
            .parent
            .map(|parent| case.queues[parent].clone());
        let bound = above.as_ref().and_then(|above| above.capability);
        let most = bound.unwrap_or(case.fleet);
        let pot = above
            .map_or(Some(case.fleet), |above| above.deserved)
            .unwrap_or(0);
        let siblings = case.children(case.queues[index].parent).into_iter();
        let taken: i64 = siblings
            .filter(|at| *at < index)
            .filter_map(|at| case.queues[at].deserved)
            .sum();
        let queue = &mut case.queues[index];
        queue.capability = queue.capability.map(|own| own.min(most)).or(bound);
        let most = queue.capability.unwrap_or(most).min(pot - taken);
        queue.deserved = queue
            .deserved
            .map(|own| own.min(most))
            .filter(|own| *own > 0);
    }
    case
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: crate::cases(60),
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn backlogged_queues_use_what_exact_water_filling_gives(case in case()) {
        share_out(&case).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn filling_raises_the_deserved_first_then_by_weight_and_leaves_what_is_full() {
    let cup = |deserved, rate, most| Cup {
        deserved: Fraction::whole(deserved),
        rate: Fraction::whole(rate),
        most: Fraction::whole(most),
    };
    let cups = [cup(4, 1, 20), cup(2, 2, 3), cup(0, 1, 20)];
    let filled = |total| {
        let parts = fill(&cups, Fraction::whole(total));
        parts
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(filled(3), "2/1 1/1 0/1");
    assert_eq!(filled(7), "17/4 5/2 1/4");
    assert_eq!(filled(13), "7/1 3/1 3/1");
}
