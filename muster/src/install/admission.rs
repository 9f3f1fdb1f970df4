//! The admission policies in `muster install`: which accounts are exempt, that the policies exist, and
//! whether they refuse a tenant and not Muster.

use super::MANAGER;
use super::accounts::{self, RbacAccount};
use anyhow::{Context as _, bail};
use controller::admission_policies::probe::ProbeVerdict;
use controller::admission_policies::{enforced_soon, manifests};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) use controller::admission_policies::manifests::MANIFEST;

/// Name of the binding of Karmada's accounts that are not exempt otherwise.
const BINDING: &str = "muster-admission-bypass-karmada";
/// The same binding, without its role and subjects.
pub(crate) const BINDING_MANIFEST: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: muster-admission-bypass-karmada}\n";
const ROLE: &str = "muster-admission-bypass";
/// How long the API server may take to apply a new right.
const KNOWN: (u32, Duration) = (40, Duration::from_millis(250));

/// Muster's own accounts that write objects which the policies protect.
const OWN: [&str; 3] = ["muster", "muster-controller", "muster-scheduler"];
/// Kubernetes' own accounts, without which no namespace could be deleted.
const KUBERNETES: [&str; 2] = ["namespace-controller", "generic-garbage-collector"];

/// Installs the policies, and fails if they are not in force then. `told` are accounts of Karmada.
pub(crate) async fn install(client: &Client, told: &[RbacAccount]) -> anyhow::Result<()> {
    // The exemptions come first; otherwise Karmada would be refused for a moment.
    let passing = bind(client, told).await?;
    for account in passing.iter().chain(&kubernetes_and_own()) {
        wait_until_passes(client, account).await?;
    }
    let restored = manifests::restore(client).await?;
    restored.iter().for_each(|name| println!("{name} applied"));
    match enforced_soon(client).await? {
        ProbeVerdict::InForce => {
            println!(
                "admission policies in force: a tenant is refused, and Muster's accounts are exempt"
            );
        }
        ProbeVerdict::Broken(why) => bail!("the admission policies are not in force: {why}"),
    }
    let passing: Vec<String> = passing.iter().map(ToString::to_string).collect();
    match passing.as_slice() {
        [] => println!(
            "of Karmada's accounts, those in the group system:masters are exempt; name others with --karmada-account"
        ),
        passing => println!(
            "of Karmada's accounts, these are exempt, and those in the group system:masters: {}",
            passing.join(", ")
        ),
    }
    Ok(())
}

/// Deletes the policies; tenants may then write everything again.
pub(crate) async fn remove(client: &Client) -> anyhow::Result<()> {
    manifests::remove(client)
        .await
        .context("cannot remove the admission policies")?;
    println!("no admission policies: editors of a namespace can exceed its quota");
    Ok(())
}

/// Binds Karmada's accounts, and returns them: found ones, given ones, and those bound before.
async fn bind(client: &Client, told: &[RbacAccount]) -> anyhow::Result<BTreeSet<RbacAccount>> {
    for account in told {
        let may = may(
            client,
            account,
            "work.karmada.io",
            "resourcebindings",
            "patch",
        )
        .await?;
        accounts::ensure_write(account, may)?;
    }
    let found = accounts::find(client).await?;
    let mut passing = found.karmadas;
    passing.extend(told.iter().cloned());
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let before = bindings
        .get_opt(BINDING)
        .await
        .with_context(|| format!("cannot read ClusterRoleBinding {BINDING}"))?;
    let before = before
        .and_then(|binding| binding.subjects)
        .unwrap_or_default();
    passing.extend(before.iter().filter_map(RbacAccount::of));
    for account in found.others.difference(&passing) {
        println!(
            "{account} may write ResourceBindings or Works by RBAC and is refused from now on: if it is Karmada's own, \
             repeat with --karmada-account {account}"
        );
    }
    let subjects: Vec<_> = passing.iter().map(RbacAccount::subject).collect();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": BINDING},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": subjects,
    });
    super::show(&runtime::apply::apply_objects(client, vec![binding], MANAGER).await?);
    Ok(passing)
}

fn kubernetes_and_own() -> Vec<RbacAccount> {
    let account = |namespace: &str, name: &str| RbacAccount::Service {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let own = OWN.map(|name| account(crds::names::SYSTEM_NAMESPACE, name));
    let kubernetes = KUBERNETES.map(|name| account("kube-system", name));
    own.into_iter().chain(kubernetes).collect()
}

async fn wait_until_passes(client: &Client, account: &RbacAccount) -> anyhow::Result<()> {
    let (times, pause) = KNOWN;
    for _ in 0..times {
        if may(client, account, "muster.io", "admissionpolicies", "bypass").await? {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
    }
    bail!(
        "{account} may not bypass admissionpolicies.muster.io, although it is bound to ClusterRole {ROLE}: does the \
         control plane authorize by RBAC?"
    );
}

/// Returns true if an account may do this on the whole control plane.
async fn may(
    client: &Client,
    account: &RbacAccount,
    group: &str,
    resource: &str,
    verb: &str,
) -> anyhow::Result<bool> {
    let (user, groups) = match account {
        // Any user in the group: a name that no user has.
        RbacAccount::Group(group) => ("muster-install".to_owned(), vec![group.clone()]),
        RbacAccount::User(name) => (name.clone(), Vec::new()),
        RbacAccount::Service { namespace, .. } => {
            let groups = [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ];
            (account.to_string(), groups.to_vec())
        }
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user),
            groups: Some(groups),
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reviews
        .create(&PostParams::default(), &review)
        .await
        .with_context(|| format!("cannot ask what {account} may do"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
