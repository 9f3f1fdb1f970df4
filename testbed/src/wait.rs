//! Waits with a deadline, and stops early if the process in question has ended.

use std::future::Future;
use std::time::{Duration, Instant};

use kube::Client;

use crate::error::{Error, Result, describe};
use crate::process::Supervisor;

/// The period of probes.
const PERIOD: Duration = Duration::from_millis(100);

/// The timeout of one step of the start on a busy machine; on an idle one, each takes a few
/// seconds.
pub(super) const STEP: Duration = Duration::from_secs(120);

/// Waits until `probe` returns `Ok`; its `Err` describes the state it saw. If `process` ends, or
/// the deadline passes, the error includes the end of its log.
pub(super) async fn until<T, F>(
    supervisor: &Supervisor,
    process: &str,
    what: &str,
    mut probe: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T, String>>,
{
    let start = Instant::now();
    loop {
        supervisor.ensure_running(process)?;
        let last = match probe().await {
            Ok(answer) => return Ok(answer),
            Err(last) => last,
        };
        if start.elapsed() > STEP {
            return Err(Error::NotReady {
                what: what.to_owned(),
                after: start.elapsed(),
                last,
                log: Some(supervisor.log_tail(process)),
            });
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Waits until an API server reports that it is ready.
pub(super) async fn api_ready(
    supervisor: &Supervisor,
    process: &str,
    client: &Client,
) -> Result<()> {
    until(supervisor, process, &format!("{process} ready"), || {
        get(client, "/readyz")
    })
    .await
}

/// Waits until the process accepts connections on its first port.
pub(super) async fn serving(supervisor: &Supervisor, process: &str) -> Result<()> {
    let Some(port) = supervisor.port(process)? else {
        return Ok(());
    };
    until(
        supervisor,
        process,
        &format!("{process} serving on port {port}"),
        || async move {
            let address = (std::net::Ipv4Addr::LOCALHOST, port);
            let connected = tokio::net::TcpStream::connect(address).await;
            connected.map(drop).map_err(|error| error.to_string())
        },
    )
    .await
}

/// Sends a GET to a path; the error is for people.
pub(super) async fn get(client: &Client, path: &str) -> Result<(), String> {
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    // A server that hangs must not exceed the deadline.
    let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
    match answer {
        Ok(answer) => answer.map(drop).map_err(|error| describe(&error)),
        Err(_) => Err(format!("no answer to GET {path} within 5 s")),
    }
}
