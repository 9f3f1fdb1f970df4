//! The OverridePolicies of a job, which make its members run something other than its template.
//!
//! An override either splits a gang before it is placed, with a rule for each cluster, or pins a job that
//! grew after its admission. Each rule of a part sets a mark ([`names::PART_ANNOTATION`]), so that a Work
//! shows whether it applies its part.
//!
//! A second override, where needed, keeps members from deleting a finished job, and a third keeps the pods of a job
//! that is not split off nodes where they failed (`off`).
//!
//! If Services of their own lead to the job's pods (`services.rs`), they are written and deleted together
//! with the override.
//!
//! The binding owns the policies. The override that splits a job stays until its Works are gone: without it
//! Karmada would push the whole job to every cluster. Splits and pins are written so that no write of an
//! earlier term arrives in a later one (`guarded`); the override that keeps a job from being deleted is the
//! same in all terms.

pub(crate) mod guarded;
mod off;
mod plan;
mod services;

use crate::refusal::ServerRefusal;
use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::AdmissionRecord;
use facts::{Attempt, ClusterName, JobKey, Share};
use guarded::OverrideWriter;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::{GroupVersionKind, ObjectMeta};
use kube::{Client, ResourceExt};
pub use off::{keeps_off, off_name};
pub use plan::PartsPlan;
use runtime::Term;
use runtime::client::{CallError, CallFault, with_deadline};
use serde_json::{Value, json};
use services::Services;
use std::fmt;
use std::time::Duration;
use workload::{PartsError, Reach, RenderedPart};

/// Field manager of the policies. It is the same for all components that apply one, so that each apply
/// replaces the one before, and a deletion recognizes the policy as Muster's.
pub const MANAGER: &str = "muster-controller";
/// Deadline of one call.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// A rule of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The cluster that it applies to; `None` for all.
    pub cluster: Option<ClusterName>,
    /// The mark that shows that it was applied.
    pub mark: Option<String>,
    /// Paths (JSON pointers) and the values to set; null removes the field.
    pub fields: Vec<(String, Value)>,
}

impl From<RenderedPart> for Rule {
    fn from(part: RenderedPart) -> Self {
        Self {
            cluster: Some(part.cluster),
            mark: Some(part.mark),
            fields: part.fields,
        }
    }
}

/// Why a gang was not split.
#[derive(Debug, thiserror::Error)]
pub enum OverrideError {
    /// Its template cannot be split as planned.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// Its template is gone, or has changed.
    #[error("its template is gone or has changed")]
    Gone,
    /// An object that its pods need to be found exists and belongs to another manager.
    #[error("{kind} {name}, which its pods need to be found, exists already and is not Muster's")]
    Foreign {
        /// `Service` or `MultiClusterService`.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The control plane does not serve the kind.
    #[error(
        "its control plane serves no {0}, which {{service}} in spec.placement.addresses of its queue needs: Karmada's CRDs and feature gate MultiClusterService"
    )]
    NotServed(String),
    /// The API server refuses an object that the placement needs, and would refuse it again.
    #[error("{0}")]
    Refused(ServerRefusal),
    /// A call to the control plane failed.
    #[error("{what} cannot be {done}: {error}")]
    Call {
        /// The object: `its OverridePolicy`.
        what: &'static str,
        /// The failed operation: `written`.
        done: &'static str,
        /// Its error.
        error: String,
    },
}

/// Writes the policies in one term: one value for each term of a process. Clones share it.
#[derive(Clone)]
pub struct Overrides {
    client: Client,
    writer: OverrideWriter,
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overrides").finish_non_exhaustive()
    }
}

impl Overrides {
    /// Writes to the control plane of `client`, only during `term`.
    #[must_use]
    pub fn new(client: Client, term: &Term) -> Self {
        let writer = OverrideWriter::new(client.clone(), term.clone());
        Self { client, writer }
    }

    /// Splits the job of `binding` as `plan` says. When the call returns, the API server has the policy.
    ///
    /// # Errors
    /// Returns an error if the template is not as planned, or the control plane refuses the policy.
    pub async fn take_apart(
        &self,
        binding: &ResourceBinding,
        plan: &PartsPlan<'_>,
    ) -> Result<(), OverrideError> {
        let attempt = plan.attempt;
        let template = template(&self.client, binding).await?;
        let template = as_admitted(template, binding, attempt);
        let parts = plan.parts(&template)?;
        let services = workload::services(&template, attempt, plan.shares, plan.reach)?;
        // A repair of the parts comes first: a whole job may be running.
        self.apply_parts(binding, parts).await?;
        let own = self.services(binding);
        if attempt.0 > 1 {
            own.clear(Attempt(attempt.0 - 1)).await;
        }
        own.apply(attempt, &services).await
    }

    /// Makes sure that the Services of `attempt` exist as [`Self::take_apart`] wrote them, and returns why
    /// Karmada does not propagate them to the job's clusters, if so.
    ///
    /// # Errors
    /// As [`Self::take_apart`].
    pub async fn find_each_other(
        &self,
        binding: &ResourceBinding,
        attempt: Attempt,
        shares: &[Share],
        reach: &Reach,
    ) -> Result<Option<String>, OverrideError> {
        let template = template(&self.client, binding).await?;
        let services = workload::services(&template, attempt, shares, reach)?;
        let own = self.services(binding);
        own.apply(attempt, &services).await?;
        own.problem(&services).await
    }

    /// Removes what Karmada has left of deleted Services of a namespace.
    ///
    /// # Errors
    /// Returns an error if the control plane does not answer.
    pub async fn sweep_services(&self, namespace: &str) -> Result<(), CallError> {
        services::sweep(&self.client, namespace).await
    }

    fn services<'a>(&self, binding: &'a ResourceBinding) -> Services<'a> {
        Services::of(self.client.clone(), binding)
    }

    /// Resizes the parts of a `plan`, which is resizable, to its shares. Other values that its pods receive stay as
    /// they were placed ([`workload::resized`]). A missing policy is rendered again.
    ///
    /// # Errors
    /// As [`Self::take_apart`].
    pub async fn resize(
        &self,
        binding: &ResourceBinding,
        plan: &PartsPlan<'_>,
    ) -> Result<(), OverrideError> {
        let attempt = plan.attempt;
        let template = template(&self.client, binding).await?;
        let template = as_admitted(template, binding, attempt);
        let parts = plan.parts(&template)?;
        let key = binding.job_key();
        let resized = |there: Option<&DynamicObject>| {
            let placed = there.map_or_else(Vec::new, |policy| rules_of(&policy.data, attempt));
            let rules = parts.iter().cloned().map(|part| {
                let before = placed.iter().find(|(cluster, _)| *cluster == part.cluster);
                Rule::from(match before {
                    Some((_, fields)) => workload::resized(part, fields),
                    None => part,
                })
            });
            Some(policy(&key, binding, &rules.collect::<Vec<_>>()))
        };
        self.write(&key, resized).await
    }

    async fn apply_parts(
        &self,
        binding: &ResourceBinding,
        parts: Vec<RenderedPart>,
    ) -> Result<(), OverrideError> {
        let rules: Vec<Rule> = parts.into_iter().map(Rule::from).collect();
        let key = binding.job_key();
        let policy = policy(&key, binding, &rules);
        self.write(&key, |_| Some(policy.clone())).await
    }

    /// Writes the policy of the job `key`; `made` derives it from the present one.
    async fn write(
        &self,
        key: &JobKey,
        made: impl Fn(Option<&DynamicObject>) -> Option<Value>,
    ) -> Result<(), OverrideError> {
        let name = name(key);
        let turn = self.writer.turn(&key.namespace, &name).await;
        let written = turn.write(made).await;
        written.map_err(|error| failed("its OverridePolicy", "written", &error))
    }

    /// Limits the pods of the job `key`, and their requests, to what `policy` says in all its clusters. If an
    /// override splits the job, that one determines the size of its parts instead.
    ///
    /// # Errors
    /// Returns an error if the control plane refuses the policy.
    pub async fn pin(&self, key: &JobKey, policy: &Value) -> Result<(), CallError> {
        let name = name(key);
        let turn = self.writer.turn(&key.namespace, &name).await;
        let pinned = |there: Option<&DynamicObject>| {
            let in_parts = there.is_some_and(|there| attempt_of(&there.data).is_some());
            (!in_parts).then(|| policy.clone())
        };
        turn.write(pinned).await
    }

    /// Deletes what [`Self::pin`] wrote, but no override that splits the job.
    ///
    /// # Errors
    /// Returns an error if the control plane does not answer.
    pub async fn unpin(&self, key: &JobKey) -> Result<(), CallError> {
        let name = name(key);
        let turn = self.writer.turn(&key.namespace, &name).await;
        turn.delete(|there| attempt_of(&there.data).is_none()).await
    }

    /// Keeps members from deleting the finished job of `binding`, which they would do because of the time in
    /// its template at `path`.
    ///
    /// # Errors
    /// Returns an error if the control plane refuses the policy.
    pub async fn keep_alive(
        &self,
        binding: &ResourceBinding,
        path: &str,
    ) -> Result<(), OverrideError> {
        let key = binding.job_key();
        let policies: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &key.namespace, &resource());
        let (params, policy) = (
            PatchParams::apply(MANAGER).force(),
            keep(&key, binding, path),
        );
        let (name, patch) = (keep_name(&key), Patch::Apply(policy));
        let applied = with_deadline(policies.patch(&name, &params, &patch), LIMIT).await;
        applied.map_err(|error| failed("its OverridePolicy", "written", &error))?;
        Ok(())
    }

    /// Deletes the policies and the Services of the job of `binding`, unless they belong to a later attempt than
    /// `ended`: a new attempt may begin while the end of the previous one is handled.
    ///
    /// # Errors
    /// Returns an error if the control plane does not answer. Only the policy matters: leftover Services do no
    /// harm and go with the binding.
    pub async fn clear(
        &self,
        binding: &ResourceBinding,
        ended: Attempt,
    ) -> Result<(), OverrideError> {
        self.services(binding).clear(ended).await;
        let key = binding.job_key();
        self.clear_policy(&key, name(&key), ended).await?;
        self.clear_policy(&key, off_name(&key), ended).await
    }

    async fn clear_policy(
        &self,
        key: &JobKey,
        name: String,
        ended: Attempt,
    ) -> Result<(), OverrideError> {
        let turn = self.writer.turn(&key.namespace, &name).await;
        let is_over = |there: &DynamicObject| attempt_of(&there.data).is_none_or(|of| of <= ended);
        let removed = turn.delete(is_over).await;
        removed.map_err(|error| failed("its old OverridePolicy", "removed", &error))
    }
}

/// Returns the attempt that a policy splits; `None` for a pin.
fn attempt_of(policy: &Value) -> Option<Attempt> {
    rule_values(policy).filter_map(made_for).max()
}

fn rule_values(policy: &Value) -> impl Iterator<Item = &Value> {
    let rules = policy.pointer("/spec/overrideRules");
    rules.and_then(Value::as_array).into_iter().flatten()
}

/// Returns the attempt for which a rule makes a part.
fn made_for(rule: &Value) -> Option<Attempt> {
    let added = rule.pointer("/overriders/annotationsOverrider/0/value")?;
    workload::attempt_of(added[names::PART_ANNOTATION].as_str()?)
}

/// Returns the fields that a policy replaces for `attempt`, by cluster.
fn rules_of(policy: &Value, attempt: Attempt) -> Vec<(ClusterName, Vec<(String, Value)>)> {
    let rules = rule_values(policy).filter(|rule| made_for(rule) == Some(attempt));
    let read = |rule: &Value| {
        let cluster = rule.pointer("/targetCluster/clusterNames/0")?.as_str()?;
        let fields = rule.pointer("/overriders/plaintext")?.as_array()?.iter();
        let field =
            |field: &Value| Some((field["path"].as_str()?.to_owned(), field["value"].clone()));
        Some((
            ClusterName::new(cluster),
            fields.filter_map(field).collect(),
        ))
    };
    rules.filter_map(read).collect()
}

/// Returns true if an object was applied by [`MANAGER`].
#[must_use]
pub fn is_ours(metadata: &ObjectMeta) -> bool {
    let managers = metadata.managed_fields.iter().flatten();
    let mut applied = managers.filter(|entry| entry.operation.as_deref() == Some("Apply"));
    applied.any(|entry| entry.manager.as_deref() == Some(MANAGER))
}

/// Returns `template` limited to the requests that each pod of `attempt` was admitted with, since later
/// additions were never admitted, and to the retries that earlier attempts have left.
fn as_admitted(template: Value, binding: &ResourceBinding, attempt: Attempt) -> Value {
    let Some(record) = AdmissionRecord::own(binding) else {
        return template;
    };
    let mut template = match record.attempt == attempt {
        true => workload::cap_requests(&template, &record.requests),
        false => template,
    };
    workload::limit_retries(&mut template, record.retries);
    template
}

/// Reads the template of `binding` from the API server.
async fn template(client: &Client, binding: &ResourceBinding) -> Result<Value, OverrideError> {
    let reference = &binding.spec.resource;
    let kind = crds::kubernetes::api_resource(&reference.api_version, &reference.kind);
    let templates: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &reference.namespace, &kind);
    let object = match with_deadline(templates.get(&reference.name), LIMIT).await {
        Ok(object) => object,
        Err(error) if error.fault() == CallFault::NotFound => return Err(OverrideError::Gone),
        Err(error) => return Err(failed("its template", "read", &error)),
    };
    if object.uid().as_deref() != Some(&*reference.uid) {
        return Err(OverrideError::Gone);
    }
    serde_json::to_value(&object).map_err(|error| OverrideError::Call {
        what: "its template",
        done: "read",
        error: error.to_string(),
    })
}

fn failed(what: &'static str, done: &'static str, error: &CallError) -> OverrideError {
    let message = error.message();
    let code = error.code().filter(|_| error.fault() == CallFault::Refused);
    let refusal = code.and_then(|code| ServerRefusal::of(what, code, &message));
    refusal.map_or_else(
        || OverrideError::Call {
            what,
            done,
            error: message,
        },
        OverrideError::Refused,
    )
}

/// Returns the name of a job's policy.
#[must_use]
pub fn name(key: &JobKey) -> String {
    format!("muster-{}", key.name)
}

/// Returns the name of the policy that keeps a job from being deleted in its members. It is a policy of its
/// own because it applies to all attempts. No binding's name ends like this, because bindings end with
/// their kind.
#[must_use]
pub fn keep_name(key: &JobKey) -> String {
    format!("muster-{}.keep", key.name)
}

/// Returns the policy that keeps a job from being deleted in its members.
#[must_use]
pub fn keep(key: &JobKey, binding: &ResourceBinding, path: &str) -> Value {
    let rule = Rule {
        cluster: None,
        mark: None,
        fields: vec![(path.to_owned(), workload::for_ever())],
    };
    let mut policy = policy(key, binding, &[rule]);
    policy["metadata"]["name"] = json!(keep_name(key));
    policy
}

/// Returns the API resource of the policies.
#[must_use]
pub fn resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("policy.karmada.io", "v1alpha1", "OverridePolicy");
    ApiResource::from_gvk_with_plural(&gvk, "overridepolicies")
}

/// Returns the policy of a job: its `rules`, for its template only.
#[must_use]
pub fn policy(key: &JobKey, binding: &ResourceBinding, rules: &[Rule]) -> Value {
    let template = &binding.spec.resource;
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "OverridePolicy",
        "metadata": {
            "name": name(key),
            "namespace": key.namespace,
            "ownerReferences": [{
                "apiVersion": "work.karmada.io/v1alpha2",
                "kind": "ResourceBinding",
                "name": key.name,
                "uid": binding.metadata.uid,
            }],
        },
        "spec": {
            "resourceSelectors": [{
                "apiVersion": template.api_version,
                "kind": template.kind,
                "namespace": template.namespace,
                "name": template.name,
            }],
            "overrideRules": rules.iter().map(rule).collect::<Vec<_>>(),
        },
    })
}

fn rule(rule: &Rule) -> Value {
    // JSON patch `add` sets a field of an object whether it exists or not; it would extend only a list.
    let fields = rule.fields.iter();
    let plaintext: Vec<Value> = fields
        .map(|(path, value)| match value {
            Value::Null => json!({ "path": path, "operator": "remove" }),
            value => json!({ "path": path, "operator": "add", "value": value }),
        })
        .collect();
    let mut overriders = json!({ "plaintext": plaintext });
    if let Some(mark) = &rule.mark {
        overriders["annotationsOverrider"] =
            json!([{ "operator": "add", "value": { (names::PART_ANNOTATION): mark } }]);
    }
    let mut rule_value = json!({ "overriders": overriders });
    if let Some(cluster) = &rule.cluster {
        rule_value["targetCluster"] = json!({ "clusterNames": [cluster] });
    }
    rule_value
}

#[cfg(test)]
mod tests;
