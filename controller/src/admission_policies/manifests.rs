//! The admission policies as they have to be stored, and how they are restored.
//!
//! Each object is compared and replaced as a whole. A server-side apply would leave fields that another
//! user added, and one added match condition is enough to exempt everyone. The manifests name no account,
//! so that the built-in ones can be restored with any flags of `muster install`.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use runtime::client::{CallError, CallFault, with_deadline};
use serde_json::Value;
use std::time::Duration;

/// The policies that keep tenants from writing objects of Karmada and Muster: policies and bindings.
pub const MANIFEST: &str = include_str!("../../../deploy/admission-policies.yaml");

/// The policy that keeps tenants from writing the annotation that permits a queue. `muster install` keeps
/// it when the other policies are left out, because the controller trusts that annotation in any case.
pub const PERMITTED_QUEUE: &str = include_str!("../../../deploy/admission-permitted-queue.yaml");

/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(5);

/// Why the policies could not be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreError {
    /// No answer, or an answer that asks for a retry.
    NoAnswer(String),
    /// The control plane does not serve the kind.
    NotServed,
    /// The server refused the request.
    Refused(String),
    /// The built-in manifest cannot be parsed.
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

/// Restores every object that is missing or differs, and returns the names of these objects. If a user
/// changes an object at the same time, the next call restores it.
///
/// # Errors
/// Returns the error of the first object that cannot be read or written.
pub async fn restore(client: &Client) -> Result<Vec<String>, RestoreError> {
    let mut restored = Vec::new();
    for wanted in wanted(MANIFEST)?
        .into_iter()
        .chain(wanted(PERMITTED_QUEUE)?)
    {
        if restore_object(client, &wanted).await? {
            restored.push(format!("{} {}", wanted.kind, wanted.name));
        }
    }
    Ok(restored)
}

/// Deletes every object of [`MANIFEST`]; an object that does not exist is no error.
///
/// # Errors
/// Returns an error if the server refuses or does not answer.
pub async fn remove(client: &Client) -> Result<(), RestoreError> {
    for wanted in wanted(MANIFEST)? {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &wanted.resource);
        let params = DeleteParams::default();
        match with_deadline(api.delete(&wanted.name, &params), LIMIT).await {
            Err(error) if error.is_missing() => {}
            other => drop(other?),
        }
    }
    Ok(())
}

// Muster owns the whole object: a patch of fields would keep items that another user added to its lists.
#[expect(clippy::disallowed_methods)]
async fn restore_object(client: &Client, wanted: &WantedObject) -> Result<bool, RestoreError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &wanted.resource);
    let found = with_deadline(api.get_opt(&wanted.name), LIMIT).await?;
    let params = PostParams::default();
    let written = match found {
        Some(found) if found.data["spec"] == wanted.object["spec"] => return Ok(false),
        // The replacement carries the resourceVersion: after a concurrent change the next check compares again.
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
