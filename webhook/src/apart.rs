//! Runs the webhook on a thread pool of its own.
//!
//! The webhook parses requests of users, at any rate and of any size. On the threads of the controller a
//! flood of them would delay the owner task and the renewal of the Lease. On its own threads it competes
//! only for processors, and with no more threads than [`workers`].

use anyhow::Context as _;
use std::future::Future;
use std::num::NonZero;
use std::thread;
use tokio::sync::oneshot;

/// Name of the threads.
const THREADS: &str = "webhook";

/// Returns the number of threads: half of the processors, at most four.
fn workers() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    (processors / 2).clamp(1, 4)
}

/// Runs `work`, and all tasks that it spawns, on threads of its own, and waits for its end. `work` has to
/// create its own client, because the tasks of a client run where it was created.
///
/// # Errors
/// Returns an error if the threads cannot be started, or if `work` panics or fails.
pub async fn run_apart<F>(work: F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let (sender, ended) = oneshot::channel();
    let run = move || {
        let pool = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers())
            .thread_name(THREADS)
            .enable_all()
            .build();
        let result = match pool {
            Ok(pool) => pool.block_on(work),
            Err(error) => Err(error).context("the webhook's threads cannot be started"),
        };
        // The receiver is gone only when the process ends.
        let _ = sender.send(result);
    };
    thread::Builder::new()
        .name(THREADS.to_owned())
        .spawn(run)
        .context("the webhook's thread cannot be started")?;
    ended.await.context("the webhook panicked")?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use std::time::{Duration, Instant};

    /// Every thread of the webhook is busy for a second; the waiting task runs on meanwhile.
    #[tokio::test]
    async fn a_busy_webhook_delays_no_other_task() {
        let busy = run_apart(async {
            let names = (0..workers()).map(|_| {
                tokio::spawn(async {
                    thread::sleep(Duration::from_secs(1));
                    thread::current().name().map(str::to_owned)
                })
            });
            for name in futures::future::join_all(names).await {
                anyhow::ensure!(name.unwrap().as_deref() == Some(THREADS));
            }
            Ok(())
        });
        let started = Instant::now();
        let beside = async {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            started.elapsed()
        };
        let (done, took) = tokio::join!(busy, beside);
        done.unwrap();
        assert!(took < Duration::from_millis(900), "{took:?}");
    }

    #[tokio::test]
    async fn its_panic_and_its_failure_are_reported() {
        let panicked = run_apart(async { panic!("on purpose") }).await;
        assert_eq!(panicked.unwrap_err().to_string(), "the webhook panicked");
        let failed = run_apart(async { anyhow::bail!("no address") }).await;
        assert_eq!(failed.unwrap_err().to_string(), "no address");
    }
}
