//! The simulated members: which jobs run where, their progress and their ends.
//!
//! An admitted job runs at once with the pods of its admission, and ends when its work is done.
//! With fewer pods it takes longer in proportion. An evicted job loses its progress since its last
//! checkpoint, and so does one that a fault stops; its next start may have a cost.

use crate::scenario::SimJob;
use engine::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// All jobs, by their index in the scenario.
#[derive(Debug)]
pub(crate) struct SimulatedMembers {
    jobs: Vec<JobProgress>,
    ends: BinaryHeap<Reverse<(Time, usize, u32)>>,
}

/// The progress of a job.
#[derive(Debug, Clone, Default)]
struct JobProgress {
    /// The total work, in milliseconds × pods.
    total: i128,
    /// The work that earlier attempts saved.
    saved: i128,
    running: Option<Running>,
    /// The version of the job's end: an end that was computed before a change is obsolete.
    version: u32,
}

#[derive(Debug, Clone)]
struct Running {
    /// When it began to do new work.
    since: Time,
    /// The time up to which `done` is counted.
    counted_to: Time,
    pods: u32,
    /// When a fault stopped it, if one did.
    stalled_at: Option<Time>,
    /// The work of this attempt, in milliseconds × pods.
    done: i128,
}

/// The work that an evicted job lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Work to be repeated, in milliseconds × pods.
    pub(crate) pod_ms: i128,
    /// What was left of the time in which it started again, in milliseconds.
    pub(crate) restart_ms: i64,
}

impl Lost {
    /// Nothing.
    pub(crate) const NONE: Self = Self {
        pod_ms: 0,
        restart_ms: 0,
    };
}

impl SimulatedMembers {
    pub(crate) fn new(jobs: &[SimJob]) -> Self {
        let work = jobs.iter().map(|job| JobProgress {
            total: i128::from(job.run_ms) * i128::from(job.fact.demand.pods().max(1)),
            ..JobProgress::default()
        });
        Self {
            jobs: work.collect(),
            ends: BinaryHeap::new(),
        }
    }

    /// Starts a job with these pods, or resizes it to them. If it starts, its first `restart_ms` do no
    /// new work.
    pub(crate) fn run(&mut self, job: usize, pods: u32, restart_ms: i64, now: Time) {
        let work = &mut self.jobs[job];
        let running = work.running.get_or_insert(Running::begin(restart_ms, now));
        if running.stalled_at.is_some() {
            return;
        }
        running.count(now);
        running.pods = pods;
        let (left, from) = (work.total - work.saved - running.done, running.counted_to);
        work.version += 1;
        if pods > 0 {
            let pods = i128::from(pods);
            let millis = i64::try_from((left.max(0) + pods - 1) / pods).unwrap_or(i64::MAX);
            self.ends
                .push(Reverse((from.after(millis), job, work.version)));
        }
    }

    /// A fault stops a job. It keeps its pods and does no work.
    pub(crate) fn stall(&mut self, job: usize, now: Time) {
        let work = &mut self.jobs[job];
        work.version += 1;
        if let Some(running) = &mut work.running {
            running.count(now);
            running.stalled_at.get_or_insert(now);
        }
    }

    /// Stops a job and starts it at once with these pods, from its last checkpoint.
    pub(crate) fn restart(
        &mut self,
        job: usize,
        checkpoint_ms: Option<i64>,
        restart_ms: i64,
        pods: u32,
        now: Time,
    ) -> Lost {
        let lost = self.stop(job, checkpoint_ms, now);
        self.run(job, pods, restart_ms, now);
        lost
    }

    /// Stops a job before its end.
    pub(crate) fn stop(&mut self, job: usize, checkpoint_ms: Option<i64>, now: Time) -> Lost {
        let work = &mut self.jobs[job];
        work.version += 1;
        let Some(mut running) = work.running.take() else {
            return Lost::NONE;
        };
        running.count(now);
        let stopped = running.stalled_at.unwrap_or(now);
        let elapsed = stopped.millis_since(running.since);
        let saved = match checkpoint_ms {
            Some(every) if elapsed > 0 => {
                let at = elapsed - elapsed % every;
                running.done * i128::from(at) / i128::from(elapsed)
            }
            _ => 0,
        };
        work.saved += saved;
        Lost {
            pod_ms: running.done - saved,
            restart_ms: running.since.millis_since(stopped),
        }
    }

    /// Returns when the next job ends.
    pub(crate) fn next_end(&mut self) -> Option<Time> {
        loop {
            let Reverse((at, job, version)) = *self.ends.peek()?;
            if self.jobs[job].version == version {
                return Some(at);
            }
            self.ends.pop();
        }
    }

    /// Removes and returns the next job that has ended by `now`.
    pub(crate) fn take_ended(&mut self, now: Time) -> Option<usize> {
        if self.next_end()? > now {
            return None;
        }
        let Reverse((_, job, _)) = self.ends.pop()?;
        self.jobs[job].running = None;
        self.jobs[job].version += 1;
        Some(job)
    }
}

impl Running {
    /// An attempt that does no new work in its first `restart_ms`.
    fn begin(restart_ms: i64, now: Time) -> Self {
        let since = now.after(restart_ms);
        Self {
            since,
            counted_to: since,
            pods: 0,
            stalled_at: None,
            done: 0,
        }
    }

    fn count(&mut self, now: Time) {
        if self.stalled_at.is_none() && now > self.counted_to {
            self.done += i128::from(now.millis_since(self.counted_to)) * i128::from(self.pods);
            self.counted_to = now;
        }
    }
}
