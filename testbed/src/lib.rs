//! A Karmada control plane with member clusters: real components, plain processes, on loopback.
//!
//! ```text
//! Go modules in testbed/tools ─► tools: built into a per-user cache
//! Spec ─► Testbed::up ─► etcd, API servers, Karmada, and in each member controllers, schedulers,
//!                        KWOK or real nodes ─► kubeconfigs, a state folder, processes that are killed, paused
//!                        and restarted by name
//! operators: controllers of other kinds (JobSet, KubeRay, Kubeflow, LeaderWorkerSet), started in members
//! ```
//!
//! [`Testbed::up`] starts what a [`TestbedSpec`] describes and returns when every member is Ready in
//! Karmada. The calling process owns all other processes, and they end when it ends, even by a
//! crash. Tests then kill, pause and restart components by name, and change nodes. Another process
//! finds a running testbed by its state folder ([`TestbedState::load`]). The command `testbed` is a thin
//! layer over this library.
//!
//! API servers keep their data in one etcd, each under a prefix of its own. KWOK simulates kubelets
//! and containers: pods run at once, and end after the duration in their annotation
//! `muster.io/run-for`, with failure if `muster.io/fail` is `true`. Pods without these annotations
//! never end. A member may have real nodes instead ([`RealNodes`]), whose kubelets run the programs of its pods in
//! containers; they need root.
//!
//! A testbed provides the clusters on which Muster is installed; it knows nothing of Muster. It
//! listens only on loopback and leaves no process behind.

mod cluster;
mod components;
mod control_plane;
mod devices;
mod emptied;
mod error;
mod folder;
mod machine;
mod manifests;
mod member;
mod names;
pub mod nodes;
pub mod operators;
mod pki;
mod ports;
mod proc;
mod process;
mod spec;
mod state;
pub mod tools;
mod wait;

use std::path::{Path, PathBuf};
use std::time::Instant;

use futures::future::{try_join, try_join_all};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

pub use cluster::{KARMADA, TestbedCluster};
pub use devices::DeviceOffer;
pub use error::{Error, Result};
pub use names::{
    ETCD, KARMADA_AGGREGATED_APISERVER, KARMADA_APISERVER, KARMADA_CONTROLLER_MANAGER,
    KARMADA_KUBE_CONTROLLER_MANAGER, KARMADA_SCHEDULER, KARMADA_WEBHOOK, MemberProcess,
    NodeProcess,
};
pub use ports::free_port;
pub use proc::{ProcessId, RunState};
pub use process::ProcessStatus;
pub use spec::{
    DEFAULT_PRODUCTS, KarmadaSpec, MemberSpec, NodeGroup, NodeTaint, NodeTaintEffect, RealNodes,
    SyncMode, TestbedSpec,
};
pub use state::{Phase, ProcessRecord, TestbedState, default_dir};

use components::Components;
use pki::Pki;
use ports::Ports;
use process::{Launch, Supervisor};
use tools::{Tools, Toolset};

/// A running control plane, owned by this process.
#[derive(Debug)]
pub struct Testbed {
    dir: PathBuf,
    spec: TestbedSpec,
    tools: Tools,
    pki: Pki,
    etcd_port: u16,
    supervisor: Supervisor,
    state: Mutex<TestbedState>,
    /// The members with real nodes and the number of these, in the order in which they were started.
    members_with_real_nodes: Mutex<Vec<(String, u8)>>,
}

impl Testbed {
    /// The toolsets that must be built before a testbed can start.
    pub const TOOLSETS: [Toolset; 5] = [
        Toolset::Etcd,
        Toolset::Kwok,
        Toolset::Kubernetes,
        Toolset::Karmada,
        Toolset::Volcano,
    ];

    /// Starts a testbed with its state in `dir`, and waits until it is ready, which takes half a
    /// minute on two idle cores. `progress` gets a line for each component that becomes ready.
    ///
    /// # Errors
    /// Returns an error if a testbed is already up in `dir`, the spec is invalid, or a component
    /// does not become ready. Then no process is left, and the logs are in `dir/log`.
    pub async fn up(
        spec: TestbedSpec,
        dir: &Path,
        tools: &Tools,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Self> {
        let start = Instant::now();
        spec.validate()?;
        let testbed = Self::prepare(spec, dir, tools)?;
        match testbed.bring_up(start, progress).await {
            Ok(()) => testbed.record(|state| {
                state.phase = Phase::Ready;
                state.ready_after_ms = u64::try_from(start.elapsed().as_millis()).ok();
            })?,
            Err(error) => {
                testbed.supervisor.shutdown();
                let message = error.to_string();
                testbed.record(|state| state.phase = Phase::Failed { error: message })?;
                return Err(error);
            }
        }
        Ok(testbed)
    }

    /// Ends all processes and removes etcd's data; the logs stay. Dropping a testbed does the same.
    ///
    /// # Errors
    /// Returns an error if the state file cannot be written.
    pub fn down(&self) -> Result<()> {
        self.shut_down()
    }

    /// Returns the control plane's API server.
    pub fn karmada(&self) -> TestbedCluster {
        // The first cluster is always Karmada's.
        self.state.lock().clusters[0].clone()
    }

    /// Returns the members' API servers, in the spec's order.
    pub fn members(&self) -> Vec<TestbedCluster> {
        self.state.lock().clusters[1..].to_vec()
    }

    /// Returns `karmada` or a member by its name.
    ///
    /// # Errors
    /// Returns [`Error::UnknownCluster`] if there is no cluster of that name.
    pub fn cluster(&self, name: &str) -> Result<TestbedCluster> {
        self.state.lock().cluster(name).cloned()
    }

    /// Returns the spec that it was started from.
    pub fn spec(&self) -> &TestbedSpec {
        &self.spec
    }

    /// Returns its state folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the control plane's audit log, if the spec enables it: one JSON event per line.
    pub fn audit_log(&self) -> Option<PathBuf> {
        self.state.lock().audit_log.clone()
    }

    /// Returns the current status of every process, by name.
    pub fn status(&self) -> Vec<ProcessStatus> {
        self.supervisor.status()
    }

    /// Ends a component at once, as `kill -9` does. It stays down until [`Testbed::restart`].
    ///
    /// # Errors
    /// Returns [`Error::UnknownProcess`] if there is no process of that name.
    pub fn kill(&self, process: &str) -> Result<()> {
        self.supervisor.kill(process)
    }

    /// Suspends a component until [`Testbed::resume`].
    ///
    /// # Errors
    /// Returns [`Error::UnknownProcess`] if there is no process of that name.
    pub fn pause(&self, process: &str) -> Result<()> {
        self.supervisor.pause(process)
    }

    /// Resumes a paused component.
    ///
    /// # Errors
    /// Returns [`Error::UnknownProcess`] if there is no process of that name.
    pub fn resume(&self, process: &str) -> Result<()> {
        self.supervisor.resume(process)
    }

    /// Restarts a component with the same arguments, ending it first if it runs, and waits until it
    /// serves. After an API server is ready, this also restarts the components of its cluster that
    /// exited without it, as a kubelet would, but not those killed by name. After a container runtime this restarts the
    /// other processes of its node.
    ///
    /// # Errors
    /// Returns an error if there is no process of that name, or it does not come up.
    pub async fn restart(&self, process: &str) -> Result<()> {
        if let Some((member, number)) = self.node_with_runtime(process) {
            return self.restart_machine(&member, number).await;
        }
        self.supervisor.restart(process)?;
        self.record(|_| ())?;
        let clusters = self.state.lock().clusters.clone();
        let serves =
            |cluster: &&TestbedCluster| MemberProcess::Apiserver.of(&cluster.name) == process;
        let Some(cluster) = clusters.iter().find(serves) else {
            return wait::serving(&self.supervisor, process).await;
        };
        let client = cluster.client().await?;
        wait::api_ready(&self.supervisor, process, &client).await?;
        self.supervisor.revive(&self.processes_of(&cluster.name))?;
        self.record(|_| ())
    }

    /// Restarts the components that exited by themselves, as a kubelet would, but not those killed
    /// by name, nor programs of the caller. Some components exit long after their API server is
    /// back, so a test that disturbs a testbed calls this repeatedly.
    ///
    /// # Errors
    /// Returns an error if one cannot be started.
    pub fn revive(&self) -> Result<()> {
        let clusters = self.state.lock().clusters.clone();
        let names = clusters
            .iter()
            .map(|cluster| self.processes_of(&cluster.name));
        let names: Vec<String> = names.flatten().collect();
        match self.supervisor.revive(&names)? {
            true => self.record(|_| ()),
            false => Ok(()),
        }
    }

    /// Kills a member's API server, so that Karmada loses the cluster. Karmada notices after about
    /// 33 s.
    ///
    /// # Errors
    /// Returns [`Error::UnknownProcess`] if there is no such member.
    pub fn stop_member_apiserver(&self, member: &str) -> Result<()> {
        self.kill(&MemberProcess::Apiserver.of(member))
    }

    /// Restarts a member's API server and waits until it is ready.
    ///
    /// # Errors
    /// Returns an error if there is no such member, or it does not come up.
    pub async fn start_member_apiserver(&self, member: &str) -> Result<()> {
        self.restart(&MemberProcess::Apiserver.of(member)).await
    }

    /// Adds nodes to a member, waits until they are Ready, and returns their names.
    ///
    /// # Errors
    /// Returns an error if there is no such member, or nodes of these names exist.
    pub async fn add_nodes(&self, member: &str, group: &NodeGroup) -> Result<Vec<String>> {
        let client = self.cluster(member)?.client().await?;
        let names = nodes::create(&client, member, group).await?;
        self.wait_nodes_ready(&client, member, &names).await?;
        Ok(names)
    }

    /// Deletes nodes of a member; a missing node is no error.
    ///
    /// # Errors
    /// Returns an error if there is no such member, or its API server refuses.
    pub async fn delete_nodes(&self, member: &str, names: &[String]) -> Result<()> {
        let client = self.cluster(member)?.client().await?;
        nodes::delete(&client, member, names).await
    }

    /// Makes a node of a member unschedulable, or schedulable again.
    ///
    /// # Errors
    /// Returns an error if there is no such node, or the API server refuses.
    pub async fn cordon(&self, member: &str, node: &str, unschedulable: bool) -> Result<()> {
        let client = self.cluster(member)?.client().await?;
        nodes::cordon(&client, member, node, unschedulable).await
    }

    /// Starts a program of the caller as a process of the testbed: it can be killed, paused and
    /// restarted by `name`, and ends with the testbed. `args` receives `ports` free ports, which
    /// are returned. A process that has this name is ended. This function does not wait until the program
    /// serves on the ports.
    ///
    /// # Errors
    /// Returns an error if there is no free port, or the program cannot be started.
    pub fn start_process(
        &self,
        name: &str,
        program: &Path,
        ports: usize,
        args: impl FnOnce(&[u16]) -> Vec<String>,
    ) -> Result<Vec<u16>> {
        let ports = (0..ports).map(|_| self.supervisor.reserve_port());
        let ports = ports.collect::<Result<Vec<u16>>>()?;
        self.spawn(Launch {
            name: name.to_owned(),
            program: program.to_owned(),
            args: args(&ports),
            ports: ports.clone(),
        })?;
        Ok(ports)
    }

    fn prepare(spec: TestbedSpec, dir: &Path, tools: &Tools) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        let dir = dir.canonicalize().map_err(Error::io("resolve", dir))?;
        folder::clear(&dir)?;
        for folder in folder::OWN_FOLDERS {
            let path = dir.join(folder);
            std::fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        }
        let mut ports = Ports::new();
        let etcd_port = ports.reserve()?;
        let pki = Pki::create(&dir.join("pki"))?;
        let mut clusters = Vec::new();
        let names = spec.members.iter().map(|member| member.name.as_str());
        for name in std::iter::once(KARMADA).chain(names) {
            let port = ports.reserve()?;
            clusters.push(TestbedCluster::create(
                name,
                port,
                &pki,
                &dir.join("kubeconfig"),
            )?);
        }
        let supervisor = Supervisor::new(dir.join("log"), ports)?;
        let audit_log = spec.karmada.audit_log.then(|| dir.join(folder::AUDIT_LOG));
        let state = TestbedState {
            phase: Phase::Starting,
            owner: ProcessId::own(),
            group: supervisor.group(),
            started_at: Timestamp::now(),
            ready_after_ms: None,
            clusters,
            processes: Vec::new(),
            audit_log,
        };
        let testbed = Self {
            dir,
            spec,
            tools: tools.clone(),
            pki,
            etcd_port,
            supervisor,
            state: Mutex::new(state),
            members_with_real_nodes: Mutex::default(),
        };
        testbed
            .spec
            .members
            .iter()
            .for_each(|member| testbed.note_real_nodes(member));
        testbed.record(|_| ())?;
        Ok(testbed)
    }

    async fn bring_up(
        &self,
        start: Instant,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<()> {
        let say = |what: &str| {
            progress(&format!(
                "{what} after {:.1} s",
                start.elapsed().as_secs_f64()
            ))
        };
        self.spawn(self.components().etcd(&self.dir.join("etcd"))?)?;
        wait::serving(&self.supervisor, ETCD).await?;
        let audit = match self.audit_log() {
            Some(log) => self.components().audit_flags(&log)?,
            None => Vec::new(),
        };
        self.spawn(
            self.components()
                .apiserver(KARMADA, self.karmada().port, audit)?,
        )?;

        let (announce, karmada_ready) = watch::channel(false);
        let control_plane = async {
            self.start_control_plane().await?;
            say("karmada ready");
            announce.send_replace(true);
            Ok(())
        };
        let members = self.spec.members.iter().map(|member| {
            let karmada_ready = karmada_ready.clone();
            let say = &say;
            async move {
                let token =
                    self.spawn_member_apiserver(member, self.cluster(&member.name)?.port)?;
                self.start_member(member, &token, karmada_ready).await?;
                say(&format!("{} ready", member.name));
                Ok(())
            }
        });
        try_join(control_plane, try_join_all(members))
            .await
            .map(drop)
    }

    fn components(&self) -> Components<'_> {
        Components {
            tools: &self.tools,
            pki: &self.pki,
            supervisor: &self.supervisor,
            conf_dir: self.dir.join("conf"),
            etcd_port: self.etcd_port,
        }
    }

    /// Starts a process and records it.
    fn spawn(&self, launch: Launch) -> Result<()> {
        self.supervisor.spawn(launch)?;
        self.record(|_| ())
    }

    /// Changes the state file's record and writes it with the current processes.
    fn record(&self, change: impl FnOnce(&mut TestbedState)) -> Result<()> {
        let mut state = self.state.lock();
        change(&mut state);
        let processes = self
            .supervisor
            .status()
            .into_iter()
            .map(|process| ProcessRecord {
                name: process.name,
                id: process.id,
                port: process.port,
                log: process.log,
            });
        state.processes = processes.collect();
        state.save(&self.dir)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // A failed write of the record has no reader; the processes are gone.
        let _ = self.shut_down();
    }
}
