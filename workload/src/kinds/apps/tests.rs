#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::divisible_kind;
use crate::testing::{asked, yaml};
use insta::assert_snapshot;

fn app(kind: &str, metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: {kind}\nmetadata: {metadata}\nspec:\n  {spec}\n  template: {{spec: {{containers: [{{resources: {{requests: {{cpu: '2'}}}}}}]}}}}\n"
    )
}

#[test]
fn a_deployment_is_charged_its_surge() {
    assert_snapshot!(asked(&app("Deployment", "{}", "replicas: 10")), @r"
    main 13 × (cpu 2, pods 1) min 1
    min 1 (cpu 2, pods 1)
    surge 3
    held
    ");
    let pods = |spec: &str| {
        asked(&app("Deployment", "{}", spec))
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    for (spec, want) in [
        ("paused: false", "main 2 ×"),
        ("replicas: 0", "main 0 ×"),
        ("replicas: 10\n  strategy: {type: Recreate}", "main 10 ×"),
        (
            "replicas: 10\n  strategy: {rollingUpdate: {maxSurge: 0}}",
            "main 10 ×",
        ),
        (
            "replicas: 10\n  strategy: {rollingUpdate: {maxSurge: 3}}",
            "main 13 ×",
        ),
        (
            "replicas: 10\n  strategy: {rollingUpdate: {maxSurge: 31%}}",
            "main 14 ×",
        ),
        (
            "replicas: 10\n  strategy: {rollingUpdate: {maxSurge: 200%}}",
            "main 30 ×",
        ),
        (
            "replicas: 10\n  strategy: {rollingUpdate: {maxSurge: many}}",
            "InvalidTemplate: spec.strategy.rollingUpdate.maxSurge is \"many\"",
        ),
    ] {
        let got = pods(spec);
        assert!(got.starts_with(want), "{spec}: {got}");
    }
}

#[test]
fn services_start_with_one_pod_unless_annotated() {
    assert_snapshot!(asked(&app("StatefulSet", "{}", "replicas: 3")), @r"
    main 3 × (cpu 2, pods 1) min 1
    min 1 (cpu 2, pods 1)
    held
    ");
    let gang = "{annotations: {muster.io/min-available: '3'}}";
    assert_snapshot!(asked(&app("ReplicaSet", gang, "replicas: 3")), @r"
    main 3 × (cpu 2, pods 1)
    min 3 (cpu 6, pods 3)
    held
    ");
    assert_snapshot!(asked(&app("StatefulSet", gang, "replicas: 2")), @r#"InvalidTemplate: metadata.annotations[muster.io/min-available] is "3"; needed: a whole number from 1 to 2, the pods it has"#);
}

#[test]
fn only_deployments_without_surge_are_divisible() {
    let divisible = |kind, spec| divisible_kind(&yaml(&app(kind, "{}", spec)));
    assert!(divisible("Deployment", "strategy: {type: Recreate}"));
    assert!(!divisible("Deployment", "replicas: 10"));
    assert!(!divisible("StatefulSet", "replicas: 10"));
}
