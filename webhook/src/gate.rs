//! The gate: what happens to a ResourceBinding when Karmada's detector creates it.
//!
//! A managed binding is created with `spec.suspension.scheduling: true`, before any scheduler can see it,
//! and with the finalizer that keeps it until its charge ends. The decision depends on the request alone:
//! no API call, no clock, no memory. The same request gets the same answer, dry runs included.
//!
//! [`decide`] is the one place that decides about a binding at its creation. A decision to admit at
//! creation (asking the engine in the same process) would belong there.

use crate::review::ReviewRequest;
use crds::names::{
    ACCOUNTING_FINALIZER, CLUSTER_POLICY_PERMANENT_ID, POLICY_PERMANENT_ID, SCHEDULER_NAME,
    is_system_namespace,
};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The registration that sent the request; they differ in which bindings are managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateRegistration {
    /// The namespace has the label `muster.io/managed=true`, which the registration's selector requires.
    Namespace,
    /// The binding's policy names Muster as the scheduler.
    Scheduler,
}

/// The decision on a binding.
#[derive(Debug, Clone, PartialEq)]
pub enum GateVerdict {
    /// It is not managed, or needs no change; says why.
    LeftAlone(&'static str),
    /// It is gated; the patch that does so.
    Gated(Vec<PatchOperation>),
}

/// The fields of a binding that the gate reads.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ReviewedBinding {
    metadata: ReviewedMetadata,
    spec: ReviewedSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ReviewedMetadata {
    labels: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReviewedSpec {
    resource: ReviewedTemplate,
    scheduler_name: Option<String>,
    suspension: Option<Map<String, Value>>,
    replicas: Option<i64>,
    replica_requirements: Option<IgnoredAny>,
    components: Option<Vec<IgnoredAny>>,
    required_by: Option<Vec<IgnoredAny>>,
    placement: Option<IgnoredAny>,
}

/// The template of a binding.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReviewedTemplate {
    api_version: String,
    kind: String,
}

impl ReviewedBinding {
    /// Returns `apiVersion/Kind` of its template, for logs.
    #[must_use]
    pub fn template(&self) -> String {
        let ReviewedTemplate { api_version, kind } = &self.spec.resource;
        format!("{api_version}/{kind}")
    }
}

/// Decides about the binding that `request` creates.
#[must_use]
pub fn decide(entry: GateRegistration, request: &ReviewRequest<ReviewedBinding>) -> GateVerdict {
    let Some(binding) = request.object.as_ref().filter(|_| creates_binding(request)) else {
        return GateVerdict::LeftAlone("not the creation of a ResourceBinding");
    };
    if is_system_namespace(&request.namespace) {
        return GateVerdict::LeftAlone("system namespace");
    }
    if entry == GateRegistration::Scheduler && !binding.names_our_scheduler() {
        return GateVerdict::LeftAlone("another scheduler");
    }
    if binding.follows_another() {
        return GateVerdict::LeftAlone("follows another binding");
    }
    if !binding.is_workload() {
        return GateVerdict::LeftAlone("not a workload");
    }
    match binding.missing() {
        patch if patch.is_empty() => GateVerdict::LeftAlone("gated already"),
        patch => GateVerdict::Gated(patch),
    }
}

fn creates_binding(request: &ReviewRequest<ReviewedBinding>) -> bool {
    request.operation == "CREATE"
        && request
            .sub_resource
            .as_deref()
            .unwrap_or_default()
            .is_empty()
        && request.kind.group == "work.karmada.io"
        && request.kind.kind == "ResourceBinding"
}

impl ReviewedBinding {
    fn names_our_scheduler(&self) -> bool {
        self.spec.scheduler_name.as_deref() == Some(SCHEDULER_NAME)
    }

    /// Returns true if it was created because another binding needs its template (`propagateDeps`): no policy
    /// has claimed it, or other bindings require it and it has no placement of its own.
    fn follows_another(&self) -> bool {
        let claimed = self.metadata.labels.as_ref().is_some_and(|labels| {
            labels.contains_key(POLICY_PERMANENT_ID)
                || labels.contains_key(CLUSTER_POLICY_PERMANENT_ID)
        });
        let required = self.spec.required_by.as_ref();
        !claimed || (required.is_some_and(|by| !by.is_empty()) && self.spec.placement.is_none())
    }

    /// Returns true if its template starts pods, as far as its kind or Karmada's interpreter says.
    fn is_workload(&self) -> bool {
        let ReviewedTemplate { api_version, kind } = &self.spec.resource;
        workload::may_start_pods(api_version, kind)
            || self.spec.replicas.is_some_and(|replicas| replicas > 0)
            || self.spec.replica_requirements.is_some()
            || self
                .spec
                .components
                .as_ref()
                .is_some_and(|list| !list.is_empty())
    }

    /// Returns the operations that gate it. Each changes one field, so that fields of other managers stay.
    fn missing(&self) -> Vec<PatchOperation> {
        let suspension = match &self.spec.suspension {
            None => Some(add(["spec", "suspension"], json!({"scheduling": true}))),
            Some(fields) if fields.get("scheduling") == Some(&Value::Bool(true)) => None,
            Some(_) => Some(add(["spec", "suspension", "scheduling"], json!(true))),
        };
        let finalizer = match &self.metadata.finalizers {
            None => Some(add(
                ["metadata", "finalizers"],
                json!([ACCOUNTING_FINALIZER]),
            )),
            Some(list) if list.iter().any(|name| name == ACCOUNTING_FINALIZER) => None,
            Some(_) => Some(add(
                ["metadata", "finalizers", "-"],
                json!(ACCOUNTING_FINALIZER),
            )),
        };
        suspension.into_iter().chain(finalizer).collect()
    }
}

fn add<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: PointerBuf::from_tokens(path),
        value,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use insta::assert_json_snapshot;

    /// A binding as Karmada's detector creates it for a Volcano Job, changed by `edit`.
    fn create(edit: impl FnOnce(&mut Value)) -> ReviewRequest<ReviewedBinding> {
        let mut object = json!({
            "metadata": {
                "labels": {POLICY_PERMANENT_ID: "p-1"},
                "finalizers": ["karmada.io/binding-controller"],
            },
            "spec": {
                "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"},
                "schedulerName": "muster",
                "placement": {"clusterAffinity": {}},
                "conflictResolution": "Abort",
            },
        });
        edit(&mut object);
        request(&object, "CREATE", "team-a")
    }

    fn request(object: &Value, operation: &str, namespace: &str) -> ReviewRequest<ReviewedBinding> {
        serde_json::from_value(json!({
            "uid": "u", "operation": operation, "namespace": namespace, "name": "train-job",
            "kind": {"group": "work.karmada.io", "version": "v1alpha2", "kind": "ResourceBinding"},
            "object": object,
        }))
        .unwrap()
    }

    fn patch(
        entry: GateRegistration,
        request: &ReviewRequest<ReviewedBinding>,
    ) -> Vec<PatchOperation> {
        match decide(entry, request) {
            GateVerdict::Gated(patch) => patch,
            GateVerdict::LeftAlone(why) => panic!("left alone: {why}"),
        }
    }

    #[test]
    fn a_new_binding_is_gated() {
        let request = create(|_| {});
        assert_json_snapshot!(patch(GateRegistration::Scheduler, &request), @r#"
        [
          {
            "op": "add",
            "path": "/spec/suspension",
            "value": {
              "scheduling": true
            }
          },
          {
            "op": "add",
            "path": "/metadata/finalizers/-",
            "value": "muster.io/accounting"
          }
        ]
        "#);
    }

    #[test]
    fn other_suspensions_stay() {
        let mut object = json!({
            "metadata": {"labels": {CLUSTER_POLICY_PERMANENT_ID: "p-1"}},
            "spec": {
                "resource": {"apiVersion": "batch/v1", "kind": "Job"},
                "suspension": {"dispatching": true, "scheduling": false, "dispatchingOnClusters": {"clusterNames": ["m1"]}},
            },
        });
        let operations = patch(
            GateRegistration::Namespace,
            &request(&object, "CREATE", "team-a"),
        );
        json_patch::patch(&mut object, &operations).unwrap();
        assert_json_snapshot!(object["spec"]["suspension"], @r#"
        {
          "dispatching": true,
          "dispatchingOnClusters": {
            "clusterNames": [
              "m1"
            ]
          },
          "scheduling": true
        }
        "#);
        assert_eq!(
            object["metadata"]["finalizers"],
            json!([ACCOUNTING_FINALIZER])
        );
        let again = decide(
            GateRegistration::Namespace,
            &request(&object, "CREATE", "team-a"),
        );
        assert_eq!(again, GateVerdict::LeftAlone("gated already"));
    }

    #[test]
    fn only_what_is_missing_is_added() {
        let half = create(|object| object["spec"]["suspension"] = json!({"scheduling": true}));
        assert_eq!(patch(GateRegistration::Scheduler, &half).len(), 1);
        let null = create(|object| object["spec"]["suspension"] = Value::Null);
        assert_eq!(patch(GateRegistration::Scheduler, &null).len(), 2);
    }

    #[test]
    fn the_same_request_gets_the_same_answer() {
        let request = create(|_| {});
        let dry = ReviewRequest {
            dry_run: Some(true),
            ..request.clone()
        };
        let answer = decide(GateRegistration::Scheduler, &request);
        assert_eq!(decide(GateRegistration::Scheduler, &request), answer);
        assert_eq!(decide(GateRegistration::Scheduler, &dry), answer);
    }

    #[test]
    fn a_wrong_scheduler_is_gated_only_in_a_managed_namespace() {
        let other = create(|object| object["spec"]["schedulerName"] = json!("default-scheduler"));
        assert_eq!(
            decide(GateRegistration::Scheduler, &other),
            GateVerdict::LeftAlone("another scheduler")
        );
        assert!(matches!(
            decide(GateRegistration::Namespace, &other),
            GateVerdict::Gated(_)
        ));
    }

    #[test]
    fn a_binding_that_is_no_managed_workload_is_left_alone() {
        let follower = create(|object| object["metadata"]["labels"] = Value::Null);
        let required = create(|object| {
            object["spec"]["requiredBy"] = json!([{"namespace": "team-a", "name": "x"}]);
            object["spec"].as_object_mut().unwrap().remove("placement");
        });
        let config = create(|object| {
            object["spec"]["resource"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        });
        let system = ReviewRequest {
            namespace: "karmada-system".to_owned(),
            ..create(|_| {})
        };
        let update = ReviewRequest {
            operation: "UPDATE".to_owned(),
            ..create(|_| {})
        };
        for (request, why) in [
            (follower, "follows another binding"),
            (required, "follows another binding"),
            (config, "not a workload"),
            (system, "system namespace"),
            (update, "not the creation of a ResourceBinding"),
        ] {
            for entry in [GateRegistration::Namespace, GateRegistration::Scheduler] {
                assert_eq!(decide(entry, &request), GateVerdict::LeftAlone(why));
            }
        }
    }

    #[test]
    fn an_unknown_kind_is_a_workload_if_its_binding_says_so() {
        for (field, value) in [
            ("replicas", json!(2)),
            (
                "replicaRequirements",
                json!({"resourceRequest": {"cpu": "1"}}),
            ),
            ("components", json!([{"name": "a", "replicas": 1}])),
        ] {
            let request = create(|object| {
                object["spec"]["resource"] =
                    json!({"apiVersion": "example.io/v1", "kind": "Thing"});
                object["spec"][field] = value;
            });
            assert!(
                matches!(
                    decide(GateRegistration::Scheduler, &request),
                    GateVerdict::Gated(_)
                ),
                "{field}"
            );
        }
    }
}
