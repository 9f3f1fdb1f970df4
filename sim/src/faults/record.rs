//! What faults did and what they cost.

/// What faults did to one job. Times are in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFaultRecord {
    /// How often it was admitted.
    pub attempts: u32,
    /// The faults that hit its pods.
    pub faults: u32,
    /// How often it went on in the same attempt, with its pods back or with fewer.
    pub in_place: u32,
    /// The work that it did twice, in thousandths of devices × milliseconds.
    pub lost: i128,
    /// The time from faults until it ran again.
    pub recovering_ms: i64,
    /// The time that it ran after faults before it did new work.
    pub restarting_ms: i64,
}

/// How long recoveries took, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryTimes {
    /// From when the engine received the loss to the decision to evict.
    pub seen_to_evicted: Vec<i64>,
    /// From when all of the job was gone until it ran again.
    pub gone_to_running: Vec<i64>,
    /// From the fault until the job ran again, evicted or not.
    pub fault_to_running: Vec<i64>,
}

/// What faults did in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultRecord {
    /// Nodes that were lost.
    pub nodes_lost: u64,
    /// Devices that failed.
    pub device_faults: u64,
    /// Pods that were placed. Each was checked not to be on a node known to be out of service.
    pub placed: u64,
    /// Pods that were placed on such a node: a defect, which ends the run.
    pub misplaced: u64,
    /// What faults did to each job, in the scenario's order.
    pub jobs: Vec<JobFaultRecord>,
    /// How long recoveries took.
    pub times: RecoveryTimes,
}
