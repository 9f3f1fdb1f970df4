//! The Services that lead to pods of a split job from other clusters, if the addresses of its queue need
//! them, and the MultiClusterServices that make Karmada propagate them.
//!
//! ```text
//! workload::services ──► Service + MultiClusterService per pod, before the job is placed
//! └─► Karmada: the Service in all clusters of the job, and the EndpointSlices of the
//!     cluster with the pod in all others
//! ```
//!
//! The job's binding owns both, and they are deleted with it; those of an earlier attempt are deleted
//! before. Objects of other managers are neither taken over nor deleted.
//!
//! A Service is created with a mark that claims it ([`CLAIMED_BY`]), so that no policy that selects
//! Services claims it before Karmada's controller of MultiClusterServices does. No policy claims its
//! binding then, so Muster does not manage that binding.

use super::{LIMIT, MANAGER, OverrideError, failed, is_ours};
use crds::karmada::{ResourceBinding, Work};
use crds::names;
use facts::Attempt;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions,
};
use kube::core::{GroupVersionKind, ObjectMeta, PartialObjectMeta};
use kube::{Client, ResourceExt};
use runtime::client::{CallError, CallFault, with_deadline};
use runtime::pages;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Debug;
use workload::PodService;

/// Karmada's label on a template: the resource that propagates it instead of policies.
const CLAIMED_BY: &str = "resourcetemplate.karmada.io/claimed-by";
/// Karmada's condition of a MultiClusterService whose Service it propagates.
const APPLIED: &str = "ServiceApplied";
/// Karmada's label on Works of a MultiClusterService: its name.
const MCS_NAME: &str = "multiclusterservice.karmada.io/name";
/// See [`MCS_NAME`].
const MCS_NAMESPACE: &str = "multiclusterservice.karmada.io/namespace";
/// Most Services written at once.
const IN_FLIGHT: usize = 8;

/// Writes and deletes the Services.
pub(super) struct Services<'a> {
    client: Client,
    binding: &'a ResourceBinding,
    namespace: String,
}

impl<'a> Services<'a> {
    /// The Services of the job of `binding`.
    pub(super) fn of(client: Client, binding: &'a ResourceBinding) -> Self {
        Self {
            client,
            binding,
            namespace: binding.job_key().namespace.to_string(),
        }
    }

    /// Applies `services`, which belong to `attempt`.
    pub(super) async fn apply(
        &self,
        attempt: Attempt,
        services: &[PodService],
    ) -> Result<(), OverrideError> {
        let written = services.iter().map(|service| async move {
            let [first, second] = [self.service(attempt, service), self.mcs(attempt, service)];
            self.apply_one(&service_kind(), &service.name, first)
                .await?;
            self.apply_one(&mcs_kind(), &service.name, second).await
        });
        let written = futures::stream::iter(written.collect::<Vec<_>>());
        written.buffer_unordered(IN_FLIGHT).try_collect().await
    }

    /// Applies `object`, unless an object of its name belongs to another manager.
    async fn apply_one(
        &self,
        kind: &ApiResource,
        name: &str,
        object: Value,
    ) -> Result<(), OverrideError> {
        let objects = self.api(kind);
        let there = with_deadline(objects.get_metadata_opt(name), LIMIT).await;
        let there = there.map_err(|error| failed("a Service of its pods", "read", &error))?;
        let params = PatchParams::apply(MANAGER);
        let params = match &there {
            Some(there) if !is_ours(&there.metadata) => {
                return Err(OverrideError::Foreign {
                    kind: kind.kind.clone(),
                    name: name.to_owned(),
                });
            }
            Some(_) => params.force(),
            // If another client creates it at this moment, it stays unchanged.
            None => params,
        };
        let patch = Patch::Apply(object);
        let applied = with_deadline(objects.patch(name, &params, &patch), LIMIT).await;
        applied.map(drop).map_err(|error| match error.fault() {
            CallFault::NoSuchKind => OverrideError::NotServed(kind.kind.clone()),
            _ => failed("a Service of its pods", "written", &error),
        })
    }

    /// Deletes the Services of attempts up to `ended`. Leftovers are deleted with the binding.
    pub(super) async fn clear(&self, ended: Attempt) {
        // Services first: a Service that loses its MultiClusterService first is open again to policies that
        // select Services.
        for kind in [service_kind(), mcs_kind()] {
            let objects = self.api(&kind);
            let own = ListParams::default().labels(&format!("{}={}", names::JOB_LABEL, self.uid()));
            let list = match pages::list_metadata(&objects, &own, LIMIT).await {
                Ok(list) => list.items,
                Err(error) => {
                    let error = error.message();
                    tracing::debug!(
                        kind = kind.kind,
                        error,
                        "cannot list Services of ended attempts"
                    );
                    return;
                }
            };
            let over = |object: &ObjectMeta| {
                is_ours(object) && self.attempt_of(object).is_some_and(|of| of <= ended)
            };
            let over = list.iter().filter(|object| over(&object.metadata));
            let deleted = over.map(|object| async {
                if let Err(error) = delete(&objects, &object.metadata).await {
                    let (name, error) = (object.name_any(), error.message());
                    tracing::warn!(name, error, "cannot delete an object of an ended attempt");
                }
            });
            let deleted = futures::stream::iter(deleted.collect::<Vec<_>>());
            deleted.buffer_unordered(IN_FLIGHT).collect::<()>().await;
        }
    }

    /// Returns why Karmada does not propagate `services`, if so.
    pub(super) async fn problem(
        &self,
        services: &[PodService],
    ) -> Result<Option<String>, OverrideError> {
        for service in services {
            let objects = self.api(&mcs_kind());
            let mcs = with_deadline(objects.get_opt(&service.name), LIMIT).await;
            let mcs = mcs.map_err(|error| failed("its MultiClusterService", "read", &error))?;
            let why = mcs.map_or_else(
                || Some("it is gone".to_owned()),
                |mcs| not_applied(&mcs.data),
            );
            if let Some(why) = why {
                return Ok(Some(format!("multiclusterservice {}: {why}", service.name)));
            }
        }
        Ok(None)
    }

    fn api(&self, kind: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, kind)
    }

    fn uid(&self) -> &str {
        self.binding.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns the attempt of this job that an object belongs to.
    fn attempt_of(&self, object: &ObjectMeta) -> Option<Attempt> {
        let label = |key| object.labels.as_ref()?.get(key);
        label(names::JOB_LABEL).filter(|uid| *uid == self.uid())?;
        label(names::ATTEMPT_LABEL)?.parse().ok().map(Attempt)
    }

    fn metadata(&self, attempt: Attempt, service: &PodService) -> Value {
        json!({
            "name": service.name,
            "namespace": self.namespace,
            "labels": {
                "app.kubernetes.io/managed-by": "muster",
                (names::JOB_LABEL): self.uid(),
                (names::ATTEMPT_LABEL): attempt.0.to_string(),
            },
            "ownerReferences": [{
                "apiVersion": "work.karmada.io/v1alpha2",
                "kind": "ResourceBinding",
                "name": self.binding.metadata.name,
                "uid": self.binding.metadata.uid,
            }],
        })
    }

    /// A headless Service without ports: its name resolves to the pod.
    fn service(&self, attempt: Attempt, service: &PodService) -> Value {
        let mut metadata = self.metadata(attempt, service);
        metadata["labels"][CLAIMED_BY] = json!(mcs_kind().kind);
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "clusterIP": "None",
                "selector": service.selector,
                // Pods become ready only once they have found each other.
                "publishNotReadyAddresses": true,
            },
        })
    }

    fn mcs(&self, attempt: Attempt, service: &PodService) -> Value {
        let consumers = service.consumers.iter();
        json!({
            "apiVersion": "networking.karmada.io/v1alpha1",
            "kind": "MultiClusterService",
            "metadata": self.metadata(attempt, service),
            "spec": {
                "types": ["CrossCluster"],
                "providerClusters": [{"name": service.provider}],
                "consumerClusters": consumers.map(|name| json!({"name": name})).collect::<Vec<_>>(),
            },
        })
    }
}

/// Removes what Karmada has left of deleted Services of a namespace. Karmada may collect an EndpointSlice
/// that changes while its MultiClusterService is deleted, and then keeps it in a Work for ever
/// (`handleEndpointSliceEvent`, v1.18).
pub(super) async fn sweep(client: &Client, namespace: &str) -> Result<(), CallError> {
    let kept: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &mcs_kind());
    let works: Api<Work> = Api::all(client.clone());
    let of_namespace = ListParams::default().labels(&format!("{MCS_NAMESPACE}={namespace}"));
    // Works first: what is collected after that belongs to existing Services.
    let works = pages::list_metadata(&works, &of_namespace, LIMIT).await?;
    let kept = pages::list_metadata(&kept, &ListParams::default(), LIMIT).await?;
    let kept: BTreeSet<String> = kept.items.iter().map(ResourceExt::name_any).collect();
    let is_left = |work: &&PartialObjectMeta<Work>| {
        let of = work.labels().get(MCS_NAME);
        let ours = |name: &String| name.starts_with("muster-") && !kept.contains(name);
        let in_namespace = work
            .labels()
            .get(MCS_NAMESPACE)
            .is_some_and(|of| of == namespace);
        in_namespace && of.is_some_and(ours)
    };
    for work in works.items.iter().filter(is_left) {
        let (name, cluster) = (work.name_any(), work.namespace().unwrap_or_default());
        let works: Api<Work> = Api::namespaced(client.clone(), &cluster);
        delete(&works, &work.metadata).await?;
        tracing::info!(
            work = name,
            cluster,
            "removed an object that a deleted Service left"
        );
    }
    Ok(())
}

/// Deletes `object` if it still exists, but no later object of the same name.
async fn delete<K>(objects: &Api<K>, object: &ObjectMeta) -> Result<(), CallError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: object.uid.clone(),
        resource_version: None,
    });
    let name = object.name.as_deref().unwrap_or_default();
    match with_deadline(objects.delete(name, &params), LIMIT).await {
        Err(error) if error.fault() != CallFault::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns what a MultiClusterService says about not being propagated.
fn not_applied(mcs: &Value) -> Option<String> {
    let conditions = mcs.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    match conditions.find(|condition| condition["type"] == APPLIED) {
        Some(condition) if condition["status"] == "True" => None,
        Some(condition) => {
            let message = condition["message"].as_str().unwrap_or_default();
            Some(format!("Karmada cannot propagate its Service: {message}"))
        }
        None => Some(format!(
            "Karmada does not propagate it (it has no condition {APPLIED}): the feature gate MultiClusterService \
             has to be on in karmada-controller-manager, and in karmada-agent of members in pull mode"
        )),
    }
}

fn service_kind() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Service"), "services")
}

fn mcs_kind() -> ApiResource {
    let gvk = GroupVersionKind::gvk("networking.karmada.io", "v1alpha1", "MultiClusterService");
    ApiResource::from_gvk_with_plural(&gvk, "multiclusterservices")
}

#[cfg(test)]
mod tests;
