//! What one member applies to pods before it stores them: its RuntimeClasses, and the LimitRanges and
//! ResourceQuotas of its namespaces. Pure.
//!
//! A member in which Muster may not read them is usable: then nothing is known to be added, and the watches say
//! that they are refused.

use super::known::Known;
use crds::member_rules::{LimitRange, ResourceQuota, RuntimeClass};
use engine::{ClusterName, Resources};
use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use workload::{LimitRangeRules, NamespaceRules, QuotaRules, SpecError};

/// What a member applies to pods, as far as it has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulesUpdate {
    /// All of its RuntimeClasses, with what pods of each need besides their containers.
    RuntimeClasses(BTreeMap<String, Resources>),
    /// The rules of one namespace; none if it has no more.
    Namespace(String, NamespaceRules),
}

/// A change of one of the kinds.
#[derive(Debug)]
pub(crate) enum RuleDelta {
    RuntimeClass(Delta<(ObjectKey, Resources)>),
    LimitRange(Delta<(ObjectKey, LimitRangeRules)>),
    Quota(Delta<(ObjectKey, QuotaRules)>),
}

impl RuleDelta {
    /// Converts `delta` of a RuntimeClass of a member.
    pub(crate) fn of_class(cluster: &ClusterName, delta: Delta<RuntimeClass>) -> Self {
        Self::RuntimeClass(read(cluster, delta, RuntimeClass::overhead))
    }

    /// Converts `delta` of a LimitRange of a member.
    pub(crate) fn of_limit_range(cluster: &ClusterName, delta: Delta<LimitRange>) -> Self {
        Self::LimitRange(read(cluster, delta, LimitRange::rules))
    }

    /// Converts `delta` of a ResourceQuota of a member.
    pub(crate) fn of_quota(cluster: &ClusterName, delta: Delta<ResourceQuota>) -> Self {
        Self::Quota(read(cluster, delta, ResourceQuota::rules))
    }

    /// Returns true if it says that all objects of its kind have been listed.
    pub(crate) fn is_listed(&self) -> bool {
        matches!(
            self,
            Self::RuntimeClass(Delta::Listed)
                | Self::LimitRange(Delta::Listed)
                | Self::Quota(Delta::Listed)
        )
    }
}

fn read<K, T>(
    cluster: &ClusterName,
    delta: Delta<K>,
    rules: impl Fn(&K) -> Result<T, SpecError>,
) -> Delta<(ObjectKey, T)>
where
    K: kube::Resource<DynamicType = ()>,
    T: Default,
{
    delta.map(|object| {
        let key = ObjectKey::of(&object);
        let rules = rules(&object).unwrap_or_else(|error| {
            let kind = K::kind(&());
            tracing::warn!(%cluster, %kind, object = %key, %error, "it cannot be read; it counts for nothing");
            T::default()
        });
        (key, rules)
    })
}

/// What is known of one member.
#[derive(Debug, Default)]
pub(crate) struct KnownRules {
    classes: Known<Resources>,
    limit_ranges: Known<LimitRangeRules>,
    quotas: Known<QuotaRules>,
    changes: Vec<RulesUpdate>,
}

impl KnownRules {
    /// Starts to list over a new connection.
    pub(crate) fn begin(&mut self) {
        self.classes.begin();
        self.limit_ranges.begin();
        self.quotas.begin();
    }

    /// Returns true if all kinds have listed over the present connection.
    pub(crate) fn have_listed(&self) -> bool {
        self.classes.has_listed() && self.limit_ranges.has_listed() && self.quotas.has_listed()
    }

    /// Returns the changes since the last call.
    pub(crate) fn take(&mut self) -> Vec<RulesUpdate> {
        std::mem::take(&mut self.changes)
    }

    /// Applies a delta.
    pub(crate) fn apply(&mut self, delta: RuleDelta) {
        let namespaces = match delta {
            RuleDelta::RuntimeClass(delta) => {
                if !changed(&mut self.classes, delta).is_empty() {
                    let classes = self.classes.iter();
                    let classes = classes.map(|(key, class)| (key.name.clone(), class.clone()));
                    let classes = RulesUpdate::RuntimeClasses(classes.collect());
                    self.changes.push(classes);
                }
                return;
            }
            RuleDelta::LimitRange(delta) => changed(&mut self.limit_ranges, delta),
            RuleDelta::Quota(delta) => changed(&mut self.quotas, delta),
        };
        let namespaces: BTreeSet<String> = namespaces
            .into_iter()
            .filter_map(|key| key.namespace)
            .collect();
        for namespace in namespaces {
            let rules = NamespaceRules {
                limit_ranges: in_namespace(&self.limit_ranges, &namespace),
                quotas: in_namespace(&self.quotas, &namespace),
            };
            self.changes.push(RulesUpdate::Namespace(namespace, rules));
        }
    }
}

/// Applies `delta`, and returns the objects that are other than before.
fn changed<T: PartialEq>(known: &mut Known<T>, delta: Delta<(ObjectKey, T)>) -> Vec<ObjectKey> {
    let touched = known.take(delta).into_iter();
    let changed = touched.filter(|(key, before)| known.get(key) != before.as_ref());
    changed.map(|(key, _)| key).collect()
}

fn in_namespace<T: Clone>(known: &Known<T>, namespace: &str) -> BTreeMap<String, T> {
    let inside = known
        .iter()
        .filter(|(key, _)| key.namespace.as_deref() == Some(namespace));
    inside
        .map(|(key, rules)| (key.name.clone(), rules.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn key(namespace: Option<&str>, name: &str) -> ObjectKey {
        ObjectKey {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    fn quota(hard: &str) -> Delta<ResourceQuota> {
        let object = json!({"metadata": {"name": "team", "namespace": "a"}, "spec": {"hard": {"cpu": hard}}});
        Delta::Upserted(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn only_changes_are_reported_and_deletions_are_found_when_a_connection_lists() {
        let member = ClusterName::new("m");
        let mut rules = KnownRules::default();
        let seen = |rules: &mut KnownRules, delta| {
            rules.apply(RuleDelta::of_quota(&member, delta));
            let taken = rules.take().into_iter();
            let counts = taken.map(|change| match change {
                RulesUpdate::Namespace(name, rules) => format!("{name} {}", rules.quotas.len()),
                RulesUpdate::RuntimeClasses(classes) => classes.len().to_string(),
            });
            counts.collect::<Vec<_>>()
        };
        assert_eq!(seen(&mut rules, quota("4")), ["a 1"]);
        assert!(seen(&mut rules, quota("4")).is_empty());
        assert_eq!(seen(&mut rules, quota("5")), ["a 1"]);
        rules.begin();
        assert!(!rules.have_listed());
        // Deleted while the member was away.
        assert_eq!(seen(&mut rules, Delta::Listed), ["a 0"]);
        rules.apply(RuleDelta::LimitRange(Delta::Listed));
        rules.apply(RuleDelta::RuntimeClass(Delta::Listed));
        assert!(rules.have_listed());
        // One that cannot be read counts for nothing.
        assert_eq!(seen(&mut rules, quota("many")), ["a 1"]);
        assert_eq!(
            seen(&mut rules, Delta::Gone(key(Some("a"), "team"))),
            ["a 0"]
        );
    }

    #[test]
    fn classes_are_reported_together() {
        let member = ClusterName::new("m");
        let mut rules = KnownRules::default();
        for (name, overhead) in [
            ("kata", json!({"podFixed": {"cpu": "1"}})),
            ("runc", json!(null)),
        ] {
            let object = json!({"metadata": {"name": name}, "overhead": overhead});
            let class = Delta::Upserted(serde_json::from_value(object).unwrap());
            rules.apply(RuleDelta::of_class(&member, class));
        }
        let shown = |change: &RulesUpdate| match change {
            RulesUpdate::RuntimeClasses(classes) => {
                let classes = classes
                    .iter()
                    .map(|(name, overhead)| format!("{name} {overhead}"));
                classes.collect::<Vec<_>>().join("; ")
            }
            RulesUpdate::Namespace(..) => String::new(),
        };
        let changes: Vec<String> = rules.take().iter().map(shown).collect();
        assert_eq!(changes, ["kata cpu 1", "kata cpu 1; runc "]);
    }
}
