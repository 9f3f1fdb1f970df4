//! `wait`: until a job runs or has ended. The exit code says how.
//!
//! What the job does is written to standard error, a line for each change.

#[cfg(test)]
mod tests;

use crate::args::{JobFilter, KubectlConnection, WaitCommand, WaitGoal};
use crate::connect;
use crate::jobs::{self, ListedJob};
use crate::output::position_text;
use crate::watch;
use anyhow::{Result, bail};
use crds::podgroup::StatusWord;
use kube::Client;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The exit code if the time is over, as that of `timeout(1)`.
const LATE: u8 = 124;
/// For how long a job is waited for that has no PodGroup: it gets one within seconds of its creation.
const APPEARS_WITHIN: Duration = Duration::from_secs(10);
/// The time between two looks for it.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs the command.
pub(crate) async fn run(command: &WaitCommand, connection: &KubectlConnection) -> Result<ExitCode> {
    let client = connect::connect_to_watch(connection).await?;
    let mut say = |line: &str| eprintln!("{line}");
    let ended = until(&command.job, command.goal, &client, &mut say);
    let Some(limit) = command.timeout else {
        return Ok(ExitCode::from(ended.await?));
    };
    match timeout(limit.0, ended).await {
        Ok(code) => Ok(ExitCode::from(code?)),
        Err(_) => {
            let seconds = limit.0.as_secs();
            eprintln!("error: {} is not so far after {seconds} s", command.job);
            Ok(ExitCode::from(LATE))
        }
    }
}

/// Waits for a job, and returns the exit code.
pub(crate) async fn until(
    name: &str,
    goal: WaitGoal,
    client: &Client,
    say: &mut impl FnMut(&str),
) -> Result<u8> {
    let mut known: Option<String> = None;
    let mut said = String::new();
    let asked = Instant::now();
    loop {
        let mut listed = jobs::list(&JobFilter::default(), &mut None, client).await?;
        let version = listed.version();
        listed
            .jobs
            .retain(|job| known.as_ref().is_none_or(|uid| *uid == job.uid()));
        let names = [name.to_owned()];
        let place = format!("namespace {:?}", client.default_namespace());
        let (chosen, errors) = jobs::choose(&listed.jobs, &names, &place);
        let Some(job) = chosen.first() else {
            let is_several = listed.jobs.iter().any(|job| jobs::is_called(job, name));
            if known.is_some() {
                bail!("{name} was deleted");
            }
            match errors.into_iter().next() {
                Some(error) if is_several || asked.elapsed() > APPEARS_WITHIN => return Err(error),
                _ => sleep(PAUSE).await,
            }
            continue;
        };
        let uid = job.uid();
        if let Some(code) = observe(job, goal, &mut said, say) {
            return Ok(code);
        }
        let mut reached = None;
        let mut changed = async |object, deleted| {
            let job = ListedJob::of(object)?;
            if job.uid() != uid {
                return Ok(ControlFlow::Continue(()));
            }
            if deleted {
                bail!("{} was deleted", job.reference());
            }
            reached = observe(&job, goal, &mut said, say);
            Ok(match reached {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            })
        };
        let api = jobs::pod_groups(false, client);
        watch::follow(&api, version, &mut changed).await?;
        if let Some(code) = reached {
            return Ok(code);
        }
        known = Some(uid);
    }
}

/// Says what the job does if that is new, and returns the exit code if the wait is over.
fn observe(
    job: &ListedJob,
    goal: WaitGoal,
    said: &mut String,
    say: &mut impl FnMut(&str),
) -> Option<u8> {
    let line = line(job);
    if *said != line {
        say(&line);
        *said = line;
    }
    match (job.status(), goal) {
        (StatusWord::Succeeded, _) | (StatusWord::Running, WaitGoal::Running) => Some(0),
        (status, _) if status.is_over() => Some(exit_code(job.message())),
        _ => None,
    }
}

/// Formats `job.batch/train Queued at 3: WaitingForQuota`.
fn line(job: &ListedJob) -> String {
    let federation = job.federation();
    let position = federation.and_then(|federation| federation.position);
    let place = federation.and_then(|federation| federation.placement_summary.as_ref());
    let status = job.status();
    let place = match (position, place) {
        (Some(position), _) => format!(" at {}", position_text(position)),
        (None, Some(place)) if !status.is_over() => format!(" on {place}"),
        _ => String::new(),
    };
    let why = match job.reason() {
        "" => String::new(),
        reason if reason == status.as_str() && !status.is_over() => String::new(),
        reason if reason == status.as_str() => format!(": {}", job.message()),
        reason => format!(": {reason}"),
    };
    format!("{} {status}{place}{why}", job.reference())
}

/// Returns the exit code of a container that the message of a failed job names; 1 if it names none.
fn exit_code(message: &str) -> u8 {
    let mut named = message.split("exit code ").skip(1);
    let code = named.find_map(|rest| {
        let end = rest.find(|digit: char| !digit.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse::<u8>().ok()
    });
    code.filter(|code| *code > 0).unwrap_or(1)
}
