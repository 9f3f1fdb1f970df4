//! Waiting for what should happen, and watching that something does not.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::bail;

/// How often is looked: a look is one or more requests, and API servers need most of the cores of a run.
const PERIOD: Duration = Duration::from_millis(200);

/// A wait that is over.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    /// What was waited for.
    pub what: &'a str,
    /// How long.
    pub took: Duration,
    /// Whether it happened.
    pub met: bool,
}

/// Receives every wait of this process that is over.
static OBSERVER: OnceLock<fn(Wait<'_>)> = OnceLock::new();

/// Has `observer` called with every wait of this process that is over, on the thread that waited.
/// The first observer stays.
pub fn observe(observer: fn(Wait<'_>)) {
    OBSERVER.get_or_init(|| observer);
}

fn tell(what: &str, start: Instant, met: bool) {
    if let Some(observer) = OBSERVER.get() {
        let took = start.elapsed();
        observer(Wait { what, took, met });
    }
}

/// Waits until `probe` has an answer; its `Err` says what it saw instead, and the last one is what the
/// error shows. Never waits longer than `deadline` and one probe.
///
/// # Errors
/// If the deadline passed.
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

/// Watches for the whole of `time` that something does not happen; `probe` fails with what it saw when
/// it did.
///
/// # Errors
/// If it happened.
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
