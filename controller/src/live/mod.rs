//! What the leader sees and would decide, for people who ask: read once, and kept by nobody.
//!
//! ```text
//! read: lists, members through Karmada's proxy ─► LiveObjects ─► LiveState: the mirror, the engine and the
//!                                                              reconciler of a leader that begins now
//!                                                    │
//!                                    a change ─► course: what follows from it ─► fates of jobs
//! ```
//!
//! It uses the functions of the controller and no rule of its own. It must never write anything: what the
//! reconciler would have written is dropped. What only a leader that has been at work remembers (run times that
//! it has learned, past usage) is not in it.

mod change;
mod course;
mod observed;
mod read;
#[cfg(test)]
mod tests;

pub use change::{LiveChange, LiveChangeError};
pub use course::{Fate, Fates, FollowedEviction, PodsByCluster};
pub use observed::LiveObjects;
pub use read::{LiveReadError, LiveReadOptions, read};

use crate::facts::queue_rights::Pair;
use crate::messages::action::{Effect, ReconcileAction};
use crate::messages::enforcement::Enforcement;
use crate::metrics::ControllerMetrics;
use crate::reconcile::Reconciler;
use crate::reconcile::placed::excess::override_policy;
use crate::reconcile::reconciler::ReconcileOptions;
use crate::reconcile::remains::find_remains;
use crate::status::outlook;
use engine::{
    ClusterName, Engine, EngineConfig, Event, Explanation, JobKey, NodeName, QueueName, Time, Uid,
};
use members::MemberEvent;
use runtime::metrics::Registry;
use runtime::watch::Delta;
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds that a running gang may be below its minimum of pods, where its queue's policy does not
/// say.
pub const RECOVERY_DEADLINE_MS: i64 = 60_000;
/// Rounds of questions about rights, and of reconciling after their answers.
const ROUNDS: usize = 3;

/// The state of a leader that begins now with what was observed.
pub struct LiveState {
    reconciler: Reconciler,
    now: Time,
    /// The pods of jobs that members show, with their nodes.
    pods: BTreeMap<JobKey, BTreeMap<(ClusterName, Uid), Option<NodeName>>>,
    /// The queues that the user may use, see [`LiveObjects`].
    own_rights: BTreeSet<Pair>,
    /// Where jobs were placed at the beginning.
    before: BTreeMap<JobKey, PodsByCluster>,
    /// How many pods were made up.
    made_up: u32,
}

/// What a job shows, computed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveAnswer {
    /// Its state, and the reason for it.
    pub explanation: Explanation,
    /// What would help it, as its PodGroup says it.
    pub helps: Vec<String>,
}

impl From<Explanation> for LiveAnswer {
    fn from(explanation: Explanation) -> Self {
        Self {
            explanation,
            helps: Vec::new(),
        }
    }
}

impl LiveState {
    /// Builds the state at `now`, and decides nothing.
    #[must_use]
    pub fn new(observed: &LiveObjects, now: Time) -> Self {
        Self::begun(observed, now).0
    }

    /// Does the same, and returns what has to be asked: whether namespaces may use queues.
    fn begun(observed: &LiveObjects, now: Time) -> (Self, BTreeSet<Pair>) {
        let engine = Engine::new(EngineConfig {
            recovery_deadline_ms: Some(RECOVERY_DEADLINE_MS),
            ..EngineConfig::default()
        });
        let metrics = ControllerMetrics::new(&Registry::new());
        let mut live = Self {
            reconciler: Reconciler::new(
                ReconcileOptions::default(),
                engine,
                Enforcement::NotRequired,
                metrics,
            ),
            now,
            pods: BTreeMap::new(),
            own_rights: observed.own_rights.clone(),
            before: BTreeMap::new(),
            made_up: 0,
        };
        live.take(observed);
        let asked = live.reconcile();
        live.before = live.placed();
        (live, asked)
    }

    /// Files what was observed, as the owner task of the controller does.
    fn take(&mut self, observed: &LiveObjects) {
        let now = self.now;
        for namespace in &observed.namespaces {
            let delta = Delta::Upserted(namespace.clone());
            if let Some(name) = self.reconciler.mirror.namespace(delta) {
                self.reconciler.charge_pods_in(&name);
            }
        }
        for class in &observed.priority_classes {
            let delta = Delta::Upserted(class.clone());
            self.reconciler.priority_class(delta);
        }
        for config in &observed.configs {
            self.reconciler.config(Delta::Upserted(config.clone()));
        }
        for queue in &observed.queues {
            self.reconciler
                .queue_pass()
                .queue(Delta::Upserted(queue.clone()));
        }
        for policy in &observed.capacity_policies {
            self.reconciler.policy(Delta::Upserted(policy.clone()));
        }
        for policy in &observed.fault_policies {
            self.reconciler
                .fault_policy(Delta::Upserted(policy.clone()));
        }
        // Muster's own rules hold even if there is no policy.
        self.reconciler.fault_policy(Delta::Listed);
        for metadata in &observed.overrides {
            let delta = Delta::Upserted(metadata.clone());
            let Reconciler { mirror, out, .. } = &mut self.reconciler;
            override_policy(mirror, out, delta);
        }
        for template in &observed.claim_templates {
            let delta = Delta::Upserted(template.clone());
            self.reconciler.claim_template(delta);
        }
        for (key, podgroup) in &observed.podgroups {
            let podgroup = podgroup.clone();
            self.reconciler.mirror.put_podgroup(key.clone(), podgroup);
        }
        for template in &observed.templates {
            let kind = template.key.kind.clone();
            let delta = Delta::Upserted(template.clone());
            self.reconciler.mirror.template(&kind, delta);
        }
        for binding in &observed.bindings {
            let delta = Delta::Upserted(binding.clone());
            self.reconciler.mirror.binding(delta);
        }
        for work in &observed.works {
            self.reconciler.mirror.work(Delta::Upserted(work.clone()));
        }
        let mirror = &self.reconciler.mirror;
        self.reconciler.fleet.begin_fault_policies(mirror);
        for event in &observed.members {
            self.member(event.clone());
        }
        for ((namespace, queue), allowed) in &observed.rights {
            let (namespace, queue) = (namespace.clone(), queue.clone());
            self.reconciler.right_asked(namespace, queue, *allowed);
        }
        find_remains(&mut self.reconciler, now);
        let jobs = self.reconciler.mirror.bindings().keys().cloned();
        self.reconciler.out.work_queue.extend(jobs);
    }

    /// Takes what a member shows.
    fn member(&mut self, event: MemberEvent) {
        match &event {
            MemberEvent::Fact(Event::PodUpserted(pod)) => {
                if let Some(job) = &pod.job {
                    let place = (pod.cluster.clone(), pod.uid.clone());
                    let pods = self.pods.entry(job.clone()).or_default();
                    pods.insert(place, pod.node.clone());
                }
            }
            MemberEvent::Fact(Event::PodGone(cluster, uid)) => {
                let place = (cluster.clone(), uid.clone());
                for pods in self.pods.values_mut() {
                    pods.remove(&place);
                }
            }
            _ => {}
        }
        self.reconciler.member(event, self.now);
    }

    /// Reconciles what may have changed. Returns what a leader would have to ask: whether namespaces may use
    /// queues.
    fn reconcile(&mut self) -> BTreeSet<Pair> {
        let now = self.now;
        self.reconciler.out.work_queue.add_due(now);
        for key in self.reconciler.out.work_queue.take() {
            self.reconciler.reconcile_job(&key, now);
        }
        let Reconciler {
            fleet,
            engine,
            jobs,
            out,
            ..
        } = &mut self.reconciler;
        fleet.pause_clusters(engine, jobs, out, now);
        fleet.leave_ending_nodes(engine, out, now);
        let actions = self.reconciler.take_actions().into_iter();
        let asked = actions.filter_map(|action| match action {
            ReconcileAction::Effect(Effect::AskRight { namespace, queue }) => {
                Some((namespace, queue))
            }
            // Nothing is written.
            _ => None,
        });
        asked.collect()
    }

    /// Returns the state of a job now; `None` if it is not known.
    #[must_use]
    pub fn state(&self, key: &JobKey) -> Option<Explanation> {
        self.reconciler.engine.explain(key)
    }

    /// Returns the same with what would help it.
    #[must_use]
    pub fn explain(&self, key: &JobKey) -> Option<LiveAnswer> {
        let explanation = self.state(key)?;
        let may_use = |queue: &QueueName| self.reconciler.view().may_be_named(key, queue);
        let helps = self.reconciler.engine.advise(key, &may_use);
        Some(LiveAnswer {
            explanation,
            helps: outlook::helps(&helps),
        })
    }
}
