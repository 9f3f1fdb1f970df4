//! The recorded jobs that are replayed, and how recorded time becomes the demo's.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::civil::DateTime;

/// A job as the trace has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TraceJob {
    /// Since the first job.
    pub(super) submitted_after: Duration,
    /// How long it ran.
    pub(super) ran: Duration,
    /// GPUs in all.
    pub(super) gpus: u32,
    /// Its virtual cluster.
    pub(super) tenant: String,
}

/// Reads the first `count` jobs of a file sorted by time.
///
/// # Errors
/// If it cannot be read; naming the line that is no job.
pub(super) fn read(path: &Path, count: usize) -> Result<Vec<TraceJob>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    parse(&text, count).with_context(|| format!("trace {}", path.display()))
}

fn parse(text: &str, count: usize) -> Result<Vec<TraceJob>> {
    let mut first = None;
    let lines = text.lines().enumerate().skip(1).take(count);
    let jobs = lines.map(|(index, line)| {
        let (submitted, job) =
            parse_line(line).with_context(|| format!("line {}: {line:?}", index + 1))?;
        let first = *first.get_or_insert(submitted);
        let submitted_after = Duration::try_from(submitted.duration_since(first))
            .with_context(|| format!("line {}: earlier than the first job", index + 1))?;
        Ok(TraceJob {
            submitted_after,
            ..job
        })
    });
    jobs.collect()
}

fn parse_line(line: &str) -> Result<(DateTime, TraceJob)> {
    let [submitted, seconds, gpus, _gpu_time, tenant] = line
        .split(',')
        .collect::<Vec<_>>()
        .try_into()
        .ok()
        .context("five fields are wanted")?;
    let job = TraceJob {
        submitted_after: Duration::ZERO,
        ran: Duration::try_from_secs_f64(seconds.parse()?)?,
        gpus: gpus.parse()?,
        tenant: tenant.to_owned(),
    };
    Ok((submitted.parse()?, job))
}

/// How fast time goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pace {
    /// Recorded seconds in one of the demo's.
    pub(super) factor: f64,
    /// The longest that a job runs here: the trace has jobs of days among jobs of minutes.
    pub(super) longest: Duration,
}

/// The shortest that a job runs here, so that it can be seen.
const SHORTEST: Duration = Duration::from_secs(2);

impl Pace {
    /// The pace at which all of `jobs` arrive within `arrivals`.
    pub(super) fn new(jobs: &[TraceJob], arrivals: Duration, longest: Duration) -> Self {
        let span = jobs
            .last()
            .map_or(Duration::ZERO, |job| job.submitted_after);
        Self {
            factor: (span.as_secs_f64() / arrivals.as_secs_f64()).max(1.0),
            longest,
        }
    }

    /// When a job is submitted, since the replay's start.
    pub(super) fn submit_after(self, job: &TraceJob) -> Duration {
        job.submitted_after.div_f64(self.factor)
    }

    /// How long its pods run.
    pub(super) fn run(self, job: &TraceJob) -> Duration {
        job.ran.div_f64(self.factor).clamp(SHORTEST, self.longest)
    }

    /// A time of the demo in the trace's.
    pub(super) fn recorded(self, real: Duration) -> Duration {
        real.mul_f64(self.factor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TRACE: &str = "timestamp,duration,num_gpus,gpu_time,cluster
2017-11-22 02:40:07,98647.0,1,98647.0,b436b2
2017-11-22 02:42:07,61.0,8,488.0,11cb48
";

    #[test]
    fn arrivals_and_run_times_shrink_alike_within_bounds() {
        let jobs = parse(TRACE, 10).unwrap();
        assert_eq!(jobs[1].submitted_after, Duration::from_secs(120));
        assert_eq!((jobs[1].gpus, jobs[1].tenant.as_str()), (8, "11cb48"));
        let pace = Pace::new(&jobs, Duration::from_secs(10), Duration::from_secs(40));
        assert_eq!(pace.submit_after(&jobs[1]), Duration::from_secs(10));
        assert_eq!(pace.run(&jobs[0]), Duration::from_secs(40));
        assert_eq!(pace.run(&jobs[1]).as_millis(), 5_083);
        assert_eq!(
            pace.recorded(Duration::from_secs(3)),
            Duration::from_secs(36)
        );
    }

    #[test]
    fn a_line_that_is_no_job_is_named() {
        let error = parse(&(TRACE.to_owned() + "nonsense,1,2\n"), 10).unwrap_err();
        assert!(error.to_string().starts_with("line 4"), "{error:#}");
        assert_eq!(parse(TRACE, 1).unwrap().len(), 1);
    }
}
