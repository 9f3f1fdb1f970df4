//! What ResourceClaimTemplates claim for one pod, now and when the jobs that name them were placed.

use crate::mirror::object_key;
use crds::devices::ResourceClaimTemplate;
use engine::JobKey;
use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, HashMap};
use workload::ClaimedDevices;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ClaimTemplates {
    claims: HashMap<ObjectKey, ClaimedDevices>,
    /// What these claimed, by name, when the jobs that name them were placed.
    placed: HashMap<JobKey, BTreeMap<String, ClaimedDevices>>,
}

impl ClaimTemplates {
    /// Applies the delta of a ResourceClaimTemplate; returns its key if it changed.
    pub(crate) fn file(&mut self, delta: Delta<ResourceClaimTemplate>) -> Option<ObjectKey> {
        match delta {
            Delta::Upserted(template) => {
                let key = object_key(&template.metadata);
                let claims = template.claimed_devices();
                let before = self.claims.insert(key.clone(), claims.clone());
                (before != Some(claims)).then_some(key)
            }
            Delta::Gone(key) => self.claims.remove(&key).map(|_| key),
            Delta::Listed => None,
        }
    }

    /// Returns what a ResourceClaimTemplate that `job` names claims for one pod: as of the job's placement,
    /// else the present one, if it exists.
    pub(crate) fn claimed_by(&self, job: &JobKey, template: &str) -> Option<&ClaimedDevices> {
        let placed = self.placed.get(job);
        let placed = placed.and_then(|claimed| claimed.get(template));
        placed.or_else(|| {
            self.claims.get(&ObjectKey {
                namespace: Some(job.namespace.to_string()),
                name: template.to_owned(),
            })
        })
    }

    /// Keeps what the templates `names` claim now for a job that is placed.
    pub(crate) fn keep(&mut self, job: &JobKey, names: &[String]) {
        if self.placed.contains_key(job) {
            return;
        }
        let claimed: BTreeMap<_, _> = names
            .iter()
            .filter_map(|name| Some((name.clone(), self.claimed_by(job, name)?.clone())))
            .collect();
        if !claimed.is_empty() {
            self.placed.insert(job.clone(), claimed);
        }
    }

    /// Drops the kept claims of a job that is queued or gone: its next pods have what its templates claim
    /// then.
    pub(crate) fn drop_placed(&mut self, job: &JobKey) {
        self.placed.remove(job);
    }
}
