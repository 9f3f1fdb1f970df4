//! Terminating pods: an admitted job is shrunk, and the pods that leave stay charged until the
//! member confirms that they are gone.
//!
//! A shrink to the size of the template and one that frees capacity for another job are the same
//! here. The decision is the new size, which the shares of the admission have; the terminating pods
//! are listed beside it with their charge, until [`crate::Event::JobResized`] reports them gone.
//! Assumed pods that were never observed stay assumed as long, since the member may still start
//! them. So capacity of a slow or unreachable member is never used twice.

use crate::amounts::totals::ResourceTotals;
use crate::api::charge::{Pools, add_charge, pools_of};
use crate::jobs::excess;
use crate::jobs::job::Released;
use crate::jobs::store::Jobs;
use facts::{
    Admission, Attempt, ClusterName, Demand, JobKey, Leaving, NodeName, PoolClass, Resources, Share,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods of one role to remove from one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) cluster: ClusterName,
    pub(crate) role: String,
    pub(crate) count: u32,
}

impl Jobs {
    /// Shrinks an admitted job, for another job if `for_job` names one. Returns its new admission
    /// and the number of pods that terminate; `None` if it has none of the pods of `cuts`.
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
        released.shrunk_for.extend(for_job.cloned());
        let shares = &mut released.admission.shares;
        shares.retain(|share| !share.pods.is_empty());
        let admission = released.admission.clone();
        self.rebase(key, intern);
        Some((admission, pods))
    }

    /// Observes that at most `pods` pods of an attempt can be in a cluster. Returns the most of
    /// each role that can be there, if some are gone.
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
    /// The charge by pool: of the admission, the terminating pods and the excess.
    pub(crate) fn pools(&self) -> Pools {
        let mut pools = pools_of(&self.admission.shares);
        for leaving in &self.leaving {
            for (class, resources) in &leaving.charge {
                add_charge(&mut pools, &leaving.cluster, class, resources);
            }
        }
        excess::charge(&mut pools, &self.excess, &self.admission.shares);
        pools
    }

    /// Removes pods from its shares. Returns the terminating pods, and the planned nodes that they
    /// leave.
    pub(crate) fn cut(
        &mut self,
        basis: &Demand,
        cut: &Cut,
    ) -> Option<(Leaving, Vec<(NodeName, u32)>)> {
        let shares = &mut self.admission.shares;
        let share = shares.iter_mut().find(|s| s.cluster == cut.cluster)?;
        let role = basis.roles.iter().find(|role| role.name == cut.role)?;
        let before = share.charge.clone();
        let request = role.request_in(&cut.cluster);
        let (count, nodes) = take_pods(share, &cut.role, request, cut.count);
        let leaving = Leaving {
            cluster: cut.cluster.clone(),
            role: cut.role.clone(),
            count,
            request: request.clone(),
            charge: less(&before, &share.charge),
        };
        (count > 0).then_some((leaving, nodes))
    }

    /// Adds terminating pods.
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
            let charge = known.charge.entry(class).or_default();
            let mut totals = ResourceTotals::from(&*charge);
            totals.add(&resources, 1);
            *charge = totals.to_resources();
        }
    }

    /// Removes terminating pods so that at most `pods` pods can be in the cluster. Whether there
    /// were any to remove.
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
                reduce(leaving, left);
            }
        }
        self.leaving.retain(|leaving| leaving.count > 0);
        changed
    }
}

/// Reduces terminating pods to `count`, with their charge.
fn reduce(leaving: &mut Leaving, count: u32) {
    let gone = leaving.count - count;
    leaving.count = count;
    if count == 0 {
        return leaving.charge.clear();
    }
    uncharge(&mut leaving.charge, &leaving.request, gone);
}

/// Removes the charge of `count` pods, from the last class on.
fn uncharge(charges: &mut BTreeMap<PoolClass, Resources>, request: &Resources, mut count: u32) {
    for charge in charges.values_mut().rev() {
        let mut totals = ResourceTotals::from(&*charge);
        let here = totals.fits(request, count);
        totals.add(request, -i64::from(here));
        count -= here;
        *charge = totals.to_resources();
    }
    charges.retain(|_, charge| !charge.is_empty());
}

/// The charges of `before` that are not in `after`.
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

/// Removes up to `count` pods of a role from a share, with their charge. Returns their number, and
/// the planned nodes that they leave, from the last on.
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
    uncharge(&mut share.charge, request, taken);
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
    use crate::testing::running;
    use facts::RolePods;

    /// A job with two pods in `a`, and a terminating pod in each of `a` and `b`.
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
    fn pods_are_gone_if_fewer_can_be_there_than_stay_and_leave() {
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
