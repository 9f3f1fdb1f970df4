//! What one member applies to pods before it stores them: its RuntimeClasses, and the LimitRanges and
//! ResourceQuotas of its namespaces. Pure.
//!
//! A member in which Muster may not read them is usable: then nothing is known to be added, and the watches say
//! that they are refused.

use super::known::Known;
use crds::member_rules::{LimitRange, ResourceQuota, RuntimeClass};
use facts::{ClusterName, Resources};
use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use workload::{LimitRangeRules, NamespaceRules, QuotaRules, SpecError};

/// What a member applies to pods, as far as it has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulesUpdate {
    /// All of its RuntimeClasses, with what pods of each need besides their containers; `None` if Muster may not list
    /// them. Before the first of these nothing is known of them.
    RuntimeClasses(Option<BTreeMap<String, Resources>>),
    /// The rules of one namespace; none if it has no more.
    Namespace(String, NamespaceRules),
}

/// A change of one of the kinds.
#[derive(Debug)]
pub(crate) enum RuleDelta {
    RuntimeClass(Delta<(ObjectKey, Resources)>),
    /// They may not be listed.
    ClassesDenied,
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

    /// Returns the same change if it was sent because its kind may not be listed. Without LimitRanges or ResourceQuotas
    /// nothing is refused, whether or not there are any, so only RuntimeClasses differ.
    pub(crate) fn denied(self) -> Self {
        match self {
            Self::RuntimeClass(Delta::Listed) => Self::ClassesDenied,
            other => other,
        }
    }

    /// Returns true if it says that all objects of its kind have been listed.
    pub(crate) fn is_listed(&self) -> bool {
        matches!(
            self,
            Self::RuntimeClass(Delta::Listed)
                | Self::ClassesDenied
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
    /// True if they may not be listed.
    classes_denied: bool,
    /// The classes as they were last reported.
    reported: Option<BTreeMap<String, Resources>>,
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
                if matches!(delta, Delta::Listed) {
                    self.classes_denied = false;
                }
                self.classes.take(delta);
                return self.report_classes();
            }
            RuleDelta::ClassesDenied => {
                self.classes_denied = true;
                self.classes.take(Delta::Listed);
                return self.report_classes();
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

    /// Reports the classes if they have changed. While they are being listed, those of before hold: a class
    /// that has not been listed yet must not count as missing.
    fn report_classes(&mut self) {
        if !self.classes.has_listed() {
            return;
        }
        let classes = self.classes.iter();
        let classes = classes.map(|(key, class)| (key.name.clone(), class.clone()));
        let classes: Option<BTreeMap<_, _>> = (!self.classes_denied).then(|| classes.collect());
        if self.reported != classes {
            self.reported.clone_from(&classes);
            self.changes.push(RulesUpdate::RuntimeClasses(classes));
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
                RulesUpdate::RuntimeClasses(classes) => format!("{classes:?}"),
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
        rules.take();
        // One that cannot be read counts for nothing.
        assert_eq!(seen(&mut rules, quota("many")), ["a 1"]);
        assert_eq!(
            seen(&mut rules, Delta::Gone(key(Some("a"), "team"))),
            ["a 0"]
        );
    }

    #[test]
    fn classes_are_reported_together_once_it_is_known_which_there_are() {
        let member = ClusterName::new("m");
        let mut rules = KnownRules::default();
        let shown = |rules: &mut KnownRules| {
            let shown = rules.take().into_iter().map(|change| match change {
                RulesUpdate::RuntimeClasses(Some(classes)) => {
                    let classes = classes
                        .iter()
                        .map(|(name, overhead)| format!("{name} {overhead}"));
                    classes.collect::<Vec<_>>().join("; ")
                }
                RulesUpdate::RuntimeClasses(None) => "not known".to_owned(),
                RulesUpdate::Namespace(..) => String::new(),
            });
            shown.collect::<Vec<String>>()
        };
        let listed = || RuleDelta::of_class(&ClusterName::new("m"), Delta::Listed);
        // Of a member in which they may not be listed, nothing is known.
        rules.apply(listed().denied());
        assert!(rules.classes.has_listed());
        assert!(shown(&mut rules).is_empty());
        // It has none.
        rules.apply(listed());
        assert_eq!(shown(&mut rules), [""]);
        rules.begin();
        for (name, overhead) in [
            ("kata", json!({"podFixed": {"cpu": "1"}})),
            ("runc", json!(null)),
        ] {
            let object = json!({"metadata": {"name": name}, "overhead": overhead});
            let class = Delta::Upserted(serde_json::from_value(object).unwrap());
            rules.apply(RuleDelta::of_class(&member, class));
        }
        assert!(shown(&mut rules).is_empty());
        rules.apply(listed());
        assert_eq!(shown(&mut rules), ["kata cpu 1; runc "]);
        // The same ones once more, and then the right to list them is withdrawn.
        rules.apply(listed());
        assert!(shown(&mut rules).is_empty());
        rules.apply(listed().denied());
        assert_eq!(shown(&mut rules), ["not known"]);
    }
}
