//! `logs -f`: the output of a job from now to its end, in each cluster where it runs meanwhile.
//!
//! The job is asked for each second, and its pods when it has changed or a reader has ended, else every few seconds.
//! A new pod gets a reader; an eviction, a new attempt and a cluster that is away are said on standard error.

use super::merge::{Feed, HOLD, Merge};
use super::print::{self, LinePrinter, PrefixOf};
use super::{LogsCommand, containers, source};
use crate::jobs::ListedJob;
use crate::pods::{FoundPods, JobPlace, JobPod};
use anyhow::Result;
use crds::podgroup::StatusWord;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::Client;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Time between two looks at the job.
const LOOK: Duration = Duration::from_secs(1);
/// The longest time between two looks at its pods.
const LOOK_AT_PODS: Duration = Duration::from_secs(5);
/// How long readers may go on after the end of the job.
const REST: Duration = Duration::from_secs(30);
/// How many looks at the job may fail in a row.
const FAILURES: u32 = 30;

/// What is followed.
struct FollowedJob<'a> {
    command: &'a LogsCommand,
    client: &'a Client,
    place: JobPlace,
    feeds: UnboundedSender<Feed>,
    printer: &'a RefCell<LinePrinter>,
    /// Whether lines have a prefix.
    prefix: &'a Cell<bool>,
    readers: JoinSet<()>,
    /// The containers that have a reader: cluster, UID of the pod, container.
    read: BTreeSet<(String, String, String)>,
    /// Why each cluster that is away is so.
    away: BTreeMap<String, String>,
    /// The last that was said of the job.
    said: JobNews,
    /// The pods of the last look at them.
    found: Option<FoundPods>,
}

/// What is said of a job when it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct JobNews {
    /// Why it waits.
    waits: Option<String>,
    attempt: Option<i32>,
    evicted: Option<Timestamp>,
}

pub(super) async fn run(
    command: &LogsCommand,
    place: JobPlace,
    client: &Client,
) -> Result<ExitCode> {
    let (feeds, receiver) = unbounded_channel();
    let merge = Merge::new(receiver, Some(HOLD), command.timestamps);
    let (printer, prefix) = (RefCell::new(LinePrinter::default()), Cell::new(false));
    let followed = FollowedJob {
        command,
        client,
        place,
        feeds,
        printer: &printer,
        prefix: &prefix,
        readers: JoinSet::new(),
        read: BTreeSet::new(),
        away: BTreeMap::new(),
        said: JobNews::default(),
        found: None,
    };
    let printed = async { Ok(print::all(merge, &printer, &|| prefix.get()).await?) };
    // Printing ends after the readers, and at once if nobody reads the output.
    let (code, ()) = tokio::try_join!(followed.follow_to_the_end(), printed)?;
    Ok(code)
}

impl FollowedJob<'_> {
    /// Reads the output of the job until it has ended, and returns the exit code.
    async fn follow_to_the_end(mut self) -> Result<ExitCode> {
        let (mut version, mut looked) = (None, None::<Instant>);
        let mut failures = 0;
        loop {
            match self.place.refresh(self.client).await {
                Ok(true) => failures = 0,
                Ok(false) => {
                    eprintln!("note: {} is gone", self.place.job.reference());
                    break;
                }
                Err(error) if failures < FAILURES => {
                    failures += 1;
                    if failures == 2 {
                        eprintln!("warning: the control plane: {error:#}; trying again");
                    }
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.say_news();
            let now = self.place.job.object.metadata.resource_version.clone();
            let is_due = looked.is_none_or(|looked| looked.elapsed() >= LOOK_AT_PODS);
            if is_due || version != now || self.place.job.status().is_over() {
                self.look_at_pods().await?;
                (version, looked) = (now, Some(Instant::now()));
            }
            if self.has_ended() {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                // A pod has ended: there may be another one.
                Some(_) = self.readers.join_next() => looked = None,
            }
        }
        let rest = async { while self.readers.join_next().await.is_some() {} };
        if tokio::time::timeout(REST, rest).await.is_err() {
            eprintln!("warning: some pods have not ended with their job, and are left");
        }
        Ok(match self.command.exit_code {
            true => ExitCode::from(code(self.place.job.status(), self.found.as_ref())),
            false => ExitCode::SUCCESS,
        })
    }

    /// Returns true if no more pods will come: the job is over, or the one pod that was named is.
    fn has_ended(&self) -> bool {
        let named = self.command.choice.pod.is_some();
        self.place.job.status().is_over()
            || (named && !self.read.is_empty() && self.readers.is_empty())
    }

    /// Says why the job waits, where it runs and that it was evicted, when that changes.
    fn say_news(&mut self) {
        let (news, texts) = news(&self.place.job, &self.place.clusters(), &self.said);
        for text in texts {
            eprintln!("note: {text}");
        }
        self.said = news;
    }

    /// Gives each new pod a reader.
    async fn look_at_pods(&mut self) -> Result<()> {
        let found = self.place.look(self.client).await;
        let away: BTreeMap<String, String> = found
            .away
            .iter()
            .map(|away| (away.cluster.clone(), away.why.clone()))
            .collect();
        for (cluster, why) in &away {
            if !self.away.contains_key(cluster) {
                eprintln!("warning: {why}; the other clusters go on");
            }
        }
        for cluster in self.away.keys() {
            if !away.contains_key(cluster) && self.place.clusters().contains(cluster) {
                eprintln!("note: {cluster} answers again");
            }
        }
        self.away = away;
        for pod in found
            .pods
            .iter()
            .filter(|pod| self.command.choice.takes(pod))
        {
            self.follow(pod)?;
        }
        self.prefix
            .set(self.command.prefix.unwrap_or_else(|| self.has_several()));
        self.found = Some(found);
        Ok(())
    }

    /// Returns true if lines come of several containers at the same time.
    fn has_several(&self) -> bool {
        let choice = &self.command.choice;
        let federation = self.place.job.federation();
        let parts = federation
            .into_iter()
            .flat_map(|federation| &federation.placement);
        let pods: i32 = parts.map(|part| part.pods).sum();
        let is_one = pods < 2 || choice.rank.is_some() || choice.pod.is_some();
        self.command.all_containers || !is_one
    }

    fn follow(&mut self, pod: &JobPod) -> Result<()> {
        for container in containers(self.command, pod)? {
            let key = (pod.cluster.clone(), pod.uid(), container.clone());
            if !self.read.insert(key) {
                continue;
            }
            let id = self.printer.borrow().len();
            let mut source = source(self.command, pod, container, id, self.client, &self.feeds)?;
            // Of a pod that came later all is new.
            if self.found.is_some() {
                (source.tail, source.since_seconds) = (None, None);
            }
            let prefix = PrefixOf::new(&source, pod, self.command.all_containers);
            self.printer.borrow_mut().add(prefix);
            self.readers.spawn(source.follow());
        }
        Ok(())
    }
}

/// Returns what is to be known of a job, and what of it is new.
fn news(job: &ListedJob, clusters: &[String], said: &JobNews) -> (JobNews, Vec<String>) {
    let (name, status) = (job.reference(), job.status());
    let federation = job.federation();
    let eviction = federation.and_then(|federation| federation.eviction.as_ref());
    let mut now = JobNews {
        waits: None,
        attempt: said.attempt,
        evicted: eviction.and_then(|eviction| Some(eviction.time.as_ref()?.0)),
    };
    let mut texts = Vec::new();
    let is_first = *said == JobNews::default();
    if let Some(eviction) = eviction.filter(|_| now.evicted != said.evicted && !is_first) {
        texts.push(format!(
            "{name} was evicted: {}: {}",
            eviction.reason, eviction.message
        ));
    }
    if status == StatusWord::Queued {
        let position = federation.and_then(|federation| federation.position);
        let position =
            position.map(|at| format!(" at position {}", crate::output::position_text(at)));
        let waits = format!("{name} is queued{}", position.unwrap_or_default());
        if said.waits.as_ref() != Some(&waits) {
            let why = match job.message() {
                "" => String::new(),
                message => format!(": {message}"),
            };
            texts.push(format!("{waits}{why}"));
        }
        now.waits = Some(waits);
    }
    let attempt = federation.and_then(|federation| federation.attempt);
    if !clusters.is_empty() && attempt.is_some() && attempt != said.attempt {
        let is_news = said.attempt.is_some() || said.waits.is_some();
        if is_news {
            let number = attempt.unwrap_or_default();
            texts.push(format!(
                "{name} is in {} (attempt {number})",
                clusters.join(", ")
            ));
        }
        now.attempt = attempt;
    }
    (now, texts)
}

/// Returns the exit code of a job: that of its first container that failed.
fn code(status: StatusWord, found: Option<&FoundPods>) -> u8 {
    if status == StatusWord::Succeeded {
        return 0;
    }
    let pods = found.into_iter().flat_map(|found| &found.pods);
    let mut failed: Vec<&ContainerStateTerminated> = pods
        .flat_map(|pod| ends(&pod.pod))
        .filter(|end| end.exit_code != 0)
        .collect();
    failed.sort_by_key(|end| end.finished_at.as_ref().map(|time| time.0));
    let first = failed
        .first()
        .and_then(|end| u8::try_from(end.exit_code).ok());
    first.unwrap_or(1)
}

fn ends(pod: &Pod) -> impl Iterator<Item = &ContainerStateTerminated> {
    let status = pod.status.iter();
    let all = status.flat_map(|status| {
        let inits = status.init_container_statuses.iter().flatten();
        inits.chain(status.container_statuses.iter().flatten())
    });
    all.filter_map(|container| container.state.as_ref()?.terminated.as_ref())
}

#[cfg(test)]
mod tests;
