//! The PodGroups as they were last applied, and where their statuses are written.

use crate::status::podgroups;
use crds::names::FEDERATION_ANNOTATION;
use crds::podgroup::{PodGroup, PodGroupStatus};
use engine::JobKey;
use kube::api::ApiResource;
use runtime::status_writer::StatusTarget;
use serde_json::{Value, json};
use std::collections::HashMap;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct AppliedPodGroups {
    /// True if the PodGroup CRD has a status subresource (Muster's has one, Volcano's has not).
    status_subresource: bool,
    specs: HashMap<JobKey, Value>,
}

impl AppliedPodGroups {
    pub(super) fn new(status_subresource: bool) -> Self {
        Self {
            status_subresource,
            specs: HashMap::new(),
        }
    }

    /// Notes a PodGroup that another process has applied as `spec`. After a restart most PodGroups exist, and applying
    /// them again would cost the API server as much as the placements did.
    pub(super) fn learn(&mut self, key: &JobKey, seen: Option<&PodGroup>, spec: &Value) {
        let known = self.specs.contains_key(key);
        if !known && seen.is_some_and(|seen| podgroups::shows(seen, spec)) {
            self.note(key, spec.clone());
        }
    }

    /// Returns true if the PodGroup of a job was last applied as `spec`.
    pub(super) fn is_applied(&self, key: &JobKey, spec: &Value) -> bool {
        self.specs.get(key) == Some(spec)
    }

    /// Notes that the PodGroup of a job is applied as `spec`.
    pub(super) fn note(&mut self, key: &JobKey, spec: Value) {
        self.specs.insert(key.clone(), spec);
    }

    /// Forgets the PodGroup of a job, and returns where its status was written.
    pub(super) fn forget(&mut self, key: &JobKey) -> StatusTarget {
        self.specs.remove(key);
        self.target(key)
    }

    /// Returns where the status of a PodGroup is written, and the patch that writes it.
    pub(super) fn patch(&self, key: &JobKey, status: &PodGroupStatus) -> (StatusTarget, Value) {
        let mut patch = json!({ "status": status });
        if !self.status_subresource {
            // Volcano's own CRD prunes the field.
            let text = json!(status.federation).to_string();
            patch["metadata"] = json!({ "annotations": { FEDERATION_ANNOTATION: text } });
        }
        (self.target(key), patch)
    }

    fn target(&self, key: &JobKey) -> StatusTarget {
        StatusTarget {
            api_resource: ApiResource::erase::<PodGroup>(&()),
            namespace: Some(key.namespace.to_string()),
            name: key.name.to_string(),
            subresource: self.status_subresource.then_some("status"),
            strategic: false,
        }
    }
}
