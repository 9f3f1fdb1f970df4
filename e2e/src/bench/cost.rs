//! The cost of a period of time: CPU seconds of the testbed's processes, of the benchmark, and of
//! all others on the machine; and the memory of processes.
//!
//! Every result includes the CPU time of others, since rates mean little without it.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;
use testbed::{ProcessId, Testbed};

/// The `USER_HZ` of `/proc`: 100 on every platform that Kubernetes supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// Counters at one moment.
#[derive(Debug)]
pub(super) struct Moment {
    at: Instant,
    /// Ticks in which the machine was busy.
    busy: u64,
    own: u64,
    processes: BTreeMap<String, (ProcessId, u64)>,
}

/// CPU time between two moments.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CpuCost {
    pub(super) seconds: f64,
    /// CPU seconds by process; all members' processes of one kind are one entry.
    pub(super) cpu_seconds: BTreeMap<String, f64>,
    /// CPU seconds of processes of neither the testbed nor the benchmark.
    pub(super) others_cpu_seconds: f64,
}

/// The memory of one process.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Memory {
    pub(super) resident_mib: u64,
    /// The peak resident memory.
    pub(super) peak_mib: u64,
}

impl Moment {
    /// Reads the counters.
    pub(super) fn now(testbed: &Testbed) -> Self {
        let processes = testbed.status().into_iter();
        Self {
            at: Instant::now(),
            busy: machine_ticks(),
            own: process_ticks(std::process::id()),
            processes: processes
                .map(|process| (process.name, (process.id, process_ticks(process.id.pid))))
                .collect(),
        }
    }

    /// Returns the CPU time from this moment until now.
    pub(super) fn cost(&self, testbed: &Testbed) -> CpuCost {
        let now = Self::now(testbed);
        let mut cpu: BTreeMap<String, f64> = BTreeMap::new();
        for (name, (id, ticks)) in &now.processes {
            // A process that was restarted meanwhile counts from its start.
            let before = self.processes.get(name).filter(|(before, _)| before == id);
            let spent = ticks.saturating_sub(before.map_or(0, |(_, ticks)| *ticks));
            *cpu.entry(group(name).to_owned()).or_default() += seconds(spent);
        }
        cpu.insert(
            "bench".to_owned(),
            seconds(now.own.saturating_sub(self.own)),
        );
        cpu.retain(|_, spent| *spent > 0.0);
        let busy = seconds(now.busy.saturating_sub(self.busy));
        CpuCost {
            seconds: (now.at - self.at).as_secs_f64(),
            others_cpu_seconds: (busy - cpu.values().sum::<f64>()).max(0.0),
            cpu_seconds: cpu,
        }
    }
}

impl CpuCost {
    /// Returns the CPU seconds of one process.
    pub(super) fn of(&self, process: &str) -> f64 {
        self.cpu_seconds.get(process).copied().unwrap_or(0.0)
    }

    /// Returns the share of the machine that others left idle, between 0 and 1.
    pub(super) fn left_by_others(&self) -> f64 {
        let all = self.seconds * f64::from(u32::try_from(cores()).unwrap_or(1));
        (1.0 - self.others_cpu_seconds / all.max(f64::EPSILON)).clamp(0.01, 1.0)
    }
}

/// Returns the memory of a process of the testbed.
pub(super) fn memory(testbed: &Testbed, process: &str) -> Memory {
    let status = testbed.status();
    let id = status
        .iter()
        .find(|status| status.name == process)
        .map(|status| status.id);
    let mib = |field: &str| id.map_or(0, |id| status_kib(id.pid, field) / 1024);
    Memory {
        resident_mib: mib("VmRSS:"),
        peak_mib: mib("VmHWM:"),
    }
}

/// Returns the memory of all processes of the testbed, in MiB.
pub(super) fn total_mib(testbed: &Testbed) -> u64 {
    let bytes: u64 = testbed
        .status()
        .iter()
        .map(|process| process.id.resident_bytes())
        .sum();
    bytes / (1024 * 1024)
}

/// Returns the load average over one minute.
pub(super) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0.0)
}

/// Returns the number of cores that this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn group(process: &str) -> &str {
    match process.starts_with("member") {
        true => "members",
        false => process,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "ticks since boot are far below 2^52"
)]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND
}

fn process_ticks(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command's name, in parentheses, may contain spaces; utime and stime are fields 14 and 15.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<u64>().ok())
    };
    field(11).unwrap_or(0) + field(12).unwrap_or(0)
}

/// Returns the busy ticks: all except idle and iowait, which are user, nice, system, irq and
/// softirq.
fn machine_ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    [0, 1, 2, 5, 6]
        .iter()
        .filter_map(|&index| fields.get(index))
        .sum()
}

fn status_kib(pid: u32, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok())
        .unwrap_or(0)
}
