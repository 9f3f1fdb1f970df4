//! `pods`: the pods of a job in all of its clusters.

use super::{FoundPods, JobPod, find, status};
use crate::age::age;
use crate::args::{Format, PodsCommand};
use crate::output;
use anyhow::Result;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use std::process::ExitCode;

const COLUMNS: [&str; 11] = [
    "RANK", "TASK", "POD", "CLUSTER", "NODE", "STATUS", "READY", "RESTARTS", "DEVICES", "AGE",
    "REASON",
];
/// The columns of `-o wide` besides these.
const WIDE: [&str; 2] = ["IP", "IMAGE"];

/// The label with the cluster of a pod, in the output for programs.
const CLUSTER: &str = "muster.io/cluster";
/// The one with its rank.
const RANK: &str = "muster.io/rank";

/// Runs the command. It fails if a cluster does not show its pods.
pub(crate) async fn run(command: &PodsCommand, client: &Client) -> Result<ExitCode> {
    let found = find(&command.job, client).await?;
    found.warn();
    let chosen = command.choice.of(&found)?;
    if chosen.is_empty() {
        eprintln!("{}", found.no_pods());
    } else {
        output::print(&text(&chosen, command, Timestamp::now())?)?;
    }
    Ok(code(&found))
}

fn code(found: &FoundPods) -> ExitCode {
    match found.away.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn text(pods: &[&JobPod], command: &PodsCommand, now: Timestamp) -> Result<String> {
    Ok(match command.output.format {
        Format::Name => pods
            .iter()
            .map(|pod| format!("{}/{}\n", pod.cluster, pod.name()))
            .collect(),
        format @ (Format::Json | Format::Yaml) => {
            let items = pods
                .iter()
                .map(|pod| object(pod))
                .collect::<Result<Vec<Value>>>()?;
            output::machine(
                &json!({"apiVersion": "v1", "kind": "List", "items": items}),
                format,
            )?
        }
        format => {
            let wide = format == Format::Wide;
            let header = COLUMNS.iter().chain(WIDE.iter().filter(|_| wide));
            let header = (!command.no_headers).then(|| header.copied().collect());
            output::table(header, pods.iter().map(|pod| row(pod, wide, now)))
        }
    })
}

/// Returns the pod as its cluster has it, with annotations that say the cluster and the rank.
fn object(pod: &JobPod) -> Result<Value> {
    let mut object = serde_json::to_value(&pod.pod)?;
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Pod");
    object["metadata"]["annotations"][CLUSTER] = json!(pod.cluster);
    object["metadata"]["annotations"][RANK] = json!(pod.rank.to_string());
    Ok(object)
}

fn row(pod: &JobPod, wide: bool, now: Timestamp) -> Vec<String> {
    let shown = status::of(&pod.pod);
    let spec = pod.pod.spec.as_ref();
    let mut cells = vec![
        pod.rank.to_string(),
        pod.task.clone(),
        pod.name(),
        pod.cluster.clone(),
        spec.and_then(|spec| spec.node_name.clone())
            .unwrap_or_default(),
        shown.status,
        shown.ready,
        shown.restarts.to_string(),
        status::devices(&pod.pod),
        age(pod.pod.metadata.creation_timestamp.as_ref(), now),
        shown.reason,
    ];
    if wide {
        let status = pod.pod.status.as_ref();
        let image = spec.and_then(|spec| spec.containers.first()?.image.clone());
        cells.push(
            status
                .and_then(|status| status.pod_ip.clone())
                .unwrap_or_default(),
        );
        cells.push(image.unwrap_or_default());
    }
    cells
}

#[cfg(test)]
mod tests;
