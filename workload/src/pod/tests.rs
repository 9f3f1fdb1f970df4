#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::pod_request;
use crate::testing::{asked, yaml};
use insta::assert_snapshot;

fn request(spec: &str) -> String {
    match pod_request(&yaml(spec)) {
        Ok(request) => request.to_string(),
        Err(error) => error.to_string(),
    }
}

/// k8s.io/component-helpers/resource, AggregateContainerRequests and KEP-753.
#[test]
fn init_containers_and_sidecars_overlap_as_they_run() {
    // The containers together.
    assert_snapshot!(request("{containers: [{resources: {requests: {cpu: 1}}}, {resources: {requests: {cpu: 500m, memory: 1Gi}}}]}"), @"cpu 1500m, memory 1Gi, pods 1");
    // An init container alone is larger in CPU only.
    assert_snapshot!(request("{containers: [{resources: {requests: {cpu: 1, memory: 2Gi}}}], initContainers: [{resources: {requests: {cpu: 3, memory: 1Gi}}}]}"), @"cpu 3, memory 2Gi, pods 1");
    // A sidecar runs besides the containers.
    assert_snapshot!(request("{containers: [{resources: {requests: {cpu: 1}}}], initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 2}}}]}"), @"cpu 3, pods 1");
    // An init container runs with the sidecars started before it: 2 + 5, not with the later one.
    assert_snapshot!(request("{containers: [{resources: {requests: {cpu: 1}}}], initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 2}}}, {resources: {requests: {cpu: 5}}}, {restartPolicy: Always, resources: {requests: {cpu: 3}}}]}"), @"cpu 7, pods 1");
    // In the reverse order: 5 alone, then 1 + 2 + 3.
    assert_snapshot!(request("{containers: [{resources: {requests: {cpu: 1}}}], initContainers: [{resources: {requests: {cpu: 5}}}, {restartPolicy: Always, resources: {requests: {cpu: 2}}}, {restartPolicy: Always, resources: {requests: {cpu: 3}}}]}"), @"cpu 6, pods 1");
}

#[test]
fn limits_count_where_requests_are_absent() {
    assert_snapshot!(request("{containers: [{resources: {requests: {cpu: 1}, limits: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 2}}}]}"), @"cpu 1, memory 8Gi, nvidia.com/gpu 2, pods 1");
}

#[test]
fn overhead_is_added_and_zero_amounts_are_dropped() {
    assert_snapshot!(request("{overhead: {cpu: 250m, memory: 120Mi}, containers: [{resources: {requests: {cpu: 1, nvidia.com/gpu: 0}}}]}"), @"cpu 1250m, memory 120Mi, pods 1");
    assert_snapshot!(request("{containers: [{}]}"), @"pods 1");
}

/// KEP-2837 with the defaults of pkg/apis/core/v1/defaults.go.
#[test]
fn pod_level_resources_stand_above_the_containers() {
    let containers = "containers: [{resources: {requests: {cpu: 1, nvidia.com/gpu: 1, hugepages-2Mi: 4Mi}, limits: {hugepages-2Mi: 4Mi}}}]";
    let with = |resources: &str| request(&format!("{{resources: {resources}, {containers}}}"));
    assert_snapshot!(with("{requests: {cpu: 4, memory: 1Gi}}"), @"cpu 4, hugepages-2Mi 4Mi, memory 1Gi, nvidia.com/gpu 1, pods 1");
    // A limit of the pod is a request only where no container requests the resource.
    assert_snapshot!(with("{limits: {cpu: 8, memory: 2Gi, hugepages-2Mi: 8Mi}}"), @"cpu 1, hugepages-2Mi 8Mi, memory 2Gi, nvidia.com/gpu 1, pods 1");
    // Devices are no pod-level resource.
    assert_snapshot!(with("{requests: {nvidia.com/gpu: 8}}"), @"cpu 1, hugepages-2Mi 4Mi, nvidia.com/gpu 1, pods 1");
}

#[test]
fn a_pod_is_a_job_of_one() {
    assert_snapshot!(asked(r#"
apiVersion: v1
kind: Pod
metadata: {annotations: {scheduling.volcano.sh/queue-name: q}}
spec:
  activeDeadlineSeconds: 30
  priorityClassName: high
  nodeName: node-7
  containers: [{resources: {requests: {cpu: 1}}}]
"#), @r#"
    main 1 × (cpu 1, pods 1)
      on field metadata.name in ["node-7"]
    min 1 (cpu 1, pods 1)
    queue q
    class high
    runs 30000 ms
    held
    "#);
}

#[test]
fn invalid_quantities_are_named_with_their_path() {
    let with = |requests: &str| {
        request(&format!(
            "{{containers: [{{}}, {{resources: {{requests: {{{requests}}}}}}}]}}"
        ))
    };
    assert_snapshot!([
        with("nvidia.com/gpu: '-1'"),
        with("memory: 1 GB"),
        with("cpu: 9223372036854775807"),
        with("cpu: true"),
        with("cpu: 1.5, memory: 1e3"),
        request("{containers: [{resources: {requests: {memory: 8Ei}}}, {resources: {requests: {memory: 8Ei}}}]}"),
        request("{containers: []}"),
        request("{containers: 5}"),
    ].join("\n"), @r#"
    containers[1].resources.requests[nvidia.com/gpu] is "-1"; needed: 0 or more
    containers[1].resources.requests[memory] is "1 GB"; needed: a quantity such as 500m, 2 or 1.5Gi
    containers[1].resources.requests[cpu] is 9223372036854775807; needed: at most 2^63-1 base units
    containers[1].resources.requests[cpu] is true; needed: a quantity such as 500m, 2 or 1.5Gi
    cpu 1500m, memory 1000, pods 1
    the object is memory 9223372036854775807 and memory 9223372036854775807; needed: amounts whose sum can be counted in 63 bits
    containers is []; needed: at least one container
    containers is 5; needed: a list
    "#);
}
