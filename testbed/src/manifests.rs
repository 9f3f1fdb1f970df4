//! Manifests, which are read from files, folders and module sources, and applied to an API server.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use futures::StreamExt as _;
use futures::stream;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::{self, ApiResource, Scope};
use kube::{Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::error::{Error, Result, describe};

const FIELD_MANAGER: &str = "testbed";

/// The media type with which a server lists all its resources in one response.
const SERVED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The number of requests in flight at once.
const CONCURRENCY: usize = 4;

/// A cache of the files that were read, with their text: all clusters of a testbed get the same
/// CRDs, which take seconds to parse.
static READ: LazyLock<Mutex<HashMap<PathBuf, (String, Manifests)>>> = LazyLock::new(Mutex::default);

/// The objects of one or several manifest files.
#[derive(Debug, Clone, Default)]
pub(super) struct Manifests(Vec<DynamicObject>);

impl Manifests {
    /// Reads files, and the `*.yaml` and `*.yml` files of folders and their subfolders.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut files = Vec::new();
        for path in paths {
            collect_files(path, &mut files)?;
        }
        let mut all = Self::default();
        for file in files {
            let text = std::fs::read_to_string(&file).map_err(Error::io("read", &file))?;
            all.0.extend(Self::parse_once(file, text)?.0);
        }
        Ok(all)
    }

    fn parse_once(file: PathBuf, text: String) -> Result<Self> {
        let mut read = READ.lock();
        if let Some((_, parsed)) = read.get(&file).filter(|(known, _)| *known == text) {
            return Ok(parsed.clone());
        }
        let mut parsed = Self::parse(&file, &text)?;
        for crd in parsed.0.iter_mut().filter(|object| is_crd(object)) {
            let versions = crd.data["spec"]["versions"].as_array_mut();
            for version in versions.into_iter().flatten() {
                without_descriptions(&mut version["schema"]["openAPIV3Schema"]);
            }
        }
        read.insert(file, (text, parsed.clone()));
        Ok(parsed)
    }

    /// Parses the documents of one file; `path` is used in errors.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self> {
        let wrong = |reason: String| Error::Manifest {
            path: path.to_owned(),
            reason,
        };
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|error| wrong(error.to_string()))?;
        Self::from_values(path, documents)
    }

    fn from_values(path: &Path, values: Vec<Value>) -> Result<Self> {
        let wrong = |reason: String| Error::Manifest {
            path: path.to_owned(),
            reason,
        };
        let objects = values.into_iter().filter(|value| !value.is_null());
        let typed = objects.map(|value| {
            let object: DynamicObject =
                serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
            if object.types.is_none() || object.metadata.name.is_none() {
                return Err(wrong(
                    "an object without apiVersion, kind or metadata.name".into(),
                ));
            }
            Ok(object)
        });
        Ok(Self(typed.collect::<Result<_>>()?))
    }

    /// Wraps objects that code builds; `what` is used in errors.
    pub(super) fn literal(what: &str, objects: Vec<Value>) -> Result<Self> {
        Self::from_values(Path::new(what), objects)
    }

    /// Removes the objects of these names.
    pub(super) fn without(mut self, names: &[&str]) -> Self {
        self.0
            .retain(|object| !names.contains(&object.name_any().as_str()));
        self
    }

    /// Makes webhook registrations use a URL on this host instead of a Service.
    pub(super) fn with_webhooks_at(mut self, url: &str, ca_bundle: &str) -> Self {
        let webhooks = self
            .0
            .iter_mut()
            .filter_map(|object| object.data["webhooks"].as_array_mut());
        for webhook in webhooks.flatten() {
            let path = webhook["clientConfig"]["service"]["path"]
                .as_str()
                .unwrap_or_default();
            let url = format!("{url}{path}");
            webhook["clientConfig"] = json!({"url": url, "caBundle": ca_bundle});
        }
        self
    }

    /// Keeps only the webhooks of these names in webhook registrations.
    pub(super) fn with_webhooks_only(mut self, names: &[&str]) -> Self {
        let lists = self
            .0
            .iter_mut()
            .filter_map(|object| object.data["webhooks"].as_array_mut());
        for webhooks in lists {
            webhooks.retain(|webhook| names.iter().any(|name| webhook["name"] == *name));
        }
        self
    }

    /// Puts a prefix before the names of all objects, as a kustomization does.
    pub(super) fn with_name_prefix(mut self, prefix: &str) -> Self {
        for object in &mut self.0 {
            object.metadata.name = Some(format!("{prefix}{}", object.name_any()));
        }
        self
    }

    /// Makes the webhook of this name see only objects that this selector selects.
    pub(super) fn with_webhook_selecting(mut self, name: &str, selector: &Value) -> Self {
        let lists = self
            .0
            .iter_mut()
            .filter_map(|object| object.data["webhooks"].as_array_mut());
        for webhook in lists.flatten().filter(|webhook| webhook["name"] == name) {
            webhook["objectSelector"] = selector.clone();
        }
        self
    }

    /// Adds the objects of `others`.
    pub(super) fn and(mut self, others: &Self) -> Self {
        self.0.extend(others.0.iter().cloned());
        self
    }

    /// Returns the names of the CustomResourceDefinitions.
    pub(super) fn crd_names(&self) -> Vec<String> {
        let crds = self.0.iter().filter(|object| is_crd(object));
        crds.map(|object| object.name_any()).collect()
    }

    /// Creates missing objects and applies the others by server-side apply, several at a time.
    pub(super) async fn apply(&self, client: &Client, cluster: &str) -> Result<()> {
        let kinds = self.resolve_kinds(client, cluster).await?;
        let writes = stream::iter(&self.0).map(|object| write(client, cluster, &kinds, object));
        let mut writes = writes.buffer_unordered(CONCURRENCY);
        while let Some(written) = writes.next().await {
            written?;
        }
        Ok(())
    }

    /// Looks up each kind once in the server's discovery.
    async fn resolve_kinds(&self, client: &Client, cluster: &str) -> Result<DiscoveredKinds> {
        let mut kinds = DiscoveredKinds::new();
        for object in &self.0 {
            let Some(types) = object.types.clone() else {
                continue;
            };
            if kinds.contains_key(&types) {
                continue;
            }
            let what = format!(
                "find kind {} {} in {cluster}",
                types.api_version, types.kind
            );
            let gvk = GroupVersionKind::try_from(&types).map_err(|error| Error::Manifest {
                path: PathBuf::from(object.name_any()),
                reason: error.to_string(),
            })?;
            let (resource, capabilities) = discovery::pinned_kind(client, &gvk)
                .await
                .map_err(Error::kube(what))?;
            kinds.insert(types, (resource, capabilities.scope));
        }
        Ok(kinds)
    }
}

type DiscoveredKinds = HashMap<TypeMeta, (ApiResource, Scope)>;

/// Writes one object. A create costs the server less than an apply, and succeeds nearly always on a
/// fresh server.
async fn write(
    client: &Client,
    cluster: &str,
    kinds: &DiscoveredKinds,
    object: &DynamicObject,
) -> Result<()> {
    let name = object.name_any();
    let Some((resource, scope)) = object.types.as_ref().and_then(|types| kinds.get(types)) else {
        return Ok(());
    };
    let api: Api<DynamicObject> = match scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => {
            let namespace = object.namespace().unwrap_or_else(|| "default".into());
            Api::namespaced_with(client.clone(), &namespace, resource)
        }
    };
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let params = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(&name, &params, &Patch::Apply(object)).await
        }
        other => other,
    }
    .map(drop)
    .map_err(Error::kube(format!(
        "apply {} {name} to {cluster}",
        resource.kind
    )))
}

/// Returns the CRDs that the server does not serve yet. It reads the discovery document, ten times
/// a second: the CRDs themselves are megabytes.
pub(super) async fn unserved(client: &Client, names: &[String]) -> Result<Vec<String>, String> {
    let request = http::Request::get("/apis")
        .header("accept", SERVED)
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    let answer: Value = client
        .request(request)
        .await
        .map_err(|error| describe(&error))?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut served = BTreeSet::new();
    for group in list(&answer["items"]) {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        let versions = list(&group["versions"]);
        let resources = versions
            .iter()
            .flat_map(|version| list(&version["resources"]));
        served.extend(resources.filter_map(|resource| {
            let plural = resource["resource"].as_str()?;
            Some(format!("{plural}.{name}"))
        }));
    }
    let missing = names.iter().filter(|name| !served.contains(*name));
    Ok(missing.cloned().collect())
}

/// Removes the descriptions from a schema. API servers would store and process them several times,
/// and they are half the size of some CRDs.
fn without_descriptions(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    fields.remove("description");
    for (word, value) in fields {
        match word.as_str() {
            "properties" => {
                let properties = value.as_object_mut().into_iter().flatten();
                properties.for_each(|(_, property)| without_descriptions(property));
            }
            "allOf" | "anyOf" | "oneOf" => {
                let schemas = value.as_array_mut().into_iter().flatten();
                schemas.for_each(without_descriptions);
            }
            "items" | "additionalProperties" | "not" => without_descriptions(value),
            _ => {}
        }
    }
}

fn is_crd(object: &DynamicObject) -> bool {
    object
        .types
        .as_ref()
        .is_some_and(|types| types.kind == "CustomResourceDefinition")
}

fn collect_files(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(Error::io("list", path))?;
    let entries: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut entries = entries.map_err(Error::io("list", path))?;
    entries.sort();
    for entry in entries {
        let yaml = entry
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml");
        if entry.is_dir() || yaml {
            collect_files(&entry, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn folders_are_read_whole_and_mistakes_name_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let nested = dir.path().join("b/nested.yml");
        std::fs::create_dir(dir.path().join("b")).unwrap();
        std::fs::write(dir.path().join("a.yaml"), "# empty\n---\n").unwrap();
        std::fs::write(dir.path().join("notes.txt"), "{").unwrap();
        let two = "apiVersion: v1\nkind: Namespace\nmetadata: {name: first}\n---\n\
                   apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: second}\n";
        std::fs::write(&nested, two).unwrap();
        let read = || Manifests::read(&[dir.path().to_owned()]);
        assert_eq!(read().unwrap().crd_names(), ["second"]);
        assert_eq!(read().unwrap().without(&["second"]).0.len(), 1);

        std::fs::write(&nested, "apiVersion: v1\nkind: Namespace\nmetadata: {}\n").unwrap();
        let message = read().unwrap_err().to_string();
        assert!(
            message.contains("nested.yml") && message.contains("metadata.name"),
            "{message}"
        );
    }

    #[test]
    fn a_webhook_gets_the_prefix_and_the_selector_of_a_kustomization() {
        let registration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "hooks"},
            "webhooks": [{"name": "jobs"}, {"name": "pods"}],
        });
        let own = json!({"matchLabels": {"app": "a"}});
        let made = Manifests::literal("hooks", vec![registration])
            .unwrap()
            .with_name_prefix("lws-")
            .with_webhook_selecting("pods", &own);
        assert_eq!(made.0[0].name_any(), "lws-hooks");
        let expected = json!([{"name": "jobs"}, {"name": "pods", "objectSelector": own}]);
        assert_eq!(made.0[0].data["webhooks"], expected);
    }

    /// A property may be named `description`.
    #[test]
    fn schemas_lose_what_is_said_and_nothing_else() {
        let mut schema = json!({
            "description": "all",
            "properties": {
                "description": {"type": "string", "description": "one"},
                "list": {"items": {"description": "two", "type": "string"}},
                "any": {"anyOf": [{"description": "three", "type": "string"}]},
                "map": {"additionalProperties": {"description": "four", "minLength": 1}},
                "preset": {"default": {"description": "kept"}, "description": "five"},
            },
        });
        without_descriptions(&mut schema);
        let expected = json!({
            "properties": {
                "description": {"type": "string"},
                "list": {"items": {"type": "string"}},
                "any": {"anyOf": [{"type": "string"}]},
                "map": {"additionalProperties": {"minLength": 1}},
                "preset": {"default": {"description": "kept"}},
            },
        });
        assert_eq!(schema, expected);
    }

    /// KWOK refuses to start with an invalid stage; this test finds mistakes earlier.
    #[test]
    fn our_stages_are_manifests() {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("stages");
        let stages = Manifests::read(&[dir]).unwrap();
        let names: Vec<_> = stages.0.iter().map(|stage| stage.name_any()).collect();
        assert_eq!(
            names,
            ["pod-fail", "pod-refused", "pod-run-for", "pod-wait"]
        );
    }
}
