//! Reads fleets, queues, jobs and faults, in YAML or as the CSV of public traces, into facts.
//!
//! The header of a CSV file determines its form. An invalid value is an error that names the file,
//! the line or object, the field, the value, and what would be valid. Nothing is skipped without a
//! note.

mod amounts;
mod faults;
mod fleet;
mod fleet_yaml;
mod jobs;
mod jobs_yaml;
mod manifests;
pub mod plain;
mod queues;
mod table;

pub use faults::read_faults;
pub use fleet::{OPENB_GPU, read_fleet};
pub use jobs::read_jobs;
pub use queues::read_queues;

use crate::error::InputError;
use crate::scenario::{Scenario, ScenarioQueues, plain_policy, plain_queue};
use std::collections::BTreeSet;
use std::path::Path;

/// The queue of all jobs if no queues are given.
pub const ONE_QUEUE: &str = "default";

/// The result of reading a file, with notes for the user.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Read<T> {
    /// The result.
    pub what: T,
    /// What was left out and why, one sentence each.
    pub notes: Vec<String>,
}

/// Reads the scenario. Without a file of queues, all jobs are in one queue.
///
/// # Errors
/// Returns the first invalid value in any of the files.
pub fn read_scenario(
    fleet: &Path,
    queues: Option<&Path>,
    jobs: &Path,
) -> Result<Read<Scenario>, InputError> {
    let fleet = read_fleet(fleet)?;
    let Read { what, mut notes } = read_jobs(jobs, &fleet)?;
    let mut jobs = what;
    let queues = match queues {
        Some(path) => {
            let queues = read_queues(path)?;
            let known: BTreeSet<&str> = queues.queues.iter().map(|q| q.name.as_str()).collect();
            if let Some(job) = jobs.iter().find(|j| !known.contains(j.fact.queue.as_str())) {
                return Err(unknown_queue(path, job.fact.queue.as_str(), &job.fact.key));
            }
            queues
        }
        None => {
            // The virtual cluster of a trace then distinguishes jobs as a user would.
            for job in &mut jobs {
                if job.fact.user.is_empty() {
                    job.fact.user = job.fact.queue.to_string();
                }
                job.fact.queue = ONE_QUEUE.into();
            }
            ScenarioQueues {
                queues: vec![plain_queue(ONE_QUEUE)],
                policies: vec![plain_policy(ONE_QUEUE)],
                classes: Vec::new(),
            }
        }
    };
    if jobs.is_empty() {
        notes.push("there are no jobs".to_owned());
    }
    Ok(Read {
        what: Scenario {
            fleet,
            queues,
            jobs,
            faults: None,
        },
        notes,
    })
}

fn unknown_queue(path: &Path, queue: &str, job: &engine::JobKey) -> InputError {
    InputError::Value {
        file: path.display().to_string(),
        place: format!("job {job}"),
        field: "queue".to_owned(),
        value: format!("{queue:?}"),
        needed: "a queue of this name is needed in the file; it has none".to_owned(),
    }
}

/// Returns true if the file's name has the suffix of CSV.
fn is_csv(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
}
