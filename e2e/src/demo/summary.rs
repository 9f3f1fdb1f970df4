//! The summary at the end of the demo: jobs, waits, and whether every queue stayed within its
//! quota.

use std::fmt;
use std::time::Duration;

use super::screen::plain;
use super::trace::Pace;
use super::world::{DemoJob, JobId, Stage, World};
use crate::harness::audit::AuditReport;
use crate::harness::percentile::percentile;

/// The quota of a queue in GPUs, in one cluster or in all clusters together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) queue: String,
    pub(super) cluster: Option<&'static str>,
    pub(super) gpus: u64,
}

/// The findings of a run.
pub(super) struct DemoSummary<'a> {
    pub(super) world: &'a World,
    pub(super) report: &'a AuditReport,
    pub(super) bounds: &'a [Bound],
    pub(super) pace: Pace,
    /// The duration of the replay.
    pub(super) took: Duration,
}

impl DemoSummary<'_> {
    /// Returns every deviation, in words; a clean run has none.
    pub(super) fn faults(&self) -> Vec<String> {
        let unfinished = self
            .world
            .jobs()
            .filter(|(_, job)| job.stage() != Stage::Succeeded);
        let unfinished = unfinished.map(|((namespace, name), job)| {
            format!(
                "{namespace}/{name} ({} pods, {} GPUs) ended as {:?}",
                job.pods,
                job.gpus,
                job.stage()
            )
        });
        let passed = self.bounds.iter().filter_map(|bound| {
            let peak = self.world.peak(&bound.queue, bound.cluster);
            (peak > bound.gpus)
                .then(|| format!("the pods of {bound} held {peak} of {} GPUs", bound.gpus))
        });
        let (placed, done) = (self.report.placements.len(), self.done());
        let unseen = (placed < done).then(|| {
            format!("the audit log shows placements of {placed} jobs, and {done} are done")
        });
        unfinished
            .chain(passed)
            .chain(unseen)
            .chain(self.report.violations.iter().cloned())
            .collect()
    }

    fn done(&self) -> usize {
        let done = |(_, job): &(&JobId, &DemoJob)| job.stage() == Stage::Succeeded;
        self.world.jobs().filter(done).count()
    }

    /// Formats the whole summary.
    pub(super) fn render(&self) -> String {
        let jobs: Vec<&DemoJob> = self.world.jobs().map(|(_, job)| job).collect();
        let done = self.done();
        let recorded = self.pace.recorded(self.took).as_secs_f64() / 3600.0;
        let mut text = format!(
            "{done} of {} jobs done in {:.0} s; at {:.0} recorded seconds a second that is {recorded:.1} h of the trace\n\n",
            jobs.len(),
            self.took.as_secs_f64(),
            self.pace.factor,
        );
        let mut waits = plain(&["WAIT", "P50", "P99", "P50 IN THE TRACE'S TIME", "P99"]);
        for (what, waited) in [
            ("until admitted", until_admitted as fn(&DemoJob) -> _),
            ("until all pods run", until_running),
        ] {
            let mut times: Vec<Duration> = jobs.iter().copied().filter_map(waited).collect();
            let [p50, p99] = middle_and_tail(&mut times);
            waits.add_row([
                what.to_owned(),
                seconds(p50),
                seconds(p99),
                minutes(self.pace.recorded(p50)),
                minutes(self.pace.recorded(p99)),
            ]);
        }
        text += &format!("{waits}\n\n{}\n", self.queues());
        text
    }

    /// Formats the peaks by two sources: the audit log of bindings, and the pods in the members.
    fn queues(&self) -> String {
        let mut table = plain(&[
            "QUEUE",
            "QUOTA",
            "PEAK BY AUDIT LOG",
            "PEAK BY PODS",
            "JOBS",
            "WAIT P50",
            "P99",
        ]);
        for bound in self.bounds {
            let inside = |job: &&DemoJob| job.queue == bound.queue && bound.cluster.is_none();
            let jobs: Vec<&DemoJob> = self
                .world
                .jobs()
                .map(|(_, job)| job)
                .filter(inside)
                .collect();
            let mut waits: Vec<Duration> =
                jobs.iter().copied().filter_map(until_admitted).collect();
            let [p50, p99] = middle_and_tail(&mut waits);
            let whole = |value: String| {
                if bound.cluster.is_none() {
                    value
                } else {
                    String::new()
                }
            };
            let audited = self.report.peak(&bound.queue);
            table.add_row([
                bound.to_string(),
                bound.gpus.to_string(),
                whole(audited.to_string()),
                self.world.peak(&bound.queue, bound.cluster).to_string(),
                whole(jobs.len().to_string()),
                whole(seconds(p50)),
                whole(seconds(p99)),
            ]);
        }
        table.to_string()
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cluster {
            None => f.write_str(&self.queue),
            Some(cluster) => write!(f, "{} in {cluster}", self.queue),
        }
    }
}

fn until_admitted(job: &DemoJob) -> Option<Duration> {
    Duration::try_from(job.admitted?.duration_since(job.submitted)).ok()
}

fn until_running(job: &DemoJob) -> Option<Duration> {
    Duration::try_from(job.ran?.duration_since(job.submitted)).ok()
}

/// Returns the median and the 99th percentile; zero for an empty list.
fn middle_and_tail(times: &mut [Duration]) -> [Duration; 2] {
    times.sort_unstable();
    [50, 99].map(|percent| percentile(times, percent).unwrap_or_default())
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn minutes(time: Duration) -> String {
    format!("{:.1} min", time.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::super::world::tests::job;
    use super::*;

    #[test]
    fn what_did_not_finish_or_passed_a_bound_is_a_fault() {
        let mut world = World::default();
        world.submit(("vc-a".into(), "x".into()), job("vc-a", 1, 8));
        let mut report = AuditReport::default();
        report.violations.push("too much".into());
        let summary = DemoSummary {
            world: &world,
            report: &report,
            bounds: &[Bound {
                queue: "vc-a".into(),
                cluster: None,
                gpus: 8,
            }],
            pace: Pace {
                factor: 2.0,
                longest: Duration::ZERO,
            },
            took: Duration::from_secs(1),
        };
        assert_eq!(
            summary.faults(),
            ["vc-a/x (1 pods, 8 GPUs) ended as Queued", "too much"]
        );
    }
}
