#![allow(clippy::unwrap_used)]
use super::*;
use engine::facts::{NodeFact, PodFact, PodPhase};
use engine::faults::{FaultClass, PodFaultRule, Symptom};
use engine::{PoolClass, Resources};

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;

fn breaker(dry_run: bool) -> ClusterBreaker {
    ClusterBreaker {
        policy: "p".to_owned(),
        dry_run,
        jobs: 3,
        namespaces: 2,
        within_ms: 10 * MINUTE,
        for_ms: 5 * MINUTE,
    }
}

fn rules() -> FaultRuleSet {
    let rule = |reason: &str, class| PodFaultRule {
        reasons: vec![reason.to_owned()],
        class,
        ..PodFaultRule::default()
    };
    FaultRuleSet {
        rules: vec![
            rule("Xid", FaultClass::Device),
            rule("BadImage", FaultClass::User),
        ],
        nodes: Vec::new(),
    }
}

struct Case {
    breakers: ClusterBreakers,
    states: BTreeMap<JobKey, JobState>,
}

impl Case {
    fn new(dry_run: bool) -> Self {
        let mut breakers = ClusterBreakers::default();
        breakers.set(vec![breaker(dry_run)]);
        Self {
            breakers,
            states: BTreeMap::new(),
        }
    }

    /// A job `namespace/name` of a queue named as its namespace fails on `node` of m1.
    fn fails(&mut self, job: &str, node: &str, reason: &str, at: i64) {
        let pod = Event::PodUpserted(PodFact {
            cluster: ClusterName::new("m1"),
            uid: Uid::new(job),
            node: Some(NodeName::new(node)),
            request: Resources::new(),
            job: Some(key(job)),
            phase: PodPhase::Ended,
            symptom: Some(Box::new(Symptom {
                reason: reason.to_owned(),
                message: String::new(),
                exit_code: None,
            })),
            grace_s: 0,
        });
        self.note(&pod, &[], at);
    }

    fn note(&mut self, fact: &Event, on_node: &[&str], at: i64) {
        self.breakers.note(
            fact,
            &rules(),
            |_| true,
            |_, _| on_node.iter().map(|job| key(job)).collect(),
            |job| Some(QueueName::from(job.namespace.to_string().as_str())),
            Time(at),
        );
    }

    /// Returns what has changed, in short.
    fn compare(&mut self, at: i64) -> String {
        let states = &self.states;
        let changes = self
            .breakers
            .compare(|job| states.get(job).copied(), Time(at));
        let events = changes.events.iter();
        let events = events.map(|event| format!("{} {}", event.reason, event.message));
        events.collect::<Vec<_>>().join("\n")
    }

    fn paused(&self) -> String {
        let pause = self.breakers.pause_of(&ClusterName::new("m1"));
        pause.map_or_else(String::new, |pause| {
            format!("{} {}", pause.trial, pause.because)
        })
    }

    /// The cluster is on trial since 301 s.
    fn on_trial() -> Self {
        let mut case = Self::tripped(false);
        case.compare(0);
        case.compare(301 * SECOND);
        assert_eq!(
            case.paused(),
            "true it takes one job, to see whether it runs"
        );
        case
    }

    fn tripped(dry_run: bool) -> Self {
        let mut case = Self::new(dry_run);
        for (job, node) in [("a/one", "n1"), ("a/two", "n2"), ("b/three", "n2")] {
            case.fails(job, node, "Xid", 0);
        }
        case
    }

    /// The job a/try is admitted to the cluster, and is in this state.
    fn tries(&mut self, state: JobState) {
        let clusters = [ClusterName::new("m1")];
        self.breakers.admitted(&key("a/try"), clusters.iter());
        self.state(Some(state));
    }

    fn state(&mut self, state: Option<JobState>) {
        self.states.clear();
        self.states.extend(state.map(|state| (key("a/try"), state)));
    }
}

fn key(job: &str) -> JobKey {
    let (namespace, name) = job.split_once('/').unwrap();
    JobKey::new(namespace, name)
}

#[test]
fn a_cluster_is_paused_when_jobs_of_several_tenants_fail_on_several_nodes() {
    let mut case = Case::tripped(false);
    assert_eq!(
        case.compare(0),
        "ClusterPaused it takes no new jobs until 1970-01-01T00:05:00Z, by the breaker of FaultPolicy p: \
         3 jobs of 2 namespaces failed there on 2 nodes within 600 s (class Device)"
    );
    assert_eq!(
        case.paused(),
        "false it takes no new jobs until 1970-01-01T00:05:00Z: 3 jobs of 2 namespaces failed there on 2 nodes within \
         600 s (class Device)"
    );
    assert_eq!(case.compare(299 * SECOND), "");
    assert!(case.paused().starts_with("false"));
}

#[test]
fn one_tenant_one_node_and_faults_of_jobs_pause_nothing() {
    for failures in [
        // One namespace.
        [
            ("a/1", "n1", "Xid"),
            ("a/2", "n2", "Xid"),
            ("a/3", "n3", "Xid"),
        ],
        // One node.
        [
            ("a/1", "n1", "Xid"),
            ("b/2", "n1", "Xid"),
            ("c/3", "n1", "Xid"),
        ],
        // The jobs' own fault, and an exit that no rule knows.
        [
            ("a/1", "n1", "BadImage"),
            ("b/2", "n2", "BadImage"),
            ("c/3", "n3", "Error"),
        ],
        // One job again and again.
        [
            ("a/1", "n1", "Xid"),
            ("b/2", "n2", "Xid"),
            ("b/2", "n3", "Xid"),
        ],
    ] {
        let mut case = Case::new(false);
        for (job, node, reason) in failures {
            case.fails(job, node, reason, 0);
        }
        assert_eq!(case.compare(0), "", "{failures:?}");
    }
    // Far apart.
    let mut case = Case::new(false);
    for (job, node, at) in [("a/1", "n1", 0), ("b/2", "n2", 0), ("c/3", "n3", 10)] {
        case.fails(job, node, "Xid", at * MINUTE);
    }
    assert_eq!(case.compare(10 * MINUTE), "");
    // Namespaces of one queue.
    let mut case = Case::tripped(false);
    case.breakers.failures.clear();
    for (job, node) in [("a/1", "n1"), ("b/2", "n2"), ("c/3", "n3")] {
        let failures = case
            .breakers
            .failures
            .entry(ClusterName::new("m1"))
            .or_default();
        let (queue, node) = (QueueName::from("q"), NodeName::new(node));
        failures.note(key(job), queue, node, FaultClass::Device, Time(0));
    }
    assert_eq!(case.compare(0), "");
}

#[test]
fn nodes_that_are_lost_count_with_the_jobs_on_them() {
    let mut case = Case::new(false);
    let lost = |name: &str| NodeFact {
        cluster: ClusterName::new("m1"),
        name: NodeName::new(name),
        class: PoolClass::from("h100"),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        domains: Vec::new(),
        allocatable: Resources::new(),
        usable: false,
        lost: true,
    };
    case.note(&Event::NodeUpserted(lost("n1")), &["a/one", "b/two"], 0);
    case.note(&Event::NodeUpserted(lost("n2")), &["a/three"], 1);
    assert!(case.compare(1).contains("3 jobs of 2 namespaces"));
}

#[test]
fn the_job_that_is_tried_decides() {
    // It runs for a while.
    let mut case = Case::on_trial();
    case.tries(JobState::Placed);
    assert!(case.paused().starts_with("false it takes no other job"));
    assert_eq!(case.compare(310 * SECOND), "");
    case.state(Some(JobState::Running));
    assert_eq!(case.compare(320 * SECOND), "");
    assert_eq!(
        case.compare(350 * SECOND),
        "ClusterResumed it takes new jobs again: a job runs there"
    );
    assert_eq!(case.paused(), "");
    // It fails as those before it.
    let mut case = Case::on_trial();
    case.tries(JobState::Placed);
    case.fails("a/try", "n1", "Xid", 310 * SECOND);
    assert_eq!(
        case.compare(310 * SECOND),
        "ClusterPaused it takes no new jobs until 1970-01-01T00:10:10Z, by the breaker of FaultPolicy p: a job that \
         was tried there failed too"
    );
    // It is deleted before it runs: another one is tried.
    let mut case = Case::on_trial();
    case.tries(JobState::Placed);
    case.state(None);
    case.compare(310 * SECOND);
    assert!(case.paused().starts_with("true"));
}

#[test]
fn a_person_ends_a_pause() {
    let mut case = Case::tripped(false);
    case.compare(0);
    let at = Timestamp::from_second(60).unwrap();
    let mut cleared = ClearedNodes::default();
    cleared.clear("n1", at);
    case.breakers.cleared(&ClusterName::new("m1"), &cleared);
    assert_eq!(case.compare(60 * SECOND), "", "a node is not the cluster");
    cleared.clear("*", at);
    case.breakers.cleared(&ClusterName::new("m1"), &cleared);
    assert_eq!(
        case.compare(61 * SECOND),
        "ClusterResumed it takes new jobs again: a person has cleared it"
    );
    assert_eq!(case.compare(70 * SECOND), "");
    // What fails later counts.
    for (job, node) in [("a/one", "n1"), ("a/two", "n2"), ("b/three", "n2")] {
        case.fails(job, node, "Xid", 80 * SECOND);
    }
    assert!(case.compare(80 * SECOND).starts_with("ClusterPaused"));
    // Without its breaker, nothing is paused.
    case.breakers.set(Vec::new());
    assert!(case.compare(81 * SECOND).starts_with("ClusterResumed"));
}

#[test]
fn a_new_leader_goes_on_with_what_the_policy_shows_and_repeats_no_event() {
    let mut case = Case::on_trial();
    case.tries(JobState::Placed);
    case.compare(302 * SECOND);
    let shown = case.breakers.of("p");
    assert_eq!(shown[0].trial_job.as_deref(), Some("a/try"));
    let mut next = Case::new(false);
    next.breakers.begin("p", false, &shown);
    next.state(Some(JobState::Running));
    assert_eq!(next.compare(400 * SECOND), "");
    assert!(next.paused().starts_with("false"));
    assert_eq!(next.breakers.of("p"), shown);
    assert!(next.compare(430 * SECOND).starts_with("ClusterResumed"));
}

#[test]
fn a_dry_run_says_what_it_would_do_and_pauses_nothing() {
    let mut case = Case::tripped(true);
    assert!(
        case.compare(0)
            .starts_with("FaultPolicyDryRun it would take no new jobs until")
    );
    assert_eq!((case.paused(), case.breakers.count()), (String::new(), 0));
    assert_eq!(case.breakers.of("p").len(), 1);
    assert_eq!(case.compare(301 * SECOND), "");
    assert_eq!(case.breakers.of("p").len(), 0);
}
