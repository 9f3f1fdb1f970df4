//! Engines and clusters for tests of private items.

#![allow(clippy::unwrap_used)]

use crate::capacity::testing::{demand, node};
use crate::config::EngineConfig;
use crate::quota::testing::queue;
use crate::state::Engine;
use facts::{
    Admission, Attempt, ClusterFact, ClusterName, Event, JobFact, JobKey, PoolClass, Progress,
    QueueName, Resources, RolePods, Share, Time, Uid,
};
use std::collections::BTreeMap;

/// A usable cluster without region, zones, labels and taints.
pub(crate) fn cluster(name: &str) -> ClusterFact {
    ClusterFact {
        name: ClusterName::from(name),
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
        paused: None,
    }
}

/// An engine with one job that runs with these pods in cluster `a` and is charged one GPU.
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

/// An engine with one node of eight GPUs, all of which the job `runs` uses, and the job `waits`,
/// which has a reservation. Both are in queue `q` and declare their run time.
pub(crate) fn pending() -> Engine {
    let mut engine = Engine::new(EngineConfig::default());
    engine.apply(Event::ClusterUpserted(cluster("a")));
    let node = node("n0", "nvidia.com/gpu 8, pods 110");
    engine.apply(Event::NodeUpserted(node));
    engine.apply(Event::QueueUpserted(queue(&QueueName::from("q"), None)));
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

/// A job of one pod with eight GPUs that declares a run time of a minute.
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
        images: Vec::new(),
    }
}
