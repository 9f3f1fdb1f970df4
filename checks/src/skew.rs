//! How far the clock of an API server is from that of this machine.

use crate::CheckFinding;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use runtime::with_deadline;
use std::time::Duration;

/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// A larger difference is reported. The header has whole seconds.
const SKEW_SECONDS: i64 = 5;

/// Compares the Date of an answer with the time here; a server without one has no finding.
pub(crate) async fn check(client: &Client, whose: &str) -> Option<CheckFinding> {
    finding(date(client).await?, Timestamp::now(), whose)
}

/// Returns the Date of an answer of the server.
pub(crate) async fn date(client: &Client) -> Option<Timestamp> {
    let request = http::Request::get("/version").body(Body::empty()).ok()?;
    let answer = with_deadline(client.send(request), LIMIT).await.ok()?;
    parse(answer.headers().get("date")?.to_str().ok()?)
}

/// Reads the header `Date`.
pub(crate) fn parse(date: &str) -> Option<Timestamp> {
    Some(jiff::fmt::rfc2822::parse(date).ok()?.timestamp())
}

pub(crate) fn finding(theirs: Timestamp, now: Timestamp, whose: &str) -> Option<CheckFinding> {
    let skew = theirs.as_second() - now.as_second();
    (skew.abs() > SKEW_SECONDS).then(|| {
        CheckFinding::warns(
            "clock",
            format!("the clock of {whose} differs from this machine's by {skew} s"),
            "deadlines, times to live and the times that users see are wrong by as much",
            "synchronize the clocks (NTP) of both machines",
        )
    })
}
