//! An engine in a known state, for tests of what is private to it.

#![allow(clippy::unwrap_used)]

use crate::amounts::resources::Resources;
use crate::api::event::{Event, Progress};
use crate::api::facts::{Admission, ClusterFact, JobFact, QueueFact, QueueState, RolePods, Share};
use crate::api::ids::{Attempt, ClusterName, JobKey, PoolClass, QueueName, Time, Uid};
use crate::capacity::testing::{demand, node};
use crate::config::EngineConfig;
use crate::state::Engine;
use std::collections::BTreeMap;

/// One job that runs with these pods in cluster `a`, and is charged one GPU.
pub(crate) fn running(key: &JobKey, pods: Vec<RolePods>) -> Engine {
    let mut engine = Engine::new(EngineConfig::default());
    let charge = Resources::parse([("nvidia.com/gpu", "1")]).unwrap();
    engine.apply(Event::JobAdmitted {
        key: key.clone(),
        admission: Admission {
            uid: Uid::from("uid"),
            attempt: Attempt(1),
            queue: QueueName::from("q"),
            admitted_at: Time(0),
            declared_ms: None,
            shares: vec![Share {
                cluster: ClusterName::from("a"),
                pods,
                charge: BTreeMap::from([(PoolClass::from("gpu"), charge)]),
                slots: Vec::new(),
            }],
        },
        progress: Progress::Running,
    });
    engine.decide(Time(1));
    engine
}

/// A cluster of one node with eight GPUs that the job `runs` has, and the job `waits`, for which
/// what frees is kept. Both are of queue `q`; how long the first will run it has declared.
pub(crate) fn pending() -> Engine {
    let mut engine = Engine::new(EngineConfig::default());
    let cluster = ClusterName::from("a");
    engine.apply(Event::ClusterUpserted(ClusterFact {
        name: cluster.clone(),
        labels: BTreeMap::new(),
        provider: String::new(),
        region: String::new(),
        zones: Vec::new(),
        taints: Vec::new(),
        price_milli: None,
        network: BTreeMap::new(),
        apis: None,
        usable: true,
        unusable_because: String::new(),
    }));
    let node = node("n0", "nvidia.com/gpu 8, pods 110");
    engine.apply(Event::NodeUpserted(node));
    engine.apply(Event::QueueUpserted(QueueFact {
        name: QueueName::from("q"),
        parent: None,
        priority: 0,
        weight: 1,
        guarantee: Resources::new(),
        deserved: Resources::new(),
        capability: Resources::new(),
        reclaimable: true,
        state: QueueState::Open,
        invalid: None,
    }));
    for (name, at) in [("runs", 1), ("waits", 2)] {
        engine.apply(Event::JobUpserted(alone(name, Time(at))));
        engine.decide(Time(at));
    }
    engine.apply(Event::JobProgressed {
        key: JobKey::new("ns", "runs"),
        attempt: Attempt(1),
        progress: Progress::Running,
        at: Time(3),
    });
    engine.decide(Time(3));
    engine
}

/// A job of one pod with eight GPUs that says that it runs for a minute.
fn alone(name: &str, at: Time) -> JobFact {
    JobFact {
        key: JobKey::new("ns", name),
        uid: Uid::from(name),
        queue: QueueName::from("q"),
        priority_class: None,
        queued_at: at,
        demand: demand(1, "nvidia.com/gpu 8, pods 1"),
        hold: None,
        expected_duration_ms: Some(60_000),
        user: "ann".to_owned(),
        preemptible: true,
        checkpointed_at: None,
    }
}
