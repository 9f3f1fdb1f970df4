//! `top`: queues, pools and jobs in one screen, again and again.
//!
//! The tables are those of the other commands. On a terminal they are drawn on its second screen, so that the first
//! one is as it was afterwards; elsewhere one screen follows the other.

use crate::args::{JobFilter, JobsCommand, KubectlConnection, ListArgs, TopCommand};
use crate::args::{PoolsCommand, QueueCommand};
use crate::{connect, jobs, output, pools, queue};
use anyhow::{Error, Result};
use jiff::{Timestamp, Unit};
use kube::Client;
use std::io::{self, IsTerminal};
use tokio::time::sleep;

/// Goes to the second screen, hides the cursor, and cuts lines that are too long.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Undoes all of that.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Goes to the first line.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line, and what is below the last one.
const REST_OF_LINE: &str = "\x1b[K\r\n";
const REST: &str = "\x1b[J";

/// Runs the command. Without `--once` it ends when the user ends it, or when the server does not answer.
pub(crate) async fn run(command: &TopCommand, connection: &KubectlConnection) -> Result<()> {
    let client = connect::connect(connection).await?;
    if command.once {
        return Ok(output::print(&screen(command, &client).await?)?);
    }
    let is_terminal = io::stdout().is_terminal();
    // What is wrong at once is said on the first screen.
    let first = screen(command, &client).await?;
    if is_terminal {
        output::print(ENTER)?;
    }
    let ended = tokio::select! {
        ended = go_on(command, &client, first, is_terminal) => ended,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Error::from),
    };
    if is_terminal {
        output::print(LEAVE)?;
    }
    ended
}

async fn go_on(
    command: &TopCommand,
    client: &Client,
    mut text: String,
    is_terminal: bool,
) -> Result<()> {
    loop {
        match is_terminal {
            true => output::print(&drawn(&text))?,
            false => output::print(&format!("{text}\n"))?,
        }
        sleep(command.every.0).await;
        text = screen(command, client).await?;
    }
}

/// Returns what draws a screen over the one before.
fn drawn(text: &str) -> String {
    let lines = text.lines().map(|line| format!("{line}{REST_OF_LINE}"));
    format!("{HOME}{}{REST}", lines.collect::<String>())
}

/// Returns one screen. Users who may not read queues of others see their own, and no pools.
async fn screen(command: &TopCommand, client: &Client) -> Result<String> {
    let list = ListArgs::default();
    let queues = queue::run(&queues_of(list, false), client).await;
    let queues = match queues {
        Err(error) if connect::is_forbidden(&error) => {
            queue::run(&queues_of(list, true), client).await?
        }
        queues => queues?,
    };
    let pools = pools::run(&PoolsCommand { fits: None, list }, client).await;
    let pools = match pools {
        Err(error) if connect::is_forbidden(&error) => String::new(),
        pools => format!("{}\n", pools?),
    };
    let jobs = JobsCommand {
        filter: JobFilter {
            all_namespaces: command.all_namespaces,
            mine: command.mine,
            ..JobFilter::default()
        },
        list,
        since: Some("1h".parse().map_err(Error::msg)?),
        ..JobsCommand::default()
    };
    let jobs = jobs::run(&jobs, client).await?;
    let now = Timestamp::now().round(Unit::Second)?;
    Ok(format!(
        "{now}\n\n{queues}\n{pools}{}",
        first(&jobs, command.jobs)
    ))
}

fn queues_of(list: ListArgs, mine: bool) -> QueueCommand {
    QueueCommand::List {
        list,
        selector: None,
        mine,
    }
}

/// Returns the header and the first rows of a table, and how many are left out.
fn first(table: &str, rows: usize) -> String {
    let all = table.lines().count();
    let shown: String = table
        .lines()
        .take(rows + 1)
        .map(|line| format!("{line}\n"))
        .collect();
    match all.saturating_sub(rows + 1) {
        0 => shown,
        more => format!("{shown}and {more} more\n"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::Span;
    use crate::jobs::tests::{client, plane};
    use runtime::testing::Fault;
    use serde_json::json;

    fn command(jobs: usize) -> TopCommand {
        TopCommand {
            all_namespaces: false,
            mine: false,
            jobs,
            every: Span::default(),
            once: true,
        }
    }

    #[tokio::test]
    async fn a_screen_has_queues_pools_and_jobs() {
        let api = plane();
        api.put(
            "/apis/muster.io/v1alpha2/capacitypolicies/vision",
            json!({"spec": {}, "status": {"summary": {"gpus": "48/64", "jobs": "1R/3Q"}}}),
        );
        let pool = json!({
            "spec": {"cluster": "gpu-a", "class": "h100"},
            "status": {"device": "nvidia.com/gpu", "total": 64, "free": 16, "health": "Ready"},
        });
        api.put("/apis/muster.io/v1alpha2/gpupools/gpu-a.h100", pool);
        let text = screen(&command(2), &client(&api)).await.unwrap();
        for wanted in ["48/64", "gpu-a.h100", "and 3 more\n"] {
            assert!(text.contains(wanted), "no {wanted} in {text}");
        }
        // The other users' queues and the pools may be secret.
        let forbidden = Fault::Status(403, "forbidden");
        api.fault(9, forbidden, |request| {
            request.path.contains("capacitypolicies") || request.path.contains("gpupools")
        });
        let text = screen(&command(9), &client(&api)).await.unwrap();
        assert!(
            text.contains("No queues found in namespace vision"),
            "{text}"
        );
        assert!(
            !text.contains("h100") && text.contains("WaitingForQuota"),
            "{text}"
        );
    }

    #[test]
    fn a_screen_is_drawn_over_the_one_before() {
        let drawn = drawn("a\nb\n");
        assert_eq!(drawn, "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J");
        // All that is switched on is switched off again.
        for (on, off) in [("1049h", "1049l"), ("25l", "25h"), ("7l", "7h")] {
            assert!(ENTER.contains(on) && LEAVE.contains(off));
        }
    }
}
