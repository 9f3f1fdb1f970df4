//! Placement and division of a gang: the fewest clusters that it fits into, node by node.

use super::Record;
use crate::case::{Amounts, Role, amounts_text, demand};
use crate::world;
use engine::facts::{ClusterPlacement, Demand, Held, Split};
use engine::{Decision, Engine, EngineConfig, Event, Time};
use good_lp::{Expression, ProblemVariables, Solution, SolverModel, Variable, constraint, microlp};
use good_lp::{ResolutionError, variable};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

#[derive(Debug, Clone)]
struct Case {
    nodes: Vec<Node>,
    roles: Vec<Role>,
    kind: Kind,
    max_clusters: Option<u32>,
}

#[derive(Debug, Clone)]
struct Node {
    cluster: usize,
    has: Amounts,
    /// GPUs used by foreign pods.
    used: i64,
}

/// How a gang may be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It is in one cluster.
    Whole,
    /// Its only role is divided by whole pods.
    Divisible,
    /// It is split if it fits into no single cluster.
    Split,
}

const CLUSTERS: usize = 4;

fn case() -> impl Strategy<Value = Case> {
    let node =
        (0..CLUSTERS, 1..9_i64, 2..17_i64, 0..5_i64).prop_map(|(cluster, gpus, cores, used)| {
            Node {
                cluster,
                has: [gpus, cores],
                used: used.min(gpus),
            }
        });
    let role = (1..9_u32, 0..5_i64, 1..4_i64).prop_map(|(count, gpus, cores)| Role {
        count,
        each: [gpus, cores],
    });
    let kind = prop_oneof![
        1 => Just(Kind::Whole),
        2 => Just(Kind::Divisible),
        2 => Just(Kind::Split),
    ];
    (
        proptest::collection::vec(node, 2..10),
        proptest::collection::vec(role, 1..3),
        kind,
        proptest::option::weighted(0.2, 1..4_u32),
    )
        .prop_map(|(nodes, mut roles, kind, max_clusters)| {
            if kind == Kind::Divisible {
                roles.truncate(1);
            }
            Case {
                nodes,
                roles,
                kind,
                max_clusters,
            }
        })
}

impl Case {
    fn demand(&self) -> Demand {
        let plain = demand(&self.roles);
        Demand {
            natively_divisible: self.kind == Kind::Divisible,
            held: if self.kind == Kind::Divisible {
                Held::ByReplicas
            } else {
                Held::Not
            },
            split: if self.kind == Kind::Split {
                Split::Allowed
            } else {
                Split::Never
            },
            placement: ClusterPlacement {
                max_clusters: self.max_clusters,
                ..plain.placement.clone()
            },
            ..plain
        }
    }

    fn most_clusters(&self) -> u32 {
        if self.kind == Kind::Whole {
            return 1;
        }
        self.max_clusters.unwrap_or(u32::MAX).min(CLUSTERS as u32)
    }

    /// The number of clusters in which the engine places the gang; `None` if it does not.
    fn chosen(&self) -> Option<i64> {
        let mut engine = Engine::new(EngineConfig::default());
        for cluster in 0..CLUSTERS {
            engine.apply(Event::ClusterUpserted(world::cluster(&format!(
                "c{cluster}"
            ))));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let (cluster, name) = (format!("c{}", node.cluster), format!("n{index}"));
            let has = amounts_text(node.has);
            engine.apply(Event::NodeUpserted(world::node(&cluster, &name, &has)));
            if node.used > 0 {
                engine.apply(world::foreign(
                    &cluster,
                    &name,
                    &format!("gpu {}", node.used),
                ));
            }
        }
        engine.apply(Event::QueueUpserted(world::queue("q0")));
        let job = crate::case::Job {
            queue: 0,
            class: 0,
            queued_at: 1,
            user: 0,
            roles: self.roles.clone(),
        };
        engine.apply(Event::JobUpserted(engine::facts::JobFact {
            priority_class: None,
            demand: self.demand(),
            ..job.fact("j")
        }));
        let decided = engine.decide(Time(1_000_000)).decisions;
        let [Decision::Release { admission, .. }] = decided.as_slice() else {
            assert_eq!(decided, []);
            return None;
        };
        self.check(admission);
        Some(i64::try_from(admission.shares.len()).unwrap())
    }

    /// Checks that the plan has every pod once, and that every node has enough capacity.
    fn check(&self, admission: &engine::facts::Admission) {
        let mut used: Vec<Amounts> = self.nodes.iter().map(|node| [node.used, 0]).collect();
        for (index, role) in self.roles.iter().enumerate() {
            let name = format!("r{index}");
            let slots = admission.shares.iter().flat_map(|share| &share.slots);
            let mut count = 0;
            for slot in slots.filter(|slot| slot.role == name) {
                let node: usize = slot.node.as_str()[1..].parse().unwrap();
                used[node] = crate::room::plus(used[node], role.each, slot.count);
                count += slot.count;
            }
            assert_eq!(count, role.count, "{self:?}");
        }
        for (node, used) in self.nodes.iter().zip(used) {
            let over = node.has.iter().zip(used).any(|(has, used)| used > *has);
            assert!(!over, "{node:?} is over: {self:?}");
        }
    }

    /// The fewest clusters that any placement needs; `None` if there is no placement.
    fn best(&self) -> Option<i64> {
        let mut all = ProblemVariables::new();
        let taken: Vec<Variable> = (0..CLUSTERS)
            .map(|_| all.add(variable().binary()))
            .collect();
        let pods: Vec<Vec<Variable>> = self
            .roles
            .iter()
            .map(|role| {
                let pods = variable().integer().min(0).max(role.count);
                self.nodes.iter().map(|_| all.add(pods.clone())).collect()
            })
            .collect();
        let clusters: Expression = taken.iter().sum();
        let mut model = all.minimise(clusters.clone()).using(microlp);
        model.add_constraint(constraint!(clusters <= self.most_clusters()));
        for (role, of) in self.roles.iter().zip(&pods) {
            let placed: Expression = of.iter().sum();
            model.add_constraint(constraint!(placed == role.count));
            for (node, pods) in self.nodes.iter().zip(of) {
                let taken = taken[node.cluster];
                model.add_constraint(constraint!(*pods <= taken * f64::from(role.count)));
            }
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let free = [node.has[0] - node.used, node.has[1]];
            for (dim, free) in free.into_iter().enumerate() {
                let used: Expression = self
                    .roles
                    .iter()
                    .zip(&pods)
                    .map(|(role, of)| role.each[dim] as f64 * of[index])
                    .sum();
                model.add_constraint(constraint!(used <= free as f64));
            }
        }
        match model.solve() {
            Ok(solution) => {
                let clusters = taken
                    .iter()
                    .map(|taken| solution.value(*taken).round() as i64);
                Some(clusters.sum())
            }
            Err(ResolutionError::Infeasible) => None,
            Err(wrong) => panic!("{wrong}: {self:?}"),
        }
    }
}

fn compare(cases: u32) {
    let mut runner = TestRunner::deterministic();
    let mut record = Record::default();
    for _ in 0..cases {
        let case = case().new_tree(&mut runner).unwrap().current();
        record.add(case.chosen(), case.best(), &format!("{case:?}"));
    }
    record.close("placement, clusters");
}

#[test]
fn a_gang_is_placed_if_possible_and_in_about_the_fewest_clusters() {
    compare(120);
}

#[test]
#[ignore = "the long form, for the closing note"]
fn long_placement() {
    compare(500);
}
