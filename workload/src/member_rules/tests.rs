#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::testing::yaml;
use crate::{pod_shapes, read_spec};

/// Classes of runtimes: one with an overhead, one without.
fn classes() -> BTreeMap<String, Resources> {
    let overhead = Resources::parse([("cpu", "1"), ("memory", "128Mi")]).unwrap();
    let none = Resources::new();
    BTreeMap::from([("kata".to_owned(), overhead), ("runc".to_owned(), none)])
}

fn limit_range(spec: &str) -> NamespaceRules {
    let rules = LimitRangeRules::read(&yaml(spec)).unwrap();
    NamespaceRules {
        limit_ranges: BTreeMap::from([("defaults".to_owned(), rules)]),
        ..NamespaceRules::default()
    }
}

fn quota(spec: &str, used: &str) -> NamespaceRules {
    let status = yaml(&format!("{{used: {used}}}"));
    let rules = QuotaRules::read(&yaml(spec), &status).unwrap();
    NamespaceRules {
        quotas: BTreeMap::from([("team".to_owned(), rules)]),
        ..NamespaceRules::default()
    }
}

/// A Job of four pods with this pod spec.
fn found_with(pod: &str, namespace: &NamespaceRules, whole: bool) -> InMember {
    found_among(Some(&classes()), pod, namespace, whole)
}

fn found_among(
    classes: Option<&BTreeMap<String, Resources>>,
    pod: &str,
    namespace: &NamespaceRules,
    whole: bool,
) -> InMember {
    let mut template = yaml(&format!(
        "{{apiVersion: batch/v1, kind: Job, spec: {{parallelism: 4, completions: 4, template: {{spec: {pod}}}}}}}"
    ));
    let roles = read_spec(&template).unwrap().roles;
    let rules = MemberRules {
        runtime_classes: classes,
        namespace,
        kind: ("batch/v1", "Job"),
        whole,
    };
    in_member(&roles, &pod_shapes(&mut template), rules)
}

/// The request in the member, or why it refuses the pods.
fn found(pod: &str, namespace: &NamespaceRules) -> String {
    let found = found_with(pod, namespace, true);
    let requests = found.requests.values().map(Resources::to_string);
    let requests = requests.collect::<Vec<_>>().join("; ");
    found.refused.unwrap_or(match requests.as_str() {
        "" => "as its template".to_owned(),
        other => other.to_owned(),
    })
}

/// plugin/pkg/admission/limitranger, and kubernetes.io/docs/concepts/policy/limit-range.
#[test]
fn a_limit_range_defaults_what_a_container_does_not_state() {
    let namespace = limit_range(
        "{limits: [{type: Container, default: {cpu: 2, memory: 1Gi, nvidia.com/gpu: 1}, defaultRequest: {cpu: 500m, memory: 256Mi, nvidia.com/gpu: 1}}]}",
    );
    for (pod, wanted) in [
        (
            "{containers: [{name: a}]}",
            "cpu 500m, memory 256Mi, nvidia.com/gpu 1, pods 1",
        ),
        // A request stays; only the other resources are defaulted.
        (
            "{containers: [{resources: {requests: {cpu: 1, nvidia.com/gpu: 2}}}]}",
            "cpu 1, memory 256Mi, nvidia.com/gpu 2, pods 1",
        ),
        // The API server has made a limit the request before.
        (
            "{containers: [{resources: {limits: {cpu: 3, memory: 2Gi, nvidia.com/gpu: 1}}}]}",
            "as its template",
        ),
        // A zero is a request.
        (
            "{containers: [{resources: {requests: {cpu: 0, memory: 1Gi, nvidia.com/gpu: 0}}}]}",
            "as its template",
        ),
        // Each container is defaulted, init containers and sidecars too.
        (
            "{containers: [{name: a}, {name: b}], initContainers: [{name: s, restartPolicy: Always}, {name: i, resources: {requests: {cpu: 4, memory: 1Mi, nvidia.com/gpu: 0}}}]}",
            "cpu 4500m, memory 768Mi, nvidia.com/gpu 3, pods 1",
        ),
        // Pod-level requests stand above all containers.
        (
            "{resources: {requests: {cpu: 1, memory: 1Gi}}, containers: [{name: a}]}",
            "cpu 1, memory 1Gi, nvidia.com/gpu 1, pods 1",
        ),
    ] {
        assert_eq!(found(pod, &namespace), wanted, "{pod}");
    }
}

/// plugin/pkg/admission/runtimeclass, KEP-688.
#[test]
fn a_runtime_class_adds_its_overhead() {
    let none = NamespaceRules::default();
    let container = "containers: [{resources: {requests: {cpu: 1}}}]";
    for (of, wanted) in [
        ("kata", "cpu 2, memory 128Mi, pods 1"),
        ("runc", "as its template"),
        ("gvisor", "it has no RuntimeClass gvisor"),
    ] {
        let pod = format!("{{runtimeClassName: {of}, {container}}}");
        assert_eq!(found(&pod, &none), wanted, "{of}");
    }
    // A member that has none refuses each; one of which that is not known refuses nothing.
    let pod = format!("{{runtimeClassName: kata, {container}}}");
    let empty = BTreeMap::new();
    let of_none = found_among(Some(&empty), &pod, &none, true);
    assert_eq!(
        of_none.refused.as_deref(),
        Some("it has no RuntimeClass kata")
    );
    assert_eq!(found_among(None, &pod, &none, true), InMember::default());
    // The template may state the same overhead itself.
    let stated =
        format!("{{runtimeClassName: kata, overhead: {{cpu: 1, memory: 128Mi}}, {container}}}");
    assert_eq!(found(&stated, &none), "as its template");
    let both = limit_range("{limits: [{type: Container, defaultRequest: {memory: 1Gi}}]}");
    let pod = format!("{{runtimeClassName: kata, {container}}}");
    assert_eq!(found(&pod, &both), "cpu 2, memory 1152Mi, pods 1");
}

/// A LimitRange defaults and bounds each container of a pod that the operator makes, also those that the operator adds.
#[test]
fn a_limit_range_meets_the_init_container_of_an_operator() {
    let found = |limit: &str| {
        let mut template = yaml(
            "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {Master: {template: {spec: {containers: [{}]}}}, Worker: {template: {spec: {containers: [{}]}}}}}}",
        );
        let roles = read_spec(&template).unwrap().roles;
        let namespace = limit_range(&format!("{{limits: [{{type: Container, {limit}}}]}}"));
        let rules = MemberRules {
            runtime_classes: None,
            namespace: &namespace,
            kind: ("kubeflow.org/v1", "PyTorchJob"),
            whole: true,
        };
        in_member(&roles, &pod_shapes(&mut template), rules)
    };
    let worker = found("defaultRequest: {cpu: 1}").requests["worker"].to_string();
    assert_eq!(worker, "cpu 1, memory 10Mi, pods 1");
    let refused = found("defaultRequest: {cpu: 1}, min: {cpu: 100m}").refused;
    let why = "its LimitRange defaults refuses pods of worker: at least cpu 100m for each container, which requests cpu 50m";
    assert_eq!(refused.as_deref(), Some(why));
}

/// The tables of limitranger/admission_test.go.
#[test]
fn a_limit_range_refuses_pods_out_of_its_bounds() {
    let container =
        |limit: &str| limit_range(&format!("{{limits: [{{type: Container, {limit}}}]}}"));
    let pod = |limit: &str| limit_range(&format!("{{limits: [{{type: Pod, {limit}}}]}}"));
    let one = "{containers: [{resources: {requests: {cpu: 1}, limits: {cpu: 2}}}]}";
    let two = "{containers: [{resources: {requests: {cpu: 1}, limits: {cpu: 2}}}, {resources: {requests: {cpu: 1}, limits: {cpu: 2}}}]}";
    for (what, namespace, wanted) in [
        (
            one,
            container("max: {cpu: 2}, min: {cpu: 1}"),
            "as its template",
        ),
        (
            one,
            container("max: {cpu: 1500m}"),
            "its LimitRange defaults refuses pods of main: at most cpu 1500m for each container, which has the limit cpu 2",
        ),
        (
            one,
            container("min: {cpu: 1500m}"),
            "its LimitRange defaults refuses pods of main: at least cpu 1500m for each container, which requests cpu 1",
        ),
        (
            one,
            container("max: {memory: 1Gi}"),
            "its LimitRange defaults refuses pods of main: at most memory 1Gi for each container, which has the limit no amount",
        ),
        (
            one,
            container("maxLimitRequestRatio: {cpu: 2}"),
            "as its template",
        ),
        (
            one,
            container("maxLimitRequestRatio: {cpu: 1500m}"),
            "its LimitRange defaults refuses pods of main: maxLimitRequestRatio of cpu for each container, which requests 1 with the limit 2",
        ),
        (two, container("max: {cpu: 2}"), "as its template"),
        (two, pod("max: {cpu: 4}"), "as its template"),
        (
            two,
            pod("max: {cpu: 3}"),
            "its LimitRange defaults refuses pods of main: at most cpu 3 for each pod, which has the limit cpu 4",
        ),
    ] {
        assert_eq!(found(what, &namespace), wanted, "{what}");
    }
}

#[test]
fn a_quota_refuses_what_exceeds_the_rest_of_it() {
    let one = "{containers: [{resources: {requests: {cpu: 1, nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}}]}";
    let refused = |why: &str| format!("its ResourceQuota team refuses the pods: {why}");
    for (hard, used, wanted) in [
        ("{requests.cpu: 4, pods: 4}", "{}", None),
        (
            "{requests.cpu: 4}",
            "{requests.cpu: 500m}",
            Some("requests.cpu: hard 4, used 500m, needed 4"),
        ),
        ("{cpu: 3}", "{}", Some("cpu: hard 3, used 0, needed 4")),
        (
            "{requests.nvidia.com/gpu: 8}",
            "{requests.nvidia.com/gpu: 6}",
            Some("requests.nvidia.com/gpu: hard 8, used 6, needed 4"),
        ),
        (
            "{pods: 10}",
            "{pods: 7}",
            Some("pods: hard 10, used 7, needed 4"),
        ),
        (
            "{count/pods: 3}",
            "{}",
            Some("count/pods: hard 3, used 0, needed 4"),
        ),
        (
            "{count/jobs.batch: 1}",
            "{count/jobs.batch: 1}",
            Some("count/jobs.batch: hard 1, used 1, needed 1"),
        ),
        (
            "{count/deployments.apps: 0, persistentvolumeclaims: 0, requests.storage: 0}",
            "{}",
            None,
        ),
        // Even where it would suffice: the API server wants to see the amount.
        (
            "{limits.cpu: 100}",
            "{}",
            Some("each container of main must specify limits.cpu"),
        ),
        // More is used than allowed, of something that the pods do not request.
        (
            "{requests.ephemeral-storage: 1Gi}",
            "{requests.ephemeral-storage: 2Gi}",
            None,
        ),
    ] {
        let namespace = quota(&format!("{{hard: {hard}}}"), used);
        let wanted = wanted.map_or_else(|| "as its template".to_owned(), refused);
        assert_eq!(found(one, &namespace), wanted, "{hard} {used}");
    }
}

#[test]
fn a_quota_counts_the_pods_of_its_scopes_with_what_is_added_to_them() {
    let scoped = |scope: &str| {
        quota(
            &format!("{{hard: {{requests.cpu: 4}}, {scope}}}"),
            "{requests.cpu: 1}",
        )
    };
    let refuses = |pod: &str, scope: &str| found_with(pod, &scoped(scope), true).refused.is_some();
    let one = "{priorityClassName: high, containers: [{resources: {requests: {cpu: 1}}}]}";
    for (scope, refused) in [
        ("scopes: [NotTerminating]", true),
        ("scopes: [Terminating]", false),
        ("scopes: [NotBestEffort]", true),
        ("scopes: [BestEffort]", false),
        ("scopes: [CrossNamespacePodAffinity]", false),
        ("scopes: [NotTerminating, BestEffort]", false),
        (
            "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}",
            true,
        ),
        (
            "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [low]}]}",
            false,
        ),
        (
            "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: NotIn, values: [low]}]}",
            true,
        ),
        (
            "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: Exists}]}",
            true,
        ),
    ] {
        assert_eq!(refuses(one, scope), refused, "{scope}");
    }
    let mut rules = quota("{hard: {requests.cpu: 8}}", "{requests.cpu: 1}");
    let kata = "{runtimeClassName: kata, containers: [{resources: {requests: {cpu: 1}}}]}";
    assert_eq!(found(one, &rules), "as its template");
    assert_eq!(
        found(kata, &rules),
        "its ResourceQuota team refuses the pods: requests.cpu: hard 8, used 1, needed 8"
    );
    // Pods that may go to several clusters are refused one by one.
    assert_eq!(found_with(kata, &rules, false).refused, None);
    rules = quota("{hard: {requests.cpu: 8}}", "{requests.cpu: 7}");
    assert!(found_with(kata, &rules, false).refused.is_some());
}
