//! `drain` and `undrain`: no new jobs in a cluster or on a node, and those that run there run elsewhere.
//!
//! A cluster gets the annotation that Muster follows. A node is in a member, where Muster's rights do not count:
//! it is cordoned and its pods are evicted through Karmada's cluster proxy with the rights of the user, as
//! `kubectl drain` does it.

mod cluster;
mod node;
#[cfg(test)]
mod tests;

use crate::args::{DrainCommand, KubectlConnection, UndrainCommand};
use crate::connect;
use anyhow::{Result, bail};
use engine::counted;
use std::process::ExitCode;
use std::time::Duration;

/// Time between two looks at what leaves.
const LOOK: Duration = Duration::from_secs(2);

/// What is drained: `CLUSTER` or `CLUSTER/NODE`.
enum DrainPlace<'a> {
    Cluster(&'a str),
    Node { cluster: &'a str, node: &'a str },
}

impl<'a> DrainPlace<'a> {
    fn of(text: &'a str) -> Result<Self> {
        match text.split_once('/') {
            None if !text.is_empty() => Ok(Self::Cluster(text)),
            Some((cluster, node))
                if !cluster.is_empty() && !node.is_empty() && !node.contains('/') =>
            {
                Ok(Self::Node { cluster, node })
            }
            _ => bail!("{text:?} is neither CLUSTER nor CLUSTER/NODE"),
        }
    }
}

/// Waits until `count` finds none, and says how many are left at `place` whenever that changes.
async fn until_none_left(
    noun: &str,
    place: &str,
    count: impl AsyncFn() -> Result<usize>,
) -> Result<()> {
    let mut before = 0;
    loop {
        let left = count().await?;
        if left == 0 {
            return Ok(());
        }
        if left != before {
            eprintln!("{} left {place}", counted(left, noun));
            before = left;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Runs `drain`.
pub(crate) async fn drain(
    command: &DrainCommand,
    connection: &KubectlConnection,
) -> Result<ExitCode> {
    let place = DrainPlace::of(&command.place)?;
    let client = connect::connect(connection).await?;
    match place {
        DrainPlace::Cluster(name) => cluster::drain(name, command, &client).await,
        DrainPlace::Node { cluster, node } => node::drain(cluster, node, command, &client).await,
    }
}

/// Runs `undrain`.
pub(crate) async fn undrain(
    command: &UndrainCommand,
    connection: &KubectlConnection,
) -> Result<ExitCode> {
    let place = DrainPlace::of(&command.place)?;
    let client = connect::connect(connection).await?;
    match place {
        DrainPlace::Cluster(name) => cluster::undrain(name, &command.write, &client).await,
        DrainPlace::Node { cluster, node } => {
            node::undrain(cluster, node, &command.write, &client).await
        }
    }
}
