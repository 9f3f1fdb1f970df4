//! Breakers: which clusters take no new jobs because many jobs failed there, and when they do again.
//!
//! ```text
//!            enough jobs fail            its time is over
//!   closed ──────────────────► paused ──────────────────► trial: one job is admitted
//!      ▲                          ▲                          │
//!      └──────────────────────────┼── the job runs ──────────┤
//!                                 └── the job fails ─────────┘
//! ```
//!
//! The breakers are those of FaultPolicies. The status of each policy shows its paused clusters, and a new leader
//! begins with that; failures are remembered in this process only. Only faults that are not the job's own count,
//! of several namespaces and queues, so that no tenant can shut a cluster for others. Pure: the engine keeps new
//! jobs off by `ClusterFact::paused`.

mod failures;

use crate::avoided_nodes::{ClusterEvent, EVERY_NODE};
use crds::fault_policy::{ClusterBreaker, PausedCluster, pause};
use crds::node_health::ClearedNodes;
use engine::facts::ClusterPause;
use engine::faults::FaultRuleSet;
use engine::{ClusterName, Event, JobKey, JobState, NodeName, QueueName, Reason, Time, Uid};
use failures::{ClusterFailures, FailedJob};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds for which the job that is tried has to run.
const TRIAL_RUNS_MS: i64 = 30_000;
/// Milliseconds after which clusters are compared again although nothing was reported.
const COMPARE_MS: i64 = 5_000;

/// Where a pause is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PausePhase {
    /// No job is admitted until its time is over.
    Paused,
    /// One job is admitted; once it is, its key, and since when it runs.
    Trial(Option<(JobKey, Option<Time>)>),
}

/// A paused cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pause {
    phase: PausePhase,
    dry_run: bool,
    since: Time,
    until: Time,
    /// What was seen, without names of jobs.
    message: String,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ClusterBreakers {
    breakers: Vec<ClusterBreaker>,
    failures: BTreeMap<ClusterName, ClusterFailures>,
    /// By cluster and policy.
    pauses: BTreeMap<(ClusterName, String), Pause>,
    /// When a person last cleared a whole cluster.
    cleared: BTreeMap<ClusterName, Time>,
    compared_at: Option<Time>,
    changes: BreakerChanges,
}

/// What has changed.
#[derive(Debug, Default)]
pub(crate) struct BreakerChanges {
    /// The clusters whose facts are to be applied again.
    pub(crate) clusters: BTreeSet<ClusterName>,
    /// The policies whose status is to be written.
    pub(crate) policies: BTreeSet<String>,
    pub(crate) events: Vec<ClusterEvent>,
}

impl ClusterBreakers {
    /// Applies the breakers of all policies.
    pub(crate) fn set(&mut self, breakers: Vec<ClusterBreaker>) {
        self.compared_at = None;
        self.breakers = breakers;
    }

    /// Begins with what the status of a policy shows.
    pub(crate) fn begin(&mut self, policy: &str, dry_run: bool, shown: &[PausedCluster]) {
        for paused in shown {
            let key = (ClusterName::new(&paused.cluster), policy.to_owned());
            let tried = paused
                .trial_job
                .as_deref()
                .and_then(|job| job.split_once('/'));
            let tried = tried.map(|(namespace, name)| (JobKey::new(namespace, name), None));
            let pause = Pause {
                phase: match paused.phase == pause::TRIAL {
                    true => PausePhase::Trial(tried),
                    false => PausePhase::Paused,
                },
                dry_run,
                since: time(&paused.since),
                until: time(&paused.until),
                message: paused.message.clone(),
            };
            self.changes.clusters.insert(key.0.clone());
            self.pauses.entry(key).or_insert(pause);
        }
    }

    /// Applies a fact of a member before the engine knows it: `was_there` returns true for a pod that was seen
    /// before its end, `jobs_on` the jobs on a node that the engine knows as Ready, and `queue_of` the queue
    /// that a job is charged to.
    pub(crate) fn note(
        &mut self,
        fact: &Event,
        rules: &FaultRuleSet,
        was_there: impl Fn(&Uid) -> bool,
        jobs_on: impl Fn(&ClusterName, &NodeName) -> BTreeSet<JobKey>,
        queue_of: impl Fn(&JobKey) -> Option<QueueName>,
        now: Time,
    ) {
        if let Event::ClusterGone(cluster) = fact {
            self.failures.remove(cluster);
            self.cleared.remove(cluster);
            self.pauses.retain(|(of, _), _| of != cluster);
            return;
        }
        if self.breakers.is_empty() {
            return;
        }
        let Some((cluster, found)) = failures::of_fact(fact, rules, was_there, jobs_on) else {
            return;
        };
        for FailedJob { job, node, class } in found {
            let Some(queue) = queue_of(&job) else {
                continue;
            };
            self.compared_at = None;
            let failures = self.failures.entry(cluster.clone()).or_default();
            failures.note(job, queue, node, class, now);
        }
    }

    /// Applies which nodes of a cluster a person has cleared: a cleared cluster takes jobs again.
    pub(crate) fn cleared(&mut self, cluster: &ClusterName, cleared: &ClearedNodes) {
        if let Some(at) = cleared.nodes.get(EVERY_NODE) {
            self.compared_at = None;
            let at = Time(at.as_millisecond());
            self.cleared.insert(cluster.clone(), at);
            if let Some(failures) = self.failures.get_mut(cluster) {
                failures.forget_until(at);
            }
        }
    }

    /// Notes that a job was admitted to these clusters: where one is tried, this is it.
    pub(crate) fn admitted<'a>(
        &mut self,
        job: &JobKey,
        clusters: impl Iterator<Item = &'a ClusterName>,
    ) {
        for cluster in clusters {
            let pauses = self.pauses.iter_mut().filter(|((of, _), _)| of == cluster);
            for ((_, policy), pause) in pauses {
                if pause.phase == PausePhase::Trial(None) {
                    pause.phase = PausePhase::Trial(Some((job.clone(), None)));
                    self.changes.policies.insert(policy.clone());
                    self.changes.clusters.insert(cluster.clone());
                }
            }
        }
    }

    /// Forgets failures while another replica decides what follows from them.
    pub(crate) fn stand_by(&mut self) {
        self.failures.clear();
    }

    /// Returns how a cluster is paused, for the engine.
    pub(crate) fn pause_of(&self, cluster: &ClusterName) -> Option<ClusterPause> {
        let in_force = self
            .pauses
            .iter()
            .filter(|((of, _), pause)| of == cluster && !pause.dry_run);
        let trial = |pause: &Pause| pause.phase == PausePhase::Trial(None);
        let strictest = in_force.min_by_key(|(_, pause)| trial(pause));
        strictest.map(|(_, pause)| ClusterPause {
            because: pause.because(),
            trial: trial(pause),
        })
    }

    /// Returns the clusters that a policy pauses, or would.
    pub(crate) fn of(&self, policy: &str) -> Vec<PausedCluster> {
        let pauses = self.pauses.iter().filter(|((_, of), _)| of == policy);
        let shown = pauses.map(|((cluster, _), pause)| pause.shown(cluster));
        shown.collect()
    }

    /// Returns the number of clusters that are paused.
    pub(crate) fn count(&self) -> usize {
        let pauses = self.pauses.iter().filter(|(_, pause)| !pause.dry_run);
        let clusters: BTreeSet<_> = pauses.map(|((cluster, _), _)| cluster).collect();
        clusters.len()
    }

    /// Compares the clusters with the breakers if something has changed, or it was a while ago, and returns what
    /// has changed since the last call. `state_of` returns the state of a job.
    pub(crate) fn compare(
        &mut self,
        state_of: impl Fn(&JobKey) -> Option<JobState>,
        now: Time,
    ) -> BreakerChanges {
        let is_recent = |at: Time| now.millis_since(at) < COMPARE_MS;
        if !self.compared_at.is_some_and(is_recent) {
            self.compared_at = Some(now);
            self.end(now);
            self.go_on(&state_of, now);
            self.begin_due(now);
            let longest = self.breakers.iter().map(|breaker| breaker.within_ms).max();
            for failures in self.failures.values_mut() {
                failures.forget_until(Time(now.0.saturating_sub(longest.unwrap_or_default())));
            }
            self.failures.retain(|_, failures| !failures.is_empty());
        }
        std::mem::take(&mut self.changes)
    }

    /// Ends the pauses that a person cleared, or whose breaker is gone or is of another kind.
    fn end(&mut self, now: Time) {
        let keys: Vec<_> = self.pauses.keys().cloned().collect();
        for key in keys {
            let Some(pause) = self.pauses.get(&key) else {
                continue;
            };
            let mut same = self.breakers.iter();
            let exists =
                same.any(|breaker| breaker.policy == key.1 && breaker.dry_run == pause.dry_run);
            let cleared = self
                .cleared
                .get(&key.0)
                .is_some_and(|at| pause.since <= *at);
            let why = match (exists, cleared) {
                (false, _) => "its FaultPolicy has no such breaker any more",
                (true, true) => "a person has cleared it",
                (true, false) => continue,
            };
            self.resume(&key, why, now);
        }
    }

    /// Moves the pauses on: to a trial, to another pause, or to their end.
    fn go_on(&mut self, state_of: &impl Fn(&JobKey) -> Option<JobState>, now: Time) {
        let keys: Vec<_> = self.pauses.keys().cloned().collect();
        for key in keys {
            let Some(pause) = self.pauses.get_mut(&key) else {
                continue;
            };
            let failed = |job: &JobKey, since: Time| {
                let failures = self.failures.get(&key.0);
                failures.is_some_and(|failures| failures.has_since(job, since))
            };
            let next = match &pause.phase {
                PausePhase::Paused if now < pause.until => continue,
                // Without an effect there is nothing to try.
                PausePhase::Paused if pause.dry_run => PauseStep::End("its time is over"),
                PausePhase::Paused => PauseStep::To(PausePhase::Trial(None)),
                PausePhase::Trial(None) => continue,
                PausePhase::Trial(Some((job, _))) if failed(job, pause.until) => PauseStep::Again,
                PausePhase::Trial(Some((job, since))) => match (state_of(job), since) {
                    (Some(JobState::Finished), _) => PauseStep::End("a job has run there"),
                    (Some(JobState::Running), None) => {
                        PauseStep::To(PausePhase::Trial(Some((job.clone(), Some(now)))))
                    }
                    (Some(JobState::Running), Some(since)) => {
                        match now.millis_since(*since) >= TRIAL_RUNS_MS {
                            true => PauseStep::End("a job runs there"),
                            false => continue,
                        }
                    }
                    (Some(JobState::Assumed | JobState::Placed), _) => continue,
                    // It did not come to run, and not because of the cluster.
                    _ => PauseStep::To(PausePhase::Trial(None)),
                },
            };
            self.step(&key, next, now);
        }
    }

    fn step(&mut self, key: &(ClusterName, String), next: PauseStep, now: Time) {
        let breaker = self.breakers.iter().find(|breaker| breaker.policy == key.1);
        let lasts = breaker.map_or(0, |breaker| breaker.for_ms);
        let Some(pause) = self.pauses.get_mut(key) else {
            return;
        };
        self.changes.clusters.insert(key.0.clone());
        self.changes.policies.insert(key.1.clone());
        match next {
            PauseStep::To(phase) => pause.phase = phase,
            PauseStep::Again => {
                pause.phase = PausePhase::Paused;
                pause.until = now.after(lasts);
                "a job that was tried there failed too".clone_into(&mut pause.message);
                let event = pause.event(key);
                self.changes.events.push(event);
            }
            PauseStep::End(why) => self.resume(key, why, now),
        }
    }

    /// Lets a cluster take jobs again.
    fn resume(&mut self, key: &(ClusterName, String), why: &str, now: Time) {
        let Some(pause) = self.pauses.remove(key) else {
            return;
        };
        self.changes.clusters.insert(key.0.clone());
        self.changes.policies.insert(key.1.clone());
        // What failed before has been answered.
        if let Some(failures) = self.failures.get_mut(&key.0) {
            failures.forget_until(now);
        }
        if !pause.dry_run {
            self.changes.events.push(ClusterEvent {
                cluster: key.0.clone(),
                reason: Reason::ClusterResumed,
                is_warning: false,
                message: format!("it takes new jobs again: {why}"),
            });
        }
    }

    /// Pauses the clusters in which enough jobs have failed.
    fn begin_due(&mut self, now: Time) {
        for breaker in &self.breakers {
            for (cluster, failures) in &self.failures {
                let key = (cluster.clone(), breaker.policy.clone());
                let Some(message) = failures.trips(breaker, now) else {
                    continue;
                };
                if self.pauses.contains_key(&key) {
                    continue;
                }
                let pause = Pause {
                    phase: PausePhase::Paused,
                    dry_run: breaker.dry_run,
                    since: now,
                    until: now.after(breaker.for_ms),
                    message,
                };
                self.changes.events.push(pause.event(&key));
                self.changes.clusters.insert(key.0.clone());
                self.changes.policies.insert(key.1.clone());
                self.pauses.insert(key, pause);
            }
        }
    }
}

/// What happens next to a pause.
enum PauseStep {
    To(PausePhase),
    Again,
    End(&'static str),
}

impl Pause {
    /// Says why, in words that follow the cluster's name. Tenants read it.
    fn because(&self) -> String {
        let (message, until) = (&self.message, timestamp(self.until));
        match &self.phase {
            PausePhase::Paused => format!("it takes no new jobs until {until}: {message}"),
            PausePhase::Trial(None) => "it takes one job, to see whether it runs".to_owned(),
            PausePhase::Trial(Some(_)) => {
                format!("it takes no other job until one that is tried there runs: {message}")
            }
        }
    }

    fn event(&self, (cluster, policy): &(ClusterName, String)) -> ClusterEvent {
        let (until, message) = (timestamp(self.until), &self.message);
        let (reason, would) = match self.dry_run {
            true => (Reason::FaultPolicyDryRun, "it would take"),
            false => (Reason::ClusterPaused, "it takes"),
        };
        let message = format!(
            "{would} no new jobs until {until}, by the breaker of FaultPolicy {policy}: {message}"
        );
        ClusterEvent {
            cluster: cluster.clone(),
            reason,
            is_warning: !self.dry_run,
            message,
        }
    }

    fn shown(&self, cluster: &ClusterName) -> PausedCluster {
        let tried = match &self.phase {
            PausePhase::Trial(Some((job, _))) => Some(job.to_string()),
            PausePhase::Paused | PausePhase::Trial(None) => None,
        };
        PausedCluster {
            cluster: cluster.to_string(),
            phase: match self.phase {
                PausePhase::Paused => pause::PAUSED,
                PausePhase::Trial(_) => pause::TRIAL,
            }
            .to_owned(),
            since: timestamp(self.since).to_string(),
            until: timestamp(self.until).to_string(),
            trial_job: tried,
            message: self.message.clone(),
        }
    }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_millisecond(time.0).unwrap_or_default()
}

/// Reads a time; one that cannot be read is long ago.
fn time(text: &str) -> Time {
    text.parse()
        .map_or(Time(0), |at: Timestamp| Time(at.as_millisecond()))
}

#[cfg(test)]
mod tests;
