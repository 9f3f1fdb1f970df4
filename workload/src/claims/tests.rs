#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::testing::yaml;
use crate::{ClaimedDevices, SpecError, WorkloadSpec, claimed_devices, pod_request, read_spec};

/// The claims of a template with these requests.
fn template(requests: &str) -> ClaimedDevices {
    claimed_devices(&yaml(&format!(
        "{{metadata: {{name: t}}, spec: {{spec: {{devices: {{requests: {requests}}}}}}}}}"
    )))
}

fn claims(requests: &str) -> String {
    match template(requests).0 {
        Ok(devices) => devices.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn devices_are_counted_by_class_where_their_number_is_known() {
    let gpu = "deviceclass.resource.kubernetes.io/gpu.nvidia.com";
    let rows = [
        (
            "[{name: a, exactly: {deviceClassName: gpu.nvidia.com}}]",
            format!("{gpu} 1"),
        ),
        (
            "[{name: a, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 4}}]",
            format!("{gpu} 4"),
        ),
        (
            "[{name: a, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}, {name: b, exactly: {deviceClassName: gpu.nvidia.com}}]",
            format!("{gpu} 3"),
        ),
        (
            "[{name: a, exactly: {deviceClassName: gpu.nvidia.com}}, {name: n, exactly: {deviceClassName: nic.x}}]",
            format!("{gpu} 1, deviceclass.resource.kubernetes.io/nic.x 1"),
        ),
        (
            "[{name: a, exactly: {deviceClassName: gpu.nvidia.com, adminAccess: true}}]",
            String::new(),
        ),
        ("[]", String::new()),
    ];
    for (requests, want) in rows {
        assert_eq!(claims(requests), want, "{requests}");
    }
}

#[test]
fn claims_that_cannot_be_counted_are_named() {
    let rows = [
        (
            "[{name: a, exactly: {deviceClassName: c, allocationMode: All}}]",
            "spec.spec.devices.requests[0].exactly.allocationMode: with \"All\"",
        ),
        (
            "[{name: a, firstAvailable: [{name: x, deviceClassName: c}]}]",
            "spec.spec.devices.requests[0].firstAvailable: which of its alternatives",
        ),
        (
            "[{name: a, exactly: {deviceClassName: c, capacity: {requests: {memory: 1Gi}}}}]",
            "spec.spec.devices.requests[0].exactly.capacity: parts of devices",
        ),
        (
            "[{name: a, exactly: {count: 1}}]",
            "spec.spec.devices.requests[0].exactly.deviceClassName is absent",
        ),
        (
            "[{name: a, exactly: {deviceClassName: c, count: -1}}]",
            "spec.spec.devices.requests[0].exactly.count is -1",
        ),
    ];
    for (requests, want) in rows {
        let said = claims(requests);
        assert!(said.starts_with(want), "{requests}: {said}");
    }
}

/// A batch Job of three pods, each of which makes two claims of `one` and one of `two`.
fn job() -> WorkloadSpec {
    read_spec(&yaml(
        "
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: ns}
spec:
  parallelism: 3
  completions: 3
  template:
    spec:
      resourceClaims:
      - {name: a, resourceClaimTemplateName: one}
      - {name: b, resourceClaimTemplateName: one}
      - {name: c, resourceClaimTemplateName: two}
      containers: [{name: c, resources: {requests: {cpu: 1}, claims: [{name: a}, {name: b}]}}]
",
    ))
    .unwrap()
}

#[test]
fn a_job_requests_what_its_templates_claim_for_each_pod() {
    let (one, two) = (
        template("[{name: a, exactly: {deviceClassName: gpu, count: 2}}]"),
        template(
            "[{name: a, exactly: {deviceClassName: gpu}}, {name: b, exactly: {deviceClassName: nic}}]",
        ),
    );
    let named: Vec<_> = job()
        .claim_templates()
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(named, ["one", "two"]);
    let of = |name: &str| match name {
        "one" => Some(&one),
        _ => Some(&two),
    };
    let spec = job().with_claims(&of).unwrap();
    assert!(spec.claim_templates().is_empty());
    assert_eq!(
        spec.roles[0].request.to_string(),
        "cpu 1, deviceclass.resource.kubernetes.io/gpu 5, deviceclass.resource.kubernetes.io/nic 1, pods 1"
    );
    assert_eq!(
        spec.min_resources.to_string(),
        "cpu 3, deviceclass.resource.kubernetes.io/gpu 15, deviceclass.resource.kubernetes.io/nic 3, pods 3"
    );
}

#[test]
fn a_job_without_its_claims_requests_everything_else() {
    let spec = job().without_claims();
    assert!(spec.claim_templates().is_empty());
    assert_eq!(spec.roles[0].request.to_string(), "cpu 1, pods 1");
    assert_eq!(spec.min_resources.to_string(), "cpu 3, pods 3");
}

#[test]
fn a_job_whose_template_is_missing_or_not_countable_has_no_size() {
    let all = template("[{name: a, exactly: {deviceClassName: gpu, allocationMode: All}}]");
    let error = |of: &dyn Fn(&str) -> Option<&'static ClaimedDevices>| {
        let error = job().with_claims(of).unwrap_err();
        assert!(matches!(error, SpecError::Uncounted { .. }), "{error}");
        assert_eq!(error.reason(), facts::Reason::SizeUnknown);
        error.to_string()
    };
    let missing = error(&|_| None);
    assert!(
        missing.starts_with("ResourceClaimTemplate one: it was not found"),
        "{missing}"
    );
    let all: &'static ClaimedDevices = Box::leak(Box::new(all));
    let all = error(&|_| Some(all));
    assert!(
        all.starts_with(
            "ResourceClaimTemplate one: spec.spec.devices.requests[0].exactly.allocationMode"
        ),
        "{all}"
    );
}

#[test]
fn a_shared_claim_belongs_to_no_pod() {
    let pod =
        yaml("{resourceClaims: [{name: a, resourceClaimName: mine}], containers: [{name: c}]}");
    let error = pod_request(&pod).unwrap_err();
    assert_eq!(
        error.to_string(),
        "resourceClaims[0].resourceClaimName: ResourceClaim mine may be shared, and its devices cannot be counted for one pod; name a ResourceClaimTemplate instead"
    );
    let pod = yaml("{resourceClaims: [{name: a}], containers: [{name: c}]}");
    assert!(matches!(pod_request(&pod), Err(SpecError::Invalid { .. })));
}
