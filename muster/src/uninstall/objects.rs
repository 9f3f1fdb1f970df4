//! Lists and removes objects. A kind or an object that does not exist is no error, so every step can be
//! repeated.

use crate::install;
use anyhow::Context as _;
use binding_writer::overrides::MANAGER;
use checks::{PODGROUPS, has_volcanos_podgroups};
use controller::admission_policies::manifests;
use crds::karmada::Work;
use crds::kubernetes::Namespace;
use crds::names::{ACCOUNTING_FINALIZER, ADOPTED_AT_ANNOTATION, MANAGED_LABEL, PRE_PULL_LABEL};
use crds::namespace_queue::NamespaceQueue;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions,
};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, Resource, ResourceExt as _};
use runtime::client::{CallError, CallFault, with_deadline};
use runtime::pages;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Deadline of each page of a list.
const LIMIT: Duration = Duration::from_secs(30);
/// Deadline of each change.
pub(super) const CHANGED: Duration = Duration::from_secs(10);

/// Makes changes, or only prints them.
pub(super) struct Remover {
    client: Client,
    dry_run: bool,
    count: AtomicUsize,
}

impl Remover {
    pub(super) fn new(client: Client, dry_run: bool) -> Self {
        let count = AtomicUsize::new(0);
        Self {
            client,
            dry_run,
            count,
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn is_dry(&self) -> bool {
        self.dry_run
    }

    /// Returns the number of changes so far.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Prints and counts a change.
    pub(super) fn note(&self, line: &str) {
        self.count.fetch_add(1, Ordering::Relaxed);
        println!("{line}{}", if self.dry_run { " (dry run)" } else { "" });
    }

    /// Returns kind, namespace and name of an object, as kubectl prints them.
    pub(super) fn named(resource: &ApiResource, object: &DynamicObject) -> String {
        let kind = resource.kind.to_lowercase();
        match &object.metadata.namespace {
            Some(namespace) => format!("{kind} {namespace}/{}", object.name_any()),
            None => format!("{kind} {}", object.name_any()),
        }
    }

    pub(super) fn api(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
    ) -> Api<DynamicObject> {
        let client = self.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        }
    }

    /// Returns all objects of a kind; none if the server does not serve it.
    pub(super) async fn list<K>(&self) -> anyhow::Result<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::all_with(self.client.clone(), &());
        match pages::list(&api, &ListParams::default(), LIMIT).await {
            Err(error) if error.is_missing() => Ok(Vec::new()),
            other => Ok(other
                .with_context(|| format!("cannot list {}", K::plural(&())))?
                .items),
        }
    }

    /// Does the same for a kind that is known only now, for objects with these `labels`.
    pub(super) async fn list_dynamic(
        &self,
        resource: &ApiResource,
        labels: &str,
    ) -> anyhow::Result<Vec<DynamicObject>> {
        let api = self.api(resource, None);
        match pages::list(&api, &ListParams::default().labels(labels), LIMIT).await {
            Err(error) if error.is_missing() => Ok(Vec::new()),
            other => Ok(other
                .with_context(|| format!("cannot list {}", resource.plural))?
                .items),
        }
    }

    /// Deletes the objects with these `labels` that `chosen` selects.
    pub(super) async fn remove_where(
        &self,
        resource: &ApiResource,
        labels: &str,
        chosen: impl Fn(&DynamicObject) -> bool,
    ) -> anyhow::Result<()> {
        for object in self.list_dynamic(resource, labels).await? {
            if chosen(&object) {
                self.remove(resource, &object).await?;
            }
        }
        Ok(())
    }

    /// Deletes `object`, but no later object of the same name.
    pub(super) async fn remove(
        &self,
        resource: &ApiResource,
        object: &DynamicObject,
    ) -> anyhow::Result<()> {
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let line = format!("{} deleted", Self::named(resource, object));
        self.note(&line);
        if self.dry_run {
            return Ok(());
        }
        let api = self.api(resource, object.metadata.namespace.as_deref());
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: object.metadata.uid.clone(),
            resource_version: None,
        });
        match with_deadline(api.delete(&object.name_any(), &params), CHANGED).await {
            Err(error) if error.is_missing() || error.fault() == CallFault::Conflict => Ok(()),
            Err(error) => anyhow::bail!("{line}: {}", error.message()),
            Ok(_) => Ok(()),
        }
    }

    /// Merges `patch` into an object, which may be gone by now.
    pub(super) async fn merge<K>(
        &self,
        api: &Api<K>,
        name: &str,
        patch: &Value,
        line: &str,
    ) -> Result<(), CallError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        if !self.dry_run {
            let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
            let patched = api.patch_metadata(name, &params, &patch);
            match with_deadline(patched, CHANGED).await {
                Err(error) if error.is_missing() => return Ok(()),
                other => drop(other?),
            }
        }
        self.note(line);
        Ok(())
    }
}

/// Deletes the webhook registrations and the admission policies.
pub(super) async fn remove_registrations(remover: &Remover) -> anyhow::Result<()> {
    for (kind, plural) in [
        (
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
        ),
        (
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
        ),
    ] {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let ours = |object: &DynamicObject| object.name_any() == webhook::register::NAME;
        remover.remove_where(&resource, "", ours).await?;
    }
    for manifest in [manifests::MANIFEST, manifests::PERMITTED_QUEUE] {
        remove_manifest(remover, manifest, &[]).await?;
    }
    Ok(())
}

/// Removes the label by which a namespace is managed, and the mark of its adoption.
pub(super) async fn unmark_namespaces(remover: &Remover) -> anyhow::Result<()> {
    let namespaces: Vec<Namespace> = remover.list().await?;
    let api: Api<Namespace> = Api::all(remover.client().clone());
    let marked = |namespace: &&Namespace| {
        namespace.labels().contains_key(MANAGED_LABEL)
            || namespace.annotations().contains_key(ADOPTED_AT_ANNOTATION)
    };
    for namespace in namespaces.iter().filter(marked) {
        let name = namespace.name_any();
        let patch = json!({"metadata": {
            "labels": {MANAGED_LABEL: null},
            "annotations": {ADOPTED_AT_ANNOTATION: null},
        }});
        let line = format!("namespace {name} is not managed any more");
        remover.merge(&api, &name, &patch, &line).await?;
    }
    Ok(())
}

/// Removes Muster's finalizer from queues, which could never be deleted otherwise.
pub(super) async fn release_queues(remover: &Remover) -> anyhow::Result<()> {
    let gvk = GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "Queue");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "queues");
    let api = remover.api(&resource, None);
    for queue in remover.list_dynamic(&resource, "").await? {
        let is_ours = |name: &&String| *name == ACCOUNTING_FINALIZER;
        if !queue.finalizers().iter().any(|name| is_ours(&name)) {
            continue;
        }
        let name = queue.name_any();
        let others = queue.finalizers().iter().filter(|name| !is_ours(name));
        let patch = json!({"metadata": {
            "resourceVersion": queue.metadata.resource_version,
            "finalizers": others.collect::<Vec<_>>(),
        }});
        let line = format!("queue {name} has no finalizer of Muster");
        let merged = remover.merge(&api, &name, &patch, &line).await;
        merged.map_err(|error| anyhow::anyhow!("{line}: {}", error.message()))?;
    }
    Ok(())
}

/// Deletes the PodGroups and NamespaceQueues that Muster applied: what they show is true of a moment only.
pub(super) async fn remove_views(remover: &Remover) -> anyhow::Result<()> {
    let gvk = GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "PodGroup");
    let podgroups = ApiResource::from_gvk_with_plural(&gvk, "podgroups");
    let ours = |object: &DynamicObject| {
        let mut managers = object.managed_fields().iter();
        managers.any(|entry| entry.manager.as_deref() == Some(MANAGER))
    };
    remover.remove_where(&podgroups, "", ours).await?;
    let queues = ApiResource::erase::<NamespaceQueue>(&());
    remover.remove_where(&queues, "", ours).await
}

/// Deletes the Works that pull images for waiting jobs.
pub(super) async fn remove_pre_pulls(remover: &Remover) -> anyhow::Result<()> {
    let resource = ApiResource::erase::<Work>(&());
    remover
        .remove_where(&resource, PRE_PULL_LABEL, |_| true)
        .await
}

/// Deletes what `muster install` applied besides CRDs and queues, except the interpreters of `kept` kinds:
/// Karmada needs them for jobs that run.
pub(super) async fn remove_installed(
    remover: &Remover,
    kept: &[(String, String)],
) -> anyhow::Result<()> {
    remove_manifest(remover, install::bypass_binding(), &[]).await?;
    for manifest in install::manifests().rev() {
        remove_manifest(remover, manifest, kept).await?;
    }
    Ok(())
}

/// Deletes each object of a manifest, last first.
pub(super) async fn remove_manifest(
    remover: &Remover,
    manifest: &str,
    kept: &[(String, String)],
) -> anyhow::Result<()> {
    for object in runtime::apply::parse(manifest)?.into_iter().rev() {
        let target = &object["spec"]["target"];
        let interprets = |(version, kind): &(String, String)| {
            target["apiVersion"] == version.as_str() && target["kind"] == kind.as_str()
        };
        if !kept.iter().any(interprets) {
            remove_object(remover, object).await?;
        }
    }
    Ok(())
}

async fn remove_object(remover: &Remover, object: Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.as_ref().context("a manifest has no kind")?;
    let gvk = GroupVersionKind::try_from(types)?;
    let (resource, capabilities) =
        match with_deadline(pinned_kind(remover.client(), &gvk), CHANGED).await {
            Err(error) if error.is_missing() => return Ok(()),
            other => other.with_context(|| format!("cannot look up {}", gvk.kind))?,
        };
    let namespace = match capabilities.scope {
        Scope::Cluster => None,
        Scope::Namespaced => object.metadata.namespace.as_deref(),
    };
    let api = remover.api(&resource, namespace);
    let seen = with_deadline(api.get_opt(&object.name_any()), CHANGED).await;
    match seen {
        Err(error) if error.is_missing() => Ok(()),
        other => match other.with_context(|| format!("cannot read {}", object.name_any()))? {
            Some(seen) => remover.remove(&resource, &seen).await,
            None => Ok(()),
        },
    }
}

/// Deletes Muster's CRDs with all their objects. Volcano's own CRD of PodGroups stays.
pub(super) async fn remove_crds(remover: &Remover) -> anyhow::Result<()> {
    let volcanos = has_volcanos_podgroups(remover.client()).await?;
    for (name, yaml) in crds::yaml::manifests() {
        if name != PODGROUPS || !volcanos {
            remove_manifest(remover, yaml, &[]).await?;
        }
    }
    Ok(())
}
