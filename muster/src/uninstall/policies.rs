//! Replaces the propagation policies that name Muster's scheduler.
//!
//! Karmada refuses to change `spec.schedulerName`, so each gets a successor with the same settings and
//! another name, which exists before the policy is deleted. Karmada then gives what the policy selected to
//! the successor.

use super::bindings::KARMADAS;
use super::objects::{CHANGED, Remover};
use crds::names::{DEFAULT_POLICY, SCHEDULER_NAME};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::{GroupVersionKind, ObjectMeta};
use runtime::client::{CallFault, with_deadline};
use serde_json::json;
use std::time::Duration;

/// Name of the successor of the policy that Muster maintains in managed namespaces.
pub(super) const OF_DEFAULT: &str = "jobs-default-scheduler";
/// How long Karmada may take to release what a deleted policy selects.
const RELEASED: Duration = Duration::from_secs(120);

/// Replaces every policy, in all namespaces and of the cluster.
pub(super) async fn replace_all(remover: &Remover, with_successors: bool) -> anyhow::Result<()> {
    for (kind, plural) in [
        ("PropagationPolicy", "propagationpolicies"),
        ("ClusterPropagationPolicy", "clusterpropagationpolicies"),
    ] {
        let gvk = GroupVersionKind::gvk("policy.karmada.io", "v1alpha1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let policies = remover.list_dynamic(&resource, "").await?;
        let ours = |policy: &&DynamicObject| policy.data["spec"]["schedulerName"] == SCHEDULER_NAME;
        for policy in policies.iter().filter(ours) {
            let is_kept =
                policy.metadata.namespace.is_some() && policy.name_any() == DEFAULT_POLICY;
            if with_successors || !is_kept {
                make(remover, &resource, &successor(policy)).await?;
            }
            remover.remove(&resource, policy).await?;
        }
        for policy in policies.iter().filter(ours) {
            gone(remover, &resource, policy).await?;
        }
    }
    Ok(())
}

/// Returns the policy that takes the place of `policy`.
pub(super) fn successor(policy: &DynamicObject) -> DynamicObject {
    let name = policy.name_any();
    let is_default = policy.metadata.namespace.is_some() && name == DEFAULT_POLICY;
    let mut spec = policy.data["spec"].clone();
    spec["schedulerName"] = json!(KARMADAS);
    let ours = |key: &str| key.starts_with("muster.io/") || key.contains("karmada.io/");
    let mut metadata = ObjectMeta {
        name: Some(match is_default {
            true => OF_DEFAULT.to_owned(),
            false => format!("{name}-{KARMADAS}"),
        }),
        namespace: policy.metadata.namespace.clone(),
        labels: policy.metadata.labels.clone(),
        annotations: policy.metadata.annotations.clone(),
        ..ObjectMeta::default()
    };
    for map in [&mut metadata.labels, &mut metadata.annotations]
        .into_iter()
        .flatten()
    {
        map.retain(|key, _| {
            !ours(key) && key != "kubectl.kubernetes.io/last-applied-configuration"
        });
    }
    if is_default {
        // Without replicas to divide, Karmada would run each job once in every cluster.
        spec["placement"]["spreadConstraints"] =
            json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]);
    }
    DynamicObject {
        types: policy.types.clone(),
        metadata,
        data: json!({ "spec": spec }),
    }
}

async fn make(
    remover: &Remover,
    resource: &ApiResource,
    object: &DynamicObject,
) -> anyhow::Result<()> {
    let api = remover.api(resource, object.metadata.namespace.as_deref());
    let line = format!("{} created", Remover::named(resource, object));
    remover.note(&line);
    if remover.is_dry() {
        return Ok(());
    }
    match with_deadline(api.create(&PostParams::default(), object), CHANGED).await {
        Err(error) if error.fault() == CallFault::Conflict => Ok(()),
        Err(error) => anyhow::bail!("{line}: {}", error.message()),
        Ok(_) => Ok(()),
    }
}

/// Waits until Karmada has released what a policy selected, and the policy is gone.
async fn gone(
    remover: &Remover,
    resource: &ApiResource,
    policy: &DynamicObject,
) -> anyhow::Result<()> {
    if remover.is_dry() {
        return Ok(());
    }
    let name = policy.name_any();
    let api: Api<DynamicObject> = remover.api(resource, policy.metadata.namespace.as_deref());
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < RELEASED {
        match with_deadline(api.get_opt(&name), CHANGED).await? {
            Some(seen) if seen.metadata.uid == policy.metadata.uid => {
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            _ => return Ok(()),
        }
    }
    anyhow::bail!(
        "{} is still there after {RELEASED:?}: does karmada-controller-manager run? It removes the policy's finalizer. \
         Then run `muster uninstall` again",
        Remover::named(resource, policy)
    )
}
