//! The two planes that the tests of a run share, and who may use them when.
//!
//! On one tests live side by side. Those that disturb (they kill or restart Muster, take a member away,
//! drain it, change what all see) have another, on which one runs at a time, and the first as well once
//! nobody is left there: so nobody waits until all others are through. Both are set up alike. Each is started by the first test that needs it and ends
//! with the process, whatever ends that: the testbed's watchdog sees to it.
//!
//! Who runs is settled here and not by the number of the test program's threads: those that wait for
//! their turn hold one too.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use e2e::harness::audit::{Log, Pods};
use e2e::harness::muster::{self, Muster, Part};
use e2e::harness::objects::Objects;
use e2e::testbed::{KarmadaSpec, MemberSpec, NodeGroup, Spec, Testbed, jobset};
use e2e::tools::{self, Toolset};
use e2e::{kuberay, mpi_operator, training_operator};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell, Semaphore, SemaphorePermit};

/// The members of a plane: two with Volcano, one without.
pub(crate) const MEMBERS: [&str; 3] = ["member1", "member2", "member3"];

/// A taken-back job may soon be tried again, and Lease and view are as in production.
pub(crate) const FLAGS: [&str; 1] = ["--backoff-seconds=1"];

/// Five times what karmada-controller-manager may ask by default: many tests share it, and one of
/// them leaves it a thousand deleted jobs to look after.
const LIMITS: [&str; 2] = ["--kube-api-qps=200", "--kube-api-burst=300"];

/// How many live side by side. With more of them two cores have no time left, and all take longer.
const SIDE_BY_SIDE: u32 = 6;

/// How often is looked whether a plane is without tests.
const LOOK: Duration = Duration::from_millis(100);

/// A control plane with Muster on it.
pub(crate) struct Plane {
    pub(crate) testbed: Testbed,
    pub(crate) muster: Muster,
    pub(crate) tools: tools::Tools,
    /// The control plane's objects.
    pub(crate) karmada: Objects,
    /// Of the members that were asked for: a client is dear to make, and tests ask ten times a second.
    members: Mutex<HashMap<String, Objects>>,
    audit: Option<Log>,
    /// What its members' pods did.
    pub(crate) pods: Pods,
}

/// A plane that is started when it is first needed.
struct Shared {
    folder: &'static str,
    /// One is held by each test that lives beside others, all by one that is alone.
    turns: Semaphore,
    plane: OnceCell<Result<Plane, String>>,
    kubelet: OnceLock<()>,
}

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Runtime::new().expect("no threads for the tests' runtime"));
static BESIDE: Shared = Shared::new("e2e");
static APART: Shared = Shared::new("e2e-apart");

/// Runs a test beside others.
pub(crate) fn beside_others(test: impl AsyncFnOnce(&'static Plane)) {
    RUNTIME.block_on(async {
        let _turn = BESIDE.turns.acquire().await;
        test(BESIDE.plane().await).await;
    });
}

/// Runs a test on a plane that no other uses meanwhile.
pub(crate) fn alone(test: impl AsyncFnOnce(&'static Plane)) {
    RUNTIME.block_on(async {
        let (shared, _turns) = empty(&[&APART, &BESIDE]).await;
        test(shared.plane().await).await;
    });
}

/// Runs a test while no other runs anywhere: it measures.
pub(crate) fn quiet(test: impl AsyncFnOnce(&'static Plane)) {
    RUNTIME.block_on(async {
        let _turns = loop {
            let all = |shared: &'static Shared| shared.turns.try_acquire_many(SIDE_BY_SIDE);
            if let (Ok(beside), Ok(apart)) = (all(&BESIDE), all(&APART)) {
                break (beside, apart);
            }
            tokio::time::sleep(LOOK).await;
        };
        test(APART.plane().await).await;
    });
}

/// Runs a test that brings its own plane, once the tests that live side by side are through: two cores
/// have no time for a start besides those.
pub(crate) fn without_plane(test: impl AsyncFnOnce() -> anyhow::Result<()>) {
    RUNTIME.block_on(async {
        let (_, _turns) = empty(&[&BESIDE]).await;
        if let Err(error) = test().await {
            panic!("{error:#}");
        }
    });
}

/// Waits until one of these planes is without tests: nobody there runs or waits any more. It looks, since
/// waiting in line for all turns would hold up whoever comes after it.
async fn empty(of: &[&'static Shared]) -> (&'static Shared, SemaphorePermit<'static>) {
    loop {
        for &shared in of {
            if let Ok(turns) = shared.turns.try_acquire_many(SIDE_BY_SIDE) {
                return (shared, turns);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl Shared {
    const fn new(folder: &'static str) -> Self {
        Self {
            folder,
            turns: Semaphore::const_new(SIDE_BY_SIDE as usize),
            plane: OnceCell::const_new(),
            kubelet: OnceLock::new(),
        }
    }

    async fn plane(&'static self) -> &'static Plane {
        let started = self.plane.get_or_init(async || {
            let spec = spec().map_err(|error| format!("{error:#}"))?;
            let plane = Plane::up(spec, &state_dir(self.folder)).await;
            let plane = plane.map_err(|error| format!("{error:#}"))?;
            let start = plane.muster.start(&plane.testbed, Part::All).await;
            start.map_err(|error| format!("{error:#}\n{}", plane.log_end(Part::All, 40)))?;
            Ok(plane)
        });
        match started.await {
            Ok(plane) => {
                self.kubelet
                    .get_or_init(|| drop(tokio::spawn(revive_for_ever(plane))));
                plane
            }
            Err(error) => panic!("the plane did not start: {error}"),
        }
    }
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
    pub(crate) async fn up(spec: Spec, dir: &Path) -> anyhow::Result<Self> {
        let program = muster::program()?;
        let tools = tools::ensure(&Toolset::ALL, &|line| eprintln!("{line}"))?;
        let testbed = Testbed::up(spec, dir, &tools, &|line| eprintln!("{line}")).await?;
        let muster = Muster::install(&testbed, program, &FLAGS).await?;
        let karmada = Objects::new(testbed.karmada().client().await?);
        if !testbed.spec().member_crds.is_empty() {
            let dashboard = kuberay::dashboard().await?;
            for member in testbed.members() {
                training_operator::start(&testbed, &tools, &member.name)?;
                mpi_operator::start(&testbed, &tools, &member.name)?;
                testbed.start_jobset(&member.name).await?;
                kuberay::start(&testbed, &tools, &member.name, dashboard)?;
            }
        }
        let pods = Pods::default();
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
        })
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

    /// The audit log of the control plane's API server.
    pub(crate) fn audit_log(&self) -> anyhow::Result<&Log> {
        self.audit.as_ref().context("the plane has no audit log")
    }

    /// The last lines of a process's log.
    pub(crate) fn log_end(&self, part: Part, lines: usize) -> String {
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

/// Members without GPUs: each test adds nodes of a class of its own.
fn spec() -> anyhow::Result<Spec> {
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
    Ok(Spec {
        karmada: KarmadaSpec {
            audit_log: true,
            controller_manager_flags: LIMITS.map(str::to_owned).into(),
            ..KarmadaSpec::default()
        },
        members: MEMBERS.map(member).into(),
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
