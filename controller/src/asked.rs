//! What members are told to run of a job: what its Works ask for, and where there is none yet, or
//! one that cannot be read, what its placement gets of its template.
//!
//! It is what a job is charged of which no record says what was admitted, and what a record is
//! compared with by a new leader.

use crate::adopt;
use crate::core::Core;
use crate::fact::Job;
use crate::seen_work::SeenWork;
use crds::karmada::{ResourceBinding, TargetCluster};
use crds::names;
use crds::record::RecordedShare;
use engine::{Amount, ClusterName, JobKey, PoolClass, QueueName, Resources, Time};
use workload::Rendered;

/// The class that is charged for what no record says: on which nodes it runs is the member's choice.
const CLASS: &str = "unrecorded";

impl Core {
    /// What a Work of `job` has its member run, where that can be read.
    fn rendered(&self, job: &JobKey, work: &SeenWork) -> Option<Rendered> {
        let asks = work.asks.as_ref()?;
        Some(asks.with_claims(&|template| self.world.claimed_by(job, template)))
    }

    /// What `works` of a job ask for, by cluster, of those that can be read and are waited for.
    pub(crate) fn asked_by_works<'a>(
        &self,
        job: &JobKey,
        works: impl IntoIterator<Item = &'a SeenWork>,
    ) -> Vec<RecordedShare> {
        let mut shares = Vec::new();
        for work in works.into_iter().filter(|work| !self.is_given_up(work)) {
            if let Some(rendered) = self.rendered(job, work) {
                cover(&mut shares, vec![share(&work.cluster, &rendered)]);
            }
        }
        shares
    }

    /// What members are told to run of the job of a binding, by cluster.
    pub(crate) fn as_it_runs(
        &self,
        key: &JobKey,
        binding: &ResourceBinding,
        job: Option<&Job>,
    ) -> Vec<RecordedShare> {
        let mut shares = self.asked_by_works(key, self.world.works_of(binding));
        let is_read = |cluster: &str| shares.iter().any(|share| share.name.as_str() == cluster);
        let mut unread: Vec<TargetCluster> = binding.spec.clusters.clone();
        for work in self.world.works_of(binding) {
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
            shares.extend(adopt::record_in(&unread, binding, job, Time(0)).clusters);
        }
        shares
    }

    /// The queue of a job of which only Works are left.
    pub(crate) fn queue_of_works<'a>(
        &self,
        key: &JobKey,
        works: impl IntoIterator<Item = &'a SeenWork>,
    ) -> QueueName {
        let podgroup = self.world.podgroups.get(key);
        let shown = podgroup.map(|podgroup| &*podgroup.spec.queue);
        let named = || works.into_iter().find_map(|work| work.queue.clone());
        let of_namespace = || self.namespace_of(key).default_queue;
        let of_namespace = || of_namespace().map(|queue| QueueName::new(&queue));
        let shown = shown.filter(|queue| !queue.is_empty()).map(QueueName::new);
        shown
            .or_else(named)
            .or_else(of_namespace)
            .unwrap_or_else(|| QueueName::new(names::DEFAULT_QUEUE))
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

/// Raises `shares` to what `others` charge, cluster by cluster and resource by resource.
pub(crate) fn cover(shares: &mut Vec<RecordedShare>, others: Vec<RecordedShare>) {
    for other in others {
        let Some(share) = shares.iter_mut().find(|share| share.name == other.name) else {
            shares.push(other);
            continue;
        };
        let (has, should) = (total(share), total(&other));
        let lacks: Resources = should
            .iter()
            .filter(|(name, amount)| *amount > has.amount_of(name))
            .map(|(name, amount)| {
                let lacks = amount.0.saturating_sub(has.amount_of(name).0);
                (name.clone(), Amount(lacks))
            })
            .collect();
        if lacks.is_empty() {
            continue;
        }
        let class = share.charge.entry(PoolClass::new(CLASS)).or_default();
        // What cannot be counted was refused when it was read.
        *class = class.checked_add(&lacks).unwrap_or(lacks);
        for pods in other.pods {
            match share.pods.iter_mut().find(|known| known.role == pods.role) {
                Some(known) => known.count = known.count.max(pods.count),
                None => share.pods.push(pods),
            }
        }
    }
}

/// What a share charges, over all classes.
pub(crate) fn total(share: &RecordedShare) -> Resources {
    let classes = share.charge.values();
    classes.fold(Resources::new(), |sum, class| {
        sum.checked_add(class).unwrap_or(sum)
    })
}
