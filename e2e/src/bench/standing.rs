//! A full queue with half of its jobs running and half pending: what Muster does at rest, how fast
//! it uses capacity that becomes free, and how it recovers after a kill.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;

use super::QUIET;
use super::cost::{self, CpuCost, Memory, Moment};
use super::ledger::BindingId;
use super::load::{Batch, MemberPod, binding_name};
use super::plane::BenchPlane;
use super::report::{Milliseconds, milliseconds, round};
use super::seen::ChangeCounts;
use crate::harness::muster::ProcessRole;

/// The timeout for a job to end, and for the next to be admitted.
const TURN: Duration = Duration::from_secs(60);
/// The time in which no second job may follow a job that ended.
const A_WHILE: Duration = Duration::from_secs(5);

/// The queue, its jobs, and which of them run.
pub(super) struct StandingBatch {
    batch: Batch,
    /// The quota of the queue, which is also its usage.
    capability: usize,
    /// Running jobs by name, with their pods.
    running: VecDeque<(String, MemberPod)>,
}

/// The numbers at rest.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AtRest {
    pub(super) seconds: f64,
    pub(super) running: usize,
    pub(super) waiting: usize,
    /// Changes of objects by any writer.
    pub(super) changes: ChangeCounts,
    /// All writes of the API server, by kind.
    pub(super) writes: BTreeMap<String, f64>,
    pub(super) muster_cpu_seconds: f64,
    pub(super) muster_memory: Memory,
}

/// The time from free capacity to the next job.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reaction {
    pub(super) times: usize,
    /// Time from the first sign of an end, on a Work or a binding, to the next job's placement.
    pub(super) from_first_sign: Milliseconds,
    /// Time from the binding's status; zero if the placement came before it.
    pub(super) from_binding_status: Milliseconds,
    /// Time from the end of the pod in its member, which includes the delays of Kubernetes and
    /// Karmada.
    pub(super) from_pod: Milliseconds,
    pub(super) cost: CpuCost,
}

/// The numbers of a restart while capacity for one job is free.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Restart {
    pub(super) bindings: usize,
    pub(super) ready_after_ms: f64,
    pub(super) first_decision_after_ms: f64,
    /// Jobs admitted; one of them fits.
    pub(super) admitted: usize,
    /// The most GPUs charged since the queue was filled.
    pub(super) peak_gpus: u64,
    pub(super) capability: usize,
    pub(super) no_bound_passed: bool,
    /// All writes of the API server until Muster was at rest.
    pub(super) writes: BTreeMap<String, f64>,
    pub(super) muster_cpu_seconds: f64,
    pub(super) muster_memory: Memory,
}

/// How Muster's process ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProcessEnd {
    /// `kill -9`: its Lease must expire.
    Killed,
    /// SIGTERM: it releases its Lease.
    Asked,
}

impl StandingBatch {
    /// Starts with a queue that is full of `running` running jobs, and submits as many again, which
    /// stay pending.
    pub(super) async fn of(
        plane: &BenchPlane,
        batch: Batch,
        running: usize,
    ) -> anyhow::Result<Self> {
        batch.submit(plane, running..2 * running).await?;
        plane
            .all(&batch.name, 2 * running, "gated", |sighting| sighting.gated)
            .await?;
        let begin = Instant::now();
        let pods = loop {
            let pods = batch.pods(plane).await?;
            if pods.len() >= running {
                break pods;
            }
            ensure!(
                begin.elapsed() < TURN,
                "{} of {running} pods run",
                pods.len()
            );
            tokio::time::sleep(QUIET / 10).await;
        };
        plane.rest(QUIET).await?;
        Ok(Self {
            batch,
            capability: running,
            running: pods.into_iter().collect(),
        })
    }

    /// Measures a period without any change of the load.
    pub(super) async fn rest(&self, plane: &BenchPlane, time: Duration) -> anyhow::Result<AtRest> {
        plane.rest(QUIET).await?;
        let (moment, changes) = (Moment::now(&plane.testbed), plane.seen.lock().changes());
        let written = plane.api_writes().await?;
        tokio::time::sleep(time).await;
        let cost = moment.cost(&plane.testbed);
        let now = plane.seen.lock().changes();
        let waiting = plane
            .seen
            .lock()
            .of(&self.batch.name)
            .filter(|(_, sighting)| sighting.admitted.is_none())
            .count();
        Ok(AtRest {
            seconds: round(time.as_secs_f64()),
            running: self.running.len(),
            waiting,
            changes: ChangeCounts {
                bindings: now.bindings - changes.bindings,
                pod_groups: now.pod_groups - changes.pod_groups,
                works: now.works - changes.works,
            },
            writes: plane.api_writes().await?.since(&written),
            muster_cpu_seconds: round(cost.of(ProcessRole::All.process())),
            muster_memory: cost::memory(&plane.testbed, ProcessRole::All.process()),
        })
    }

    /// Ends jobs one after another, and waits after each for the next admission.
    pub(super) async fn react(
        &mut self,
        plane: &BenchPlane,
        times: usize,
    ) -> anyhow::Result<Reaction> {
        let moment = Moment::now(&plane.testbed);
        let (mut first_sign, mut status, mut pod) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..times {
            let turn = self.turn(plane).await?;
            first_sign.push(turn.next.saturating_duration_since(turn.first_sign));
            status.push(turn.next.saturating_duration_since(turn.status));
            pod.push(turn.next.saturating_duration_since(turn.pod));
        }
        Ok(Reaction {
            times,
            from_first_sign: Milliseconds::of(first_sign),
            from_binding_status: Milliseconds::of(status),
            from_pod: Milliseconds::of(pod),
            cost: moment.cost(&plane.testbed),
        })
    }

    /// Ends Muster, then a job, and starts Muster again.
    pub(super) async fn restart(
        &mut self,
        plane: &BenchPlane,
        end: ProcessEnd,
    ) -> anyhow::Result<Restart> {
        match end {
            ProcessEnd::Killed => plane.testbed.kill(ProcessRole::All.process())?,
            ProcessEnd::Asked => plane.muster.stop(&plane.testbed, ProcessRole::All).await?,
        }
        let ended = self.finish_one(plane).await?;
        self.until(plane, "ended", |this| {
            this.sighting(plane, &ended)
                .and_then(|sighting| sighting.ended)
        })
        .await?;
        let admitted_before = self.admitted(plane).len();
        let written = plane.api_writes().await?;
        let (moment, start) = (Moment::now(&plane.testbed), Instant::now());
        plane
            .muster
            .launch(&plane.testbed, ProcessRole::All)
            .await?;
        plane
            .muster
            .wait_ready(&plane.testbed, ProcessRole::All)
            .await?;
        let ready = start.elapsed();
        let next = self
            .until(plane, "admitted after a restart", |this| {
                this.admitted(plane).get(admitted_before).copied()
            })
            .await?;
        tokio::time::sleep(A_WHILE).await;
        plane.rest(QUIET).await?;
        let (bindings, peak) = {
            let seen = plane.seen.lock();
            (
                seen.of(&self.batch.name).count(),
                seen.ledger.peak(&self.batch.name),
            )
        };
        Ok(Restart {
            bindings,
            ready_after_ms: milliseconds(ready),
            first_decision_after_ms: milliseconds(next.saturating_duration_since(start)),
            admitted: self.admitted(plane).len() - admitted_before,
            peak_gpus: peak,
            capability: self.capability,
            no_bound_passed: usize::try_from(peak)? <= self.capability,
            writes: plane.api_writes().await?.since(&written),
            muster_cpu_seconds: round(moment.cost(&plane.testbed).of(ProcessRole::All.process())),
            muster_memory: cost::memory(&plane.testbed, ProcessRole::All.process()),
        })
    }

    async fn turn(&mut self, plane: &BenchPlane) -> anyhow::Result<Turnover> {
        let admitted_before = self.admitted(plane).len();
        let pod = Instant::now();
        let ended = self.finish_one(plane).await?;
        let next = self
            .until(plane, "admitted in its place", |this| {
                this.admitted(plane).get(admitted_before).copied()
            })
            .await?;
        // The status may come after the placement if the Work showed the end earlier.
        let status = self
            .until(plane, "ended", |this| {
                this.sighting(plane, &ended)
                    .and_then(|sighting| sighting.ended)
            })
            .await?;
        let work = self
            .sighting(plane, &ended)
            .and_then(|sighting| sighting.ended_in_work);
        Ok(Turnover {
            pod,
            first_sign: work.map_or(status, |work| work.min(status)),
            status,
            next,
        })
    }

    async fn finish_one(&mut self, plane: &BenchPlane) -> anyhow::Result<BindingId> {
        let (job, pod) = self
            .running
            .pop_front()
            .context("no job of the queue runs")?;
        self.batch.finish(plane, &pod).await?;
        Ok((self.batch.name.clone(), binding_name(&job)))
    }

    /// Returns the times of admission, in order.
    fn admitted(&self, plane: &BenchPlane) -> Vec<Instant> {
        let seen = plane.seen.lock();
        let mut times: Vec<Instant> = seen
            .of(&self.batch.name)
            .filter_map(|(_, sighting)| sighting.admitted)
            .collect();
        times.sort_unstable();
        times
    }

    fn sighting(&self, plane: &BenchPlane, id: &BindingId) -> Option<super::seen::BindingSighting> {
        plane.seen.lock().get(id).copied()
    }

    async fn until(
        &self,
        plane: &BenchPlane,
        what: &str,
        look: impl Fn(&Self) -> Option<Instant>,
    ) -> anyhow::Result<Instant> {
        let start = Instant::now();
        loop {
            if let Some(at) = look(self) {
                return Ok(at);
            }
            if start.elapsed() > TURN {
                let quiet = plane.seen.lock().quiet_for();
                bail!(
                    "no job of {} {what} within {TURN:?}; nothing changed for {quiet:?}",
                    self.batch.name
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

struct Turnover {
    pod: Instant,
    first_sign: Instant,
    status: Instant,
    next: Instant,
}
