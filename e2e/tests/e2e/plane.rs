//! The plane that the stories of a run share, and how Muster runs on it.
//!
//! The first story that needs the plane starts it and proves it with one job. It ends with the
//! process, even if that crashes, because the testbed's watchdog ends it. [`e2e::harness::turns`]
//! decides which story may use it when.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use e2e::harness::audit::{Log, PodSightings};
use e2e::harness::health;
use e2e::harness::kinds::ObjectKind;
use e2e::harness::muster::{self, Muster, ProcessRole};
use e2e::harness::objects::Objects;
use e2e::harness::tenant::Tenant;
use e2e::harness::turns::{Line, Mode, StoryNeeds, Turn};
use serde_json::Value;
use testbed::operators::{jobset, kuberay, leader_worker_set, mpi_operator, training_operator};
use testbed::tools::{self, Toolset};
use testbed::{
    KarmadaSpec, MemberSpec, NodeGroup, NodeTaint, NodeTaintEffect, Testbed, TestbedSpec,
};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell};

use crate::run;
use crate::story::first_job;

/// The members that all stories share: two with Volcano, one without.
pub(crate) const MEMBERS: [&str; 3] = ["member1", "member2", "member3"];

/// Members with Volcano and without nodes. Each belongs to one story at a time, which removes it,
/// drains it or stops its components.
pub(crate) const SPARES: [&str; 2] = ["spare1", "spare2"];

/// Flags of Muster: it retries evicted jobs soon, soon evicts a job whose Works request too much, and
/// checks the engine's numbers many times in a story. The times of Lease and view are as in production.
/// The grace of an override leaves a slow machine the time for what a story does within it: 10 s once were too few.
pub(crate) const FLAGS: [&str; 3] = [
    "--backoff-seconds=1",
    "--override-grace-seconds=25",
    "--invariant-check-seconds=3",
];

/// Five times the default client limits of karmada-controller-manager, since many tests share it,
/// and one of them deletes a thousand jobs.
const LIMITS: [&str; 2] = ["--kube-api-qps=200", "--kube-api-burst=300"];

/// The number of stories that run in parallel. With more of them, two cores are overloaded and
/// every story takes longer.
const SIDE_BY_SIDE: usize = 6;

/// The processes of [`Mode::Separate`].
const SEPARATE: [ProcessRole; 3] = [
    ProcessRole::Webhook,
    ProcessRole::Controller,
    ProcessRole::Scheduler,
];

/// A control plane with Muster on it.
pub(crate) struct Plane {
    pub(crate) testbed: Testbed,
    pub(crate) muster: Muster,
    pub(crate) tools: tools::Tools,
    /// The control plane's objects.
    pub(crate) karmada: Objects,
    /// Objects of the members in use. They are cached, because a client is expensive to create and
    /// stories send requests five times a second.
    members: Mutex<HashMap<String, Objects>>,
    audit: Option<Log>,
    /// The pods of its members.
    pub(crate) pods: PodSightings,
    /// Whether Muster runs as separate processes now.
    separate: Mutex<bool>,
    /// Changes that stories make while Muster is down at its next kill.
    while_away: Mutex<Vec<Change>>,
}

/// A merge patch of an object in a namespace.
pub(crate) struct Change {
    pub(crate) kind: ObjectKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) patch: Value,
}

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Runtime::new().expect("no threads for the tests' runtime"));
static LINE: LazyLock<Line> = LazyLock::new(|| Line::new(SIDE_BY_SIDE, &SPARES));
static PLANE: OnceCell<Result<Plane, String>> = OnceCell::const_new();
static PROVED: OnceCell<Result<(), String>> = OnceCell::const_new();
static KUBELET: OnceLock<()> = OnceLock::new();

/// A lock held by a story that starts a plane of its own, and by one that measures.
static CORES: Mutex<()> = Mutex::const_new(());

/// Runs a story on the shared plane when its needs are met.
pub(crate) fn story(
    needs: StoryNeeds,
    test: impl AsyncFnOnce(&'static Plane, Turn<'static>) -> anyhow::Result<()>,
) {
    RUNTIME.block_on(run::story(async |begun| {
        let place = LINE.stand(needs);
        let plane = shared().await?;
        let turn = place.turn().await?;
        begun.now();
        run::ensure_goes_on()?;
        plane.set_up(turn.needs().mode).await?;
        test(plane, turn).await
    }));
}

/// Runs a story on the shared plane while no other story runs, because it measures.
pub(crate) fn quiet(test: impl AsyncFnOnce(&'static Plane, Turn<'static>) -> anyhow::Result<()>) {
    let exclusive = StoryNeeds {
        mode: Mode::Exclusive,
        spare: None,
        long: false,
    };
    story(exclusive, async |plane, turn| {
        let _cores = CORES.lock().await;
        test(plane, turn).await
    });
}

/// Runs a story with a plane of its own, when most other stories are over: two cores have no time
/// to start a plane besides those.
pub(crate) fn without_plane(test: impl AsyncFnOnce() -> anyhow::Result<()>) {
    RUNTIME.block_on(run::story(async |begun| {
        LINE.until_few_are_left().await;
        let _cores = CORES.lock().await;
        begun.now();
        run::ensure_goes_on()?;
        test().await
    }));
}

/// Runs a story on a plane of its own, in the folder `e2e-<name>`, and prints the end of Muster's log if it fails.
pub(crate) fn on_own_plane(
    name: &str,
    spec: TestbedSpec,
    story: impl AsyncFnOnce(&Plane) -> anyhow::Result<()>,
) {
    without_plane(async || {
        let plane = Plane::up(spec, &state_dir(&format!("e2e-{name}"))).await?;
        let outcome = story(&plane).await;
        if outcome.is_err() {
            println!("{}", plane.log_end(ProcessRole::All, 60));
        }
        plane.testbed.down()?;
        outcome
    });
}

/// Returns a plane with one member that has the nodes of a default group.
pub(crate) fn of_one_member(name: &str) -> TestbedSpec {
    TestbedSpec {
        karmada: KarmadaSpec::default(),
        members: vec![MemberSpec {
            name: name.into(),
            nodes: vec![NodeGroup::default()],
            ..MemberSpec::default()
        }],
        ..TestbedSpec::default()
    }
}

/// Returns the shared plane, which the first caller starts.
async fn shared() -> anyhow::Result<&'static Plane> {
    let started = PLANE.get_or_init(async || {
        let started = start().await;
        started.map_err(|error| format!("{error:#}"))
    });
    let plane = started.await.as_ref();
    let plane = plane.map_err(|error| run::stop(&format!("the plane did not start: {error}")))?;
    KUBELET.get_or_init(|| drop(tokio::spawn(revive_for_ever(plane))));
    let proved = PROVED.get_or_init(async || {
        let first = first_job(plane).await;
        first.map_err(|error| format!("{error:#}"))
    });
    let proved = proved.await.as_ref();
    proved
        .map_err(|error| run::stop(&format!("the first job of the plane does not run: {error}")))?;
    Ok(plane)
}

async fn start() -> anyhow::Result<Plane> {
    let plane = Plane::up(spec()?, &state_dir("e2e")).await?;
    let started = plane.muster.start(&plane.testbed, ProcessRole::All).await;
    started.with_context(|| plane.log_end(ProcessRole::All, 40))?;
    Ok(plane)
}

/// Restarts components that exited, for ever, as a kubelet does in a real control plane.
async fn revive_for_ever(plane: &'static Plane) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Err(error) = plane.testbed.revive() {
            eprintln!("a component is not started again: {error}");
        }
    }
}

impl Plane {
    /// Starts a testbed and installs Muster on it; no process of Muster is started.
    pub(crate) async fn up(spec: TestbedSpec, dir: &Path) -> anyhow::Result<Self> {
        let program = muster::program()?;
        let say = |line: &str| eprintln!("{line}");
        let mut tools = tools::ensure(&Toolset::ALL, &say)?;
        if spec
            .members
            .iter()
            .any(|member| member.real_nodes.is_some())
        {
            tools = tools.and(tools::ensure_real(&say)?);
        }
        let testbed = Testbed::up(spec, dir, &tools, &say).await?;
        let muster = Muster::install(&testbed, program, &FLAGS).await?;
        let karmada = Objects::new(testbed.karmada().client().await?);
        if !testbed.spec().member_crds.is_empty() {
            let dashboard = kuberay::dashboard().await?;
            let spare = |name: &str| SPARES.contains(&name);
            let members = testbed.members().into_iter();
            for member in members.filter(|member| !spare(&member.name)) {
                training_operator::start(&testbed, &tools, &member.name)?;
                mpi_operator::start(&testbed, &tools, &member.name)?;
                testbed.start_jobset(&member.name).await?;
                testbed.start_leader_worker_set(&member.name).await?;
                kuberay::start(&testbed, &tools, &member.name, dashboard)?;
            }
        }
        let pods = PodSightings::default();
        for member in testbed.members() {
            pods.watch(&member.name, member.client().await?);
        }
        Ok(Self {
            pods,
            audit: testbed.audit_log().as_deref().map(Log::new),
            testbed,
            muster,
            tools,
            karmada,
            members: Mutex::default(),
            separate: Mutex::default(),
            while_away: Mutex::default(),
        })
    }

    /// Starts Muster as the stories of this mode need it. The mode does not change while any of
    /// them runs.
    async fn set_up(&self, mode: Mode) -> anyhow::Result<()> {
        let mut separate = self.separate.lock().await;
        let wanted = mode == Mode::Separate;
        if *separate == wanted {
            return Ok(());
        }
        let (old, new): (&[ProcessRole], &[ProcessRole]) = match wanted {
            true => (&[ProcessRole::All], &SEPARATE),
            false => (&SEPARATE, &[ProcessRole::All]),
        };
        self.ensure_healthy().await?;
        for &part in old {
            self.muster.stop(&self.testbed, part).await?;
        }
        for &part in new {
            self.muster.launch(&self.testbed, part).await?;
        }
        for &part in new {
            self.muster.wait_ready(&self.testbed, part).await?;
            self.muster.wait_leading(&self.testbed, part).await?;
        }
        *separate = wanted;
        Ok(())
    }

    /// Registers changes to make while Muster is down at its next kill.
    pub(crate) async fn change_while_away(&self, changes: impl IntoIterator<Item = Change>) {
        self.while_away.lock().await.extend(changes);
    }

    /// Kills Muster and starts it again; it leads when this returns.
    pub(crate) async fn kill_muster(&self) -> anyhow::Result<()> {
        // The process's counters are lost with it, so they are checked first.
        self.ensure_healthy().await?;
        self.muster.kill(&self.testbed, ProcessRole::All).await?;
        for change in std::mem::take(&mut *self.while_away.lock().await) {
            let namespace = Some(change.namespace.as_str());
            let patched = self
                .karmada
                .merge(change.kind, namespace, &change.name, &change.patch);
            let named = || format!("change {} while Muster is away", change.name);
            patched.await.with_context(named)?;
        }
        self.muster.start(&self.testbed, ProcessRole::All).await
    }

    /// Fails if Muster reports a defect in its metrics or logs.
    pub(crate) async fn ensure_healthy(&self) -> anyhow::Result<()> {
        let faults = health::faults(&self.muster, &self.testbed).await;
        ensure!(
            faults.is_empty(),
            "Muster is not well: {}",
            faults.join("; ")
        );
        Ok(())
    }

    /// Returns a member's objects.
    pub(crate) async fn member(&self, name: &str) -> anyhow::Result<Objects> {
        let mut members = self.members.lock().await;
        if let Some(objects) = members.get(name) {
            return Ok(objects.clone());
        }
        let objects = Objects::new(self.testbed.cluster(name)?.client().await?);
        members.insert(name.to_owned(), objects.clone());
        Ok(objects)
    }

    /// Returns the user with the right to edit a namespace of the control plane.
    pub(crate) async fn tenant(&self, namespace: &str) -> anyhow::Result<Tenant> {
        Tenant::of(&self.testbed, namespace).await
    }

    /// Returns the audit log of the control plane's API server.
    pub(crate) fn audit_log(&self) -> anyhow::Result<&Log> {
        self.audit.as_ref().context("the plane has no audit log")
    }

    /// Returns the last lines of a process's log.
    pub(crate) fn log_end(&self, part: ProcessRole, lines: usize) -> String {
        let log = format!("log/{}.log", part.process());
        let path = self.testbed.dir().join(log);
        let bytes = std::fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

/// Returns the folder of a plane's state and logs.
pub(crate) fn state_dir(name: &str) -> PathBuf {
    match std::env::var_os("E2E_DIR") {
        Some(dir) => PathBuf::from(dir).join(name),
        None => Path::new(env!("CARGO_TARGET_TMPDIR")).join(name),
    }
}

/// Returns the spec: members without GPUs, to which each story adds nodes of its own class.
fn spec() -> anyhow::Result<TestbedSpec> {
    let sets = [
        Toolset::TrainingOperator,
        Toolset::JobSet,
        Toolset::MpiOperator,
        Toolset::KubeRay,
        Toolset::LeaderWorkerSet,
    ];
    let tools = tools::ensure(&sets, &|line| eprintln!("{line}"))?;
    let mut crds = Vec::from(training_operator::crds(&tools)?);
    crds.push(jobset::crd(&tools)?);
    crds.push(mpi_operator::crd(&tools)?);
    crds.extend(kuberay::crds(&tools)?);
    crds.push(leader_worker_set::crd(&tools)?);
    crds.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/fixtures"));
    Ok(TestbedSpec {
        karmada: KarmadaSpec {
            audit_log: true,
            controller_manager_flags: LIMITS.map(str::to_owned).into(),
            ..KarmadaSpec::default()
        },
        members: MEMBERS
            .map(member)
            .into_iter()
            .chain(SPARES.map(spare))
            .collect(),
        control_plane_crds: crds.clone(),
        member_crds: crds,
    })
}

fn member(name: &str) -> MemberSpec {
    MemberSpec {
        name: name.into(),
        volcano: name != MEMBERS[2],
        nodes: vec![
            NodeGroup {
                prefix: Some("cpu".into()),
                gpus: 0,
                ..NodeGroup::default()
            },
            reserve(),
        ],
        ..MemberSpec::default()
    }
}

/// Returns a node whose devices no pod can use. All queues together may use what the fleet has. The nodes of a
/// story that has ended go before its jobs have, which are charged a while longer: without this node a story in
/// which one queue reclaims from another would take what it lacks from any other story.
fn reserve() -> NodeGroup {
    let taint = NodeTaint {
        key: "reserve".into(),
        value: String::new(),
        effect: NodeTaintEffect::NoSchedule,
    };
    NodeGroup {
        prefix: Some("reserve".into()),
        gpus: 1024,
        product: Some("RESERVE".into()),
        taints: vec![taint],
        ..NodeGroup::default()
    }
}

/// Returns a member that no pod of another story can use.
fn spare(name: &str) -> MemberSpec {
    MemberSpec {
        name: name.into(),
        volcano: true,
        without_crds: true,
        nodes: Vec::new(),
        ..MemberSpec::default()
    }
}
