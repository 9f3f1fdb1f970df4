#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::testing::asked;
use insta::assert_snapshot;

fn job_set(annotation: &str) -> String {
    format!(
        r#"
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{annotations: {{{annotation}}}}}
spec:
  suspend: true
  replicatedJobs:
  - name: leader
    template: {{spec: {{template: {{spec: {{containers: [{{resources: {{requests: {{cpu: 1}}}}}}]}}}}}}}}
  - name: workers
    replicas: 4
    template:
      spec:
        parallelism: 8
        completions: 2
        template: {{spec: {{priorityClassName: high, containers: [{{resources: {{requests: {{nvidia.com/gpu: 8}}}}}}]}}}}
"#
    )
}

#[test]
fn jobs_times_their_pods() {
    assert_snapshot!(asked(&job_set("")), @r"
    leader 1 × (cpu 1, pods 1)
    workers 8 × (nvidia.com/gpu 8, pods 1)
    min 9 (cpu 1, nvidia.com/gpu 64, pods 9)
    class high
    suspended
    ");
    assert_snapshot!(asked(&job_set("muster.io/min-available: '5'")), @r"
    leader 1 × (cpu 1, pods 1) min 0
    workers 8 × (nvidia.com/gpu 8, pods 1) min 0
    min 5 (cpu 1, nvidia.com/gpu 32, pods 5)
    class high
    suspended
    ");
}

#[test]
fn invalid_values_are_named() {
    let set = |jobs: &str| {
        asked(&format!(
            "{{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {{replicatedJobs: {jobs}}}}}"
        ))
    };
    assert_snapshot!([
        set("[]"),
        set("[{}]"),
        set("[{name: a, replicas: 2000, template: {spec: {parallelism: 2000}}}]"),
        set("[{name: a, template: {spec: {completions: -1}}}]"),
    ].join("\n"), @r"
    InvalidTemplate: spec.replicatedJobs is []; needed: at least one replicated job
    InvalidTemplate: spec.replicatedJobs[0].name is absent; needed: a name
    InvalidTemplate: spec.replicatedJobs[0] is 2000 × 2000 pods; needed: at most 1000000 pods
    InvalidTemplate: spec.replicatedJobs[0].template.spec.completions is -1; needed: a whole number from 0
    ");
}
