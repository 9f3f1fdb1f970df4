//! What members run of a job. The Works of the job say so; where a Work is missing or unreadable, the
//! template and the placement do.
//!
//! A job without a usable record is charged for this, and a new leader compares records with it.

use crate::facts::adopted;
use crate::facts::job::ResolvedJob;
use crate::facts::view::View;
use crate::mirror::seen_work::SeenWork;
use binding_writer::overrides;
use crds::karmada::{AppliedOverride, ResourceBinding, TargetCluster};
use crds::record::{AdmissionRecord, Parts, RecordState, RecordedShare};
use engine::facts::{Admission, Held, Role};
use engine::{Amount, Attempt, ClusterName, JobKey, PoolClass, QueueName, Resources, Time, Uid};
use workload::Rendered;

/// The class to charge for pods without a record: the member chooses their nodes.
const CLASS: &str = "unrecorded";

impl View<'_> {
    /// Returns what a Work of `job` makes its member run, if the Work is readable and not ignored.
    pub(crate) fn rendered(&self, job: &JobKey, work: &SeenWork) -> Option<Rendered> {
        let asks = work.asks.as_ref().filter(|_| !self.is_given_up(work))?;
        Some(asks.with_claims(&|template| self.mirror.claims.claimed_by(job, template)))
    }

    /// Returns what `works` of a job request, by cluster. Unreadable and ignored Works are left out.
    pub(crate) fn requested_by_works<'a>(
        &self,
        job: &JobKey,
        works: impl IntoIterator<Item = &'a SeenWork>,
    ) -> Vec<RecordedShare> {
        let mut shares = Vec::new();
        for work in works {
            if let Some(rendered) = self.rendered(job, work) {
                cover(&mut shares, vec![share(&work.cluster, &rendered)]);
            }
        }
        shares
    }

    /// Returns what members run of the job of a binding, by cluster.
    pub(crate) fn running_shares(
        &self,
        key: &JobKey,
        binding: &ResourceBinding,
        job: Option<&ResolvedJob>,
    ) -> Vec<RecordedShare> {
        let mut shares = self.requested_by_works(key, self.mirror.works.of(binding));
        let is_read = |cluster: &str| shares.iter().any(|share| share.name.as_str() == cluster);
        let mut unread: Vec<TargetCluster> = binding.spec.clusters.clone();
        for work in self.mirror.works.of(binding) {
            let mut placed = unread.iter();
            if !self.is_given_up(work) && !placed.any(|cluster| cluster.name == work.cluster) {
                unread.push(TargetCluster {
                    name: work.cluster.clone(),
                    replicas: None,
                });
            }
        }
        unread.retain(|cluster| !is_read(&cluster.name));
        if let Some(job) = job {
            shares.extend(adopted::record_in(&unread, binding, job, Time(0)).clusters);
        }
        shares
    }

    /// Raises `record` to all that members run, and returns by how much. What an override or an edit of the
    /// template adds is not counted.
    pub(crate) fn raised_to_running(
        &self,
        key: &JobKey,
        binding: &ResourceBinding,
        record: &AdmissionRecord,
    ) -> Option<(AdmissionRecord, String)> {
        let unsized_yet = record.adopted && record.clusters.is_empty();
        if record.parts == Some(Parts::Held) || unsized_yet {
            return None;
        }
        let job = self.resolved_job(key, binding, &self.namespace_of(key));
        let template = self.mirror.template_of(binding);
        let edited = template.is_some_and(|seen| seen.generation != Some(1));
        if edited && job.as_ref().is_some_and(|job| has_grown(job, record)) {
            return None;
        }
        let mut whole = record.clone();
        let mut lacks = Vec::new();
        for (asked, beyond) in self.beyond(key, binding, record, job.as_ref()) {
            lacks.push(format!("{beyond} in {}", asked.name));
            add(&mut whole.clusters, asked, &beyond);
        }
        if lacks.is_empty() {
            return None;
        }
        for role in job.iter().flat_map(|job| &job.fact.demand.roles) {
            if let Some(request) = whole.requests.get_mut(&role.name) {
                *request = Resources::max(request, &role.request);
            }
        }
        Some((whole, lacks.join(", ")))
    }

    /// Returns what runs in each cluster where that exceeds the record, and by how much.
    fn beyond(
        &self,
        key: &JobKey,
        binding: &ResourceBinding,
        record: &AdmissionRecord,
        job: Option<&ResolvedJob>,
    ) -> Vec<(RecordedShare, Resources)> {
        let surge = self.surge_of(binding, record);
        let mut beyond = Vec::new();
        let mut unread: Vec<TargetCluster> = binding.spec.clusters.clone();
        for work in self.mirror.works.of(binding) {
            unread.retain(|cluster| cluster.name != work.cluster);
            let rendered = self.rendered(key, work);
            let overridden = foreign_overrides(key, work).next().is_some();
            if let Some(rendered) = rendered.filter(|_| !overridden) {
                let charged = charged_in(record, &work.cluster);
                beyond.push((
                    share(&work.cluster, &rendered),
                    rendered.beyond(&charged, &surge),
                ));
            }
        }
        // The template does not say how large a part is.
        if let Some(job) = job.filter(|_| !record.is_split()) {
            for asked in adopted::record_in(&unread, binding, job, Time(0)).clusters {
                let charged = charged_in(record, asked.name.as_str());
                let lacks = shortfall(&charged, &total(&asked));
                beyond.push((asked, lacks));
            }
        }
        beyond.retain(|(_, beyond)| !beyond.is_empty());
        beyond
    }

    /// Returns what a rolling update may start in addition: as the template says, and at most what was admitted for
    /// that, which are the pods of `record` beyond the placed replicas.
    pub(crate) fn surge_of(
        &self,
        binding: &ResourceBinding,
        record: &AdmissionRecord,
    ) -> Resources {
        let ask = self.mirror.ask_of(binding);
        let first = ask.and_then(|ask| Some((ask.roles.first()?, ask.surge)));
        let surge = first.and_then(|(role, surge)| {
            let admitted = admitted_surge(record, &role.name, &binding.spec.clusters);
            role.request.checked_mul(surge.min(admitted))
        });
        surge.unwrap_or_default()
    }

    /// Returns the queue of a job of which only Works are left.
    pub(crate) fn queue_of_works<'a>(
        &self,
        key: &JobKey,
        works: impl IntoIterator<Item = &'a SeenWork>,
    ) -> QueueName {
        let podgroup = self.mirror.podgroups().get(key);
        let shown = podgroup.map(|podgroup| &*podgroup.spec.queue);
        let named = || works.into_iter().find_map(|work| work.queue.clone());
        let shown = shown.filter(|queue| !queue.is_empty()).map(QueueName::new);
        shown
            .or_else(named)
            .unwrap_or_else(|| QueueName::new(self.namespace_of(key).queue()))
    }
}

/// Returns how many pods of `role` were admitted beyond the replicas that are placed.
fn admitted_surge(record: &AdmissionRecord, role: &str, placed: &[TargetCluster]) -> u32 {
    let pods = record.clusters.iter().flat_map(|share| &share.pods);
    let admitted = pods.filter(|pods| pods.role == role).map(|pods| pods.count);
    let replicas = placed
        .iter()
        .filter_map(|cluster| u32::try_from(cluster.replicas?).ok());
    let admitted: u32 = admitted.sum();
    admitted.saturating_sub(replicas.sum())
}

/// Builds the record of pods that run and were never recorded: an attempt of its own, of which only
/// `clusters` is known.
pub(crate) fn record_of(
    (uid, attempt): (&str, Attempt),
    queue: QueueName,
    clusters: Vec<RecordedShare>,
    state: RecordState,
    now: Time,
) -> AdmissionRecord {
    let admission = Admission {
        uid: Uid::new(uid),
        attempt,
        queue,
        admitted_at: now,
        declared_ms: None,
        shares: Vec::new(),
    };
    AdmissionRecord {
        clusters,
        ..AdmissionRecord::new(&admission, state)
    }
}

fn share(cluster: &str, rendered: &Rendered) -> RecordedShare {
    RecordedShare {
        name: ClusterName::new(cluster),
        pods: rendered.pods().to_vec(),
        charge: [(PoolClass::new(CLASS), rendered.total().clone())].into(),
        unknown: Default::default(),
    }
}

/// Returns true if the template requests more than was admitted: more in each pod, or more pods where
/// nothing limits their number.
fn has_grown(job: &ResolvedJob, record: &AdmissionRecord) -> bool {
    let demand = &job.fact.demand;
    let pods = |role: &str| -> u32 {
        let shares = record.clusters.iter().flat_map(|share| &share.pods);
        shares
            .filter(|pods| pods.role == role)
            .map(|pods| pods.count)
            .sum()
    };
    let more = |role: &Role| role.count > pods(&role.name);
    let grows = demand.held == Held::Not && demand.roles.iter().any(more);
    grows || !workload::raised_requests(&demand.roles, &record.requests).is_empty()
}

/// Policies that apply to a Work of `job` and were not written by Muster for the job.
pub(crate) fn foreign_overrides<'a>(
    job: &JobKey,
    work: &'a SeenWork,
) -> impl Iterator<Item = &'a AppliedOverride> {
    let ours = [
        overrides::name(job),
        overrides::keep_name(job),
        overrides::off_name(job),
    ];
    let applied = work.overrides.iter();
    applied.filter(move |of| of.cluster_wide || !ours.contains(&of.name))
}

/// Returns what a record charges in one cluster: its share and the pods that are leaving.
fn charged_in(record: &AdmissionRecord, cluster: &str) -> Resources {
    let shares = record.clusters.iter();
    let shares = shares.filter(|share| share.name.as_str() == cluster);
    let leaving = record.leaving.iter();
    let leaving = leaving.filter(|leaving| leaving.cluster.as_str() == cluster);
    let charges = shares.flat_map(|share| share.charge.values());
    sum(charges.chain(leaving.flat_map(|leaving| leaving.charge.values())))
}

/// Returns by how much `has` is less than `should`.
fn shortfall(has: &Resources, should: &Resources) -> Resources {
    let more = should
        .iter()
        .filter(|(name, amount)| *amount > has.amount_of(name));
    more.map(|(name, amount)| {
        let lacks = amount.0.saturating_sub(has.amount_of(name).0);
        (name.clone(), Amount(lacks))
    })
    .collect()
}

/// Charges `beyond` in the cluster of `asked` as well, for the pods requested there.
fn add(shares: &mut Vec<RecordedShare>, asked: RecordedShare, beyond: &Resources) {
    let Some(share) = shares.iter_mut().find(|share| share.name == asked.name) else {
        let charge = [(PoolClass::new(CLASS), beyond.clone())].into();
        return shares.push(RecordedShare { charge, ..asked });
    };
    let class = share.charge.entry(PoolClass::new(CLASS)).or_default();
    // An amount that overflows was refused when it was read.
    *class = class.checked_add(beyond).unwrap_or_else(|| beyond.clone());
    for pods in asked.pods {
        match share.pods.iter_mut().find(|known| known.role == pods.role) {
            Some(known) => known.count = known.count.max(pods.count),
            None => share.pods.push(pods),
        }
    }
}

/// Raises `shares` to at least `others`, cluster by cluster and resource by resource.
pub(crate) fn cover(shares: &mut Vec<RecordedShare>, others: Vec<RecordedShare>) {
    for other in others {
        let Some(share) = shares.iter().find(|share| share.name == other.name) else {
            shares.push(other);
            continue;
        };
        let lacks = shortfall(&total(share), &total(&other));
        if !lacks.is_empty() {
            add(shares, other, &lacks);
        }
    }
}

/// Returns what a share charges, over all classes.
pub(crate) fn total(share: &RecordedShare) -> Resources {
    sum(share.charge.values())
}

/// Sums charges; each of them was checked for overflow before.
pub(crate) fn sum<'a>(mut charges: impl Iterator<Item = &'a Resources>) -> Resources {
    let sum = charges.try_fold(Resources::new(), |sum, charge| sum.checked_add(charge));
    sum.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_surge_is_what_was_admitted_beyond_the_replicas() {
        let record: AdmissionRecord = serde_json::from_value(json!({
            "templateUID": "u", "attempt": 1, "state": "Admitted", "queue": "q", "time": "2026-01-01T00:00:00Z",
            "clusters": [
                {"name": "a", "pods": [{"role": "main", "count": 4}, {"role": "other", "count": 9}], "charge": {}},
                {"name": "b", "pods": [{"role": "main", "count": 3}], "charge": {}},
            ],
        }))
        .unwrap();
        for (replicas, surge) in [([3, 2], 2), ([4, 3], 0), ([5, 9], 0)] {
            let placed = ["a", "b"].into_iter().zip(replicas);
            let placed = placed.map(|(name, replicas)| TargetCluster {
                name: name.to_owned(),
                replicas: Some(replicas),
            });
            let placed: Vec<TargetCluster> = placed.collect();
            assert_eq!(admitted_surge(&record, "main", &placed), surge);
        }
    }
}
