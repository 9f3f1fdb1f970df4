//! Spawns tasks whose panic must not go unnoticed although no one waits for them.
//!
//! A task that panicked would leave its work undone for ever: nothing would be committed any more, or a job
//! be prepared without end. So the process ends, and another replica leads ([`crate::task::panicked`],
//! which `muster` waits for next to its parts).

use futures::FutureExt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::LazyLock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

static PANICKED: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);

/// Like [`tokio::spawn`]; a panic in `future` ends the process.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(async move {
        match AssertUnwindSafe(future).catch_unwind().await {
            Ok(output) => output,
            Err(panic) => {
                PANICKED.cancel();
                resume_unwind(panic)
            }
        }
    })
}

/// Returns when a task of [`spawn`] has panicked.
pub async fn panicked() {
    PANICKED.cancelled().await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn a_panic_is_reported() {
        assert_eq!(spawn(async { 1 }).await.ok(), Some(1));
        let died = spawn(async { panic!("on purpose") }).await;
        assert!(died.is_err_and(|error| error.is_panic()));
        panicked().await;
    }
}
