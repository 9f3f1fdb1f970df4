//! `simulate`: what would happen after a change, from the state that the leader decides on.
//!
//! The controller's own functions build the state of a leader from what is listed now, and its engine decides twice:
//! as things are, and with the change. What differs is shown. Nothing is written.

mod manifests;
mod report;

pub(crate) use manifests::patch as queue_patch;

use crate::args::{ChangeArgs, Format, KubectlConnection, SimulateCommand};
use crate::{connect, live, output};
use anyhow::Result;
use controller::live::{LiveAnswer, LiveChange, LiveObjects, LiveState};
use engine::{ClusterName, JobKey, NodeName, Time};
use kube::Client;
use manifests::QueueEdit;
use report::{SimulatedJob, Simulation};
use std::time::Duration;

/// Runs the command and returns its output.
pub(crate) async fn run(
    command: &SimulateCommand,
    connection: &KubectlConnection,
) -> Result<String> {
    let client = connect::connect(connection).await?;
    let timeout = connection.timeout_or_hour();
    let args = &command.changes;
    // Which namespaces may use which queues is asked for jobs that are submitted, so these are known before.
    let (jobs, left_out) = manifests::jobs(&args.job, client.default_namespace())?;
    let edits = manifests::queues(&args.filename)?;
    let simulation = simulated(args, jobs, edits, &client, timeout).await?;
    for note in left_out.iter().chain(&simulation.notes) {
        eprintln!("note: {note}");
    }
    let format = command.output.format;
    Ok(match format {
        Format::Json | Format::Yaml => output::machine(&simulation, format)?,
        Format::Name => simulation.names(),
        Format::Table | Format::Wide => {
            simulation.table(format == Format::Wide, !command.no_headers)
        }
    })
}

async fn simulated(
    args: &ChangeArgs,
    jobs: Vec<LiveChange>,
    edits: Vec<QueueEdit>,
    client: &Client,
    timeout: Duration,
) -> Result<Simulation> {
    let (observed, now) = live::read(client, timeout, &jobs).await?;
    let mut changes = Vec::new();
    for edit in edits {
        changes.push(edit.into_change(&observed)?);
    }
    if let Some(queue) = &args.queue {
        changes.push(manifests::set(queue, &args.set, &observed)?);
    }
    let gone = args.without_cluster.iter();
    changes.extend(gone.map(|name| LiveChange::WithoutCluster(ClusterName::new(name))));
    changes.extend(
        args.without_node.iter().map(|of| {
            LiveChange::WithoutNode(ClusterName::new(&of.cluster), NodeName::new(&of.node))
        }),
    );
    changes.extend(jobs);
    compare(&observed, &changes, now)
}

/// Returns what the changes make a difference for.
fn compare(observed: &LiveObjects, changes: &[LiveChange], now: Time) -> Result<Simulation> {
    let mut changed = LiveState::new(observed, now);
    let mut submitted: Vec<JobKey> = Vec::new();
    for change in changes {
        submitted.extend(changed.change(change)?);
    }
    let without = LiveState::new(observed, now).follow();
    let with = changed.follow();
    let jobs = with.iter().filter_map(|(key, fate)| {
        let is_new = submitted.contains(key);
        let answer = |advice: bool| match advice {
            true => changed.explain(key),
            false => changed.state(key).map(LiveAnswer::from),
        };
        SimulatedJob::of(key, fate, without.get(key), is_new, answer)
    });
    let mut jobs: Vec<SimulatedJob> = jobs.collect();
    jobs.sort_by_key(|job| !job.submitted);
    Ok(Simulation {
        jobs,
        notes: observed.notes.clone(),
        now,
    })
}
