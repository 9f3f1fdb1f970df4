//! What members apply to the pods of a job before they store them: the requests that they add, and the members that
//! refuse the pods, or to which its policy lets nothing be sent.
//!
//! The rules of all members flow in as they change; each job gets what concerns its namespace and its pods. A job that
//! is admitted is refused nowhere: what it uses of a ResourceQuota is in the quota already.

use crate::facts::job::ResolvedJob;
use crate::mirror::binding::admitted_record;
use crate::mirror::template::Template;
use crds::karmada::{ResourceBinding, Suspension};
use engine::facts::Split;
use engine::{ClusterName, JobKey, Resources, Time};
use members::RulesUpdate;
use std::collections::{BTreeMap, BTreeSet};
use workload::{MemberRules, NamespaceRules};

/// The shortest time between two looks at the pending jobs of a namespace because of the use of its ResourceQuotas,
/// which changes with each pod.
const QUOTA_PERIOD_MS: i64 = 2_000;

/// The rules of all members.
#[derive(Debug, Default)]
pub(crate) struct KnownMemberRules {
    members: BTreeMap<ClusterName, RulesOfMember>,
    /// When the jobs of a namespace were last looked at because of a ResourceQuota.
    looked_at: BTreeMap<String, Time>,
    /// Namespaces with a ResourceQuota that has changed since.
    open: BTreeSet<String>,
}

/// Whose jobs a change of the rules concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangedRules {
    /// All jobs.
    All,
    /// The jobs of a namespace.
    Namespace(String),
    /// Those of a namespace that are pending, in their turn ([`KnownMemberRules::take_due`]).
    Quotas,
}

#[derive(Debug, Default)]
struct RulesOfMember {
    /// `None` until it is known which it has.
    runtime_classes: Option<BTreeMap<String, Resources>>,
    namespaces: BTreeMap<String, NamespaceRules>,
}

impl KnownMemberRules {
    /// Takes what a member applies to pods, and returns whose jobs that concerns.
    pub(crate) fn update(&mut self, cluster: ClusterName, rules: RulesUpdate) -> ChangedRules {
        let member = self.members.entry(cluster).or_default();
        match rules {
            RulesUpdate::RuntimeClasses(classes) => {
                member.runtime_classes = classes;
                ChangedRules::All
            }
            RulesUpdate::Namespace(name, rules) => {
                let before = member.namespaces.remove(&name).unwrap_or_default();
                let limits_differ = before.limit_ranges != rules.limit_ranges;
                if rules != NamespaceRules::default() {
                    member.namespaces.insert(name.clone(), rules);
                }
                if limits_differ {
                    return ChangedRules::Namespace(name);
                }
                self.open.insert(name);
                ChangedRules::Quotas
            }
        }
    }

    /// Forgets a member that is gone.
    pub(crate) fn forget(&mut self, cluster: &ClusterName) {
        self.members.remove(cluster);
    }

    /// Takes the namespaces whose ResourceQuotas have changed, each once in a while.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<String> {
        let due = self.open.iter().filter(|name| {
            let last = self.looked_at.get(*name);
            last.is_none_or(|last| now.millis_since(*last) >= QUOTA_PERIOD_MS)
        });
        let due: Vec<String> = due.cloned().collect();
        for name in &due {
            self.open.remove(name);
            self.looked_at.insert(name.clone(), now);
        }
        due
    }

    /// Adds to a job what members make of its pods.
    pub(super) fn apply(
        &self,
        key: &JobKey,
        binding: &ResourceBinding,
        template: &Template,
        job: &mut ResolvedJob,
    ) {
        let demand = &mut job.fact.demand;
        let none = NamespaceRules::default();
        let kind = &template.key.kind;
        let is_admitted = admitted_record(binding).is_some();
        let suspension = binding.spec.suspension.iter().filter(|_| !is_admitted);
        for cluster in suspension.flat_map(Suspension::clusters) {
            let why = "its propagation policy suspends the dispatch there (spec.suspension.dispatchingOnClusters)";
            let refused = &mut demand.placement.refused_in;
            refused.insert(ClusterName::new(cluster), why.to_owned());
        }
        for (cluster, member) in &self.members {
            let namespace = member.namespaces.get(&*key.namespace).unwrap_or(&none);
            let rules = MemberRules {
                runtime_classes: member.runtime_classes.as_ref(),
                namespace,
                kind: (&kind.api_version, &kind.kind),
                whole: !demand.natively_divisible && demand.split == Split::Never,
            };
            if !rules.concern(&template.pods) {
                continue;
            }
            let found = workload::in_member(&demand.roles, &template.pods, rules);
            for role in &mut demand.roles {
                if let Some(request) = found.requests.get(&role.name) {
                    role.requests_in.insert(cluster.clone(), request.clone());
                }
            }
            if let Some(why) = found.refused.filter(|_| !is_admitted) {
                demand.placement.refused_in.insert(cluster.clone(), why);
            }
        }
    }
}
