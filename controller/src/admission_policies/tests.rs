//! The keeper between a fake control plane and a channel.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use runtime::testing::{FakeApi, Fault, Recorded};
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

const POLICY: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/muster-bindings";
const BINDING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/muster-bindings";

/// A fake control plane that refuses the probe as the policies do, and the inputs of the owner task.
struct Stage {
    api: FakeApi,
    inputs: mpsc::Receiver<Input>,
    metrics: AdmissionPolicyMetrics,
    _cancel: DropGuard,
}

fn stage(api: FakeApi) -> Stage {
    let (sender, inputs) = mpsc::channel(8);
    let cancel = CancellationToken::new();
    let metrics = AdmissionPolicyMetrics::new(&Registry::new());
    let (term, own) = (Term::always(), metrics.clone());
    spawn(api.client(), &term, sender, own, cancel.clone());
    Stage {
        api,
        inputs,
        metrics,
        _cancel: cancel.drop_guard(),
    }
}

/// Makes each policy refuse its probe from now on, `times` in all.
fn refuse(api: &FakeApi, times: usize) {
    for refusal in [
        "ValidatingAdmissionPolicy 'muster-bindings' says no",
        "ValidatingAdmissionPolicy 'muster-works' says no",
        "ValidatingAdmissionPolicy 'muster-podgroups' says no",
        "ValidatingAdmissionPolicy 'muster-propagation-policies' says no",
        "ValidatingAdmissionPolicy 'muster-override-policies' says no",
        "ValidatingAdmissionPolicy 'muster-permitted-queue' says no",
        "ValidatingAdmissionPolicy 'muster-templates' says no",
        "ValidatingAdmissionPolicy 'muster-identities' says no",
        "ValidatingAdmissionPolicy 'muster-claims' says no",
        "ValidatingAdmissionPolicy 'muster-namespaces' says no",
    ] {
        let probe =
            move |request: &Recorded| tried(request).is_some_and(|policy| refusal.contains(policy));
        api.fault(times, Fault::Status(403, refusal), probe);
    }
}

/// Returns the policy that a request of the probe's account tests. That account sends the first of the two
/// dry runs of a binding, Muster's own account sends the second.
fn tried(request: &Recorded) -> Option<&'static str> {
    if request.impersonated.as_deref() != Some(probe::ACCOUNT) {
        return None;
    }
    if request.verb == "PATCH" {
        return request
            .path
            .ends_with("namespaces/muster-system")
            .then_some("'muster-namespaces'");
    }
    let selectors = &request.body["spec"]["resourceSelectors"];
    let annotations = &request.body["metadata"]["annotations"];
    let (_, resource) = request.path.rsplit_once('/')?;
    Some(match resource {
        "resourcebindings" => "'muster-bindings'",
        "works" => "'muster-works'",
        "podgroups" => "'muster-podgroups'",
        "propagationpolicies" if annotations["muster.io/permitted-queue"].is_string() => {
            "'muster-permitted-queue'"
        }
        "propagationpolicies" if annotations.is_object() => "'muster-templates'",
        "propagationpolicies" => "'muster-propagation-policies'",
        "overridepolicies" if selectors[0]["kind"] == "ConfigMap" => "'muster-identities'",
        "overridepolicies" => "'muster-override-policies'",
        "configmaps" => "'muster-claims'",
        _ => return None,
    })
}

impl Stage {
    async fn next_report(&mut self) -> Enforcement {
        match self.inputs.recv().await.unwrap() {
            Input::Enforcement(enforcement) => enforcement,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn missing_policies_are_created_and_in_force_once_a_tenant_is_refused() {
    let api = FakeApi::new();
    refuse(&api, 1);
    let mut stage = stage(api);
    assert_eq!(stage.next_report().await, Enforcement::InForce);
    assert_eq!(stage.metrics.enforced.get(), 1);
    let names = [
        "bindings",
        "works",
        "podgroups",
        "templates",
        "identities",
        "claims",
        "namespaces",
        "permitted-queue",
    ];
    for name in names {
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/muster-{name}"
        );
        assert!(stage.api.get(&path).is_some(), "{name}");
    }
    let dry = stage.api.requests_of("POST").into_iter();
    let dry = dry.filter(|request| request.path.contains("muster-system/"));
    assert!(dry.clone().count() >= 10);
    assert!(
        dry.filter(|request| !request.path.ends_with("events"))
            .all(|request| request.query["dryRun"] == "All")
    );
}

#[tokio::test(start_paused = true)]
async fn changed_and_deleted_policies_are_restored() {
    let api = FakeApi::new();
    refuse(&api, 100);
    let mut stage = stage(api);
    stage.next_report().await;
    let made = stage.api.get(POLICY).unwrap()["spec"].clone();
    // A server-side apply would leave the condition that exempts everyone.
    let open = json!({"name": "open", "expression": "false"});
    let mut changed = stage.api.get(POLICY).unwrap();
    let conditions = changed["spec"]["matchConditions"].as_array_mut().unwrap();
    conditions.push(open);
    stage.api.put(POLICY, changed);
    stage.api.remove(BINDING);
    tokio::time::sleep(CHECK * 2).await;
    assert_eq!(stage.api.get(POLICY).unwrap()["spec"], made);
    assert_eq!(
        stage.api.get(BINDING).unwrap()["spec"]["validationActions"],
        json!(["Deny"])
    );
    // Twenty at the start, and these two.
    assert_eq!(stage.metrics.restored.get(), 22);
    assert!(stage.inputs.try_recv().is_err(), "nothing new to tell");
    let writes = stage.api.requests_of("PUT").len();
    tokio::time::sleep(CHECK * 10).await;
    assert_eq!(stage.api.requests_of("PUT").len(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_not_refused_breaks_the_enforcement() {
    let mut stage = stage(FakeApi::new());
    let Enforcement::Broken(why) = stage.next_report().await else {
        panic!("a tenant was taken for refused");
    };
    assert!(
        why.contains("ValidatingAdmissionPolicy muster-bindings refuses nothing"),
        "{why}"
    );
    assert!(!Enforcement::Broken(why).allows_decisions());
    refuse(&stage.api, 100);
    assert_eq!(stage.next_report().await, Enforcement::InForce);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_changes_nothing() {
    let api = FakeApi::new();
    refuse(&api, 100);
    let mut stage = stage(api);
    assert_eq!(stage.next_report().await, Enforcement::InForce);
    for fault in [Fault::Status(503, "away"), Fault::Hang] {
        stage.api.fault(3, fault, |_| true);
        tokio::time::sleep(PROBE * 2).await;
    }
    assert!(stage.inputs.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn rights_or_kinds_that_are_missing_are_reported_with_what_helps() {
    for (fault, says) in [
        (
            Fault::Status(403, "cannot get resource"),
            "run `muster install` again: cannot get",
        ),
        (
            Fault::Status(404, "page not found"),
            "Kubernetes 1.30 or newer",
        ),
    ] {
        let api = FakeApi::new();
        api.fault(1_000, fault, |request| {
            request.path.contains("admissionregistration")
        });
        let mut stage = stage(api);
        let Enforcement::Broken(why) = stage.next_report().await else {
            panic!("taken for in force");
        };
        assert!(why.contains(says), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_musters_own_account_is_reported() {
    let api = FakeApi::new();
    refuse(&api, 1_000);
    api.fault(1_000, Fault::Status(403, "denied"), |request: &Recorded| {
        request.path.ends_with("resourcebindings") && request.impersonated.is_none()
    });
    let mut stage = stage(api);
    let Enforcement::Broken(why) = stage.next_report().await else {
        panic!("taken for in force");
    };
    assert!(why.contains("Muster's own account is refused"), "{why}");
}

#[test]
fn decisions_wait_for_the_policies_unless_a_flag_turns_them_off() {
    assert!(!Enforcement::at_start(true).allows_decisions());
    assert!(Enforcement::at_start(false).allows_decisions());
    assert!(Enforcement::InForce.allows_decisions());
}

/// The manifests spell out the server's defaults; otherwise the leader would rewrite the policies at each
/// check.
#[test]
fn the_policy_of_permitted_queues_exempts_no_one_and_names_its_defaults() {
    let objects: Vec<Value> = runtime::apply::parse(manifests::PERMITTED_QUEUE).unwrap();
    let [policy, binding] = objects.as_slice() else {
        panic!("{objects:?}");
    };
    assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    let constraints = &policy["spec"]["matchConstraints"];
    assert_eq!(constraints["matchPolicy"], "Equivalent");
    assert_eq!(constraints["objectSelector"], json!({}));
    assert!(constraints["namespaceSelector"].is_object());
    assert!(constraints["resourceRules"][0]["scope"].is_string());
    assert!(!policy.to_string().contains("bypass"));
    assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
    assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
}

#[test]
fn every_policy_exempts_by_one_right_and_has_a_denying_binding() {
    let objects: Vec<Value> = runtime::apply::parse(manifests::MANIFEST).unwrap();
    let (policies, bindings): (Vec<&Value>, Vec<&Value>) = objects
        .iter()
        .partition(|object| object["kind"] == "ValidatingAdmissionPolicy");
    assert_eq!(policies.len(), 9);
    for policy in policies {
        let name = &policy["metadata"]["name"];
        let spec = &policy["spec"];
        assert_eq!(spec["failurePolicy"], "Fail", "{name}");
        let conditions = spec["matchConditions"].as_array().unwrap();
        // Two policies cover all objects and evaluate only those with certain labels or annotations.
        let of_all = *name == "muster-templates" || *name == "muster-claims";
        assert_eq!(conditions.len(), 1 + usize::from(of_all), "{name}");
        let exempts = |condition: &&Value| {
            let expression = condition["expression"].as_str().unwrap();
            expression.contains("check('bypass')")
        };
        assert_eq!(conditions.iter().filter(exempts).count(), 1, "{name}");
        let binding = bindings
            .iter()
            .find(|binding| binding["spec"]["policyName"] == *name)
            .unwrap();
        assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
    }
}

/// A kind that tenants may propagate without a right of their own is gated.
#[test]
fn kinds_that_tenants_may_propagate_are_gated_or_have_no_pods() {
    let (_, list) = manifests::MANIFEST.split_once("['v1/Pod'").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    let list = format!("'v1/Pod'{list}");
    let kinds: Vec<(&str, &str)> = list
        .split(',')
        .map(|kind| kind.trim().trim_matches('\'').split_once('/').unwrap())
        .collect();
    for (group, kind) in &kinds {
        let api_version = match *group {
            "v1" => "v1".to_owned(),
            group => format!("{group}/v1"),
        };
        assert!(
            workload::may_start_pods(&api_version, kind),
            "{group}/{kind}"
        );
    }
    for known in workload::known_kinds() {
        let group = if known.group.is_empty() {
            "v1"
        } else {
            known.group
        };
        assert!(kinds.contains(&(group, known.kind)), "{known:?}");
    }
}
