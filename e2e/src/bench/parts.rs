//! The time that gangs over several clusters take from placement to the dispatch of all parts, and
//! the API server's writes for each. Gangs run one after another.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::bail;
use serde::Serialize;
use serde_json::{Value, json};

use super::load::{Batch, binding_name};
use super::plane::BenchPlane;
use super::report::{Milliseconds, per_job};
use crate::harness::jobs::{TestGang, annotated};
use crate::harness::kinds::{BATCH_JOB, PROPAGATION_POLICY};

/// The timeout of one gang.
const DEADLINE: Duration = Duration::from_secs(60);
const PERIOD: Duration = Duration::from_millis(10);
/// The time in which the writes of a dispatched gang come to an end.
const SETTLE: Duration = Duration::from_secs(3);

/// The numbers of gangs with one pod in each of several clusters.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartsResults {
    pub(super) clusters: usize,
    pub(super) gangs: usize,
    /// Time from the first event with the placement to the first with the dispatch.
    pub(super) placed_to_dispatched: Milliseconds,
    /// Time from the submission to the dispatch.
    pub(super) submitted_to_dispatched: Milliseconds,
    /// Writes of the control plane's API server for each gang, by verb and resource.
    pub(super) writes_per_gang: BTreeMap<String, f64>,
}

/// Submits `gangs` gangs, each after the previous one is dispatched.
pub(super) async fn measure(
    plane: &BenchPlane,
    clusters: usize,
    gangs: usize,
) -> anyhow::Result<PartsResults> {
    let batch = Batch::managed(plane, &format!("bench-parts-{clusters}")).await?;
    batch.capability(plane, clusters * (gangs + 1)).await?;
    let spread = json!({
        "metadata": {"name": "spread", "namespace": batch.name},
        "spec": {
            "schedulerName": "muster",
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "placement": {"spreadConstraints": [
                {"spreadByField": "cluster", "minGroups": clusters, "maxGroups": clusters},
            ]},
        },
    });
    plane.karmada.create(PROPAGATION_POLICY, &spread).await?;
    // The first gang creates the objects that all gangs need in the members, so it is not measured.
    one(plane, &batch, clusters, 0).await?;
    tokio::time::sleep(SETTLE).await;
    let before = plane.api_writes().await?;
    let mut placed_to_dispatched = Vec::new();
    let mut submitted_to_dispatched = Vec::new();
    for number in 1..=gangs {
        let (placed, submitted) = one(plane, &batch, clusters, number).await?;
        placed_to_dispatched.push(placed);
        submitted_to_dispatched.push(submitted);
    }
    tokio::time::sleep(SETTLE).await;
    let writes = plane.api_writes().await?.since(&before);
    Ok(PartsResults {
        clusters,
        gangs,
        placed_to_dispatched: Milliseconds::of(placed_to_dispatched),
        submitted_to_dispatched: Milliseconds::of(submitted_to_dispatched),
        writes_per_gang: per_job(&writes, gangs),
    })
}

/// Measures one gang: the time from its placement, and from its submission.
async fn one(
    plane: &BenchPlane,
    batch: &Batch,
    clusters: usize,
    number: usize,
) -> anyhow::Result<(Duration, Duration)> {
    let gang = gang(batch, clusters, number)?;
    let name = gang["metadata"]["name"].as_str().unwrap_or_default();
    let binding = (batch.name.clone(), binding_name(name));
    let start = Instant::now();
    plane.karmada.create(BATCH_JOB, &gang).await?;
    loop {
        let seen = plane.seen.lock().get(&binding).copied();
        let times = seen.and_then(|seen| Some((seen.placed?, seen.dispatched?)));
        if let Some((placed, dispatched)) = times {
            return Ok((dispatched - placed, dispatched - start));
        }
        if start.elapsed() > DEADLINE {
            bail!("{name} is not dispatched after {DEADLINE:?}");
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn gang(batch: &Batch, clusters: usize, number: usize) -> anyhow::Result<Value> {
    let gang = TestGang {
        namespace: batch.name.clone(),
        name: format!("g{number:03}"),
        queue: Some(batch.name.clone()),
        pods: u32::try_from(clusters)?,
        gpus: 1,
        product: None,
        run_for: None,
        fail: false,
        priority_class: None,
    };
    let mut gang = annotated(gang.batch(), "muster.io/split", "Allowed");
    gang["spec"]["completionMode"] = json!("Indexed");
    Ok(gang)
}
