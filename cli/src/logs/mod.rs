//! `logs`: what the pods of a job write, in all of its clusters, merged by time.
//!
//! ```text
//! pods (pods/) ──► a reader for each container (source) ──► merge ──► standard output
//!                        ▲
//! job, followed ─────────┘ new pods, attempts and the end (follow)
//! ```
//!
//! Notes, warnings and errors go to standard error, so that the output is only that of the pods.

mod follow;
mod line;
mod merge;
mod print;
mod source;

use crate::args::{KubectlConnection, LogsCommand};
use crate::connect;
use crate::jobs;
use crate::pods::{self, JobPlace, JobPod};
use anyhow::Result;
use kube::Client;
use merge::{Feed, Merge, SourceId};
use print::{LinePrinter, PrefixOf};
use source::{BUDGET, LogSource};
use std::cell::RefCell;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// How long a job that is followed may take to appear.
const SUBMITTED_LIMIT: Duration = Duration::from_secs(10);

/// Runs the command.
pub(crate) async fn run(command: &LogsCommand, connection: &KubectlConnection) -> Result<ExitCode> {
    let client = match command.follow {
        true => connect::connect_to_watch(connection).await?,
        false => connect::connect(connection).await?,
    };
    match command.follow {
        true => follow::run(command, submitted(&command.job, &client).await?, &client).await,
        false => once(command, JobPlace::of(&command.job, &client).await?, &client).await,
    }
}

/// Returns the job to follow. One that was submitted a moment ago has no PodGroup yet, and is waited for.
async fn submitted(name: &str, client: &Client) -> Result<JobPlace> {
    let end = Instant::now() + SUBMITTED_LIMIT;
    let mut is_first = true;
    loop {
        match JobPlace::of(name, client).await {
            Err(error) if jobs::is_not_found(&error) && Instant::now() < end => {
                if std::mem::take(&mut is_first) {
                    let limit = SUBMITTED_LIMIT.as_secs();
                    eprintln!("note: {error}; waiting up to {limit} s for it");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            outcome => return outcome,
        }
    }
}

/// Prints what there is. It fails if some of it cannot be read.
async fn once(command: &LogsCommand, mut place: JobPlace, client: &Client) -> Result<ExitCode> {
    let found = place.look(client).await;
    found.warn();
    let chosen = command.choice.of(&found)?;
    if chosen.is_empty() {
        eprintln!("{}", found.no_pods());
        return Ok(code(found.away.is_empty()));
    }
    let (feeds, receiver) = unbounded_channel();
    let printer = RefCell::new(LinePrinter::default());
    let mut readers = Vec::new();
    for pod in &chosen {
        for container in containers(command, pod)? {
            let source = source(command, pod, container, readers.len(), client, &feeds)?;
            printer
                .borrow_mut()
                .add(PrefixOf::new(&source, pod, command.all_containers));
            readers.push(source.read_once(command.previous));
        }
    }
    drop(feeds);
    let several = readers.len() > 1;
    let prefix = || command.prefix.unwrap_or(several);
    let merge = Merge::new(receiver, None, command.timestamps);
    let merged = print::all(merge, &printer, &prefix);
    // Printing ends when all readers have.
    let (read, printed) = tokio::join!(futures::future::join_all(readers), merged);
    printed?;
    let mut complete = found.away.is_empty();
    for why in read.into_iter().filter_map(Result::err) {
        eprintln!("warning: {why}");
        complete = false;
    }
    Ok(code(complete))
}

fn code(complete: bool) -> ExitCode {
    match complete {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Returns the containers of a pod that are meant.
fn containers(command: &LogsCommand, pod: &JobPod) -> Result<Vec<String>> {
    if command.all_containers {
        let all = pods::containers(&pod.pod);
        return Ok(all.into_iter().map(str::to_owned).collect());
    }
    Ok(vec![pods::container(
        command.container.as_deref(),
        &pod.pod,
    )?])
}

/// Returns the reader of a container, which the merge knows from now on.
fn source(
    command: &LogsCommand,
    pod: &JobPod,
    container: String,
    id: SourceId,
    client: &Client,
    feeds: &UnboundedSender<Feed>,
) -> Result<LogSource> {
    // The receiver is dropped only at the end of the command.
    let _ = feeds.send(Feed::Opened(id));
    Ok(LogSource {
        id,
        api: pod.api(client)?,
        cluster: pod.cluster.clone(),
        namespace: pod.pod.metadata.namespace.clone().unwrap_or_default(),
        pod: pod.name(),
        uid: pod.uid(),
        container,
        // The server takes no less than a second.
        since_seconds: command.since.map(|since| since.seconds().max(1)),
        tail: command.tail,
        feeds: feeds.clone(),
        budget: Arc::new(Semaphore::new(BUDGET)),
    })
}

#[cfg(test)]
mod tests;
