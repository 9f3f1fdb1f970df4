//! Waits for conditions, and watches that an event does not happen.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::bail;

/// The polling period: a probe sends one or more requests, and API servers use most of the cores of
/// a run.
const PERIOD: Duration = Duration::from_millis(200);

/// A wait that is over.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    /// The condition.
    pub what: &'a str,
    /// The time it took.
    pub took: Duration,
    /// True if the condition was met.
    pub met: bool,
}

/// The observer of every wait of this process.
static OBSERVER: OnceLock<fn(Wait<'_>)> = OnceLock::new();

/// Registers `observer`, which is called after every wait of this process, on the thread that
/// waited. The first observer stays.
pub fn observe(observer: fn(Wait<'_>)) {
    OBSERVER.get_or_init(|| observer);
}

fn tell(what: &str, start: Instant, met: bool) {
    if let Some(observer) = OBSERVER.get() {
        let took = start.elapsed();
        observer(Wait { what, took, met });
    }
}

/// Waits until `probe` returns `Ok`; its `Err` describes the state it saw, and the error of a
/// timeout shows the last one. It waits at most for `deadline` and one probe.
///
/// # Errors
/// Returns an error if the deadline passed.
pub async fn eventually<T>(
    deadline: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, String>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        let last = match probe().await {
            Ok(answer) => {
                tell(what, start, true);
                return Ok(answer);
            }
            Err(last) => last,
        };
        if start.elapsed() > deadline {
            tell(what, start, false);
            bail!("{what}: not within {deadline:?}; last seen: {last}");
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Watches for all of `time` that something does not happen; `probe` returns what it saw if it did.
///
/// # Errors
/// Returns an error if it happened.
pub async fn never_within(
    time: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<(), String>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    while start.elapsed() < time {
        if let Err(seen) = probe().await {
            bail!("{what} happened after {:?}: {seen}", start.elapsed());
        }
        tokio::time::sleep(PERIOD).await;
    }
    Ok(())
}
