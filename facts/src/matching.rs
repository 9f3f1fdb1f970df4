//! Label requirements, taints and tolerations as in Kubernetes and Karmada, for nodes and
//! clusters.

use crate::ids::{ClusterName, NodeName};
use crate::objects::{ClusterFact, NodeFact};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The operator of a requirement (`NodeSelectorOperator`, `LabelSelectorOperator`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The value is one of the values.
    In,
    /// The value is none of the values, or the key is absent.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The value is an integer greater than the first of the values.
    Gt,
    /// The value is an integer less than the first of the values.
    Lt,
}

/// One requirement on a label or field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// The label or field.
    pub key: String,
    /// How its value is compared.
    pub operator: Operator,
    /// The values that it is compared with.
    pub values: Vec<String>,
}

impl Requirement {
    /// Returns true if `value` meets the requirement; `None` if it is absent.
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

/// Requirements that a node must all meet; a node matches a pod if it meets any of its terms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodeTerm {
    /// Requirements on labels (`matchExpressions`, `nodeSelector`).
    pub labels: Vec<Requirement>,
    /// Requirements on fields (`matchFields`): only `metadata.name`, and [`CLUSTER_NODE`].
    pub fields: Vec<Requirement>,
}

/// The field whose value is the cluster and the name of a node: `gpu-a/node7`. Names of nodes are unique in their
/// clusters only.
pub const CLUSTER_NODE: &str = "muster.io/node";

impl NodeTerm {
    /// Returns true if a node meets every requirement.
    #[must_use]
    pub fn matches(&self, node: &NodeFact) -> bool {
        let field = |requirement: &Requirement| match requirement.key.as_str() {
            "metadata.name" => requirement.matches(Some(node.name.as_str())),
            CLUSTER_NODE => requirement.matches(Some(&cluster_node(&node.cluster, &node.name))),
            _ => requirement.matches(None),
        };
        self.labels
            .iter()
            .all(|r| r.matches(node.labels.get(&r.key).map(String::as_str)))
            && self.fields.iter().all(field)
    }
}

/// Adds to `terms`, those of a role, that its pods keep off some nodes of some clusters.
pub fn keep_off<'a>(
    terms: &mut Vec<NodeTerm>,
    nodes: impl IntoIterator<Item = (&'a ClusterName, &'a NodeName)>,
) {
    let nodes = nodes.into_iter();
    let values: Vec<String> = nodes
        .map(|(cluster, node)| cluster_node(cluster, node))
        .collect();
    if values.is_empty() {
        return;
    }
    if terms.is_empty() {
        terms.push(NodeTerm::default());
    }
    for term in terms {
        term.fields.push(Requirement {
            key: CLUSTER_NODE.to_owned(),
            operator: Operator::NotIn,
            values: values.clone(),
        });
    }
}

fn cluster_node(cluster: &ClusterName, node: &NodeName) -> String {
    format!("{cluster}/{node}")
}

/// The effect of a taint on pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// New pods are kept away.
    NoSchedule,
    /// New pods are kept away if possible. Muster ignores it.
    PreferNoSchedule,
    /// New pods are kept away, and running pods are evicted.
    NoExecute,
}

/// A taint of a node or cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, empty if there is none.
    pub value: String,
    /// Its effect.
    pub effect: TaintEffect,
}

/// A toleration of a pod or a placement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// The key; empty for every key.
    pub key: String,
    /// The value; `None` for every value (operator Exists).
    pub value: Option<String>,
    /// The effect; `None` for every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    fn tolerates(&self, taint: &Taint) -> bool {
        if taint.key == ENDS_AT
            && let Some(lasts) = self.value.as_ref().filter(|_| self.key == ENDS_AT)
        {
            let number = |text: &str| text.parse::<i32>().ok();
            return number(lasts)
                .zip(number(&taint.value))
                .is_some_and(|(lasts, left)| lasts <= left);
        }
        (self.key.is_empty() || self.key == taint.key)
            && self.effect.is_none_or(|effect| effect == taint.effect)
            && self
                .value
                .as_ref()
                .is_none_or(|value| *value == taint.value)
    }
}

/// The key of the taint of a cluster that an operator has declared out of service: nothing runs there any more, as far
/// as anybody can know.
pub const OUT_OF_SERVICE: &str = "muster.io/out-of-service";

/// The key of the taint of a cluster that is being removed from the federation. Karmada removes
/// everything from such a cluster at once, so no toleration applies.
pub const LEAVING: &str = "muster.io/leaving";

/// The key of the taint of a node that ends at a known time. Its value says for how long jobs may still run there,
/// as a power of two of minutes, and the value of a toleration for how long a job runs: a longer one is not placed
/// there. A toleration without a value tolerates it always: such a job does not mind to be moved.
pub const ENDS_AT: &str = "muster.io/ends-at";

/// The value of the taint of a node on which jobs may run for `ms` more milliseconds: the power of two of minutes,
/// rounded down; -1 if that is less than a minute.
#[must_use]
pub fn left_for(ms: i64) -> i32 {
    let minutes = u64::try_from(ms / 60_000).unwrap_or(0);
    minutes
        .checked_ilog2()
        .and_then(|power| i32::try_from(power).ok())
        .unwrap_or(-1)
}

/// The taint of a node that ends, with a value of [`left_for`].
#[must_use]
pub fn ends_taint(value: i32) -> Taint {
    Taint {
        key: ENDS_AT.to_owned(),
        value: value.to_string(),
        effect: TaintEffect::NoSchedule,
    }
}

/// The toleration of a job that runs for at most `ms` milliseconds. The power of two is rounded up.
#[must_use]
pub fn ends_toleration(ms: i64) -> Toleration {
    let minutes = u64::try_from(ms).unwrap_or(0).div_ceil(60_000).max(1);
    let power = minutes.next_power_of_two().ilog2();
    Toleration {
        key: ENDS_AT.to_owned(),
        value: Some(power.to_string()),
        effect: None,
    }
}

/// The first taint that `tolerations` do not tolerate, if there is one.
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

/// A Karmada `ClusterAffinity`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ClusterRule {
    /// `affinityName`; empty if the placement has one group only.
    pub name: String,
    /// `clusterNames`; `None` for any.
    pub names: Option<BTreeSet<ClusterName>>,
    /// `exclude`.
    pub exclude: BTreeSet<ClusterName>,
    /// `labelSelector`, `matchLabels` merged in.
    pub labels: Vec<Requirement>,
    /// `fieldSelector` on `provider`, `region` and `zone`.
    pub fields: Vec<Requirement>,
}

impl ClusterRule {
    /// Returns true if it selects `cluster`.
    #[must_use]
    pub fn selects(&self, cluster: &ClusterFact) -> bool {
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

/// Returns true if `cluster` meets a requirement on its fields, as in Karmada (pkg/util/selector.go): an
/// empty provider or region counts as absent; In needs all zones to be named, NotIn none.
fn matches_field(requirement: &Requirement, cluster: &ClusterFact) -> bool {
    let matches = |value: &str| requirement.matches((!value.is_empty()).then_some(value));
    let zones = &cluster.zones;
    let named = |zone: &String| requirement.values.contains(zone);
    match requirement.key.as_str() {
        "provider" => matches(&cluster.provider),
        "region" => matches(&cluster.region),
        "zone" => match requirement.operator {
            Operator::In => !zones.is_empty() && zones.iter().all(named),
            Operator::NotIn => !zones.iter().any(named),
            Operator::Exists => !zones.is_empty(),
            Operator::DoesNotExist => zones.is_empty(),
            Operator::Gt | Operator::Lt => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PoolClass;
    use crate::resources::Resources;
    use std::collections::BTreeMap;

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
            paused: None,
        }
    }

    #[test]
    fn clusters_are_selected_by_provider_region_and_zones() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        let full = cluster("p", "r", &["z1", "z2"]);
        let bare = cluster("", "", &[]);
        // Whether it selects the cluster with all fields, and the one with none.
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
    fn gt_and_lt_compare_integers_and_fail_for_other_values() {
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
    fn the_only_field_of_a_node_is_its_name() {
        let on = |key: &str| NodeTerm {
            labels: Vec::new(),
            fields: vec![Requirement {
                key: key.to_owned(),
                operator: Operator::In,
                values: vec!["n0".to_owned()],
            }],
        };
        let labels = BTreeMap::from([("metadata.name".to_owned(), "n1".to_owned())]);
        let node = |name: &str| NodeFact {
            labels: labels.clone(),
            ..node("a", name)
        };
        assert!(on("metadata.name").matches(&node("n0")));
        assert!(!on("metadata.name").matches(&node("n1")));
        assert!(!on("spec.name").matches(&node("n0")));
    }

    fn node(cluster: &str, name: &str) -> NodeFact {
        NodeFact {
            cluster: ClusterName::new(cluster),
            name: NodeName::new(name),
            class: PoolClass::from("h100"),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            domains: Vec::new(),
            allocatable: Resources::new(),
            usable: true,
            lost: false,
        }
    }

    #[test]
    fn a_job_keeps_off_a_node_of_one_cluster() {
        let (a, n0) = (ClusterName::new("a"), NodeName::new("n0"));
        let zone = Requirement {
            key: "zone".to_owned(),
            operator: Operator::DoesNotExist,
            values: Vec::new(),
        };
        let of_zone = NodeTerm {
            labels: vec![zone],
            fields: Vec::new(),
        };
        for before in [Vec::new(), vec![of_zone.clone(), of_zone]] {
            let mut terms = before.clone();
            keep_off(&mut terms, []);
            assert_eq!(terms, before);
            keep_off(&mut terms, [(&a, &n0)]);
            assert!(!terms.iter().any(|term| term.matches(&node("a", "n0"))));
            assert!(terms.iter().all(|term| term.matches(&node("a", "n1"))));
            assert!(terms.iter().all(|term| term.matches(&node("b", "n0"))));
        }
    }

    #[test]
    fn a_toleration_matches_key_value_and_effect() {
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
    #[test]
    fn a_job_goes_to_a_node_that_ends_only_if_it_ends_before() {
        const MINUTE: i64 = 60_000;
        let tolerates = |lasts: i64, left: i64| {
            let taints = [ends_taint(left_for(left))];
            untolerated(&taints, &[ends_toleration(lasts)]).is_none()
        };
        for lasts in [1, 2, 3, 59, 60, 61, 64, 1_000] {
            for left in [-5, 0, 1, 3, 60, 63, 64, 127, 128, 5_000] {
                let goes = tolerates(lasts * MINUTE, left * MINUTE);
                assert!(!goes || lasts <= left, "{lasts} of {left}");
                // Both are rounded, by less than half.
                assert!(goes || 4 * lasts > left, "{lasts} of {left}");
            }
        }
        assert!(tolerates(0, MINUTE) && !tolerates(0, MINUTE - 1));
        let none = [ends_taint(left_for(9_999 * MINUTE))];
        assert_eq!(untolerated(&none, &[]), Some(&none[0]));
        let always = Toleration {
            key: ENDS_AT.to_owned(),
            value: None,
            effect: None,
        };
        assert_eq!(untolerated(&[ends_taint(-1)], &[always]), None);
    }
}
