//! What the engine is told of a policy. Every field is enforced; a value that cannot be used
//! makes the fact invalid, which stops the queue and says why.

use super::{
    Backfill, Bounds, CapacityPolicy, FairShare, Limits, Ordering, Placement, Pool, Preemption,
    Split,
};
use crate::duration;
use crate::loose::{Loose, QuantityList, QuantityText, resources};
use crate::queue::FIFO;
use engine::facts::{self, Filters, PlacementWeights, PolicyFact, PoolBound, QueueOrdering};
use engine::matching::{Operator, Requirement};
use engine::plugins::UnknownFilter;
use engine::{ClusterName, PoolClass, QueueName, Resources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;
use workload::Addresses;

/// Milliseconds in which a released gang must have its minimum bound, where nothing is said.
pub const DEFAULT_START_DEADLINE_MS: i64 = 600_000;

impl Ordering {
    fn to_fact(self) -> QueueOrdering {
        match self {
            Self::StrictFifo => QueueOrdering::StrictFifo,
            Self::BestEffort => QueueOrdering::BestEffort,
            Self::Backfill => QueueOrdering::Backfill,
            Self::ShortestPredicted => QueueOrdering::ShortestPredicted,
        }
    }
}

impl CapacityPolicy {
    /// What the engine is told of it. `dequeue_strategy` is that of the Queue of the same name,
    /// which decides where the policy leaves the ordering open.
    #[must_use]
    pub fn to_fact(&self, dequeue_strategy: Option<&str>) -> PolicyFact {
        let spec = &self.spec;
        let mut checks = Checks::default();
        let pools = (0..).zip(&spec.pools);
        let placement = spec.placement.clone().unwrap_or_default();
        PolicyFact {
            queue: QueueName::new(self.metadata.name.as_deref().unwrap_or_default()),
            pools: pools
                .map(|(index, pool)| pool.bound(index, &mut checks))
                .collect(),
            ordering: self.ordering(dequeue_strategy, &mut checks),
            backfill: spec
                .backfill
                .as_ref()
                .map_or_else(facts::Backfill::default, |backfill| {
                    backfill.to_fact(&mut checks)
                }),
            fair_share: spec
                .fair_share
                .as_ref()
                .map_or_else(facts::FairShare::default, |fair_share| {
                    fair_share.to_fact(&mut checks)
                }),
            preemption: spec
                .preemption
                .as_ref()
                .map_or_else(facts::Preemption::default, |preemption| {
                    preemption.to_fact(&mut checks)
                }),
            limits: spec
                .limits
                .as_ref()
                .map_or_else(facts::Limits::default, |limits| limits.to_fact(&mut checks)),
            max_clusters: checks.at_least(
                "spec.placement.maxClusters",
                placement.max_clusters.map(i64::from),
                1,
            ),
            weights: weights(&placement.weights, &mut checks),
            start_deadline_ms: checks
                .duration(
                    "spec.placement.startDeadline",
                    placement.start_deadline.as_deref(),
                    0,
                )
                .unwrap_or(DEFAULT_START_DEADLINE_MS),
            preferred_clusters: placement
                .preferred_clusters
                .iter()
                .map(ClusterName::new)
                .collect(),
            invalid: {
                if let Some(Loose::Unknown(word)) = &placement.split {
                    checks.fail(format!(
                        "spec.placement.split: {word} is not known; Never, Allowed or Preferred is needed"
                    ));
                }
                if let Err(error) = chosen(&placement) {
                    checks.fail(format!("spec.placement.filters: {error}"));
                }
                for (cluster, text) in &placement.addresses {
                    if let Err(error) = Addresses::check(text) {
                        checks.fail(format!(
                            "spec.placement.addresses[{cluster}]: {text:?}: {error}"
                        ));
                    }
                }
                checks.first
            },
        }
    }

    /// The filters that it chooses for its queue's jobs; a name that is not known chooses none,
    /// and [`Self::to_fact`] tells.
    #[must_use]
    pub fn filters(&self) -> Filters {
        let placement = self.spec.placement.as_ref();
        let chosen = placement.and_then(|placement| chosen(placement).ok());
        chosen.unwrap_or_default()
    }

    /// Whether jobs of the queue that do not say themselves are placed over several clusters;
    /// a word that is not known says no, and [`Self::to_fact`] tells.
    #[must_use]
    pub fn split(&self) -> facts::Split {
        let placement = self.spec.placement.as_ref();
        match placement.and_then(|placement| placement.split.as_ref()?.known()) {
            None | Some(Split::Never) => facts::Split::Never,
            Some(Split::Allowed) => facts::Split::Allowed,
            Some(Split::Preferred) => facts::Split::Preferred,
        }
    }

    /// How pods of other clusters are reached; those that are no use among them.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        let placement = self.spec.placement.as_ref();
        placement.map_or_else(Addresses::default, |placement| {
            Addresses::new(&placement.addresses)
        })
    }

    /// Whether a namespace with `labels` may submit to the queue.
    #[must_use]
    pub fn admits_namespace(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let Some(selector) = &self.spec.namespace_selector else {
            return true;
        };
        let none = BTreeMap::new();
        selects(selector, labels.unwrap_or(&none))
    }

    fn ordering(&self, dequeue_strategy: Option<&str>, checks: &mut Checks) -> QueueOrdering {
        match (&self.spec.ordering, dequeue_strategy) {
            (Some(Loose::Known(ordering)), _) => ordering.to_fact(),
            (Some(Loose::Unknown(word)), _) => {
                checks.fail(format!(
                    "spec.ordering: {word} is not known; StrictFIFO, BestEffort, Backfill or ShortestPredicted is needed"
                ));
                QueueOrdering::default()
            }
            (None, Some(FIFO)) => QueueOrdering::StrictFifo,
            (None, _) => QueueOrdering::default(),
        }
    }
}

/// Reads values, and keeps the first that cannot be used.
#[derive(Default)]
struct Checks {
    first: Option<String>,
}

impl Checks {
    fn fail(&mut self, problem: String) {
        self.first.get_or_insert(problem);
    }

    /// A number of at least `least`; what is more than is ever counted to is as good as that.
    fn at_least(&mut self, field: &str, value: Option<i64>, least: i64) -> Option<u32> {
        let value = value?;
        if value < least {
            self.fail(format!(
                "{field}: {value} is too small; {least} or more is needed"
            ));
            return None;
        }
        Some(u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// Milliseconds, at least `least`.
    fn duration(&mut self, field: &str, text: Option<&str>, least: i64) -> Option<i64> {
        match duration::parse_millis(text?) {
            Ok(millis) if millis >= least => Some(millis),
            Ok(_) => {
                self.fail(format!(
                    "{field}: {:?} is too short; more than 0 is needed",
                    text.unwrap_or_default()
                ));
                None
            }
            Err(error) => {
                self.fail(format!("{field}: {error}"));
                None
            }
        }
    }
}

impl Pool {
    fn bound(&self, index: usize, checks: &mut Checks) -> PoolBound {
        if self.class.is_empty() {
            checks.fail(format!("spec.pools[{index}].class is missing"));
        }
        let mut amounts = |field: &str, of: fn(&Bounds) -> &Option<QuantityText>| {
            let named = self.resources.iter();
            let list: QuantityList = named
                .filter_map(|(name, bounds)| Some((name.clone(), of(bounds).clone()?)))
                .collect();
            resources(&format!("spec.pools[{index}].{field}"), &list).unwrap_or_else(|problem| {
                checks.fail(problem);
                Resources::new()
            })
        };
        PoolBound {
            class: PoolClass::new(&self.class),
            guarantee: amounts("guarantee", |bounds| &bounds.guarantee),
            deserved: amounts("deserved", |bounds| &bounds.deserved),
            capability: amounts("capability", |bounds| &bounds.capability),
            clusters: self
                .clusters
                .as_ref()
                .map(|names| names.iter().map(ClusterName::new).collect()),
        }
    }
}

impl Backfill {
    fn to_fact(&self, checks: &mut Checks) -> facts::Backfill {
        facts::Backfill {
            conservative: self.conservative.unwrap_or(false),
            reservations: checks.at_least(
                "spec.backfill.reservations",
                self.reservations.map(i64::from),
                1,
            ),
        }
    }
}

impl FairShare {
    fn to_fact(&self, checks: &mut Checks) -> facts::FairShare {
        facts::FairShare {
            weight: checks.at_least("spec.fairShare.weight", self.weight.map(i64::from), 1),
            usage_half_life_ms: checks.duration(
                "spec.fairShare.usageHalfLife",
                self.usage_half_life.as_deref(),
                1,
            ),
        }
    }
}

impl Preemption {
    fn to_fact(&self, checks: &mut Checks) -> facts::Preemption {
        let unset = facts::Preemption::default();
        let field = "spec.preemption.minRuntime";
        facts::Preemption {
            within_queue: self.within_queue.unwrap_or(unset.within_queue),
            reclaim: self.reclaim.unwrap_or(unset.reclaim),
            min_runtime_ms: checks
                .duration(field, self.min_runtime.as_deref(), 0)
                .unwrap_or(unset.min_runtime_ms),
        }
    }
}

impl Limits {
    fn to_fact(&self, checks: &mut Checks) -> facts::Limits {
        facts::Limits {
            jobs: checks.at_least("spec.limits.jobs", self.jobs, 0),
            jobs_per_user: checks.at_least("spec.limits.jobsPerUser", self.jobs_per_user, 0),
            pending: checks.at_least("spec.limits.pending", self.pending, 0),
            runtime_ms: checks.duration("spec.limits.runtime", self.runtime.as_deref(), 1),
        }
    }
}

fn chosen(placement: &Placement) -> Result<Filters, UnknownFilter> {
    placement.filters.as_ref().map_or_else(
        || Ok(Filters::default()),
        |names| Filters::named(names.iter().map(String::as_str)),
    )
}

/// Stated weights in the place of those that hold unset.
fn weights(stated: &BTreeMap<String, i32>, checks: &mut Checks) -> PlacementWeights {
    let mut all = PlacementWeights::default();
    for (score, weight) in stated {
        let field = format!("spec.placement.weights.{score}");
        let weight = checks.at_least(&field, Some(i64::from(*weight)), 0);
        match all.with(score, weight.unwrap_or(0)) {
            Ok(with) => all = with,
            Err(error) => checks.fail(format!("spec.placement.weights: {error}")),
        }
    }
    all
}

/// Whether `selector` selects `labels`; an operator that is not known selects nothing.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten();
    let mut requirements = selector.match_expressions.iter().flatten();
    equal
        .into_iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && requirements.all(|requirement| {
            let operator = match requirement.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return false,
            };
            let requirement = Requirement {
                key: requirement.key.clone(),
                operator,
                values: requirement.values.clone().unwrap_or_default(),
            };
            requirement.matches(labels.get(&requirement.key).map(String::as_str))
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn policy(spec: Value) -> CapacityPolicy {
        serde_json::from_value(json!({
            "apiVersion": "muster.io/v1alpha1", "kind": "CapacityPolicy",
            "metadata": {"name": "team-a"}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn an_empty_policy_follows_its_queue() {
        let empty = policy(json!({}));
        for (strategy, want) in [
            (None, QueueOrdering::Backfill),
            (Some("traverse"), QueueOrdering::Backfill),
            (Some("fifo"), QueueOrdering::StrictFifo),
        ] {
            let fact = empty.to_fact(strategy);
            assert_eq!(
                (fact.ordering, fact.start_deadline_ms, fact.invalid),
                (want, 600_000, None)
            );
        }
        let stated = policy(json!({"ordering": "BestEffort"}));
        assert_eq!(
            stated.to_fact(Some("fifo")).ordering,
            QueueOrdering::BestEffort
        );
    }

    #[test]
    fn bounds_and_placement_become_facts() {
        let fact = policy(json!({
            "pools": [
                {"class": "h100", "resources": {"nvidia.com/gpu": {"capability": 16, "deserved": 8}}},
                {"class": "cpu", "clusters": ["b", "a"], "resources": {"cpu": {"guarantee": 1}}},
            ],
            "placement": {"preferredClusters": ["b", "a"], "startDeadline": "1m30s"},
        }))
        .to_fact(None);
        assert_eq!(fact.pools[0].capability.to_string(), "nvidia.com/gpu 16");
        assert_eq!(fact.pools[0].clusters, None);
        assert!(fact.pools[1].capability.is_empty());
        assert_eq!(fact.pools[1].clusters.as_ref().unwrap().len(), 2);
        assert_eq!(fact.preferred_clusters, ["b".into(), "a".into()]);
        assert_eq!((fact.start_deadline_ms, fact.invalid), (90_000, None));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (spec, want) in [
            (
                json!({"pools": [{"class": "a"}, {"class": "b", "resources": {"cpu": {"capability": "4x"}}}]}),
                "spec.pools[1].capability[cpu]: quantity \"4x\" is not a number with an optional suffix (like 500m, 2, 1.5Gi or 1e3)",
            ),
            (
                json!({"placement": {"startDeadline": "soon"}}),
                "spec.placement.startDeadline: \"soon\" is not a duration; digits with units h, m, s or ms are needed, like 90s or 1h30m",
            ),
            (json!({"pools": [{}]}), "spec.pools[0].class is missing"),
            (
                json!({"placement": {"split": "Maybe"}}),
                "spec.placement.split: \"Maybe\" is not known; Never, Allowed or Preferred is needed",
            ),
            (
                json!({"placement": {"addresses": {"gpu-a": "{host}.a", "gpu-b": "{pod}.b"}}}),
                "spec.placement.addresses[gpu-b]: \"{pod}.b\": {pod} is not known; {host}, {namespace} and {cluster} are put in",
            ),
            (
                json!({"placement": {"weights": {"cost": 3}}}),
                "spec.placement.weights: \"cost\" is no score; one of fragmentation, data, network, price, spread is needed",
            ),
            (
                json!({"placement": {"weights": {"price": -3}}}),
                "spec.placement.weights.price: -3 is too small; 0 or more is needed",
            ),
            (
                json!({"placement": {"filters": ["DataRegion", "TaintToleration"]}}),
                "spec.placement.filters: \"TaintToleration\" is no filter that can be chosen; one of APIEnablement, DataRegion is needed",
            ),
            (
                json!({"ordering": "Auction"}),
                "spec.ordering: \"Auction\" is not known; StrictFIFO, BestEffort, Backfill or ShortestPredicted is needed",
            ),
            (
                json!({"fairShare": {"usageHalfLife": "0s"}}),
                "spec.fairShare.usageHalfLife: \"0s\" is too short; more than 0 is needed",
            ),
            (
                json!({"limits": {"jobs": -1}}),
                "spec.limits.jobs: -1 is too small; 0 or more is needed",
            ),
            (
                json!({"pools": [{"class": "a", "resources": {"cpu": {"deserved": "-2"}}}]}),
                "spec.pools[0].deserved[cpu]: quantity \"-2\" is negative; 0 or more is needed",
            ),
        ] {
            assert_eq!(policy(spec).to_fact(None).invalid.unwrap(), want);
        }
    }

    #[test]
    fn every_field_becomes_a_fact() {
        let all = policy(json!({
            "pools": [{"class": "a", "resources": {"cpu": {"guarantee": 1, "deserved": 2, "capability": 3}}}],
            "ordering": "ShortestPredicted",
            "backfill": {"conservative": true, "reservations": 4},
            "fairShare": {"weight": 2, "usageHalfLife": "24h"},
            "preemption": {"withinQueue": true, "reclaim": false, "minRuntime": "5m"},
            "limits": {"jobs": 3, "jobsPerUser": 0, "pending": 5_000_000_000_i64, "runtime": "1h"},
            "placement": {"maxClusters": 2, "weights": {"price": 7}},
        }))
        .to_fact(Some("fifo"));
        assert_eq!(all.invalid, None);
        let bound = &all.pools[0];
        assert_eq!(
            [&bound.guarantee, &bound.deserved, &bound.capability].map(ToString::to_string),
            ["cpu 1", "cpu 2", "cpu 3"]
        );
        assert_eq!(all.ordering, QueueOrdering::ShortestPredicted);
        assert_eq!(
            (all.backfill.conservative, all.backfill.reservations),
            (true, Some(4))
        );
        assert_eq!(
            (all.fair_share.weight, all.fair_share.usage_half_life_ms),
            (Some(2), Some(86_400_000))
        );
        assert_eq!(
            all.preemption,
            facts::Preemption {
                within_queue: true,
                reclaim: false,
                min_runtime_ms: 300_000
            }
        );
        assert_eq!(
            all.limits,
            facts::Limits {
                jobs: Some(3),
                jobs_per_user: Some(0),
                pending: Some(u32::MAX),
                runtime_ms: Some(3_600_000),
            }
        );
        assert_eq!(all.max_clusters, Some(2));
        assert_eq!(
            all.weights,
            PlacementWeights::default().with("price", 7).unwrap()
        );
    }

    #[test]
    fn namespaces_are_selected_as_kubernetes_selects() {
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        for (selector, want) in [
            (json!(null), true),
            (json!({}), true),
            (json!({"matchLabels": {"team": "a"}}), true),
            (json!({"matchLabels": {"team": "b"}}), false),
            (
                json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "stage", "operator": "NotIn", "values": ["x"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "stage", "operator": "Exists"}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "team", "operator": "Like", "values": ["a"]}]}),
                false,
            ),
        ] {
            let policy = policy(json!({"namespaceSelector": selector}));
            assert_eq!(policy.admits_namespace(Some(&labels)), want, "{selector}");
        }
    }
}
