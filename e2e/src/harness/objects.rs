//! Objects of one API server as plain JSON, so that a test names fields as in YAML.

use kube::Client;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy,
};
use serde_json::Value;
use std::collections::BTreeMap;

use super::kinds::ObjectKind;

/// The result of a request.
pub type KubeResult<T, E = kube::Error> = std::result::Result<T, E>;

/// An API server's objects.
#[derive(Clone)]
pub struct Objects {
    client: Client,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Objects {
    /// Returns the objects that `client` reaches.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Creates an object: in the namespace that it names if its kind is namespaced.
    ///
    /// # Errors
    /// Returns an error if the server refuses.
    pub async fn create(&self, kind: ObjectKind, object: &Value) -> KubeResult<Value> {
        let namespace = object["metadata"]["namespace"].as_str();
        let object = serde_json::from_value(of_kind(kind, object.clone()));
        let object = object.map_err(kube::Error::SerdeError)?;
        let api = self.api(kind, namespace);
        let created = api.create(&PostParams::default(), &object).await;
        Ok(json(kind, created?))
    }

    /// Asks whether an object could be created, without creating it.
    ///
    /// # Errors
    /// Returns an error if the server would refuse, also because there is one of that name.
    pub async fn could_create(&self, kind: ObjectKind, object: &Value) -> KubeResult<()> {
        let namespace = object["metadata"]["namespace"].as_str();
        let object = serde_json::from_value(of_kind(kind, object.clone()));
        let object = object.map_err(kube::Error::SerdeError)?;
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let created = self.api(kind, namespace).create(&params, &object).await;
        created.map(drop)
    }

    /// Returns the object, or `None` if there is none of that name.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub async fn get(
        &self,
        kind: ObjectKind,
        namespace: Option<&str>,
        name: &str,
    ) -> KubeResult<Option<Value>> {
        let found = self.api(kind, namespace).get_opt(name).await?;
        Ok(found.map(|object| json(kind, object)))
    }

    /// Returns what `kubectl get` prints of an object, by column.
    ///
    /// # Errors
    /// Returns an error if the server does not answer, or has no such object.
    pub async fn printed(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> KubeResult<BTreeMap<String, Value>> {
        let group = match kind.group {
            "" => "/api".to_owned(),
            group => format!("/apis/{group}"),
        };
        let (version, plural) = (kind.version, kind.plural);
        let path = format!("{group}/{version}/namespaces/{namespace}/{plural}/{name}");
        let request = http::Request::get(path)
            .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        let table: Value = self.client.request(request).await?;
        let columns = table["columnDefinitions"].as_array().into_iter().flatten();
        let cells = table["rows"][0]["cells"].as_array().into_iter().flatten();
        let names = columns.map(|column| column["name"].as_str().unwrap_or_default());
        Ok(names.map(str::to_owned).zip(cells.cloned()).collect())
    }

    /// Returns all objects of a kind, in one namespace or in all.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub async fn list(&self, kind: ObjectKind, namespace: Option<&str>) -> KubeResult<Vec<Value>> {
        self.select(kind, namespace, "").await
    }

    /// Returns the objects of a kind with these labels.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    #[expect(clippy::disallowed_methods, reason = "lists a testbed, which is small")]
    pub async fn select(
        &self,
        kind: ObjectKind,
        namespace: Option<&str>,
        labels: &str,
    ) -> KubeResult<Vec<Value>> {
        let params = ListParams::default().labels(labels);
        let listed = self.api(kind, namespace).list(&params).await?;
        let items = listed.items.into_iter();
        Ok(items.map(|object| json(kind, object)).collect())
    }

    /// Merges `patch` into an object.
    ///
    /// # Errors
    /// Returns an error if the server refuses.
    pub async fn merge(
        &self,
        kind: ObjectKind,
        namespace: Option<&str>,
        name: &str,
        patch: &Value,
    ) -> KubeResult<Value> {
        let api = self.api(kind, namespace);
        let params = PatchParams::default();
        let patched = api.patch(name, &params, &Patch::Merge(patch)).await;
        Ok(json(kind, patched?))
    }

    /// Merges `patch` into the status of an object, as its controller would.
    ///
    /// # Errors
    /// Returns an error if the server refuses.
    pub async fn merge_status(
        &self,
        kind: ObjectKind,
        namespace: Option<&str>,
        name: &str,
        patch: &Value,
    ) -> KubeResult<Value> {
        let api = self.api(kind, namespace);
        let params = PatchParams::default();
        let patched = api.patch_status(name, &params, &Patch::Merge(patch)).await;
        Ok(json(kind, patched?))
    }

    /// Merges `patch` into a subresource of an object, such as `resize` of a pod.
    ///
    /// # Errors
    /// Returns an error if the server refuses.
    pub async fn merge_subresource(
        &self,
        kind: ObjectKind,
        namespace: Option<&str>,
        name: &str,
        subresource: &str,
        patch: &Value,
    ) -> KubeResult<()> {
        let api = self.api(kind, namespace);
        let params = PatchParams::default();
        let patch = Patch::Merge(patch);
        let patched = api
            .patch_subresource(subresource, name, &params, &patch)
            .await;
        patched.map(drop)
    }

    /// Sets the replicas of an object by its subresource `scale`, as `kubectl scale` and
    /// autoscalers do.
    ///
    /// # Errors
    /// Returns an error if the server refuses.
    pub async fn scale(
        &self,
        kind: ObjectKind,
        namespace: Option<&str>,
        name: &str,
        replicas: u32,
    ) -> KubeResult<()> {
        let api = self.api(kind, namespace);
        let patch = serde_json::json!({"spec": {"replicas": replicas}});
        let params = PatchParams::default();
        let scaled = api.patch_scale(name, &params, &Patch::Merge(&patch)).await;
        scaled.map(drop)
    }

    /// Deletes an object in the background, as kubectl does. A missing object is no error.
    ///
    /// # Errors
    /// Returns an error if the server refuses.
    pub async fn delete(
        &self,
        kind: ObjectKind,
        namespace: Option<&str>,
        name: &str,
    ) -> KubeResult<()> {
        self.delete_by(kind, namespace, name, &DeleteParams::background())
            .await
    }

    /// Deletes an object and leaves what belongs to it (`kubectl delete --cascade=orphan`).
    ///
    /// # Errors
    /// Returns an error if the server refuses.
    pub async fn delete_alone(
        &self,
        kind: ObjectKind,
        namespace: Option<&str>,
        name: &str,
    ) -> KubeResult<()> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        self.delete_by(kind, namespace, name, &params).await
    }

    /// Deletes an object without waiting for what it runs to end: a pod whose node is gone.
    ///
    /// # Errors
    /// Returns an error if the server refuses.
    pub async fn delete_at_once(
        &self,
        kind: ObjectKind,
        namespace: Option<&str>,
        name: &str,
    ) -> KubeResult<()> {
        let params = DeleteParams::background().grace_period(0);
        self.delete_by(kind, namespace, name, &params).await
    }

    async fn delete_by(
        &self,
        kind: ObjectKind,
        namespace: Option<&str>,
        name: &str,
        params: &DeleteParams,
    ) -> KubeResult<()> {
        match self.api(kind, namespace).delete(name, params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Deletes all objects of a kind in a namespace in one request, which names none of them.
    ///
    /// # Errors
    /// Returns an error if the server refuses.
    pub async fn delete_collection(&self, kind: ObjectKind, namespace: &str) -> KubeResult<()> {
        let (how, all) = (DeleteParams::background(), ListParams::default());
        let objects = self.api(kind, Some(namespace));
        objects.delete_collection(&how, &all).await.map(drop)
    }

    fn api(&self, kind: ObjectKind, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = kind.resource();
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }
}

fn json(kind: ObjectKind, object: DynamicObject) -> Value {
    // The client parsed the object from JSON, so only an object with non-text keys could fail.
    of_kind(kind, serde_json::to_value(object).unwrap_or_default())
}

/// Adds the object's apiVersion and kind, which servers omit in lists, and callers may omit.
fn of_kind(kind: ObjectKind, mut object: Value) -> Value {
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.name.into();
    object
}
