//! A small language for fleets, queues and jobs, and members that carry out decisions.

use engine::facts::{Demand, JobFact, PodFact, PodPhase, PolicyFact, PriorityClassFact, QueueFact};
use engine::{
    ClusterName, Decision, Decisions, Engine, EngineConfig, Event, JobKey, JobState, NodeName,
    PoolClass, Progress, QueueName, Reason, Resources, Time, Uid,
};
use std::collections::{BTreeMap, BTreeSet};

pub use crate::facts::*;

/// An engine, a clock, and the pods in the members.
pub struct World {
    pub engine: Engine,
    pub now: Time,
    pub pods: BTreeMap<JobKey, Vec<PodFact>>,
    serial: u32,
}

/// A job to submit.
pub struct Submit(pub JobFact);

impl Submit {
    pub fn priority(mut self, class: &str) -> Self {
        self.0.priority_class = Some(class.to_owned());
        self
    }

    pub fn lasts(mut self, seconds: i64) -> Self {
        self.0.expected_duration_ms = Some(seconds * 1000);
        self
    }

    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.0.user);
        self
    }

    pub fn uid(mut self, uid: &str) -> Self {
        self.0.uid = Uid::from(uid);
        self
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(EngineConfig::default())
    }

    pub fn with(config: EngineConfig) -> Self {
        let mut world = Self {
            engine: Engine::new(config),
            now: Time(1_000_000),
            pods: BTreeMap::new(),
            serial: 0,
        };
        for (name, value) in [("low", -100), ("normal", 0), ("high", 100)] {
            world.apply(Event::PriorityClassUpserted(PriorityClassFact {
                name: name.to_owned(),
                value,
                global_default: false,
                preempts: true,
            }));
        }
        world
    }

    pub fn apply(&mut self, event: Event) {
        self.engine.apply(event);
    }

    /// A cluster of nodes that all have `allocatable`, and 110 pod slots.
    pub fn cluster(&mut self, name: &str, nodes: u32, allocatable: &str) -> &mut Self {
        self.apply(Event::ClusterUpserted(cluster(name)));
        let has_gpus = allocatable.contains("gpu");
        for index in 0..nodes {
            let mut fact = node(name, &format!("n{index}"), allocatable);
            fact.class = PoolClass::from(if has_gpus { "gpu" } else { "cpu" });
            self.apply(Event::NodeUpserted(fact));
        }
        self
    }

    pub fn queue(&mut self, fact: QueueFact) -> &mut Self {
        self.apply(Event::QueueUpserted(fact));
        self
    }

    pub fn policy(&mut self, fact: PolicyFact) -> &mut Self {
        self.apply(Event::PolicyUpserted(fact));
        self
    }

    /// A job with this demand, queued one second after the one before.
    pub fn job(&mut self, name: &str, queue: &str, demand: Demand) -> Submit {
        self.serial += 1;
        Submit(JobFact {
            key: key(name),
            uid: Uid::from(format!("uid-{name}").as_str()),
            queue: QueueName::from(queue),
            priority_class: None,
            queued_at: Time(i64::from(self.serial) * 1000),
            demand,
            hold: None,
            expected_duration_ms: None,
            user: String::new(),
            preemptible: true,
            checkpointed_at: None,
            images: Vec::new(),
        })
    }

    pub fn submit(&mut self, job: Submit) -> JobFact {
        self.apply(Event::JobUpserted(job.0.clone()));
        job.0
    }

    /// Submits a job of equal pods.
    pub fn add(&mut self, name: &str, queue: &str, count: u32, request: &str) -> JobFact {
        let job = self.job(name, queue, pods(count, request));
        self.submit(job)
    }

    /// Submits and admits a job of equal pods, which runs since now.
    pub fn runs(&mut self, name: &str, queue: &str, count: u32, request: &str) -> JobFact {
        let fact = self.add(name, queue, count, request);
        self.decide();
        self.run(name);
        fact
    }

    /// Carries out all decisions at once, for at most `rounds` rounds. Returns who was evicted for
    /// whom.
    pub fn settle(&mut self, rounds: usize) -> Vec<String> {
        let mut taken = Vec::new();
        for _ in 0..rounds {
            let decided = self.decided();
            if decided.decisions.is_empty() {
                match decided
                    .wake_at
                    .filter(|at| at.millis_since(self.now) <= 5_000)
                {
                    Some(at) => {
                        self.now = self.now.after(at.millis_since(self.now).max(1));
                    }
                    None => break,
                }
            }
            for decision in decided.decisions {
                match decision {
                    Decision::Release { key, .. } => self.run(&key.name),
                    Decision::Resize { key, for_job, .. } => {
                        if let Some(whom) = for_job {
                            taken.push(format!("{} shrunk for {}", key.name, whom.name));
                        }
                        self.resized(&key.name);
                    }
                    Decision::Evict { key, for_job, .. } => {
                        let whom = for_job.map_or_else(String::new, |whom| whom.name.to_string());
                        taken.push(format!("{} for {whom}", key.name));
                        self.works_gone(&key.name);
                    }
                }
            }
            self.now = self.now.after(1);
        }
        taken
    }

    pub fn wait(&mut self, seconds: i64) -> &mut Self {
        self.now = self.now.after(seconds * 1000);
        self
    }

    /// Decides and checks all invariants. Returns the decisions, one per line.
    pub fn decide(&mut self) -> String {
        let decided = self.decided();
        let lines: Vec<String> = decided.decisions.iter().map(line).collect();
        lines.join("\n")
    }

    pub fn decided(&mut self) -> Decisions {
        let decided = self.engine.decide(self.now);
        assert_eq!(self.engine.check_invariants(), Vec::<String>::new());
        decided
    }

    /// Binds the pods of an admitted job as planned, and reports that it runs.
    pub fn run(&mut self, name: &str) {
        let pods = self.planned_pods(&key(name));
        for pod in pods {
            self.apply(Event::PodUpserted(pod.clone()));
            self.pods.entry(key(name)).or_default().push(pod);
        }
        self.progress(name, Progress::Running);
    }

    pub fn planned_pods(&self, key: &JobKey) -> Vec<PodFact> {
        let view = self.engine.job(key).expect("known job");
        let admission = view.admission.expect("released job");
        let mut pods = Vec::new();
        for share in &admission.shares {
            for slot in &share.slots {
                for index in 0..slot.count {
                    let uid = format!(
                        "{}-{}-{}-{}-{}-{index}",
                        key.name, admission.attempt.0, share.cluster, slot.node, slot.role
                    );
                    pods.push(PodFact {
                        cluster: share.cluster.clone(),
                        uid: Uid::from(uid.as_str()),
                        node: Some(slot.node.clone()),
                        request: self.request(key, &slot.role),
                        job: Some(key.clone()),
                        phase: PodPhase::Running,
                        symptom: None,
                        grace_s: 0,
                    });
                }
            }
        }
        pods
    }

    /// The request of a pod of the role.
    fn request(&self, key: &JobKey, role: &str) -> Resources {
        self.demands()
            .get(key)
            .and_then(|demand| demand.roles.iter().find(|known| known.name == role))
            .map_or_else(Resources::new, |role| role.request.clone())
    }

    /// The demands of all jobs, from a snapshot of the engine.
    fn demands(&self) -> BTreeMap<JobKey, Demand> {
        let snapshot = serde_json::to_value(self.engine.snapshot()).unwrap();
        let jobs = snapshot["jobs"].as_array().unwrap();
        jobs.iter()
            .filter(|job| !job["demand"].is_null())
            .map(|job| {
                let key: JobKey = serde_json::from_value(job["key"].clone()).unwrap();
                (key, serde_json::from_value(job["demand"].clone()).unwrap())
            })
            .collect()
    }

    /// Carries out a resize: pods beyond the plan go, missing ones are bound, and the member
    /// confirms it.
    pub fn resized(&mut self, name: &str) {
        let planned = self.planned_pods(&key(name));
        let known = self.pods.get(&key(name)).into_iter().flatten();
        let clusters = planned.iter().chain(known).map(|pod| pod.cluster.clone());
        let clusters: BTreeSet<ClusterName> = clusters.collect();
        let mut places: BTreeMap<(ClusterName, Option<NodeName>), usize> = BTreeMap::new();
        for pod in &planned {
            *places
                .entry((pod.cluster.clone(), pod.node.clone()))
                .or_default() += 1;
        }
        let mut stay = Vec::new();
        for pod in self.pods.remove(&key(name)).unwrap_or_default() {
            match places.get_mut(&(pod.cluster.clone(), pod.node.clone())) {
                Some(left) if *left > 0 => {
                    *left -= 1;
                    stay.push(pod);
                }
                _ => self.apply(Event::PodGone(pod.cluster, pod.uid)),
            }
        }
        for ((cluster, node), missing) in places {
            for _ in 0..missing {
                self.serial += 1;
                let like = planned
                    .iter()
                    .find(|pod| pod.node == node && pod.cluster == cluster);
                let mut pod = like.expect("planned").clone();
                pod.uid = Uid::from(format!("{name}-more-{}", self.serial).as_str());
                self.apply(Event::PodUpserted(pod.clone()));
                stay.push(pod);
            }
        }
        for cluster in clusters {
            let pods = stay.iter().filter(|pod| pod.cluster == cluster).count();
            self.confirm(name, cluster.as_str(), u32::try_from(pods).unwrap());
        }
        self.pods.insert(key(name), stay);
    }

    /// Confirms the most pods of a job that can be in a cluster.
    pub fn confirm(&mut self, name: &str, cluster: &str, pods: u32) {
        let attempt = self.engine.job(&key(name)).expect("known job").attempts;
        self.apply(Event::JobResized {
            key: key(name),
            attempt,
            cluster: ClusterName::from(cluster),
            pods,
            at: self.now,
        });
    }

    pub fn progress(&mut self, name: &str, progress: Progress) {
        let attempt = self.engine.job(&key(name)).expect("known job").attempts;
        self.apply(Event::JobProgressed {
            key: key(name),
            attempt,
            progress,
            at: self.now,
        });
    }

    /// Ends the job: its pods are gone, and it is finished.
    pub fn finish(&mut self, name: &str) {
        self.drop_pods(name);
        self.progress(name, Progress::Finished);
    }

    pub fn drop_pods(&mut self, name: &str) {
        for pod in self.pods.remove(&key(name)).unwrap_or_default() {
            self.apply(Event::PodGone(pod.cluster, pod.uid));
        }
    }

    pub fn ending(&mut self, name: &str, reason: Reason) {
        self.apply(Event::JobEnding {
            key: key(name),
            reason,
            message: "because".to_owned(),
            avoid: None,
            at: self.now,
        });
    }

    pub fn works_gone(&mut self, name: &str) {
        self.drop_pods(name);
        self.apply(Event::JobWorksGone {
            key: key(name),
            at: self.now,
        });
    }

    pub fn state(&self, name: &str) -> JobState {
        self.engine.job(&key(name)).expect("known job").state
    }

    pub fn why(&self, name: &str) -> String {
        let explanation = self.engine.explain(&key(name)).expect("known job");
        let position = explanation
            .position
            .map_or(String::new(), |p| format!("#{p} "));
        format!("{position}{}: {}", explanation.reason, explanation.message)
    }

    pub fn allocated(&self, queue: &str) -> String {
        let usage = self.engine.queue_usage(&QueueName::from(queue));
        usage.expect("known queue").allocated.to_string()
    }

    /// The names of the jobs that are charged, in order.
    pub fn charged(&self, names: &[&str]) -> Vec<String> {
        let held = names
            .iter()
            .filter(|name| !matches!(self.state(name), JobState::Queued | JobState::Finished));
        held.map(ToString::to_string).collect()
    }
}

/// A decision in one line.
pub fn line(decision: &Decision) -> String {
    match decision {
        Decision::Release { key, admission, .. } => {
            format!(
                "release {} #{} {}",
                key.name,
                admission.attempt.0,
                places(admission)
            )
        }
        Decision::Resize { key, admission, .. } => {
            format!(
                "resize {} #{} {}",
                key.name,
                admission.attempt.0,
                places(admission)
            )
        }
        Decision::Evict {
            key,
            attempt,
            reason,
            for_job,
            message,
        } => {
            let whom = for_job.as_ref().map(|key| format!(" for {}", key.name));
            format!(
                "evict {} #{}{}: {reason}: {message}",
                key.name,
                attempt.0,
                whom.unwrap_or_default()
            )
        }
    }
}

fn places(admission: &engine::facts::Admission) -> String {
    let shares = admission.shares.iter().map(|share| {
        let slots = share.slots.iter().map(|slot| {
            let times = if slot.count == 1 {
                String::new()
            } else {
                format!("×{}", slot.count)
            };
            format!("{}{times}", slot.node)
        });
        format!("{}({})", share.cluster, slots.collect::<Vec<_>>().join(" "))
    });
    shares.collect::<Vec<_>>().join(" ")
}
