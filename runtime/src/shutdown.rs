//! The end of a process: SIGTERM and SIGINT become one [`CancellationToken`].
//!
//! The first signal starts a drain; a second one ends the process at once, so that a drain that hangs can
//! be stopped by hand.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit status after a second signal, as a shell reports a process ended by SIGTERM.
const EXIT_AFTER_SECOND_SIGNAL: i32 = 143;

/// Returns a token that is cancelled at the first SIGTERM or SIGINT.
///
/// # Errors
/// Returns an error if the process may not install signal handlers.
#[expect(
    clippy::disallowed_methods,
    reason = "a second signal asks for exactly that: to leave without letting anything go"
)]
pub fn on_signal() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        let name = next(&mut terminate, &mut interrupt).await;
        tracing::info!(signal = name, "shutting down");
        cancel.cancel();
        let name = next(&mut terminate, &mut interrupt).await;
        tracing::warn!(signal = name, "second signal: leaving without a drain");
        std::process::exit(EXIT_AFTER_SECOND_SIGNAL);
    });
    Ok(token)
}

async fn next(
    terminate: &mut tokio::signal::unix::Signal,
    interrupt: &mut tokio::signal::unix::Signal,
) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
