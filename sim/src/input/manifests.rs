//! The Kubernetes objects that configure queues, read from their manifests. Unknown fields of
//! `spec` are errors, so that a misspelt field is noticed.

use super::amounts::{QuantityTexts, Text, millis, resources};
use crate::error::{InputError, InputLocation};
use crate::scenario::{plain_policy, plain_queue};
use engine::facts::{
    Ageing, Backfill, FairShare, FairShareWithin, Filters, Limits, PlacementWeights, PolicyFact,
    PoolBound, PriorityClassFact, QueueFact, QueueOrdering, QueueState, SpareRule, StopPolicy,
};
use engine::{ClusterName, PoolClass, QueueName};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// The kind and name of a document.
#[derive(Debug, Deserialize)]
pub(super) struct DocumentHead {
    pub(super) kind: Option<String>,
}

/// `metadata`, of which only the name counts.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ManifestMetadata {
    #[serde(default)]
    pub(super) name: String,
}

/// The Queue of Volcano.
#[derive(Debug, Deserialize)]
pub(super) struct ManifestQueue {
    #[serde(default)]
    metadata: ManifestMetadata,
    #[serde(default)]
    spec: ManifestQueueSpec,
    #[serde(default)]
    status: ManifestQueueStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ManifestQueueSpec {
    weight: Option<u32>,
    priority: Option<i32>,
    parent: Option<String>,
    #[serde(default)]
    capability: QuantityTexts,
    #[serde(default)]
    deserved: QuantityTexts,
    #[serde(default)]
    guarantee: ManifestGuarantee,
    reclaimable: Option<bool>,
    dequeue_strategy: Option<String>,
    #[serde(rename = "type")]
    _kind: Option<String>,
    #[serde(rename = "affinity")]
    _affinity: Option<IgnoredAny>,
    #[serde(rename = "extendClusters")]
    _extend_clusters: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestGuarantee {
    #[serde(default)]
    resource: QuantityTexts,
}

#[derive(Debug, Default, Deserialize)]
struct ManifestQueueStatus {
    state: Option<String>,
}

impl ManifestQueue {
    /// Returns true if the queue is strictly ordered by default; its policy can override this.
    pub(super) fn is_fifo(&self) -> bool {
        self.spec.dequeue_strategy.as_deref() == Some("fifo")
    }

    pub(super) fn fact(self, place: &InputLocation<'_>) -> Result<QueueFact, InputError> {
        let spec = self.spec;
        if spec.weight == Some(0) {
            return Err(place.refuse("spec.weight", "0", "1 or more is needed"));
        }
        let parent = spec
            .parent
            .filter(|name| !name.is_empty() && name != "root");
        Ok(QueueFact {
            parent: parent.as_deref().map(QueueName::from),
            priority: spec.priority.unwrap_or(0),
            weight: spec.weight.unwrap_or(1),
            guarantee: resources(place, "spec.guarantee.resource", &spec.guarantee.resource)?,
            deserved: resources(place, "spec.deserved", &spec.deserved)?,
            capability: resources(place, "spec.capability", &spec.capability)?,
            reclaimable: spec.reclaimable.unwrap_or(true),
            state: match self.status.state.as_deref() {
                Some("Closed") => QueueState::Closed,
                Some("Closing") => QueueState::Closing,
                _ => QueueState::Open,
            },
            ..plain_queue(&self.metadata.name)
        })
    }
}

/// The PriorityClass of Kubernetes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ManifestPriorityClass {
    #[serde(default)]
    metadata: ManifestMetadata,
    value: i32,
    #[serde(default)]
    global_default: bool,
    preemption_policy: Option<String>,
}

impl ManifestPriorityClass {
    pub(super) fn fact(self) -> PriorityClassFact {
        PriorityClassFact {
            name: self.metadata.name,
            value: self.value,
            global_default: self.global_default,
            preempts: self.preemption_policy.as_deref() != Some("Never"),
        }
    }
}

/// The CapacityPolicy of Muster.
#[derive(Debug, Deserialize)]
pub(super) struct CapacityPolicy {
    #[serde(default)]
    pub(super) metadata: ManifestMetadata,
    #[serde(default)]
    pub(super) spec: PolicySpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct PolicySpec {
    pools: Vec<ManifestPool>,
    ordering: Option<ManifestOrdering>,
    ageing: Option<AgeingSpec>,
    #[serde(rename = "namespaceSelector")]
    _namespace_selector: Option<IgnoredAny>,
    backfill: Option<BackfillSpec>,
    fair_share: Option<FairShareSpec>,
    preemption: Option<ManifestPreemption>,
    limits: Option<LimitsSpec>,
    placement: Option<ManifestPlacement>,
    stop_policy: Option<ManifestStop>,
    spare: Option<ManifestSpare>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ManifestSpare {
    nodes: u32,
    class: Option<String>,
    for_gangs_of: u32,
}

impl ManifestSpare {
    fn fact(self, place: &InputLocation<'_>) -> Result<SpareRule, InputError> {
        if self.nodes == 0 {
            return Err(place.refuse("spec.spare.nodes", "0", "1 or more is needed"));
        }
        if self.for_gangs_of < 2 {
            let given = self.for_gangs_of.to_string();
            return Err(place.refuse("spec.spare.forGangsOf", &given, "2 or more is needed"));
        }
        Ok(SpareRule {
            nodes: self.nodes,
            class: self.class.as_deref().map(PoolClass::from),
            for_gangs_of: self.for_gangs_of,
        })
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum ManifestStop {
    None,
    Hold,
    HoldAndDrain,
}

impl ManifestStop {
    fn fact(self) -> Option<StopPolicy> {
        match self {
            Self::None => None,
            Self::Hold => Some(StopPolicy::Hold),
            Self::HoldAndDrain => Some(StopPolicy::HoldAndDrain),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgeingSpec {
    every: Text,
    raise: Option<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) enum ManifestOrdering {
    #[serde(rename = "StrictFIFO")]
    StrictFifo,
    BestEffort,
    Backfill,
    ShortestPredicted,
}

impl From<ManifestOrdering> for QueueOrdering {
    fn from(ordering: ManifestOrdering) -> Self {
        match ordering {
            ManifestOrdering::StrictFifo => Self::StrictFifo,
            ManifestOrdering::BestEffort => Self::BestEffort,
            ManifestOrdering::Backfill => Self::Backfill,
            ManifestOrdering::ShortestPredicted => Self::ShortestPredicted,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestPool {
    class: String,
    clusters: Option<Vec<String>>,
    #[serde(default)]
    resources: BTreeMap<String, ManifestBounds>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestBounds {
    guarantee: Option<Text>,
    deserved: Option<Text>,
    capability: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BackfillSpec {
    conservative: bool,
    reservations: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct FairShareSpec {
    weight: Option<u32>,
    usage_half_life: Option<Text>,
    within: Option<WithinSpec>,
}

#[derive(Debug, Deserialize)]
enum WithinSpec {
    None,
    User,
}

/// The scopes of preemption.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct ManifestPreemption {
    within_queue: Option<bool>,
    reclaim: Option<bool>,
    min_runtime: Option<Text>,
    allow_non_preemptable: Option<bool>,
    evict_overdue: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct LimitsSpec {
    jobs: Option<u32>,
    jobs_per_user: Option<u32>,
    pending: Option<u32>,
    runtime: Option<Text>,
    resources_per_user: BTreeMap<String, Text>,
    resources_per_namespace: BTreeMap<String, Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct ManifestPlacement {
    max_clusters: Option<u32>,
    preferred_clusters: Vec<String>,
    recovery_deadline: Option<Text>,
    #[serde(rename = "startDeadline")]
    _start_deadline: Option<IgnoredAny>,
    weights: BTreeMap<String, u32>,
    filters: Option<Vec<String>>,
    // Each job says whether it may be split, and the simulation has no pods that need a rendezvous.
    #[serde(rename = "split")]
    _split: Option<IgnoredAny>,
    #[serde(rename = "addresses")]
    _addresses: Option<IgnoredAny>,
}

impl ManifestPlacement {
    fn weights(&self, place: &InputLocation<'_>) -> Result<PlacementWeights, InputError> {
        let mut all = PlacementWeights::default();
        for (score, weight) in &self.weights {
            let with = all.with(score, *weight);
            all = with.map_err(|error| {
                place.refuse("spec.placement.weights", score, &error.to_string())
            })?;
        }
        Ok(all)
    }

    /// Checks the names of filters. Jobs of the simulation have nothing that these filters look at.
    fn check_filters(&self, place: &InputLocation<'_>) -> Result<(), InputError> {
        for name in self.filters.iter().flatten() {
            Filters::named([name.as_str()]).map_err(|error| {
                place.refuse("spec.placement.filters", name, &error.to_string())
            })?;
        }
        Ok(())
    }
}

impl PolicySpec {
    /// Builds the part of a policy that the short form can express.
    pub(super) fn brief(
        ordering: Option<ManifestOrdering>,
        preemption: Option<ManifestPreemption>,
    ) -> Self {
        Self {
            ordering,
            preemption,
            ..Self::default()
        }
    }

    /// Returns the policy of `queue`. The simulation starts no pods, so no start deadline applies.
    pub(super) fn fact(
        self,
        place: &InputLocation<'_>,
        queue: &str,
    ) -> Result<PolicyFact, InputError> {
        let pools = self.pools.into_iter().enumerate();
        let pools = pools.map(|(index, pool)| pool.fact(place, index));
        let backfill = self.backfill.unwrap_or_default();
        let placement = self.placement.unwrap_or_default();
        placement.check_filters(place)?;
        let clusters = placement.preferred_clusters.iter();
        let plain = plain_policy(queue);
        let fair_share = self.fair_share.unwrap_or_default().fact(place)?;
        let ordering: QueueOrdering = self.ordering.map(Into::into).unwrap_or_default();
        if ordering == QueueOrdering::StrictFifo && fair_share.within.is_some() {
            let needed = "another ordering than StrictFIFO is needed";
            return Err(place.refuse("spec.fairShare.within", "User", needed));
        }
        let mut fact = PolicyFact {
            pools: pools.collect::<Result<_, _>>()?,
            ordering,
            ageing: self.ageing.map(|ageing| ageing.fact(place)).transpose()?,
            backfill: Backfill {
                conservative: backfill.conservative,
                reservations: backfill.reservations,
            },
            fair_share,
            limits: self.limits.unwrap_or_default().fact(place)?,
            max_clusters: placement.max_clusters,
            preferred_clusters: clusters
                .map(|name| ClusterName::from(name.as_str()))
                .collect(),
            weights: placement.weights(place)?,
            stop: self.stop_policy.and_then(ManifestStop::fact),
            spare: self.spare.map(|spare| spare.fact(place)).transpose()?,
            ..plain
        };
        if let Some(stated) = self.preemption {
            let preemption = &mut fact.preemption;
            preemption.within_queue = stated.within_queue.unwrap_or(preemption.within_queue);
            preemption.reclaim = stated.reclaim.unwrap_or(preemption.reclaim);
            preemption.allow_non_preemptible = stated
                .allow_non_preemptable
                .unwrap_or(preemption.allow_non_preemptible);
            preemption.evict_overdue = stated.evict_overdue.unwrap_or(preemption.evict_overdue);
            if let Some(text) = &stated.min_runtime {
                preemption.min_runtime_ms = millis(place, "spec.preemption.minRuntime", &text.0)?;
            }
        }
        if let Some(text) = &placement.recovery_deadline {
            let millis = millis(place, "spec.placement.recoveryDeadline", &text.0)?;
            fact.recovery_deadline_ms = Some(millis);
        }
        Ok(fact)
    }
}

impl ManifestPool {
    fn fact(self, place: &InputLocation<'_>, index: usize) -> Result<PoolBound, InputError> {
        let of = |pick: fn(&ManifestBounds) -> Option<&Text>, word: &str| {
            let list: QuantityTexts = self
                .resources
                .iter()
                .filter_map(|(name, bounds)| Some((name.clone(), pick(bounds)?.clone())))
                .collect();
            resources(place, &format!("spec.pools[{index}].{word}"), &list)
        };
        let names = self.clusters.as_ref();
        Ok(PoolBound {
            guarantee: of(|bounds| bounds.guarantee.as_ref(), "guarantee")?,
            deserved: of(|bounds| bounds.deserved.as_ref(), "deserved")?,
            capability: of(|bounds| bounds.capability.as_ref(), "capability")?,
            class: PoolClass::from(self.class.as_str()),
            clusters: names.map(|names| {
                let names = names.iter();
                names.map(|name| ClusterName::from(name.as_str())).collect()
            }),
        })
    }
}

impl AgeingSpec {
    fn fact(self, place: &InputLocation<'_>) -> Result<Ageing, InputError> {
        let every_ms = millis(place, "spec.ageing.every", &self.every.0)?;
        if every_ms < 1_000 {
            return Err(place.refuse("spec.ageing.every", &self.every.0, "1s or more is needed"));
        }
        Ok(Ageing {
            every_ms,
            raise: self.raise.unwrap_or(1),
            classes: None,
        })
    }
}

impl FairShareSpec {
    fn fact(self, place: &InputLocation<'_>) -> Result<FairShare, InputError> {
        let read = |text: &Text| millis(place, "spec.fairShare.usageHalfLife", &text.0);
        let half_life = self.usage_half_life.as_ref().map(read).transpose()?;
        if self.weight == Some(0) {
            return Err(place.refuse("spec.fairShare.weight", "0", "1 or more is needed"));
        }
        if half_life == Some(0) {
            let needed = "more than nothing is needed";
            return Err(place.refuse("spec.fairShare.usageHalfLife", "0", needed));
        }
        Ok(FairShare {
            weight: self.weight,
            usage_half_life_ms: half_life,
            within: match self.within {
                None | Some(WithinSpec::None) => None,
                Some(WithinSpec::User) => Some(FairShareWithin::User),
            },
        })
    }
}

impl LimitsSpec {
    fn fact(self, place: &InputLocation<'_>) -> Result<Limits, InputError> {
        let read = |text: &Text| millis(place, "spec.limits.runtime", &text.0);
        Ok(Limits {
            jobs: self.jobs,
            jobs_per_user: self.jobs_per_user,
            pending: self.pending,
            runtime_ms: self.runtime.as_ref().map(read).transpose()?,
            resources_per_user: resources(
                place,
                "spec.limits.resourcesPerUser",
                &self.resources_per_user,
            )?,
            resources_per_namespace: resources(
                place,
                "spec.limits.resourcesPerNamespace",
                &self.resources_per_namespace,
            )?,
        })
    }
}
