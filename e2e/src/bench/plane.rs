//! The measured plane: a testbed without an audit log, Muster on it, and the benchmark's watches.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kube::Client;
use parking_lot::Mutex;
use testbed::tools;
use testbed::{
    KARMADA_SCHEDULER, KarmadaSpec, MemberSpec, NodeGroup, Testbed, TestbedSpec, TestbedState,
};
use tokio::task::JoinSet;

use super::cost;
use super::counters::Counters;
use super::report::TestbedNumbers;
use super::seen::{BindingSighting, Seen};
use super::watch;
use crate::harness::muster::{self, Muster, ProcessRole};
use crate::harness::objects::Objects;

/// The client limits of Karmada's components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientLimits {
    /// The default: 40 requests per second, bursts of 60.
    Shipped,
    /// Limits that are never reached.
    Raised,
}

/// GPUs of a node. There are few nodes with many GPUs, so that node heartbeats do not add to the
/// numbers.
const GPUS_PER_NODE: u32 = 64;
const MEMBERS: u32 = 3;
/// Members of the plane on which gangs are placed over several.
pub(super) const MANY_MEMBERS: u32 = 5;
/// The timeout of each wait.
const DEADLINE: Duration = Duration::from_secs(600);
/// The polling period; times come from events, not from polling.
const PERIOD: Duration = Duration::from_millis(50);

/// A control plane with Muster on it.
pub(super) struct BenchPlane {
    pub(super) testbed: Testbed,
    pub(super) muster: Muster,
    pub(super) client: Client,
    /// The control plane's objects.
    pub(super) karmada: Objects,
    pub(super) seen: Arc<Mutex<Seen>>,
    _watches: JoinSet<()>,
}

impl BenchPlane {
    /// Starts a testbed with capacity for `gpus` GPUs, and Muster on it.
    pub(super) async fn up(dir: &Path, limits: ClientLimits, gpus: usize) -> anyhow::Result<Self> {
        Self::of(dir, limits, gpus, MEMBERS).await
    }

    /// The same with `members` members.
    pub(super) async fn of(
        dir: &Path,
        limits: ClientLimits,
        gpus: usize,
        members: u32,
    ) -> anyhow::Result<Self> {
        let say = |line: &str| println!("    {line}");
        let tools = tools::ensure(&Testbed::TOOLSETS, &say)?;
        let testbed = Testbed::up(spec(limits, gpus, members)?, dir, &tools, &say).await?;
        let muster = Muster::install(&testbed, muster::program()?, &["--log-format=json"]).await?;
        muster.start(&testbed, ProcessRole::All).await?;
        let client = testbed.karmada().client().await?;
        let seen = Arc::default();
        let watches = watch::spawn(&client, &seen).await;
        let karmada = Objects::new(client.clone());
        Ok(Self {
            testbed,
            muster,
            client,
            karmada,
            seen,
            _watches: watches,
        })
    }

    /// Returns the start time, the number of processes and the memory of the testbed, without
    /// Muster's process.
    pub(super) fn testbed_numbers(&self) -> anyhow::Result<TestbedNumbers> {
        let ready = TestbedState::load(self.testbed.dir())?.ready_after_ms;
        let muster = cost::memory(&self.testbed, ProcessRole::All.process()).resident_mib;
        Ok(TestbedNumbers {
            ready_after_ms: ready.context("the testbed does not say how long it took")?,
            processes: self.testbed.status().len() - 1,
            resident_mib: cost::total_mib(&self.testbed) - muster,
        })
    }

    /// Waits until Muster is ready and nothing has changed for `quiet`.
    pub(super) async fn rest(&self, quiet: Duration) -> anyhow::Result<()> {
        self.muster
            .wait_ready(&self.testbed, ProcessRole::All)
            .await?;
        let start = Instant::now();
        while self.seen.lock().quiet_for() < quiet {
            if start.elapsed() > DEADLINE {
                bail!("the plane has no {quiet:?} without a change within {DEADLINE:?}");
            }
            tokio::time::sleep(PERIOD).await;
        }
        self.muster
            .wait_ready(&self.testbed, ProcessRole::All)
            .await
    }

    /// Waits until `count` bindings in a namespace have a sighting of a kind, and returns the times
    /// in order.
    pub(super) async fn all(
        &self,
        namespace: &str,
        count: usize,
        what: &str,
        when: impl Fn(&BindingSighting) -> Option<Instant>,
    ) -> anyhow::Result<Vec<Instant>> {
        let start = Instant::now();
        loop {
            let mut times: Vec<Instant> = self
                .seen
                .lock()
                .of(namespace)
                .filter_map(|(_, sighting)| when(sighting))
                .collect();
            if times.len() >= count {
                times.sort_unstable();
                return Ok(times);
            }
            if start.elapsed() > DEADLINE {
                bail!(
                    "{} of {count} bindings in {namespace} {what} within {DEADLINE:?}",
                    times.len()
                );
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Returns the writes of the control plane's API server so far.
    pub(super) async fn api_writes(&self) -> anyhow::Result<Counters> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self
            .client
            .request_text(request)
            .await
            .context("the API server's metrics")?;
        Ok(Counters::of_api_server(&text))
    }

    /// Returns Muster's counters.
    pub(super) async fn muster_counters(&self) -> anyhow::Result<Counters> {
        let text = self.muster.metrics(&self.testbed, ProcessRole::All).await?;
        Ok(Counters::of_muster(&text))
    }

    /// Pauses or resumes Karmada's scheduler.
    pub(super) fn pause_karmada_scheduler(&self, pause: bool) -> anyhow::Result<()> {
        match pause {
            true => self.testbed.pause(KARMADA_SCHEDULER)?,
            false => self.testbed.resume(KARMADA_SCHEDULER)?,
        }
        Ok(())
    }
}

fn spec(limits: ClientLimits, gpus: usize, members: u32) -> anyhow::Result<TestbedSpec> {
    // With its default cluster models Karmada 1.18 finds no GPU in any cluster. Without them its
    // scheduler can place the same jobs.
    let mut flags = vec!["--feature-gates=CustomizedClusterResourceModeling=false".to_owned()];
    if limits == ClientLimits::Raised {
        flags.extend([
            "--kube-api-qps=5000".to_owned(),
            "--kube-api-burst=5000".to_owned(),
        ]);
    }
    let nodes = u32::try_from(gpus)?.div_ceil(GPUS_PER_NODE * members);
    let member = |index: u32| MemberSpec {
        name: format!("member{index}"),
        nodes: vec![NodeGroup {
            count: nodes,
            gpus: GPUS_PER_NODE,
            pods: 2 * GPUS_PER_NODE,
            product: Some("NVIDIA-H100-80GB".to_owned()),
            ..NodeGroup::default()
        }],
        ..MemberSpec::default()
    };
    Ok(TestbedSpec {
        karmada: KarmadaSpec {
            controller_manager_flags: flags.clone(),
            scheduler_flags: flags,
            ..KarmadaSpec::default()
        },
        members: (1..=members).map(member).collect(),
        ..TestbedSpec::default()
    })
}
