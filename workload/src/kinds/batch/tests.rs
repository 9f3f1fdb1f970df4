#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::testing::{asked, yaml};
use crate::{divisible_kind, natively_divisible};
use insta::assert_snapshot;
use serde_json::json;

fn job(metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {metadata}\nspec:\n  {spec}\n  template: {{spec: {{priorityClassName: low, containers: [{{resources: {{requests: {{nvidia.com/gpu: '1'}}}}}}]}}}}\n"
    )
}

#[test]
fn what_runs_at_once_is_counted() {
    assert_snapshot!(asked(&job("{labels: {muster.io/queue: vision}}", "parallelism: 8")), @r"
    main 8 × (nvidia.com/gpu 1, pods 1)
    min 8 (nvidia.com/gpu 8, pods 8)
    queue vision
    class low
    held
    ");
    for (spec, pods) in [
        ("backoffLimit: 3", 1),
        ("parallelism: 8", 8),
        ("{parallelism: 8, completions: 3}", 3),
        ("{parallelism: 8, completions: 5000000000}", 8),
        ("{parallelism: 0}", 0),
        ("{parallelism: null, completions: 4}", 1),
    ] {
        let template = job("{}", "").replace(
            "spec:\n  \n",
            &format!(
                "spec:\n  {}\n",
                spec.trim_matches(['{', '}']).replace(", ", "\n  ")
            ),
        );
        let read = crate::read_spec(&yaml(&template)).unwrap();
        assert_eq!(
            (read.roles[0].count, read.min_available),
            (pods, pods),
            "{spec}"
        );
    }
}

#[test]
fn the_annotation_lowers_the_minimum() {
    let with = |min: &str| {
        asked(&job(
            &format!("{{annotations: {{muster.io/min-available: '{min}'}}}}"),
            "parallelism: 8",
        ))
    };
    assert_snapshot!(with("2"), @r"
    main 8 × (nvidia.com/gpu 1, pods 1) min 2
    min 2 (nvidia.com/gpu 2, pods 2)
    class low
    held
    ");
    assert_snapshot!([with("0"), with("9"), with("50%"), with("-1")].join("\n"), @r#"
    InvalidTemplate: metadata.annotations[muster.io/min-available] is "0"; needed: a whole number from 1 to 8, the pods it has
    InvalidTemplate: metadata.annotations[muster.io/min-available] is "9"; needed: a whole number from 1 to 8, the pods it has
    InvalidTemplate: metadata.annotations[muster.io/min-available] is "50%"; needed: a whole number from 1 to 8, the pods it has
    InvalidTemplate: metadata.annotations[muster.io/min-available] is "-1"; needed: a whole number from 1 to 8, the pods it has
    "#);
}

#[test]
fn durations_are_the_shorter_of_declared_and_deadline() {
    let with = |declared: &str, deadline: &str| {
        let metadata = format!("{{annotations: {{muster.io/expected-duration: '{declared}'}}}}");
        crate::read_spec(&yaml(&job(
            &metadata,
            &format!("activeDeadlineSeconds: {deadline}"),
        )))
        .map(|spec| spec.expected_duration_ms)
        .map_err(|error| error.to_string())
    };
    assert_eq!(with("2h30m", "null"), Ok(Some(9_000_000)));
    assert_eq!(with("2h30m", "60"), Ok(Some(60_000)));
    assert_eq!(with("30s", "60"), Ok(Some(30_000)));
    assert_snapshot!(with("soon", "60").unwrap_err(), @r#"metadata.annotations[muster.io/expected-duration] is "soon"; needed: a duration such as 2h30m, 90s or a whole number of seconds"#);
    assert_snapshot!(with("30s", "-1").unwrap_err(), @"spec.activeDeadlineSeconds is -1; needed: a whole number of seconds");
}

#[test]
fn it_is_divided_natively_unless_its_pods_have_identities() {
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    let duplicated = json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}});
    let plain = yaml(&job("{}", "parallelism: 8"));
    assert!(natively_divisible(&plain, Some(&divided)));
    assert!(!natively_divisible(&plain, Some(&duplicated)));
    assert!(!natively_divisible(&plain, Some(&json!({}))));
    assert!(!natively_divisible(&plain, None));
    assert!(!divisible_kind(&yaml(&job(
        "{}",
        "completionMode: Indexed"
    ))));
}
