//! Clusters, nodes and jobs with default values, which files, tests and benchmarks change.

use crate::scenario::SimJob;
use engine::facts::{ClusterFact, ClusterPlacement, Demand, JobFact, NodeFact, Role, Split};
use engine::resources::ResourceName;
use engine::{Amount, ClusterName, JobKey, NodeName, PoolClass, QueueName, Resources, Time, Uid};
use std::collections::BTreeMap;

/// The namespace of jobs without one.
pub const NAMESPACE: &str = "default";

/// Returns a usable cluster with default values.
#[must_use]
pub fn cluster(name: &str) -> ClusterFact {
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

/// Returns a usable, empty node without resources.
#[must_use]
pub fn node(cluster: &str, name: &str, class: &str) -> NodeFact {
    NodeFact {
        cluster: ClusterName::from(cluster),
        name: NodeName::from(name),
        class: PoolClass::from(class),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        domains: Vec::new(),
        allocatable: Resources::new(),
        usable: true,
        lost: false,
    }
}

/// Returns a role of `count` equal pods that must all run together.
#[must_use]
pub fn role(name: &str, count: u32, request: Resources) -> Role {
    let mut request = request;
    request.set(ResourceName::new(ResourceName::PODS), Amount(1));
    Role::of(name, count, request)
}

/// Returns a demand for one cluster that starts only with all pods.
#[must_use]
pub fn gang(roles: Vec<Role>) -> Demand {
    Demand {
        min_available: roles.iter().map(|role| role.min).sum(),
        roles,
        natively_divisible: false,
        held: engine::facts::Held::Not,
        elastic: false,
        split: Split::Never,
        topology: None,
        placement: ClusterPlacement::default(),
    }
}

/// Returns a job with default values.
#[must_use]
pub fn job(name: &str, queue: &str, at: Time, demand: Demand) -> SimJob {
    SimJob {
        fact: JobFact {
            key: JobKey::new(NAMESPACE, name),
            uid: Uid::from(name),
            queue: QueueName::from(queue),
            priority_class: None,
            queued_at: at,
            demand,
            hold: None,
            expected_duration_ms: None,
            user: String::new(),
            preemptible: true,
            checkpointed_at: None,
            images: Vec::new(),
        },
        run_ms: 0,
        checkpoint_ms: None,
    }
}
