//! GpuPools: what each class of nodes in each member has, uses and has free, for people.
//!
//! ```text
//! live view ─► desired ─┐
//!                       ├─► difference ─► create | status (≤ 1/s each) | delete
//! GpuPools (watched) ───┘
//! ```
//!
//! This is output only: no decision reads it. A GpuPool is written only if something other than the time
//! differs. `lastSeen` changes with such a write, and says since when the data is old if the health is not
//! Ready. A GpuPool is deleted if its cluster left, or its class is gone from a cluster with a complete
//! view; while a member is away its pools stay, with that health. The leader exports the same as metrics.

mod metrics;

use crate::carry_out::SchedulerOptions;
use crate::live::{Live, LivePools};
use crate::pools::metrics::PoolMetrics;
use crds::gpu_pool::{
    self, AvoidedNode, FreeNodes, GpuPool, GpuPoolSpec, GpuPoolStatus, MOST_AVOIDED, health,
};
use crds::node_health::NodeAvoidance;
use engine::capacity::PoolSummary;
use engine::{ClusterName, NodeName, ResourceName, Resources};
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ApiResource, DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use members::{Members, ViewHealth};
use runtime::client::{CallError, CallFault, with_deadline};
use runtime::lease::Leadership;
use runtime::status_writer::{StatusTarget, StatusWriter, StatusWriterOptions};
use runtime::watch::{Delta, WatchOptions, watch};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Time between two checks of the live view.
const TICK: Duration = Duration::from_secs(1);
/// Checks after which pools are compared even if the view has not changed: the health of members changes by
/// silence.
const TICKS_PER_FULL_CHECK: u32 = 5;
/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// Most calls at a time.
const CONCURRENT: usize = 4;

/// Maintains the GpuPools until `cancel`.
pub(crate) fn spawn(
    client: Client,
    live: Live,
    members: Members,
    options: &SchedulerOptions,
    cancel: CancellationToken,
) {
    let leadership = options.term.as_ref().map(|term| term.leadership.clone());
    let writer = StatusWriterOptions {
        in_flight: CONCURRENT,
        leadership: leadership.clone(),
        ..StatusWriterOptions::default()
    };
    let (sink, deltas) = mpsc::channel(256);
    watch(
        Api::<GpuPool>::all(client.clone()),
        WatchOptions::default(),
        "gpupools",
        |delta| delta,
        sink,
        cancel.clone(),
    );
    let keeper = Keeper {
        writer: StatusWriter::spawn_with(client.clone(), writer, cancel.clone()),
        client,
        live,
        members,
        leadership,
        metrics: PoolMetrics::new(&options.registry),
        observed: BTreeMap::new(),
        listed: false,
        seen: None,
    };
    runtime::task::spawn(cancel.run_until_cancelled_owned(keeper.run(deltas)));
}

struct Keeper {
    client: Client,
    live: Live,
    members: Members,
    writer: StatusWriter,
    leadership: Option<Leadership>,
    metrics: PoolMetrics,
    /// GpuPools as the watch shows them, by name.
    observed: BTreeMap<String, GpuPool>,
    listed: bool,
    /// Version of the live view at the last check.
    seen: Option<u64>,
}

/// Its term is over; the next leader exports the pools.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.metrics.clear();
    }
}

impl Keeper {
    async fn run(mut self, mut deltas: mpsc::Receiver<Delta<GpuPool>>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut until_full = 0_u32;
        loop {
            tokio::select! {
                Some(delta) = deltas.recv() => self.observe(delta),
                _ = ticks.tick() => {
                    if until_full == 0 {
                        until_full = TICKS_PER_FULL_CHECK;
                        self.seen = None;
                    }
                    until_full -= 1;
                    self.look().await;
                }
            }
        }
    }

    fn observe(&mut self, delta: Delta<GpuPool>) {
        self.seen = None;
        match delta {
            Delta::Upserted(pool) => {
                self.observed.insert(pool.name_any(), pool);
            }
            Delta::Gone(key) => {
                self.observed.remove(&key.name);
            }
            Delta::Listed => self.listed = true,
        }
    }

    async fn look(&mut self) {
        let leads = self.leadership.as_ref().is_none_or(Leadership::is_leading);
        if !leads {
            self.metrics.clear();
        }
        if !leads || !self.listed {
            return;
        }
        let Some(pools) = self.live.pools_since(self.seen).filter(|pools| pools.ready) else {
            return;
        };
        self.seen = Some(pools.version);
        let now = Time(jiff::Timestamp::now());
        self.metrics.record(&pools);
        let desired = desired(&pools, &|cluster| self.members.health(cluster));
        let writes = writes(&desired, &self.observed, &pools.clusters, &now);
        futures::stream::iter(writes)
            .for_each_concurrent(CONCURRENT, |write| self.write(write))
            .await;
    }

    async fn write(&self, write: PoolWrite) {
        let pools: Api<GpuPool> = Api::all(self.client.clone());
        let (name, done) = match write {
            PoolWrite::Create(pool) => {
                let params = PostParams::default();
                let done = with_deadline(pools.create(&params, &pool), LIMIT)
                    .await
                    .map(|_| ());
                (pool.name_any(), done)
            }
            PoolWrite::Delete(name) => {
                self.writer.forget(&target(&name, Some("status")));
                let params = DeleteParams::default();
                let done = with_deadline(pools.delete(&name, &params), LIMIT)
                    .await
                    .map(|_| ());
                (name, done)
            }
            PoolWrite::Spec(name, spec) => {
                return self
                    .writer
                    .write(target(&name, None), json!({"spec": spec}));
            }
            PoolWrite::Status(name, status) => {
                return self
                    .writer
                    .write(target(&name, Some("status")), json!({"status": status}));
            }
        };
        if let Err(error) = done {
            report(&name, &error);
        }
    }
}

/// The next check tries again.
fn report(name: &str, error: &CallError) {
    match error.fault() {
        // Another client was faster, or the kind does not exist yet.
        CallFault::Conflict | CallFault::NotFound | CallFault::NoSuchKind => {}
        _ => tracing::warn!(
            gpupool = name,
            error = error.message(),
            "cannot be written; trying again"
        ),
    }
}

fn target(name: &str, subresource: Option<&'static str>) -> StatusTarget {
    StatusTarget {
        api_resource: ApiResource::erase::<GpuPool>(&()),
        namespace: None,
        name: name.to_owned(),
        subresource,
        strategic: false,
    }
}

/// A change to make.
#[derive(Debug, Clone, PartialEq)]
enum PoolWrite {
    /// Without its status, which follows once the watch shows the object.
    Create(Box<GpuPool>),
    Spec(String, GpuPoolSpec),
    Status(String, GpuPoolStatus),
    Delete(String),
}

/// Returns what GpuPools should contain, except for `lastSeen`.
fn desired(
    pools: &LivePools,
    health_of: &dyn Fn(&ClusterName) -> Option<ViewHealth>,
) -> BTreeMap<String, (GpuPoolSpec, GpuPoolStatus)> {
    let known = pools
        .pools
        .iter()
        .filter(|pool| pools.clusters.contains_key(&pool.cluster));
    known
        .map(|pool| {
            let name = gpu_pool::name(pool.cluster.as_str(), pool.class.as_str());
            let mut status = status(pool, health_of(&pool.cluster));
            let avoided = pools
                .avoided
                .get(&(pool.cluster.clone(), pool.class.clone()));
            show_avoided(&mut status, avoided.into_iter().flatten());
            (name, (spec(pool), status))
        })
        .collect()
}

fn spec(pool: &PoolSummary) -> GpuPoolSpec {
    GpuPoolSpec {
        cluster: pool.cluster.to_string(),
        class: pool.class.to_string(),
        device: pool
            .device
            .as_ref()
            .map_or(ResourceName::CPU.to_owned(), ToString::to_string),
    }
}

fn status(pool: &PoolSummary, view: Option<ViewHealth>) -> GpuPoolStatus {
    let cpu = ResourceName::new(ResourceName::CPU);
    let device = pool.device.as_ref().unwrap_or(&cpu);
    let units = |resources: &Resources| {
        let amount = resources.amount_of(device).0;
        if *device == cpu {
            amount / 1000
        } else {
            amount
        }
    };
    let histogram = pool.histogram.iter().rev().map(|(free, nodes)| FreeNodes {
        free: *free,
        nodes: i64::from(*nodes),
    });
    GpuPoolStatus {
        nodes: i64::from(pool.nodes),
        usable_nodes: i64::from(pool.usable_nodes),
        total: units(&pool.total),
        allocatable: units(&pool.allocatable),
        used: units(&pool.used),
        free: units(&pool.free),
        histogram: histogram.collect(),
        largest_free_node: pool.largest_free_node,
        fragmentation_percent: i32::try_from(pool.fragmentation_permille / 10).ok(),
        last_seen: None,
        health: match view {
            Some(ViewHealth::Ready) => health::READY,
            Some(ViewHealth::Stale) => health::STALE,
            Some(ViewHealth::Unreachable) | None => health::UNREACHABLE,
        }
        .to_owned(),
        ..GpuPoolStatus::default()
    }
}

fn show_avoided<'a>(
    status: &mut GpuPoolStatus,
    avoided: impl Iterator<Item = (&'a NodeName, &'a NodeAvoidance)>,
) {
    let all = avoided.map(|(node, avoidance)| AvoidedNode {
        node: node.to_string(),
        avoidance: avoidance.clone(),
    });
    let mut all: Vec<AvoidedNode> = all.collect();
    status.avoided = i64::try_from(all.len()).unwrap_or(i64::MAX);
    all.truncate(MOST_AVOIDED);
    status.avoided_nodes = all;
}

/// Returns the writes that turn `observed` into `desired`.
fn writes(
    desired: &BTreeMap<String, (GpuPoolSpec, GpuPoolStatus)>,
    observed: &BTreeMap<String, GpuPool>,
    clusters: &BTreeMap<ClusterName, bool>,
    now: &Time,
) -> Vec<PoolWrite> {
    let mut writes = Vec::new();
    for (name, (spec, status)) in desired {
        let Some(pool) = observed.get(name) else {
            writes.push(PoolWrite::Create(Box::new(GpuPool::new(
                name,
                spec.clone(),
            ))));
            continue;
        };
        if pool.spec != *spec {
            writes.push(PoolWrite::Spec(name.clone(), spec.clone()));
        }
        if let Some(status) = newer(pool.status.as_ref(), status, now) {
            writes.push(PoolWrite::Status(name.clone(), status));
        }
    }
    let is_stale = |(name, pool): &(&String, &GpuPool)| {
        // A cluster that has not sent all its nodes yet may still have the class.
        let all_told = clusters
            .get(&ClusterName::new(&pool.spec.cluster))
            .copied()
            .unwrap_or(true);
        !desired.contains_key(*name) && all_told
    };
    let stale = observed.iter().filter(is_stale);
    writes.extend(stale.map(|(name, _)| PoolWrite::Delete(name.clone())));
    writes
}

/// Returns the status to write, if `observed` and `desired` differ in more than the time.
fn newer(
    observed: Option<&GpuPoolStatus>,
    desired: &GpuPoolStatus,
    now: &Time,
) -> Option<GpuPoolStatus> {
    let last_seen = observed.and_then(|status| status.last_seen.clone());
    let untimed = observed.map(|status| GpuPoolStatus {
        last_seen: None,
        ..status.clone()
    });
    if untimed.as_ref() == Some(desired) {
        return None;
    }
    // A pool that is not seen any more was last seen when it was Ready, not now.
    let was_ready = observed.is_some_and(|status| status.health == health::READY);
    let seen = match desired.health == health::READY || was_ready {
        true => Some(now.clone()),
        false => last_seen,
    };
    Some(GpuPoolStatus {
        last_seen: seen,
        ..desired.clone()
    })
}

#[cfg(test)]
mod tests;
