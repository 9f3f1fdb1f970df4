//! What pods use beyond what was admitted, below the list of jobs: nothing that runs and is charged is left out.
//!
//! The statuses of CapacityPolicies have it. A user who may not read them sees the jobs only.

use crate::args::JobFilter;
use crate::connect::LIMIT;
use crate::queue::unadmitted;
use crds::capacity_policy::{CapacityPolicy, UnadmittedUse};
use kube::api::ListParams;
use kube::{Api, Client};
use runtime::pages;

/// Returns the lines for the namespaces and the queue of `filter`.
pub(super) async fn footer(filter: &JobFilter, client: &Client) -> String {
    let api = Api::<CapacityPolicy>::all(client.clone());
    let Ok(policies) = pages::list(&api, &ListParams::default(), LIMIT).await else {
        return String::new();
    };
    let namespace = (!filter.all_namespaces).then(|| client.default_namespace());
    unadmitted(&chosen(&policies.items, filter.queue.as_deref(), namespace))
}

/// Returns the entries of a queue and a namespace, or of all.
fn chosen(
    policies: &[CapacityPolicy],
    queue: Option<&str>,
    namespace: Option<&str>,
) -> Vec<UnadmittedUse> {
    let of_queue = |policy: &&CapacityPolicy| {
        queue.is_none_or(|queue| policy.metadata.name.as_deref() == Some(queue))
    };
    let statuses = policies
        .iter()
        .filter(of_queue)
        .filter_map(|policy| policy.status.as_ref());
    let used = statuses.flat_map(|status| status.unadmitted.iter().cloned());
    let in_namespace = |used: &UnadmittedUse| namespace.is_none_or(|name| used.namespace == name);
    used.filter(in_namespace).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_beyond_what_was_admitted_are_listed_for_their_namespace_and_queue() {
        let policy = |name: &str, unadmitted: serde_json::Value| -> CapacityPolicy {
            serde_json::from_value(json!({
                "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy", "metadata": {"name": name},
                "spec": {}, "status": {"unadmitted": unadmitted},
            }))
            .unwrap()
        };
        let used = |namespace: &str, job: Option<&str>| json!({"namespace": namespace, "job": job, "cluster": "m1", "allocated": {"nvidia.com/gpu": "8"}});
        let policies = [
            policy(
                "q",
                json!([used("team", Some("train-job")), used("other", None)]),
            ),
            policy("r", json!([used("team", None)])),
        ];
        insta::assert_snapshot!(unadmitted(&chosen(&policies, None, Some("team"))), @r"

        Pods beyond what was admitted:
        NAMESPACE   JOB         CLUSTER   RESOURCE         ALLOCATED
        team        train-job   m1        nvidia.com/gpu   8
        team        -           m1        nvidia.com/gpu   8
        ");
        assert_eq!(chosen(&policies, Some("q"), None).len(), 2);
        assert_eq!(unadmitted(&chosen(&policies, Some("s"), None)), "");
    }
}
