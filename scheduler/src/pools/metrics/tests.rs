#![allow(clippy::unwrap_used)]
use super::*;
use engine::{ClusterName, PoolClass, ResourceName, Resources};
use std::collections::BTreeMap;

/// A pool of four nodes with 8 GPUs each: two free, one with 3 free, one full.
fn pool(class: &str) -> PoolSummary {
    let gpus = |amount: &str| Resources::parse([("nvidia.com/gpu", amount)]).unwrap();
    PoolSummary {
        cluster: ClusterName::new("m1"),
        class: PoolClass::new(class),
        device: Some(ResourceName::new("nvidia.com/gpu")),
        nodes: 5,
        usable_nodes: 4,
        total: gpus("40"),
        allocatable: gpus("32"),
        used: gpus("13"),
        free: gpus("19"),
        assumed: Resources::new(),
        histogram: BTreeMap::from([(0, 1), (3, 1), (8, 2)]),
        largest_free_node: 8,
        fragmentation_permille: 157,
    }
}

fn pools(pools: Vec<PoolSummary>) -> LivePools {
    LivePools {
        version: 1,
        ready: true,
        pools,
        avoided: BTreeMap::new(),
        clusters: BTreeMap::from([(ClusterName::new("m1"), true)]),
    }
}

#[test]
fn pools_show_what_is_free_and_which_gang_fits() {
    let registry = Registry::new();
    let metrics = PoolMetrics::new(&registry);
    metrics.record(&pools(vec![pool("a100"), pool("h100")]));
    let text = registry.encode().unwrap();
    for line in [
        r#"muster_pool_devices{cluster="m1",pool="a100",state="Total"} 40"#,
        r#"muster_pool_devices{cluster="m1",pool="a100",state="Free"} 19"#,
        r#"muster_pool_nodes{cluster="m1",pool="a100",state="Usable"} 4"#,
        r#"muster_pool_nodes{cluster="m1",pool="h100",state="Avoided"} 0"#,
        r#"muster_pool_largest_gang_pods{cluster="m1",pool="a100",devices_per_pod="1"} 19"#,
        r#"muster_pool_largest_gang_pods{cluster="m1",pool="a100",devices_per_pod="2"} 9"#,
        r#"muster_pool_largest_gang_pods{cluster="m1",pool="a100",devices_per_pod="8"} 2"#,
        r#"muster_pool_fragmentation_ratio{cluster="m1",pool="a100"} 0.157"#,
    ] {
        assert!(text.contains(line), "{line} in:\n{text}");
    }
}

#[test]
fn a_pool_that_is_gone_is_not_exported_and_nothing_is_after_the_term() {
    let registry = Registry::new();
    let metrics = PoolMetrics::new(&registry);
    metrics.record(&pools(vec![pool("a100"), pool("h100")]));
    metrics.record(&pools(vec![pool("h100")]));
    let text = registry.encode().unwrap();
    assert!(!text.contains("a100"), "{text}");
    // Its cluster has left.
    let left = LivePools {
        clusters: BTreeMap::new(),
        ..pools(vec![pool("h100")])
    };
    metrics.record(&left);
    assert!(!registry.encode().unwrap().contains("pool="));
    metrics.record(&pools(vec![pool("h100")]));
    metrics.clear();
    assert!(!registry.encode().unwrap().contains("pool="));
}
