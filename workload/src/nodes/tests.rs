#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::testing::asked;
use insta::assert_snapshot;

fn pod(spec: &str) -> String {
    asked(&format!(
        "{{apiVersion: v1, kind: Pod, spec: {{containers: [{{}}], {spec}}}}}"
    ))
}

fn affinity(terms: &str) -> String {
    format!(
        "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {terms}}}}}}}"
    )
}

#[test]
fn the_selector_is_part_of_every_term() {
    let terms = affinity(
        "[{matchExpressions: [{key: gpu, operator: In, values: [a100, h100]}, {key: spot, operator: DoesNotExist}]}, {matchFields: [{key: metadata.name, operator: NotIn, values: [bad]}]}]",
    );
    assert_snapshot!(pod(&format!("nodeSelector: {{zone: b, arch: amd64}}, {terms}")), @r#"
    main 1 × (pods 1)
      on arch in ["amd64"] and zone in ["b"] and gpu in ["a100", "h100"] and spot absent [] or arch in ["amd64"] and zone in ["b"] and field metadata.name not in ["bad"]
    min 1 (pods 1)
    held
    "#);
}

#[test]
fn an_empty_term_matches_no_node() {
    assert_snapshot!(pod(&affinity("[{}]")), @r"
    main 1 × (pods 1)
      on field metadata.name in []
    min 1 (pods 1)
    held
    ");
    assert_snapshot!(pod(&affinity("[{}, {matchExpressions: [{key: a, operator: Gt, values: ['3']}]}]")), @r#"
    main 1 × (pods 1)
      on a > ["3"]
    min 1 (pods 1)
    held
    "#);
}

#[test]
fn preferences_do_not_matter() {
    assert_snapshot!(pod("affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}"), @r"
    main 1 × (pods 1)
    min 1 (pods 1)
    held
    ");
}

#[test]
fn tolerations_are_read_as_kubernetes_does() {
    assert_snapshot!(pod("tolerations: [{operator: Exists}, {key: gpu, value: 'true', effect: NoSchedule}, {key: a, operator: Equal, effect: NoExecute, tolerationSeconds: 30}, {key: n, operator: Gt, value: '5'}]"), @r#"
    main 1 × (pods 1)
      tolerates "" None None
      tolerates "gpu" Some("true") Some(NoSchedule)
      tolerates "a" Some("") Some(NoExecute)
    min 1 (pods 1)
    held
    "#);
    assert_snapshot!(pod("tolerations: [{key: a, operator: Maybe}]"), @r#"InvalidTemplate: spec.tolerations[0].operator is "Maybe"; needed: Exists or Equal"#);
    assert_snapshot!(pod("tolerations: [{key: a, effect: Never}]"), @r#"InvalidTemplate: spec.tolerations[0].effect is "Never"; needed: NoSchedule, PreferNoSchedule or NoExecute"#);
    assert_snapshot!(pod(&affinity("[{matchExpressions: [{key: a, operator: Near}]}]")), @r#"InvalidTemplate: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator is "Near"; needed: In, NotIn, Exists, DoesNotExist, Gt or Lt"#);
}
