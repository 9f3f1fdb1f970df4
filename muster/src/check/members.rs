//! Checks of the members: whether they are reached as Muster reaches them, with the rights that it needs.

use super::{CheckFinding, skew};
use anyhow::Context as _;
use crds::karmada::Cluster;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use runtime::client::with_deadline;
use runtime::pages;
use std::time::Duration;

/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// What Muster does in each member: group, resource, verb.
const NEEDED: [(&str, &str, &str); 5] = [
    ("", "nodes", "list"),
    ("", "nodes", "watch"),
    ("", "pods", "list"),
    ("", "pods", "watch"),
    ("scheduling.k8s.io", "priorityclasses", "create"),
];

pub(super) async fn check(client: &Client) -> anyhow::Result<Vec<CheckFinding>> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let all = pages::list(&clusters, &ListParams::default(), LIMIT).await;
    let all = all.context("cannot list the clusters")?.items;
    if all.is_empty() {
        return Ok(vec![CheckFinding::blocks(
            "members",
            "no cluster has joined",
            "there is no place for jobs",
            "karmadactl join NAME --cluster-kubeconfig FILE",
        )]);
    }
    let mut findings = Vec::new();
    for cluster in &all {
        findings.extend(of_member(client, cluster).await);
    }
    Ok(findings)
}

async fn of_member(client: &Client, cluster: &Cluster) -> Vec<CheckFinding> {
    let name = cluster.name_any();
    let member = match members::reach(client, cluster, "muster-check").await {
        Ok(member) => member,
        Err(error) => return vec![unreached(&name, &error)],
    };
    let of_clock = skew::check(&member, &format!("cluster {name}")).await;
    let mut findings = Vec::from_iter(of_clock);
    for (group, resource, verb) in NEEDED {
        match may(&member, group, resource, verb).await {
            Ok(true) => {}
            Ok(false) => findings.push(CheckFinding::blocks(
                "member-rights",
                format!("Muster may not {verb} {resource} in cluster {name}"),
                "it sees no free resources there, or cannot prepare jobs, and places none",
                "muster install --member --kubeconfig MEMBER, where it is reached by proxy; else the rights of the account in \
                 spec.secretRef of the Cluster",
            )),
            Err(error) => return vec![unreached(&name, &error)],
        }
    }
    findings
}

fn unreached(name: &str, error: &str) -> CheckFinding {
    CheckFinding::blocks(
        "member-reached",
        format!("cluster {name} cannot be reached: {error}"),
        "Muster places no job in a cluster that it does not see",
        &format!(
            "kubectl describe cluster {name}; spec.apiEndpoint and the Secret in spec.secretRef have to be right from here"
        ),
    )
}

async fn may(client: &Client, group: &str, resource: &str, verb: &str) -> Result<bool, String> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    let answer = with_deadline(reviews.create(&params, &review), LIMIT).await;
    let answer = answer.map_err(|error| error.message())?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
