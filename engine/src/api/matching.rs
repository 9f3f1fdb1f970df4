//! Label requirements, taints and tolerations, with the meaning Kubernetes and Karmada give
//! them. One implementation for nodes and clusters.

use crate::api::ids::ClusterName;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The operator of a requirement (`NodeSelectorOperator`, `LabelSelectorOperator`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The value is one of those named.
    In,
    /// The value is none of those named, or the key is absent.
    NotIn,
    /// The key is there.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The value is an integer greater than the one named.
    Gt,
    /// The value is an integer less than the one named.
    Lt,
}

/// One requirement on a label or field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// The label or field.
    pub key: String,
    /// How its value is compared.
    pub operator: Operator,
    /// What it is compared with.
    pub values: Vec<String>,
}

impl Requirement {
    /// Whether `value` (absent: `None`) meets the requirement.
    #[must_use]
    pub fn matches(&self, value: Option<&str>) -> bool {
        let named = |value: &str| self.values.iter().any(|v| v == value);
        match self.operator {
            Operator::In => value.is_some_and(named),
            Operator::NotIn => !value.is_some_and(named),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compares(value, |have, bound| have > bound),
            Operator::Lt => self.compares(value, |have, bound| have < bound),
        }
    }

    fn compares(&self, value: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let bound = self.values.first().and_then(|v| v.parse().ok());
        let have = value.and_then(|v| v.parse().ok());
        matches!((have, bound), (Some(have), Some(bound)) if holds(have, bound))
    }
}

/// Requirements that must all hold; a pod may run where any of its terms holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodeTerm {
    /// On labels (`matchExpressions`, `nodeSelector`).
    pub labels: Vec<Requirement>,
    /// On fields (`matchFields`): only `metadata.name`.
    pub fields: Vec<Requirement>,
}

impl NodeTerm {
    /// Whether the node `name` with `labels` meets every requirement.
    #[must_use]
    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.labels
            .iter()
            .all(|r| r.matches(labels.get(&r.key).map(String::as_str)))
            && self
                .fields
                .iter()
                .all(|r| r.matches((r.key == "metadata.name").then_some(name)))
    }
}

/// What a taint does to what does not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// Nothing new may come.
    NoSchedule,
    /// Nothing new should come; never binding.
    PreferNoSchedule,
    /// Nothing new may come, and what is there goes.
    NoExecute,
}

/// A taint of a node or cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, empty where there is none.
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
}

/// A toleration of a pod or a placement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// The key it is for; empty means every key.
    pub key: String,
    /// `None` tolerates every value (operator Exists).
    pub value: Option<String>,
    /// The effect it is for; `None` means every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    fn tolerates(&self, taint: &Taint) -> bool {
        (self.key.is_empty() || self.key == taint.key)
            && self.effect.is_none_or(|effect| effect == taint.effect)
            && self
                .value
                .as_ref()
                .is_none_or(|value| *value == taint.value)
    }
}

/// The key of what a cluster counts as tainted with that is being removed from the federation.
/// Karmada takes everything out of it at once: there is nothing to tolerate.
pub const LEAVING: &str = "muster.io/leaving";

/// The first taint that keeps out what has `tolerations`, if any does.
#[must_use]
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect != TaintEffect::PreferNoSchedule)
        .find(|taint| {
            taint.key == LEAVING
                || !tolerations
                    .iter()
                    .any(|toleration| toleration.tolerates(taint))
        })
}

/// Which clusters a Karmada `ClusterAffinity` selects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ClusterRule {
    /// `affinityName` where the placement has several groups; else empty.
    pub name: String,
    /// `clusterNames`; `None` means any.
    pub names: Option<BTreeSet<ClusterName>>,
    /// `exclude`.
    pub exclude: BTreeSet<ClusterName>,
    /// `labelSelector`, `matchLabels` merged in.
    pub labels: Vec<Requirement>,
    /// `fieldSelector` on `provider`, `region` and `zone`.
    pub fields: Vec<Requirement>,
}

impl ClusterRule {
    /// Whether it selects `cluster`.
    #[must_use]
    pub fn selects(&self, cluster: &crate::api::facts::ClusterFact) -> bool {
        self.names
            .as_ref()
            .is_none_or(|names| names.contains(&cluster.name))
            && !self.exclude.contains(&cluster.name)
            && self
                .labels
                .iter()
                .all(|r| r.matches(cluster.labels.get(&r.key).map(String::as_str)))
            && self.fields.iter().all(|r| matches_field(r, cluster))
    }
}

/// Karmada's rule for cluster fields (pkg/util/selector.go): an absent provider or region is
/// absent; zones must all be named for In, and none of them for NotIn.
fn matches_field(requirement: &Requirement, cluster: &crate::api::facts::ClusterFact) -> bool {
    let present = |field: &'static str, value: &str| {
        (requirement.key == field).then(|| (!value.is_empty()).then(|| value.to_owned()))
    };
    if requirement.key == "zone" {
        let named = |zone: &String| requirement.values.contains(zone);
        return match requirement.operator {
            Operator::In => !cluster.zones.is_empty() && cluster.zones.iter().all(named),
            Operator::NotIn => !cluster.zones.iter().any(named),
            Operator::Exists => !cluster.zones.is_empty(),
            Operator::DoesNotExist => cluster.zones.is_empty(),
            Operator::Gt | Operator::Lt => false,
        };
    }
    present("provider", &cluster.provider)
        .or_else(|| present("region", &cluster.region))
        .is_some_and(|value| requirement.matches(value.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::facts::ClusterFact;

    fn cluster(provider: &str, region: &str, zones: &[&str]) -> ClusterFact {
        ClusterFact {
            name: ClusterName::from("a"),
            labels: BTreeMap::new(),
            provider: provider.to_owned(),
            region: region.to_owned(),
            zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
            taints: Vec::new(),
            price_milli: None,
            network: BTreeMap::new(),
            apis: None,
            usable: true,
            unusable_because: String::new(),
        }
    }

    #[test]
    fn clusters_are_selected_by_provider_region_and_zones() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        let full = cluster("p", "r", &["z1", "z2"]);
        let bare = cluster("", "", &[]);
        // Whether it selects the cluster that tells all, and the one that tells nothing.
        let cases: &[(&str, Operator, &[&str], bool, bool)] = &[
            ("provider", In, &["p", "x"], true, false),
            ("provider", In, &["z1", "z2"], false, false),
            ("provider", NotIn, &["p"], false, true),
            ("provider", Exists, &[], true, false),
            ("region", In, &["r"], true, false),
            ("region", In, &["p"], false, false),
            ("region", NotIn, &["x"], true, true),
            ("region", DoesNotExist, &[], false, true),
            ("zone", In, &["z1", "z2", "z3"], true, false),
            ("zone", In, &["z1"], false, false),
            ("zone", NotIn, &["z2"], false, true),
            ("zone", NotIn, &["z3"], true, true),
            ("zone", Exists, &[], true, false),
            ("zone", DoesNotExist, &[], false, true),
            ("zone", Gt, &["1"], false, false),
            ("zone", Lt, &["1"], false, false),
            ("continent", NotIn, &["x"], false, false),
        ];
        for (key, operator, values, of_full, of_bare) in cases {
            let rule = ClusterRule {
                fields: vec![Requirement {
                    key: (*key).to_owned(),
                    operator: *operator,
                    values: values.iter().map(|value| (*value).to_owned()).collect(),
                }],
                ..ClusterRule::default()
            };
            let selects = (rule.selects(&full), rule.selects(&bare));
            assert_eq!(
                selects,
                (*of_full, *of_bare),
                "{key} {operator:?} {values:?}"
            );
        }
    }

    #[test]
    fn numbers_are_compared_as_numbers_and_what_is_none_meets_nothing() {
        use Operator::{Gt, Lt};
        // The label, the bound, whether it is greater and whether it is less.
        let cases: &[(Option<&str>, &[&str], bool, bool)] = &[
            (Some("9"), &["10"], false, true),
            (Some("10"), &["10"], false, false),
            (Some("11"), &["10"], true, false),
            (Some("-1"), &["0"], false, true),
            (Some("many"), &["10"], false, false),
            (Some("9"), &["many"], false, false),
            (Some("9"), &[], false, false),
            (None, &["10"], false, false),
        ];
        for (value, values, greater, less) in cases {
            let meets = |operator| {
                let values = values.iter().map(|value| (*value).to_owned());
                let requirement = Requirement {
                    key: "generation".to_owned(),
                    operator,
                    values: values.collect(),
                };
                requirement.matches(*value)
            };
            assert_eq!(
                (meets(Gt), meets(Lt)),
                (*greater, *less),
                "{value:?} and {values:?}"
            );
        }
    }

    #[test]
    fn a_field_of_a_node_is_its_name_and_no_other() {
        let on = |key: &str| NodeTerm {
            labels: Vec::new(),
            fields: vec![Requirement {
                key: key.to_owned(),
                operator: Operator::In,
                values: vec!["n0".to_owned()],
            }],
        };
        let labels = BTreeMap::from([("metadata.name".to_owned(), "n1".to_owned())]);
        assert!(on("metadata.name").matches("n0", &labels));
        assert!(!on("metadata.name").matches("n1", &labels));
        assert!(!on("spec.name").matches("n0", &labels));
    }

    #[test]
    fn a_toleration_is_for_its_key_its_value_and_its_effect() {
        use TaintEffect::{NoExecute, NoSchedule};
        let taint = Taint {
            key: "dedicated".to_owned(),
            value: "ml".to_owned(),
            effect: NoSchedule,
        };
        let cases: &[(&str, Option<&str>, Option<TaintEffect>, bool)] = &[
            ("dedicated", Some("ml"), Some(NoSchedule), true),
            ("dedicated", Some("web"), Some(NoSchedule), false),
            ("dedicated", Some("ml"), Some(NoExecute), false),
            ("dedicated", None, None, true),
            ("", None, None, true),
            ("", None, Some(NoExecute), false),
            ("other", None, None, false),
        ];
        for (key, value, effect, tolerates) in cases {
            let toleration = Toleration {
                key: (*key).to_owned(),
                value: value.map(ToOwned::to_owned),
                effect: *effect,
            };
            let kept_out = untolerated(std::slice::from_ref(&taint), &[toleration]);
            assert_eq!(
                kept_out.is_none(),
                *tolerates,
                "{key:?} {value:?} {effect:?}"
            );
        }
    }
}
