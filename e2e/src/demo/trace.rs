//! The recorded jobs of the replay, and the conversion of recorded time to the demo's time.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::civil::DateTime;

/// A job of the trace.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TraceJob {
    /// Time since the first job.
    pub(super) submitted_after: Duration,
    /// Its run time.
    pub(super) ran: Duration,
    /// GPUs of the whole job.
    pub(super) gpus: u32,
    /// Its virtual cluster.
    pub(super) tenant: String,
}

/// Reads the first `count` jobs of a file sorted by time.
///
/// # Errors
/// Returns an error if the file cannot be read, or with the line that is not a job.
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
        .context("a line must have five fields")?;
    let job = TraceJob {
        submitted_after: Duration::ZERO,
        ran: Duration::try_from_secs_f64(seconds.parse()?)?,
        gpus: gpus.parse()?,
        tenant: tenant.to_owned(),
    };
    Ok((submitted.parse()?, job))
}

/// The conversion of recorded time to the demo's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pace {
    /// Recorded seconds per second of the demo.
    pub(super) factor: f64,
    /// The longest run of a job in the demo: the trace has jobs of days among jobs of minutes.
    pub(super) longest: Duration,
}

/// The shortest run of a job in the demo, so that it is visible.
const SHORTEST: Duration = Duration::from_secs(2);

impl Pace {
    /// Returns the pace at which all of `jobs` arrive within `arrivals`.
    pub(super) fn new(jobs: &[TraceJob], arrivals: Duration, longest: Duration) -> Self {
        let span = jobs
            .last()
            .map_or(Duration::ZERO, |job| job.submitted_after);
        Self {
            factor: (span.as_secs_f64() / arrivals.as_secs_f64()).max(1.0),
            longest,
        }
    }

    /// Returns when a job is submitted, since the replay's start.
    pub(super) fn submit_after(self, job: &TraceJob) -> Duration {
        job.submitted_after.div_f64(self.factor)
    }

    /// Returns how long its pods run.
    pub(super) fn run(self, job: &TraceJob) -> Duration {
        job.ran.div_f64(self.factor).clamp(SHORTEST, self.longest)
    }

    /// Converts a time of the demo to the trace's time.
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
