//! Facts of queues for tests.

use crate::quota::owners::ChargeOwner;
use facts::{
    Backfill, FairShare, Limits, PlacementWeights, PolicyFact, Preemption, QueueFact, QueueName,
    QueueOrdering, QueueState, Resources,
};
use std::sync::{Arc, LazyLock};

/// An open queue that names no quota.
pub(crate) fn queue(name: &QueueName, parent: Option<&QueueName>) -> QueueFact {
    QueueFact {
        name: name.clone(),
        parent: parent.cloned(),
        priority: 0,
        weight: 1,
        guarantee: Resources::new(),
        deserved: Resources::new(),
        capability: Resources::new(),
        reclaimable: true,
        state: QueueState::Open,
        invalid: None,
    }
}

/// A policy with default rules.
pub(crate) fn policy(queue: &QueueName) -> PolicyFact {
    PolicyFact {
        queue: queue.clone(),
        pools: Vec::new(),
        ordering: QueueOrdering::default(),
        ageing: None,
        backfill: Backfill::default(),
        fair_share: FairShare::default(),
        preemption: Preemption::default(),
        limits: Limits::default(),
        max_clusters: None,
        weights: PlacementWeights::default(),
        preferred_clusters: Vec::new(),
        start_deadline_ms: 1,
        recovery_deadline_ms: None,
        spare: None,
        stop: None,
        invalid: None,
    }
}

/// The owner of test charges.
pub(crate) fn ann() -> ChargeOwner<'static> {
    static ANN: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("ann"));
    ChargeOwner::of_namespace(&ANN)
}
