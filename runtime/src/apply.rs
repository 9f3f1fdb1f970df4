//! Server-side apply of YAML manifests of any kind, in order.
//!
//! After a CustomResourceDefinition it waits until the API server serves the kind, so that objects of it
//! may follow in the same text. Applying the same text again changes nothing.

use crate::client::{CallError, CallFault, with_deadline};
use anyhow::{Context as _, bail};
use backon::{ExponentialBuilder, Retryable};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// Deadline of one call.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// How long a CustomResourceDefinition may take until it is served.
const ESTABLISH_LIMIT: Duration = Duration::from_secs(30);
/// Time between two checks of that.
const ESTABLISH_POLL: Duration = Duration::from_millis(200);

/// An object that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
    /// Its namespace; `None` for cluster scope.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// Applies every document of `manifests`, including those in a `List`, as `field_manager`, which takes over
/// fields of other managers.
///
/// # Errors
/// Returns an error at the first document that is no object, is of a kind that the server does not serve,
/// or is refused; earlier ones stay applied.
pub async fn apply_yaml(
    client: &Client,
    manifests: &str,
    field_manager: &str,
) -> anyhow::Result<Vec<Applied>> {
    apply_objects(client, parse(manifests)?, field_manager).await
}

/// [`apply_yaml`] for objects that are already parsed.
///
/// # Errors
/// As [`apply_yaml`].
pub async fn apply_objects(
    client: &Client,
    objects: Vec<Value>,
    field_manager: &str,
) -> anyhow::Result<Vec<Applied>> {
    let mut applier = Applier {
        client,
        params: PatchParams::apply(field_manager).force(),
        kinds: HashMap::new(),
    };
    let mut applied = Vec::with_capacity(objects.len());
    for object in objects {
        applied.push(applier.apply(object).await?);
    }
    Ok(applied)
}

/// Parses the YAML documents of a text; empty documents are skipped, a `List` is expanded.
///
/// # Errors
/// Returns an error if the text is not YAML.
pub fn parse(manifests: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Option<Value>> =
        serde_saphyr::from_multiple(manifests).context("the manifests are not YAML")?;
    let mut objects = Vec::new();
    for document in documents.into_iter().flatten() {
        match document.get("items") {
            Some(Value::Array(items)) if document["kind"] == "List" => {
                objects.extend(items.iter().cloned());
            }
            _ => objects.push(document),
        }
    }
    Ok(objects)
}

struct Applier<'a> {
    client: &'a Client,
    params: PatchParams,
    kinds: HashMap<GroupVersionKind, (ApiResource, Scope)>,
}

impl Applier<'_> {
    async fn apply(&mut self, value: Value) -> anyhow::Result<Applied> {
        let object: DynamicObject =
            serde_json::from_value(value.clone()).context("a document is not an API object")?;
        let Some(types) = &object.types else {
            bail!("a document has no apiVersion or no kind");
        };
        let Some(name) = object.metadata.name.clone() else {
            bail!("a document of kind {} has no metadata.name", types.kind);
        };
        let gvk = GroupVersionKind::try_from(types)
            .with_context(|| format!("apiVersion {:?}", types.api_version))?;
        let (resource, scope) = self.kind(&gvk).await?;
        let namespace = match scope {
            Scope::Cluster => None,
            Scope::Namespaced => Some(object.namespace().unwrap_or_else(|| "default".to_owned())),
        };
        let api: Api<DynamicObject> = match &namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let applied = Applied {
            api_version: types.api_version.clone(),
            kind: types.kind.clone(),
            namespace,
            name,
        };
        self.send(&api, &applied.name, &value)
            .await
            .with_context(|| format!("cannot apply {applied}"))?;
        if gvk.group == "apiextensions.k8s.io" && gvk.kind == "CustomResourceDefinition" {
            established(&api, &applied.name).await?;
        }
        Ok(applied)
    }

    async fn send(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        value: &Value,
    ) -> Result<(), CallError> {
        // Applying is idempotent, so a call with an unknown outcome is repeated.
        let patch = Patch::Apply(value);
        let call = || async {
            with_deadline(api.patch_metadata(name, &self.params, &patch), CALL_LIMIT).await
        };
        call.retry(backoff())
            .when(|error| is_transient(error.fault()))
            .await
            .map(drop)
    }

    async fn kind(&mut self, gvk: &GroupVersionKind) -> anyhow::Result<(ApiResource, Scope)> {
        if let Some(known) = self.kinds.get(gvk) {
            return Ok(known.clone());
        }
        // Discovery shows a kind shortly after its definition is established, so a missing kind is also looked
        // up again.
        let look = || async { with_deadline(pinned_kind(self.client, gvk), CALL_LIMIT).await };
        let (resource, capabilities) = look
            .retry(backoff())
            .when(|error| error.fault() != CallFault::Refused)
            .await
            .with_context(|| {
                let (version, kind) = (gvk.api_version(), &gvk.kind);
                format!("the server does not serve the kind {kind} of {version}")
            })?;
        let known = (resource, capabilities.scope);
        self.kinds.insert(gvk.clone(), known.clone());
        Ok(known)
    }
}

async fn established(api: &Api<DynamicObject>, name: &str) -> anyhow::Result<()> {
    let poll = async {
        loop {
            let read = with_deadline(api.get_opt(name), CALL_LIMIT).await;
            match read {
                Ok(Some(definition)) if is_established(&definition.data) => return Ok(()),
                Err(error) if !is_transient(error.fault()) => return Err(error),
                _ => tokio::time::sleep(ESTABLISH_POLL).await,
            }
        }
    };
    tokio::time::timeout(ESTABLISH_LIMIT, poll)
        .await
        .with_context(|| {
            format!("CustomResourceDefinition {name} does not serve after {ESTABLISH_LIMIT:?}")
        })?
        .with_context(|| format!("cannot read CustomResourceDefinition {name}"))
}

fn is_established(definition: &Value) -> bool {
    definition["status"]["conditions"]
        .as_array()
        .is_some_and(|conditions| {
            conditions.iter().any(|condition| {
                condition["type"] == "Established" && condition["status"] == "True"
            })
        })
}

fn is_transient(fault: CallFault) -> bool {
    matches!(
        fault,
        CallFault::NoSuchKind | CallFault::Conflict | CallFault::TryAgain | CallFault::Unknown
    )
}

fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(2))
        .with_max_times(8)
        .with_jitter()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{FakeApi, Fault};
    use serde_json::json;

    const MANIFESTS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.io}
---
# Only a comment.
---
apiVersion: v1
kind: List
items:
- apiVersion: example.io/v1
  kind: Thing
  metadata: {name: a, namespace: ns}
- apiVersion: example.io/v1
  kind: Thing
  metadata: {name: b}
";
    const DEFINITION: &str =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.io";

    fn serve(api: &FakeApi, group_version: &str, name: &str, kind: &str, namespaced: bool) {
        let resource = json!({
            "name": name, "singularName": "", "namespaced": namespaced, "kind": kind,
            "verbs": ["get", "list", "patch"],
        });
        api.document(
            &format!("/apis/{group_version}"),
            json!({
                "kind": "APIResourceList", "groupVersion": group_version,
                "resources": [resource],
            }),
        );
    }

    #[tokio::test(start_paused = true)]
    async fn apply_waits_for_a_definition_before_its_objects() {
        let api = FakeApi::new();
        let (name, kind) = ("customresourcedefinitions", "CustomResourceDefinition");
        serve(&api, "apiextensions.k8s.io/v1", name, kind, false);
        serve(&api, "example.io/v1", "things", "Thing", true);
        // Some calls fail.
        api.fault(2, Fault::Status(503, "x"), |r| r.verb == "APPLY");
        api.fault(1, Fault::Status(404, "x"), |r| {
            r.path == "/apis/example.io/v1"
        });
        let server = api.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(
                server
                    .get("/apis/example.io/v1/namespaces/ns/things/a")
                    .is_none()
            );
            let condition = json!({"type": "Established", "status": "True"});
            server.merge(DEFINITION, &json!({"status": {"conditions": [condition]}}));
        });
        let applied = apply_yaml(&api.client(), MANIFESTS, "test").await.unwrap();
        let names: Vec<String> = applied.iter().map(ToString::to_string).collect();
        assert_eq!(
            names,
            [
                "CustomResourceDefinition things.example.io",
                "Thing ns/a",
                "Thing default/b"
            ]
        );
        assert!(
            api.get("/apis/example.io/v1/namespaces/default/things/b")
                .is_some()
        );
        let request = api.requests_of("APPLY").pop().unwrap();
        assert_eq!(
            (&*request.query["fieldManager"], &*request.query["force"]),
            ("test", "true")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_names_the_object_that_cannot_be_applied() {
        let api = FakeApi::new();
        serve(&api, "example.io/v1", "things", "Thing", true);
        let cases = [
            ("kind: X", "a document has no apiVersion or no kind"),
            (
                "{apiVersion: example.io/v1, kind: Thing}",
                "a document of kind Thing has no metadata.name",
            ),
            (
                "{apiVersion: example.io/v1, kind: Other, metadata: {name: a}}",
                "the server does not serve the kind Other of example.io/v1",
            ),
        ];
        for (manifest, message) in cases {
            let error = apply_yaml(&api.client(), manifest, "test")
                .await
                .unwrap_err();
            assert_eq!(error.to_string(), message, "{manifest}");
        }
    }
}
