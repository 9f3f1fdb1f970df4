//! Identity, state and memory of a process on Linux.
//!
//! A pid alone does not identify a process, since it may be reused; a pid with its start time does.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// The identity of a process, which differs from a later process with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessId {
    /// The pid.
    pub pid: u32,
    /// Its start time, in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub start_time: u64,
}

/// The state of a process, as `ps` distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Running, sleeping or waiting.
    Running,
    /// Stopped by a signal.
    Paused,
    /// Gone, or a zombie.
    Gone,
}

impl ProcessId {
    /// Returns the process that has this pid now, if any.
    pub fn of(pid: u32) -> Option<Self> {
        let start_time = stat(pid)?.start_time;
        Some(Self { pid, start_time })
    }

    /// Returns the identity of this process.
    pub fn own() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Returns the state of the process.
    pub fn run_state(self) -> RunState {
        match stat(self.pid) {
            Some(stat) if stat.start_time != self.start_time => RunState::Gone,
            Some(Stat {
                state: 'Z' | 'X', ..
            })
            | None => RunState::Gone,
            Some(Stat {
                state: 'T' | 't', ..
            }) => RunState::Paused,
            Some(_) => RunState::Running,
        }
    }

    /// Returns true if the process still exists.
    pub fn is_alive(self) -> bool {
        self.run_state() != RunState::Gone
    }

    /// Returns the resident memory in bytes; 0 if the process is gone.
    pub fn resident_bytes(self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        let kib = status.ok().and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        kib.unwrap_or(0) * 1024
    }

    /// Sends a signal, but never to another process that reuses the pid.
    pub fn signal(self, signal: Signal) {
        if self.is_alive() {
            // The process may end between the check and the signal, which is harmless.
            let _ = kill(nix_pid(self.pid), signal);
        }
    }

    /// Waits until the process is gone; returns false if it still exists after `deadline`.
    pub fn wait_gone(self, deadline: Duration) -> bool {
        let end = Instant::now() + deadline;
        while self.is_alive() {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

/// Converts a pid to nix's type. Linux pids stay below 2^22.
pub(super) fn nix_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}

struct Stat {
    state: char,
    start_time: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name, in parentheses, may contain spaces and parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        start_time: fields.get(19)?.parse().ok()?,
    })
}
