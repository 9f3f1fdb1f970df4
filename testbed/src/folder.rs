//! The folder of a testbed, and what is in use only while it is up: removed when it ends, or before another one starts
//! there.

use std::io::ErrorKind;
use std::path::Path;

use crate::Testbed;
use crate::cluster::KARMADA;
use crate::error::{Error, Result};
use crate::machine::{MACHINES, remove_cgroups};
use crate::names::{KARMADA_PROCESSES, MemberProcess, NodeProcess};
use crate::spec::MemberSpec;
use crate::state::{Phase, TestbedState};

/// Folders of a testbed's state, which it removes before it starts.
pub(super) const OWN_FOLDERS: [&str; 6] = ["conf", "etcd", "kubeconfig", "log", MACHINES, "pki"];

pub(super) const AUDIT_LOG: &str = "karmada-audit.log";

/// Those of them that are of no use after it: the others have its logs.
const DATA: [&str; 2] = ["etcd", MACHINES];

impl Testbed {
    /// Ends all processes, and removes what they stored.
    pub(super) fn shut_down(&self) -> Result<()> {
        self.supervisor.shutdown();
        remove_cgroups(&self.dir);
        for data in DATA {
            remove(&self.dir.join(data))?;
        }
        self.record(|state| {
            if !matches!(state.phase, Phase::Failed { .. }) {
                state.phase = Phase::Down;
            }
        })
    }

    pub(super) fn note_real_nodes(&self, member: &MemberSpec) {
        if let Some(real) = &member.real_nodes {
            let noted = (member.name.clone(), real.count);
            self.members_with_real_nodes.lock().push(noted);
        }
    }

    /// Returns the components that depend on a cluster's API server.
    pub(super) fn processes_of(&self, cluster: &str) -> Vec<String> {
        let common = MemberProcess::ALL.iter().map(|process| process.of(cluster));
        if cluster == KARMADA {
            return common.chain(KARMADA_PROCESSES.map(str::to_owned)).collect();
        }
        let members = self.members_with_real_nodes.lock();
        let real = members.iter().find(|(name, _)| name == cluster);
        let numbers = 1..=real.map_or(0, |(_, count)| *count);
        let of_nodes =
            numbers.flat_map(|number| NodeProcess::ALL.map(|process| process.of(cluster, number)));
        common.chain(of_nodes).collect()
    }
}

/// Refuses a folder in use, ends processes that a killed owner left, and removes old state.
pub(super) fn clear(dir: &Path) -> Result<()> {
    if let Ok(state) = TestbedState::load(dir) {
        let up = matches!(state.phase, Phase::Starting | Phase::Ready);
        if let Some(owner) = state.owner.filter(|owner| up && owner.is_alive()) {
            return Err(Error::AlreadyUp {
                dir: dir.to_owned(),
                pid: owner.pid,
            });
        }
        state.sweep();
    }
    remove_cgroups(dir);
    for folder in OWN_FOLDERS {
        remove(&dir.join(folder))?;
    }
    let audit_log = dir.join(AUDIT_LOG);
    match std::fs::remove_file(&audit_log) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::io("remove", &audit_log)(error))
        }
        _ => Ok(()),
    }
}

/// Removes a folder; a missing one is no error.
fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::io("remove", folder)(error))
        }
        _ => Ok(()),
    }
}
