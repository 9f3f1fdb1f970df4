//! Growth after release that nobody granted.
//!
//! Kinds whose replicas Karmada dispatches are held by it; an edit of the others goes straight
//! to the members. The webhook refuses such edits; what slips through while it is away is
//! charged at once by the engine, and pinned back here: an override per job that sets the
//! replicas to what was admitted, kept until the attempt is over.

use crate::core::Core;
use crate::fact::Job;
use crate::notes::Note;
use crate::reconcile::Look;
use crate::standing::own_record;
use crate::template_watches::api_resource;
use crate::world::template_key;
use crds::record::AdmissionRecord;
use engine::facts::{Held, JobFact};
use engine::{JobKey, Reason};
use kube::api::{Api, DynamicObject};
use scheduler::overrides::{self, Overrides, Rule};
use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Reading a template takes no longer.
const READ_DEADLINE: Duration = Duration::from_secs(10);

impl Core {
    /// Pins a released job of a kind that Karmada cannot hold, if it has grown.
    pub(crate) fn pin_growth(&mut self, look: &Look<'_>, job: &Job, record: &AdmissionRecord) {
        if job.fact.demand.held != Held::Not || record.adopted {
            return;
        }
        let admitted = admitted_pods(record);
        let grown: Vec<String> = job
            .fact
            .demand
            .roles
            .iter()
            .filter(|role| role.count > admitted.get(&role.name).copied().unwrap_or(0))
            .map(|role| {
                format!(
                    "{} {} -> {}",
                    role.name,
                    admitted.get(&role.name).unwrap_or(&0),
                    role.count
                )
            })
            .collect();
        if grown.is_empty() {
            return match record.parts {
                // Its parts are pinned by the override that made them.
                Some(_) => _ = self.track(look.key).unpin(),
                // A pin would hold up in the members what is charged no more.
                None => self.unpin(look.key),
            };
        }
        if !self.track(look.key).pin(&grown) {
            return;
        }
        let message = format!(
            "its template grew after release ({}): the surplus is charged and its members keep what was admitted; \
             to run it larger, delete it and submit it anew",
            grown.join(", ")
        );
        self.note(look, Note::warning(Reason::GrowthHeld, "Pin", message));
        if record.parts.is_some() {
            return;
        }
        let (client, ensurer) = (self.client.clone(), self.publisher.ensurer.clone());
        let (key, binding) = (look.key.clone(), look.binding.clone());
        runtime::task::spawn(async move {
            let template = template_key(&binding);
            let api: Api<DynamicObject> =
                Api::namespaced_with(client, &template.namespace, &api_resource(&template.kind));
            match tokio::time::timeout(READ_DEADLINE, api.get(&template.name)).await {
                Ok(Ok(object)) => {
                    let value = serde_json::to_value(&object).unwrap_or_default();
                    match workload::pinned(
                        &template.kind.api_version,
                        &template.kind.kind,
                        &value,
                        &admitted,
                    ) {
                        Some(fields) => ensurer.apply(
                            &overrides::resource(),
                            Some(&key.namespace),
                            &overrides::name(&key),
                            overrides::policy(&key, &binding, &[everywhere(fields)]),
                        ),
                        None => {
                            tracing::warn!(job = %key, "its kind cannot be pinned; the surplus stays charged")
                        }
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(job = %key, %error, "cannot read the template to pin it")
                }
                Err(_) => tracing::warn!(job = %key, "cannot read the template to pin it in time"),
            }
        });
    }

    /// Removes the override of an attempt that is over, also one made before a restart: a pin,
    /// or what took the job apart, whatever its template or its queue says by now.
    pub(crate) fn drop_override(&mut self, key: &JobKey) {
        let pinned = self.track(key).unpin();
        let binding = self.world.bindings.get(key).cloned();
        let record = binding.as_deref().and_then(own_record);
        if let (Some(binding), Some(record)) = (binding, record.filter(|r| r.parts.is_some())) {
            let overrides = Overrides::new(self.client.clone());
            let key = key.clone();
            runtime::task::spawn(async move {
                // The next attempt writes its own over it, or removes it first.
                if let Err(error) = overrides.clear(&binding, record.attempt).await {
                    tracing::warn!(job = %key, %error, "the override of an attempt that is over stays for now");
                }
            });
            return;
        }
        let held = |fact: &JobFact| fact.demand.held == Held::ByReplicas;
        if pinned || !self.told.get(key).is_some_and(held) {
            self.delete_override(key);
        }
    }

    fn unpin(&mut self, key: &JobKey) {
        if self.track(key).unpin() {
            self.delete_override(key);
        }
    }

    fn delete_override(&self, key: &JobKey) {
        self.publisher.ensurer.delete(
            &overrides::resource(),
            Some(&key.namespace),
            &overrides::name(key),
        );
    }
}

/// The rule that pins a job wherever it is.
fn everywhere(fields: Vec<(String, serde_json::Value)>) -> Rule {
    Rule {
        cluster: None,
        mark: None,
        fields,
    }
}

/// Pods per role that were admitted, over all clusters.
fn admitted_pods(record: &AdmissionRecord) -> BTreeMap<String, u32> {
    let mut pods = BTreeMap::new();
    for role in record.clusters.iter().flat_map(|share| &share.pods) {
        *pods.entry(role.role.clone()).or_default() += role.count;
    }
    pods
}
