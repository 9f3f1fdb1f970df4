//! The model of the world outside the engine.

use super::checks::Amounts;
use super::layout::Layout;
use super::pools::{Phase, Record};
use super::step::Step;
use crate::world::{below, cluster, key, node, policy, queue};
use engine::facts::{
    Admission, ClusterFact, JobFact, NodeFact, PodFact, PolicyFact, PriorityClassFact, QueueFact,
};
use engine::{
    ClusterName, Engine, EngineConfig, Event, JobKey, JobState, NodeName, PoolClass, Progress,
    QueueName, Resources, Time, Uid,
};
use std::collections::{BTreeMap, BTreeSet};

pub struct Model {
    pub layout: Layout,
    pub engine: Engine,
    pub now: Time,
    /// All events of the engine.
    pub log: Vec<Told>,
    /// Its decisions: after how many events, when, and which.
    pub decided: Vec<(usize, Time, String)>,
    pub queues: BTreeMap<QueueName, QueueFact>,
    pub policies: BTreeMap<QueueName, PolicyFact>,
    pub clusters: BTreeMap<ClusterName, ClusterFact>,
    pub nodes: BTreeMap<(ClusterName, NodeName), NodeFact>,
    pub pods: BTreeMap<(ClusterName, Uid), PodFact>,
    pub jobs: BTreeMap<JobKey, JobFact>,
    pub classes: BTreeMap<String, PriorityClassFact>,
    /// Attempts that were admitted and have not ended.
    pub live: BTreeSet<JobKey>,
    /// Since when each running job runs.
    pub runs_since: BTreeMap<JobKey, Time>,
    /// Victims that are not gone, by preemptor.
    pub promised: BTreeMap<JobKey, BTreeSet<JobKey>>,
    /// The last admission of each job, and what it has to free since.
    pub granted: BTreeMap<JobKey, Resources>,
    pub shrinking: BTreeMap<JobKey, Amounts>,
    /// The last attempt of each job.
    pub records: BTreeMap<JobKey, Record>,
    /// One pod of each part of an admission that lost pods for another job in the last decisions.
    pub cut: Vec<Admission>,
    /// Jobs whose template was edited while some of their pods were left. Terminating pods of such
    /// a job may be charged as before or after the edit, whichever is more.
    pub edited: BTreeSet<JobKey>,
    /// The queues of preemptors with pending evictions before the last decisions.
    pub took: BTreeSet<QueueName>,
    /// The round of decisions in which they were decided.
    pub promised_in: BTreeMap<JobKey, u64>,
    /// How often each job was evicted, or shrunk for another.
    pub taken: u64,
    /// The number of rounds of decisions.
    pub round: u64,
    /// The last attempt of each job.
    pub attempts: BTreeMap<Uid, u32>,
    /// Jobs whose attempt failed and that may avoid a cluster.
    pub failed: BTreeSet<JobKey>,
    pub serial: u64,
    /// The latest time that the engine received.
    pub latest: Time,
    /// The delay of the engine's clock in milliseconds.
    pub behind: i64,
}

/// The events of an engine, and where another one took over.
#[derive(Debug, Clone)]
pub enum Told {
    Event(Box<Event>),
    Restart,
}

pub fn config() -> EngineConfig {
    EngineConfig {
        decision_budget: 3,
        resync_budget: 2,
        ..EngineConfig::default()
    }
}

impl Model {
    pub fn new(layout: Layout) -> Self {
        let mut model = Self {
            layout: layout.clone(),
            engine: Engine::new(config()),
            now: Time(1_000_000),
            log: Vec::new(),
            decided: Vec::new(),
            queues: BTreeMap::new(),
            policies: BTreeMap::new(),
            clusters: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            jobs: BTreeMap::new(),
            classes: BTreeMap::new(),
            live: BTreeSet::new(),
            runs_since: BTreeMap::new(),
            promised: BTreeMap::new(),
            granted: BTreeMap::new(),
            shrinking: BTreeMap::new(),
            records: BTreeMap::new(),
            cut: Vec::new(),
            edited: BTreeSet::new(),
            took: BTreeSet::new(),
            promised_in: BTreeMap::new(),
            taken: 0,
            round: 0,
            attempts: BTreeMap::new(),
            failed: BTreeSet::new(),
            serial: 0,
            latest: Time(0),
            behind: 0,
        };
        for (name, parent) in layout.tree {
            let fact = queue(name);
            model.queue(match parent {
                Some(parent) => below(parent, fact),
                None => fact,
            });
        }
        for name in layout.clusters {
            model.cluster(cluster(name));
        }
        // Node by node, one of each cluster in turn.
        for index in 0..layout.most_nodes {
            for (name, nodes) in layout.clusters.iter().zip(&layout.nodes) {
                if let Some(gpus) = nodes.get(index) {
                    model.node(name, index, *gpus, true);
                }
            }
        }
        model
    }

    pub fn apply(&mut self, event: Event) {
        if let Event::JobProgressed { at, .. }
        | Event::JobRefused { at, .. }
        | Event::JobEnding { at, .. }
        | Event::JobResized { at, .. }
        | Event::JobWorksGone { at, .. } = &event
        {
            self.latest = self.latest.max(*at);
        }
        self.log.push(Told::Event(Box::new(event.clone())));
        self.engine.apply(event.clone());
        // Facts are level-triggered: the same fact again must change nothing.
        self.engine.apply(event);
    }

    pub fn queue(&mut self, fact: QueueFact) {
        self.queues.insert(fact.name.clone(), fact.clone());
        self.apply(Event::QueueUpserted(fact));
    }

    pub fn policy(&mut self, fact: PolicyFact) {
        self.policies.insert(fact.queue.clone(), fact.clone());
        self.apply(Event::PolicyUpserted(fact));
    }

    pub fn policy_of(&self, queue: &QueueName) -> PolicyFact {
        let known = self.policies.get(queue);
        known.cloned().unwrap_or_else(|| policy(queue.as_str()))
    }

    pub fn cluster(&mut self, fact: ClusterFact) {
        self.clusters.insert(fact.name.clone(), fact.clone());
        self.apply(Event::ClusterUpserted(fact));
    }

    /// Two nodes share a rack; every third node is of another class.
    pub fn node(&mut self, cluster: &str, index: usize, gpus: u32, usable: bool) {
        let fact = NodeFact {
            class: PoolClass::from(if index % 3 == 2 { "big" } else { "gpu" }),
            domains: vec![format!("rack{}", index / 2)],
            usable,
            ..node(
                cluster,
                &format!("n{index}"),
                &format!("cpu {}, gpu {gpus}", self.layout.cpus),
            )
        };
        self.nodes
            .insert((fact.cluster.clone(), fact.name.clone()), fact.clone());
        self.apply(Event::NodeUpserted(fact));
    }

    pub fn pod(&mut self, fact: PodFact) {
        self.pods
            .insert((fact.cluster.clone(), fact.uid.clone()), fact.clone());
        self.apply(Event::PodUpserted(fact));
    }

    pub fn name(index: usize) -> JobKey {
        key(&format!("j{index:02}"))
    }

    pub fn named(&self, index: usize) -> JobKey {
        Self::name(index % self.layout.jobs)
    }

    pub fn leaf(&self, index: usize) -> QueueName {
        QueueName::from(self.layout.leaves[index % self.layout.leaves.len()])
    }

    /// Queues that have children.
    pub fn inner(&self) -> impl Iterator<Item = &'static str> + use<> {
        let leaves = self.layout.leaves;
        let names = self.layout.tree.iter().map(|(name, _)| *name);
        names.filter(move |name| !leaves.contains(name))
    }

    pub fn cluster_at(&self, index: usize) -> &'static str {
        self.layout.clusters[index % self.layout.clusters.len()]
    }

    pub fn tell(&mut self, fact: JobFact) {
        self.jobs.insert(fact.key.clone(), fact.clone());
        self.apply(Event::JobUpserted(fact));
    }

    /// The time that the engine gets.
    pub fn clock(&self) -> Time {
        self.now.after(-self.behind)
    }

    pub fn state(&self, key: &JobKey) -> Option<JobState> {
        self.engine.job(key).map(|job| job.state)
    }

    pub fn progress(&mut self, key: &JobKey, progress: Progress) {
        if let Some(attempt) = self.engine.job(key).map(|job| job.attempts) {
            self.apply(Event::JobProgressed {
                key: key.clone(),
                attempt,
                progress,
                at: self.clock(),
            });
        }
        if self.state(key) == Some(JobState::Running) {
            // A job that had ended and runs again is charged again.
            let record = self.records.get(key);
            if record.is_some_and(|record| record.phase == Phase::Ended) {
                self.record_phase(key, Phase::Held);
            }
            let now = self.clock();
            self.runs_since.entry(key.clone()).or_insert(now);
        }
    }

    /// Notes that no Work of a job's attempt is left.
    pub fn over(&mut self, key: &JobKey) {
        self.drop_pods(key);
        self.record_phase(key, Phase::Over);
        self.live.remove(key);
        self.runs_since.remove(key);
        self.shrinking.remove(key);
        self.edited.remove(key);
        for victims in self.promised.values_mut() {
            victims.remove(key);
        }
        self.promised.retain(|_, victims| !victims.is_empty());
    }

    pub fn drop_pods(&mut self, key: &JobKey) {
        let gone: Vec<_> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.job.as_ref() == Some(key))
            .map(|(at, _)| at.clone())
            .collect();
        for (cluster, uid) in gone {
            self.pods.remove(&(cluster.clone(), uid.clone()));
            self.apply(Event::PodGone(cluster, uid));
        }
    }

    pub fn take(&mut self, step: Step) {
        match step {
            Step::Submit(job) => self.submit(job),
            Step::Recreate(job) => self.recreate(&self.named(job)),
            Step::Grow { job, count, gpus } => self.grow(&self.named(job), count, gpus),
            Step::Hold(job, held) => self.hold(&self.named(job), held),
            Step::Checkpoint(job) => self.checkpoint(&self.named(job)),
            Step::Gone(job) => self.gone(&self.named(job)),
            Step::Bind {
                job,
                most,
                elsewhere,
            } => self.bind(&self.named(job), most, elsewhere),
            Step::Run(job) => self.progress(&self.named(job), Progress::Running),
            Step::Finish(job) => self.finish(&self.named(job)),
            Step::Revive(job) => self.revive(&self.named(job)),
            Step::Refuse(job) => self.refuse(&self.named(job), self.cluster_at(job)),
            Step::End(job) => self.end(&self.named(job), self.cluster_at(job)),
            Step::Shed(job) => self.shed(&self.named(job)),
            Step::WorksGone(job) => self.works_gone(&self.named(job)),
            Step::AllGone => self.all_gone(),
            Step::Obey => self.members_obey(),
            Step::Capability { queue, gpus } => self.capability(queue, gpus),
            Step::Shares {
                queue,
                guarantee,
                deserved,
            } => self.shares(queue, guarantee, deserved),
            Step::Reclaimable(queue, yes) => self.reclaimable(queue, yes),
            Step::State(queue, open) => self.open(queue, open),
            Step::Policy(queue, change) => self.change_policy(queue, change),
            Step::Owners {
                queue,
                per_user,
                per_namespace,
                by_user,
            } => self.limit_owners(queue, (per_user, per_namespace), by_user),
            Step::Node {
                cluster,
                node,
                gpus,
                usable,
            } => self.node_told(cluster, node, gpus, usable),
            Step::NodeGone(cluster, node) => self.node_gone(cluster, node),
            Step::Usable(cluster, usable) => self.usable(cluster, usable),
            Step::Foreign {
                cluster,
                node,
                gpus,
            } => self.foreign(cluster, node, gpus),
            Step::ForeignGone(cluster, node) => self.foreign_gone(cluster, node),
            Step::Class(class, value, preempts) => self.class(class, value, preempts),
            Step::Wait(seconds) => self.now = self.now.after(i64::from(seconds) * 1000),
            Step::Decide => self.decide(),
        }
    }
}
