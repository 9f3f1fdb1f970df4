//! The invariants after every step: bounds, nodes, whole gangs, order, accounts.

use super::model::{Model, config};
use super::pools::in_order;
use engine::facts::{Admission, Demand, JobFact, PodFact, QueueOrdering, Split};
use engine::{
    ClusterName, Decision, Engine, JobKey, JobState, NodeName, QueueName, Reason, ResourceName,
    Resources,
};
use std::collections::{BTreeMap, BTreeSet};

/// Sums of amounts by resource.
pub type Amounts = BTreeMap<ResourceName, i64>;

impl Model {
    /// Decides until nothing changes, and checks that no inadmissible job could start: a restored
    /// engine, in which all jobs are active, decides nothing more.
    pub fn decide(&mut self) {
        self.decide_once();
        let text = serde_json::to_string(&self.engine.snapshot()).unwrap();
        let mut restored = Engine::restore(serde_json::from_str(&text).unwrap(), config());
        assert_eq!(restored.check_invariants(), Vec::<String>::new());
        assert_eq!(restored.decide(self.clock()).decisions, []);
    }

    /// Decides until nothing changes.
    pub fn decide_once(&mut self) {
        self.round += 1;
        self.latest = self.latest.max(self.clock());
        loop {
            let mut committed = self.committed();
            self.took = self.preemptors();
            let decided = self.engine.decide(self.clock());
            let wrong = self.engine.check_invariants();
            assert!(wrong.is_empty(), "{wrong:#?}");
            assert!(!decided.cut, "jobs have each other evaluated in a circle");
            let fruitless = &decided.fruitless_reservations;
            assert!(
                fruitless.is_empty(),
                "reserved without result: {fruitless:?}"
            );
            self.check_latest(&decided.decisions);
            self.cut = self.cut_pods(&decided.decisions);
            for decision in &decided.decisions {
                self.check(decision);
                committed = self.check_guarantees(&committed);
            }
            self.check_real_capability();
            self.check_accounts();
            self.check_pool_accounts();
            self.decided
                .push((self.log.len(), self.clock(), format!("{decided:?}")));
            if !decided.more {
                let late = decided.wake_at.filter(|at| *at <= self.latest);
                assert_eq!(late, None, "it says that there is nothing to do now");
                return;
            }
        }
    }

    /// What a job holds is what the last resize says: a job may be shrunk for several others in one call.
    fn check_latest(&self, decisions: &[Decision]) {
        let mut latest = BTreeMap::new();
        for decision in decisions {
            match decision {
                Decision::Resize { key, admission, .. } => drop(latest.insert(key, admission)),
                Decision::Release { key, .. } | Decision::Evict { key, .. } => {
                    latest.remove(key);
                }
            }
        }
        for (key, admission) in latest {
            assert_eq!(self.engine.job(key).unwrap().admission, Some(admission));
        }
    }

    fn check(&mut self, decision: &Decision) {
        match decision {
            Decision::Release { key, admission, .. } => {
                assert!(
                    self.live.insert(key.clone()),
                    "{key} released while an attempt is live"
                );
                self.promised.remove(key);
                self.granted.remove(key);
                self.record(key, admission);
                self.note_grant(key, admission);
                self.check_attempt(key, admission);
                self.check_release(&self.jobs[key], admission);
                self.check_owners(&self.jobs[key], admission);
                self.check_order(&self.jobs[key]);
                self.check_nodes();
            }
            Decision::Resize {
                key,
                admission,
                for_job,
                message,
            } => {
                assert!(self.live.contains(key));
                if let Some(record) = self.records.get_mut(key) {
                    record.admission = admission.clone();
                }
                self.taken += u64::from(for_job.is_some());
                self.note_grant(key, admission);
                if message.starts_with("grows") {
                    self.check_owners(&self.jobs[key], admission);
                }
                self.check_resize(key, admission, for_job.as_ref());
            }
            Decision::Evict {
                key,
                reason,
                for_job,
                ..
            } => {
                assert!(self.live.contains(key));
                assert_eq!(self.state(key), Some(JobState::Ending));
                self.taken += 1;
                self.record_taken(key, *reason);
                if *reason == Reason::StartDeadlineExceeded {
                    self.failed.insert(key.clone());
                }
                self.check_evict(key, *reason, for_job.as_ref());
            }
        }
    }

    /// S5: attempts are counted one by one.
    fn check_attempt(&mut self, key: &JobKey, admission: &Admission) {
        let last = self
            .attempts
            .insert(admission.uid.clone(), admission.attempt.0);
        assert!(
            last.is_none_or(|last| admission.attempt.0 == last + 1),
            "{key}"
        );
        assert_eq!(self.engine.job(key).unwrap().attempts, admission.attempt);
    }

    /// S1 and S3: the gang is whole, in eligible clusters, and within every bound.
    fn check_release(&self, fact: &JobFact, admission: &Admission) {
        assert_eq!(fact.uid, admission.uid);
        assert_eq!(fact.queue, admission.queue);
        assert!(fact.hold.is_none(), "{} is held", fact.key);
        check_whole(fact, admission);
        let placed = u32::try_from(admission.shares.len()).unwrap();
        let may_split = fact.demand.natively_divisible || fact.demand.split != Split::Never;
        assert!(placed == 1 || may_split, "{} is split", fact.key);
        let most = self
            .policies
            .get(&fact.queue)
            .and_then(|policy| policy.max_clusters);
        assert!(
            most.is_none_or(|most| placed <= most),
            "{} is in {placed}",
            fact.key
        );
        for share in &admission.shares {
            assert!(self.clusters[&share.cluster].usable);
            let slots: u32 = share.slots.iter().map(|slot| slot.count).sum();
            assert_eq!(slots, share.replicas());
        }
        self.check_topology(fact, admission);
        self.check_affinity(fact, admission);
        self.check_bounds(&fact.queue, &admission.charge().unwrap());
        self.check_pool_bounds(admission);
    }

    /// A hard topology of tier 1 keeps the gang in one rack of a cluster.
    fn check_topology(&self, fact: &JobFact, admission: &Admission) {
        if fact.demand.topology.is_none_or(|topology| !topology.hard) {
            return;
        }
        for share in &admission.shares {
            let racks: BTreeSet<_> = share
                .slots
                .iter()
                .map(|slot| &self.nodes[&(share.cluster.clone(), slot.node.clone())].domains)
                .collect();
            assert_eq!(racks.len(), 1, "{} is in {racks:?}", fact.key);
        }
    }

    /// S1: the charge is within every bound of the path, and the queues of the path take jobs.
    fn check_bounds(&self, queue: &QueueName, asked: &Resources) {
        assert!(self.takes_jobs(queue), "{queue} takes no jobs");
        for name in self.path(queue) {
            let fact = &self.queues[&name];
            let usage = self.engine.queue_usage(&name).unwrap();
            for bounds in [&fact.capability, &usage.real_capability] {
                for (resource, most) in bounds.iter() {
                    let asks = asked.amount_of(resource).0 > 0;
                    let within = usage.allocated.amount_of(resource) <= most;
                    assert!(!asks || within, "{name} is over in {resource}");
                }
            }
            let ordered = in_order([&fact.guarantee, &fact.deserved, &fact.capability]);
            assert!(ordered, "{name} is wrong and takes jobs: {fact:?}");
        }
    }

    /// S6: of two jobs that are equal in all that matters, the first in order starts first.
    fn check_order(&self, released: &JobFact) {
        let worth = |fact: &JobFact| self.engine.job(&fact.key).unwrap().priority;
        let last = (std::cmp::Reverse(worth(released)), released.queued_at);
        for other in self.jobs.values() {
            let alike = other.queue == released.queue
                && other.demand == released.demand
                && other.user == released.user
                && other.expected_duration_ms == released.expected_duration_ms;
            if alike && self.competes(other) && !self.failed.contains(&released.key) {
                let first = (std::cmp::Reverse(worth(other)), other.queued_at);
                assert!(first >= last, "{} passed {}", released.key, other.key);
            }
        }
    }

    /// Returns true if a job is pending, and nothing of its own blocks it.
    fn competes(&self, fact: &JobFact) -> bool {
        let class = fact.priority_class.as_ref();
        let known = class.is_none_or(|class| self.classes.contains_key(class));
        let policy = self.policies.get(&fact.queue);
        // The sort key of a pending job does not change with its class.
        let shortest = |policy: &engine::facts::PolicyFact| {
            policy.ordering == QueueOrdering::ShortestPredicted
        };
        self.state(&fact.key) == Some(JobState::Queued)
            && fact.hold.is_none()
            && known
            && !self.failed.contains(&fact.key)
            && !policy.is_some_and(shortest)
            && !matches!(
                self.engine.explain(&fact.key).unwrap().reason,
                Reason::BackingOff | Reason::RuntimeLimitExceeded
            )
    }

    /// S2: bound pods and assumed pods fit on the nodes that have assumed pods.
    fn check_nodes(&self) {
        for (at, assumed) in self.assumed_by_node() {
            let fact = &self.nodes[&at];
            assert!(fact.usable);
            let on = |pod: &&PodFact| {
                let here = pod.node.as_ref().is_some_and(|node| *node == at.1);
                here && pod.cluster == at.0 && !pod.ended()
            };
            for (resource, assumed) in assumed {
                let bound = self.pods.values().filter(on);
                let used: i64 = bound.map(|pod| pod.request.amount_of(&resource).0).sum();
                let has = fact.allocatable.amount_of(&resource).0;
                assert!(used + assumed <= has, "{at:?} is over in {resource}");
            }
        }
    }

    /// The assumed pods by node, from a snapshot of the engine.
    fn assumed_by_node(&self) -> BTreeMap<(ClusterName, NodeName), Amounts> {
        let snapshot = serde_json::to_value(self.engine.snapshot()).unwrap();
        let mut placed: BTreeMap<_, Amounts> = BTreeMap::new();
        let jobs = snapshot["jobs"].as_array().unwrap().iter();
        for job in jobs.filter(|job| !job["assumed"].is_null()) {
            let demand: Demand = serde_json::from_value(job["assumed"][0].clone()).unwrap();
            let assumed = job["assumed"][1].as_array().unwrap().iter();
            for assumed_pod in assumed.filter(|assumed_pod| !assumed_pod["node"].is_null()) {
                let at = (
                    ClusterName::from(assumed_pod["cluster"].as_str().unwrap()),
                    NodeName::from(assumed_pod["node"].as_str().unwrap()),
                );
                let role = usize::try_from(assumed_pod["role"].as_u64().unwrap()).unwrap();
                let count = assumed_pod["count"].as_i64().unwrap();
                let here = placed.entry(at).or_default();
                for (resource, each) in demand.roles[role].request.iter() {
                    *here.entry(resource.clone()).or_default() += each.0 * count;
                }
            }
        }
        placed
    }

    /// S10: the charge of a queue is that of its jobs and of those below it.
    fn check_accounts(&self) {
        let mut held: BTreeMap<QueueName, Amounts> = BTreeMap::new();
        for key in self.jobs.keys() {
            let view = self.engine.job(key).unwrap();
            let Some(admission) = view.admission.filter(|_| charged(view.state)) else {
                continue;
            };
            // A job that had ended by itself is not charged while it is removed.
            let said = self.engine.explain(key).unwrap().message;
            if said.contains("; it had ended") {
                continue;
            }
            for queue in self.path(&admission.queue) {
                let here = held.entry(queue).or_default();
                for (resource, amount) in admission.charge().unwrap().iter() {
                    *here.entry(resource.clone()).or_default() += amount.0;
                }
            }
        }
        for queue in self.queues.keys() {
            let allocated = self.engine.queue_usage(queue).unwrap().allocated;
            let edited = self.is_edited(queue);
            let held = held.remove(queue).unwrap_or_default();
            let resources: BTreeSet<_> = allocated.iter().map(|(name, _)| name).collect();
            for resource in resources.into_iter().chain(held.keys()) {
                let told = allocated.amount_of(resource).0;
                let found = held.get(resource).copied().unwrap_or(0);
                let shrinking = self.shrinking_in(queue, resource);
                assert!(
                    found <= told && (edited || told <= found + shrinking),
                    "{queue} is charged {told} of {resource}, its jobs hold {found} and give back \
                     {shrinking}"
                );
            }
        }
    }
}

pub fn charged(state: JobState) -> bool {
    !matches!(state, JobState::Queued | JobState::Finished)
}

/// All pods are placed, or at least the minimum of an elastic gang, and the charge is that of the
/// placed pods.
pub fn check_whole(fact: &JobFact, admission: &Admission) {
    let demand = &fact.demand;
    let mut asked = Resources::new();
    for role in &demand.roles {
        let shares = admission.shares.iter().flat_map(|share| &share.pods);
        let of_role = shares.filter(|pods| pods.role == role.name);
        let count: u32 = of_role.map(|pods| pods.count).sum();
        let least = if demand.elastic { role.min } else { role.count };
        assert!(
            least <= count && count <= role.count,
            "{}: {count} pods of {}",
            fact.key,
            role.name
        );
        let request = role.request.checked_mul(count).unwrap();
        asked = asked.checked_add(&request).unwrap();
    }
    let pods: u32 = admission
        .shares
        .iter()
        .map(engine::facts::Share::replicas)
        .sum();
    assert!(pods >= demand.min_available, "{} is not whole", fact.key);
    assert_eq!(admission.charge(), Some(asked));
}
