//! What follows from a state within moments: the engine decides, and each decision is carried out at once. Pods
//! that are evicted are gone at once, and pods that are placed run at once; nothing else happens.

use crate::live::LiveState;
use engine::facts::{Admission, PodFact, PodPhase};
use engine::{
    ClusterName, Decision, Event, JobKey, JobState, NodeName, Progress, QueueName, Reason, Time,
    Uid,
};
use members::MemberEvent;
use std::collections::{BTreeMap, BTreeSet};

/// For how many milliseconds a course is followed: back-offs and the search for victims end, and a gang that lost
/// pods and has no room for others is evicted. A gang that has room is not given up yet.
const FOLLOWED_MS: i64 = 45_000;
/// Most calls of the engine, as a bound.
const MOST: usize = 100_000;

/// The pods of a placed job, by cluster.
pub type PodsByCluster = BTreeMap<ClusterName, u32>;

/// What becomes of jobs.
pub type Fates = BTreeMap<JobKey, Fate>;

/// What becomes of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// Its queue.
    pub queue: QueueName,
    /// Where it was placed at the beginning; `None` if it was pending.
    pub before: Option<PodsByCluster>,
    /// Where it is placed at the end; `None` if it is pending.
    pub after: Option<PodsByCluster>,
    /// Its last eviction, if it was evicted.
    pub evicted: Option<FollowedEviction>,
    /// True if it has lost pods, and its own controller is expected to replace them where it runs.
    pub recovers: bool,
    /// Why it starts, if it was admitted meanwhile. What the others do [`LiveState::state`] says.
    pub started: Option<String>,
}

/// An eviction in a course.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedEviction {
    /// Why.
    pub reason: Reason,
    /// Why in words.
    pub message: String,
    /// The job that it was evicted for, if for one.
    pub for_job: Option<JobKey>,
}

/// What was decided of jobs.
#[derive(Debug, Default)]
struct Course {
    started: BTreeMap<JobKey, String>,
    evicted: BTreeMap<JobKey, FollowedEviction>,
}

impl LiveState {
    /// Returns where each placed job is.
    pub(crate) fn placed(&self) -> BTreeMap<JobKey, PodsByCluster> {
        let jobs = self.reconciler.mirror.bindings().keys();
        let placed = jobs.filter_map(|key| Some((key.clone(), self.place_of(key)?)));
        placed.collect()
    }

    fn place_of(&self, key: &JobKey) -> Option<PodsByCluster> {
        let job = self.reconciler.engine.job(key)?;
        let runs = matches!(
            job.state,
            JobState::Assumed | JobState::Placed | JobState::Running
        );
        let shares = job.admission.filter(|_| runs)?.shares.iter();
        let pods = shares.map(|share| (share.cluster.clone(), share.replicas()));
        Some(pods.collect())
    }

    /// Follows what happens from now on, and returns what becomes of each job that has not ended.
    pub fn follow(&mut self) -> Fates {
        let mut course = Course::default();
        let until = self.now.after(FOLLOWED_MS);
        self.end_what_ends();
        for _ in 0..MOST {
            let decided = self.reconciler.engine.decide(self.now);
            let again = decided.more || !decided.decisions.is_empty();
            for decision in decided.decisions {
                self.carry_out(decision, &mut course);
            }
            if again {
                continue;
            }
            match decided.wake_at.filter(|at| *at <= until) {
                Some(at) => self.now = at.max(Time(self.now.0 + 1)),
                None => break,
            }
        }
        self.fates(&course)
    }

    /// Ends what is being evicted already.
    fn end_what_ends(&mut self) {
        let jobs = self.reconciler.mirror.bindings().keys();
        let is_ending = |key: &&JobKey| {
            let job = self.reconciler.engine.job(key);
            job.is_some_and(|job| job.state == JobState::Ending)
        };
        let ending: Vec<JobKey> = jobs.filter(is_ending).cloned().collect();
        for key in ending {
            self.vanish(&key);
        }
    }

    fn carry_out(&mut self, decision: Decision, course: &mut Course) {
        match decision {
            Decision::Release {
                key,
                admission,
                message,
            } => {
                self.run(&key, &admission);
                self.reconciler.apply(Event::JobProgressed {
                    key: key.clone(),
                    attempt: admission.attempt,
                    progress: Progress::Running,
                    at: self.now,
                });
                course.started.insert(key, message);
            }
            Decision::Resize { key, admission, .. } => {
                self.shrink(&key, &admission);
                self.run(&key, &admission);
            }
            Decision::Evict {
                key,
                reason,
                for_job,
                message,
                ..
            } => {
                self.vanish(&key);
                let eviction = FollowedEviction {
                    reason,
                    message,
                    for_job,
                };
                course.evicted.insert(key, eviction);
            }
        }
    }

    /// Shows the pods that an admission plans beyond those that are there, as running.
    fn run(&mut self, key: &JobKey, admission: &Admission) {
        let Some(fact) = self.reconciler.jobs.last_facts.get(key) else {
            return;
        };
        let roles = fact.demand.roles.clone();
        let mut there: BTreeMap<(ClusterName, NodeName), u32> = BTreeMap::new();
        for ((cluster, _), node) in self.pods.get(key).into_iter().flatten() {
            if let Some(node) = node {
                *there.entry((cluster.clone(), node.clone())).or_default() += 1;
            }
        }
        for share in &admission.shares {
            for slot in &share.slots {
                let Some(role) = roles.iter().find(|role| role.name == slot.role) else {
                    continue;
                };
                let place = (share.cluster.clone(), slot.node.clone());
                let known = there.entry(place).or_default();
                let new = slot.count.saturating_sub(*known);
                *known = known.saturating_sub(slot.count);
                for _ in 0..new {
                    self.made_up += 1;
                    let pod = PodFact {
                        cluster: share.cluster.clone(),
                        uid: Uid::new(format!("simulated-pod-{}", self.made_up)),
                        node: Some(slot.node.clone()),
                        request: role.request_in(&share.cluster).clone(),
                        job: Some(key.clone()),
                        phase: PodPhase::Running,
                        symptom: None,
                        grace_s: 0,
                    };
                    self.member(MemberEvent::Fact(Event::PodUpserted(pod)));
                }
            }
        }
    }

    /// Ends the pods of a job beyond an admission.
    fn shrink(&mut self, key: &JobKey, admission: &Admission) {
        let kept: PodsByCluster = admission
            .shares
            .iter()
            .map(|share| (share.cluster.clone(), share.replicas()))
            .collect();
        let places = self.pods.get(key).into_iter().flat_map(BTreeMap::keys);
        let places: Vec<_> = places.cloned().collect();
        let mut seen = PodsByCluster::new();
        for (cluster, uid) in places {
            let count = seen.entry(cluster.clone()).or_default();
            *count += 1;
            if *count > kept.get(&cluster).copied().unwrap_or(0) {
                self.member(MemberEvent::Fact(Event::PodGone(cluster, uid)));
            }
        }
        let clusters: BTreeSet<_> = seen.keys().chain(kept.keys()).cloned().collect();
        for cluster in clusters {
            self.reconciler.apply(Event::JobResized {
                key: key.clone(),
                attempt: admission.attempt,
                pods: kept.get(&cluster).copied().unwrap_or(0),
                cluster,
                at: self.now,
            });
        }
    }

    /// Ends all pods of an evicted job. It is queued again, unless it is being deleted.
    fn vanish(&mut self, key: &JobKey) {
        for (cluster, uid) in self.pods.remove(key).unwrap_or_default().into_keys() {
            self.member(MemberEvent::Fact(Event::PodGone(cluster, uid)));
        }
        let binding = self.reconciler.mirror.bindings().get(key);
        let is_deleted =
            binding.is_none_or(|binding| binding.metadata.deletion_timestamp.is_some());
        let key = key.clone();
        let at = self.now;
        self.reconciler.apply(match is_deleted {
            true => Event::JobGone(key),
            false => Event::JobWorksGone { key, at },
        });
    }

    fn fates(&self, course: &Course) -> Fates {
        let jobs = self.reconciler.mirror.bindings().keys();
        let fates = jobs.filter_map(|key| Some((key.clone(), self.fate(key, course)?)));
        fates.collect()
    }

    fn fate(&self, key: &JobKey, course: &Course) -> Option<Fate> {
        let engine = &self.reconciler.engine;
        let job = engine.job(key)?;
        if matches!(job.state, JobState::Finished | JobState::Ending) {
            return None;
        }
        let after = self.place_of(key);
        let started = course.started.get(key).filter(|_| after.is_some());
        Some(Fate {
            queue: job.queue.clone(),
            before: self.before.get(key).cloned(),
            started: started.cloned(),
            after,
            evicted: course.evicted.get(key).cloned(),
            recovers: engine.pods_of(key).are_too_few(),
        })
    }
}
