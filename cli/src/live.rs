//! Reads the state that the leader decides on, with the rights of the user.

use crate::acts::FIELD_MANAGER;
use anyhow::{Context, Result};
use controller::live::{self, LiveChange, LiveObjects, LiveReadOptions};
use engine::Time;
use jiff::Timestamp;
use kube::Client;
use std::time::Duration;

/// For how long members are waited for, at most.
const MEMBERS: Duration = Duration::from_secs(10);

/// Returns what the leader sees, and when that was. `changes` will be tried on it.
pub(crate) async fn read(
    client: &Client,
    timeout: Duration,
    changes: &[LiveChange],
) -> Result<(LiveObjects, Time)> {
    let now = Time(Timestamp::now().as_millisecond());
    let options = LiveReadOptions {
        timeout,
        members_within: MEMBERS.min(timeout),
        user_agent: FIELD_MANAGER.to_owned(),
    };
    let observed = live::read(client, &options, changes, now).await;
    let observed = observed.context("the state that Muster decides on cannot be read")?;
    Ok((observed, now))
}
