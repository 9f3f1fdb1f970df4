//! `pools`: GpuPools, and which of them have room for a gang now.

use crate::age::age;
use crate::args::{Format, PoolsCommand};
use crate::connect;
use crate::output::{self, columns};
use anyhow::Result;
use crds::fault_policy::{FaultPolicy, pause};
use crds::gpu_pool::{GpuPool, GpuPoolStatus, health};
use engine::capacity::pods_that_fit;
use engine::counted;
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Pods and devices of each: `2x8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pods: u32,
    devices: u32,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (pods, devices) = text.split_once('x')?;
            let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
            Some(Self {
                pods: number(pods)?,
                devices: number(devices)?,
            })
        };
        read().ok_or_else(|| {
            "2x8 is needed: the number of pods, x, and the devices of each pod".to_owned()
        })
    }
}

impl Shape {
    /// Returns how many gangs of this shape fit on the free devices of the pool. Each pod needs all its
    /// devices on one node.
    fn fits(self, status: &GpuPoolStatus) -> i64 {
        let nodes = status.histogram.iter();
        let nodes = nodes.map(|free| (free.free, free.nodes));
        pods_that_fit(nodes, self.devices) / i64::from(self.pods)
    }

    fn text(self) -> String {
        let pods = counted(self.pods, "pod");
        format!("{pods} of {}", counted(self.devices, "device"))
    }
}

/// A pool to show.
struct ShownPool {
    object: DynamicObject,
    pool: GpuPool,
    status: GpuPoolStatus,
    /// How many gangs of the shape fit, if there is one.
    fits: i64,
    /// The phase of its cluster's pause, if it is paused.
    paused: Option<String>,
}

/// Runs the command and returns its output.
pub(crate) async fn run(command: &PoolsCommand, client: &Client) -> Result<String> {
    let api = connect::objects::<GpuPool>(client);
    let mut objects = connect::list(&api, &ListParams::default(), "GpuPools").await?;
    let all = std::mem::take(&mut objects.items).into_iter();
    let paused = paused(client).await;
    let pools = all.map(|object| ShownPool::of(object, command.fits, &paused));
    let (pools, old) = select(pools.collect::<Result<_>>()?, command.fits);
    Ok(match command.list.output.format {
        Format::Json | Format::Yaml => {
            objects.items = pools.into_iter().map(|pool| pool.object).collect();
            output::machine(&objects, command.list.output.format)?
        }
        Format::Name => pools
            .iter()
            .map(|pool| output::name_line::<GpuPool>(&pool.object))
            .collect(),
        Format::Table | Format::Wide => render(&pools, command, Timestamp::now()) + &left_out(&old),
    })
}

/// Returns the clusters that take no new jobs because many failed there, and the phase of their pause. Users
/// who may not read FaultPolicies see none.
async fn paused(client: &Client) -> BTreeMap<String, String> {
    let api = connect::objects::<FaultPolicy>(client);
    let listed = connect::list(&api, &ListParams::default(), "FaultPolicies").await;
    let policies = listed.into_iter().flatten().filter_map(|object| {
        let value = serde_json::to_value(object).ok()?;
        serde_json::from_value::<FaultPolicy>(value).ok()
    });
    let in_force = policies.filter(|policy| !policy.is_dry_run());
    let paused = in_force
        .filter_map(|policy| policy.status)
        .flat_map(|status| status.paused_clusters);
    let mut phases = BTreeMap::new();
    for pause in paused {
        let phase = phases
            .entry(pause.cluster)
            .or_insert_with(|| pause.phase.clone());
        if pause.phase == pause::PAUSED {
            *phase = pause.phase;
        }
    }
    phases
}

impl ShownPool {
    fn of(
        object: DynamicObject,
        shape: Option<Shape>,
        paused: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let pool: GpuPool = connect::typed(&object)?;
        let status = pool.status.clone().unwrap_or_default();
        let fits = shape.map(|shape| shape.fits(&status)).unwrap_or_default();
        Ok(Self {
            object,
            paused: paused.get(&pool.spec.cluster).cloned(),
            pool,
            status,
            fits,
        })
    }

    /// Returns its health, or that its cluster is paused.
    fn state(&self) -> &str {
        let paused = self.paused.as_deref();
        paused
            .filter(|_| self.status.health == health::READY)
            .unwrap_or(&self.status.health)
    }

    fn is_ready(&self) -> bool {
        self.state() == health::READY
    }
}

/// Returns the pools in which the shape fits, the roomiest first, and those whose numbers are too old to
/// say. Without a shape, returns all.
fn select(mut pools: Vec<ShownPool>, shape: Option<Shape>) -> (Vec<ShownPool>, Vec<ShownPool>) {
    if shape.is_none() {
        return (pools, Vec::new());
    }
    pools.retain(|pool| pool.fits > 0);
    pools.sort_by_cached_key(|pool| (-pool.fits, pool.object.name_any()));
    pools.into_iter().partition(ShownPool::is_ready)
}

fn left_out(old: &[ShownPool]) -> String {
    let lines = old.iter().map(|pool| {
        let name = pool.object.name_any();
        format!("{name} is left out: it is {}\n", pool.state())
    });
    lines.collect()
}

fn render(pools: &[ShownPool], command: &PoolsCommand, now: Timestamp) -> String {
    let header = !command.list.no_headers;
    match command.fits {
        None if pools.is_empty() => "No pools found\n".to_owned(),
        Some(shape) if pools.is_empty() => format!("No pool has room for {} now\n", shape.text()),
        Some(_) => {
            let names = [
                "NAME", "CLUSTER", "CLASS", "DEVICE", "FREE", "LARGEST", "FITS",
            ];
            columns(header.then_some(names), pools.iter().map(fits_row))
        }
        None if command.list.output.format == Format::Wide => {
            let names = [
                "NAME", "CLUSTER", "CLASS", "DEVICE", "NODES", "USABLE", "TOTAL", "USED", "FREE",
                "LARGEST", "FRAG", "AVOIDED", "STATUS", "AGE",
            ];
            let rows = pools.iter().map(|pool| wide_row(pool, now));
            columns(header.then_some(names), rows)
        }
        None => {
            let names = [
                "NAME", "NODES", "TOTAL", "FREE", "LARGEST", "FRAG", "AVOIDED", "STATUS", "AGE",
            ];
            let rows = pools.iter().map(|pool| row(pool, now));
            columns(header.then_some(names), rows)
        }
    }
}

fn row(shown: &ShownPool, now: Timestamp) -> [String; 9] {
    let status = &shown.status;
    [
        shown.object.name_any(),
        status.nodes.to_string(),
        status.total.to_string(),
        status.free.to_string(),
        status.largest_free_node.to_string(),
        status
            .fragmentation_percent
            .map_or_else(String::new, |share| format!("{share}%")),
        status.avoided.to_string(),
        shown.state().to_owned(),
        age(shown.object.metadata.creation_timestamp.as_ref(), now),
    ]
}

fn wide_row(shown: &ShownPool, now: Timestamp) -> [String; 14] {
    let [
        name,
        nodes,
        total,
        free,
        largest,
        frag,
        avoided,
        status,
        age,
    ] = row(shown, now);
    let spec = shown.pool.spec.clone();
    [
        name,
        spec.cluster,
        spec.class,
        spec.device,
        nodes,
        shown.status.usable_nodes.to_string(),
        total,
        shown.status.used.to_string(),
        free,
        largest,
        frag,
        avoided,
        status,
        age,
    ]
}

fn fits_row(shown: &ShownPool) -> [String; 7] {
    let spec = shown.pool.spec.clone();
    [
        shown.object.name_any(),
        spec.cluster,
        spec.class,
        spec.device,
        shown.status.free.to_string(),
        shown.status.largest_free_node.to_string(),
        shown.fits.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::{ListArgs, OutputArgs};
    use serde_json::{Value, json};

    fn pool(name: &str, status: Value) -> DynamicObject {
        let (cluster, class) = name.split_once('.').unwrap();
        serde_json::from_value(json!({
            "apiVersion": "muster.io/v1alpha2", "kind": "GpuPool",
            "metadata": {"name": name, "creationTimestamp": "2026-11-25T09:00:00Z"},
            "spec": {"cluster": cluster, "class": class, "device": "nvidia.com/gpu"},
            "status": status,
        }))
        .unwrap()
    }

    fn pools() -> Vec<DynamicObject> {
        let histogram =
            json!([{"free": 8, "nodes": 1}, {"free": 4, "nodes": 2}, {"free": 0, "nodes": 3}]);
        vec![
            pool(
                "gpu-a.h100",
                json!({"nodes": 6, "usableNodes": 6, "total": 48, "used": 32, "free": 16, "largestFreeNode": 8,
                       "fragmentationPercent": 50, "histogram": histogram, "health": "Ready"}),
            ),
            pool(
                "gpu-b.h100",
                json!({"nodes": 5, "usableNodes": 4, "total": 40, "free": 32, "largestFreeNode": 8,
                       "fragmentationPercent": 0, "histogram": [{"free": 8, "nodes": 4}], "avoided": 1, "health": "Ready"}),
            ),
            pool(
                "gpu-e.h100",
                json!({"nodes": 2, "total": 16, "free": 16, "largestFreeNode": 8, "fragmentationPercent": 0,
                       "histogram": [{"free": 8, "nodes": 2}], "health": "Ready"}),
            ),
            pool(
                "gpu-c.a100",
                json!({"nodes": 4, "free": 32, "histogram": [{"free": 8, "nodes": 4}], "health": "Unreachable"}),
            ),
            pool("gpu-d.l4", Value::Null),
        ]
    }

    fn shown(fits: Option<&str>, format: Format) -> String {
        let command = PoolsCommand {
            fits: fits.map(|text| text.parse().unwrap()),
            list: ListArgs {
                output: OutputArgs { format },
                ..ListArgs::default()
            },
        };
        let pools = pools().into_iter();
        let paused = BTreeMap::from([("gpu-e".to_owned(), "Paused".to_owned())]);
        let pools = pools.map(|pool| ShownPool::of(pool, command.fits, &paused).unwrap());
        let (pools, old) = select(pools.collect(), command.fits);
        render(&pools, &command, "2026-11-25T10:00:00Z".parse().unwrap()) + &left_out(&old)
    }

    #[test]
    fn pools_are_listed_as_kubectl_would() {
        insta::assert_snapshot!(shown(None, Format::Table), @r"
        NAME         NODES   TOTAL   FREE   LARGEST   FRAG     AVOIDED   STATUS        AGE
        gpu-a.h100   6       48      16     8         50%      0         Ready         60m
        gpu-b.h100   5       40      32     8         0%       1         Ready         60m
        gpu-e.h100   2       16      16     8         0%       0         Paused        60m
        gpu-c.a100   4       0       32     0         <none>   0         Unreachable   60m
        gpu-d.l4     0       0       0      0         <none>   0         <none>        60m
        ");
        insta::assert_snapshot!(shown(None, Format::Wide), @r"
        NAME         CLUSTER   CLASS   DEVICE           NODES   USABLE   TOTAL   USED   FREE   LARGEST   FRAG     AVOIDED   STATUS        AGE
        gpu-a.h100   gpu-a     h100    nvidia.com/gpu   6       6        48      32     16     8         50%      0         Ready         60m
        gpu-b.h100   gpu-b     h100    nvidia.com/gpu   5       4        40      0      32     8         0%       1         Ready         60m
        gpu-e.h100   gpu-e     h100    nvidia.com/gpu   2       0        16      0      16     8         0%       0         Paused        60m
        gpu-c.a100   gpu-c     a100    nvidia.com/gpu   4       0        0       0      32     0         <none>   0         Unreachable   60m
        gpu-d.l4     gpu-d     l4      nvidia.com/gpu   0       0        0       0      0      0         <none>   0         <none>        60m
        ");
    }

    #[test]
    fn a_shape_shows_where_it_fits_and_how_often() {
        insta::assert_snapshot!(shown(Some("2x4"), Format::Table), @r"
        NAME         CLUSTER   CLASS   DEVICE           FREE   LARGEST   FITS
        gpu-b.h100   gpu-b     h100    nvidia.com/gpu   32     8         4
        gpu-a.h100   gpu-a     h100    nvidia.com/gpu   16     8         2
        gpu-c.a100 is left out: it is Unreachable
        gpu-e.h100 is left out: it is Paused
        ");
        insta::assert_snapshot!(shown(Some("2x8"), Format::Table), @r"
        NAME         CLUSTER   CLASS   DEVICE           FREE   LARGEST   FITS
        gpu-b.h100   gpu-b     h100    nvidia.com/gpu   32     8         2
        gpu-c.a100 is left out: it is Unreachable
        gpu-e.h100 is left out: it is Paused
        ");
        insta::assert_snapshot!(shown(Some("1x9"), Format::Table), @"No pool has room for 1 pod of 9 devices now");
    }

    #[test]
    fn a_shape_is_pods_and_devices() {
        assert_eq!(
            "2x8".parse(),
            Ok(Shape {
                pods: 2,
                devices: 8
            })
        );
        for wrong in ["", "8", "x8", "2x", "0x8", "2x0", "2x8x1", "-1x8", "2*8"] {
            wrong.parse::<Shape>().unwrap_err();
        }
    }
}
