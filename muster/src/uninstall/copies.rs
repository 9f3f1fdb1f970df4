//! Removes the queues and priority classes that Muster created in a member, besides those in use: Volcano would
//! not schedule the next pod of a job without its queue, and Kubernetes refuses one without its priority class.

use super::objects::Remover;
use kube::ResourceExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use std::collections::BTreeSet;

/// The label of what Muster created.
const COPIES: &str = "app.kubernetes.io/managed-by=muster";

/// Deletes them, and returns those that stay because jobs use them.
pub(super) async fn remove(remover: &Remover) -> anyhow::Result<Vec<String>> {
    let groups = used(
        remover,
        "scheduling.volcano.sh",
        "v1beta1",
        "PodGroup",
        |group| {
            let over = group.data["status"]["phase"] == "Completed";
            (!over).then(|| group.data["spec"]["queue"].as_str())?
        },
    );
    let queues = groups.await?;
    let pods = used(remover, "", "v1", "Pod", |pod| {
        let phase = pod.data["status"]["phase"].as_str().unwrap_or_default();
        let over = ["Succeeded", "Failed"].contains(&phase);
        (!over).then(|| pod.data["spec"]["priorityClassName"].as_str())?
    });
    let classes = pods.await?;
    let queue = GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "Queue");
    let class = GroupVersionKind::gvk("scheduling.k8s.io", "v1", "PriorityClass");
    let mut kept = Vec::new();
    for (gvk, used) in [(queue, queues), (class, classes)] {
        let resource = ApiResource::from_gvk(&gvk);
        for copy in remover.list_dynamic(&resource, COPIES).await? {
            match used.contains(&copy.name_any()) {
                true => kept.push(Remover::named(&resource, &copy)),
                false => remover.remove(&resource, &copy).await?,
            }
        }
    }
    Ok(kept)
}

/// Returns the names that objects of a kind use.
async fn used(
    remover: &Remover,
    group: &str,
    version: &str,
    kind: &str,
    name: impl Fn(&DynamicObject) -> Option<&str>,
) -> anyhow::Result<BTreeSet<String>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let all = remover.list_dynamic(&resource, "").await?;
    Ok(all
        .iter()
        .filter_map(|object| name(object).map(str::to_owned))
        .collect())
}
