//! Removes the OverridePolicies and Services of jobs that are not placed. Those of a placed job stay, or its
//! members would get the whole job each; its binding owns them, so they end with it.

use super::objects::Remover;
use crds::names::JOB_LABEL;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use std::collections::BTreeSet;

const PREFIX: &str = "muster-";

/// Removes those whose binding is not among `placed` (UIDs).
pub(super) async fn remove(remover: &Remover, placed: &BTreeSet<String>) -> anyhow::Result<()> {
    let of_placed = |metadata: &ObjectMeta| owner(metadata).is_some_and(|uid| placed.contains(uid));
    let overrides = binding_writer::overrides::resource();
    let ours = |object: &DynamicObject| {
        let metadata = &object.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        name.starts_with(PREFIX) && owner(metadata).is_some() && !of_placed(metadata)
    };
    remover.remove_where(&overrides, "", ours).await?;
    let gvk = GroupVersionKind::gvk("networking.karmada.io", "v1alpha1", "MultiClusterService");
    let exported = ApiResource::from_gvk_with_plural(&gvk, "multiclusterservices");
    let services =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Service"), "services");
    for resource in [exported, services] {
        let not_placed = |object: &DynamicObject| !of_placed(&object.metadata);
        remover
            .remove_where(&resource, JOB_LABEL, not_placed)
            .await?;
    }
    Ok(())
}

/// Returns the UID of the binding that owns an object.
fn owner(metadata: &ObjectMeta) -> Option<&str> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners
        .find(|owner| owner.kind == "ResourceBinding")
        .map(|owner| owner.uid.as_str())
}
