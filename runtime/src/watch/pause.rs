//! How long a watch pauses after a failure.

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;

/// Delay before the next try for a kind that is not served; it grows to [`ABSENT_DELAY_MAX`].
const ABSENT_DELAY_MIN: Duration = Duration::from_secs(1);
/// See [`ABSENT_DELAY_MIN`].
const ABSENT_DELAY_MAX: Duration = Duration::from_secs(60);

pub(super) fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(250))
        .with_max_delay(Duration::from_secs(30))
        .without_max_times()
        .with_jitter()
        .build()
}

pub(super) fn absent_backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(ABSENT_DELAY_MIN)
        .with_max_delay(ABSENT_DELAY_MAX)
        .without_max_times()
        .with_jitter()
        .build()
}

pub(super) async fn pause(backoff: &mut ExponentialBackoff) {
    wait(backoff, None).await;
}

/// Waits as long as the back-off says, or as the server asked for if that is longer.
pub(super) async fn wait(backoff: &mut ExponentialBackoff, asked: Option<Duration>) {
    let delay = backoff.next().unwrap_or(ABSENT_DELAY_MAX);
    tokio::time::sleep(delay.max(asked.unwrap_or_default()).min(ABSENT_DELAY_MAX)).await;
}
