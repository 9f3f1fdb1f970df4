//! Converts stored objects of `muster.io/v1alpha1` when the CRDs of a later version are installed.
//!
//! First all objects are converted without writing them: if one cannot be, nothing changes, and a person corrects it in
//! the earlier version. Then the CRD serves both versions and stores the later one; the earlier one shows objects as
//! they are stored. Each object is read in the earlier version and written in the later one. At last the CRD forgets
//! the earlier version. Until then its status names that version as stored, so that an installation that was
//! interrupted is continued by the next one.

use super::MANAGER;
use crate::leases;
use anyhow::{Context as _, bail};
use crds::v1alpha1;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use runtime::client::CallFault;
use runtime::{apply, pages, with_deadline};
use serde_json::{Value, json};
use std::time::Duration;

/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(30);
/// How often a call is tried: others write meanwhile, and the API server serves a new version after a moment.
const TRIES: u32 = 40;
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(250);

/// Converts all objects of the CRD `name`, if the control plane stores objects of the earlier version. `manifest` is
/// the CRD that will be applied.
///
/// # Errors
/// Returns an error if a process of Muster runs that reads the earlier version, if an object cannot be converted, or
/// if a call fails. Objects that are not converted stay as they are.
pub(super) async fn stored_objects(
    client: &Client,
    name: &str,
    manifest: &str,
) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = with_deadline(definitions.get_opt(name), LIMIT)
        .await
        .with_context(|| format!("cannot read CustomResourceDefinition {name}"))?;
    let stored = definition.and_then(|definition| definition.status?.stored_versions);
    if !stored.is_some_and(|stored| stored.iter().any(|version| version == v1alpha1::VERSION)) {
        return Ok(());
    }
    leases::ensure_stopped(client).await?;
    let mut both = apply::parse(manifest)?;
    for definition in &mut both {
        serve_earlier(definition);
    }
    let kind = ConvertedKind::of(&both)?;
    kind.check(client).await?;
    apply::apply_objects(client, both, MANAGER).await?;
    kind.convert(client).await?;
    let stored = json!({"status": {"storedVersions": [kind.later.version]}});
    let (params, stored) = (PatchParams::default(), Patch::Merge(&stored));
    let patch = definitions.patch_status(name, &params, &stored);
    with_deadline(patch, LIMIT)
        .await
        .with_context(|| format!("cannot write the status of CustomResourceDefinition {name}"))?;
    Ok(())
}

/// Lets a CRD serve the earlier version too, with whatever fields are stored.
fn serve_earlier(definition: &mut Value) {
    let earlier = json!({
        "name": v1alpha1::VERSION, "served": true, "storage": false, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
    });
    if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
        versions.push(earlier);
    }
}

/// A kind in both versions.
struct ConvertedKind {
    earlier: ApiResource,
    later: ApiResource,
}

impl ConvertedKind {
    fn of(definitions: &[Value]) -> anyhow::Result<Self> {
        let spec = definitions.first().map(|definition| &definition["spec"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Some(spec) = spec else {
            bail!("the manifest of a CustomResourceDefinition is empty");
        };
        let resource = |version: String| {
            let group = text(&spec["group"]);
            ApiResource {
                api_version: format!("{group}/{version}"),
                group,
                version,
                kind: text(&spec["names"]["kind"]),
                plural: text(&spec["names"]["plural"]),
            }
        };
        Ok(Self {
            earlier: resource(v1alpha1::VERSION.to_owned()),
            later: resource(text(&spec["versions"][0]["name"])),
        })
    }

    async fn objects(&self, earlier: &Api<DynamicObject>) -> anyhow::Result<Vec<DynamicObject>> {
        let all = pages::list(earlier, &ListParams::default(), LIMIT).await;
        let (kind, version) = (&self.earlier.kind, &self.earlier.api_version);
        let all = all.with_context(|| format!("cannot list {kind} of {version}"))?;
        Ok(all.items)
    }

    /// Returns an error if an object cannot be converted.
    async fn check(&self, client: &Client) -> anyhow::Result<()> {
        let earlier: Api<DynamicObject> = Api::all_with(client.clone(), &self.earlier);
        for object in self.objects(&earlier).await? {
            let (kind, name) = (&self.earlier.kind, object.name_any());
            patch(&object, kind).with_context(|| {
                format!("{kind} {name} cannot be converted; correct it and install again")
            })?;
        }
        Ok(())
    }

    async fn convert(&self, client: &Client) -> anyhow::Result<()> {
        let earlier: Api<DynamicObject> = Api::all_with(client.clone(), &self.earlier);
        let kind = &self.later.kind;
        for object in self.objects(&earlier).await? {
            let name = object.name_any();
            self.convert_one(client, &earlier, object)
                .await
                .with_context(|| format!("{kind} {name} is not converted"))?;
            println!("{kind} {name} converted to {}", self.later.api_version);
        }
        Ok(())
    }

    /// Writes one object in the later version. The patch names the resource version, so that nothing that is written
    /// meanwhile is lost.
    async fn convert_one(
        &self,
        client: &Client,
        earlier: &Api<DynamicObject>,
        object: DynamicObject,
    ) -> anyhow::Result<()> {
        let later: Api<DynamicObject> = Api::all_with(client.clone(), &self.later);
        let name = object.name_any();
        let mut object = object;
        for _ in 0..TRIES {
            let patch = patch(&object, &self.later.kind)?;
            let (params, patch) = (PatchParams::default(), Patch::Json::<()>(patch));
            let written = later.patch(&name, &params, &patch);
            let Err(error) = with_deadline(written, LIMIT).await else {
                return Ok(());
            };
            tokio::time::sleep(PAUSE).await;
            let Some(now) = with_deadline(earlier.get_opt(&name), LIMIT).await? else {
                return Ok(());
            };
            // A test in a patch that fails is refused like a patch that is wrong.
            let is_same = now.resource_version() == object.resource_version();
            if is_same && error.fault() == CallFault::Refused {
                return Err(error.into());
            }
            object = now;
        }
        bail!("it was changed, or the API server did not answer, {TRIES} times")
    }
}

/// Returns the patch that writes `object`, read in the earlier version, in the later one. It writes also if the spec is
/// the same: what is stored has the later version then.
fn patch(object: &DynamicObject, kind: &str) -> anyhow::Result<json_patch::Patch> {
    let mut converted = json!({"kind": kind});
    if let Some(spec) = object.data.get("spec") {
        converted["spec"] = spec.clone();
    }
    v1alpha1::convert(&mut converted).map_err(anyhow::Error::msg)?;
    let version = object.resource_version();
    let mut changes =
        vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})];
    if let Some(spec) = converted.get("spec") {
        changes.push(json!({"op": "add", "path": "/spec", "value": spec}));
    }
    Ok(serde_json::from_value(Value::Array(changes))?)
}
