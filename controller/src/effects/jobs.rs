//! Effects on one job: its placement, its needs in members, its overrides and Services, its size.
//!
//! Each runs in a task of its own. If the result matters, the task sends it as an [`Input`].

use crate::effects::Effects;
use crate::messages::action::{BoundJob, OverrideShape, PlacedParts};
use crate::messages::input::Input;
use crate::messages::job_answer::JobAnswer;
use crate::mirror::template_key;
use binding_writer::overrides::{self, PartsPlan, Rule};
use crds::karmada::ResourceBinding;
use engine::{Attempt, ClusterName, JobKey, QueueName};
use kube::api::{Api, DeleteParams, DynamicObject, Preconditions};
use runtime::client::{CallFault, with_deadline};
use scheduler::PlacementRequest;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use workload::AdmittedRequests;

/// Deadline of reading an object.
const READ_DEADLINE: Duration = Duration::from_secs(10);
/// Deadline of deleting an object.
const DELETE_DEADLINE: Duration = Duration::from_secs(10);
/// Time after which nothing of a job's Services should be left, once its Works are gone.
const SWEPT_AFTER: Duration = Duration::from_secs(20);

/// The needs of placed jobs in members: clusters, kind, queue and PriorityClasses.
type MemberNeeds = (Vec<ClusterName>, String, QueueName, BTreeSet<String>);

impl Effects {
    /// Lets the scheduler of this process check a placement and prepare its members.
    pub(super) fn prepare_placement(&self, key: JobKey, request: PlacementRequest) {
        let Some(scheduler) = self.scheduler.clone() else {
            return; // without one the record hands the plan over
        };
        let (attempt, inputs) = (request.admission.attempt, self.inputs.clone());
        runtime::task::spawn(async move {
            let result = Box::new(scheduler.prepare(request).await);
            // The owner task ends only with the process.
            let _ = inputs
                .send(Input::Answer(key, JobAnswer::Prepared { attempt, result }))
                .await;
        });
    }

    /// Checks what a placed job needs in its members, and creates what is missing.
    pub(super) fn renew_members(&self, key: JobKey, (clusters, api, queue, classes): MemberNeeds) {
        let Some(scheduler) = self.scheduler.clone() else {
            return;
        };
        runtime::task::spawn(async move {
            if let Err(error) = scheduler.renew(&clusters, &api, &queue, &classes).await {
                tracing::warn!(job = %key, error = error.message, "cannot check that its members have its Queue and PriorityClasses; trying again");
            }
        });
    }

    /// Writes the override of a job again that its Works have to show.
    pub(super) fn write_override(&self, job: BoundJob, parts: PlacedParts, how: OverrideShape) {
        let (overrides, inputs) = (self.overrides.clone(), self.inputs.clone());
        let BoundJob { key, binding } = job;
        let PlacedParts {
            attempt,
            shares,
            reach,
        } = parts;
        runtime::task::spawn(async move {
            let plan = PartsPlan {
                attempt,
                shares: &shares,
                reach: &reach,
                resizable: how.resizable,
                avoided: &how.avoided,
            };
            let result = match (how.whole, how.resizable) {
                (true, _) => overrides.keep_off(&binding, &plan).await,
                (false, true) => overrides.resize(&binding, &plan).await,
                (false, false) => overrides.take_apart(&binding, &plan).await,
            };
            // The owner task ends only with the process.
            let _ = inputs
                .send(Input::Answer(
                    key,
                    JobAnswer::PartsWritten { attempt, result },
                ))
                .await;
        });
    }

    /// Deletes the override of an attempt that is over.
    pub(super) fn clear_override(&self, job: BoundJob, attempt: Attempt) {
        let overrides = self.overrides.clone();
        runtime::task::spawn(async move {
            // The next attempt replaces it or deletes it first.
            if let Err(error) = overrides.clear(&job.binding, attempt).await {
                tracing::warn!(job = %job.key, %error, "the override of an attempt that is over stays for now");
            }
        });
    }

    /// Checks and writes the Services by which the pods of a job find each other.
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
            // The owner task ends only with the process.
            let _ = inputs
                .send(Input::Answer(
                    key,
                    JobAnswer::ServicesSeen { attempt, result },
                ))
                .await;
        });
    }

    /// Deletes what Karmada may leave of the Services of jobs in a namespace.
    pub(super) fn sweep_services(&self, namespace: String) {
        let overrides = self.overrides.clone();
        runtime::task::spawn(async move {
            tokio::time::sleep(SWEPT_AFTER).await;
            if let Err(error) = overrides.sweep_services(&namespace).await {
                tracing::warn!(namespace, %error, "deleted Services may have left Works");
            }
        });
    }

    /// Asks a member whether it has applied the smaller size of a job.
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
            // The semaphore is never closed.
            let _slot = checks.acquire().await;
            let small = match members.client(&cluster) {
                Some(client) => is_small(client, &binding, &cluster, held).await,
                None => Err("it is not connected".to_owned()),
            };
            let answer = JobAnswer::SizeChecked {
                attempt,
                cluster,
                small,
            };
            // The owner task ends only with the process.
            let _ = inputs.send(Input::Answer(key, answer)).await;
        });
    }

    /// Applies the override that pins a job, rendered from its present template.
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
                Api::namespaced_with(client, &template.namespace, &template.kind.api_resource());
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

    /// Deletes the template of a job, in this version; if it has changed, the job is reconciled again.
    pub(super) fn delete_template(&self, job: BoundJob, resource_version: String) {
        let template = template_key(&job.binding);
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: Some(job.binding.spec.resource.uid.clone()),
            resource_version: Some(resource_version),
        });
        let (client, key) = (self.client.clone(), job.key);
        let checks = Arc::clone(&self.checks);
        runtime::task::spawn(async move {
            // The semaphore is never closed.
            let _slot = checks.acquire().await;
            let api: Api<DynamicObject> =
                Api::namespaced_with(client, &template.namespace, &template.kind.api_resource());
            let deleted = api.delete(&template.name, &params);
            match tokio::time::timeout(DELETE_DEADLINE, deleted).await {
                Ok(Ok(_)) => tracing::info!(job = %key, "deleted after ttlSecondsAfterFinished"),
                Ok(Err(error)) => {
                    tracing::warn!(job = %key, %error, "cannot delete it after ttlSecondsAfterFinished; trying again");
                }
                Err(_) => {
                    tracing::warn!(job = %key, "no answer to its deletion after ttlSecondsAfterFinished; trying again");
                }
            }
        });
    }

    /// Deletes the binding of a job if the API server says that its object is gone.
    pub(super) fn delete_orphan(&self, job: BoundJob) {
        let BoundJob { key, binding } = job;
        let template = template_key(&binding);
        let client = self.client.clone();
        runtime::task::spawn(async move {
            let kind = template.kind.api_resource();
            let objects: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), &template.namespace, &kind);
            match with_deadline(objects.get_metadata(&template.name), READ_DEADLINE).await {
                Ok(found) if found.metadata.uid.as_ref() == Some(&binding.spec.resource.uid) => {
                    return;
                }
                // Another object has its name, and gets a binding of its own once this one is gone.
                Ok(_) => {}
                Err(error) if error.fault() == CallFault::NotFound => {}
                Err(error) => {
                    let error = error.message();
                    tracing::warn!(job = %key, error, "cannot read the object of a binding that it does not own");
                    return;
                }
            }
            let params = DeleteParams::background().preconditions(Preconditions {
                uid: binding.metadata.uid.clone(),
                resource_version: None,
            });
            let bindings: Api<ResourceBinding> = Api::namespaced(client, &key.namespace);
            match with_deadline(bindings.delete(&key.name, &params), DELETE_DEADLINE).await {
                Ok(_) => {
                    tracing::info!(job = %key, "its object was deleted without its binding; deleted that too")
                }
                Err(error) if error.is_missing() => {}
                Err(error) => {
                    let error = error.message();
                    tracing::warn!(job = %key, error, "the binding of a deleted object cannot be deleted; trying again");
                }
            }
        });
    }
}

/// Returns the rule that pins a job in all clusters.
fn everywhere(fields: Vec<(String, serde_json::Value)>) -> Rule {
    Rule {
        cluster: None,
        mark: None,
        fields,
    }
}

/// Returns true if the object in the member is no larger than its override (`held`) or else its binding
/// says, and its controller has seen that.
async fn is_small(
    client: kube::Client,
    binding: &ResourceBinding,
    cluster: &ClusterName,
    held: Option<u32>,
) -> Result<bool, String> {
    let template = template_key(binding);
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, &template.namespace, &template.kind.api_resource());
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
    Ok(has_applied_size(&object.data, generation, most))
}

/// Returns true if an object of a resizable kind runs at most `most` pods, by its spec and by what its
/// controller reports.
fn has_applied_size(object: &Value, generation: Option<i64>, most: i64) -> bool {
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64);
    let specified = number("/spec/parallelism")
        .or_else(|| number("/spec/replicas"))
        .or_else(|| of_tasks(object));
    let observed = number("/status/observedGeneration");
    // Jobs have no observedGeneration; they count active pods, and Volcano Jobs count pods by phase.
    let by_phase = ["/status/pending", "/status/running", "/status/terminating"];
    let by_phase = by_phase.iter().filter_map(|phase| number(phase)).sum();
    let runs = number("/status/active")
        .or_else(|| number("/status/replicas"))
        .unwrap_or(by_phase);
    specified.is_some_and(|specified| specified <= most)
        && runs <= most
        && observed.is_none_or(|observed| Some(observed) >= generation)
}

/// Returns the specified number of pods of all tasks of a Volcano Job.
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
    fn a_size_counts_once_it_is_set_observed_and_reached() {
        let taken = |object: Value, generation| has_applied_size(&object, Some(generation), 2);
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
