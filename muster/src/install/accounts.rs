//! Finds the accounts of Karmada, which are exempt from the admission policies.
//!
//! Karmada's usual installers put its components into the group system:masters, which is exempt without
//! being named. Other accounts are found by their RBAC rights and their names: an account that may write
//! ResourceBindings or Works on the whole control plane is no tenant, and Karmada's accounts are in
//! `karmada-system` or start with `system:karmada:`. Other accounts with these rights are printed, and are
//! not exempt.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Subject};
use kube::api::ListParams;
use kube::{Api, Client};
use runtime::pages;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Deadline of each page of a list.
const LIMIT: Duration = Duration::from_secs(30);

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const GROUP: &str = "group:";
/// Groups that all users, or all workloads, belong to.
const CROWDS: [&str; 3] = [
    "system:authenticated",
    "system:unauthenticated",
    "system:serviceaccounts",
];
/// Namespace of Karmada's service accounts.
const KARMADA_NAMESPACE: &str = "karmada-system";
/// Prefix of Karmada's users and groups.
const KARMADA_PREFIX: &str = "system:karmada:";
/// Namespaces of Kubernetes' and Muster's service accounts; `deploy/rbac-admission.yaml` names the exempt
/// ones.
const KNOWN_NAMESPACES: [&str; 2] = ["kube-system", crds::names::SYSTEM_NAMESPACE];

/// An account as RBAC names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RbacAccount {
    User(String),
    Group(String),
    Service { namespace: String, name: String },
}

/// Why a text names no account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoAccount(String);

impl fmt::Display for NoAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoAccount {}

impl FromStr for RbacAccount {
    type Err = NoAccount;

    fn from_str(text: &str) -> Result<Self, NoAccount> {
        let wrong = |why: &str| Err(NoAccount(format!("{text:?} {why}")));
        if text.is_empty() || text.contains(char::is_whitespace) {
            return wrong("is not the name of an account: it is empty or has spaces");
        }
        let group = text.strip_prefix(GROUP);
        if CROWDS.contains(&group.unwrap_or(text))
            || group.is_some_and(|group| group.starts_with("system:serviceaccounts:"))
        {
            return wrong("is a group that tenants are in; name Karmada's own accounts");
        }
        if let Some(group) = group {
            return match group {
                "" => wrong("has no name after group:"),
                group => Ok(Self::Group(group.to_owned())),
            };
        }
        match text.strip_prefix(SERVICE_ACCOUNT) {
            None => Ok(Self::User(text.to_owned())),
            Some(account) => match account.split_once(':') {
                Some((namespace, name))
                    if !namespace.is_empty() && !name.is_empty() && !name.contains(':') =>
                {
                    Ok(Self::Service {
                        namespace: namespace.to_owned(),
                        name: name.to_owned(),
                    })
                }
                _ => wrong("is not system:serviceaccount:NAMESPACE:NAME"),
            },
        }
    }
}

impl fmt::Display for RbacAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => f.write_str(name),
            Self::Group(name) => write!(f, "{GROUP}{name}"),
            Self::Service { namespace, name } => {
                write!(f, "{SERVICE_ACCOUNT}{namespace}:{name}")
            }
        }
    }
}

impl RbacAccount {
    /// Returns the account of a ClusterRoleBinding's subject; `None` for an unknown kind.
    pub(crate) fn of(subject: &Subject) -> Option<Self> {
        let name = subject.name.clone();
        Some(match subject.kind.as_str() {
            "User" => Self::User(name).or_service_account(),
            "Group" => Self::Group(name),
            "ServiceAccount" => Self::Service {
                namespace: subject.namespace.clone()?,
                name,
            },
            _ => return None,
        })
    }

    /// A service account may also be bound by its user name.
    fn or_service_account(self) -> Self {
        match &self {
            Self::User(name) if name.starts_with(SERVICE_ACCOUNT) => name.parse().unwrap_or(self),
            _ => self,
        }
    }

    /// Returns the subject for a ClusterRoleBinding.
    pub(crate) fn subject(&self) -> Subject {
        let api_group = Some("rbac.authorization.k8s.io".to_owned());
        let (kind, name, namespace) = match self {
            Self::User(name) => ("User", name, None),
            Self::Group(name) => ("Group", name, None),
            Self::Service { namespace, name } => ("ServiceAccount", name, Some(namespace.clone())),
        };
        Subject {
            api_group: api_group.filter(|_| namespace.is_none()),
            kind: kind.to_owned(),
            name: name.clone(),
            namespace,
        }
    }

    fn standing(&self) -> AccountOwner {
        match self {
            Self::User(name) if name.starts_with(KARMADA_PREFIX) => AccountOwner::Karmada,
            Self::Group(name) if name.starts_with(KARMADA_PREFIX) => AccountOwner::Karmada,
            Self::Service { namespace, .. } if namespace == KARMADA_NAMESPACE => {
                AccountOwner::Karmada
            }
            Self::Service { namespace, .. } if KNOWN_NAMESPACES.contains(&namespace.as_str()) => {
                AccountOwner::Kubernetes
            }
            Self::User(name) if name == "system:kube-controller-manager" => {
                AccountOwner::Kubernetes
            }
            _ => AccountOwner::Unknown,
        }
    }
}

/// Owner of an account, by its name.
enum AccountOwner {
    Karmada,
    Kubernetes,
    Unknown,
}

/// Accounts that may write ResourceBindings or Works on the whole control plane, by RBAC.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WritingAccounts {
    /// Karmada's accounts, by their names.
    pub(crate) karmadas: BTreeSet<RbacAccount>,
    /// Other accounts, which do not count as Karmada's.
    pub(crate) others: BTreeSet<RbacAccount>,
}

/// Searches the control plane's ClusterRoleBindings.
pub(crate) async fn find(client: &Client) -> anyhow::Result<WritingAccounts> {
    let all = ListParams::default();
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let roles = pages::list(&roles, &all, LIMIT)
        .await
        .context("cannot list ClusterRoles")?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let bindings = pages::list(&bindings, &all, LIMIT)
        .await
        .context("cannot list ClusterRoleBindings")?;
    Ok(sort(&roles.items, &bindings.items))
}

fn sort(roles: &[ClusterRole], bindings: &[ClusterRoleBinding]) -> WritingAccounts {
    let rules: BTreeMap<&str, &[PolicyRule]> = roles
        .iter()
        .filter_map(|role| {
            let rules = role.rules.as_deref().unwrap_or_default();
            Some((role.metadata.name.as_deref()?, rules))
        })
        .collect();
    let mut found = WritingAccounts::default();
    for binding in bindings {
        let rules = rules.get(binding.role_ref.name.as_str());
        // An account that may do everything is exempt because of that.
        if !rules.is_some_and(|rules| rules.iter().any(writes) && !rules.iter().any(is_everything))
        {
            continue;
        }
        let subjects = binding.subjects.as_deref().unwrap_or_default();
        for account in subjects.iter().filter_map(RbacAccount::of) {
            match account.standing() {
                AccountOwner::Karmada => drop(found.karmadas.insert(account)),
                AccountOwner::Unknown => drop(found.others.insert(account)),
                AccountOwner::Kubernetes => {}
            }
        }
    }
    found
}

fn has(list: Option<&Vec<String>>, any: &[&str]) -> bool {
    list.is_some_and(|list| {
        list.iter()
            .any(|item| item == "*" || any.contains(&&**item))
    })
}

fn writes(rule: &PolicyRule) -> bool {
    has(rule.api_groups.as_ref(), &["work.karmada.io"])
        && has(rule.resources.as_ref(), &["resourcebindings", "works"])
        && has(Some(&rule.verbs), &["create", "update", "patch"])
}

fn is_everything(rule: &PolicyRule) -> bool {
    let all = |list: Option<&Vec<String>>| list.is_some_and(|list| list.iter().any(|i| i == "*"));
    all(rule.api_groups.as_ref()) && all(rule.resources.as_ref()) && all(Some(&rule.verbs))
}

/// Returns an error for a given account without rights to ResourceBindings: a wrong name would leave
/// Karmada refused without an explanation.
pub(crate) fn ensure_write(account: &RbacAccount, may: bool) -> anyhow::Result<()> {
    ensure!(
        may,
        "--karmada-account {account}: by RBAC it may not patch resourcebindings.work.karmada.io in all namespaces, so it is \
         none of Karmada's components; is its name right? Components in the group system:masters need not be named"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn accounts_are_read_as_kubernetes_names_them() {
        for (text, kind) in [
            ("system:karmada:controller-manager", "User"),
            ("group:karmada-components", "Group"),
            (
                "system:serviceaccount:karmada-system:karmada",
                "ServiceAccount",
            ),
        ] {
            let account: RbacAccount = text.parse().unwrap();
            assert_eq!(account.to_string(), text);
            assert_eq!(account.subject().kind, kind);
            assert_eq!(RbacAccount::of(&account.subject()), Some(account));
        }
        for (text, says) in [
            ("", "is empty"),
            ("a b", "has spaces"),
            ("group:", "has no name after group:"),
            (
                "system:serviceaccount:karmada-system",
                "is not system:serviceaccount:NAMESPACE:NAME",
            ),
            ("group:system:authenticated", "tenants are in"),
            ("system:authenticated", "tenants are in"),
            ("group:system:serviceaccounts:team", "tenants are in"),
        ] {
            let error = text.parse::<RbacAccount>().unwrap_err().to_string();
            assert!(
                error.contains(says) && error.contains(text),
                "{text}: {error}"
            );
        }
    }

    fn role(name: &str, groups: &str, resources: &str, verbs: &str) -> ClusterRole {
        let rule = json!({"apiGroups": [groups], "resources": [resources], "verbs": [verbs]});
        serde_json::from_value(json!({"metadata": {"name": name}, "rules": [rule]})).unwrap()
    }

    fn binding(role: &str, subjects: Value) -> ClusterRoleBinding {
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
        let binding = json!({"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects});
        serde_json::from_value(binding).unwrap()
    }

    #[test]
    fn karmadas_accounts_are_found_by_right_and_name() {
        let roles = [
            role("writes", "work.karmada.io", "works", "patch"),
            role("all-verbs", "*", "*", "update"),
            role("admin", "*", "*", "*"),
            role("reads", "work.karmada.io", "*", "get"),
        ];
        let user = |name: &str| json!({"kind": "User", "name": name});
        let account = |namespace: &str, name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        let bindings = [
            binding(
                "writes",
                json!([user("system:karmada:karmada-scheduler"), user("jane")]),
            ),
            binding(
                "writes",
                json!([account("karmada-system", "karmada"), account("team", "ci")]),
            ),
            binding(
                "all-verbs",
                json!([account("kube-system", "generic-garbage-collector")]),
            ),
            binding("admin", json!([user("root")])),
            binding("reads", json!([user("system:karmada:karmada-search")])),
            binding("gone", json!([user("system:karmada:x")])),
        ];
        let found = sort(&roles, &bindings);
        let names = |accounts: &BTreeSet<RbacAccount>| -> Vec<String> {
            accounts.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            names(&found.karmadas),
            [
                "system:karmada:karmada-scheduler",
                "system:serviceaccount:karmada-system:karmada"
            ]
        );
        assert_eq!(
            names(&found.others),
            ["jane", "system:serviceaccount:team:ci"]
        );
    }
}
