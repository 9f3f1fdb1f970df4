//! The record of a testbed in its state folder, by which another process can see and stop it.
//!
//! Only the owner writes it, atomically, on every change.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::cluster::TestbedCluster;
use crate::error::{Error, Result};
use crate::proc::ProcessId;
use crate::process::GONE_DEADLINE;

const FILE: &str = "state.json";

/// The state of a testbed as its owner last wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TestbedState {
    /// The phase of its start.
    pub phase: Phase,
    /// The process that owns the others.
    pub owner: Option<ProcessId>,
    /// The leader of the process group.
    pub group: Option<ProcessId>,
    /// When its start began.
    pub started_at: Timestamp,
    /// The duration of the start in milliseconds, once it is ready.
    pub ready_after_ms: Option<u64>,
    /// Karmada and the members, in this order.
    pub clusters: Vec<TestbedCluster>,
    /// Every process that was started.
    pub processes: Vec<ProcessRecord>,
    /// Karmada's audit log, if there is one.
    pub audit_log: Option<PathBuf>,
}

/// The phase of a testbed's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "phase")]
pub enum Phase {
    /// It is starting.
    Starting,
    /// All components are ready.
    Ready,
    /// It failed to start.
    Failed {
        /// The error.
        error: String,
    },
    /// It was taken down.
    Down,
}

/// A process in the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessRecord {
    /// Its name, e.g. `member1-kwok`.
    pub name: String,
    /// Its last run.
    pub id: ProcessId,
    /// The port on which it serves.
    pub port: Option<u16>,
    /// The file of its output.
    pub log: PathBuf,
}

/// Returns the default state folder: `${XDG_STATE_HOME:-~/.local/state}/muster/testbed`.
pub fn default_dir() -> PathBuf {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = || Some(set("HOME")?.join(".local/state"));
    let base = set("XDG_STATE_HOME")
        .or_else(home)
        .unwrap_or_else(std::env::temp_dir);
    base.join("muster/testbed")
}

impl TestbedState {
    /// Reads the record in `dir`.
    ///
    /// # Errors
    /// Returns [`Error::NoTestbed`] if there is none, or if another version of the testbed wrote
    /// it.
    pub fn load(dir: &Path) -> Result<Self> {
        let text = std::fs::read(dir.join(FILE));
        let state = text
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        state.ok_or_else(|| Error::NoTestbed {
            dir: dir.to_owned(),
        })
    }

    pub(super) fn save(&self, dir: &Path) -> Result<()> {
        let (path, temporary) = (dir.join(FILE), dir.join(format!(".{FILE}")));
        let text = serde_json::json!(self).to_string();
        std::fs::write(&temporary, text).map_err(Error::io("write", &temporary))?;
        std::fs::rename(&temporary, &path).map_err(Error::io("rename", &temporary))
    }

    /// Returns true if the process that owns the testbed still exists.
    pub fn owner_is_alive(&self) -> bool {
        self.owner.is_some_and(ProcessId::is_alive)
    }

    /// Returns the cluster `karmada` or a member.
    ///
    /// # Errors
    /// Returns [`Error::UnknownCluster`] if there is no cluster of that name.
    pub fn cluster(&self, name: &str) -> Result<&TestbedCluster> {
        let found = self.clusters.iter().find(|cluster| cluster.name == name);
        found.ok_or_else(|| {
            let known: Vec<_> = self
                .clusters
                .iter()
                .map(|cluster| cluster.name.as_str())
                .collect();
            Error::UnknownCluster {
                name: name.to_owned(),
                known: known.join(", "),
            }
        })
    }

    /// Takes a testbed down from outside: asks its owner to end, then makes sure that no process of
    /// it is left. Returns the processes that it had to kill itself, normally none.
    ///
    /// # Errors
    /// Returns an error if the record cannot be written.
    pub fn take_down(mut self, dir: &Path) -> Result<Vec<String>> {
        if let Some(owner) = self.owner {
            owner.signal(Signal::SIGTERM);
            owner.wait_gone(GONE_DEADLINE);
        }
        let survivors = self.sweep();
        if let Some(owner) = self.owner.filter(|owner| owner.is_alive()) {
            owner.signal(Signal::SIGKILL);
            owner.wait_gone(GONE_DEADLINE);
        }
        self.phase = Phase::Down;
        self.save(dir)?;
        Ok(survivors)
    }

    /// Kills the remaining processes of a testbed whose owner is gone.
    pub(super) fn sweep(&self) -> Vec<String> {
        let records = self
            .processes
            .iter()
            .map(|process| (process.name.clone(), process.id));
        let group = self.group.map(|id| ("watchdog".to_owned(), id));
        let left: Vec<_> = records
            .chain(group)
            .filter(|(_, id)| id.is_alive())
            .collect();
        for (_, id) in &left {
            id.signal(Signal::SIGKILL);
        }
        for (_, id) in &left {
            id.wait_gone(GONE_DEADLINE);
        }
        left.into_iter().map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;

    fn state(phase: Phase, owner: ProcessId, process: ProcessId) -> TestbedState {
        TestbedState {
            phase,
            owner: Some(owner),
            group: None,
            started_at: Timestamp::UNIX_EPOCH,
            ready_after_ms: None,
            clusters: Vec::new(),
            processes: vec![ProcessRecord {
                name: "left".into(),
                id: process,
                port: Some(1),
                log: PathBuf::new(),
            }],
            audit_log: None,
        }
    }

    #[test]
    fn a_later_process_with_the_same_pid_is_spared() {
        let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = ProcessId::of(sleeper.id()).unwrap();
        let earlier = ProcessId {
            start_time: id.start_time - 1,
            ..id
        };
        let dir = tempfile::tempdir().unwrap();

        let survivors = state(Phase::Ready, earlier, earlier)
            .take_down(dir.path())
            .unwrap();
        assert!(survivors.is_empty());
        assert!(id.is_alive());

        // This thread reaps the process, as init does for processes of a killed owner.
        let reaper = std::thread::spawn(move || sleeper.wait());
        let survivors = state(Phase::Ready, earlier, id)
            .take_down(dir.path())
            .unwrap();
        assert_eq!(survivors, ["left"]);
        reaper.join().unwrap().unwrap();
        assert_eq!(TestbedState::load(dir.path()).unwrap().phase, Phase::Down);
    }
}
