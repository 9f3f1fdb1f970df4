//! Waiting for what should happen, and watching that something does not.

use std::time::{Duration, Instant};

use anyhow::bail;

/// How often is looked.
const PERIOD: Duration = Duration::from_millis(100);

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
            Ok(answer) => return Ok(answer),
            Err(last) => last,
        };
        if start.elapsed() > deadline {
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
