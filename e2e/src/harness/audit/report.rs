//! The findings of an audit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::GPU;
use super::held::device_seconds;
use super::in_members::AuditedPlacements;
use super::quantity::{self, UNIT};

/// What the log shows of the subject.
#[derive(Debug, Clone, Default)]
pub struct AuditReport {
    /// Jobs with a binding in the log.
    pub jobs: usize,
    /// The number of placements of each job, by `namespace/binding`.
    pub placements: BTreeMap<String, u32>,
    /// The clusters of each placement in order, by `namespace/template`.
    pub attempts: BTreeMap<String, Vec<BTreeSet<String>>>,
    /// The reason of each eviction of a job, in order, by `namespace/binding`.
    pub evictions: BTreeMap<String, Vec<String>>,
    /// Every violation, in the order of the log.
    pub violations: Vec<String>,
    /// The peak usage of each queue with its descendants, by resource; in thousandths.
    pub(super) peaks: BTreeMap<(String, String), u128>,
    /// The highest quota against which a queue's own peak was checked.
    pub(super) bounds: BTreeMap<(String, String), u128>,
    /// Thousandths of devices × milliseconds.
    pub(super) used: u128,
    /// Quotas and placements over time, with which pods are compared.
    pub(super) placed: AuditedPlacements,
}

impl AuditReport {
    /// Returns the most GPUs that a queue and its descendants held at once.
    pub fn peak(&self, queue: &str) -> u64 {
        self.peak_of(queue, GPU)
    }

    /// Returns the most whole units of a resource that a queue and its descendants held at once.
    pub fn peak_of(&self, queue: &str, resource: &str) -> u64 {
        let peak = self.peaks.get(&(queue.to_owned(), resource.to_owned()));
        u64::try_from(peak.copied().unwrap_or(0) / UNIT).unwrap_or(u64::MAX)
    }

    /// Returns true if a device was held, however short.
    pub(super) fn holds_devices(&self) -> bool {
        let device = |((_, resource), &peak): (&(String, String), &u128)| {
            peak > 0 && quantity::is_device(resource)
        };
        self.peaks.iter().any(device)
    }

    /// Returns the device-seconds held.
    pub fn device_seconds(&self) -> u128 {
        device_seconds(self.used, 1)
    }
}

impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} jobs, {} device-seconds",
            self.jobs,
            self.device_seconds()
        )?;
        let devices = |(_, resource): &&(String, String)| quantity::is_device(resource);
        // A resource with a quota is listed, device or not.
        let told = |of: &&(String, String)| devices(of) || self.bounds.contains_key(of);
        let peaks = self.peaks.iter().filter(|(of, _)| told(of));
        for (at, (of, &peak)) in peaks.enumerate() {
            let (queue, resource) = of;
            let start = if at == 0 { ", peak" } else { ";" };
            write!(f, "{start} {}", quantity::show(peak))?;
            if let Some(&bound) = self.bounds.get(of) {
                write!(f, " of {}", quantity::show(bound))?;
            }
            write!(f, " {resource} in {queue}")?;
        }
        Ok(())
    }
}
