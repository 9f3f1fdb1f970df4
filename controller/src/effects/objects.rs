//! Effects on objects of no job: queues that an earlier version keeps, and the mark of adopted namespaces.
//!
//! Each is a patch in the version that was seen; the watch shows the result.

use crate::effects::Effects;
use crds::kubernetes::Namespace;
use crds::names::{self, ACCOUNTING_FINALIZER};
use crds::queue::Queue;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// Deadline of a patch of a Queue.
const PATCH_DEADLINE: Duration = Duration::from_secs(10);
/// Deadline of a patch of a Namespace, after which it is tried again.
const MARK_DEADLINE: Duration = Duration::from_secs(5);

impl Effects {
    /// Removes Muster's finalizer in the version that was seen; the watch shows the result.
    pub(super) fn free_queue(&self, queue: Queue) {
        let name = queue.metadata.name.unwrap_or_default();
        let mut finalizers = queue.metadata.finalizers.unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != ACCOUNTING_FINALIZER);
        let patch = json!({"metadata": {
            "resourceVersion": queue.metadata.resource_version, "finalizers": finalizers,
        }});
        let resource = ApiResource::erase::<Queue>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let slots = std::sync::Arc::clone(&self.checks);
        runtime::task::spawn(async move {
            // The semaphore is never closed.
            let _slot = slots.acquire().await;
            let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
            let request = api.patch_metadata(&name, &params, &patch);
            match tokio::time::timeout(PATCH_DEADLINE, request).await {
                Ok(Ok(_)) => {}
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                    tracing::debug!(
                        queue = name,
                        message = status.message,
                        "the queue has changed or is gone; it is reconciled again"
                    );
                }
                Ok(Err(error)) => {
                    tracing::warn!(queue = name, %error, "the finalizer of a queue was not removed; trying again");
                }
                Err(_) => {
                    tracing::warn!(
                        queue = name,
                        "no answer when the finalizer of a queue was removed; trying again"
                    );
                }
            }
        });
    }

    /// Writes the mark in the version of the namespace that was seen: with another label, another mark would
    /// be correct.
    pub(super) fn mark_namespace(
        &self,
        namespace: String,
        version: Option<String>,
        adopted_at: Option<String>,
    ) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        runtime::task::spawn(async move {
            let annotations = json!({ names::ADOPTED_AT_ANNOTATION: adopted_at });
            let metadata = json!({"resourceVersion": version, "annotations": annotations});
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            let params = PatchParams::default();
            let patched = api.patch_metadata(&namespace, &params, &patch);
            match tokio::time::timeout(MARK_DEADLINE, patched).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(namespace, %error, "cannot mark the namespace; trying again")
                }
                Err(_) => tracing::warn!(
                    namespace,
                    "no answer when the namespace was marked; trying again"
                ),
            }
        });
    }
}
