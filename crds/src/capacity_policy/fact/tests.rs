#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::{Value, json};

fn policy(spec: Value) -> CapacityPolicy {
    serde_json::from_value(json!({
        "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy",
        "metadata": {"name": "team-a"}, "spec": spec,
    }))
    .unwrap()
}

fn config(tenancy: Value) -> MusterConfig {
    serde_json::from_value(json!({
        "apiVersion": "muster.io/v1alpha2", "kind": "MusterConfig",
        "metadata": {"name": "default"}, "spec": {"tenancy": tenancy},
    }))
    .unwrap()
}

#[test]
fn an_empty_policy_follows_its_queue() {
    let empty = policy(json!({}));
    for (strategy, want) in [
        (None, QueueOrdering::Backfill),
        (Some("traverse"), QueueOrdering::Backfill),
        (Some("fifo"), QueueOrdering::StrictFifo),
    ] {
        let fact = empty.to_fact(strategy);
        assert_eq!(
            (fact.ordering, fact.start_deadline_ms, fact.invalid),
            (want, 600_000, None)
        );
    }
    let stated = policy(json!({"ordering": "BestEffort"}));
    assert_eq!(
        stated.to_fact(Some("fifo")).ordering,
        QueueOrdering::BestEffort
    );
}

#[test]
fn bounds_and_placement_become_facts() {
    let fact = policy(json!({
        "pools": [
            {"name": "h100", "class": "h100", "resources": [{"name": "nvidia.com/gpu", "capability": 16, "deserved": 8}]},
            {"name": "cpu", "class": "cpu", "clusters": ["b", "a"], "resources": [{"name": "cpu", "guarantee": 1}]},
        ],
        "placement": {"preferredClusters": ["b", "a"], "startDeadlineSeconds": 90},
    }))
    .to_fact(None);
    assert_eq!(fact.pools[0].capability.to_string(), "nvidia.com/gpu 16");
    assert_eq!(fact.pools[0].clusters, None);
    assert!(fact.pools[1].capability.is_empty());
    assert_eq!(fact.pools[1].clusters.as_ref().unwrap().len(), 2);
    assert_eq!(fact.preferred_clusters, ["b".into(), "a".into()]);
    assert_eq!((fact.start_deadline_ms, fact.invalid), (90_000, None));
}

#[test]
fn invalid_values_are_named() {
    for (spec, want) in [
        (
            json!({"pools": [{"name": "a", "class": "a"}, {"name": "b", "class": "b", "resources": [{"name": "cpu", "capability": "4x"}]}]}),
            "spec.pools[1].capability[cpu]: quantity \"4x\" is not a number with an optional suffix (like 500m, 2, 1.5Gi or 1e3)",
        ),
        (
            json!({"pools": [{"name": "a", "class": "a", "resources": {"cpu": {"capability": 4}}}]}),
            "spec.pools[0].resources: {\"cpu\":{\"capability\":4}} is not a list of name, guarantee, deserved and capability",
        ),
        (
            json!({"pools": [{"class": "a"}]}),
            "spec.pools[0].name is missing",
        ),
        (
            json!({"placement": {"startDeadlineSeconds": -1}}),
            "spec.placement.startDeadlineSeconds: -1 is too small; 0 or more is needed",
        ),
        (
            json!({"placement": {"prePull": true}}),
            "spec.placement.prePull: true is not known; Never or Reserved is needed",
        ),
        (
            json!({"preemption": {"withinQueue": true}}),
            "spec.preemption.withinQueue: true is not known; Never or LowerPriority is needed",
        ),
        (
            json!({"backfill": {"mode": "Greedy"}}),
            "spec.backfill.mode: \"Greedy\" is not known; Easy or Conservative is needed",
        ),
        (json!({"pools": [{}]}), "spec.pools[0].class is missing"),
        (
            json!({"placement": {"split": "Maybe"}}),
            "spec.placement.split: \"Maybe\" is not known; Never, Allowed or Preferred is needed",
        ),
        (
            json!({"placement": {"addresses": {"gpu-a": "{host}.a", "gpu-b": "{pod}.b"}}}),
            "spec.placement.addresses[gpu-b]: \"{pod}.b\": {pod} is not known; {host}, {service}, {namespace} and {cluster} are put in",
        ),
        (
            json!({"placement": {"weights": {"cost": 3}}}),
            "spec.placement.weights: \"cost\" is no score; one of fragmentation, data, network, price, spread, images is needed",
        ),
        (
            json!({"placement": {"weights": {"price": -3}}}),
            "spec.placement.weights.price: -3 is too small; 0 or more is needed",
        ),
        (
            json!({"placement": {"filters": ["DataRegion", "TaintToleration"]}}),
            "spec.placement.filters: \"TaintToleration\" is no filter that can be chosen; one of APIEnablement, DataRegion is needed",
        ),
        (
            json!({"ordering": "Auction"}),
            "spec.ordering: \"Auction\" is not known; StrictFIFO, BestEffort, Backfill or ShortestPredicted is needed",
        ),
        (
            json!({"fairShare": {"usageHalfLifeSeconds": 0}}),
            "spec.fairShare.usageHalfLifeSeconds: 0 is too small; 1 or more is needed",
        ),
        (
            json!({"ageing": {"intervalSeconds": 0}}),
            "spec.ageing.intervalSeconds: 0 is too small; 1 or more is needed",
        ),
        (
            json!({"ageing": {"increment": 1}}),
            "spec.ageing.intervalSeconds is missing; 1 or more is needed",
        ),
        (
            json!({"ageing": {"intervalSeconds": 3600, "increment": 0}}),
            "spec.ageing.increment: 0 is too small; 1 or more is needed",
        ),
        (
            json!({"fairShare": {"within": "Group"}}),
            "spec.fairShare.within: \"Group\" is not known; None or User is needed",
        ),
        (
            json!({"fairShare": {"within": "User"}, "ordering": "StrictFIFO"}),
            "spec.fairShare.within: User lets jobs pass each other, and the ordering is StrictFIFO; name another spec.ordering",
        ),
        (
            json!({"limits": {"jobs": -1}}),
            "spec.limits.jobs: -1 is too small; 0 or more is needed",
        ),
        (
            json!({"limits": {"resourcesPerUser": {"nvidia.com/gpu": "-8"}}}),
            "spec.limits.resourcesPerUser[nvidia.com/gpu]: quantity \"-8\" is negative; 0 or more is needed",
        ),
        (
            json!({"limits": {"resourcesPerNamespace": {"memory": "a lot"}}}),
            "spec.limits.resourcesPerNamespace[memory]: quantity \"a lot\" is not a number with an optional suffix (like 500m, 2, 1.5Gi or 1e3)",
        ),
        (
            json!({"spare": {"nodes": 0, "forGangsOf": 32}}),
            "spec.spare.nodes: 0 is too small; 1 or more is needed",
        ),
        (
            json!({"spare": {"nodes": 1}}),
            "spec.spare.forGangsOf is missing; 2 or more is needed",
        ),
        (
            json!({"pools": [{"name": "a", "class": "a", "resources": [{"name": "cpu", "deserved": "-2"}]}]}),
            "spec.pools[0].deserved[cpu]: quantity \"-2\" is negative; 0 or more is needed",
        ),
    ] {
        assert_eq!(policy(spec).to_fact(None).invalid.unwrap(), want);
    }
}

#[test]
fn every_field_becomes_a_fact() {
    let all = policy(json!({
        "pools": [{"name": "a", "class": "a", "resources": [{"name": "cpu", "guarantee": 1, "deserved": 2, "capability": 3}]}],
        "ordering": "ShortestPredicted",
        "ageing": {"intervalSeconds": 3600, "increment": 5},
        "priorityClasses": ["low", "high"],
        "backfill": {"mode": "Conservative", "reservations": 4},
        "fairShare": {"weight": 2, "usageHalfLifeSeconds": 86400, "within": "User"},
        "preemption": {
            "withinQueue": "LowerPriority", "reclaim": "Never", "minRuntimeSeconds": 300, "preemptableLabel": "Ignore",
            "evictOverdue": "ForDelayedJobs",
        },
        "limits": {"jobs": 3, "jobsPerUser": 0, "pending": 5_000_000_000_i64, "runtimeSeconds": 3600,
            "resourcesPerUser": {"nvidia.com/gpu": 8, "memory": "1Ti"}, "resourcesPerNamespace": {"nvidia.com/mig-1g.5gb": 0}},
        "placement": {"maxClusters": 2, "weights": {"price": 7}},
        "stopPolicy": "HoldAndDrain",
        "spare": {"nodes": 2, "class": "h100", "forGangsOf": 32},
    }))
    .to_fact(Some("fifo"));
    assert_eq!(all.invalid, None);
    let spare = facts::SpareRule {
        nodes: 2,
        class: Some(PoolClass::new("h100")),
        for_gangs_of: 32,
    };
    assert_eq!(all.spare, Some(spare));
    let bound = &all.pools[0];
    assert_eq!(
        [&bound.guarantee, &bound.deserved, &bound.capability].map(ToString::to_string),
        ["cpu 1", "cpu 2", "cpu 3"]
    );
    assert_eq!(all.ordering, QueueOrdering::ShortestPredicted);
    let ageing = facts::Ageing {
        every_ms: 3_600_000,
        raise: 5,
        classes: Some(vec!["low".to_owned(), "high".to_owned()]),
    };
    assert_eq!(all.ageing, Some(ageing));
    assert_eq!(
        (all.backfill.conservative, all.backfill.reservations),
        (true, Some(4))
    );
    assert_eq!(
        all.fair_share,
        facts::FairShare {
            weight: Some(2),
            usage_half_life_ms: Some(86_400_000),
            within: Some(facts::FairShareWithin::User),
        }
    );
    assert_eq!(
        all.preemption,
        facts::Preemption {
            within_queue: true,
            reclaim: false,
            min_runtime_ms: 300_000,
            allow_non_preemptible: false,
            evict_overdue: true,
        }
    );
    assert_eq!(
        all.limits,
        facts::Limits {
            jobs: Some(3),
            jobs_per_user: Some(0),
            pending: Some(u32::MAX),
            runtime_ms: Some(3_600_000),
            resources_per_user: Resources::parse([("nvidia.com/gpu", "8"), ("memory", "1Ti")])
                .unwrap(),
            resources_per_namespace: Resources::parse([("nvidia.com/mig-1g.5gb", "0")]).unwrap(),
        }
    );
    assert_eq!(all.max_clusters, Some(2));
    assert_eq!(all.stop, Some(StopPolicy::HoldAndDrain));
    assert_eq!(
        all.weights,
        PlacementWeights::default().with("price", 7).unwrap()
    );
}

#[test]
fn a_queue_is_stopped_as_its_policy_says() {
    for (stated, stop, invalid) in [
        (json!(null), None, None),
        (json!("None"), None, None),
        (json!("Hold"), Some(StopPolicy::Hold), None),
        (json!("HoldAndDrain"), Some(StopPolicy::HoldAndDrain), None),
        (
            json!("Drain"),
            None,
            Some("spec.stopPolicy: \"Drain\" is not known; None, Hold or HoldAndDrain is needed"),
        ),
    ] {
        let fact = policy(json!({"stopPolicy": stated})).to_fact(None);
        assert_eq!((fact.stop, fact.invalid.as_deref()), (stop, invalid));
    }
}

#[test]
fn namespaces_are_selected_as_kubernetes_selects() {
    let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    for (selector, want) in [
        (json!(null), true),
        (json!({}), true),
        (json!({"matchLabels": {"team": "a"}}), true),
        (json!({"matchLabels": {"team": "b"}}), false),
        (
            json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "stage", "operator": "NotIn", "values": ["x"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "stage", "operator": "Exists"}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "team", "operator": "Like", "values": ["a"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "stage", "operator": "NotIn"}]}),
            false,
        ),
    ] {
        let policy = policy(json!({"namespaceSelector": selector}));
        let closed = closed_to("q", Some(&policy), None, "team-a", &labels);
        assert_eq!(closed.is_none(), want, "{selector}: {closed:?}");
    }
}

#[test]
fn a_queue_without_a_selector_is_open_or_closed_as_it_or_the_config_says() {
    let of = |tenancy: Value| policy(json!({ "tenancy": tenancy }));
    let (open, closed, silent) = (of(json!("Open")), of(json!("Closed")), of(json!(null)));
    let wrong = of(json!("Ajar"));
    assert_eq!(
        wrong.to_fact(None).invalid.unwrap(),
        "spec.tenancy: \"Ajar\" is not known; Open or Closed is needed"
    );
    for (own, config_says, says) in [
        (None, None, None),
        (Some(&silent), None, None),
        (Some(&silent), Some(json!(null)), None),
        (Some(&silent), Some(json!("Open")), None),
        (Some(&open), Some(json!("Closed")), None),
        (None, Some(json!("Closed")), Some("musterconfig default")),
        (
            Some(&silent),
            Some(json!("Closed")),
            Some("musterconfig default"),
        ),
        (Some(&closed), Some(json!("Open")), Some("capacitypolicy q")),
        // An invalid value admits no namespace.
        (Some(&wrong), Some(json!("Open")), Some("capacitypolicy q")),
        (
            Some(&silent),
            Some(json!("Ajar")),
            Some("musterconfig default"),
        ),
    ] {
        let config = config_says.map(config);
        let why = closed_to("q", own, config.as_ref(), "team-a", &BTreeMap::new());
        let want = says.map(|says| {
            format!("queue q selects no namespaces, and spec.tenancy of {says} is Closed")
        });
        assert_eq!(why, want);
    }
    // A selected namespace needs no right, even if the tenancy is Closed.
    let selects = policy(json!({"namespaceSelector": {}, "tenancy": "Closed"}));
    let none = closed_to(
        "q",
        Some(&selects),
        Some(&config(json!("Closed"))),
        "team-a",
        &BTreeMap::new(),
    );
    assert_eq!(none, None);
}
