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
//! view; while a member is away its pools stay, with that health.

use crate::carry_out::SchedulerOptions;
use crate::live::{Live, LivePools};
use crds::gpu_pool::{self, FreeNodes, GpuPool, GpuPoolSpec, GpuPoolStatus, health};
use engine::capacity::PoolSummary;
use engine::{ClusterName, ResourceName, Resources};
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
    /// GpuPools as the watch shows them, by name.
    observed: BTreeMap<String, GpuPool>,
    listed: bool,
    /// Version of the live view at the last check.
    seen: Option<u64>,
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
        if !leads || !self.listed {
            return;
        }
        let Some(pools) = self.live.pools_since(self.seen).filter(|pools| pools.ready) else {
            return;
        };
        self.seen = Some(pools.version);
        let now = Time(jiff::Timestamp::now());
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
            (name, (spec(pool), status(pool, health_of(&pool.cluster))))
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
        fragmentation: format!("{}%", pool.fragmentation_permille / 10),
        last_seen: None,
        health: match view {
            Some(ViewHealth::Ready) => health::READY,
            Some(ViewHealth::Stale) => health::STALE,
            Some(ViewHealth::Unreachable) | None => health::UNREACHABLE,
        }
        .to_owned(),
        conditions: Vec::new(),
    }
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use engine::PoolClass;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    fn summary(device: Option<&str>, free: &str) -> PoolSummary {
        let resources = |amount: &str| {
            Resources::parse([(device.unwrap_or("cpu"), amount), ("memory", "8Gi")]).unwrap()
        };
        PoolSummary {
            cluster: ClusterName::new("m1"),
            class: PoolClass::new("a100"),
            device: device.map(ResourceName::new),
            nodes: 2,
            usable_nodes: 2,
            total: resources("16"),
            allocatable: resources("16"),
            used: resources("9"),
            free: resources(free),
            assumed: Resources::new(),
            histogram: BTreeMap::from([(0, 1), (7, 1)]),
            largest_free_node: 7,
            fragmentation_permille: 1000,
        }
    }

    fn pools(summaries: Vec<PoolSummary>, listed: bool) -> LivePools {
        let clusters = BTreeMap::from([(ClusterName::new("m1"), listed)]);
        LivePools {
            version: 1,
            ready: true,
            pools: summaries,
            clusters,
        }
    }

    fn look(
        pools: &LivePools,
        view: ViewHealth,
        observed: &mut BTreeMap<String, GpuPool>,
        now: i64,
    ) -> Vec<String> {
        let desired = desired(pools, &|_| Some(view));
        let writes = writes(&desired, observed, &pools.clusters, &at(now));
        writes
            .into_iter()
            .map(|write| carried_out(write, observed))
            .collect()
    }

    fn carried_out(write: PoolWrite, observed: &mut BTreeMap<String, GpuPool>) -> String {
        match write {
            PoolWrite::Create(pool) => {
                let name = pool.name_any();
                observed.insert(name.clone(), *pool);
                format!("create {name}")
            }
            PoolWrite::Spec(name, spec) => {
                let said = format!("spec {name} device {}", spec.device);
                observed.get_mut(&name).unwrap().spec = spec;
                said
            }
            PoolWrite::Status(name, status) => {
                let seen = status.last_seen.clone().unwrap().0.as_second();
                let said = format!(
                    "{name} {} free {}/{} seen {seen}",
                    status.health, status.free, status.total
                );
                observed.get_mut(&name).unwrap().status = Some(status);
                said
            }
            PoolWrite::Delete(name) => {
                observed.remove(&name);
                format!("delete {name}")
            }
        }
    }

    #[test]
    fn pools_are_written_only_if_more_than_the_time_changes() {
        let mut observed = BTreeMap::new();
        let gpus = |free| pools(vec![summary(Some("nvidia.com/gpu"), free)], true);
        let ready = ViewHealth::Ready;
        assert_eq!(
            look(&gpus("7"), ready, &mut observed, 1),
            ["create m1.a100"]
        );
        assert_eq!(
            look(&gpus("7"), ready, &mut observed, 2),
            ["m1.a100 Ready free 7/16 seen 2"]
        );
        assert!(look(&gpus("7"), ready, &mut observed, 60).is_empty());
        assert_eq!(
            look(&gpus("3"), ready, &mut observed, 61),
            ["m1.a100 Ready free 3/16 seen 61"]
        );
        let gone = ViewHealth::Unreachable;
        assert_eq!(
            look(&gpus("3"), gone, &mut observed, 90),
            ["m1.a100 Unreachable free 3/16 seen 90"]
        );
        assert!(look(&gpus("3"), gone, &mut observed, 900).is_empty());
        assert_eq!(
            look(&gpus("3"), ViewHealth::Stale, &mut observed, 901),
            ["m1.a100 Stale free 3/16 seen 90"]
        );
        // Its nodes have lost their GPUs: the same class, counted in CPUs.
        let cpus = pools(vec![summary(None, "7")], true);
        assert_eq!(
            look(&cpus, ready, &mut observed, 902),
            [
                "spec m1.a100 device cpu",
                "m1.a100 Ready free 7/16 seen 902"
            ]
        );
    }

    #[test]
    fn a_pool_is_deleted_once_its_class_is_certainly_gone() {
        let mut observed = BTreeMap::new();
        let there = pools(vec![summary(None, "7")], true);
        look(&there, ViewHealth::Ready, &mut observed, 1);
        assert!(look(&pools(vec![], false), ViewHealth::Stale, &mut observed, 2).is_empty());
        assert_eq!(
            look(&pools(vec![], true), ViewHealth::Ready, &mut observed, 3),
            ["delete m1.a100"]
        );
        look(&there, ViewHealth::Ready, &mut observed, 4);
        let left = LivePools {
            clusters: BTreeMap::new(),
            ..there
        };
        assert_eq!(
            look(&left, ViewHealth::Ready, &mut observed, 5),
            ["delete m1.a100"]
        );
    }
}
