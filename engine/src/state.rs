//! The engine's state: stores that do not know each other, the fault rules, the config and the clock.
//!
//! [`Engine`] owns them, and only `cycle` changes them. Everything else reads them as [`Inputs`],
//! a shared reference.

use crate::capacity::Capacity;
use crate::config::EngineConfig;
use crate::eligibility::store::Eligibility;
use crate::forecast::Forecast;
use crate::jobs::store::Jobs;
use crate::pending::store::Pending;
use crate::pod_charges::PodCharges;
use crate::quota::Quota;
use crate::reservation::spares::Spares;
use crate::reservation::store::Reservations;
use facts::faults::FaultRuleSet;
use facts::{JobKey, QueueName, Time};
use std::collections::BTreeSet;

/// Jobs and queues that may have changed, for the writers of status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed {
    /// Jobs whose state or reason may have changed. Of many jobs that are blocked for the same
    /// reason, only the first are listed each time.
    pub jobs: BTreeSet<JobKey>,
    /// Queues whose usage, counts or head may have changed.
    pub queues: BTreeSet<QueueName>,
    /// Queues whose pending jobs may have other positions.
    pub order: BTreeSet<QueueName>,
}

/// The decision core. The same events give the same decisions, byte for byte.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) config: EngineConfig,
    /// The latest time that was observed.
    pub(crate) now: Time,
    pub(crate) quota: Quota,
    pub(crate) capacity: Capacity,
    /// A cache, derived from `capacity`.
    pub(crate) eligibility: Eligibility,
    pub(crate) pending: Pending,
    pub(crate) reservations: Reservations,
    pub(crate) spares: Spares,
    pub(crate) jobs: Jobs,
    /// What pods use beyond the charges of their jobs.
    pub(crate) pod_charges: PodCharges,
    pub(crate) forecast: Forecast,
    /// The rules in force; `FaultRulesChanged` replaces them.
    pub(crate) fault_rules: FaultRuleSet,
    pub(crate) changed: Changed,
    /// Jobs that lost a fruitless reservation since the last call of `decide`.
    pub(crate) fruitless_reservations: Vec<JobKey>,
}

impl Engine {
    /// An engine without facts.
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        Self {
            config,
            now: Time::default(),
            quota: Quota::default(),
            capacity: Capacity::default(),
            eligibility: Eligibility::default(),
            pending: Pending::default(),
            reservations: Reservations::default(),
            spares: Spares::default(),
            jobs: Jobs::default(),
            pod_charges: PodCharges::default(),
            forecast: Forecast::default(),
            fault_rules: FaultRuleSet::default(),
            changed: Changed::default(),
            fruitless_reservations: Vec::new(),
        }
    }

    /// The inputs of decisions.
    pub(crate) fn inputs(&self) -> Inputs<'_> {
        self
    }
}

/// The engine's state, read-only. It is one reference and not one for each store: functions pass it
/// on with every call, and copying eight references costs 1 % of a decision.
pub(crate) type Inputs<'a> = &'a Engine;
