//! Training jobs of Kubeflow: PyTorchJob, TFJob, JAXJob, PaddleJob, XGBoostJob and MPIJob (training-operator
//! v1, mpi-operator v2beta1). They differ in the name of one field, a few defaults, and how their pods find
//! each other if they are split: see [`TrainingJobKind`].

pub(crate) mod jax;
pub(crate) mod mpi;
pub(crate) mod paddle;
mod parts;
pub(crate) mod pytorch;
mod size;
mod stand_in;
pub(crate) mod tensorflow;
pub(crate) mod xgboost;

use super::{KnownKind, PartFields, WorkloadKind, known};
use crate::dependencies::NamedObjects;
use crate::error::SpecError;
use crate::field::Field;
use crate::leading::is_one;
use crate::outcome::{self, Outcome, PodCounts};
use crate::parts::Fields;
use crate::pod_shape::AddedInit;
use crate::rendezvous::Meeting;
use crate::size::{PriorityOf, Size};
use crate::ttl::TtlField;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What differs between the kinds of training jobs.
pub(crate) struct TrainingJobKind {
    api: KnownKind,
    /// The field of the spec with its groups of pods.
    groups: &'static str,
    /// Groups whose end is the end of the job, in lower case.
    leaders: &'static [&'static str],
    /// Replicas of a group without a number, by apiVersion and group.
    default_replicas: fn(&str, &str) -> u32,
    /// True if its operator creates an autoscaler for an elastic policy with metrics.
    autoscaled: bool,
    /// The init container that its operator adds to pods of the template.
    added_init: fn(&Value) -> Option<AddedInit>,
    /// Annotation that names a Secret which its pods need.
    secret: Option<&'static str>,
    split: SplitTrainingJob,
}

/// How a kind of training jobs is split over clusters.
struct SplitTrainingJob {
    fields: PartFields,
    unsplittable: fn(&Value) -> Option<String>,
    meeting: Meeting,
    /// The host of the pod of rank 0, by the template and the name of the job.
    first_host: fn(&Value, &str) -> Option<String>,
    /// The labels of the pod with this index of a role.
    pod_labels: fn(&str, u32) -> BTreeMap<String, String>,
    stand_in_gate: Option<&'static str>,
}

impl TrainingJobKind {
    /// Returns the groups of pods of `template`.
    fn groups<'a>(&self, template: &'a Value) -> Option<&'a Map<String, Value>> {
        template.get("spec")?.get(self.groups)?.as_object()
    }
}

impl WorkloadKind for TrainingJobKind {
    fn api(&self) -> KnownKind {
        self.api
    }

    fn size(&self, template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, SpecError> {
        size::size(self, template)
    }

    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value> {
        let groups = self.groups(template).into_iter().flatten();
        groups
            .filter_map(|(_, group)| group.get("template"))
            .collect()
    }

    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)> {
        let groups = spec.get_mut(self.groups).and_then(Value::as_object_mut);
        let pods = groups.into_iter().flatten().filter_map(|(name, group)| {
            Some((name.to_lowercase(), group.pointer_mut("/template/spec")?))
        });
        pods.collect()
    }

    fn added_init(&self, template: &Value) -> Option<AddedInit> {
        (self.added_init)(template)
    }

    fn part_outcome(&self, status: &Value) -> Outcome {
        if let Some(failed) = outcome::condition(status, "Failed") {
            return outcome::failed_by(failed);
        }
        if outcome::condition(status, "Succeeded").is_some() {
            return Outcome::Succeeded;
        }
        if outcome::condition(status, "Suspended").is_some() {
            return Outcome::Suspended;
        }
        outcome::active_if_reported(status)
    }

    /// training-operator restarts pods with higher exit codes itself.
    fn has_permanent_exit_codes(&self, template: &Value) -> bool {
        let groups = self.groups(template).into_iter().flatten();
        let mut policies = groups.filter_map(|(_, group)| group.get("restartPolicy")?.as_str());
        policies.any(|policy| policy == "ExitCode")
    }

    /// The sum over all groups; the operators do not report pending pods.
    fn counts(&self, status: &Value) -> PodCounts {
        let groups = status.get("replicaStatuses").and_then(Value::as_object);
        let each = groups.into_iter().flat_map(|groups| groups.values());
        each.fold(PodCounts::default(), |sum, group| {
            sum.plus(PodCounts {
                pending: 0,
                running: outcome::number(group, "active"),
                succeeded: outcome::number(group, "succeeded"),
                failed: outcome::number(group, "failed"),
            })
        })
    }

    fn ended_at<'a>(&self, status: &'a Value) -> Option<&'a str> {
        let over = outcome::condition(status, "Succeeded")
            .or_else(|| outcome::condition(status, "Failed"))?;
        Some(match outcome::text(status, "completionTime") {
            "" => outcome::text(over, "lastTransitionTime"),
            at => at,
        })
    }

    fn queue_field(&self) -> Option<&'static str> {
        Some("/spec/runPolicy/schedulingPolicy/queue")
    }

    fn ttl_field(&self) -> Option<TtlField> {
        Some(TtlField {
            path: "/spec/runPolicy/ttlSecondsAfterFinished",
            in_members: true,
            by_control_plane: false,
        })
    }

    fn add_dependencies<'a>(&self, template: &'a Value, named: &mut NamedObjects<'a>) {
        let annotations = template.pointer("/metadata/annotations");
        let secret = self.secret.zip(annotations);
        named.add("Secret", secret.and_then(|(key, all)| all.get(key)));
    }

    /// The groups with their admitted replicas.
    fn cap_to_admitted(
        &self,
        _: &Value,
        capped: &Value,
        admitted: &BTreeMap<String, u32>,
    ) -> Option<Fields> {
        let groups = self.groups(capped)?.iter().filter_map(|(key, group)| {
            let count = admitted.get(&key.to_lowercase()).copied();
            let count = count.filter(|count| *count > 0)?;
            let mut group = group.as_object()?.clone();
            group.insert("replicas".into(), count.into());
            Some((key.clone(), Value::Object(group)))
        });
        let path = format!("/spec/{}", self.groups);
        Some(vec![(path, Value::Object(groups.collect()))])
    }

    fn part_fields(&self) -> Option<PartFields> {
        Some(self.split.fields)
    }

    fn unsplittable(&self, template: &Value) -> Option<String> {
        (self.split.unsplittable)(template)
    }

    fn meeting(&self, _: &Field<'_>) -> Result<Meeting, SpecError> {
        Ok(self.split.meeting)
    }

    /// The one group of one pod that leads.
    fn leading_role(&self, template: &Value) -> Option<String> {
        let groups = self.groups(template)?.iter();
        let mut leading = groups
            .map(|(key, group)| (key.to_lowercase(), group))
            .filter(|(key, _)| self.leaders.contains(&key.as_str()));
        let (key, group) = leading.next().filter(|_| leading.next().is_none())?;
        is_one(group.get("replicas").unwrap_or(&Value::Null), true).then_some(key)
    }

    fn first_host(&self, template: &Value) -> Option<String> {
        let name = template.pointer("/metadata/name")?.as_str()?;
        (self.split.first_host)(template, name)
    }

    /// GenLabels and SetReplicaType of training-operator, defaultLabels of mpi-operator.
    fn gang_labels(&self, template: &Value, role: &str) -> BTreeMap<String, String> {
        let name = template.pointer("/metadata/name").and_then(Value::as_str);
        let mut labels = crate::services::labels(&[
            ("training.kubeflow.org/job-name", name.unwrap_or_default()),
            ("training.kubeflow.org/replica-type", role),
        ]);
        labels.extend(
            (self.split.pod_labels)(role, 0)
                .into_iter()
                .filter(|(key, _)| !key.ends_with("-index")),
        );
        labels
    }

    fn pod_labels(&self, _: &Value, role: &str, index: u32) -> Option<BTreeMap<String, String>> {
        Some((self.split.pod_labels)(role, index))
    }

    fn stand_in_gate(&self) -> Option<&'static str> {
        self.split.stand_in_gate
    }
}

/// Returns the labels of training-operator (SetReplicaType and similar).
fn replica_labels(role: &str, index: u32) -> BTreeMap<String, String> {
    crate::services::labels(&[
        ("training.kubeflow.org/replica-type", role),
        ("training.kubeflow.org/replica-index", &index.to_string()),
    ])
}

#[cfg(test)]
mod tests;
