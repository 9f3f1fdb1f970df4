//! Reads the output of one container, over lost connections and restarts of the container.
//!
//! ```text
//! pod as the API server has it ──► which run of the container, whether it has ended
//! log from the last line on ──► new lines ──► Feed; then again, until the pod has ended or is gone
//! ```
//!
//! The end of an answer does not say why it ended: the container has, or a proxy has closed the connection. So a run is
//! read to its end only when an answer has ended that was asked for after the run had. If the container was started
//! again meanwhile, the rest of the run before is read as its previous one.

use super::line::{LineRange, SeenLines};
use super::merge::{Feed, LineBlock, SourceId};
use crate::pods;
use futures::io::{AsyncBufRead, AsyncBufReadExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use kube::api::{Api, LogParams};
use runtime::client::{CallError, with_deadline};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

/// Bytes of a container that were read and not printed.
pub(super) const BUDGET: usize = 256 << 10;
/// The longest line; a longer one is cut.
const LONGEST: usize = 128 << 10;
/// Deadline of asking for a pod.
const LIMIT: Duration = Duration::from_secs(15);
/// The shortest and the longest time between two tries.
const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(4)];
/// After how many failures in a row the user is notified.
const FAILURES_TO_SAY: u32 = 2;
/// After how many the output of a pod that has ended is left.
const FAILURES_TO_LEAVE: u32 = 4;
/// The ID of a run without one: simulated nodes give none.
const UNKNOWN: &str = "unknown";

/// A container whose output is read.
#[derive(Clone)]
pub(super) struct LogSource {
    pub(super) id: SourceId,
    pub(super) api: Api<Pod>,
    pub(super) cluster: String,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) container: String,
    pub(super) since_seconds: Option<i64>,
    pub(super) tail: Option<i64>,
    pub(super) feeds: UnboundedSender<Feed>,
    pub(super) budget: Arc<Semaphore>,
}

/// How an answer has ended.
enum AnswerEnd {
    /// As the server meant it; what is left is the last line, without its end.
    Whole(Vec<u8>),
    /// The connection is lost.
    Lost(String),
}

/// A run of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ContainerRun {
    /// Its ID; none before the first run.
    id: Option<String>,
    runs: bool,
    restarts: i32,
    /// How the run before it has ended.
    before: String,
    pod_over: bool,
}

impl LogSource {
    /// Reads what there is, once.
    ///
    /// # Errors
    /// Returns why nothing can be read, or not all.
    pub(super) async fn read_once(self, previous: bool) -> Result<(), String> {
        let mut seen = SeenLines::default();
        let params = LogParams {
            previous,
            ..self.params(&mut seen, false)
        };
        let outcome = match self.answer(&params, &mut seen).await {
            Ok(AnswerEnd::Whole(rest)) => {
                self.send(rest, &mut seen).await;
                Ok(())
            }
            Ok(AnswerEnd::Lost(why)) => Err(format!("{}: {why}", self.name())),
            Err(error) => Err(self.reason(error)),
        };
        self.say(Feed::Ended(self.id));
        outcome
    }

    /// Reads on until the pod has ended or is gone.
    pub(super) async fn follow(self) {
        let mut reading = Reading {
            source: self,
            seen: SeenLines::default(),
            rest: Vec::new(),
            run: None,
            failures: 0,
        };
        reading.follow().await;
        let Reading { source, .. } = reading;
        source.say(Feed::Ended(source.id));
    }

    /// Returns the place of the container in words.
    fn name(&self) -> String {
        format!("{}/{} container {}", self.cluster, self.pod, self.container)
    }

    fn reason(&self, error: kube::Error) -> String {
        let error = CallError::from(error);
        match error.code() {
            // The API server's words: a container is waiting to start, or was not started before.
            Some(400) => format!("{}: {}", self.name(), error.message()),
            Some(404) => format!(
                "{}: the pod is gone, or has no output there: {}",
                self.name(),
                error.message()
            ),
            _ => pods::reason(&error, "get pods/log", &self.cluster, &self.namespace),
        }
    }

    fn say(&self, feed: Feed) {
        // Nobody reads any more when the command ends.
        let _ = self.feeds.send(feed);
    }

    fn params(&self, seen: &mut SeenLines, follow: bool) -> LogParams {
        let since = seen.resume();
        LogParams {
            container: Some(self.container.clone()),
            follow,
            timestamps: true,
            since_time: since,
            since_seconds: self.since_seconds.filter(|_| since.is_none()),
            tail_lines: self.tail.filter(|_| since.is_none()),
            ..LogParams::default()
        }
    }

    /// Sends the lines of one answer that were not seen.
    async fn answer(&self, params: &LogParams, seen: &mut SeenLines) -> kube::Result<AnswerEnd> {
        let answer = self.api.log_stream(&self.pod, params).await?;
        Ok(self.lines(answer, seen).await)
    }

    async fn lines(&self, answer: impl AsyncBufRead, seen: &mut SeenLines) -> AnswerEnd {
        let mut answer = pin!(answer);
        let mut rest = Vec::new();
        loop {
            let read = match answer.fill_buf().await {
                Ok([]) => return AnswerEnd::Whole(rest),
                Ok(read) => read,
                Err(error) => return AnswerEnd::Lost(error.to_string()),
            };
            let size = read.len();
            let end = read
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map(|end| end + 1);
            let (lines, left) = read.split_at(end.unwrap_or(0));
            let mut block = Vec::new();
            if !lines.is_empty() {
                block = std::mem::take(&mut rest);
                block.extend_from_slice(lines);
            }
            rest.extend_from_slice(left);
            if rest.len() > LONGEST {
                block.append(&mut rest);
            }
            answer.consume_unpin(size);
            if !block.is_empty() {
                self.send(block, seen).await;
            }
        }
    }

    /// Sends the lines of `bytes` that are new, once the budget has room for them.
    async fn send(&self, bytes: Vec<u8>, seen: &mut SeenLines) {
        let mut lines = Vec::new();
        let mut before = Timestamp::MIN;
        let mut start = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let end = start + line.strip_suffix(b"\n").unwrap_or(line).len();
            let range = LineRange::read(&bytes, start..end, before);
            before = range.time;
            if seen.is_new(range.time, range.bytes(&bytes, false)) {
                lines.push(range);
            }
            start += line.len();
        }
        if lines.is_empty() {
            return;
        }
        let share = u32::try_from(bytes.len().min(BUDGET)).unwrap_or(u32::MAX);
        let permit = self.budget.clone().acquire_many_owned(share).await.ok();
        let block = LineBlock {
            bytes,
            lines,
            permit,
        };
        self.say(Feed::Lines(self.id, block));
    }
}

/// The state of following a container.
struct Reading {
    source: LogSource,
    seen: SeenLines,
    /// A line whose end has not come.
    rest: Vec<u8>,
    /// The run that was read last, and whether it was read to its end.
    run: Option<(ContainerRun, bool)>,
    failures: u32,
}

impl Reading {
    async fn follow(&mut self) {
        let mut pause = PAUSES[0];
        loop {
            let pod = match with_deadline(self.source.api.get_opt(&self.source.pod), LIMIT).await {
                Ok(pod) => pod.filter(|pod| pod.uid().as_ref() == Some(&self.source.uid)),
                Err(error) => {
                    let source = &self.source;
                    let why = pods::reason(&error, "get pods", &source.cluster, &source.namespace);
                    self.failed(&why);
                    pause = wait(pause).await;
                    continue;
                }
            };
            let Some(pod) = pod else {
                return self.end().await;
            };
            let run = ContainerRun::of(&pod, &self.source.container);
            if self.goes_on(&run).await {
                pause = PAUSES[0];
                self.read(&run).await;
                tokio::time::sleep(PAUSES[0]).await;
                continue;
            }
            if run.pod_over {
                return self.end().await;
            }
            pause = wait(pause).await;
        }
    }

    /// Returns true if there may be more to read. Reads the rest of a run that has ended meanwhile.
    async fn goes_on(&mut self, run: &ContainerRun) -> bool {
        let Some(id) = &run.id else {
            return false;
        };
        let Some((last, drained)) = self.run.take() else {
            return true;
        };
        if last.id.as_ref() == Some(id) {
            let more = !drained || run.runs;
            self.run = Some((last, drained));
            return more;
        }
        let mut lost = match run.restarts - last.restarts {
            ..=1 => "",
            _ => "; what it wrote in runs between is lost",
        };
        if !drained {
            let params = LogParams {
                previous: true,
                ..self.source.params(&mut self.seen, false)
            };
            match self.source.answer(&params, &mut self.seen).await {
                Ok(AnswerEnd::Whole(rest)) => self.rest = rest,
                Ok(AnswerEnd::Lost(_)) | Err(_) => lost = "; the end of what it wrote may be lost",
            }
        }
        self.end().await;
        self.note(&format!("was started again ({}{lost})", run.before));
        true
    }

    /// Sends a last line without its end.
    async fn end(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        self.source.send(rest, &mut self.seen).await;
    }

    /// Reads one answer of a run.
    async fn read(&mut self, run: &ContainerRun) {
        let params = self.source.params(&mut self.seen, true);
        let answered = self.source.answer(&params, &mut self.seen).await;
        let mut drained = false;
        match answered {
            Ok(AnswerEnd::Whole(rest)) => {
                drained = !run.runs;
                self.rest = rest;
                self.back();
            }
            // A connection that was silent for long is closed; nothing is lost.
            Ok(AnswerEnd::Lost(_)) => self.back(),
            Err(error) => {
                let why = self.source.reason(error);
                self.failed(&why);
                drained = run.pod_over && self.failures >= FAILURES_TO_LEAVE;
                tokio::time::sleep(PAUSES[0] * self.failures.min(10)).await;
            }
        }
        self.run = Some((run.clone(), drained));
    }

    fn failed(&mut self, why: &str) {
        self.failures += 1;
        if self.failures == FAILURES_TO_SAY {
            let text = format!("warning: {why}; trying again");
            self.source.say(Feed::Note(self.source.id, text));
        }
    }

    fn back(&mut self) {
        if self.failures >= FAILURES_TO_SAY {
            self.note("is read again");
        }
        self.failures = 0;
    }

    fn note(&self, what: &str) {
        let text = format!("note: {} {what}", self.source.name());
        self.source.say(Feed::Note(self.source.id, text));
    }
}

/// Waits, and returns how long to wait the next time.
async fn wait(pause: Duration) -> Duration {
    tokio::time::sleep(pause).await;
    (pause * 2).min(PAUSES[1])
}

impl ContainerRun {
    /// Returns the present run of a container.
    fn of(pod: &Pod, container: &str) -> Self {
        let status = pod.status.as_ref();
        let lists = status.map(|status| {
            [
                status.container_statuses.as_deref(),
                status.init_container_statuses.as_deref(),
            ]
        });
        let mut all = lists.into_iter().flatten().flatten().flatten();
        let own = all.find(|status| status.name == container);
        let state = own.and_then(|own| own.state.as_ref());
        Self {
            id: own.and_then(id),
            runs: state.is_some_and(|state| state.running.is_some()),
            restarts: own.map_or(0, |own| own.restart_count),
            before: own.map(before).unwrap_or_default(),
            pod_over: matches!(pods::phase(pod), "Succeeded" | "Failed"),
        }
    }
}

/// Returns the ID of the last run of a container.
fn id(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref();
    let last = container.last_state.as_ref();
    let ended = state.and_then(|state| state.terminated.as_ref()?.container_id.clone());
    let before = || last.and_then(|last| last.terminated.as_ref()?.container_id.clone());
    let own = ended
        .or_else(|| container.container_id.clone())
        .or_else(before);
    let has_run = state.is_some_and(|state| state.running.is_some() || state.terminated.is_some());
    let unknown = || has_run.then(|| UNKNOWN.to_owned());
    own.filter(|id| !id.is_empty()).or_else(unknown)
}

fn before(container: &ContainerStatus) -> String {
    let last = container.last_state.as_ref();
    let end = last.and_then(|last| last.terminated.as_ref());
    end.map_or_else(
        || "the run before has ended".to_owned(),
        |end| {
            let reason = end.reason.as_deref().unwrap_or("ended");
            format!("the run before: {reason}, exit code {}", end.exit_code)
        },
    )
}

#[cfg(test)]
mod tests;
