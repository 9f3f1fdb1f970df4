//! Effects on one job: its placement, what it needs in members, its overrides and Services, its size.
//!
//! Each runs in a task of its own. Those whose outcome matters answer by an [`Input`].

use crate::effects::Effects;
use crate::ingest::input::Input;
use crate::ingest::template_watches::api_resource;
use crate::mirror::template_key;
use crate::reconcile::action::{BoundJob, PlacedParts};
use binding_writer::overrides::{self, Rule};
use crds::karmada::ResourceBinding;
use engine::{Attempt, ClusterName, JobKey, QueueName};
use kube::api::{Api, DeleteParams, DynamicObject, Preconditions};
use scheduler::PlacementRequest;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use workload::AdmittedRequests;

/// Reading an object takes no longer.
const READ_DEADLINE: Duration = Duration::from_secs(10);
/// Deleting takes no longer.
const DELETE_DEADLINE: Duration = Duration::from_secs(10);
/// When nothing of a job's Services should be left, after its Works are gone.
const SWEPT_AFTER: Duration = Duration::from_secs(20);

/// What placed jobs need in members: in which clusters, of which kind, queue and PriorityClasses.
type MemberNeeds = (Vec<ClusterName>, String, QueueName, BTreeSet<String>);

impl Effects {
    /// Has the scheduler of this process check a placement and prepare its members.
    pub(super) fn prepare_placement(&self, key: JobKey, request: PlacementRequest) {
        let Some(scheduler) = self.scheduler.clone() else {
            return; // without one the record hands the plan over
        };
        let (attempt, inputs) = (request.admission.attempt, self.inputs.clone());
        runtime::task::spawn(async move {
            let result = Box::new(scheduler.prepare(request).await);
            // The owner task is gone only when the process ends.
            let _ = inputs
                .send(Input::Prepared {
                    key,
                    attempt,
                    result,
                })
                .await;
        });
    }

    /// Looks for what a placed job needs in its members, and makes what is not there.
    pub(super) fn renew_members(&self, key: JobKey, (clusters, api, queue, classes): MemberNeeds) {
        let Some(scheduler) = self.scheduler.clone() else {
            return;
        };
        runtime::task::spawn(async move {
            if let Err(error) = scheduler.renew(&clusters, &api, &queue, &classes).await {
                tracing::warn!(job = %key, error = error.message, "its members may lack what it needs; trying again");
            }
        });
    }

    /// Writes the override of a job in parts again.
    pub(super) fn write_override(&self, job: BoundJob, parts: PlacedParts, resizable: bool) {
        let (overrides, inputs) = (self.overrides.clone(), self.inputs.clone());
        let BoundJob { key, binding } = job;
        let PlacedParts {
            attempt,
            shares,
            reach,
        } = parts;
        runtime::task::spawn(async move {
            let result = if resizable {
                overrides.resize(&binding, attempt, &shares, &reach).await
            } else {
                let written = overrides.take_apart(&binding, attempt, &shares, &reach, false);
                written.await
            };
            // The owner task is gone only when the process ends.
            let _ = inputs
                .send(Input::PartsWritten {
                    key,
                    attempt,
                    result,
                })
                .await;
        });
    }

    /// Removes the override of an attempt that is over.
    pub(super) fn clear_override(&self, job: BoundJob, attempt: Attempt) {
        let overrides = self.overrides.clone();
        runtime::task::spawn(async move {
            // The next attempt writes its own over it, or removes it first.
            if let Err(error) = overrides.clear(&job.binding, attempt).await {
                tracing::warn!(job = %job.key, %error, "the override of an attempt that is over stays for now");
            }
        });
    }

    /// Sees to the Services by which the pods of a job find each other.
    pub(super) fn check_services(&self, job: BoundJob, parts: PlacedParts) {
        let (overrides, inputs) = (self.overrides.clone(), self.inputs.clone());
        let BoundJob { key, binding } = job;
        let PlacedParts {
            attempt,
            shares,
            reach,
        } = parts;
        runtime::task::spawn(async move {
            let seen = overrides.find_each_other(&binding, attempt, &shares, &reach);
            let result = seen.await;
            // The owner task is gone only when the process ends.
            let _ = inputs
                .send(Input::ServicesSeen {
                    key,
                    attempt,
                    result,
                })
                .await;
        });
    }

    /// Removes what Karmada may leave of the Services of jobs in a namespace.
    pub(super) fn sweep_services(&self, namespace: String) {
        let overrides = self.overrides.clone();
        runtime::task::spawn(async move {
            tokio::time::sleep(SWEPT_AFTER).await;
            if let Err(error) = overrides.sweep_services(&namespace).await {
                tracing::warn!(namespace, %error, "Services that are gone may have left Works");
            }
        });
    }

    /// Asks a member whether it has taken up that a job is smaller.
    pub(super) fn confirm_size(
        &self,
        job: BoundJob,
        attempt: Attempt,
        cluster: ClusterName,
        held: Option<u32>,
    ) {
        let (members, inputs) = (self.members.clone(), self.inputs.clone());
        let BoundJob { key, binding } = job;
        let checks = Arc::clone(&self.checks);
        runtime::task::spawn(async move {
            // Never closed.
            let _slot = checks.acquire().await;
            let small = match members.client(&cluster) {
                Some(client) => is_small(client, &binding, &cluster, held).await,
                None => Err("it is not connected".to_owned()),
            };
            let answer = Input::SizeChecked {
                key,
                attempt,
                cluster,
                small,
            };
            // The owner task is gone only when the process ends.
            let _ = inputs.send(answer).await;
        });
    }

    /// Applies the override that pins a job, rendered from its template as it is now.
    pub(super) fn pin_job(
        &self,
        job: BoundJob,
        pods: BTreeMap<String, u32>,
        requests: AdmittedRequests,
    ) {
        let (client, objects) = (self.client.clone(), self.objects.clone());
        let BoundJob { key, binding } = job;
        runtime::task::spawn(async move {
            let template = template_key(&binding);
            let api: Api<DynamicObject> =
                Api::namespaced_with(client, &template.namespace, &api_resource(&template.kind));
            match tokio::time::timeout(READ_DEADLINE, api.get(&template.name)).await {
                Ok(Ok(object)) => {
                    let value = serde_json::to_value(&object).unwrap_or_default();
                    match workload::cap_to_admitted(
                        &template.kind.api_version,
                        &template.kind.kind,
                        &value,
                        &pods,
                        &requests,
                    ) {
                        Some(fields) => {
                            let policy = overrides::policy(&key, &binding, &[everywhere(fields)]);
                            objects.pin(&key, policy);
                        }
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

    /// Deletes the template of a job, in this version: one that was changed is looked at again.
    pub(super) fn delete_template(&self, job: BoundJob, resource_version: String) {
        let template = template_key(&job.binding);
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: Some(job.binding.spec.resource.uid.clone()),
            resource_version: Some(resource_version),
        });
        let (client, key) = (self.client.clone(), job.key);
        let checks = Arc::clone(&self.checks);
        runtime::task::spawn(async move {
            // Never closed.
            let _slot = checks.acquire().await;
            let api: Api<DynamicObject> =
                Api::namespaced_with(client, &template.namespace, &api_resource(&template.kind));
            let deleted = api.delete(&template.name, &params);
            match tokio::time::timeout(DELETE_DEADLINE, deleted).await {
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

/// The rule that pins a job wherever it is.
fn everywhere(fields: Vec<(String, serde_json::Value)>) -> Rule {
    Rule {
        cluster: None,
        mark: None,
        fields,
    }
}

/// Whether the object in the member is no larger than its override makes it (`held`), or else
/// than its binding says, and its controller has seen that.
async fn is_small(
    client: kube::Client,
    binding: &ResourceBinding,
    cluster: &ClusterName,
    held: Option<u32>,
) -> Result<bool, String> {
    let template = template_key(binding);
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, &template.namespace, &api_resource(&template.kind));
    let read = api.get_opt(&template.name);
    let object = match tokio::time::timeout(READ_DEADLINE, read).await {
        Ok(Ok(object)) => object,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer in {} s", READ_DEADLINE.as_secs())),
    };
    let mut clusters = binding.spec.clusters.iter();
    let placed = clusters.find(|placed| placed.name == cluster.as_str());
    let replicas = placed.and_then(|placed| placed.replicas).unwrap_or(0);
    let most = held.map_or(i64::from(replicas), i64::from);
    let Some(object) = object else {
        return Ok(placed.is_none());
    };
    let generation = object.metadata.generation;
    Ok(has_taken(&object.data, generation, most))
}

/// Whether an object of a kind that is resized runs at most `most` pods by now, by its
/// spec and by what its controller says.
fn has_taken(object: &Value, generation: Option<i64>, most: i64) -> bool {
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64);
    let told = number("/spec/parallelism")
        .or_else(|| number("/spec/replicas"))
        .or_else(|| of_tasks(object));
    let observed = number("/status/observedGeneration");
    // Jobs do not say what they have observed; they count what they keep active, Volcano's by
    // how far their pods are.
    let by_phase = ["/status/pending", "/status/running", "/status/terminating"];
    let by_phase = by_phase.iter().filter_map(|phase| number(phase)).sum();
    let runs = number("/status/active")
        .or_else(|| number("/status/replicas"))
        .unwrap_or(by_phase);
    told.is_some_and(|told| told <= most)
        && runs <= most
        && observed.is_none_or(|observed| Some(observed) >= generation)
}

/// Pods that the tasks of a Volcano Job are to have.
fn of_tasks(object: &Value) -> Option<i64> {
    let tasks = object.pointer("/spec/tasks")?.as_array()?;
    Some(
        tasks
            .iter()
            .filter_map(|task| task["replicas"].as_i64())
            .sum(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_size_is_taken_once_told_observed_and_reached() {
        let taken = |object: Value, generation| has_taken(&object, Some(generation), 2);
        for (object, want) in [
            (
                json!({"spec": {"replicas": 2}, "status": {"observedGeneration": 3, "replicas": 2}}),
                true,
            ),
            (
                json!({"spec": {"replicas": 4}, "status": {"observedGeneration": 3, "replicas": 2}}),
                false,
            ),
            (
                json!({"spec": {"replicas": 2}, "status": {"observedGeneration": 2, "replicas": 2}}),
                false,
            ),
            (
                json!({"spec": {"replicas": 2}, "status": {"observedGeneration": 3, "replicas": 3}}),
                false,
            ),
            (
                json!({"spec": {"parallelism": 2, "completions": 9}, "status": {"active": 2}}),
                true,
            ),
            (
                json!({"spec": {"parallelism": 2}, "status": {"active": 4}}),
                false,
            ),
            (
                json!({
                    "spec": {"tasks": [{"replicas": 1}, {"replicas": 1}]},
                    "status": {"running": 1, "pending": 1, "succeeded": 4},
                }),
                true,
            ),
            (
                json!({"spec": {"tasks": [{"replicas": 2}]}, "status": {"running": 2, "terminating": 1}}),
                false,
            ),
            (
                json!({"spec": {"tasks": [{"replicas": 3}]}, "status": {}}),
                false,
            ),
            (json!({"spec": {}, "status": {}}), false),
        ] {
            assert_eq!(taken(object.clone(), 3), want, "{object}");
        }
    }
}
