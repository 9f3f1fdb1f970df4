//! Random trees of queues, policies, fleets and charges: every number that is kept step by
//! step equals what its facts make it, whatever came in which order.

use crate::world::{cluster, key, node, policy, queue, res};
use engine::facts::{
    Admission, FairShare, FairShareWithin, Limits, PolicyFact, PoolBound, QueueFact, Share,
};
use engine::{
    Attempt, ClusterName, Engine, EngineConfig, Event, PoolClass, Progress, QueueName, Resources,
    Time, Uid,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const QUEUES: [&str; 7] = ["root", "a", "b", "c", "d", "e", "f"];

#[derive(Debug, Clone)]
enum Step {
    Queue(usize, Option<usize>, [Option<u8>; 3], i32),
    Gone(usize),
    Policy(
        usize,
        Vec<(u8, [Option<u8>; 3])>,
        [Option<u32>; 3],
        (Option<u16>, bool),
    ),
    PolicyGone(usize),
    Node(usize, u8, bool),
    Charge(usize, usize, u8, u8),
    End(usize),
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let queue = || 0..QUEUES.len();
    let amount = || proptest::option::weighted(0.5, 0..20_u8);
    let amounts = || [amount(), amount(), amount()];
    let limit = || proptest::option::of(0..3_u32);
    let bounds = proptest::collection::vec((0..4_u8, amounts()), 0..3);
    prop_oneof![
        6 => (queue(), proptest::option::of(queue()), amounts(), 0..2)
            .prop_map(|(name, parent, amounts, priority)| Step::Queue(name, parent, amounts, priority)),
        1 => queue().prop_map(Step::Gone),
        3 => (queue(), bounds, [limit(), limit(), limit()], (proptest::option::of(1..999_u16), any::<bool>()))
            .prop_map(|(name, bounds, limits, fair)| Step::Policy(name, bounds, limits, fair)),
        1 => queue().prop_map(Step::PolicyGone),
        3 => (0..3_usize, 0..20_u8, any::<bool>()).prop_map(|(at, gpus, usable)| Step::Node(at, gpus, usable)),
        4 => (0..8_usize, queue(), 0..4_u8, 1..9_u8)
            .prop_map(|(job, queue, pool, gpus)| Step::Charge(job, queue, pool, gpus)),
        2 => (0..8_usize).prop_map(Step::End),
        1 => (1..500_u16).prop_map(Step::Wait),
    ]
}

/// Of `[guarantee, deserved, capability]`, what is named; small ones below large ones more
/// often than not, so that many queues are valid.
fn amounts([guarantee, deserved, capability]: [Option<u8>; 3]) -> [Resources; 3] {
    let named = |amount: Option<u8>| {
        amount.map_or_else(Resources::new, |amount| res(&format!("gpu {amount}")))
    };
    [
        named(guarantee.map(|amount| amount / 4)),
        named(deserved.map(|amount| amount / 2)),
        named(capability),
    ]
}

fn bound((scope, named): &(u8, [Option<u8>; 3])) -> PoolBound {
    let [guarantee, deserved, capability] = amounts(*named);
    let one = |name| Some(BTreeSet::from([ClusterName::from(name)]));
    PoolBound {
        class: PoolClass::from(if *scope == 3 { "cpu" } else { "gpu" }),
        clusters: [None, one("x"), one("y"), None][usize::from(*scope)].clone(),
        guarantee,
        deserved,
        capability,
    }
}

fn charge(queue: usize, pool: u8, gpus: u8, attempt: u32) -> Admission {
    let class = PoolClass::from(if pool > 1 { "cpu" } else { "gpu" });
    Admission {
        uid: Uid::from("uid"),
        attempt: Attempt(attempt),
        queue: QueueName::from(QUEUES[queue]),
        admitted_at: Time(0),
        declared_ms: None,
        shares: vec![Share {
            cluster: ClusterName::from(if pool.is_multiple_of(2) { "x" } else { "y" }),
            pods: Vec::new(),
            charge: BTreeMap::from([(class, res(&format!("gpu {gpus}, cpu 1")))]),
            slots: Vec::new(),
        }],
    }
}

struct Model {
    engine: Engine,
    now: Time,
    serial: u32,
}

impl Model {
    fn take(&mut self, step: Step) {
        self.serial += 1;
        match step {
            Step::Queue(name, parent, named, priority) => {
                let [guarantee, deserved, capability] = amounts(named);
                self.engine.apply(Event::QueueUpserted(QueueFact {
                    parent: parent.map(|parent| QueueName::from(QUEUES[parent])),
                    priority,
                    guarantee,
                    deserved,
                    capability,
                    ..queue(QUEUES[name])
                }));
            }
            Step::Gone(name) => {
                let name = QueueName::from(QUEUES[name]);
                self.engine.apply(Event::QueueGone(name));
            }
            Step::Policy(name, bounds, limits, (half, by_user)) => {
                let gpus = |most: Option<u32>| {
                    most.map_or_else(Resources::new, |most| res(&format!("gpu {most}")))
                };
                self.engine.apply(Event::PolicyUpserted(PolicyFact {
                    pools: bounds.iter().map(bound).collect(),
                    limits: Limits {
                        jobs_per_user: limits[0],
                        resources_per_user: gpus(limits[1]),
                        resources_per_namespace: gpus(limits[2]),
                        ..Limits::default()
                    },
                    fair_share: FairShare {
                        weight: None,
                        within: by_user.then_some(FairShareWithin::User),
                        usage_half_life_ms: half.map(|half| i64::from(half) * 1000),
                    },
                    ..policy(QUEUES[name])
                }));
            }
            Step::PolicyGone(name) => {
                let name = QueueName::from(QUEUES[name]);
                self.engine.apply(Event::PolicyGone(name));
            }
            Step::Node(at, gpus, usable) => {
                let place = ["x", "y", "y"][at];
                self.engine.apply(Event::ClusterUpserted(cluster(place)));
                let mut fact = node(place, &format!("n{at}"), &format!("gpu {gpus}, cpu 8"));
                fact.usable = usable;
                self.engine.apply(Event::NodeUpserted(fact));
            }
            Step::Charge(job, queue, pool, gpus) => {
                self.engine.apply(Event::JobAdmitted {
                    key: key(&format!("j{job}")),
                    admission: charge(queue, pool, gpus, self.serial),
                    progress: Progress::Running,
                });
            }
            Step::End(job) => self.engine.apply(Event::JobGone(key(&format!("j{job}")))),
            Step::Wait(seconds) => self.now = self.now.after(i64::from(seconds) * 1000),
        }
        self.engine.decide(self.now);
        let wrong = self.engine.check_invariants();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Returns what every queue tells of itself.
    fn told(engine: &Engine) -> Vec<String> {
        let queues: Vec<QueueName> = engine.queues().cloned().collect();
        let usage = queues.iter().map(|queue| engine.queue_usage(queue));
        queues
            .iter()
            .zip(usage)
            .map(|(queue, usage)| format!("{queue} {usage:?}"))
            .collect()
    }
}

proptest! {
    #[test]
    fn what_is_kept_step_by_step_is_what_the_facts_make(steps in proptest::collection::vec(step(), 1..40)) {
        let mut model = Model {
            engine: Engine::new(EngineConfig::default()),
            now: Time(1_000_000),
            serial: 0,
        };
        for step in steps {
            model.take(step);
        }
        let text = serde_json::to_string(&model.engine.snapshot()).unwrap();
        let snapshot = serde_json::from_str(&text).unwrap();
        let restored = Engine::restore(snapshot, EngineConfig::default());
        prop_assert_eq!(restored.check_invariants(), Vec::<String>::new());
        prop_assert_eq!(Model::told(&restored), Model::told(&model.engine));
        prop_assert_eq!(
            serde_json::to_string(&restored.snapshot()).unwrap(),
            text
        );
    }
}
