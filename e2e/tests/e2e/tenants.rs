//! The actions that an ordinary tenant may take, with the roles of Kubernetes and Karmada, and those
//! that are refused (`muster-system`'s admission policies, `deploy/admission-policies.yaml`).
//!
//! Every known attempt to exceed a quota, and the story that tries it:
//!
//! | attempt | story |
//! |---|---|
//! | write, create or delete a ResourceBinding; forge its status, finalizers, owners, record or claim | here |
//! | write a Work or PodGroup, in the tenant's namespace or a member's | here |
//! | a PropagationPolicy with another scheduler, `preserveResourcesOnDeletion`, `Overwrite` or `purgeMode: Never`; a change of the policy `muster`; the same fields on the template | here |
//! | delete or change a policy, so that the binding loses its claim | `outlive::a_job_whose_policy_goes_stays_charged` |
//! | remove the marks from the binding while nothing refuses it | `outlive::a_job_that_loses_its_marks_stays_charged` |
//! | an OverridePolicy or ClusterOverridePolicy of the number, requests or nodes of pods | here |
//! | policies that are older than Muster, or that an administrator wrote | `unsafe_policies::policies_that_nothing_refused_are_reported` |
//! | scale up after the admission: a Deployment or StatefulSet by `scale`, a Job's parallelism, a CronFederatedHPA (a FederatedHPA writes the same subresource) | `tenant_growth::what_a_tenant_scales_stays_within_the_quota_of_its_queue` |
//! | raise requests after the admission | `past_quota::what_runs_cannot_ask_for_more_in_each_pod` |
//! | a bare Pod | `tenant_growth::what_a_tenant_scales_...` (queued as any job) |
//! | objects that create pods in a member: a CronJob, a HorizontalPodAutoscaler, kinds of unknown size | `tenant_growth::a_tenant_has_nothing_in_members_that_makes_pods_by_itself`, here |
//! | use another tenant's queue, or forge the annotation that permits it | `rights::a_closed_queue_takes_jobs_of_who_has_the_right_to_use_it` |
//! | change the queue after the admission; a PriorityClass that the queue does not allow | `tenant_growth::a_tenant_moves_no_charge_and_takes_no_priority_that_its_queue_does_not_allow` |
//! | delete a child queue | `past_quota::a_deleted_queue_holds_its_parents_quota_while_its_job_runs` (an operator's right) |
//! | change the queue, or the namespace's label | here |
//! | in any namespace: an override that makes another object of one without pods; a claim of another's policy; a binding with another's id; a job in another user's name; a job in a queue without a managed namespace | `tenant_reach::what_a_tenant_writes_elsewhere_reaches_no_member_and_no_queue` |
//! | propagate RBAC objects; a PriorityClass of the system; reviews that are too large for the webhook; the namespace's policy deleted; its label removed by who may patch it | `tenant_reach::a_tenant_gives_no_rights_...` |
//! | use a member directly | none: its pods count as used capacity, and no queue is charged (docs/operators/security.md) |

use anyhow::ensure;
use e2e::harness::kinds::{
    BINDING, NAMESPACE, OVERRIDE_POLICY, ObjectKind, POD_GROUP, PROPAGATION_POLICY, QUEUE, WORK,
};
use e2e::harness::tenant::Tenant;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{Case, SOON, brief};
use crate::job::Job;
use crate::story::managed;

/// One attempt of a tenant: its description, its result, and words of the refusal.
pub(crate) struct Try<'a> {
    pub(crate) what: &'a str,
    pub(crate) outcome: Result<(), kube::Error>,
    pub(crate) says: &'a [&'a str],
}

impl Try<'_> {
    pub(crate) fn ensure_refused(self) -> anyhow::Result<()> {
        let what = self.what;
        let Err(error) = self.outcome else {
            anyhow::bail!("a tenant could: {what}");
        };
        let message = error.to_string();
        for words in self.says {
            ensure!(message.contains(words), "{what}: {message}");
        }
        println!("REFUSED {what}: {message}");
        Ok(())
    }
}

/// The words of a policy's refusal.
pub(crate) const DOOR: &str = "ValidatingAdmissionPolicy 'muster-";
/// The word of RBAC's refusal.
pub(crate) const RBAC: &str = "cannot";

/// The attempts of one tenant.
pub(crate) struct Tries<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) job: &'a Job,
}

impl Tries<'_> {
    pub(crate) async fn create(&self, kind: ObjectKind, object: Value) -> Result<(), kube::Error> {
        self.tenant.objects.create(kind, &object).await.map(drop)
    }

    pub(crate) async fn merge(
        &self,
        kind: ObjectKind,
        name: &str,
        patch: Value,
    ) -> Result<(), kube::Error> {
        let namespace = Some(self.tenant.namespace.as_str());
        let merged = self.tenant.objects.merge(kind, namespace, name, &patch);
        merged.await.map(drop)
    }

    pub(crate) async fn delete(&self, kind: ObjectKind, name: &str) -> Result<(), kube::Error> {
        let namespace = Some(self.tenant.namespace.as_str());
        self.tenant.objects.delete(kind, namespace, name).await
    }

    pub(crate) fn named(&self, name: &str, spec: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": self.tenant.namespace}, "spec": spec})
    }

    /// Tries to forge the binding of a running job.
    async fn bindings(&self) -> anyhow::Result<()> {
        let name = self.job.binding();
        let fields = [
            (
                "open the gate",
                "spec.suspension",
                json!({"spec": {"suspension": {"scheduling": null}}}),
            ),
            (
                "place it twice",
                "spec.clusters",
                json!({"spec": {"clusters": [{"name": "member1", "replicas": 2}, {"name": "member2", "replicas": 2}]}}),
            ),
            (
                "give it to another scheduler",
                "spec.schedulerName",
                json!({"spec": {"schedulerName": "default-scheduler"}}),
            ),
            (
                "ask for more replicas",
                "spec.replicas",
                json!({"spec": {"replicas": 64}}),
            ),
            (
                "ask for nothing",
                "spec.replicaRequirements",
                json!({"spec": {"replicaRequirements": {"resourceRequest": {"cpu": "1m"}}}}),
            ),
            (
                "have it carried along with another",
                "spec.requiredBy",
                json!({"spec": {"requiredBy": [{"namespace": self.tenant.namespace, "name": "other", "clusters": [{"name": "member2", "replicas": 8}]}]}}),
            ),
            (
                "ask for other components",
                "spec.components",
                json!({"spec": {"components": [{"name": "main", "replicas": 8}]}}),
            ),
            (
                "leave a cluster and its pods",
                "spec.gracefulEvictionTasks",
                json!({"spec": {"gracefulEvictionTasks": [{"fromCluster": "member1", "purgeMode": "Never", "reason": "r", "producer": "p"}]}}),
            ),
            (
                "fail over and leave pods behind",
                "spec.failover",
                json!({"spec": {"failover": {"application": {"decisionConditions": {"tolerationSeconds": 1}, "purgeMode": "Never"}}}}),
            ),
            (
                "keep its pods when it goes",
                "spec.preserveResourcesOnDeletion",
                json!({"spec": {"preserveResourcesOnDeletion": true}}),
            ),
            (
                "take over what is there",
                "spec.conflictResolution",
                json!({"spec": {"conflictResolution": "Overwrite"}}),
            ),
            (
                "have it placed again",
                "spec.rescheduleTriggeredAt",
                json!({"spec": {"rescheduleTriggeredAt": "2030-01-01T00:00:00Z"}}),
            ),
            (
                "go before others in Karmada's queue",
                "spec.schedulePriority",
                json!({"spec": {"schedulePriority": {"priority": 1000}}}),
            ),
            (
                "be placed elsewhere",
                "spec.placement",
                json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["member2"]}}}}),
            ),
            (
                "be of another template",
                "spec.resource",
                json!({"spec": {"resource": {"name": "other"}}}),
            ),
            (
                "carry no dependencies along",
                "spec.propagateDeps",
                json!({"spec": {"propagateDeps": false}}),
            ),
            (
                "be kept apart from others",
                "spec.workloadAffinityGroups",
                json!({"spec": {"workloadAffinityGroups": {"affinityGroup": "g"}}}),
            ),
            (
                "take the finalizers off",
                "metadata.finalizers",
                json!({"metadata": {"finalizers": null}}),
            ),
            (
                "drop its owner",
                "metadata.ownerReferences",
                json!({"metadata": {"ownerReferences": null}}),
            ),
            (
                "wipe the admission record",
                "muster.io/admission",
                json!({"metadata": {"annotations": {"muster.io/admission": null}}}),
            ),
            (
                "forge the admission record",
                "muster.io/admission",
                json!({"metadata": {"annotations": {"muster.io/admission": "{}"}}}),
            ),
            (
                "take the policy's claim off",
                "propagationpolicy.karmada.io/permanent-id",
                json!({"metadata": {"labels": {"propagationpolicy.karmada.io/permanent-id": null}}}),
            ),
        ];
        for (what, says, patch) in fields {
            let outcome = self.merge(BINDING, &name, patch).await;
            let says = &[DOOR, says, &self.tenant.user];
            Try {
                what,
                outcome,
                says,
            }
            .ensure_refused()?;
        }
        let status = json!({"status": {"aggregatedStatus": [{"clusterName": "member1", "health": "Healthy"}]}});
        let namespace = Some(self.tenant.namespace.as_str());
        let forged = self
            .tenant
            .objects
            .merge_status(BINDING, namespace, &name, &status);
        Try {
            what: "forge the status, as if the job had ended",
            outcome: forged.await.map(drop),
            says: &[DOOR, "status is written by Karmada"],
        }
        .ensure_refused()?;
        Try {
            what: "delete the binding",
            outcome: self.delete(BINDING, &name).await,
            says: &[DOOR, "delete the job instead"],
        }
        .ensure_refused()?;
        let resource = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "forged", "namespace": self.tenant.namespace});
        let forged =
            json!({"resource": resource, "clusters": [{"name": "member1", "replicas": 8}]});
        Try {
            what: "make a binding",
            outcome: self.create(BINDING, self.named("forged-job", forged)).await,
            says: &[DOOR, "create the job instead"],
        }
        .ensure_refused()
    }

    /// Tries to write Works and PodGroups, which Karmada and Muster derive from bindings.
    async fn outputs(&self) -> anyhow::Result<()> {
        let work = json!({"workload": {"manifests": []}});
        Try {
            what: "make a Work in the own namespace",
            outcome: self.create(WORK, self.named("forged", work.clone())).await,
            says: &[DOOR, "Works are written by Karmada"],
        }
        .ensure_refused()?;
        let elsewhere = json!({"metadata": {"name": "forged", "namespace": "karmada-es-member1"}, "spec": work});
        Try {
            what: "make a Work for a member",
            outcome: self.create(WORK, elsewhere).await,
            says: &[RBAC],
        }
        .ensure_refused()?;
        let name = self.job.binding();
        Try {
            what: "change the PodGroup",
            outcome: self
                .merge(
                    POD_GROUP,
                    &name,
                    json!({"spec": {"minMember": 1, "queue": "default"}}),
                )
                .await,
            says: &[DOOR, "PodGroups are written by Muster"],
        }
        .ensure_refused()?;
        Try {
            what: "delete the PodGroup",
            outcome: self.delete(POD_GROUP, &name).await,
            says: &[DOOR, "PodGroups are written by Muster"],
        }
        .ensure_refused()
    }

    /// Tries what only RBAC prevents.
    async fn of_operators(&self) -> anyhow::Result<()> {
        let more = json!({"spec": {"capability": {"nvidia.com/gpu": "64"}}});
        let name = &self.tenant.namespace;
        let queue = self.tenant.objects.merge(QUEUE, None, name, &more);
        Try {
            what: "raise the queue's capability",
            outcome: queue.await.map(drop),
            says: &[RBAC],
        }
        .ensure_refused()?;
        let unmanaged = json!({"metadata": {"labels": {"muster.io/managed": null}}});
        let namespace = self.tenant.objects.merge(NAMESPACE, None, name, &unmanaged);
        Try {
            what: "take the namespace out of Muster's hands",
            outcome: namespace.await.map(drop),
            says: &[RBAC],
        }
        .ensure_refused()
    }
}

/// Every forgery is refused, with the correct way in the message. The actions that a tenant may
/// take still work, and so do those of Kubernetes' controllers for it.
async fn forgeries(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let tenant = case.tenant().await?;
    let gang = case.gang("runs", 1, 8);
    let job = case.submit_by(&tenant.objects, &gang.batch()).await?;
    case.running(&job).await?;
    let user = &job.template["metadata"]["annotations"]["muster.io/user"];
    assert_eq!(*user, *tenant.user, "the webhook saw who submitted");
    let tries = Tries {
        tenant: &tenant,
        job: &job,
    };
    tries.bindings().await?;
    tries.outputs().await?;
    tries.policies().await?;
    tries.templates().await?;
    tries.overrides().await?;
    tries.of_operators().await?;
    case.running(&job).await?;

    rightful(case, &tenant, &job).await?;
    // The garbage collector deletes binding and PodGroup, with rights of its own.
    tenant
        .objects
        .delete(job.kind, Some(&case.name), &job.name)
        .await?;
    case.gone(&job).await?;
    eventually(
        SOON,
        "the PodGroup goes with its job",
        async || match case.pod_group(&job).await? {
            None => Ok(()),
            Some(group) => Err(brief(&group["metadata"])),
        },
    )
    .await?;
    // So does the namespace controller, with a pending job.
    let last = case.gang("last", 2, 8).batch();
    let last = case.submit_by(&tenant.objects, &last).await?;
    case.waits(&last, &["ExceedsCapability", "WaitingForQuota"])
        .await?;
    case.karmada().delete(NAMESPACE, None, &case.name).await?;
    eventually(SOON, "the namespace goes", async || {
        let found = case.karmada().get(NAMESPACE, None, &case.name).await;
        match found.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(namespace) => Err(brief(&namespace["status"])),
        }
    })
    .await
}

/// Checks the actions that a tenant needs.
async fn rightful(case: &Case, tenant: &Tenant, job: &Job) -> anyhow::Result<()> {
    let namespace = Some(case.name.as_str());
    let note = json!({"metadata": {"annotations": {"example.com/note": "mine"}}});
    tenant
        .objects
        .merge(BINDING, namespace, &job.binding(), &note)
        .await?;
    let policy = json!({
        "metadata": {"name": "config", "namespace": case.name},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"}],
            "placement": {"clusterAffinity": {"clusterNames": ["member1"]}},
        },
    });
    tenant.objects.create(PROPAGATION_POLICY, &policy).await?;
    tenant
        .objects
        .delete(PROPAGATION_POLICY, namespace, "config")
        .await?;
    let image = json!({"imageOverrider": [{"component": "Registry", "operator": "replace", "value": "mirror.example.com"}]});
    let mirror = json!({
        "metadata": {"name": "mirror", "namespace": case.name},
        "spec": {
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job", "name": "none"}],
            "overrideRules": [{"overriders": image}],
        },
    });
    tenant.objects.create(OVERRIDE_POLICY, &mirror).await?;
    Ok(())
}

#[test]
fn a_tenant_with_karmadas_own_role_forges_nothing_and_works_as_before() {
    managed("tenant", forgeries);
}
