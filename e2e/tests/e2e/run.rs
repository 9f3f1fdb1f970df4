//! The run as a whole: it has one deadline, ends after three failures, and records the duration of
//! each story and each wait.
//!
//! A story that no longer starts fails too, since a story that did not run has not passed. Its
//! failure says only that.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use e2e::harness::record::{RecordLine, Recorder, StoryEnd, milliseconds};
use e2e::harness::{report, wait};
use futures::FutureExt as _;
use parking_lot::Mutex;

use crate::plane::state_dir;

/// The number of failures after which no further story starts, since they most likely have one
/// cause.
const MOST_FAILURES: usize = 3;

/// The default deadline of all stories of a run; `E2E_DEADLINE_SECONDS` overrides it.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

/// Shorter waits are not recorded.
const SHORT: Duration = Duration::from_millis(200);

static RUN: LazyLock<Run> = LazyLock::new(Run::begin);

/// The state of all stories of this process.
struct Run {
    until: Instant,
    recorder: Option<Recorder>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    failures: usize,
    /// The reason why no further story starts.
    stopped: Option<String>,
}

/// The time at which a story got its turn.
pub(crate) struct Begun(Cell<Option<Instant>>);

impl Begun {
    /// Sets the time: the story has its turn now.
    pub(crate) fn now(&self) {
        self.0.set(Some(Instant::now()));
    }
}

impl Run {
    fn begin() -> Self {
        wait::observe(note_wait);
        let seconds = std::env::var("E2E_DEADLINE_SECONDS").ok();
        let seconds = seconds.and_then(|seconds| seconds.parse().ok());
        let recorder = Recorder::create(&record());
        if let Err(error) = &recorder {
            eprintln!("this run is not written down: {error:#}");
        }
        Self {
            until: Instant::now() + seconds.map_or(DEADLINE, Duration::from_secs),
            recorder: recorder.ok(),
            state: Mutex::default(),
        }
    }

    fn note(&self, line: &RecordLine) {
        if let Some(recorder) = &self.recorder {
            recorder.note(line);
        }
    }

    fn failed(&self, name: &str, why: &str) {
        let mut state = self.state.lock();
        state.failures += 1;
        if state.failures >= MOST_FAILURES && state.stopped.is_none() {
            let stopped =
                format!("{MOST_FAILURES} stories had failed, the last of them {name}: {why}");
            state.stopped = Some(stopped);
        }
    }
}

/// Returns the path of the run's record, which `make test-e2e` passes to the program `report`.
fn record() -> PathBuf {
    state_dir("e2e-record.jsonl")
}

/// Returns the running story's name; libtest names the thread after the test.
fn name() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("a story").to_owned()
}

fn note_wait(wait: wait::Wait<'_>) {
    if wait.took > SHORT {
        RUN.note(&RecordLine::Wait {
            story: name(),
            what: wait.what.to_owned(),
            took_ms: milliseconds(wait.took),
            met: wait.met,
        });
    }
}

/// Stops the run: no further story starts. Returns the error of the story that found the reason. It
/// is one failure; all other stories are reported as not started.
pub(crate) fn stop(why: &str) -> anyhow::Error {
    let mut state = RUN.state.lock();
    match &state.stopped {
        Some(why) => NotRun(why.clone()).into(),
        None => {
            state.stopped = Some(why.to_owned());
            anyhow::anyhow!("{why}")
        }
    }
}

/// Fails if no further story may start.
pub(crate) fn ensure_goes_on() -> anyhow::Result<()> {
    match &RUN.state.lock().stopped {
        None => Ok(()),
        Some(why) => Err(NotRun(why.clone()).into()),
    }
}

/// A story that did not start.
#[derive(Debug, thiserror::Error)]
#[error("not run: {0}")]
struct NotRun(String);

/// A story that this machine cannot run. It fails where no story may be left out: in CI.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LeftOut(pub(crate) String);

/// Returns how a story ended that returned an error.
fn end_of(error: &anyhow::Error) -> StoryEnd {
    match error.downcast_ref::<LeftOut>() {
        Some(left_out) if std::env::var_os("CI").is_none() => StoryEnd::LeftOut(left_out.0.clone()),
        _ => StoryEnd::Failed(format!("{error:#}")),
    }
}

/// Runs a story within the rest of the run's time, and records how it ended.
pub(crate) async fn story(story: impl AsyncFnOnce(&Begun) -> anyhow::Result<()>) {
    let run = &*RUN;
    let name = name();
    let (start, begun) = (Instant::now(), Begun(Cell::new(None)));
    let whole = AssertUnwindSafe(story(&begun)).catch_unwind();
    let outcome = tokio::time::timeout_at(run.until.into(), whole).await;
    let end = match &outcome {
        Ok(Ok(Ok(()))) => StoryEnd::Passed,
        Ok(Ok(Err(error))) if error.is::<NotRun>() => panic!("{error}"),
        Ok(Ok(Err(error))) => end_of(error),
        Ok(Err(panic)) => StoryEnd::Failed(words(panic.as_ref())),
        Err(_) if begun.0.get().is_none() => panic!("not run: the time of the run was over"),
        Err(_) => StoryEnd::Cut,
    };
    let turn = begun.0.get().unwrap_or_else(Instant::now);
    run.note(&report::story(
        &name,
        turn.duration_since(start),
        turn.elapsed(),
        end.clone(),
    ));
    match end {
        StoryEnd::Passed => {}
        StoryEnd::LeftOut(why) => eprintln!("{name} is left out: {why}"),
        StoryEnd::Cut => panic!("the time of the run was over while it ran"),
        StoryEnd::Failed(why) => {
            run.failed(&name, &why);
            panic!("{why}");
        }
    }
}

/// Returns the message of a panic.
pub(crate) fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
