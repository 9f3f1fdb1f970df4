//! Two replicas, of which the leader is stopped (SIGSTOP) during admissions, for longer than its
//! Lease lasts. The other replica leads. Then the first continues, and its pending writes arrive.
//! No quota is exceeded, and every job succeeds.

use std::time::{Duration, Instant};

use e2e::harness::muster::{ProcessRole, metric};
use e2e::harness::wait::eventually;

use crate::case::Case;
use crate::plane::Plane;
use crate::race::{CAPABILITY, all_done, crowd_nodes, member_of_crowd};

/// The replicas that compete for the Lease.
const REPLICAS: [ProcessRole; 2] = [ProcessRole::AllUnregistered, ProcessRole::Second];
/// Jobs that are submitted in each round.
const JOBS_A_ROUND: u32 = 80;
/// The timeout until another replica leads: the Lease lasts 15 s.
const LEADS: Duration = Duration::from_secs(20);

/// A pseudo-random sequence (splitmix64), which gives the same moments in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// Stops the leader `rounds` times, each time during admissions.
pub(crate) async fn leaders_stopped(case: &Case, rounds: u64) -> anyhow::Result<()> {
    let plane = case.plane;
    crowd_nodes(case).await?;
    plane.muster.stop(&plane.testbed, ProcessRole::All).await?;
    plane
        .muster
        .start(&plane.testbed, ProcessRole::Webhook)
        .await?;
    plane.muster.start(&plane.testbed, REPLICAS[0]).await?;
    plane.muster.launch(&plane.testbed, REPLICAS[1]).await?;
    plane.muster.wait_ready(&plane.testbed, REPLICAS[1]).await?;
    let simulated = play(case, rounds).await;
    for part in REPLICAS {
        // A failure may have left a replica stopped.
        plane.testbed.resume(part.process())?;
        plane.muster.stop(&plane.testbed, part).await?;
    }
    plane
        .muster
        .stop(&plane.testbed, ProcessRole::Webhook)
        .await?;
    plane.muster.start(&plane.testbed, ProcessRole::All).await?;
    simulated
}

async fn play(case: &Case, rounds: u64) -> anyhow::Result<()> {
    let plane = case.plane;
    let mut random = Random::new(17);
    let mut jobs = Vec::new();
    for round in 0..rounds {
        // There are enough jobs for admissions to happen all the time.
        let from = u32::try_from(jobs.len())?;
        let until = (u32::try_from(round)? + 1) * JOBS_A_ROUND / 5;
        for index in from..until {
            jobs.push(case.submit(&member_of_crowd(case, index)).await?);
        }
        let old = leader(plane).await?;
        tokio::time::sleep(random.millis(0, 1_500)).await;
        plane.testbed.pause(old.process())?;
        let stopped = Instant::now();
        let new = REPLICAS[usize::from(old == REPLICAS[0])];
        eventually(
            LEADS,
            &format!("{} leads", new.process()),
            async || match leads(plane, new).await {
                true => Ok(()),
                false => Err("not yet".to_owned()),
            },
        )
        .await?;
        println!(
            "MEASURED leads_after_stop {} ms",
            stopped.elapsed().as_millis()
        );
        tokio::time::sleep(random.millis(1_000, 15_000)).await;
        plane.testbed.resume(old.process())?;
        tokio::time::sleep(random.millis(0, 2_000)).await;
        let report = case.audit(CAPABILITY.into(), &jobs)?;
        assert_eq!(report.violations, Vec::<String>::new(), "round {round}");
    }
    all_done(case, &jobs).await?;
    let report = case.audit(CAPABILITY.into(), &jobs)?;
    assert_eq!(report.violations, Vec::<String>::new());
    println!(
        "MEASURED rounds_within_the_bound {rounds} of {rounds}, {} jobs",
        jobs.len()
    );
    Ok(())
}

async fn leads(plane: &Plane, part: ProcessRole) -> bool {
    let metrics = plane.muster.metrics(&plane.testbed, part).await;
    metrics.is_ok_and(|metrics| metric(&metrics, "muster_leading") == Some(1.0))
}

async fn leader(plane: &Plane) -> anyhow::Result<ProcessRole> {
    eventually(LEADS, "one of two leads", async || {
        for part in REPLICAS {
            if leads(plane, part).await {
                return Ok(part);
            }
        }
        Err("none does".to_owned())
    })
    .await
}
