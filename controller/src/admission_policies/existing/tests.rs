//! Which part of a policy is checked, and what is reported of a policy that would be refused.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use runtime::testing::{FakeApi, Fault, Recorded};
use serde_json::json;

fn namespace(name: &str, managed: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"muster.io/managed": managed}}})
}

fn known(kind: PolicyKind, namespace_of: Option<&str>, spec: Value) -> (StoredPolicies, PolicyKey) {
    let mut found = StoredPolicies::default();
    let team = serde_json::from_value(namespace("team", "true")).unwrap();
    found.note(PolicyChange::Namespace(Delta::Upserted(team)));
    let object = json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": kind.name(),
        "metadata": {"name": "p", "namespace": namespace_of},
        "spec": spec,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let key = (kind, key_of(&object));
    found.note(PolicyChange::Policy(kind, Delta::Upserted(object)));
    (found, key)
}

#[test]
fn cluster_policies_are_probed_for_workloads_in_managed_namespaces_only() {
    use PolicyKind::*;
    let job = json!({"apiVersion": "batch/v1", "kind": "Job"});
    let in_namespace =
        |name: &str| json!({"apiVersion": "batch/v1", "kind": "Job", "namespace": name});
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let cases = [
        // Kind, namespace, selectors, the selectors that remain.
        (
            PropagationPolicy,
            Some("team"),
            json!([in_namespace("team"), config]),
            Some(json!([job, config])),
        ),
        (PropagationPolicy, Some("other"), json!([job]), None),
        (
            ClusterPropagationPolicy,
            None,
            json!([job]),
            Some(json!([job])),
        ),
        (
            ClusterPropagationPolicy,
            None,
            json!([in_namespace("other"), in_namespace("team")]),
            Some(json!([job])),
        ),
        (
            ClusterPropagationPolicy,
            None,
            json!([in_namespace("other")]),
            None,
        ),
        (OverridePolicy, Some("team"), json!([]), Some(json!([]))),
        // What no override may touch is checked wherever it applies.
        (
            OverridePolicy,
            Some("other"),
            json!([]),
            Some(json!([config])),
        ),
        (ClusterOverridePolicy, None, json!([]), Some(json!([]))),
        (
            ClusterOverridePolicy,
            None,
            json!([config]),
            Some(json!([config])),
        ),
        (
            ClusterOverridePolicy,
            None,
            json!([in_namespace("other")]),
            Some(json!([config])),
        ),
    ];
    for (kind, of, selectors, left) in cases {
        let spec = json!({"resourceSelectors": selectors, "preserveResourcesOnDeletion": true});
        let (found, key) = known(kind, of, spec);
        let tried = found.spec_to_check(&key).map(|spec| {
            assert_eq!(spec["preserveResourcesOnDeletion"], true);
            spec["resourceSelectors"].clone()
        });
        assert_eq!(tried, left, "{kind:?} of {of:?} with {selectors}");
    }
}

#[test]
fn without_managed_namespaces_and_for_musters_policies_nothing_is_probed() {
    let spec = json!({"resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}]});
    let (mut found, key) = known(PolicyKind::ClusterPropagationPolicy, None, spec);
    assert!(found.spec_to_check(&key).is_some());
    let team = serde_json::from_value(namespace("team", "false")).unwrap();
    found.note(PolicyChange::Namespace(Delta::Upserted(team)));
    assert_eq!(found.spec_to_check(&key), None);
    assert!(PolicyKind::PropagationPolicy.is_ours("muster"));
    assert!(PolicyKind::OverridePolicy.is_ours("muster-train-job"));
    assert!(!PolicyKind::ClusterOverridePolicy.is_ours("muster-train-job"));
}

#[test]
fn only_a_refusal_of_the_policies_names_a_field() {
    let ours = "propagationpolicies \"probe-x\" is forbidden: ValidatingAdmissionPolicy 'muster-propagation-policies' with \
                binding 'muster-propagation-policies' denied request: spec.schedulerName is default-scheduler: it has to be muster";
    assert_eq!(
        broken(ours),
        Some(Broken {
            rule: "spec.schedulerName".to_owned(),
            message: "spec.schedulerName is default-scheduler: it has to be muster".to_owned(),
        })
    );
    let path = "ValidatingAdmissionPolicy 'muster-override-policies' with binding 'b' denied request: spec.overrideRules: the path";
    assert_eq!(broken(path).unwrap().rule, "spec.overrideRules");
    for other in [
        "admission webhook \"propagationpolicy.karmada.io\" denied request: spec.placement is wrong",
        "ValidatingAdmissionPolicy 'others' with binding 'others' denied request: no",
    ] {
        assert_eq!(broken(other), None);
    }
}

/// A control plane with one managed namespace. Its dry runs refuse policies that preserve resources.
struct Stage {
    api: FakeApi,
    in_force: watch::Sender<bool>,
    count: Count,
    cancel: CancellationToken,
}

/// `first` is the fault of the first dry run.
fn stage(first: Option<Fault>) -> Stage {
    let api = FakeApi::new();
    let dry = |request: &Recorded| request.query.contains_key("dryRun");
    if let Some(fault) = first {
        api.fault(1, fault, dry);
    }
    api.put("/api/v1/namespaces/team", namespace("team", "true"));
    let preserves = |request: &Recorded| {
        request.verb == "POST" && request.body["spec"]["preserveResourcesOnDeletion"] == true
    };
    let refusal = "ValidatingAdmissionPolicy 'muster-propagation-policies' with binding 'b' denied request: \
                   spec.preserveResourcesOnDeletion is true: it has to be false";
    api.fault(100, Fault::Status(403, refusal), preserves);
    let (in_force, seen) = watch::channel(false);
    let (cancel, count) = (CancellationToken::new(), Count::default());
    spawn(
        &api.client(),
        &Term::always(),
        seen,
        count.clone(),
        cancel.clone(),
    );
    Stage {
        api,
        in_force,
        count,
        cancel,
    }
}

impl Stage {
    fn put(&self, path: &str, kind: PolicyKind, spec: Value) {
        let name = path.rsplit('/').next().unwrap();
        let path = format!("/apis/policy.karmada.io/v1alpha1/{path}");
        let object = json!({
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": kind.name(),
            "metadata": {"name": name},
            "spec": spec,
        });
        self.api.put(&path, object);
    }

    async fn counted(&self, kind: PolicyKind) -> i64 {
        tokio::time::sleep(RETRY_PAUSE * 3).await;
        let label = Label {
            kind: kind.name().to_owned(),
            rule: "spec.preserveResourcesOnDeletion".to_owned(),
        };
        self.count.get_or_create(&label).get()
    }

    fn events(&self) -> Vec<Recorded> {
        let mut posts = self.api.requests_of("POST");
        posts.retain(|request| request.path.ends_with("/events"));
        posts
    }
}

fn preserving(preserve: bool) -> Value {
    json!({
        "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
        "preserveResourcesOnDeletion": preserve,
    })
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_policy_is_reported_and_counted_until_it_is_fixed() {
    let stage = stage(None);
    let kind = PolicyKind::ClusterPropagationPolicy;
    stage.put("clusterpropagationpolicies/all", kind, preserving(true));
    assert_eq!(stage.counted(kind).await, 0, "nothing refuses yet");
    stage.in_force.send_replace(true);
    assert_eq!(stage.counted(kind).await, 1);
    let [event] = stage.events().try_into().unwrap();
    assert_eq!(event.body["reason"], REASON);
    assert_eq!(event.body["regarding"]["name"], "all");
    let note = event.body["note"].as_str().unwrap();
    assert!(
        note.contains("spec.preserveResourcesOnDeletion is true"),
        "{note}"
    );
    // Every check is a dry run with the account of a tenant.
    let mut tried = stage.api.requests_of("POST");
    tried.retain(|request| request.path.ends_with("propagationpolicies"));
    assert!(!tried.is_empty());
    for request in tried {
        assert_eq!(request.query["dryRun"], "All");
        assert_eq!(request.impersonated.as_deref(), Some(probe::ACCOUNT));
    }

    stage.put("clusterpropagationpolicies/all", kind, preserving(false));
    assert_eq!(stage.counted(kind).await, 0);
    stage.put("clusterpropagationpolicies/all", kind, preserving(true));
    assert_eq!(stage.counted(kind).await, 1);
    stage
        .api
        .put("/api/v1/namespaces/team", namespace("team", "false"));
    assert_eq!(stage.counted(kind).await, 0, "no namespace is managed");
}

#[tokio::test(start_paused = true)]
async fn a_missing_answer_is_retried_and_the_metric_ends_with_the_term() {
    let stage = stage(Some(Fault::Status(503, "away")));
    let kind = PolicyKind::PropagationPolicy;
    let own = "namespaces/team/propagationpolicies/own";
    stage.put(own, kind, preserving(true));
    stage.in_force.send_replace(true);
    assert_eq!(stage.counted(kind).await, 1);
    stage.cancel.cancel();
    assert_eq!(stage.counted(kind).await, 0);
}
