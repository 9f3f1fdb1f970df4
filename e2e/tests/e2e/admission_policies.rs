//! The admission policies that refuse tenants' writes: Muster restores them, and admits nothing
//! without them.

use e2e::harness::kinds::{
    ADMISSION_POLICY, ADMISSION_POLICY_BINDING, CLUSTER_ROLE_BINDING, EVENT, ObjectKind, WORK,
};
use e2e::harness::muster::{ProcessRole, metric};
use e2e::harness::objects::Objects;
use e2e::harness::wait::eventually;
use serde_json::json;

use crate::case::{A_WHILE, Case, SOON};
use crate::story::managed_alone;

/// Weakens and deletes policies, then lets the probe pass. Muster restores the policies, and stops
/// admissions while the probe is not refused.
async fn weakened(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    let tenant = case.tenant().await?;
    let karmada = case.karmada();
    let before = restored(case).await?;
    let spec = async |kind: ObjectKind, name: &str| {
        let found = karmada.get(kind, None, name).await;
        let found = found.map_err(|error| error.to_string())?;
        Ok::<_, String>(found.map(|object| object["spec"].clone()))
    };
    let whole = spec(ADMISSION_POLICY, "muster-bindings").await;
    let whole = whole.map_err(anyhow::Error::msg)?;
    let open = json!({"spec": {"matchConditions": [{"name": "open", "expression": "false"}]}});
    karmada
        .merge(ADMISSION_POLICY, None, "muster-bindings", &open)
        .await?;
    karmada
        .delete(ADMISSION_POLICY_BINDING, None, "muster-works")
        .await?;
    eventually(SOON, "the policies are restored", async || {
        let policy = spec(ADMISSION_POLICY, "muster-bindings").await?;
        let binding = spec(ADMISSION_POLICY_BINDING, "muster-works").await?;
        match policy == whole && binding.is_some() {
            true => Ok(()),
            false => Err(format!("{policy:?} {binding:?}")),
        }
    })
    .await?;
    eventually(SOON, "both are counted", async || {
        let counted = restored(case).await.map_err(|error| error.to_string())? - before;
        match counted >= 2.0 {
            true => Ok(()),
            false => Err(counted.to_string()),
        }
    })
    .await?;
    said(case, "AdmissionPoliciesRestored").await?;

    // The probe's account bypasses the policies, as if they refused nobody.
    let binding = json!({
        "metadata": {"name": "tenants-open"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "muster-admission-bypass"},
        "subjects": [{"kind": "ServiceAccount", "name": "muster-probe", "namespace": "muster-system"}],
    });
    case.cluster_object(CLUSTER_ROLE_BINDING, &binding).await?;
    // Muster probes a policy as soon as it has restored it.
    karmada
        .delete(ADMISSION_POLICY_BINDING, None, "muster-works")
        .await?;
    said(case, "AdmissionPoliciesNotInForce").await?;
    let job = case.short_gang("train", 1, 8, 1).batch();
    let job = case.submit_by(&tenant.objects, &job).await?;
    let message = case.waits(&job, &["NotEvaluated"]).await?;
    assert!(message.contains("admission policies"), "{message}");
    case.stays_unplaced(&job, A_WHILE).await?;
    assert_eq!(enforced(case).await?, Some(0.0));
    karmada
        .delete(CLUSTER_ROLE_BINDING, None, "tenants-open")
        .await?;
    case.finished(&job, "Succeeded").await?;
    assert_eq!(enforced(case).await?, Some(1.0));
    Ok(())
}

/// Checks that accounts of Karmada outside system:masters pass by their RBAC rights and their
/// names.
async fn accounts(case: &Case) -> anyhow::Result<()> {
    let plane = case.plane;
    let told = plane
        .muster
        .install_again(&plane.testbed, &["--karmada-account=jane"]);
    let error = told.await.unwrap_err().to_string();
    let says = "--karmada-account jane: by RBAC it may not patch resourcebindings.work.karmada.io";
    assert!(error.contains(says), "{error}");
    let user = "system:karmada:accounts-component";
    let binding = json!({
        "metadata": {"name": "accounts-component"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "karmada-edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    case.cluster_object(CLUSTER_ROLE_BINDING, &binding).await?;
    let component = Objects::new(plane.testbed.karmada().client_as(user, &[]).await?);
    let work = json!({
        "metadata": {"name": "accounts", "namespace": case.name},
        "spec": {"workload": {"manifests": []}},
    });
    let refused = eventually(
        SOON,
        "RBAC lets the component write",
        async || match component.create(WORK, &work).await {
            Err(error) if error.to_string().contains("muster-works") => Ok(error.to_string()),
            other => Err(format!("{other:?}")),
        },
    )
    .await?;
    assert!(refused.contains(user), "{refused}");
    plane.muster.install_again(&plane.testbed, &[]).await?;
    component.create(WORK, &work).await?;
    Ok(())
}

async fn restored(case: &Case) -> anyhow::Result<f64> {
    let metrics = case
        .plane
        .muster
        .metrics(&case.plane.testbed, ProcessRole::All);
    let metrics = metrics.await?;
    Ok(metric(&metrics, "muster_admission_policies_restored_total").unwrap_or_default())
}

async fn enforced(case: &Case) -> anyhow::Result<Option<f64>> {
    let metrics = case
        .plane
        .muster
        .metrics(&case.plane.testbed, ProcessRole::All);
    Ok(metric(
        &metrics.await?,
        "muster_admission_policies_enforced",
    ))
}

/// Waits for an event with that reason on the Lease of Muster's replicas.
async fn said(case: &Case, reason: &str) -> anyhow::Result<()> {
    eventually(SOON, &format!("an event {reason}"), async || {
        let events = case.karmada().list(EVENT, Some("muster-system")).await;
        let events = events.map_err(|error| error.to_string())?;
        match events.iter().any(|event| event["reason"] == reason) {
            true => Ok(()),
            false => Err(format!("none among {}", events.len())),
        }
    })
    .await
}

#[test]
fn karmadas_own_accounts_are_found_at_install_and_a_wrong_name_is_refused() {
    managed_alone("accounts", accounts);
}

#[test]
fn admission_policies_are_restored_and_nothing_is_released_without_them() {
    managed_alone("weakened", weakened);
}
