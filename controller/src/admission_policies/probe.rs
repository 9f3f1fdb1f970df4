//! Whether the policies refuse a tenant and let Muster pass, by trying: dry runs of what each of them
//! is to refuse, as the account `muster-probe`, in the namespace `muster-system`.
//!
//! RBAC lets that account create these objects there, and nothing else (`deploy/rbac-admission.yaml`), so
//! that nothing but the policies is in its way. Nothing is ever stored.

use crds::names::{PERMITTED_QUEUE_ANNOTATION, SYSTEM_NAMESPACE};
use kube::Client;
use kube::api::PostParams;
use runtime::client::{CallError, CallFault, with_deadline};
use serde_json::{Value, json};
use std::time::Duration;

/// Who is refused.
pub const ACCOUNT: &str = "system:serviceaccount:muster-system:muster-probe";
/// The header by which a request is made as somebody else.
const IMPERSONATE: &str = "impersonate-user";
/// Karmada's word on a template of what to do where a member has the object already.
const CONFLICT_RESOLUTION_ANNOTATION: &str = "work.karmada.io/conflict-resolution";
const PROPAGATION_POLICIES: &str =
    "/apis/policy.karmada.io/v1alpha1/namespaces/muster-system/propagationpolicies";
/// How long one dry run may take: webhooks of Karmada's are among it.
const LIMIT: Duration = Duration::from_secs(10);

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// A tenant is refused, and Muster passes.
    InForce,
    /// Not so; why, and what helps.
    Broken(String),
}

/// What a policy is to refuse.
pub(super) struct ProbeAttempt {
    policy: &'static str,
    path: &'static str,
    object: Value,
}

/// Tries every policy, and whether the caller passes them.
///
/// # Errors
/// Where an answer does not come, or says nothing of the policies: nothing is known then.
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

/// Why the probe's account is not refused by the policy, if so.
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

/// What refuses the attempt of a tenant, if anything does.
///
/// # Errors
/// Where an answer does not come.
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
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let body = attempt.object.to_string().into_bytes();
    let request = kube::core::Request::new(attempt.path).create(&params, body);
    let mut request = request.map_err(|error| CallError::Kube(kube::Error::BuildRequest(error)))?;
    if let Some(Ok(account)) = account.map(str::parse) {
        request.headers_mut().insert(IMPERSONATE, account);
    }
    with_deadline(client.request::<Value>(request), LIMIT)
        .await
        .map(drop)
}

fn attempts() -> [ProbeAttempt; 7] {
    [
        binding(),
        ProbeAttempt {
            policy: "muster-works",
            path: "/apis/work.karmada.io/v1alpha1/namespaces/muster-system/works",
            object: object(
                "work.karmada.io/v1alpha1",
                "Work",
                json!({"workload": {"manifests": []}}),
            ),
        },
        ProbeAttempt {
            policy: "muster-podgroups",
            path: "/apis/scheduling.volcano.sh/v1beta1/namespaces/muster-system/podgroups",
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
    ]
}

/// A PropagationPolicy.
pub(super) fn propagation_policy(spec: Value) -> ProbeAttempt {
    ProbeAttempt {
        policy: "muster-propagation-policies",
        path: PROPAGATION_POLICIES,
        object: object("policy.karmada.io/v1alpha1", "PropagationPolicy", spec),
    }
}

/// An OverridePolicy.
pub(super) fn override_policy(spec: Value) -> ProbeAttempt {
    ProbeAttempt {
        policy: "muster-override-policies",
        path: "/apis/policy.karmada.io/v1alpha1/namespaces/muster-system/overridepolicies",
        object: object("policy.karmada.io/v1alpha1", "OverridePolicy", spec),
    }
}

/// An object that the policies let pass, with annotations that one of them refuses.
fn annotated(policy: &'static str, annotations: Value) -> ProbeAttempt {
    let mut attempt = propagation_policy(json!({
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "probe"}],
        "placement": {},
    }));
    attempt.policy = policy;
    attempt.object["metadata"]["annotations"] = annotations;
    attempt
}

/// A binding for nothing.
fn binding() -> ProbeAttempt {
    ProbeAttempt {
        policy: "muster-bindings",
        path: "/apis/work.karmada.io/v1alpha2/namespaces/muster-system/resourcebindings",
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
