//! Checks of the members: whether Karmada and Muster reach them, with the rights that Muster needs.
//!
//! Muster's account reaches them as Muster does. For a user, the server's own view of them counts (GpuPools), and
//! Karmada's cluster proxy says what Muster's account may do in members that are reached by it.

use crate::{CheckError, CheckFinding, CheckReport, CheckedBy, skew};
use crds::gpu_pool::{GpuPool, health};
use crds::karmada::Cluster;
use crds::names::SYSTEM_NAMESPACE;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use runtime::client::{CallError, with_deadline};
use runtime::pages;
use std::collections::BTreeMap;
use std::time::Duration;

/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
const REACHED: &str = "member-reached";
const RIGHTS: &str = "member-rights";
/// What Muster does in each member: group, resource, verb.
const NEEDED: [(&str, &str, &str); 5] = [
    ("", "nodes", "list"),
    ("", "nodes", "watch"),
    ("", "pods", "list"),
    ("", "pods", "watch"),
    ("scheduling.k8s.io", "priorityclasses", "create"),
];

pub(crate) async fn check(
    client: &Client,
    by: CheckedBy,
    report: &mut CheckReport,
) -> Result<(), CheckError> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let all = pages::list(&clusters, &ListParams::default(), LIMIT).await;
    let all = match all.map_err(CheckError::call("the clusters")) {
        Err(error) => return report.absorb("members", Err(error)),
        Ok(all) => all.items,
    };
    if all.is_empty() {
        report.findings.push(CheckFinding::blocks(
            "members",
            "no cluster has joined",
            "there is no place for jobs",
            "karmadactl join NAME --cluster-kubeconfig FILE",
        ));
    }
    report.findings.extend(all.iter().filter_map(not_ready));
    for cluster in &all {
        match by {
            CheckedBy::Server { .. } => report.findings.extend(of_member(client, cluster).await),
            CheckedBy::User if members::is_proxied(cluster) => {
                by_proxy(client, cluster, report).await;
            }
            CheckedBy::User => {}
        }
    }
    if by == CheckedBy::User {
        let found = seen_by_server(client).await;
        report.absorb(REACHED, found)?;
        if !all.iter().all(members::is_proxied) {
            report.unchecked(
                RIGHTS,
                "the rights in members that are reached directly are those of the Secrets of their Cluster objects",
                "`muster check` with the kubeconfig of Muster's account",
            );
        }
    }
    Ok(())
}

/// Reports a member that Karmada itself does not reach.
fn not_ready(cluster: &Cluster) -> Option<CheckFinding> {
    let mut conditions = cluster.status.conditions.iter();
    let ready = conditions.find(|condition| condition.type_ == "Ready")?;
    let name = cluster.name_any();
    (ready.status != "True").then(|| {
        CheckFinding::blocks(
            "member-ready",
            format!("cluster {name} is not Ready for Karmada: {}", ready.message),
            "Karmada creates and removes nothing there, so no job starts there and none ends",
            &format!("kubectl describe cluster {name}, and the log of karmada-controller-manager or, in pull mode, of karmada-agent"),
        )
    })
}

/// Reports members that Muster's processes do not see, by the pools that they publish.
async fn seen_by_server(client: &Client) -> Result<Vec<CheckFinding>, CheckError> {
    let pools: Api<GpuPool> = Api::all(client.clone());
    let pools = match pages::list(&pools, &ListParams::default(), LIMIT).await {
        // The CRD is missing, which is another finding.
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        other => other.map_err(CheckError::call("the GpuPools"))?,
    };
    let mut unseen = BTreeMap::new();
    for pool in pools {
        let health = pool.status.map(|status| status.health).unwrap_or_default();
        if !health.is_empty() && health != health::READY {
            unseen.insert(pool.spec.cluster, health);
        }
    }
    let findings = unseen.into_iter().map(|(cluster, health)| {
        CheckFinding::blocks(
            REACHED,
            format!("Muster sees cluster {cluster} as {health}"),
            "Muster places no job in a cluster that it does not see",
            &format!("kubectl describe cluster {cluster}; spec.apiEndpoint and the Secret in spec.secretRef have to be \
                      right from where Muster runs, and the reason is in its log"),
        )
    });
    Ok(findings.collect())
}

async fn of_member(client: &Client, cluster: &Cluster) -> Vec<CheckFinding> {
    let name = cluster.name_any();
    let member = match members::reach(client, cluster, "muster-check").await {
        Ok(member) => member,
        Err(error) => return vec![unreached(&name, &error)],
    };
    let of_clock = skew::check(&member, &format!("cluster {name}")).await;
    let mut findings = Vec::from_iter(of_clock);
    for needed in NEEDED {
        match may(&member, needed).await {
            Ok(true) => {}
            Ok(false) => findings.push(not_allowed(&name, needed)),
            Err(error) => return vec![unreached(&name, &error.message())],
        }
    }
    findings
}

/// Asks a member through Karmada's cluster proxy what Muster's account may do there.
async fn by_proxy(client: &Client, cluster: &Cluster, report: &mut CheckReport) {
    let name = cluster.name_any();
    let member = match members::reach(client, cluster, "kubectl-muster").await {
        Ok(member) => member,
        Err(error) => return report.findings.push(unreached(&name, &error)),
    };
    for needed in NEEDED {
        match muster_may(&member, needed).await {
            Ok(true) => {}
            Ok(false) => report.findings.push(not_allowed(&name, needed)),
            Err(error) => {
                let why = format!("cluster {name}: {}", error.message());
                let instead = "check with an account that may create SubjectAccessReviews there";
                return report.unchecked(RIGHTS, why, instead);
            }
        }
    }
}

fn not_allowed(name: &str, (_, resource, verb): (&str, &str, &str)) -> CheckFinding {
    CheckFinding::blocks(
        RIGHTS,
        format!("Muster may not {verb} {resource} in cluster {name}"),
        "it sees no free resources there, or cannot prepare jobs, and places none",
        "muster install --member --kubeconfig MEMBER, where it is reached by proxy; else the rights of the account in \
         spec.secretRef of the Cluster",
    )
}

fn unreached(name: &str, error: &str) -> CheckFinding {
    CheckFinding::blocks(
        REACHED,
        format!("cluster {name} cannot be reached: {error}"),
        "Muster places no job in a cluster that it does not see",
        &format!(
            "kubectl describe cluster {name}; spec.apiEndpoint and the Secret in spec.secretRef have to be right from here"
        ),
    )
}

fn attributes((group, resource, verb): (&str, &str, &str)) -> Option<ResourceAttributes> {
    Some(ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    })
}

async fn may(client: &Client, needed: (&str, &str, &str)) -> Result<bool, CallError> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: attributes(needed),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = with_deadline(reviews.create(&PostParams::default(), &review), LIMIT).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn muster_may(client: &Client, needed: (&str, &str, &str)) -> Result<bool, CallError> {
    let groups = [
        "system:authenticated".to_owned(),
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{SYSTEM_NAMESPACE}"),
    ];
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{SYSTEM_NAMESPACE}:muster")),
            groups: Some(groups.to_vec()),
            resource_attributes: attributes(needed),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = with_deadline(reviews.create(&PostParams::default(), &review), LIMIT).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
