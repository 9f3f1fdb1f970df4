//! Which jobs may be evicted or shrunk for which.

use super::checks::{charged, check_whole};
use super::model::Model;
use super::pools::within;
use engine::facts::{Admission, JobFact, PodFact, PoolBound, Share};
use engine::{
    Amount, Decision, JobKey, JobState, PoolClass, QueueName, Reason, ResourceName, Resources, Uid,
};
use std::collections::{BTreeMap, BTreeSet};

fn promises(bound: &PoolBound) -> bool {
    !bound.guarantee.is_empty() || !bound.deserved.is_empty()
}

fn gpu() -> ResourceName {
    ResourceName::new("nvidia.com/gpu")
}

/// One pod of each part of an admission that has fewer pods after a shrink.
fn lost_pods(before: &Admission, after: &Admission) -> Vec<Admission> {
    let pods = |part: &Resources| part.amount_of(&ResourceName::new(ResourceName::PODS)).0;
    let left = |share: &Share, class| {
        let same = after
            .shares
            .iter()
            .filter(|left| left.cluster == share.cluster);
        let parts = same.filter_map(|left| left.charge.get(class));
        parts.map(pods).sum::<i64>()
    };
    let parts = before.shares.iter().flat_map(|share| {
        let parts = share.charge.iter();
        parts.map(move |(class, part)| (share, class, part))
    });
    let fewer = parts.filter(|(share, class, part)| left(share, class) < pods(part));
    let one = |(share, class, part): (&Share, &PoolClass, &Resources)| {
        // All pods of an elastic job are alike here.
        let each = |(resource, amount): (&ResourceName, Amount)| {
            (resource.clone(), Amount(amount.0 / pods(part)))
        };
        let charge = part.iter().map(each).collect();
        let share = Share {
            charge: BTreeMap::from([(class.clone(), charge)]),
            ..share.clone()
        };
        Admission {
            shares: vec![share],
            ..before.clone()
        }
    };
    fewer.map(one).collect()
}

impl Model {
    /// The pods by which jobs were shrunk for others, one of each part of an admission. Those that are bound count as
    /// used beyond the admission.
    pub fn cut_pods(&self, decisions: &[Decision]) -> Vec<Admission> {
        let mut now: BTreeMap<&JobKey, &Admission> = BTreeMap::new();
        let mut cut = Vec::new();
        for decision in decisions {
            match decision {
                Decision::Release { key, admission, .. } => drop(now.insert(key, admission)),
                Decision::Resize {
                    key,
                    admission,
                    for_job,
                    ..
                } => {
                    let before = now.insert(key, admission);
                    let before = before.or_else(|| Some(&self.records.get(key)?.admission));
                    let left: u32 = admission.shares.iter().map(Share::replicas).sum();
                    let bound = self.bound_pods(key).count() > left as usize;
                    if let Some(before) = before.filter(|_| for_job.is_some() && !bound) {
                        cut.extend(lost_pods(before, admission));
                    }
                }
                Decision::Evict { .. } => {}
            }
        }
        cut
    }

    pub fn check_evict(&mut self, key: &JobKey, reason: Reason, for_job: Option<&JobKey>) {
        let Some(preemptor) = for_job else {
            assert!(!matches!(reason, Reason::Reclaimed | Reason::Preempted));
            if reason == Reason::RuntimeLimitExceeded {
                self.check_runtime(key);
            }
            return;
        };
        // It may start later in the call: an owner ahead of it reserves what the victim frees, and leaves other nodes.
        let starts = matches!(
            self.state(preemptor),
            Some(JobState::Queued | JobState::Assumed)
        );
        assert!(
            starts && !self.live.contains(preemptor),
            "{preemptor} has what it evicts for"
        );
        self.check_once(preemptor);
        let (victim, preemptor) = (&self.jobs[key], &self.jobs[preemptor]);
        self.check_victim(victim, preemptor, reason);
        self.check_min_runtime(victim);
        let victims = self.promised.entry(preemptor.key.clone()).or_default();
        victims.insert(key.clone());
        self.promised_in.insert(preemptor.key.clone(), self.round);
    }

    /// A preemptor with pending evictions evicts no other jobs.
    fn check_once(&self, preemptor: &JobKey) {
        let waits = self
            .promised
            .get(preemptor)
            .is_some_and(|victims| !victims.is_empty());
        let before = self.promised_in.get(preemptor) != Some(&self.round);
        assert!(!(waits && before), "{preemptor} takes again while it waits");
    }

    fn check_victim(&self, victim: &JobFact, preemptor: &JobFact, reason: Reason) {
        let from = self.engine.job(&victim.key).unwrap().queue.clone();
        assert!(victim.preemptible, "{} may not be evicted", victim.key);
        match reason {
            Reason::Reclaimed => {
                assert_ne!(from, preemptor.queue);
                for queue in self.apart(&from, &preemptor.queue) {
                    let fact = self.queues.get(&queue);
                    assert!(
                        fact.is_none_or(|fact| fact.reclaimable),
                        "{queue} is not reclaimable"
                    );
                }
                assert!(self.policy_of(&preemptor.queue).preemption.reclaim);
                self.check_guarantee(&victim.key, &from, &preemptor.queue);
                self.check_entitled(preemptor, &from);
            }
            Reason::Preempted => {
                assert_eq!(from, preemptor.queue);
                assert!(self.policy_of(&from).preemption.within_queue);
                let worth = |key: &JobKey| self.engine.job(key).unwrap().priority;
                assert!(worth(&victim.key) < worth(&preemptor.key));
                let class = preemptor.priority_class.as_ref();
                let preempts = class.is_none_or(|class| self.classes[class].preempts);
                assert!(preempts, "{} may not take", preemptor.key);
            }
            other => panic!("{} is evicted for {}: {other}", victim.key, preemptor.key),
        }
    }

    fn check_min_runtime(&self, victim: &JobFact) {
        let from = self.engine.job(&victim.key).unwrap().queue.clone();
        if let Some(since) = self.runs_since.get(&victim.key) {
            let least = self.policy_of(&from).preemption.min_runtime_ms;
            assert!(
                self.now.millis_since(*since) >= least,
                "{} is too young",
                victim.key
            );
        }
    }

    fn check_runtime(&self, key: &JobKey) {
        let queue = self.engine.job(key).unwrap().queue.clone();
        let path = self.path(&queue);
        let limits = path.iter().filter_map(|name| self.policies.get(name));
        let most = limits.filter_map(|policy| policy.limits.runtime_ms).min();
        let most = most.unwrap();
        assert!(
            self.now.millis_since(self.runs_since[key]) >= most,
            "{key} had time left"
        );
    }

    /// The queues of a path that are not on another's, up to the children of the common ancestor.
    fn apart(&self, queue: &QueueName, other: &QueueName) -> Vec<QueueName> {
        let shared = self.path(other);
        let mut path = self.path(queue);
        path.retain(|queue| !shared.contains(queue));
        path
    }

    /// Before the last victim went, the victim's queue used more than its guarantee of what the
    /// victim uses: an idle guarantee stays withheld (`guarantees.rs`), and only usage beyond it is
    /// reclaimed, whole jobs at a time.
    fn check_guarantee(&self, victim: &JobKey, giver: &QueueName, preemptor: &QueueName) {
        let given = self.engine.job(victim).unwrap().admission.unwrap();
        let charge = given.charge().unwrap();
        for queue in self.apart(giver, preemptor) {
            let named = self.queues.get(&queue).map(|fact| &fact.guarantee);
            for (resource, kept) in named.into_iter().flat_map(Resources::iter) {
                let held = |held: &Admission| held.charge().unwrap().amount_of(resource).0;
                let had = self.stays_in(&queue, held)
                    + self.largest_going(&queue, held)
                    + self.used_beyond(&queue, resource);
                assert!(
                    charge.amount_of(resource).0 == 0 || had > kept.0,
                    "{queue} had {had} of its guaranteed {kept:?} {resource}"
                );
            }
            let policy = self.policies.get(&queue);
            for bound in policy.into_iter().flat_map(|policy| &policy.pools) {
                for (resource, kept) in bound.guarantee.iter() {
                    let held = |held: &Admission| within(held, bound, resource);
                    let had = self.stays_in(&queue, held) + self.largest_going(&queue, held);
                    assert!(
                        within(given, bound, resource) == 0 || had > kept.0,
                        "{queue} had {had} of what {bound:?} guarantees"
                    );
                }
            }
        }
    }

    /// The sum over the jobs that are charged to the queue or below it and are not ending.
    fn stays_in(&self, queue: &QueueName, counts: impl Fn(&Admission) -> i64) -> i64 {
        let charged = self.charged_in(queue).into_iter();
        let stays = charged.filter(|(state, _)| *state != JobState::Ending);
        stays.map(|(_, held)| counts(held)).sum()
    }

    /// The largest charge of those jobs that are ending, or of a pod by which one was shrunk for another job in the
    /// same call: of several victims, the smallest goes first.
    fn largest_going(&self, queue: &QueueName, counts: impl Fn(&Admission) -> i64) -> i64 {
        let charged = self.charged_in(queue).into_iter();
        let going = charged.filter(|(state, _)| *state == JobState::Ending);
        let cut = self.cut.iter();
        let cut = cut.filter(|pod| self.path(&pod.queue).contains(queue));
        let going = going.map(|(_, held)| held).chain(cut);
        going.map(counts).max().unwrap_or(0)
    }

    /// The jobs that are charged to the queue or below it.
    fn charged_in(&self, queue: &QueueName) -> Vec<(JobState, &Admission)> {
        let jobs = self.jobs.keys().map(|key| self.engine.job(key).unwrap());
        let charged = jobs.filter(|job| charged(job.state));
        let admissions = charged.filter_map(|job| Some((job.state, job.admission?)));
        let here = admissions.filter(|(_, held)| self.path(&held.queue).contains(queue));
        here.collect()
    }

    /// Returns what bound pods of jobs that are charged to the queue or below it use beyond their admissions: it is
    /// charged, too, and counts as usage. A template that is edited before its pods are bound may leave more of them
    /// than it asks for.
    fn used_beyond(&self, queue: &QueueName, resource: &ResourceName) -> i64 {
        let beyond = |key: &JobKey| {
            let job = self.engine.job(key).unwrap();
            let held = job.admission.filter(|_| charged(job.state))?;
            let here = self.path(&held.queue).contains(queue);
            let used = self
                .bound_pods(key)
                .map(|pod| pod.request.amount_of(resource).0);
            let used: i64 = used.sum();
            let granted = held.charge()?.amount_of(resource).0;
            here.then_some((used - granted).max(0))
        };
        self.jobs.keys().filter_map(beyond).sum()
    }

    fn bound_pods(&self, key: &JobKey) -> impl Iterator<Item = &PodFact> {
        self.pods
            .values()
            .filter(move |pod| pod.job.as_ref() == Some(key) && pod.node.is_some() && !pod.ended())
    }

    /// The children of the common ancestor are compared. With the job, the preemptor's queue is
    /// within its deserved amounts once all pending evictions are complete; the victim's queue used
    /// more than it deserves before the last victim. Jobs that were admitted at this moment may
    /// have been admitted after the evaluation, and those that grow later in the call have what they had.
    fn check_entitled(&self, preemptor: &JobFact, from: &QueueName) {
        // A queue's deserved amounts in pools may entitle its ancestors, too.
        if self
            .policies
            .values()
            .any(|policy| policy.pools.iter().any(promises))
        {
            return;
        }
        let role = |role: &engine::facts::Role| {
            let pods = if preemptor.demand.elastic {
                role.min
            } else {
                role.count
            };
            role.request.amount_of(&gpu()).0 * i64::from(pods)
        };
        let asked: i64 = preemptor.demand.roles.iter().map(role).sum();
        let gpus = |held: &Admission| held.charge().unwrap().amount_of(&gpu()).0;
        let deserved = |queue: &QueueName| {
            let usage = self.engine.queue_usage(queue).unwrap();
            usage.deserved.amount_of(&gpu()).0
        };
        let takes = self.apart(&preemptor.queue, from).pop().unwrap();
        let stays = self.stays_in(&takes, |held| {
            let before = held.admitted_at < self.latest;
            if before {
                gpus(held).min(self.granted_gpus(&held.uid).unwrap_or(i64::MAX))
            } else {
                0
            }
        });
        assert!(
            stays + asked <= deserved(&takes),
            "{} is not entitled: {takes} keeps {stays}",
            preemptor.key
        );
        let gives = self.apart(from, &preemptor.queue).pop().unwrap();
        let had = self.stays_in(&gives, gpus)
            + self.largest_going(&gives, gpus)
            + self.used_beyond(&gives, &gpu());
        assert!(
            had > deserved(&gives) || self.is_promised_more(&gives),
            "{gives} had {had} and deserves as much, and gives for {}",
            preemptor.key
        );
    }

    /// The GPUs of a job by the decisions that were checked so far.
    fn granted_gpus(&self, uid: &Uid) -> Option<i64> {
        let job = self.jobs.values().find(|job| job.uid == *uid)?;
        let granted = self.granted.get(&job.key)?;
        Some(granted.amount_of(&gpu()).0)
    }

    /// Returns true if jobs are being evicted for a job of the queue or below it: that counts as charged
    /// there.
    fn is_promised_more(&self, queue: &QueueName) -> bool {
        let preemptors = self
            .preemptors()
            .into_iter()
            .chain(self.took.iter().cloned());
        let mut paths = preemptors.map(|preemptor| self.path(&preemptor));
        paths.any(|path| path.contains(queue))
    }

    /// The queues with preemptors that have pending evictions.
    pub fn preemptors(&self) -> BTreeSet<QueueName> {
        let takes = |queue: &&QueueName| self.engine.reserved(queue).evictions > 0;
        self.queues.keys().filter(takes).cloned().collect()
    }

    /// A shrink for another job reduces the surplus only.
    pub fn check_resize(&mut self, key: &JobKey, admission: &Admission, for_job: Option<&JobKey>) {
        let fact = &self.jobs[key];
        if for_job.is_some() {
            assert!(
                fact.demand.elastic && fact.preemptible,
                "{key} may not be shrunk"
            );
            // The charge of pods may be more than the template requests now.
            if !self.edited.contains(key) {
                check_whole(fact, admission);
            }
        }
    }

    /// Notes the new admission of a decision; terminating pods stay charged until they are
    /// confirmed gone.
    pub fn note_grant(&mut self, key: &JobKey, admission: &Admission) {
        let now = admission.charge().unwrap();
        let Some(before) = self.granted.insert(key.clone(), now.clone()) else {
            return;
        };
        for (resource, before) in before.iter() {
            let less = before.0 - now.amount_of(resource).0;
            if less > 0 {
                let shrinking = self.shrinking.entry(key.clone()).or_default();
                *shrinking.entry(resource.clone()).or_default() += less;
            }
        }
    }

    /// The amount of a resource that jobs of the queue or below it have to free.
    pub fn shrinking_in(&self, queue: &QueueName, resource: &ResourceName) -> i64 {
        let here = self.shrinking.iter().filter(|(key, _)| {
            let job = self.engine.job(key);
            job.is_some_and(|job| self.path(job.queue).contains(queue))
        });
        here.filter_map(|(_, gives)| gives.get(resource)).sum()
    }
}
