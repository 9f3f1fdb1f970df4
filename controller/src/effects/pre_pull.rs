//! Writes the Works that pull images on reserved nodes.
//!
//! The Job is rendered from the template as it is now. If that cannot be read, the pull is requested again.

use crate::effects::Effects;
use crate::messages::action::BoundJob;
use crate::mirror::template_key;
use crate::pre_pulls;
use crds::karmada::Work;
use crds::names::PRE_PULL_LABEL;
use engine::decision::PrePull;
use engine::{ClusterName, Uid};
use kube::api::{Api, ApiResource, DynamicObject};
use runtime::with_deadline;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use workload::{ImagePull, image_pull_job};

/// Deadline of reading the template.
const LIMIT: Duration = Duration::from_secs(10);

impl Effects {
    /// Starts the task that reads the template and submits the Work.
    pub(super) fn pre_pull(&self, job: BoundJob, pull: PrePull, seconds: i64) {
        let template = template_key(&job.binding);
        let resource = template.kind.api_resource();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &template.namespace, &resource);
        let (objects, slots) = (self.objects.clone(), Arc::clone(&self.checks));
        runtime::task::spawn(async move {
            // The semaphore is never closed.
            let _slot = slots.acquire().await;
            let object = match with_deadline(api.get(&template.name), LIMIT).await {
                Ok(object) => object,
                Err(error) => {
                    let error = error.message();
                    tracing::warn!(job = %job.key, error, "its images are not pulled ahead: its template cannot be read");
                    return;
                }
            };
            let uid = pull.uid.to_string();
            if object.metadata.uid.as_ref() != Some(&uid) {
                return;
            }
            let mut read = serde_json::to_value(&object).unwrap_or(Value::Null);
            if let Some(map) = read.as_object_mut() {
                map.insert("apiVersion".into(), resource.api_version.clone().into());
                map.insert("kind".into(), resource.kind.clone().into());
            }
            let name = pre_pulls::name(&pull.uid);
            let rendered = image_pull_job(
                &mut read,
                &ImagePull {
                    name: &name,
                    label: (PRE_PULL_LABEL, &uid),
                    role: &pull.role,
                    nodes: &pull.nodes,
                    seconds,
                },
            );
            if let Some(rendered) = rendered {
                let work = pre_pulls::work(&pull.cluster, &pull.uid, &rendered);
                let namespace = pre_pulls::namespace(&pull.cluster);
                objects.apply(&resource_of_works(), Some(&namespace), &name, work);
            }
        });
    }

    /// Submits the deletion of a Work that pulls.
    pub(super) fn end_pre_pull(&self, cluster: &ClusterName, uid: &Uid) {
        let (namespace, name) = (pre_pulls::namespace(cluster), pre_pulls::name(uid));
        self.objects
            .delete(&resource_of_works(), Some(&namespace), &name);
    }
}

fn resource_of_works() -> ApiResource {
    ApiResource::erase::<Work>(&())
}
