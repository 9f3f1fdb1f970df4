//! An ordinary tenant: a user with the right to edit one namespace of the control plane.
//!
//! The testbed's administrator impersonates the tenant, so its requests pass authentication,
//! authorization and admission like those of any user. Its rights are Kubernetes' ClusterRole
//! `edit` with Karmada's additions (`karmada-edit`), and the kinds of jobs that the testbed serves
//! (`testbed-jobs-edit`). It has no rights in members.

use std::time::Duration;

use kube::Client;
use serde_json::json;
use testbed::Testbed;

use super::kinds::{ROLE_BINDING, SELF_ACCESS_REVIEW};
use super::objects::Objects;
use super::wait::eventually;

/// The timeout until the API server knows a new RoleBinding, and has aggregated ClusterRoles.
const KNOWN: Duration = Duration::from_secs(60);
/// The role of the tenant in its namespace.
const CLUSTER_ROLE: &str = "edit";

/// A user with the right to edit one namespace.
#[derive(Clone)]
pub struct Tenant {
    /// The user's name: `tenant-<namespace>`, if it has no other.
    pub user: String,
    /// The namespace that it edits.
    pub namespace: String,
    /// The control plane's objects, with the rights of this user.
    pub objects: Objects,
    /// The client behind `objects`.
    pub client: Client,
}

impl std::fmt::Debug for Tenant {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Tenant")
            .field("user", &self.user)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Tenant {
    /// Creates the tenant of an existing namespace, and returns when its rights are in force. A
    /// repeated call for the same namespace is allowed.
    ///
    /// # Errors
    /// Returns an error if the API server refuses, or does not know the rights in time.
    pub async fn of(testbed: &Testbed, namespace: &str) -> anyhow::Result<Self> {
        Self::named(testbed, namespace, format!("tenant-{namespace}")).await
    }

    /// Creates a tenant with a name of its own, as [`Self::of`]: a namespace may have several.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub async fn named(testbed: &Testbed, namespace: &str, user: String) -> anyhow::Result<Self> {
        let karmada = testbed.karmada();
        bind(&Objects::new(karmada.client().await?), namespace, &user).await?;
        let client = karmada.client_as(&user, &["tenants"]).await?;
        let tenant = Self {
            user,
            namespace: namespace.to_owned(),
            objects: Objects::new(client.clone()),
            client,
        };
        tenant.has_its_rights().await?;
        Ok(tenant)
    }

    /// Returns the flags with which the administrator's kubectl impersonates this tenant.
    pub fn kubectl_flags(&self) -> Vec<String> {
        vec![
            format!("--as={}", self.user),
            "--as-group=tenants".to_owned(),
            format!("--namespace={}", self.namespace),
        ]
    }

    /// Returns true if RBAC allows the tenant this in its namespace.
    ///
    /// # Errors
    /// Returns an error if the API server does not answer.
    pub async fn may(&self, verb: &str, group: &str, resource: &str) -> anyhow::Result<bool> {
        let review = json!({
            "metadata": {"name": ""},
            "spec": {"resourceAttributes": {
                "namespace": self.namespace,
                "verb": verb,
                "group": group,
                "resource": resource,
            }},
        });
        let answer = self.objects.create(SELF_ACCESS_REVIEW, &review).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// Waits for one right of each role that is aggregated into `edit`.
    async fn has_its_rights(&self) -> anyhow::Result<()> {
        let rights = [
            ("create", "batch", "jobs"),
            ("patch", "work.karmada.io", "resourcebindings"),
            ("create", "batch.volcano.sh", "jobs"),
        ];
        let what = format!("{} has its rights", self.user);
        eventually(KNOWN, &what, async || {
            for (verb, group, resource) in rights {
                match self.may(verb, group, resource).await {
                    Ok(true) => {}
                    Ok(false) => return Err(format!("may not {verb} {resource}.{group}")),
                    Err(error) => return Err(error.to_string()),
                }
            }
            Ok(())
        })
        .await
    }
}

async fn bind(karmada: &Objects, namespace: &str, user: &str) -> anyhow::Result<()> {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": user, "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": CLUSTER_ROLE},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    });
    match karmada.create(ROLE_BINDING, &binding).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
