//! The ceiling: merge patches per second that the same API server accepts on the same bindings from
//! a client that does nothing else.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;

use super::cost::{CpuCost, Moment};
use super::load::IN_FLIGHT;
use super::plane::BenchPlane;
use super::report::{Milliseconds, rate};

/// The size of Muster's record.
const RECORD_BYTES: usize = 400;

/// The rate of one patch of every binding of a namespace.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Raw {
    pub(super) patches: usize,
    pub(super) per_second: f64,
    pub(super) latency: Milliseconds,
    pub(super) cost: CpuCost,
}

/// Patches an annotation of every binding of a namespace. The caller pauses other writers.
pub(super) async fn patch_all(
    plane: &BenchPlane,
    namespace: &str,
    round: &str,
) -> anyhow::Result<Raw> {
    let names: Vec<String> = plane
        .seen
        .lock()
        .of(namespace)
        .map(|((_, name), _)| name.clone())
        .collect();
    let text = format!("{round}{}", "x".repeat(RECORD_BYTES));
    let body =
        serde_json::json!({"metadata": {"annotations": {"bench.muster.io/raw": text}}}).to_string();
    let moment = Moment::now(&plane.testbed);
    let start = Instant::now();
    let patches = names
        .iter()
        .map(|name| patch(plane, namespace, name, body.clone()));
    let took: Vec<Duration> = stream::iter(patches)
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await?;
    Ok(Raw {
        patches: took.len(),
        per_second: rate(took.len(), start.elapsed()),
        latency: Milliseconds::of(took),
        cost: moment.cost(&plane.testbed),
    })
}

async fn patch(
    plane: &BenchPlane,
    namespace: &str,
    name: &str,
    body: String,
) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let uri =
        format!("/apis/work.karmada.io/v1alpha2/namespaces/{namespace}/resourcebindings/{name}");
    let request = http::Request::patch(uri)
        .header("content-type", "application/merge-patch+json")
        .body(body.into_bytes())?;
    plane
        .client
        .request_text(request)
        .await
        .with_context(|| format!("patch binding {name}"))?;
    Ok(start.elapsed())
}
