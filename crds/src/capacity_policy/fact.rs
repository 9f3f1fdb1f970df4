//! Converts a policy into a fact for the engine. Every field is enforced; an invalid value makes the fact
//! invalid, which stops the queue and says why.

use super::{
    CapacityPolicy, CapacityPolicyBackfill, CapacityPolicyBackfillMode, CapacityPolicyBounds,
    CapacityPolicyEvictOverdue, CapacityPolicyFairShare, CapacityPolicyFairShareWithin,
    CapacityPolicyLimits, CapacityPolicyOrdering, CapacityPolicyPlacement, CapacityPolicyPool,
    CapacityPolicyPrePull, CapacityPolicyPreemptableLabel, CapacityPolicyPreemption,
    CapacityPolicyPreemptionWithinQueue, CapacityPolicyReclaim, CapacityPolicySpare,
    CapacityPolicySplit, CapacityPolicyStop, Tenancy,
};
use crate::loose::{Loose, QuantityList, QuantityText, at_least, resources};
use crate::muster_config::{self, MusterConfig};
use crate::queue::FIFO;
use facts::plugins::UnknownPlugin;
use facts::{
    ClusterName, Filters, PlacementWeights, PolicyFact, PoolBound, PoolClass, QueueName,
    QueueOrdering, Resources, StopPolicy,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use schemars::JsonSchema;
use std::collections::BTreeMap;
use workload::Addresses;

/// Default of startDeadlineSeconds in milliseconds.
pub const DEFAULT_START_DEADLINE_MS: i64 = 600_000;

impl CapacityPolicyOrdering {
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
    /// Returns the fact for the engine. `dequeue_strategy` is that of the Queue of the same name, which
    /// decides if the policy has no ordering.
    #[must_use]
    pub fn to_fact(&self, dequeue_strategy: Option<&str>) -> PolicyFact {
        let spec = &self.spec;
        let mut checks = Checks::default();
        let pools = (0..).zip(&spec.pools);
        let placement = spec.placement.clone().unwrap_or_default();
        let ordering = self.ordering(dequeue_strategy, &mut checks);
        let within = spec.fair_share.as_ref().and_then(|of| of.within.as_ref());
        let orders_users = within == Some(&Loose::Known(CapacityPolicyFairShareWithin::User));
        PolicyFact {
            queue: QueueName::new(self.metadata.name.as_deref().unwrap_or_default()),
            pools: pools
                .map(|(index, pool)| pool.bound(index, &mut checks))
                .collect(),
            ordering,
            ageing: self.ageing(&mut checks),
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
                .seconds(
                    "spec.placement.startDeadlineSeconds",
                    placement.start_deadline_seconds,
                    0,
                )
                .unwrap_or(DEFAULT_START_DEADLINE_MS),
            recovery_deadline_ms: checks.seconds(
                "spec.placement.recoveryDeadlineSeconds",
                placement.recovery_deadline_seconds,
                0,
            ),
            spare: spec
                .spare
                .as_ref()
                .and_then(|spare| spare.to_fact(&mut checks)),
            stop: self.stop(&mut checks),
            preferred_clusters: placement
                .preferred_clusters
                .iter()
                .map(ClusterName::new)
                .collect(),
            invalid: {
                if ordering == QueueOrdering::StrictFifo && orders_users {
                    checks.fail(
                        "spec.fairShare.within: User lets jobs pass each other, and the ordering is StrictFIFO; name \
                         another spec.ordering"
                            .to_owned(),
                    );
                }
                self.check_quota(&mut checks);
                checks.word("spec.tenancy", spec.tenancy.as_ref());
                checks.word("spec.placement.split", placement.split.as_ref());
                checks.word("spec.placement.prePull", placement.pre_pull.as_ref());
                if let Err(error) = chosen(&placement) {
                    checks.fail(format!("spec.placement.filters: {error}"));
                }
                if let Some(retries) = &spec.retries {
                    checks.at_least("spec.retries.infrastructure", retries.infrastructure, 0);
                    checks.at_least("spec.retries.user", retries.user, 0);
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

    /// Returns the filters for its queue's jobs; an unknown name chooses none, and [`Self::to_fact`] reports
    /// it.
    #[must_use]
    pub fn filters(&self) -> Filters {
        let placement = self.spec.placement.as_ref();
        let chosen = placement.and_then(|placement| chosen(placement).ok());
        chosen.unwrap_or_default()
    }

    /// Returns whether jobs of the queue are split by default; an unknown word counts as no, and
    /// [`Self::to_fact`] reports it.
    #[must_use]
    pub fn split(&self) -> facts::Split {
        let placement = self.spec.placement.as_ref();
        match placement.and_then(|placement| placement.split.as_ref()?.known()) {
            None | Some(CapacityPolicySplit::Never) => facts::Split::Never,
            Some(CapacityPolicySplit::Allowed) => facts::Split::Allowed,
            Some(CapacityPolicySplit::Preferred) => facts::Split::Preferred,
        }
    }

    /// Returns true if the nodes that are reserved for a job pull its images; an unknown word counts as no, and
    /// [`Self::to_fact`] reports it.
    #[must_use]
    pub fn pre_pulls(&self) -> bool {
        let placement = self.spec.placement.as_ref();
        let stated = placement.and_then(|placement| placement.pre_pull.as_ref()?.known());
        stated == Some(&CapacityPolicyPrePull::Reserved)
    }

    /// Returns true if its jobs may opt out of eviction by their label; an unknown word counts as yes, and
    /// [`Self::to_fact`] reports it.
    #[must_use]
    pub fn honors_preemptable_label(&self) -> bool {
        let preemption = self.spec.preemption.as_ref();
        let stated = preemption.and_then(|rules| rules.preemptable_label.as_ref()?.known());
        stated != Some(&CapacityPolicyPreemptableLabel::Ignore)
    }

    /// Returns how pods of other clusters are reached, including invalid addresses.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        let placement = self.spec.placement.as_ref();
        placement.map_or_else(Addresses::default, |placement| {
            Addresses::new(&placement.addresses)
        })
    }

    /// Returns who may submit if it selects no namespaces. An unknown word closes the queue, and
    /// [`Self::to_fact`] reports it.
    #[must_use]
    pub fn tenancy(&self) -> Option<Tenancy> {
        let stated = self.spec.tenancy.as_ref()?;
        Some(stated.known().copied().unwrap_or(Tenancy::Closed))
    }

    fn ageing(&self, checks: &mut Checks) -> Option<facts::Ageing> {
        let ageing = self.spec.ageing.as_ref()?;
        let field = "spec.ageing.intervalSeconds";
        if ageing.interval_seconds.is_none() {
            checks.fail(format!("{field} is missing; 1 or more is needed"));
        }
        let every_ms = checks.seconds(field, ageing.interval_seconds, 1)?;
        let increment = ageing.increment.map(i64::from);
        let raise = checks.at_least("spec.ageing.increment", increment, 1);
        Some(facts::Ageing {
            every_ms,
            raise: raise.unwrap_or(1),
            classes: self.spec.priority_classes.clone(),
        })
    }

    fn stop(&self, checks: &mut Checks) -> Option<StopPolicy> {
        match checks.word("spec.stopPolicy", self.spec.stop_policy.as_ref())? {
            CapacityPolicyStop::None => None,
            CapacityPolicyStop::Hold => Some(StopPolicy::Hold),
            CapacityPolicyStop::HoldAndDrain => Some(StopPolicy::HoldAndDrain),
        }
    }

    fn ordering(&self, dequeue_strategy: Option<&str>, checks: &mut Checks) -> QueueOrdering {
        match (&self.spec.ordering, dequeue_strategy) {
            (None, Some(FIFO)) => QueueOrdering::StrictFifo,
            (ordering, _) => checks
                .word("spec.ordering", ordering.as_ref())
                .map_or_else(QueueOrdering::default, CapacityPolicyOrdering::to_fact),
        }
    }
}

/// Returns why a namespace with `labels` may not submit to `queue` without a right of its own or of its
/// user; `None` if it may. `policy` is the queue's; it goes before `config`.
#[must_use]
pub fn closed_to(
    queue: &str,
    policy: Option<&CapacityPolicy>,
    config: Option<&MusterConfig>,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Option<String> {
    let selector = policy.and_then(|policy| policy.spec.namespace_selector.as_ref());
    if let Some(selector) = selector {
        return (!selects(selector, labels)).then(|| {
            format!(
                "namespace {namespace} is not selected by spec.namespaceSelector of capacitypolicy {queue}"
            )
        });
    }
    let own = policy.and_then(CapacityPolicy::tenancy);
    let says = match own {
        Some(_) => format!("capacitypolicy {queue}"),
        None => format!("musterconfig {}", muster_config::NAME),
    };
    match own.or_else(|| config.map(MusterConfig::tenancy)) {
        None | Some(Tenancy::Open) => None,
        Some(Tenancy::Closed) => Some(format!(
            "queue {queue} selects no namespaces, and spec.tenancy of {says} is Closed"
        )),
    }
}

/// Reads values, and keeps the first problem.
#[derive(Default)]
pub(super) struct Checks {
    first: Option<String>,
}

impl Checks {
    pub(super) fn fail(&mut self, problem: String) {
        self.first.get_or_insert(problem);
    }

    /// Reads a number of at least `least`.
    fn at_least(&mut self, field: &str, value: Option<i64>, least: i64) -> Option<u32> {
        let number = at_least(field, value?, least);
        number.map_err(|problem| self.fail(problem)).ok()
    }

    /// Reads amounts of resources.
    fn amounts(&mut self, field: &str, list: &QuantityList) -> Resources {
        resources(field, list).unwrap_or_else(|problem| {
            self.fail(problem);
            Resources::new()
        })
    }

    /// Reads the quotas in `list`: guarantee, deserved and capability, each of which is named below `field`.
    pub(super) fn bounds(
        &mut self,
        field: &str,
        list: &str,
        stated: &Loose<Vec<CapacityPolicyBounds>>,
    ) -> [Resources; 3] {
        if let Loose::Unknown(value) = stated {
            self.fail(format!(
                "{list}: {value} is not a list of name, guarantee, deserved and capability"
            ));
        }
        type Part = fn(&CapacityPolicyBounds) -> &Option<QuantityText>;
        let parts: [(&str, Part); 3] = [
            ("guarantee", |bounds| &bounds.guarantee),
            ("deserved", |bounds| &bounds.deserved),
            ("capability", |bounds| &bounds.capability),
        ];
        parts.map(|(part, of)| {
            let stated = stated.items().iter();
            let list: QuantityList = stated
                .filter_map(|bounds| Some((bounds.name.clone(), of(bounds).clone()?)))
                .collect();
            self.amounts(&format!("{field}.{part}"), &list)
        })
    }

    /// Reads seconds, at least `least`, as milliseconds.
    fn seconds(&mut self, field: &str, value: Option<i64>, least: i64) -> Option<i64> {
        let seconds = self.at_least(field, value, least)?;
        Some(i64::from(seconds) * 1_000)
    }

    /// Reads one of a fixed set of words; a value that this version does not know counts as unset.
    fn word<T: Copy + JsonSchema>(&mut self, field: &str, value: Option<&Loose<T>>) -> Option<T> {
        let value = value?;
        if let Some(problem) = value.problem() {
            self.fail(format!("{field}: {problem}"));
        }
        value.known().copied()
    }
}

impl CapacityPolicyPool {
    /// Returns the bounds that can be read; [`CapacityPolicy::to_fact`] reports the others.
    #[must_use]
    pub fn bounds(&self) -> &[CapacityPolicyBounds] {
        self.resources.items()
    }

    fn bound(&self, index: usize, checks: &mut Checks) -> PoolBound {
        if self.class.is_empty() {
            checks.fail(format!("spec.pools[{index}].class is missing"));
        }
        if self.name.is_empty() {
            checks.fail(format!("spec.pools[{index}].name is missing"));
        }
        let field = format!("spec.pools[{index}]");
        let [guarantee, deserved, capability] =
            checks.bounds(&field, &format!("{field}.resources"), &self.resources);
        PoolBound {
            class: PoolClass::new(&self.class),
            guarantee,
            deserved,
            capability,
            clusters: self
                .clusters
                .as_ref()
                .map(|names| names.iter().map(ClusterName::new).collect()),
        }
    }
}

impl CapacityPolicyBackfill {
    fn to_fact(&self, checks: &mut Checks) -> facts::Backfill {
        facts::Backfill {
            conservative: {
                let mode = checks.word("spec.backfill.mode", self.mode.as_ref());
                mode == Some(CapacityPolicyBackfillMode::Conservative)
            },
            reservations: checks.at_least(
                "spec.backfill.reservations",
                self.reservations.map(i64::from),
                1,
            ),
        }
    }
}

impl CapacityPolicyFairShare {
    fn to_fact(&self, checks: &mut Checks) -> facts::FairShare {
        facts::FairShare {
            weight: checks.at_least("spec.fairShare.weight", self.weight.map(i64::from), 1),
            usage_half_life_ms: checks.seconds(
                "spec.fairShare.usageHalfLifeSeconds",
                self.usage_half_life_seconds,
                1,
            ),
            within: match checks.word("spec.fairShare.within", self.within.as_ref()) {
                None | Some(CapacityPolicyFairShareWithin::None) => None,
                Some(CapacityPolicyFairShareWithin::User) => Some(facts::FairShareWithin::User),
            },
        }
    }
}

impl CapacityPolicyPreemption {
    fn to_fact(&self, checks: &mut Checks) -> facts::Preemption {
        let unset = facts::Preemption::default();
        let within = checks.word("spec.preemption.withinQueue", self.within_queue.as_ref());
        let reclaim = checks.word("spec.preemption.reclaim", self.reclaim.as_ref());
        let label = self.preemptable_label.as_ref();
        let label = checks.word("spec.preemption.preemptableLabel", label);
        let overdue = checks.word("spec.preemption.evictOverdue", self.evict_overdue.as_ref());
        let runtime = self.min_runtime_seconds;
        facts::Preemption {
            within_queue: within.map_or(unset.within_queue, |within| {
                within == CapacityPolicyPreemptionWithinQueue::LowerPriority
            }),
            reclaim: reclaim.map_or(unset.reclaim, |reclaim| {
                reclaim == CapacityPolicyReclaim::Any
            }),
            min_runtime_ms: checks
                .seconds("spec.preemption.minRuntimeSeconds", runtime, 0)
                .unwrap_or(unset.min_runtime_ms),
            allow_non_preemptible: label.map_or(unset.allow_non_preemptible, |label| {
                label == CapacityPolicyPreemptableLabel::Honor
            }),
            evict_overdue: overdue.map_or(unset.evict_overdue, |overdue| {
                overdue == CapacityPolicyEvictOverdue::ForDelayedJobs
            }),
        }
    }
}

impl CapacityPolicySpare {
    fn to_fact(&self, checks: &mut Checks) -> Option<facts::SpareRule> {
        let mut number = |field: &str, value: Option<i32>, least: i64| {
            if value.is_none() {
                checks.fail(format!("{field} is missing; {least} or more is needed"));
            }
            checks.at_least(field, value.map(i64::from), least)
        };
        let nodes = number("spec.spare.nodes", self.nodes, 1);
        let for_gangs_of = number("spec.spare.forGangsOf", self.for_gangs_of, 2);
        Some(facts::SpareRule {
            nodes: nodes?,
            class: self.class.as_ref().map(PoolClass::new),
            for_gangs_of: for_gangs_of?,
        })
    }
}

impl CapacityPolicyLimits {
    fn to_fact(&self, checks: &mut Checks) -> facts::Limits {
        facts::Limits {
            jobs: checks.at_least("spec.limits.jobs", self.jobs, 0),
            jobs_per_user: checks.at_least("spec.limits.jobsPerUser", self.jobs_per_user, 0),
            pending: checks.at_least("spec.limits.pending", self.pending, 0),
            runtime_ms: checks.seconds("spec.limits.runtimeSeconds", self.runtime_seconds, 1),
            resources_per_user: checks
                .amounts("spec.limits.resourcesPerUser", &self.resources_per_user),
            resources_per_namespace: checks.amounts(
                "spec.limits.resourcesPerNamespace",
                &self.resources_per_namespace,
            ),
        }
    }
}

fn chosen(placement: &CapacityPolicyPlacement) -> Result<Filters, UnknownPlugin> {
    placement.filters.as_ref().map_or_else(
        || Ok(Filters::default()),
        |names| Filters::named(names.iter().map(String::as_str)),
    )
}

/// Returns the default weights with the specified ones in their place.
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

/// Returns true if `selector` selects `labels`. A selector that Kubernetes would refuse selects nothing.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests;
