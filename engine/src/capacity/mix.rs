//! The recent mix of pod requests, and how much free capacity of a node none of them can use.
//!
//! Free devices are worth what can be run on them: a node with five free devices and no free
//! core has nothing to give. What is unusable of a node is, over the kinds of pods requested,
//! the mean of its free devices where such a pod does not fit (Weng et al., "Beware of
//! Fragmentation", ATC 2023). The mix forgets by halving. It counts submissions only, and
//! never of time.

use crate::amounts::resource_ids::{CPU, PodRequest, ResourceId, ResourceIds, ResourceVec};
use crate::capacity::pack::device;
use facts::{Demand, ResourceName, Resources};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A submission counts at most so many pods of a role: one huge gang is no habit.
const MOST_PODS: u32 = 32;

/// Pods remembered before all are halved.
const HORIZON: u64 = 16_384;

/// Kinds remembered.
const KINDS: usize = 256;

/// Kinds that count of one device, the most frequent.
const COUNTED: usize = 64;

/// The mix that decides is brought up to date after so many submissions (sooner while young).
const REFRESH: u64 = 64;

/// The kinds of pods requested, with how many there were of each.
#[derive(Debug, Clone, Default)]
pub(crate) struct DemandMix {
    known: MixRecord,
    /// What decides, by the resource that pods are counted in.
    kinds: BTreeMap<ResourceId, Kinds>,
}

/// What of a mix cannot be recomputed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct MixRecord {
    /// Pods by what they request.
    #[serde(with = "as_list")]
    pods: BTreeMap<Resources, u64>,
    submissions: u64,
    /// `pods` when the mix that decides was last brought up to date.
    #[serde(with = "as_list")]
    decides: BTreeMap<Resources, u64>,
}

#[derive(Debug, Clone, Default)]
struct Kinds {
    asks: Vec<(PodRequest, i128)>,
    /// The sum of the weights.
    all: i128,
}

impl DemandMix {
    /// A job was submitted. Whether a kind is new, or the mix that decides differs now.
    pub(crate) fn note(&mut self, demand: &Demand, resource_ids: &mut ResourceIds) -> bool {
        let mut is_new = false;
        for role in demand.roles.iter().filter(|role| role.count > 0) {
            let pods = u64::from(role.count.min(MOST_PODS));
            match self.known.pods.get_mut(&role.request) {
                Some(known) => *known += pods,
                None => {
                    is_new = true;
                    role.request.iter().for_each(|(name, _)| {
                        resource_ids.intern(name);
                    });
                    self.known.pods.insert(role.request.clone(), pods);
                }
            }
        }
        self.forget();
        self.known.submissions += 1;
        let so_far = self.known.submissions;
        let due = so_far.is_multiple_of(REFRESH) || (so_far < REFRESH && so_far.is_power_of_two());
        if due {
            self.known.decides.clone_from(&self.known.pods);
            self.rebuild(resource_ids);
        }
        due || is_new
    }

    /// Halves until what is remembered is within bounds.
    fn forget(&mut self) {
        let pods = &mut self.known.pods;
        while pods.len() > KINDS || pods.values().sum::<u64>() > HORIZON {
            pods.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
    }

    /// Returns what has to be stored to go on elsewhere.
    pub(crate) fn record(&self) -> &MixRecord {
        &self.known
    }

    /// Goes on from a record.
    pub(crate) fn restore(&mut self, record: MixRecord, resource_ids: &mut ResourceIds) {
        self.known = record;
        self.rebuild(resource_ids);
    }

    fn rebuild(&mut self, resource_ids: &mut ResourceIds) {
        let mut by_resource: BTreeMap<ResourceId, Vec<(&Resources, u64)>> = BTreeMap::new();
        for (request, count) in &self.known.decides {
            request.iter().for_each(|(name, _)| {
                resource_ids.intern(name);
            });
            by_resource
                .entry(counted_in(request, resource_ids))
                .or_default()
                .push((request, *count));
        }
        self.kinds = by_resource
            .into_iter()
            .map(|(resource, mut kinds)| {
                kinds.sort_by_key(|(request, count)| (Reverse(*count), *request));
                kinds.truncate(COUNTED);
                let asks: Vec<(PodRequest, i128)> = kinds
                    .into_iter()
                    .map(|(request, count)| (resource_ids.request(request), i128::from(count)))
                    .collect();
                let all = asks.iter().map(|(_, weight)| weight).sum();
                (resource, Kinds { asks, all })
            })
            .collect();
    }

    /// Returns what of a node with `free` is unusable, in thousandths of `units`.
    pub(crate) fn unusable(&self, units: ResourceId, free: &ResourceVec) -> i128 {
        let amount = free.get(units);
        let Some(kinds) = self.kinds.get(&units).filter(|_| amount > 0) else {
            return 0;
        };
        let shut_out: i128 = kinds
            .asks
            .iter()
            .filter(|(ask, _)| !ask.fits(free))
            .map(|(_, weight)| weight)
            .sum();
        amount * shut_out * 1000 / kinds.all.max(1)
    }

    /// Amounts that pods of all known kinds request, with the resource that they are counted in.
    pub(crate) fn amounts(
        &self,
        resource_ids: &ResourceIds,
    ) -> impl Iterator<Item = (ResourceId, i64)> {
        let amounts = self.known.pods.keys().map(|request| {
            let resource = counted_in(request, resource_ids);
            (resource, request.amount_of(resource_ids.name(resource)).0)
        });
        amounts.filter(|(_, amount)| *amount > 0)
    }
}

/// The resource that pods of a request are counted in: their device, else CPU.
pub(crate) fn counted_in(request: &Resources, resource_ids: &ResourceIds) -> ResourceId {
    let name: Option<&ResourceName> = device(request);
    name.and_then(|name| resource_ids.find(name)).unwrap_or(CPU)
}

/// Maps whose keys are no text are written as lists.
mod as_list {
    use super::{BTreeMap, Resources};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<Resources, u64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        map.iter().collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<Resources, u64>, D::Error> {
        Ok(Vec::deserialize(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::testing::{demand, resources};

    fn known(mix: &DemandMix) -> Vec<u64> {
        mix.record().pods.values().copied().collect()
    }

    #[test]
    fn what_is_no_longer_asked_for_is_forgotten_by_halves() {
        let (mut mix, mut resource_ids) = (DemandMix::default(), ResourceIds::default());
        for (submissions, count, request) in
            [(1, 1, "cpu 1"), (511, 900, "cpu 2"), (1, 31, "cpu 3")]
        {
            for _ in 0..submissions {
                mix.note(&demand(count, request), &mut resource_ids);
            }
        }
        // One, 511 times the most that count of one, and 31: as many as are remembered.
        assert_eq!(known(&mix), [1, 16_352, 31]);
        mix.note(&demand(1, "cpu 3"), &mut resource_ids);
        assert_eq!(known(&mix), [8_176, 16]);
        // Of as many kinds as are remembered none is forgotten; of one more the rare ones are.
        for cores in 4..=KINDS + 1 {
            mix.note(&demand(1, &format!("cpu {cores}")), &mut resource_ids);
        }
        assert_eq!(known(&mix).len(), KINDS);
        mix.note(&demand(1, "cpu 500m"), &mut resource_ids);
        assert_eq!(known(&mix), [4_088, 8]);
    }

    #[test]
    fn what_no_usual_pod_fits_beside_is_unusable_in_part() {
        let (mut mix, mut resource_ids) = (DemandMix::default(), ResourceIds::default());
        let gpu = resource_ids.intern(&ResourceName::new("nvidia.com/gpu"));
        for request in ["cpu 4, nvidia.com/gpu 1", "cpu 1, nvidia.com/gpu 4"] {
            mix.note(&demand(2, request), &mut resource_ids);
        }
        mix.note(&demand(9, "cpu 64"), &mut resource_ids);
        mix.note(&demand(4, "cpu 1, nvidia.com/gpu 8"), &mut resource_ids);
        let mut amounts: Vec<(ResourceId, i64)> = mix.amounts(&resource_ids).collect();
        amounts.sort_unstable();
        assert_eq!(amounts, [(CPU, 64_000), (gpu, 1), (gpu, 4), (gpu, 8)]);
        // Of eight pods with devices so many find none: two, two and four of a kind.
        for (free, unusable) in [
            ("cpu 4, nvidia.com/gpu 8", 0),
            ("cpu 4, nvidia.com/gpu 5", 5 * 500),
            ("cpu 3, nvidia.com/gpu 5", 5 * 750),
            ("cpu 3, nvidia.com/gpu 3", 3 * 1000),
            ("cpu 3, nvidia.com/gpu 0", 0),
        ] {
            let free_row = resource_ids.vector(&resources(free));
            assert_eq!(mix.unusable(gpu, &free_row), unusable, "{free}");
        }
    }
}
