//! Checks the replay by the audit log and by the observed pods.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::plane::DemoPlane;
use super::replay::TraceReplay;
use super::summary::{Bound, DemoSummary};
use super::tenants::{self, DemoTenant};
use super::world::JobId;
use super::{examples, fleet};
use crate::harness::audit::{AuditSubject, Log};

/// Prints the summary and returns true if every job finished and no quota was exceeded.
///
/// # Errors
/// Returns an error if the audit log or a job cannot be read.
pub(super) async fn reach(plane: &DemoPlane, replay: &TraceReplay, took: Duration) -> Result<bool> {
    let bounds = bounds(&replay.tenants);
    let log = plane
        .testbed
        .audit_log()
        .context("the testbed keeps no audit log")?;
    let report = subject(plane, &bounds).await?.audit(&Log::new(&log))?;
    println!("AUDIT demo: {report}");
    let world = plane.world.lock();
    Ok(verify(&DemoSummary {
        world: &world,
        report: &report,
        bounds: &bounds,
        pace: replay.pace,
        took,
    }))
}

/// Returns the quotas to verify: every queue's capability, and the example's quota of one class of
/// GPUs, which is in one cluster here.
fn bounds(tenants: &[DemoTenant]) -> Vec<Bound> {
    let bound = |queue: &str, cluster, gpus| Bound {
        queue: queue.to_owned(),
        cluster,
        gpus,
    };
    let tenants = tenants
        .iter()
        .map(|tenant| bound(&tenant.name, None, tenant.capability.into()));
    let team = [
        bound(examples::TEAM, None, examples::CAPABILITY),
        bound(
            examples::TEAM,
            Some(fleet::H100S),
            examples::H100_CAPABILITY,
        ),
    ];
    tenants.chain(team).collect()
}

/// Returns the subject of the audit: every job as the API server has it, with the queue that it or
/// its namespace names.
async fn subject(plane: &DemoPlane, bounds: &[Bound]) -> Result<AuditSubject> {
    let jobs: Vec<(JobId, String)> = plane
        .world
        .lock()
        .jobs()
        .map(|(id, job)| (id.clone(), job.queue.clone()))
        .collect();
    let mut subject = AuditSubject::default();
    for ((namespace, name), queue) in jobs {
        let example = examples::JOBS
            .iter()
            .find(|example| namespace == examples::TEAM && example.name == name);
        let kinds = example.map_or(&tenants::KINDS[..], |example| {
            std::slice::from_ref(&example.kind)
        });
        for &kind in kinds {
            if let Some(mut template) = plane.karmada.get(kind, Some(&namespace), &name).await? {
                template["metadata"]["labels"]["muster.io/queue"] = queue.clone().into();
                subject.job(&template)?;
            }
        }
    }
    for bound in bounds.iter().filter(|bound| bound.cluster.is_none()) {
        subject.capability(&bound.queue, bound.gpus);
    }
    Ok(subject)
}

fn verify(summary: &DemoSummary<'_>) -> bool {
    println!("\n{}", summary.render());
    let faults = summary.faults();
    match faults.as_slice() {
        [] => println!("Every job finished, and no queue exceeded its quota."),
        faults => println!("Not as it should be:\n  {}", faults.join("\n  ")),
    }
    faults.is_empty()
}
