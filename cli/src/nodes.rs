//! `nodes`: the nodes that are avoided because of faults, as GpuPools show them.

use crate::age::human;
use crate::args::{Format, ListArgs};
use crate::connect;
use crate::output::{self, columns};
use anyhow::Result;
use crds::gpu_pool::{AvoidedNode, GpuPool};
use jiff::Timestamp;
use kube::Client;
use kube::api::{DynamicObject, ListParams, ObjectList};

/// Runs the command and returns its output. For programs these are the GpuPools with such nodes.
pub(crate) async fn run(list: &ListArgs, client: &Client) -> Result<String> {
    let objects = pools(client).await?;
    let pools = read(&objects);
    let format = list.output.format;
    Ok(match format {
        Format::Json | Format::Yaml => output::machine(&objects, format)?,
        Format::Name => names(&pools),
        Format::Table | Format::Wide => render(
            &pools,
            format == Format::Wide,
            !list.no_headers,
            Timestamp::now(),
        ),
    })
}

/// Returns the GpuPools of `objects` that can be read.
pub(crate) fn read(objects: &ObjectList<DynamicObject>) -> Vec<GpuPool> {
    let pools = objects.iter().filter_map(|object| {
        let value = serde_json::to_value(object).ok()?;
        serde_json::from_value(value).ok()
    });
    pools.collect()
}

/// Returns true if the status of a pool does not name all its nodes that are avoided.
pub(crate) fn is_cut(pool: &GpuPool) -> bool {
    !not_named(pool).is_empty()
}

/// Returns the GpuPools with avoided nodes, without managed fields.
pub(crate) async fn pools(client: &Client) -> Result<ObjectList<DynamicObject>> {
    let api = connect::objects::<GpuPool>(client);
    let mut pools = connect::list(&api, &ListParams::default(), "GpuPools").await?;
    pools.items.retain(|pool| {
        let avoided = pool.data["status"]["avoided"].as_i64();
        avoided.is_some_and(|avoided| avoided > 0)
    });
    Ok(pools)
}

/// Returns the avoided nodes that are named, each with its pool.
pub(crate) fn avoided(pools: &[GpuPool]) -> impl Iterator<Item = (&GpuPool, &AvoidedNode)> {
    pools.iter().flat_map(|pool| {
        let nodes = pool.status.iter().flat_map(|status| &status.avoided_nodes);
        nodes.map(move |node| (pool, node))
    })
}

/// Formats `cluster/node`, one in each line.
fn names(pools: &[GpuPool]) -> String {
    let lines = avoided(pools).map(|(pool, node)| format!("{}/{}\n", pool.spec.cluster, node.node));
    lines.collect()
}

/// Formats the table; `wide` adds the pool and the rule.
fn render(pools: &[GpuPool], wide: bool, header: bool, now: Timestamp) -> String {
    let mut rows = avoided(pools).peekable();
    if rows.peek().is_none() {
        return "No nodes are avoided\n".to_owned();
    }
    let mut text = if wide {
        let names = [
            "CLUSTER", "NODE", "POOL", "FAULT", "RULE", "FOR", "ENDS", "MESSAGE",
        ];
        let row = |(pool, node): (&GpuPool, &AvoidedNode)| {
            let [cluster, name, fault, since, ends, message] = row(pool, node, now);
            let (class, rule) = (pool.spec.class.clone(), node.avoidance.rule.clone());
            [cluster, name, class, fault, rule, since, ends, message]
        };
        columns(header.then_some(names), rows.map(row))
    } else {
        let names = ["CLUSTER", "NODE", "FAULT", "FOR", "ENDS", "MESSAGE"];
        let row = |(pool, node): (&GpuPool, &AvoidedNode)| row(pool, node, now);
        columns(header.then_some(names), rows.map(row))
    };
    for pool in pools {
        text += &not_named(pool);
    }
    text
}

/// Says how many nodes of a pool its status does not name.
fn not_named(pool: &GpuPool) -> String {
    let status = pool.status.clone().unwrap_or_default();
    let named = i64::try_from(status.avoided_nodes.len()).unwrap_or(i64::MAX);
    match status.avoided.saturating_sub(named) {
        ..=0 => String::new(),
        more => format!("{more} more in {} are not named\n", pool.spec.cluster),
    }
}

fn row(pool: &GpuPool, node: &AvoidedNode, now: Timestamp) -> [String; 6] {
    let why = &node.avoidance;
    let seconds = |text: &str| {
        let time: Option<Timestamp> = text.parse().ok();
        time.map(|time| time.as_second() - now.as_second())
    };
    let since = seconds(&why.since).map(|seconds| human(-seconds));
    let ends = match &why.until {
        None if why.is_by_hand() => "by hand".to_owned(),
        None => "with the condition".to_owned(),
        Some(until) => {
            seconds(until).map_or_else(|| until.clone(), |left| format!("in {}", human(left)))
        }
    };
    let message = match why.message.is_empty() {
        true => "it has the taint muster.io/avoid, which Muster did not set".to_owned(),
        false => why.message.clone(),
    };
    [
        pool.spec.cluster.clone(),
        node.node.clone(),
        why.class.clone(),
        since.unwrap_or_default(),
        ends,
        message,
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn avoided_nodes_are_listed_with_the_reason_and_the_end() {
        let now = "2026-11-25T10:00:00Z".parse().unwrap();
        let pool: GpuPool = serde_json::from_value(json!({
            "metadata": {"name": "m1.h100"},
            "spec": {"cluster": "m1", "class": "h100", "device": "nvidia.com/gpu"},
            "status": {"avoided": 4, "avoidedNodes": [
                {"node": "n1", "class": "Device", "rule": "xid", "since": "2026-11-25T09:00:00Z",
                 "until": "2026-11-26T09:00:00Z", "message": "3 jobs failed there"},
                {"node": "n2", "class": "Device", "rule": "memory", "since": "2026-11-25T09:59:00Z",
                 "message": "its condition GpuMemWatch is True"},
                {"node": "n3"},
            ]},
        }))
        .unwrap();
        let pools = [pool];
        insta::assert_snapshot!(render(&pools, false, true, now), @r"
        CLUSTER   NODE   FAULT    FOR      ENDS                 MESSAGE
        m1        n1     Device   60m      in 23h               3 jobs failed there
        m1        n2     Device   60s      with the condition   its condition GpuMemWatch is True
        m1        n3     <none>   <none>   by hand              it has the taint muster.io/avoid, which Muster did not set
        1 more in m1 are not named
        ");
        insta::assert_snapshot!(render(&pools, true, false, now), @r"
        m1   n1   h100   Device   xid      60m      in 23h               3 jobs failed there
        m1   n2   h100   Device   memory   60s      with the condition   its condition GpuMemWatch is True
        m1   n3   h100   <none>   <none>   <none>   by hand              it has the taint muster.io/avoid, which Muster did not set
        1 more in m1 are not named
        ");
        assert_eq!(names(&pools), "m1/n1\nm1/n2\nm1/n3\n");
        assert_eq!(render(&[], false, true, now), "No nodes are avoided\n");
    }
}
