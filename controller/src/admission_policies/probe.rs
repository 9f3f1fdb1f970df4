//! Tests by dry runs that the policies refuse a tenant and not Muster. The account `muster-probe` sends one
//! request that each policy has to refuse, in the namespace `muster-system`.
//!
//! RBAC lets this account create these objects in that namespace only (`deploy/rbac-admission.yaml`), so
//! that only the policies can refuse it. Nothing is ever stored.

use crds::names::{
    MANAGED_LABEL, PERMITTED_QUEUE_ANNOTATION, POLICY_PERMANENT_ID, SYSTEM_NAMESPACE,
};
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use runtime::client::{CallError, CallFault, with_deadline};
use serde_json::{Value, json};
use std::time::Duration;

/// The account that has to be refused.
pub const ACCOUNT: &str = "system:serviceaccount:muster-system:muster-probe";
/// The header that names the account to impersonate.
const IMPERSONATE: &str = "impersonate-user";
/// Karmada's annotation that says what to do if a member already has the object.
const CONFLICT_RESOLUTION_ANNOTATION: &str = "work.karmada.io/conflict-resolution";
const PROPAGATION_POLICIES: &str =
    "/apis/policy.karmada.io/v1alpha1/namespaces/muster-system/propagationpolicies";
/// Deadline of one dry run, which includes Karmada's webhooks.
const LIMIT: Duration = Duration::from_secs(10);

/// Result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// A tenant is refused, and Muster is not.
    InForce,
    /// The policies do not work; the text says why and what to do.
    Broken(String),
}

/// A request that one policy has to refuse: `object` is created, or merged into the existing one.
pub(super) struct ProbeAttempt {
    policy: &'static str,
    path: &'static str,
    /// The name of the object that is changed; `None` creates one.
    changed: Option<&'static str>,
    object: Value,
}

/// Probes every policy, and then whether the caller is exempt.
///
/// # Errors
/// Returns an error if an answer is missing or does not come from the policies; the state is then unknown.
pub async fn probe(client: &Client) -> Result<ProbeVerdict, CallError> {
    for attempt in attempts() {
        if let Some(why) = not_refused(client, &attempt).await? {
            return Ok(ProbeVerdict::Broken(why));
        }
    }
    let refused = match dry_run(client, &binding(), None).await {
        Ok(()) => None,
        Err(error) if is_unknown(&error) => return Err(error),
        Err(error) => Some(error.message()),
    };
    Ok(refused.map_or(ProbeVerdict::InForce, |message| {
        ProbeVerdict::Broken(format!(
            "Muster's own account is refused; run `muster install` again: {message}"
        ))
    }))
}

/// Returns why the policy does not refuse the probe's account, or `None` if it does.
async fn not_refused(client: &Client, attempt: &ProbeAttempt) -> Result<Option<String>, CallError> {
    let policy = attempt.policy;
    let error = match dry_run(client, attempt, Some(ACCOUNT)).await {
        Ok(()) => {
            return Ok(Some(format!(
                "ValidatingAdmissionPolicy {policy} refuses nothing; is its binding there, and has {ACCOUNT} \
                 no right to bypass admissionpolicies.muster.io?"
            )));
        }
        Err(error) => error,
    };
    let message = error.message();
    if message.contains(&format!("ValidatingAdmissionPolicy '{policy}'")) {
        return Ok(None);
    }
    match is_unknown(&error) {
        true => Err(error),
        false => Ok(Some(format!(
            "whether ValidatingAdmissionPolicy {policy} refuses cannot be tried; run `muster install` again: {message}"
        ))),
    }
}

fn is_unknown(error: &CallError) -> bool {
    matches!(error.fault(), CallFault::Unknown | CallFault::TryAgain)
}

/// Returns the refusal of a tenant's request, if it is refused.
///
/// # Errors
/// Returns an error if there is no answer.
pub(super) async fn refusal(
    client: &Client,
    attempt: &ProbeAttempt,
) -> Result<Option<String>, CallError> {
    match dry_run(client, attempt, Some(ACCOUNT)).await {
        Ok(()) => Ok(None),
        Err(error) if is_unknown(&error) => Err(error),
        Err(error) => Ok(Some(error.message())),
    }
}

async fn dry_run(
    client: &Client,
    attempt: &ProbeAttempt,
    account: Option<&str>,
) -> Result<(), CallError> {
    let path = kube::core::Request::new(attempt.path);
    let request = match attempt.changed {
        None => {
            let params = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            path.create(&params, attempt.object.to_string().into_bytes())
        }
        Some(name) => {
            let params = PatchParams {
                dry_run: true,
                ..PatchParams::default()
            };
            path.patch(name, &params, &Patch::Merge(&attempt.object))
        }
    };
    let mut request = request.map_err(|error| CallError::Kube(kube::Error::BuildRequest(error)))?;
    if let Some(Ok(account)) = account.map(str::parse) {
        request.headers_mut().insert(IMPERSONATE, account);
    }
    with_deadline(client.request::<Value>(request), LIMIT)
        .await
        .map(drop)
}

fn attempts() -> [ProbeAttempt; 10] {
    [
        binding(),
        ProbeAttempt {
            policy: "muster-works",
            path: "/apis/work.karmada.io/v1alpha1/namespaces/muster-system/works",
            changed: None,
            object: object(
                "work.karmada.io/v1alpha1",
                "Work",
                json!({"workload": {"manifests": []}}),
            ),
        },
        ProbeAttempt {
            policy: "muster-podgroups",
            path: "/apis/scheduling.volcano.sh/v1beta1/namespaces/muster-system/podgroups",
            changed: None,
            object: object(
                "scheduling.volcano.sh/v1beta1",
                "PodGroup",
                json!({"minMember": 1}),
            ),
        },
        propagation_policy(json!({
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "schedulerName": "muster",
            "placement": {},
            "preserveResourcesOnDeletion": true,
        })),
        annotated(
            "muster-permitted-queue",
            json!({PERMITTED_QUEUE_ANNOTATION: "probe"}),
        ),
        annotated(
            "muster-templates",
            json!({CONFLICT_RESOLUTION_ANNOTATION: "overwrite"}),
        ),
        override_policy(json!({
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "overrideRules": [{"overriders": {"plaintext": [
                {"path": "/spec/parallelism", "operator": "replace", "value": 2},
            ]}}],
        })),
        ProbeAttempt {
            policy: "muster-identities",
            ..override_policy(json!({
                "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}],
                "overrideRules": [{"overriders": {"plaintext": [
                    {"path": "/kind", "operator": "replace", "value": "Pod"},
                ]}}],
            }))
        },
        claimed(),
        ProbeAttempt {
            policy: "muster-namespaces",
            path: "/api/v1/namespaces",
            changed: Some(SYSTEM_NAMESPACE),
            object: json!({"metadata": {"labels": {MANAGED_LABEL: null}}}),
        },
    ]
}

/// An attempt to create a PropagationPolicy.
pub(super) fn propagation_policy(spec: Value) -> ProbeAttempt {
    ProbeAttempt {
        policy: "muster-propagation-policies",
        path: PROPAGATION_POLICIES,
        changed: None,
        object: object("policy.karmada.io/v1alpha1", "PropagationPolicy", spec),
    }
}

/// An attempt to create an OverridePolicy.
pub(super) fn override_policy(spec: Value) -> ProbeAttempt {
    ProbeAttempt {
        policy: "muster-override-policies",
        path: "/apis/policy.karmada.io/v1alpha1/namespaces/muster-system/overridepolicies",
        changed: None,
        object: object("policy.karmada.io/v1alpha1", "OverridePolicy", spec),
    }
}

/// An object that is allowed by itself, with annotations that one policy refuses.
fn annotated(policy: &'static str, annotations: Value) -> ProbeAttempt {
    let mut attempt = propagation_policy(json!({
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "probe"}],
        "placement": {},
    }));
    attempt.policy = policy;
    attempt.object["metadata"]["annotations"] = annotations;
    attempt
}

/// An object that names the policy that has claimed it.
fn claimed() -> ProbeAttempt {
    ProbeAttempt {
        policy: "muster-claims",
        path: "/api/v1/namespaces/muster-system/configmaps",
        changed: None,
        object: json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "generateName": "probe-",
                "namespace": SYSTEM_NAMESPACE,
                "labels": {POLICY_PERMANENT_ID: "probe"},
            },
        }),
    }
}

/// A binding of no object.
fn binding() -> ProbeAttempt {
    ProbeAttempt {
        policy: "muster-bindings",
        path: "/apis/work.karmada.io/v1alpha2/namespaces/muster-system/resourcebindings",
        changed: None,
        object: object(
            "work.karmada.io/v1alpha2",
            "ResourceBinding",
            json!({"resource": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "namespace": SYSTEM_NAMESPACE,
                "name": "probe",
            }}),
        ),
    }
}

fn object(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"generateName": "probe-", "namespace": SYSTEM_NAMESPACE},
        "spec": spec,
    })
}
