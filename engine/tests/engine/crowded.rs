//! Tenants that share quota but no nodes, in a fleet that shrinks below the charges. In any order
//! of evictions and confirmations, every call of `decide` ends soon.

use crate::placement::on_label;
use crate::random::cases;
use crate::world::{World, deserving, key, policy, res, role};
use engine::facts::{Demand, NodeFact, PolicyFact, Preemption, QueueFact, QueueOrdering, Role};
use engine::matching::NodeTerm;
use engine::{
    ClusterName, Decision, Decisions, EngineConfig, Event, JobState, NodeName, PoolClass,
    QueueName, Resources,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Each tenant has nodes, a queue that lends and one that borrows.
const TENANTS: usize = 3;
const CLUSTERS: [&str; 3] = ["x", "y", "z"];

#[derive(Debug, Clone)]
enum Step {
    Submit {
        tenant: usize,
        lends: bool,
        count: u32,
        gpus: u32,
        class: usize,
    },
    /// The Works of the first jobs that are being evicted are gone.
    Gone(usize),
    Finish(usize),
    /// Adds or removes the nodes of a tenant in a cluster.
    Nodes(usize, usize, u32),
    Deserved(usize, u32),
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let submit = (
        0..TENANTS,
        any::<bool>(),
        1..4_u32,
        prop_oneof![Just(2_u32), Just(4), Just(8)],
        0..3_usize,
    );
    let submit = submit.prop_map(|(tenant, lends, count, gpus, class)| Step::Submit {
        tenant,
        lends,
        count,
        gpus,
        class,
    });
    prop_oneof![
        8 => submit,
        5 => (0..8_usize).prop_map(Step::Gone),
        2 => (0..30_usize).prop_map(Step::Finish),
        3 => (0..TENANTS, 0..CLUSTERS.len(), 0..3_u32).prop_map(|(t, c, n)| Step::Nodes(t, c, n)),
        1 => (0..TENANTS, 0..4_u32).prop_map(|(t, eights)| Step::Deserved(t, eights)),
        2 => (0..3_000_i64).prop_map(Step::Wait),
    ]
}

struct Model {
    world: World,
    jobs: usize,
    ending: Vec<String>,
    running: BTreeSet<String>,
}

fn node_of(tenant: usize, cluster: &str, index: u32) -> NodeFact {
    let mut fact = crate::world::node(cluster, &format!("t{tenant}-n{index}"), "cpu 64, gpu 8");
    fact.class = PoolClass::from(format!("class-{tenant}").as_str());
    fact.labels.insert("tenant".into(), tenant.to_string());
    fact
}

fn demand(tenant: usize, count: u32, gpus: u32) -> Demand {
    let workers = Role {
        node_terms: vec![NodeTerm {
            labels: vec![on_label("tenant", &tenant.to_string())],
            fields: Vec::new(),
        }],
        ..role("worker", count, &format!("cpu 1, gpu {gpus}"))
    };
    crate::world::gang(vec![workers])
}

impl Model {
    fn new() -> Self {
        let mut world = World::with(EngineConfig {
            evaluation_budget: 200,
            ..EngineConfig::default()
        });
        for cluster in CLUSTERS {
            world.apply(Event::ClusterUpserted(crate::world::cluster(cluster)));
        }
        let mut model = Self {
            world,
            jobs: 0,
            ending: Vec::new(),
            running: BTreeSet::new(),
        };
        for tenant in 0..TENANTS {
            for cluster in 0..CLUSTERS.len() {
                model.nodes(tenant, cluster, 1);
            }
            model.deserved(tenant, 2);
            model.queue(deserving(&format!("borrow-{tenant}"), "gpu 0"));
        }
        model
    }

    fn queue(&mut self, fact: QueueFact) {
        let name = fact.name.clone();
        self.world.queue(fact);
        self.world.policy(PolicyFact {
            preemption: Preemption {
                within_queue: true,
                ..Preemption::default()
            },
            ..policy(name.as_str())
        });
    }

    fn deserved(&mut self, tenant: usize, eights: u32) {
        let name = format!("lend-{tenant}");
        let guarantee = if eights > 2 {
            res("gpu 8")
        } else {
            Resources::new()
        };
        let fact = deserving(&name, &format!("gpu {}", eights * 8));
        self.queue(QueueFact { guarantee, ..fact });
    }

    fn nodes(&mut self, tenant: usize, cluster: usize, nodes: u32) {
        let cluster = CLUSTERS[cluster];
        for index in 0..3 {
            let fact = node_of(tenant, cluster, index);
            let event = if index < nodes {
                Event::NodeUpserted(fact)
            } else {
                let name = NodeName::from(fact.name.as_str());
                Event::NodeGone(ClusterName::from(cluster), name)
            };
            self.world.apply(event);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Submit {
                tenant,
                lends,
                count,
                gpus,
                class,
            } => {
                let queue = if lends { "lend" } else { "borrow" };
                let name = format!("j{:02}", self.jobs);
                self.jobs += 1;
                let demand = demand(tenant, count, gpus);
                let job = self.world.job(&name, &format!("{queue}-{tenant}"), demand);
                let class = ["low", "normal", "high"][class];
                self.world.submit(job.priority(class));
            }
            Step::Gone(index) => {
                if !self.ending.is_empty() {
                    let name = self.ending.remove(index % self.ending.len());
                    self.world.works_gone(&name);
                }
            }
            Step::Finish(job) => {
                let name = format!("j{job:02}");
                if self.running.remove(&name) {
                    self.world.finish(&name);
                }
            }
            Step::Nodes(tenant, cluster, nodes) => self.nodes(tenant, cluster, nodes),
            Step::Deserved(tenant, eights) => self.deserved(tenant, eights),
            Step::Wait(millis) => self.world.now = self.world.now.after(millis),
        }
        self.decide();
    }

    fn decide(&mut self) {
        for _ in 0..20 {
            let decided = self.world.decided();
            assert!(!decided.cut, "evaluates in a circle");
            if decided.decisions.is_empty() && !decided.more {
                return;
            }
            self.carry_out(&decided);
        }
    }

    fn carry_out(&mut self, decided: &Decisions) {
        for decision in &decided.decisions {
            match decision {
                Decision::Release { key, .. } => {
                    self.world.run(&key.name);
                    self.running.insert(key.name.to_string());
                }
                Decision::Evict { key: victim, .. } => {
                    let name = victim.name.to_string();
                    let state = self.world.engine.job(&key(&name)).map(|job| job.state);
                    assert_eq!(state, Some(JobState::Ending));
                    self.running.remove(&name);
                    self.ending.push(name);
                }
                Decision::Resize { .. } => panic!("nothing is elastic"),
            }
        }
    }
}

/// A job that ends on one node gives headroom to a preemptor that waits for another node.
/// Preemptors wait for that and do not cause evaluations of each other in a loop.
#[test]
fn preemptors_that_only_lack_headroom_wait_for_pending_evictions() {
    let mut world = World::with(EngineConfig {
        evaluation_budget: 20,
        ..EngineConfig::default()
    });
    world.apply(Event::ClusterUpserted(crate::world::cluster("x")));
    for (tenant, index) in [(0, 0), (0, 1), (1, 0)] {
        world.apply(Event::NodeUpserted(node_of(tenant, "x", index)));
    }
    // With any guarantee, the root may use what the fleet has.
    world.queue(QueueFact {
        guarantee: res("gpu 1"),
        ..deserving("sure", "gpu 1")
    });
    world.queue(deserving("lend", "gpu 16"));
    world.queue(crate::world::queue("borrow"));
    let submit = |world: &mut World, name: &str, queue: &str, demand| {
        let job = world.job(name, queue, demand);
        world.submit(job);
    };
    for (name, gpus) in [("b0", 8), ("b1", 5)] {
        submit(&mut world, name, "borrow", demand(0, 1, gpus));
        world.decide();
        world.run(name);
    }
    // Its node goes and its charge stays: of the remaining 16, 3 may be charged.
    let gone = world.pods[&key("b1")][0].clone();
    let node = gone.node.clone().unwrap();
    world.apply(Event::NodeGone(gone.cluster, node));
    submit(&mut world, "l0", "lend", demand(1, 1, 4));
    let decided = world.decided();
    let [Decision::Evict { key: victim, .. }] = &decided.decisions[..] else {
        panic!("{decided:?}");
    };
    for (name, gpus) in [("l1", 2), ("l2", 1)] {
        submit(&mut world, name, "lend", demand(1, 1, gpus));
        let decided = world.decided();
        assert!(
            !decided.more,
            "{name} makes others be evaluated in a circle"
        );
        assert_eq!(decided.decisions, [], "what ends already is enough");
    }
    world.works_gone(&victim.name);
    let decided = world.decided();
    let released = decided.decisions.iter().map(|decision| match decision {
        Decision::Release { key, .. } => key.name.to_string(),
        other => panic!("unasked for: {other:?}"),
    });
    let released: BTreeSet<String> = released.collect();
    assert_eq!(released, ["l0", "l1", "l2"].map(str::to_owned).into());
}

/// Jobs of many queues wait for what the fleet has. What one job frees can be used by one of them: the others
/// are not evaluated for it.
#[test]
fn what_one_job_frees_is_evaluated_for_the_first_only() {
    frees_one_by_one(None);
}

/// The same below a queue that is guaranteed something, and uses more than that.
#[test]
fn a_job_that_ends_below_a_guarantee_that_is_used_wakes_no_other() {
    frees_one_by_one(Some("org"));
}

fn frees_one_by_one(parent: Option<&str>) {
    const QUEUES: usize = 50;
    let mut world = World::with(EngineConfig {
        // To ask the queues counts, too; to evaluate a job of each would be beyond it.
        evaluation_budget: 48,
        ..EngineConfig::default()
    });
    world.apply(Event::ClusterUpserted(crate::world::cluster("x")));
    world.apply(Event::NodeUpserted(node_of(0, "x", 0)));
    // With any guarantee, all queues together may use what the fleet has.
    if let Some(parent) = parent {
        world.queue(crate::world::queue(parent));
    }
    let parent = parent.map(QueueName::from);
    world.queue(QueueFact {
        guarantee: res("gpu 1"),
        parent: parent.clone(),
        ..deserving("sure", "gpu 1")
    });
    let submit = |world: &mut World, name: &str, queue: &str| {
        let job = world.job(name, queue, demand(0, 1, 1)).lasts(3600);
        world.submit(job);
    };
    for index in 0..7 {
        submit(&mut world, &format!("r{index}"), "sure");
    }
    world.decide();
    for index in 0..QUEUES {
        let queue = format!("q{index}");
        world.queue(QueueFact {
            parent: parent.clone(),
            ..crate::world::queue(&queue)
        });
        world.policy(PolicyFact {
            ordering: QueueOrdering::BestEffort,
            ..policy(&queue)
        });
        submit(&mut world, &format!("a{index}"), &queue);
        submit(&mut world, &format!("b{index}"), &queue);
        // A new queue has those beside it evaluated.
        while world.decided().more {}
    }
    // The last of them uses what its queue is guaranteed.
    for index in 0..6 {
        world.finish(&format!("r{index}"));
        let decided = world.decided();
        assert!(!decided.more, "jobs are evaluated for what another uses");
        assert_eq!(decided.decisions.len(), 1, "{decided:?}");
    }
    assert_eq!(world.engine.check_invariants(), Vec::<String>::new());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(64), ..ProptestConfig::default() })]

    #[test]
    fn decide_ends_soon_in_a_shrinking_fleet(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut model = Model::new();
        for step in steps {
            model.take(step);
        }
    }
}
