//! Admitted jobs whose template has another size than their admission.
//!
//! If the size of a job is enforced, it gets more pods only when they are granted, and fewer at
//! once (`terminating.rs`). Growth that nothing can hold back (of other kinds, or of requests) is
//! charged at once, even beyond capability, and the job is marked as exceeding its grant. A job
//! that is known from its record is charged as recorded until its template is edited. What a cluster adds
//! to requests (LimitRange, RuntimeClass) is no edit: where it changes, running pods stay as they are.

use crate::amounts::totals::ResourceTotals;
use crate::api::decision::without_slots;
use crate::capacity::Need;
use crate::jobs::excess::leading_class;
use crate::jobs::job::Job;
use crate::jobs::store::Jobs;
use crate::jobs::terminating::Cut;
use facts::{
    Admission, Demand, Held, JobKey, PoolClass, Progress, Resources, Role, RolePods, Share,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A change of an admitted job through an edit of its template.
#[derive(Debug)]
pub(crate) enum Edited {
    /// The same pods with larger requests.
    Requests(Arc<Demand>),
    /// Other pods. Those that are not bound yet follow the new template, on nodes not known yet.
    Pods(Arc<Demand>, Vec<Share>),
}

impl Jobs {
    /// Compares the template of an admitted job with its admission, and charges growth that cannot
    /// be held back. `intern` returns the shared copy of a demand. The result is the change of its
    /// assumed pods, if there is one.
    pub(crate) fn compare_template(
        &mut self,
        key: &JobKey,
        intern: impl FnOnce(&Demand) -> Arc<Demand>,
    ) -> Option<Edited> {
        let job = self.job_mut(key)?;
        let demand = job.demand.clone()?;
        let released = job.released.as_mut()?;
        let same_object = released.admission.uid == job.uid;
        if !same_object || job.cold.hold.is_some() || released.progress == Progress::Finished {
            return None;
        }
        let basis = Arc::clone(released.basis.get_or_insert_with(|| Arc::clone(&demand)));
        if basis == demand && released.granted.is_none() {
            return None;
        }
        if demand.is_held() {
            let raised = with_larger_requests(&basis, &demand)?;
            charge_raise(&mut released.admission.shares, &basis, &raised);
            let raised = intern(&raised);
            released.basis = Some(Arc::clone(&raised));
            released.exceeds_grant = true;
            return Some(Edited::Requests(raised));
        }
        let granted = released
            .granted
            .get_or_insert_with(|| released.admission.shares.clone());
        let (shares, exceeds_grant) = resized_by_edit(granted, &basis, &demand);
        let changed = released.admission.shares != shares;
        released.admission.shares = shares;
        released.exceeds_grant = exceeds_grant;
        if basis == demand {
            released.granted = None;
        }
        (changed && released.starting())
            .then(|| Edited::Pods(demand, without_slots(&released.admission.shares)))
    }

    /// Adds `more` pods to an admitted job. Returns its new admission, and its demand.
    pub(crate) fn scale_up(
        &mut self,
        key: &JobKey,
        more: &Share,
        intern: impl FnOnce(&Demand) -> Arc<Demand>,
    ) -> Option<(Admission, Arc<Demand>)> {
        let job = self.job_mut(key)?;
        let demand = Arc::clone(job.demand.as_ref()?);
        let released = job.released.as_mut()?;
        let shares = &mut released.admission.shares;
        let share = shares
            .iter_mut()
            .find(|share| share.cluster == more.cluster)?;
        merge(share, more);
        released.shrunk_for.clear();
        self.rebase(key, intern);
        Some((self.released(key)?.admission.clone(), demand))
    }

    /// Sets the basis of an admitted job to its template with the admitted counts, and requests not
    /// below those of the earlier basis.
    pub(crate) fn rebase(&mut self, key: &JobKey, intern: impl FnOnce(&Demand) -> Arc<Demand>) {
        let Some(job) = self.job_mut(key) else {
            return;
        };
        let (Some(demand), Some(released)) = (job.demand.as_ref(), job.released.as_mut()) else {
            return;
        };
        let basis = with_counts(demand, released.basis.as_deref(), &released.admission);
        released.basis = Some(intern(&basis));
    }
}

impl Job {
    /// Returns true if its size is enforced and differs from its template's.
    pub(crate) fn asks_other_size(&self) -> bool {
        let (Some(demand), Some(released)) = (&self.demand, &self.released) else {
            return false;
        };
        demand.is_held()
            && released.alive()
            && released.admission.uid == self.uid
            && self.cold.hold.is_none()
            && demand
                .roles
                .iter()
                .any(|role| admitted(&released.admission, role) != role.count)
    }

    /// The number of pods by which it is smaller than its template.
    pub(crate) fn pods_missing(&self) -> u32 {
        let needs = self.missing(u32::MAX);
        needs.iter().map(|need| need.count).sum()
    }

    /// The pods by which it is smaller than its template, by role, at most `most`.
    pub(crate) fn missing(&self, most: u32) -> Vec<Need<'_>> {
        let (Some(demand), Some(released)) = (&self.demand, self.released.as_deref()) else {
            return Vec::new();
        };
        let mut left = most;
        let roles = demand.roles.iter().enumerate();
        let needs = roles.map(|(index, role)| {
            let more = role
                .count
                .saturating_sub(admitted(&released.admission, role));
            let count = more.min(left);
            left -= count;
            Need { index, role, count }
        });
        needs.filter(|need| need.count > 0).collect()
    }

    /// The pods by which it is larger than its template.
    pub(crate) fn beyond_template(&self) -> Vec<Cut> {
        let (Some(demand), Some(released)) = (&self.demand, self.released.as_deref()) else {
            return Vec::new();
        };
        let mut spare = spare(demand, &released.admission.shares);
        let mut cuts = Vec::new();
        for role in &demand.roles {
            cuts.extend(cuts_to(
                &released.admission.shares,
                &role.name,
                role.count,
                &mut spare,
            ));
        }
        cuts
    }
}

/// The cuts that reduce a role to `count` pods, from the last share on. Each share loses at most
/// its entry in `spare`.
pub(crate) fn cuts_to(shares: &[Share], role: &str, count: u32, spare: &mut [u32]) -> Vec<Cut> {
    let pods = shares.iter().map(|share| share.pods_of(role));
    let mut left = pods.sum::<u32>().saturating_sub(count);
    let mut cuts = Vec::new();
    for (share, spare) in shares.iter().zip(spare).rev() {
        let count = share.pods_of(role).min(left).min(*spare);
        left -= count;
        *spare -= count;
        if count > 0 {
            cuts.push(Cut {
                cluster: share.cluster.clone(),
                role: role.to_owned(),
                count,
            });
        }
    }
    cuts
}

/// The most pods that each share may lose. If overrides enforce the size, each share keeps one,
/// since the other parts know its address.
pub(crate) fn spare(demand: &Demand, shares: &[Share]) -> Vec<u32> {
    let least = u32::from(demand.held == Held::ByOverride);
    let spare = |share: &Share| share.replicas().saturating_sub(least);
    shares.iter().map(spare).collect()
}

fn role_named<'a>(demand: &'a Demand, name: &str) -> Option<&'a Role> {
    demand.roles.iter().find(|role| role.name == name)
}

/// The number of admitted pods of a role.
fn admitted(admission: &Admission, role: &Role) -> u32 {
    let shares = admission.shares.iter();
    shares.map(|share| share.pods_of(&role.name)).sum()
}

/// The basis with the larger requests of `demand`; `None` if none is larger.
fn with_larger_requests(basis: &Demand, demand: &Demand) -> Option<Demand> {
    let mut raised = basis.clone();
    for role in &mut raised.roles {
        if let Some(new) = role_named(demand, &role.name)
            && Resources::max(&role.request, &new.request) != role.request
        {
            raise(role, new);
        }
    }
    (raised != *basis).then_some(raised)
}

/// Raises the requests of a role, in each cluster, to at least those of another.
fn raise(role: &mut Role, to: &Role) {
    let clusters = role.requests_in.keys().chain(to.requests_in.keys());
    let in_clusters = clusters.map(|cluster| {
        let largest = Resources::max(role.request_in(cluster), to.request_in(cluster));
        (cluster.clone(), largest)
    });
    role.requests_in = in_clusters.collect();
    role.request = Resources::max(&role.request, &to.request);
}

/// The demand with the admitted counts, and requests not below the basis.
fn with_counts(demand: &Demand, basis: Option<&Demand>, admission: &Admission) -> Demand {
    let mut counted = demand.clone();
    for role in &mut counted.roles {
        role.count = admitted(admission, role);
        if let Some(old) = basis.and_then(|basis| role_named(basis, &role.name)) {
            raise(role, old);
        }
    }
    counted
}

/// Adds to each share the increase of its pods' requests.
fn charge_raise(shares: &mut [Share], basis: &Demand, raised: &Demand) {
    for share in shares {
        for pods in share.pods.clone() {
            let (Some(old), Some(new)) = (
                role_named(basis, &pods.role),
                role_named(raised, &pods.role),
            ) else {
                continue;
            };
            let [old, new] = [old, new].map(|role| role.request_in(&share.cluster));
            let mut more = ResourceTotals::from(new);
            more.add(old, -1);
            change_charge(share, new, &more, i64::from(pods.count));
        }
    }
}

/// The shares of a job after an edit that reached its members at once, and whether they exceed
/// `granted`.
fn resized_by_edit(granted: &[Share], basis: &Demand, demand: &Demand) -> (Vec<Share>, bool) {
    let mut shares = granted.to_vec();
    let mut exceeds_grant = false;
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
        let old_request = old.map_or(&none, |role| role.request_in(&share.cluster));
        let new_request = match (old, new) {
            (Some(old), Some(new)) if old.request == new.request => old_request,
            (_, new) => new.map_or(&none, |role| role.request_in(&share.cluster)),
        };
        let request = old_request.max(new_request);
        let (before, after) = (old.map_or(0, |r| r.count), new.map_or(0, |r| r.count));
        let mut more = ResourceTotals::default();
        more.add(&request, i64::from(after));
        more.add(old_request, -i64::from(before));
        exceeds_grant |= after > before || (after > 0 && request != *old_request);
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
    (shares, exceeds_grant)
}

/// Changes the charge of a share by `times × by` in its leading class, to zero at least.
fn change_charge(share: &mut Share, request: &Resources, by: &ResourceTotals, times: i64) {
    let class = leading_class(&share.charge, request).unwrap_or_else(|| PoolClass::from("cpu"));
    let charge = share.charge.entry(class).or_default();
    let mut totals = ResourceTotals::from(&*charge);
    totals.add_totals(by, times);
    *charge = totals.to_resources();
}

/// Adds the pods of `more` to a share.
fn merge(share: &mut Share, more: &Share) {
    for pods in &more.pods {
        match share.pods.iter_mut().find(|known| known.role == pods.role) {
            Some(known) => known.count += pods.count,
            None => share.pods.push(pods.clone()),
        }
    }
    let mut charge: BTreeMap<PoolClass, ResourceTotals> = share
        .charge
        .iter()
        .map(|(class, r)| (class.clone(), ResourceTotals::from(r)))
        .collect();
    for (class, resources) in &more.charge {
        charge.entry(class.clone()).or_default().add(resources, 1);
    }
    share.charge = charge
        .into_iter()
        .map(|(class, totals)| (class, totals.to_resources()))
        .collect();
    share.slots.extend(more.slots.iter().cloned());
}
