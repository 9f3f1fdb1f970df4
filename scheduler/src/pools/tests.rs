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
        avoided: BTreeMap::new(),
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
fn avoided_nodes_are_shown_with_their_pool() {
    let why = NodeAvoidance {
        rule: "xid".to_owned(),
        ..NodeAvoidance::default()
    };
    let nodes = (0..60).map(|index| (NodeName::new(format!("n{index:02}")), why.clone()));
    let pool = (ClusterName::new("m1"), PoolClass::new("a100"));
    let pools = LivePools {
        avoided: BTreeMap::from([(pool, nodes.collect())]),
        ..pools(vec![summary(None, "7")], true)
    };
    let desired = desired(&pools, &|_| Some(ViewHealth::Ready));
    let status = &desired["m1.a100"].1;
    assert_eq!(
        (status.avoided, status.avoided_nodes.len()),
        (60, MOST_AVOIDED)
    );
    let first = serde_json::to_value(&status.avoided_nodes[0]).unwrap();
    assert_eq!(
        (&first["node"], &first["rule"]),
        (&json!("n00"), &json!("xid"))
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
