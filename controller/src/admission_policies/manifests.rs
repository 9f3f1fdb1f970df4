//! The policies as they have to be stored, and putting them there.
//!
//! They are compared and replaced as a whole, not applied: an apply leaves what somebody else added,
//! and one more match condition is enough to let everybody pass. They name no account, so that what
//! is built in can be restored whatever `muster install` was told.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use runtime::client::{CallError, CallFault, with_deadline};
use serde_json::Value;
use std::time::Duration;

/// What keeps tenants from writing what is Karmada's and Muster's: policies and their bindings.
pub const MANIFEST: &str = include_str!("../../../deploy/admission-policies.yaml");

/// What keeps a tenant from writing that it may use a queue. It stays without the others: the
/// controller believes the annotation in any case.
pub const PERMITTED_QUEUE: &str = include_str!("../../../deploy/admission-permitted-queue.yaml");

/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Why they could not be put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreError {
    /// No answer, or one that says to try again.
    NoAnswer(String),
    /// The control plane has no such kind.
    NotServed,
    /// The server said no.
    Refused(String),
    /// What is built in cannot be read.
    BuiltIn(String),
}

impl std::fmt::Display for RestoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoAnswer(error) => write!(f, "the control plane did not answer: {error}"),
            Self::NotServed => f.write_str(
                "the control plane serves no ValidatingAdmissionPolicy of admissionregistration.k8s.io/v1: \
                 its API server has to be Kubernetes 1.30 or newer",
            ),
            Self::Refused(error) => write!(
                f,
                "the admission policies cannot be read or written, run `muster install` again: {error}"
            ),
            Self::BuiltIn(error) => write!(f, "the built-in manifest cannot be read: {error}"),
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<CallError> for RestoreError {
    fn from(error: CallError) -> Self {
        match error.fault() {
            CallFault::NoSuchKind => Self::NotServed,
            CallFault::Refused => Self::Refused(error.message()),
            _ => Self::NoAnswer(error.message()),
        }
    }
}

/// One object of the manifest.
#[derive(Debug, Clone)]
struct WantedObject {
    kind: String,
    name: String,
    resource: ApiResource,
    object: Value,
}

/// Puts every object right that is missing or differs, and returns the names of those. A user
/// who changes one at the same time wins until the next call.
///
/// # Errors
/// At the first object that cannot be read or written.
pub async fn restore(client: &Client) -> Result<Vec<String>, RestoreError> {
    let mut restored = Vec::new();
    for wanted in wanted(MANIFEST)?
        .into_iter()
        .chain(wanted(PERMITTED_QUEUE)?)
    {
        if put_right(client, &wanted).await? {
            restored.push(format!("{} {}", wanted.kind, wanted.name));
        }
    }
    Ok(restored)
}

/// Removes every object of [`MANIFEST`]; one that is not there is no error.
///
/// # Errors
/// Where the server refuses or does not answer.
pub async fn remove(client: &Client) -> Result<(), RestoreError> {
    for wanted in wanted(MANIFEST)? {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &wanted.resource);
        let params = DeleteParams::default();
        match with_deadline(api.delete(&wanted.name, &params), LIMIT).await {
            Err(error) if matches!(error.fault(), CallFault::NotFound | CallFault::NoSuchKind) => {}
            other => drop(other?),
        }
    }
    Ok(())
}

// The object is ours as a whole: a patch of fields would leave what somebody added to its lists.
#[expect(clippy::disallowed_methods)]
async fn put_right(client: &Client, wanted: &WantedObject) -> Result<bool, RestoreError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &wanted.resource);
    let found = with_deadline(api.get_opt(&wanted.name), LIMIT).await?;
    let params = PostParams::default();
    let written = match found {
        Some(found) if found.data["spec"] == wanted.object["spec"] => return Ok(false),
        // Its resourceVersion goes along: a change in between is looked at the next time.
        Some(mut found) => {
            found.data["spec"] = wanted.object["spec"].clone();
            found.managed_fields_mut().clear();
            with_deadline(api.replace(&wanted.name, &params, &found), LIMIT).await
        }
        None => {
            let object = serde_json::from_value(wanted.object.clone());
            let object = object.map_err(|error| RestoreError::BuiltIn(error.to_string()))?;
            with_deadline(api.create(&params, &object), LIMIT).await
        }
    };
    written?;
    Ok(true)
}

fn wanted(manifest: &str) -> Result<Vec<WantedObject>, RestoreError> {
    let objects = runtime::apply::parse(manifest);
    let objects = objects.map_err(|error| RestoreError::BuiltIn(format!("{error:#}")))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let wanted = objects.into_iter().map(|object| {
        let kind = text(&object["kind"]);
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", &kind);
        let plural = match kind.as_str() {
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
            _ => "validatingadmissionpolicybindings",
        };
        WantedObject {
            name: text(&object["metadata"]["name"]),
            resource: ApiResource::from_gvk_with_plural(&gvk, plural),
            kind,
            object,
        }
    });
    Ok(wanted.collect())
}
