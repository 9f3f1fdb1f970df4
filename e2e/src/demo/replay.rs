//! The replay, which submits recorded jobs at their times and shows them until all have ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use parking_lot::Mutex;

use super::DemoOptions;
use super::plane::DemoPlane;
use super::screen::{Published, Screen};
use super::tenants::{self, DemoTenant, Submission};
use super::trace::{self, Pace, TraceJob};
use super::world::{DemoJob, Stage, World};
use crate::harness::kinds::{CAPACITY_POLICY, GPU_POOL, NAMESPACE, ObjectKind, QUEUE};
use crate::harness::objects::Objects;

/// The period of redrawing the screen.
const FRAME: Duration = Duration::from_millis(500);
/// The number of concurrent submissions.
const SUBMITTED_AT_ONCE: usize = 8;

/// A part of the trace, ready to be replayed.
pub(super) struct TraceReplay {
    jobs: Vec<TraceJob>,
    pub(super) pace: Pace,
    pub(super) tenants: Vec<DemoTenant>,
}

impl TraceReplay {
    /// Reads the trace and divides the fleet among its tenants.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub(super) fn prepare(options: &DemoOptions, fleet: u64) -> Result<Self> {
        let jobs = trace::read(
            &options.examples.join("traces/philly-150.csv"),
            options.jobs,
        )?;
        let pace = Pace::new(&jobs, options.arrivals, options.longest);
        let tenants = tenants::tenants(&jobs, pace, fleet);
        Ok(Self {
            jobs,
            pace,
            tenants,
        })
    }

    /// Returns the text that introduces the replay.
    pub(super) fn announcement(&self, fleet: u64) -> String {
        let gangs = self.jobs.iter().filter(|job| job.gpus > 8).count();
        format!(
            "Now {} consecutive jobs of Microsoft's Philly trace ({gangs} of them on several nodes), {:.0} recorded \
             seconds a second,\nno job longer than {} s. Its {} virtual clusters are queues with a quota of {} GPUs \
             together; the fleet has {fleet}.",
            self.jobs.len(),
            self.pace.factor,
            self.pace.longest.as_secs(),
            self.tenants.len(),
            self.tenants
                .iter()
                .map(|tenant| tenant.capability)
                .sum::<u32>(),
        )
    }

    /// Replays until all jobs have ended or the deadline has passed; returns the time it took.
    ///
    /// # Errors
    /// Returns an error if the API server refuses an object.
    pub(super) async fn run(&self, plane: &DemoPlane, deadline: Duration) -> Result<Duration> {
        for tenant in &self.tenants {
            plane
                .karmada
                .create(QUEUE, &tenant.queue())
                .await
                .context("create a queue")?;
            plane
                .karmada
                .create(NAMESPACE, &tenant.namespace())
                .await
                .context("create a namespace")?;
        }
        let started = Instant::now();
        let total = plane.world.lock().jobs().count() + self.jobs.len();
        let shown = async {
            show(plane, total, deadline).await;
            Ok(())
        };
        futures::try_join!(self.submit_all(plane), shown)?;
        Ok(started.elapsed())
    }

    async fn submit_all(&self, plane: &DemoPlane) -> Result<()> {
        let start = tokio::time::Instant::now();
        let submissions = self.jobs.iter().enumerate().map(|(index, job)| {
            let submission = tenants::submission(index, job, self.pace);
            async move {
                tokio::time::sleep_until(start + self.pace.submit_after(job)).await;
                submit(&plane.karmada, submission, &plane.world).await
            }
        });
        futures::stream::iter(submissions)
            .buffered(SUBMITTED_AT_ONCE)
            .try_collect()
            .await
    }
}

async fn submit(
    karmada: &Objects,
    submission: Submission,
    world: &Arc<Mutex<World>>,
) -> Result<()> {
    let job = DemoJob {
        queue: submission.tenant.clone(),
        pods: submission.pods,
        gpus: submission.gpus,
        submitted: Timestamp::now(),
        admitted: None,
        ran: None,
        ended: None,
    };
    world
        .lock()
        .submit((submission.tenant.clone(), submission.name.clone()), job);
    let created = karmada.create(submission.kind, &submission.object).await;
    created.with_context(|| format!("submit {}/{}", submission.tenant, submission.name))?;
    Ok(())
}

/// Updates the screen until all jobs have ended or the deadline has passed.
async fn show(plane: &DemoPlane, total: usize, deadline: Duration) {
    let mut screen = Screen::new();
    let end = Instant::now() + deadline;
    loop {
        // If the API server does not answer, this frame shows less.
        let list =
            async |kind: ObjectKind| plane.karmada.list(kind, None).await.unwrap_or_default();
        let published = Published {
            policies: list(CAPACITY_POLICY).await,
            pools: list(GPU_POOL).await,
        };
        {
            let world = plane.world.lock();
            screen.show(&world, &published, total);
            let ended = world
                .jobs()
                .filter(|(_, job)| job.stage() >= Stage::Succeeded)
                .count();
            if ended == total || Instant::now() > end {
                break;
            }
        }
        tokio::time::sleep(FRAME).await;
    }
    screen.end();
}
