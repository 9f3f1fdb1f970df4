//! Builders of facts: amounts, queues, jobs, clusters and nodes.

use engine::facts::{
    Backfill, ClusterFact, ClusterPlacement, Demand, FairShare, Limits, NodeFact, PlacementWeights,
    PodFact, PodPhase, PolicyFact, PoolBound, Preemption, QueueFact, QueueOrdering, QueueState,
    Role,
};
use engine::matching::ClusterRule;
use engine::{ClusterName, Event, JobKey, NodeName, PoolClass, QueueName, Resources, Uid};
use std::collections::{BTreeMap, BTreeSet};
/// `cpu 4, gpu 8`; `gpu` is `nvidia.com/gpu`.
pub fn res(text: &str) -> Resources {
    let entries = text
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    let pairs: Vec<(&str, &str)> = entries
        .map(|entry| {
            let (name, amount) = entry.split_once(' ').unwrap();
            (
                if name == "gpu" {
                    "nvidia.com/gpu"
                } else {
                    name
                },
                amount,
            )
        })
        .collect();
    Resources::parse(pairs).unwrap()
}

/// A pod's request: as [`res`], with its slot.
pub fn pod(text: &str) -> Resources {
    res(&format!("{text}, pods 1"))
}

pub fn key(name: &str) -> JobKey {
    JobKey::new("ns", name)
}

pub fn queue(name: &str) -> QueueFact {
    QueueFact {
        name: QueueName::from(name),
        parent: None,
        priority: 0,
        weight: 1,
        guarantee: Resources::new(),
        deserved: Resources::new(),
        reclaimable: true,
        capability: Resources::new(),
        state: QueueState::Open,
        invalid: None,
    }
}

pub fn capped(name: &str, capability: &str) -> QueueFact {
    QueueFact {
        capability: res(capability),
        ..queue(name)
    }
}

/// A queue with these deserved amounts.
pub fn deserving(name: &str, deserved: &str) -> QueueFact {
    QueueFact {
        deserved: res(deserved),
        ..queue(name)
    }
}

pub fn below(parent: &str, fact: QueueFact) -> QueueFact {
    QueueFact {
        parent: Some(QueueName::from(parent)),
        ..fact
    }
}

pub fn policy(name: &str) -> PolicyFact {
    PolicyFact {
        queue: QueueName::from(name),
        pools: Vec::new(),
        ordering: QueueOrdering::Backfill,
        ageing: None,
        backfill: Backfill::default(),
        fair_share: FairShare::default(),
        preemption: Preemption::default(),
        limits: Limits::default(),
        max_clusters: None,
        weights: PlacementWeights::default(),
        preferred_clusters: Vec::new(),
        start_deadline_ms: 600_000,
        recovery_deadline_ms: None,
        spare: None,
        stop: None,
        invalid: None,
    }
}

pub fn bound(class: &str, clusters: Option<&[&str]>, capability: &str) -> PoolBound {
    PoolBound {
        class: PoolClass::from(class),
        clusters: clusters.map(|names| names.iter().map(|name| ClusterName::from(*name)).collect()),
        guarantee: Resources::new(),
        deserved: Resources::new(),
        capability: res(capability),
    }
}

pub fn role(name: &str, count: u32, request: &str) -> Role {
    Role::of(name, count, pod(request))
}

pub fn gang(roles: Vec<Role>) -> Demand {
    Demand {
        min_available: roles.iter().map(|role| role.min).sum(),
        roles,
        natively_divisible: false,
        held: engine::facts::Held::Not,
        elastic: false,
        split: engine::facts::Split::Never,
        topology: None,
        placement: ClusterPlacement::default(),
    }
}

/// One role: `pods(2, "gpu 8")`.
pub fn pods(count: u32, request: &str) -> Demand {
    gang(vec![role("worker", count, request)])
}

/// The demand, in this cluster only.
pub fn on(cluster: &str, mut demand: Demand) -> Demand {
    demand.placement.groups = vec![ClusterRule {
        names: Some(std::iter::once(ClusterName::from(cluster)).collect()),
        ..ClusterRule::default()
    }];
    demand
}

pub fn cluster(name: &str) -> ClusterFact {
    ClusterFact {
        name: ClusterName::from(name),
        labels: BTreeMap::from([("name".to_owned(), name.to_owned())]),
        provider: String::new(),
        region: String::new(),
        zones: Vec::new(),
        taints: Vec::new(),
        price_milli: None,
        network: BTreeMap::new(),
        apis: Some(BTreeSet::from(["batch/v1/Job".to_owned()])),
        usable: true,
        unusable_because: String::new(),
        paused: None,
    }
}

pub fn node(cluster: &str, name: &str, allocatable: &str) -> NodeFact {
    NodeFact {
        cluster: ClusterName::from(cluster),
        name: NodeName::from(name),
        class: PoolClass::from(if allocatable.contains("gpu") {
            "gpu"
        } else {
            "cpu"
        }),
        labels: BTreeMap::from([("host".to_owned(), name.to_owned())]),
        taints: Vec::new(),
        domains: Vec::new(),
        allocatable: res(&format!("{allocatable}, pods 110")),
        usable: true,
        lost: false,
    }
}

/// A pod that Muster does not manage, bound to a node.
pub fn foreign(cluster: &str, node: &str, request: &str) -> Event {
    Event::PodUpserted(PodFact {
        cluster: ClusterName::from(cluster),
        uid: Uid::from(format!("foreign-{cluster}-{node}").as_str()),
        node: Some(NodeName::from(node)),
        request: pod(request),
        job: None,
        phase: PodPhase::Running,
        symptom: None,
        grace_s: 0,
    })
}
