//! The fields that a tenant may not set in PropagationPolicies and OverridePolicies, nor the
//! equivalents on templates: part of the story in `tenants.rs`.

use e2e::harness::kinds::{CLUSTER_OVERRIDE_POLICY, OVERRIDE_POLICY, PROPAGATION_POLICY};
use serde_json::{Value, json};

use crate::tenants::{DOOR, RBAC, Tries, Try};

impl Tries<'_> {
    /// Tries policies that would run pods which no queue is charged for.
    pub(crate) async fn policies(&self) -> anyhow::Result<()> {
        let jobs = json!([{"apiVersion": "batch/v1", "kind": "Job"}]);
        let specs = [
            (
                "keep the pods of a deleted job",
                "spec.preserveResourcesOnDeletion is true: it has to be false",
                json!({"schedulerName": "muster", "preserveResourcesOnDeletion": true}),
            ),
            (
                "take over what runs in a member",
                "spec.conflictResolution is Overwrite: it has to be Abort",
                json!({"schedulerName": "muster", "conflictResolution": "Overwrite"}),
            ),
            (
                "have Karmada place jobs",
                "spec.schedulerName is default-scheduler: it has to be muster",
                json!({"schedulerName": "default-scheduler"}),
            ),
            (
                "have Karmada place jobs, unsaid",
                "spec.schedulerName is default-scheduler: it has to be muster",
                json!({}),
            ),
            (
                "leave pods where a job failed",
                "spec.failover.application.purgeMode is Never",
                json!({"schedulerName": "muster", "failover": {"application": {"decisionConditions": {"tolerationSeconds": 60}, "purgeMode": "Never"}}}),
            ),
            (
                "scale in the members",
                "use a FederatedHPA",
                json!({"schedulerName": "muster", "resourceSelectors": [{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}]}),
            ),
        ];
        for (what, says, mut spec) in specs {
            if spec["resourceSelectors"].is_null() {
                spec["resourceSelectors"] = jobs.clone();
            }
            spec["placement"] = json!({});
            let outcome = self
                .create(PROPAGATION_POLICY, self.named("own", spec))
                .await;
            let says = &[DOOR, says];
            Try {
                what,
                outcome,
                says,
            }
            .ensure_refused()?;
        }
        let outcome = self.merge(
            PROPAGATION_POLICY,
            "muster",
            json!({"spec": {"priority": 1}}),
        );
        Try {
            what: "change the namespace's policy",
            outcome: outcome.await,
            says: &[DOOR, "kept by Muster in every managed namespace"],
        }
        .ensure_refused()
    }

    /// Tries annotations and labels that Karmada reads on the objects themselves.
    pub(crate) async fn templates(&self) -> anyhow::Result<()> {
        let annotation =
            json!({"annotations": {"work.karmada.io/conflict-resolution": "overwrite"}});
        let label = json!({"labels": {"resourcetemplate.karmada.io/retain-replicas": "true"}});
        for (what, says, metadata) in [
            ("take over what is there", "conflict-resolution", annotation),
            ("keep what it gave up", "retain-replicas", label),
        ] {
            let patch = json!({"metadata": metadata});
            let outcome = self.merge(self.job.kind, &self.job.name, patch).await;
            let says = &[DOOR, says];
            Try {
                what,
                outcome,
                says,
            }
            .ensure_refused()?;
        }
        Ok(())
    }

    /// Tries overrides, which Karmada applies after the charge.
    pub(crate) async fn overrides(&self) -> anyhow::Result<()> {
        let plaintext = |path: &str, value: Value| json!({"plaintext": [{"path": path, "operator": "replace", "value": value}]});
        let container = "/spec/template/spec/containers/0";
        let gpus = format!("{container}/resources/requests/nvidia.com~1gpu");
        let overriders = [
            (
                "raise the number of pods",
                "/spec/parallelism",
                plaintext("/spec/parallelism", json!(8)),
            ),
            (
                "replace the spec",
                "the path /spec may",
                plaintext("/spec", json!({})),
            ),
            (
                "raise the requests",
                gpus.as_str(),
                plaintext(&gpus, json!("8")),
            ),
            (
                "replace a container",
                container,
                plaintext(container, json!({"name": "main"})),
            ),
            (
                "go to other nodes",
                "nodeSelector",
                plaintext("/spec/template/spec/nodeSelector", json!({})),
            ),
            (
                "raise the requests as if they were an image",
                gpus.as_str(),
                json!({"imageOverrider": [{"predicate": {"path": gpus}, "component": "Repository", "operator": "replace", "value": "8"}]}),
            ),
            (
                "raise the requests as if they were JSON",
                gpus.as_str(),
                json!({"fieldOverrider": [{"fieldPath": gpus, "json": [{"subPath": "", "operator": "replace", "value": "8"}]}]}),
            ),
            (
                "name another queue in the member",
                "volcano.sh/queue-name",
                json!({"labelsOverrider": [{"operator": "add", "value": {"volcano.sh/queue-name": "other"}}]}),
            ),
        ];
        for (what, says, overriders) in overriders {
            for selectors in [
                json!([{"apiVersion": "batch/v1", "kind": "Job"}]),
                json!(null),
            ] {
                let spec = json!({"resourceSelectors": selectors, "overrideRules": [{"overriders": overriders}]});
                let outcome = self.create(OVERRIDE_POLICY, self.named("own", spec)).await;
                let says = &[DOOR, says];
                Try {
                    what,
                    outcome,
                    says,
                }
                .ensure_refused()?;
            }
        }
        let image = json!({"imageOverrider": [{"component": "Registry", "operator": "replace", "value": "mirror.example.com"}]});
        let spec = json!({"overrideRules": [{"overriders": image}]});
        Try {
            what: "take the place of an override of Muster's",
            outcome: self
                .create(
                    OVERRIDE_POLICY,
                    self.named(&format!("muster-{}", self.job.binding()), spec.clone()),
                )
                .await,
            says: &[DOOR, "take another name"],
        }
        .ensure_refused()?;
        Try {
            what: "override in all namespaces",
            outcome: self
                .create(
                    CLUSTER_OVERRIDE_POLICY,
                    json!({"metadata": {"name": "tenants"}, "spec": spec}),
                )
                .await,
            says: &[RBAC],
        }
        .ensure_refused()
    }
}
