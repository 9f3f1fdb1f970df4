//! Jobs whose template says how long they stay after their end: they are deleted then, here, and
//! nowhere else.
//!
//! A member that deleted its copy would have Karmada make it anew, and the job would run again.
//! An override keeps members whose operator looks after that time from doing so; the scheduler
//! writes it before the placement, and it is written here for a time that was added later.

use crate::core::Core;
use crate::notes::Note;
use crate::placed::outcome;
use crate::reconcile::Look;
use crate::template_watches::api_resource;
use crate::world::template_key;
use crds::record::AdmissionRecord;
use engine::Reason;
use kube::api::{Api, DeleteParams, DynamicObject, Preconditions};
use scheduler::overrides;
use std::time::Duration;

/// Deleting takes no longer.
const DEADLINE: Duration = Duration::from_secs(10);
/// Milliseconds after which a deletion that came to nothing is tried again.
const RETRY_MS: i64 = 30_000;

impl Core {
    /// Deletes a job that has ended, once its time is over.
    pub(crate) fn expire(&mut self, look: &Look<'_>, record: &AdmissionRecord) {
        let Some(template) = self.world.template_of(&look.binding) else {
            return;
        };
        let (Some(ttl), false) = (template.time_to_live, record.adopted) else {
            return;
        };
        let ended_at = template.ended_at;
        let version = template.resource_version.clone();
        if let Some(path) = ttl.in_members
            && !std::mem::replace(&mut self.track(look.key).kept_alive, true)
        {
            self.publisher.ensurer.apply(
                &overrides::resource(),
                Some(&look.key.namespace),
                &overrides::keep_name(look.key),
                overrides::keep(look.key, &look.binding, path),
            );
        }
        let Some(ended_at) = ended_at.filter(|_| outcome(&look.binding).is_finished()) else {
            return;
        };
        let over = ended_at.after(ttl.after_ms);
        if look.now < over {
            return self.look_again(look.key, over);
        }
        // Should it come to nothing: what deletes it may be refused, or another be quicker.
        self.look_again(look.key, look.now.after(RETRY_MS));
        self.delete_template(look, version);
    }

    /// Deletes the template of a job, in this version: one that was changed is looked at again.
    fn delete_template(&mut self, look: &Look<'_>, resource_version: String) {
        let message = "its time after the end is over (ttlSecondsAfterFinished)".to_owned();
        self.note(look, Note::normal(Reason::Finished, "Expire", message));
        let template = template_key(&look.binding);
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: Some(look.binding.spec.resource.uid.clone()),
            resource_version: Some(resource_version),
        });
        let (client, key) = (self.client.clone(), look.key.clone());
        tokio::spawn(async move {
            let api: Api<DynamicObject> =
                Api::namespaced_with(client, &template.namespace, &api_resource(&template.kind));
            let deleted = api.delete(&template.name, &params);
            match tokio::time::timeout(DEADLINE, deleted).await {
                Ok(Ok(_)) => tracing::info!(job = %key, "deleted, its time is over"),
                Ok(Err(error)) => {
                    tracing::warn!(job = %key, %error, "its time is over and it cannot be deleted; trying again");
                }
                Err(_) => {
                    tracing::warn!(job = %key, "its time is over and it was not deleted in time; trying again");
                }
            }
        });
    }
}
