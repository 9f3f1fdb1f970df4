//! A thread pool of the webhook's own.
//!
//! What the webhook parses comes from people, at any rate and of any size. On the threads of the
//! controller a flood of it would delay the owner task and the renewal of the Lease; here it
//! competes with them for processors only, and with no more threads than [`workers`].

use anyhow::Context as _;
use std::future::Future;
use std::num::NonZero;
use std::thread;
use tokio::sync::oneshot;

/// Name of the threads.
const THREADS: &str = "webhook";

/// Half of the processors, four at most.
fn workers() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    (processors / 2).clamp(1, 4)
}

/// Runs `work`, and all tasks that it spawns, on threads of its own, and waits for its end.
/// `work` has to make its own client: the tasks behind one live where it was made.
///
/// # Errors
/// Where the threads cannot be started, `work` panics, or `work` fails.
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
        // The receiver is gone where the process ends anyhow.
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

    /// Every thread of the webhook is busy for a second; who waits for it goes on meanwhile.
    #[tokio::test]
    async fn a_busy_webhook_holds_up_nobody_else() {
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
