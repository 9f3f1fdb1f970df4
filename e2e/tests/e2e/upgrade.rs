//! Upgrade and roll-back over jobs that run, run in parts, wait and are being evicted. A change of version moves none
//! of them. The binary of a commit with the same API and the current one alternate; from a version with an earlier API
//! there is only the upgrade, which converts its objects.

use std::path::Path;

use anyhow::ensure;
use e2e::harness::earlier;
use e2e::harness::kinds::{CAPACITY_POLICY, ObjectKind, PROPAGATION_POLICY};
use e2e::harness::muster::{Muster, ProcessRole};
use e2e::harness::objects::Objects;
use e2e::harness::wait::{eventually, never_within};
use serde_json::json;

use crate::case::{A_WHILE, Case, SOON};
use crate::contest::{HeldWorks, SHORT};
use crate::job::{Job, clusters, record};
use crate::split::{no_pods, pods_of, training};

/// The quota of the queue in GPUs: the sum of all jobs except the one that waits.
const BOUND: u32 = 26;

/// The number of changes of version.
const TURNS: u32 = 4;

/// The version that leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leads {
    /// The earlier version.
    First,
    /// The current version.
    Now,
}

impl Leads {
    fn other(self) -> Self {
        match self {
            Self::First => Self::Now,
            Self::Now => Self::First,
        }
    }
}

/// Both versions, of which one runs at a time.
pub(crate) struct Versions<'a> {
    pub(crate) case: &'a Case,
    pub(crate) first: Muster,
}

impl Versions<'_> {
    fn of(&self, which: Leads) -> (&Muster, ProcessRole) {
        match which {
            Leads::First => (&self.first, ProcessRole::Earlier),
            Leads::Now => (&self.case.plane.muster, ProcessRole::All),
        }
    }

    /// Stops one version and starts the other, which then leads.
    pub(crate) async fn replace(&self, by: Leads) -> anyhow::Result<()> {
        let testbed = &self.case.plane.testbed;
        let (old, old_part) = self.of(by.other());
        let (new, new_part) = self.of(by);
        old.stop(testbed, old_part).await?;
        new.start(testbed, new_part).await
    }
}

/// The jobs of the story.
struct Jobs {
    runs: Job,
    in_parts: Job,
    ends: Job,
    waits: Job,
    /// Works of the job that is being evicted, which remain as in a slow member.
    held: HeldWorks,
}

impl Jobs {
    /// Submits all jobs to the version that leads, and waits until each has the state that its name
    /// says.
    async fn submit(case: &Case) -> anyhow::Result<Self> {
        case.queue(BOUND).await?;
        case.nodes("member1", 2).await?;
        case.nodes("member2", 2).await?;
        let runs = case.submit(&case.gang("runs", 2, 2).volcano()).await?;
        case.running(&runs).await?;
        let ends = case.submit(&case.gang("ends", 2, 2).batch()).await?;
        case.running(&ends).await?;
        // The gang is nine pods of two GPUs, over the capacity that each member has left of
        // sixteen.
        let in_parts = case.submit(&training(case, "parts", 8)).await?;
        case.running(&in_parts).await?;
        let waits = case.submit(&case.gang("waits", 4, 2).volcano()).await?;
        case.waits(&waits, &SHORT).await?;

        let held = case.hold_works([&ends]).await?;
        let suspend = json!({"spec": {"suspend": true}});
        case.karmada()
            .merge(ends.kind, Some(&case.name), &ends.name, &suspend)
            .await?;
        case.binding_when(&ends, "ends", |binding| {
            record(binding)["state"] == "Ending"
        })
        .await?;
        no_pods(case, &ends).await?;
        Ok(Self {
            runs,
            in_parts,
            ends,
            waits,
            held,
        })
    }

    fn all(&self) -> [&Job; 4] {
        [&self.runs, &self.in_parts, &self.ends, &self.waits]
    }

    /// Returns the state of all jobs: attempts, states, gates, placements, and the pods that run.
    async fn stand(&self, case: &Case) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        for job in self.all() {
            let binding = case.binding(job).await?.unwrap_or_default();
            let record = record(&binding);
            let pods = pods_of(case, job)
                .await
                .map_err(|error| error.to_string())?;
            let pods = pods.values().flatten();
            let mut uids: Vec<String> =
                pods.map(|pod| pod["metadata"]["uid"].to_string()).collect();
            uids.sort();
            lines.push(format!(
                "{}: {} {} gated {} in {:?} with {uids:?}",
                job.name,
                record["attempt"],
                record["state"],
                binding["spec"]["suspension"]["scheduling"],
                clusters(&binding),
            ));
        }
        Ok(lines)
    }
}

/// Submits the jobs to one version, and changes versions until the other one leads last.
pub(crate) async fn back_and_forth(
    case: &Case,
    previous: &Path,
    begins: Leads,
) -> anyhow::Result<()> {
    let flags = &earlier::PREVIOUS_FLAGS;
    let first = case.plane.muster.earlier(previous.to_owned(), flags);
    let versions = Versions { case, first };
    let result = turns(&versions, begins).await;
    restore(&versions).await?;
    result
}

/// Submits the jobs to a version with an earlier API, and upgrades to the current one.
pub(crate) async fn with_conversion(case: &Case, first: &Path) -> anyhow::Result<()> {
    let flags = &earlier::FIRST_FLAGS;
    let first = case.plane.muster.earlier(first.to_owned(), flags);
    let versions = Versions { case, first };
    let result = converted(&versions).await;
    restore(&versions).await?;
    result
}

/// Restores the plane's own installation for later stories.
async fn restore(versions: &Versions<'_>) -> anyhow::Result<()> {
    let (plane, testbed) = (versions.case.plane, &versions.case.plane.testbed);
    versions.first.stop(testbed, ProcessRole::Earlier).await?;
    plane.muster.install_again(testbed, &[]).await?;
    plane.muster.start(testbed, ProcessRole::All).await
}

/// Installs only the earlier version, as on a control plane that never had another.
pub(crate) async fn install_first(versions: &Versions<'_>) -> anyhow::Result<()> {
    let (plane, testbed) = (versions.case.plane, &versions.case.plane.testbed);
    plane.muster.stop(testbed, ProcessRole::All).await?;
    plane.muster.uninstall(testbed, &["--delete-crds"]).await?;
    versions.first.install_again(testbed, &[]).await?;
    without_policies_in_force(versions.case).await
}

/// Stops the earlier version, installs the current one and starts it.
pub(crate) async fn upgrade(versions: &Versions<'_>) -> anyhow::Result<()> {
    let (plane, testbed) = (versions.case.plane, &versions.case.plane.testbed);
    let running = plane.muster.install_again(testbed, &[]).await;
    let refused = running.err().map(|error| format!("{error:#}"));
    ensure!(
        refused
            .as_ref()
            .is_some_and(|error| error.contains("still runs")),
        "objects were converted beside a process that does not know it: {refused:?}"
    );
    versions.first.stop(testbed, ProcessRole::Earlier).await?;
    plane.muster.install_again(testbed, &[]).await?;
    plane.muster.start(testbed, ProcessRole::All).await
}

/// CapacityPolicies as the earlier version has them.
const EARLIER_POLICY: ObjectKind = ObjectKind {
    version: "v1alpha1",
    ..CAPACITY_POLICY
};

async fn converted(versions: &Versions<'_>) -> anyhow::Result<()> {
    let case = versions.case;
    install_first(versions).await?;
    versions.replace(Leads::First).await?;
    let jobs = Jobs::submit(case).await?;
    let policy = json!({"spec": {
        "pools": [{"class": "no-such-gpu", "resources": {"nvidia.com/gpu": {"capability": 4}}}],
        "preemption": {"minRuntime": "90s"},
    }});
    let karmada = case.karmada();
    karmada
        .merge(EARLIER_POLICY, None, &case.name, &policy)
        .await?;
    let before = jobs.stand(case).await.map_err(anyhow::Error::msg)?;
    upgrade(versions).await?;
    let policy = karmada.get(CAPACITY_POLICY, None, &case.name).await?;
    let policy = policy.unwrap_or_default();
    let resources = json!([{"name": "nvidia.com/gpu", "capability": 4}]);
    ensure!(
        policy["spec"]["pools"][0]["resources"] == resources,
        "{policy}"
    );
    ensure!(
        policy["spec"]["preemption"]["minRuntimeSeconds"] == 90,
        "{policy}"
    );
    stands(case, &jobs, &before, Leads::Now).await?;
    finishes(case, jobs).await
}

/// Ensures that no job moves for a while.
async fn stands(case: &Case, jobs: &Jobs, before: &[String], leads: Leads) -> anyhow::Result<()> {
    never_within(A_WHILE, "a job that moves", async || {
        let stand = jobs.stand(case).await?;
        match stand == before {
            true => Ok(()),
            false => Err(format!("under {leads:?}: {stand:#?}, not {before:#?}")),
        }
    })
    .await?;
    case.shows_gpus(&case.name, "allocated", BOUND).await
}

/// The eviction goes on, and the job that waits takes the place of one that is deleted.
async fn finishes(case: &Case, jobs: Jobs) -> anyhow::Result<()> {
    case.lift(&jobs.held).await?;
    case.delete(&jobs.runs).await?;
    case.running(&jobs.waits).await?;
    let report = case.audit(u64::from(BOUND), jobs.all())?;
    ensure!(report.violations.is_empty(), "{report:#?}");
    Ok(())
}

/// Waits until the API server forgets the admission policies that the current version had installed. Until then
/// it refuses what the earlier version writes, whose roles do not pass them.
async fn without_policies_in_force(case: &Case) -> anyhow::Result<()> {
    let account = "system:serviceaccount:muster-system:muster";
    let client = case.plane.testbed.karmada().client_as(account, &[]).await?;
    let earlier = Objects::new(client);
    let policy = json!({
        "metadata": {"name": "muster", "namespace": case.name},
        "spec": {
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "schedulerName": "muster",
        },
    });
    eventually(
        SOON,
        "admission policies not in force",
        async || match earlier.could_create(PROPAGATION_POLICY, &policy).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map_err(|error| error.to_string()),
        },
    )
    .await
}

async fn turns(versions: &Versions<'_>, begins: Leads) -> anyhow::Result<()> {
    let case = versions.case;
    let testbed = &case.plane.testbed;
    if begins == Leads::First {
        install_first(versions).await?;
    }
    versions.replace(begins).await?;
    let jobs = Jobs::submit(case).await?;
    if begins == Leads::First {
        // This is the order of an upgrade: first the installation, while the earlier version still
        // leads.
        case.plane.muster.install_again(testbed, &[]).await?;
    }
    let before = jobs.stand(case).await.map_err(anyhow::Error::msg)?;
    let mut leads = begins;
    for _ in 0..TURNS {
        leads = leads.other();
        versions.replace(leads).await?;
        stands(case, &jobs, &before, leads).await?;
    }
    versions.replace(begins.other()).await?;
    finishes(case, jobs).await
}
