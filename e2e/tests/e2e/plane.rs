//! The plane that the stories of a run share, and how Muster runs on it.
//!
//! It is started by the first story that needs it, proved with one job that runs, and ends with the
//! process, whatever ends that: the testbed's watchdog sees to it. Who may use it when is settled in
//! [`e2e::harness::turns`].

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
use testbed::operators::{jobset, kuberay, mpi_operator, training_operator};
use testbed::tools::{self, Toolset};
use testbed::{KarmadaSpec, MemberSpec, NodeGroup, Testbed, TestbedSpec};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell};

use crate::run;
use crate::story::first_job;

/// The members that all stories share: two with Volcano, one without.
pub(crate) const MEMBERS: [&str; 3] = ["member1", "member2", "member3"];

/// Members with Volcano and without any node, each for one story at a time that takes it away,
/// drains it or stops what runs in it.
pub(crate) const SPARES: [&str; 2] = ["spare1", "spare2"];

/// A evicted job may soon be tried again, one whose Works ask for too much is evicted soon, and Lease and
/// view are as in production.
pub(crate) const FLAGS: [&str; 2] = ["--backoff-seconds=1", "--override-grace-seconds=10"];

/// Five times what karmada-controller-manager may ask by default: many tests share it, and one of
/// them leaves it a thousand deleted jobs to look after.
const LIMITS: [&str; 2] = ["--kube-api-qps=200", "--kube-api-burst=300"];

/// How many stories live side by side. With more of them two cores have no time left, and all take
/// longer.
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
    /// Of the members that were asked for: a client is dear to make, and stories ask five times a second.
    members: Mutex<HashMap<String, Objects>>,
    audit: Option<Log>,
    /// What its members' pods did.
    pub(crate) pods: PodSightings,
    /// Whether Muster runs as separate processes now.
    separate: Mutex<bool>,
    /// What stories change while Muster is away when it is killed next.
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

/// Held by a story that starts a plane of its own, and by one that measures.
static CORES: Mutex<()> = Mutex::const_new(());

/// Runs a story on the shared plane when it has what it needs.
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

/// Runs a story on the shared plane while nothing else runs at all: it measures.
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

/// Runs a story that brings its own plane, once most others are through: two cores have no time for
/// a start besides those.
pub(crate) fn without_plane(test: impl AsyncFnOnce() -> anyhow::Result<()>) {
    RUNTIME.block_on(run::story(async |begun| {
        LINE.until_few_are_left().await;
        let _cores = CORES.lock().await;
        begun.now();
        run::ensure_goes_on()?;
        test().await
    }));
}

/// The shared plane, which the first caller starts.
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

/// What a kubelet does for a real control plane: components that gave up are started again.
async fn revive_for_ever(plane: &'static Plane) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Err(error) = plane.testbed.revive() {
            eprintln!("a component is not started again: {error}");
        }
    }
}

impl Plane {
    /// Starts a testbed and installs Muster on it; no process of Muster's is started.
    pub(crate) async fn up(spec: TestbedSpec, dir: &Path) -> anyhow::Result<Self> {
        let program = muster::program()?;
        let tools = tools::ensure(&Toolset::ALL, &|line| eprintln!("{line}"))?;
        let testbed = Testbed::up(spec, dir, &tools, &|line| eprintln!("{line}")).await?;
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

    /// Has Muster run as stories of this mode need it. The mode does not change while any run.
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

    /// Has these changes made while Muster is away when it is killed next.
    pub(crate) async fn change_while_away(&self, changes: impl IntoIterator<Item = Change>) {
        self.while_away.lock().await.extend(changes);
    }

    /// Kills Muster and starts it again; it leads when this returns.
    pub(crate) async fn kill_muster(&self) -> anyhow::Result<()> {
        // What the process counted goes with it.
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

    /// Fails if Muster says of itself that something is wrong, in metrics or logs.
    pub(crate) async fn ensure_healthy(&self) -> anyhow::Result<()> {
        let faults = health::faults(&self.muster, &self.testbed).await;
        ensure!(
            faults.is_empty(),
            "Muster is not well: {}",
            faults.join("; ")
        );
        Ok(())
    }

    /// A member's objects.
    pub(crate) async fn member(&self, name: &str) -> anyhow::Result<Objects> {
        let mut members = self.members.lock().await;
        if let Some(objects) = members.get(name) {
            return Ok(objects.clone());
        }
        let objects = Objects::new(self.testbed.cluster(name)?.client().await?);
        members.insert(name.to_owned(), objects.clone());
        Ok(objects)
    }

    /// The user who edits a namespace of the control plane and nothing else.
    pub(crate) async fn tenant(&self, namespace: &str) -> anyhow::Result<Tenant> {
        Tenant::of(&self.testbed, namespace).await
    }

    /// The audit log of the control plane's API server.
    pub(crate) fn audit_log(&self) -> anyhow::Result<&Log> {
        self.audit.as_ref().context("the plane has no audit log")
    }

    /// The last lines of a process's log.
    pub(crate) fn log_end(&self, part: ProcessRole, lines: usize) -> String {
        let log = format!("log/{}.log", part.process());
        let path = self.testbed.dir().join(log);
        let bytes = std::fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

/// Where a plane keeps its state and logs.
pub(crate) fn state_dir(name: &str) -> PathBuf {
    match std::env::var_os("E2E_DIR") {
        Some(dir) => PathBuf::from(dir).join(name),
        None => Path::new(env!("CARGO_TARGET_TMPDIR")).join(name),
    }
}

/// Members without GPUs: each story adds nodes of a class of its own.
fn spec() -> anyhow::Result<TestbedSpec> {
    let sets = [
        Toolset::TrainingOperator,
        Toolset::JobSet,
        Toolset::MpiOperator,
        Toolset::KubeRay,
    ];
    let tools = tools::ensure(&sets, &|line| eprintln!("{line}"))?;
    let mut crds = Vec::from(training_operator::crds(&tools)?);
    crds.push(jobset::crd(&tools)?);
    crds.push(mpi_operator::crd(&tools)?);
    crds.extend(kuberay::crds(&tools)?);
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
        nodes: vec![NodeGroup {
            prefix: Some("cpu".into()),
            gpus: 0,
            ..NodeGroup::default()
        }],
        ..MemberSpec::default()
    }
}

/// A member to which no pod of another story can go.
fn spare(name: &str) -> MemberSpec {
    MemberSpec {
        name: name.into(),
        volcano: true,
        without_crds: true,
        nodes: Vec::new(),
        ..MemberSpec::default()
    }
}
