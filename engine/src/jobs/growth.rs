//! Released jobs whose template asks for another size than was admitted.
//!
//! Where Karmada holds replicas, more pods wait here until quota and room are granted, and
//! fewer are told to go at once ([`crate::jobs::leaving`]). What nothing can hold (other kinds, larger requests) is
//! charged at once, even beyond capability, and marked for being pinned back. A job that only
//! its record tells of is charged what that says until its template is edited.

use crate::amounts::resources::Resources;
use crate::amounts::tally::Tally;
use crate::api::decision::Decision;
use crate::api::event::Progress;
use crate::api::facts::{Admission, Demand, Held, Role, RolePods, Share};
use crate::api::ids::{JobKey, PoolClass};
use crate::capacity::{Basis, Need, leading};
use crate::cycle::evaluate::Request;
use crate::engine::Engine;
use crate::jobs::leaving::Cut;
use crate::pending::shapes::RequestShape;
use crate::placement::plan::View;
use crate::quota::queues::pools_of;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many pods a role has beyond (or below) what was admitted.
struct Difference<'a> {
    index: usize,
    role: &'a Role,
    admitted: u32,
}

impl Engine {
    /// A released job's template was told (again): charges what cannot be held, and notes what
    /// has to be granted.
    pub(crate) fn take_demand(&mut self, key: &JobKey) {
        let Some(job) = self.jobs.by_key.get_mut(key) else {
            return;
        };
        let (Some(demand), Some(released)) = (job.demand.clone(), job.released.as_mut()) else {
            return;
        };
        let same_object = released.admission.uid == job.uid;
        if !same_object || job.cold.hold.is_some() || released.progress == Progress::Finished {
            return;
        }
        let basis = Arc::clone(released.basis.get_or_insert_with(|| Arc::clone(&demand)));
        if basis == demand && released.granted.is_none() {
            return;
        }
        if demand.is_held() {
            if let Some(raised) = with_larger_requests(&basis, &demand) {
                charge_raise(&mut released.admission.shares, &basis, &raised);
                let raised = self.pending.shapes.intern_demand(&raised);
                released.basis = Some(Arc::clone(&raised));
                released.overgrown = true;
                self.capacity.room.add_seats(key, &raised, None);
            }
            return;
        }
        let granted = released
            .granted
            .get_or_insert_with(|| released.admission.shares.clone());
        let (shares, overgrown) = resized_by_edit(granted, &basis, &demand);
        let changed = released.admission.shares != shares;
        released.admission.shares = shares;
        released.overgrown = overgrown;
        if basis == demand {
            released.granted = None;
        }
        if changed && released.starting() {
            // What is not bound yet will come as the template says now, on nodes found anew.
            let shares = crate::api::decision::without_slots(&released.admission.shares);
            self.capacity.room.assume_seats(key, demand, &shares);
        }
    }

    /// Notes whether a released job waits for a grant, or has pods to give back.
    pub(crate) fn note_growth(&mut self, key: &JobKey) {
        let differs = self.jobs.by_key.get(key).is_some_and(|job| {
            let (Some(demand), Some(released)) = (&job.demand, &job.released) else {
                return false;
            };
            let alive = !matches!(released.progress, Progress::Ending | Progress::Finished);
            let same_object = released.admission.uid == job.uid;
            demand.is_held()
                && alive
                && same_object
                && job.cold.hold.is_none()
                && differences(demand, &released.admission)
                    .iter()
                    .any(|difference| difference.admitted != difference.role.count)
        });
        if differs {
            self.jobs.scale_up_due |= self.jobs.resizing.insert(key.clone());
        } else {
            self.jobs.resizing.remove(key);
        }
    }

    /// Grants growth where quota and room are there, and takes shrinks.
    pub(crate) fn grow(&mut self, decisions: &mut Vec<Decision>) {
        for key in self.jobs.resizing.clone() {
            if decisions.len() >= self.config.decision_budget {
                return;
            }
            if let Some(decision) = self.shrink(&key) {
                decisions.push(decision);
            }
            let elastic = self
                .jobs
                .by_key
                .get(&key)
                .and_then(|job| job.demand.as_ref());
            if elastic.is_some_and(|demand| demand.elastic) {
                continue; // Grows when those who wait had their turn.
            }
            if let Ok(Some(more)) = self.judge_growth(&key) {
                decisions.extend(self.enlarge(&key, &more));
            }
        }
    }

    /// The share by which a job may grow now; `Ok(None)` where it does not ask to.
    ///
    /// # Errors
    /// What stops it, in words.
    pub(crate) fn judge_growth(&self, key: &JobKey) -> Result<Option<Share>, String> {
        self.judge_growth_by(key, u32::MAX)
    }

    /// The same for no more than `most` pods.
    pub(crate) fn judge_growth_by(&self, key: &JobKey, most: u32) -> Result<Option<Share>, String> {
        let Some(job) = self.jobs.by_key.get(key) else {
            return Ok(None);
        };
        let (Some(demand), Some(released)) = (&job.demand, job.released.as_deref()) else {
            return Ok(None);
        };
        let mut left = most;
        let mut needs: Vec<Need<'_>> = Vec::new();
        for difference in differences(demand, &released.admission) {
            let more = difference.role.count.saturating_sub(difference.admitted);
            let count = more.min(left);
            left -= count;
            if count > 0 {
                needs.push(Need {
                    index: difference.index,
                    role: difference.role,
                    count,
                });
            }
        }
        if needs.is_empty() {
            return Ok(None);
        }
        let mut extra = Tally::default();
        for need in &needs {
            extra.add(&need.role.request, i64::from(need.count));
        }
        let shape = RequestShape {
            demand: Arc::clone(demand),
            total: extra.to_resources(),
            duration: job.duration,
            user: None,
            max_clusters: None,
            avoid: BTreeSet::new(),
            preempts: false,
        };
        let queue = &released.admission.queue;
        let rank = self.rank_of(key, job);
        let request = Request {
            queue,
            rank: &rank,
            shape: &shape,
            tells: false,
        };
        self.more_of(request, released.admission.shares.as_slice(), &needs)
            .map(Some)
    }

    fn more_of(
        &self,
        request: Request<'_>,
        shares: &[Share],
        needs: &[Need<'_>],
    ) -> Result<Share, String> {
        let ahead = if request.shape.demand.elastic {
            self.kept_by_others(&request.rank.key)
        } else {
            self.reservations_ahead(request)
        };
        let view = View {
            basis: Basis::Now,
            nodes: self.nodes_kept(&ahead),
            kept: self.headroom_kept(&ahead),
            tells: false,
        };
        let total = self
            .quota
            .check_total(request.queue, &request.shape.total, &view.kept);
        total.map_err(|short| short.message(&self.quota))?;
        let mut why = "it is placed nowhere".to_owned();
        for share in shares {
            let lens = crate::placement::plan::lens(&view, &share.cluster, None);
            let packing = self.capacity.room.pack(&share.cluster, needs, &lens);
            if let Some(lack) = packing.lack {
                why = format!(
                    "{} has room for {} of {} more pods",
                    share.cluster, lack.placed, lack.wanted
                );
                continue;
            }
            let more = self.share_of(&share.cluster, &request.shape.demand, &packing);
            let pools = pools_of(std::slice::from_ref(&more));
            match self.quota.check_pools(request.queue, &pools, &view.kept) {
                Ok(()) => return Ok(more),
                Err(short) => why = short.message(&self.quota),
            }
        }
        Err(why)
    }

    /// Pods that a released job has less than its template asks for.
    pub(crate) fn pods_missing(&self, key: &JobKey) -> u32 {
        let Some(job) = self.jobs.by_key.get(key) else {
            return 0;
        };
        let (Some(demand), Some(released)) = (&job.demand, job.released.as_deref()) else {
            return 0;
        };
        let missing = differences(demand, &released.admission).into_iter();
        missing
            .map(|difference| difference.role.count.saturating_sub(difference.admitted))
            .sum()
    }

    pub(crate) fn enlarge(&mut self, key: &JobKey, more: &Share) -> Option<Decision> {
        let job = self.jobs.by_key.get_mut(key)?;
        let demand = Arc::clone(job.demand.as_ref()?);
        let released = job.released.as_mut()?;
        let shares = &mut released.admission.shares;
        let share = shares
            .iter_mut()
            .find(|share| share.cluster == more.cluster)?;
        merge(share, more);
        let basis = with_counts(&demand, released.basis.as_deref(), &released.admission);
        released.basis = Some(self.pending.shapes.intern_demand(&basis));
        released.gave_to.clear();
        let admission = released.admission.clone();
        self.capacity.room.add_seats(key, &demand, Some(more));
        self.settle_released(key);
        self.note_touched();
        Some(Decision::Resize {
            key: key.clone(),
            admission,
            for_job: None,
            message: format!("grows by {} pods on {}", more.replicas(), more.cluster),
        })
    }

    /// The job has other counts now: its basis follows, requests never below what it had.
    pub(crate) fn rebase(&mut self, key: &JobKey) {
        let Some(job) = self.jobs.by_key.get_mut(key) else {
            return;
        };
        let (Some(demand), Some(released)) = (job.demand.as_ref(), job.released.as_mut()) else {
            return;
        };
        let basis = with_counts(demand, released.basis.as_deref(), &released.admission);
        released.basis = Some(self.pending.shapes.intern_demand(&basis));
    }

    /// The shrink that the template asks for, if it does.
    fn shrink(&mut self, key: &JobKey) -> Option<Decision> {
        let job = self.jobs.by_key.get(key)?;
        let admission = &job.released.as_ref()?.admission;
        let demand = job.demand.as_ref()?;
        let mut spare = spare(demand, &admission.shares);
        let mut cuts = Vec::new();
        for difference in differences(demand, admission) {
            let mut left = difference.admitted.saturating_sub(difference.role.count);
            for (share, spare) in admission.shares.iter().zip(&mut spare).rev() {
                let pods = share.pods.iter();
                let has = pods.filter(|pods| pods.role == difference.role.name);
                let has = has.map(|pods| pods.count).sum::<u32>();
                let count = has.min(left).min(*spare);
                left -= count;
                *spare -= count;
                if count > 0 {
                    cuts.push(Cut {
                        cluster: share.cluster.clone(),
                        role: difference.role.name.clone(),
                        count,
                    });
                }
            }
        }
        self.let_go(key, &cuts, None, "")
    }
}

/// How many pods each share may lose at most: where overrides hold the parts of a gang, none of
/// them goes whole, for those that stay were told of it.
pub(crate) fn spare(demand: &Demand, shares: &[Share]) -> Vec<u32> {
    let kept = u32::from(demand.held == Held::ByOverride);
    let spare = |share: &Share| share.replicas().saturating_sub(kept);
    shares.iter().map(spare).collect()
}

fn role_named<'a>(demand: &'a Demand, name: &str) -> Option<&'a Role> {
    demand.roles.iter().find(|role| role.name == name)
}

fn differences<'a>(demand: &'a Demand, admission: &Admission) -> Vec<Difference<'a>> {
    let roles = demand.roles.iter().enumerate();
    roles
        .map(|(index, role)| {
            let pods = admission.shares.iter().flat_map(|share| &share.pods);
            let admitted = pods
                .filter(|pods| pods.role == role.name)
                .map(|pods| pods.count);
            Difference {
                index,
                role,
                admitted: admitted.sum(),
            }
        })
        .collect()
}

/// The basis with larger requests where the new demand has such; `None` where it has none.
fn with_larger_requests(basis: &Demand, demand: &Demand) -> Option<Demand> {
    let mut raised = basis.clone();
    for role in &mut raised.roles {
        if let Some(new) = role_named(demand, &role.name) {
            role.request = Resources::max(&role.request, &new.request);
        }
    }
    (raised != *basis).then_some(raised)
}

/// The demand with the counts that are admitted now, requests never below the basis.
fn with_counts(demand: &Demand, basis: Option<&Demand>, admission: &Admission) -> Demand {
    let mut counted = demand.clone();
    let admitted: Vec<u32> = differences(demand, admission)
        .iter()
        .map(|d| d.admitted)
        .collect();
    for (role, count) in counted.roles.iter_mut().zip(admitted) {
        role.count = count;
        if let Some(old) = basis.and_then(|basis| role_named(basis, &role.name)) {
            role.request = Resources::max(&role.request, &old.request);
        }
    }
    counted
}

/// Adds to each share what its pods request more than before.
fn charge_raise(shares: &mut [Share], basis: &Demand, raised: &Demand) {
    for share in shares {
        for pods in share.pods.clone() {
            let (Some(old), Some(new)) = (
                role_named(basis, &pods.role),
                role_named(raised, &pods.role),
            ) else {
                continue;
            };
            let mut more = Tally::from(&new.request);
            more.add(&old.request, -1);
            change_charge(share, &new.request, &more, i64::from(pods.count));
        }
    }
}

/// What a job has after an edit that went straight to its members, measured from what was
/// granted; whether that is more.
fn resized_by_edit(granted: &[Share], basis: &Demand, demand: &Demand) -> (Vec<Share>, bool) {
    let mut shares = granted.to_vec();
    let mut overgrown = false;
    let names: BTreeSet<&String> = basis
        .roles
        .iter()
        .chain(&demand.roles)
        .map(|role| &role.name)
        .collect();
    let Some(share) = shares.first_mut() else {
        return (shares, false);
    };
    for name in names {
        let none = Resources::new();
        let (old, new) = (role_named(basis, name), role_named(demand, name));
        let old_request = old.map_or(&none, |role| &role.request);
        let request = old_request.max(new.map_or(&none, |role| &role.request));
        let (before, after) = (old.map_or(0, |r| r.count), new.map_or(0, |r| r.count));
        let mut more = Tally::default();
        more.add(&request, i64::from(after));
        more.add(old_request, -i64::from(before));
        overgrown |= after > before || (after > 0 && request != *old_request);
        change_charge(share, &request, &more, 1);
        let has = share.pods.iter().position(|pods| pods.role == *name);
        let count = has.map_or(0, |index| share.pods[index].count);
        let count =
            count.saturating_sub(before.saturating_sub(after)) + after.saturating_sub(before);
        share.pods.retain(|pods| pods.role != *name);
        if count > 0 {
            share.pods.push(RolePods {
                role: name.clone(),
                count,
            });
        }
    }
    let order = |pods: &RolePods| demand.roles.iter().position(|role| role.name == pods.role);
    share.pods.sort_by_key(order);
    (shares, overgrown)
}

/// Changes the charge of a share by `times × by`, in the class that has what the role is best
/// known by; below zero nothing falls.
fn change_charge(share: &mut Share, request: &Resources, by: &Tally, times: i64) {
    let leading = leading(request);
    let class = share
        .charge
        .iter()
        .max_by_key(|(class, charge)| {
            let has = leading.map(|name| charge.amount_of(name));
            (has, std::cmp::Reverse((*class).clone()))
        })
        .map_or_else(|| PoolClass::from("cpu"), |(class, _)| class.clone());
    let mut charge = share
        .charge
        .get(&class)
        .map(Tally::from)
        .unwrap_or_default();
    charge.add_tally(by, times);
    share.charge.insert(class, charge.to_resources());
}

/// Adds further pods to a share.
fn merge(share: &mut Share, more: &Share) {
    for pods in &more.pods {
        match share.pods.iter_mut().find(|known| known.role == pods.role) {
            Some(known) => known.count += pods.count,
            None => share.pods.push(pods.clone()),
        }
    }
    let mut charge: BTreeMap<PoolClass, Tally> = share
        .charge
        .iter()
        .map(|(class, r)| (class.clone(), Tally::from(r)))
        .collect();
    for (class, resources) in &more.charge {
        charge.entry(class.clone()).or_default().add(resources, 1);
    }
    share.charge = charge
        .into_iter()
        .map(|(class, tally)| (class, tally.to_resources()))
        .collect();
    share.slots.extend(more.slots.iter().cloned());
}
