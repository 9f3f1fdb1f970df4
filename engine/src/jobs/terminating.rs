//! Pods that are terminating: a released job is made smaller, and what leaves stays charged
//! until the member confirms it.
//!
//! A shrink that a template asks for and one that frees capacity for another job are the same
//! here. What is decided is the new size (the shares of the admission); what leaves is kept
//! beside it, with its charge, and comes free by [`crate::Event::JobResized`], pods by pods.
//! Capacity assumed for pods that were never seen is kept as long: the member may still start
//! them. So a member that is slow, or unreachable, never makes the engine generous.

use crate::amounts::resources::Resources;
use crate::amounts::totals::ResourceTotals;
use crate::api::charge::{Pools, pools_of};
use crate::api::demand::Demand;
use crate::api::facts::{Admission, Leaving, Share};
use crate::api::ids::{Attempt, ClusterName, JobKey, NodeName, PoolClass};
use crate::jobs::excess;
use crate::jobs::job::Released;
use crate::jobs::store::Jobs;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods of one role to be taken off one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) cluster: ClusterName,
    pub(crate) role: String,
    pub(crate) count: u32,
}

impl Jobs {
    /// Makes a released job smaller, for another job where `for_job` names one. Its admission, and
    /// how many pods are to terminate; none where it has none of those.
    pub(crate) fn shrink(
        &mut self,
        key: &JobKey,
        cuts: &[Cut],
        for_job: Option<&JobKey>,
        intern: impl FnOnce(&Demand) -> Arc<Demand>,
    ) -> Option<(Admission, u32)> {
        let job = self.job_mut(key)?;
        let demand = job.demand.clone()?;
        let released = job.released.as_mut()?;
        let basis = released.basis.clone().unwrap_or(demand);
        let mut pods = 0;
        for cut in cuts {
            if let Some((leaving, _)) = released.cut(&basis, cut) {
                pods += leaving.count;
                released.leave(leaving);
            }
        }
        if pods == 0 {
            return None;
        }
        released.gave_to.extend(for_job.cloned());
        let shares = &mut released.admission.shares;
        shares.retain(|share| !share.pods.is_empty());
        let admission = released.admission.clone();
        self.rebase(key, intern);
        Some((admission, pods))
    }

    /// Takes in that at most `pods` of an attempt can be in a cluster. How many of each role can be
    /// there still, if fewer than before.
    pub(crate) fn confirm_gone(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        cluster: &ClusterName,
        pods: u32,
    ) -> Option<BTreeMap<&str, u32>> {
        let released = self.attempt_mut(key, attempt)?;
        if !released.confirm_gone(cluster, pods) {
            return None;
        }
        let mut may_be: BTreeMap<&str, u32> = BTreeMap::new();
        let shares = &released.admission.shares;
        let share = shares.iter().find(|share| share.cluster == *cluster);
        for pods in share.into_iter().flat_map(|share| &share.pods) {
            *may_be.entry(&pods.role).or_default() += pods.count;
        }
        let leaving = released.leaving.iter();
        for leaving in leaving.filter(|leaving| leaving.cluster == *cluster) {
            *may_be.entry(&leaving.role).or_default() += leaving.count;
        }
        Some(may_be)
    }
}

impl Released {
    /// What is charged: what was admitted, what leaves and may still be there, and what runs beyond
    /// the admission.
    pub(crate) fn pools(&self) -> Pools {
        let mut pools = pools_of(&self.admission.shares);
        for leaving in &self.leaving {
            for (class, resources) in &leaving.charge {
                let pool = (leaving.cluster.clone(), class.clone());
                let entry = pools.entry(pool).or_default();
                *entry = entry
                    .checked_add(resources)
                    .unwrap_or_else(|| Resources::max(entry, resources));
            }
        }
        excess::charge(&mut pools, &self.excess, &self.admission.shares);
        pools
    }

    /// Takes pods off its shares: what leaves, and from which nodes as planned.
    pub(crate) fn cut(
        &mut self,
        basis: &Demand,
        cut: &Cut,
    ) -> Option<(Leaving, Vec<(NodeName, u32)>)> {
        let shares = &mut self.admission.shares;
        let share = shares.iter_mut().find(|s| s.cluster == cut.cluster)?;
        let role = basis.roles.iter().find(|role| role.name == cut.role)?;
        let before = share.charge.clone();
        let (count, nodes) = take_pods(share, &cut.role, &role.request, cut.count);
        let leaving = Leaving {
            cluster: cut.cluster.clone(),
            role: cut.role.clone(),
            count,
            request: role.request.clone(),
            charge: less(&before, &share.charge),
        };
        (count > 0).then_some((leaving, nodes))
    }

    fn leave(&mut self, more: Leaving) {
        let same = |known: &&mut Leaving| {
            known.cluster == more.cluster
                && known.role == more.role
                && known.request == more.request
        };
        let Some(known) = self.leaving.iter_mut().find(same) else {
            return self.leaving.push(more);
        };
        known.count += more.count;
        for (class, resources) in more.charge {
            let mut sum = known
                .charge
                .get(&class)
                .map_or_else(ResourceTotals::default, ResourceTotals::from);
            sum.add(&resources, 1);
            known.charge.insert(class, sum.to_resources());
        }
    }

    /// At most `pods` can be in the cluster: of those that leave, what is beyond is gone.
    /// Whether anything is.
    fn confirm_gone(&mut self, cluster: &ClusterName, pods: u32) -> bool {
        let shares = self.admission.shares.iter();
        let stay = shares.filter(|share| share.cluster == *cluster);
        let mut may_leave = pods.saturating_sub(stay.map(Share::replicas).sum());
        let mut changed = false;
        for leaving in &mut self.leaving {
            if leaving.cluster == *cluster {
                let left = leaving.count.min(may_leave);
                may_leave -= left;
                changed |= left < leaving.count;
                leaving.reduce(left);
            }
        }
        self.leaving.retain(|leaving| leaving.count > 0);
        changed
    }
}

impl Leaving {
    fn reduce(&mut self, count: u32) {
        let mut gone = self.count - count;
        self.count = count;
        if count == 0 {
            return self.charge.clear();
        }
        for charge in self.charge.values_mut().rev() {
            let mut totals = ResourceTotals::from(&*charge);
            let here = totals.fits(&self.request, gone);
            totals.add(&self.request, -i64::from(here));
            gone -= here;
            *charge = totals.to_resources();
        }
        self.charge.retain(|_, charge| !charge.is_empty());
    }
}

fn less(
    before: &BTreeMap<PoolClass, Resources>,
    after: &BTreeMap<PoolClass, Resources>,
) -> BTreeMap<PoolClass, Resources> {
    let classes = before.iter().map(|(class, resources)| {
        let mut totals = ResourceTotals::from(resources);
        if let Some(after) = after.get(class) {
            totals.add(after, -1);
        }
        (class.clone(), totals.to_resources())
    });
    classes.filter(|(_, left)| !left.is_empty()).collect()
}

/// Takes up to `count` pods of a role off a share, and what they were charged. How many, and
/// off which nodes of its plan, the last planned first.
fn take_pods(
    share: &mut Share,
    role: &str,
    request: &Resources,
    count: u32,
) -> (u32, Vec<(NodeName, u32)>) {
    let Some(pods) = share.pods.iter_mut().find(|pods| pods.role == role) else {
        return (0, Vec::new());
    };
    let taken = pods.count.min(count);
    pods.count -= taken;
    share.pods.retain(|pods| pods.count > 0);
    let mut left = taken;
    for charge in share.charge.values_mut().rev() {
        let mut totals = ResourceTotals::from(&*charge);
        let here = totals.fits(request, left);
        totals.add(request, -i64::from(here));
        left -= here;
        *charge = totals.to_resources();
    }
    share.charge.retain(|_, charge| !charge.is_empty());
    let mut slots_left = taken;
    let mut nodes = Vec::new();
    let slots = share.slots.iter_mut().rev();
    for slot in slots.filter(|slot| slot.role == role) {
        let gone = slot.count.min(slots_left);
        slot.count -= gone;
        slots_left -= gone;
        if gone > 0 {
            nodes.push((slot.node.clone(), gone));
        }
    }
    share.slots.retain(|slot| slot.count > 0);
    (taken, nodes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::api::facts::RolePods;
    use crate::testing::running;

    /// A job that has two pods in `a`, and one in each of `a` and `b` that leaves.
    fn shrinking() -> Released {
        let key = JobKey::new("ns", "job");
        let request = Resources::parse([("nvidia.com/gpu", "1")]).unwrap();
        let charge = BTreeMap::from([(PoolClass::from("gpu"), request.clone())]);
        let workers = RolePods {
            role: "worker".to_owned(),
            count: 2,
        };
        let engine = running(&key, vec![workers]);
        let mut released = engine.jobs.get(&key).unwrap().released.clone().unwrap();
        released.leaving = ["a", "b"]
            .map(|cluster| Leaving {
                cluster: ClusterName::from(cluster),
                role: "worker".to_owned(),
                count: 1,
                request: request.clone(),
                charge: charge.clone(),
            })
            .to_vec();
        *released
    }

    #[test]
    fn something_has_left_where_fewer_pods_can_be_than_stay_and_leave() {
        let cases = [
            ("a", 4, false),
            ("a", 3, false),
            ("a", 2, true),
            ("a", 0, true),
            ("b", 1, false),
            ("b", 0, true),
            ("c", 0, false),
        ];
        for (cluster, pods, left) in cases {
            let mut released = shrinking();
            let before = released.clone();
            let cluster = ClusterName::from(cluster);
            assert_eq!(
                released.confirm_gone(&cluster, pods),
                left,
                "{cluster} {pods}"
            );
            assert_eq!(released != before, left, "{cluster} {pods}");
        }
    }
}
