#![allow(clippy::unwrap_used)]

use super::*;
use engine::facts::{Admission, ClusterPlacement, Demand, RolePods, Share};
use engine::{Attempt, ClusterName, Uid};

/// What a job shows, built from parts that a test changes.
struct Case {
    state: JobState,
    attempt: u32,
    reason: Reason,
    position: Option<usize>,
    reported: Value,
    works: Vec<SeenWork>,
    record_changed: Option<&'static str>,
    not_followed: &'static str,
    seen: Option<PodGroupStatus>,
    template: bool,
    now: i64,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            state: JobState::Queued,
            attempt: 0,
            reason: Reason::WaitingForQuota,
            position: Some(3),
            reported: json!([]),
            works: Vec::new(),
            record_changed: None,
            not_followed: "",
            seen: None,
            template: true,
            now: 100,
        }
    }
}

fn binding(reported: &Value) -> ResourceBinding {
    serde_json::from_value(json!({
        "metadata": {},
        "spec": {
            "resource": {"apiVersion": "batch/v1", "kind": "Job", "uid": "u"},
            "clusters": [{"name": "m1"}],
        },
        "status": {"aggregatedStatus": reported},
    }))
    .unwrap()
}

fn fact() -> JobFact {
    JobFact {
        key: JobKey::new("team", "a"),
        uid: Uid::new("u"),
        queue: QueueName::new("q"),
        priority_class: None,
        queued_at: engine::Time(1_000),
        demand: Demand {
            roles: vec![Role::of(
                "main",
                3,
                [
                    ("cpu".into(), engine::Amount(8_000)),
                    ("nvidia.com/gpu".into(), engine::Amount(4)),
                ]
                .into_iter()
                .collect(),
            )],
            min_available: 2,
            natively_divisible: false,
            held: engine::facts::Held::ByReplicas,
            elastic: false,
            split: engine::facts::Split::Never,
            topology: None,
            placement: ClusterPlacement::default(),
        },
        hold: None,
        expected_duration_ms: Some(7_200_000),
        user: "ann".to_owned(),
        preemptible: true,
        checkpointed_at: None,
        images: Vec::new(),
    }
}

impl Case {
    fn status(&self) -> PodGroupStatus {
        let (binding, fact) = (binding(&self.reported), fact());
        let admission = Admission {
            uid: fact.uid.clone(),
            attempt: Attempt(self.attempt),
            queue: fact.queue.clone(),
            admitted_at: engine::Time(50_000),
            declared_ms: None,
            shares: vec![Share {
                cluster: ClusterName::new("m1"),
                pods: vec![RolePods {
                    role: "main".into(),
                    count: 2,
                }],
                charge: [].into(),
                slots: Vec::new(),
            }],
        };
        let view = JobView {
            uid: &fact.uid,
            state: self.state,
            queue: &fact.queue,
            priority: 7,
            attempts: Attempt(self.attempt),
            admission: (self.state != JobState::Queued).then_some(&admission),
            queued_at: fact.queued_at,
            back_off_until: None,
            exceeds_grant: false,
        };
        let explanation = Explanation {
            position: self.position,
            ..Explanation::of(self.reason, "as the engine says".into())
        };
        let works = self.works.iter();
        let (reason, message) = reason_of(&explanation, self.state, &binding, works, None, None);
        status(&StatusInputs {
            seen: self.seen.as_ref(),
            explanation: &explanation,
            view: &view,
            timeline: Timeline::default(),
            start: None,
            binding: &binding,
            fact: self.template.then_some(&fact),
            works: &self.works,
            excess: None,
            reason: (reason, &message),
            record_changed: self.record_changed,
            not_followed: self.not_followed,
            now: jiff::Timestamp::from_second(self.now).unwrap(),
        })
    }

    /// Status, phase, reason, message, position.
    fn said(&self) -> String {
        let status = self.status();
        let federation = status.federation.unwrap();
        format!(
            "{} {} {} {} ({})",
            federation.status.unwrap(),
            status.phase.unwrap(),
            federation.reason.unwrap(),
            federation
                .position
                .map_or("-".to_owned(), |place| place.to_string()),
            federation.message.unwrap(),
        )
    }
}

fn reported(status: Value) -> Value {
    json!([{"clusterName": "m1", "status": status}])
}

fn released(state: JobState, reason: Reason) -> Case {
    Case {
        state,
        attempt: 1,
        reason,
        position: None,
        ..Case::default()
    }
}

fn refused() -> Vec<SeenWork> {
    vec![SeenWork {
        cluster: "m1".into(),
        deleting: false,
        refused: Some("quota exceeded".into()),
        part: None,
        ..SeenWork::default()
    }]
}

#[test]
fn the_reason_is_the_engines_by_default() {
    insta::assert_snapshot!(Case::default().said(), @"Queued Pending WaitingForQuota 3 (as the engine says)");
    let far = Case {
        position: Some(4711),
        ..Case::default()
    };
    insta::assert_snapshot!(far.said(), @"Queued Pending WaitingForQuota 1000 (as the engine says)");
    let ending = released(JobState::Ending, Reason::Suspended);
    insta::assert_snapshot!(ending.said(), @"Evicting Unknown Suspended - (as the engine says)");
}

#[test]
fn who_asks_for_how_much_stays_when_the_template_is_gone() {
    let status = Case::default().status();
    let asked = |status: &PodGroupStatus| {
        let federation = status.federation.clone().unwrap();
        let seconds = federation.expected_duration_seconds;
        (federation.user, federation.devices, seconds)
    };
    let wanted = (Some("ann".to_owned()), Some(12), Some(7_200));
    assert_eq!(asked(&status), wanted);
    let gone = Case {
        seen: Some(status),
        template: false,
        ..Case::default()
    };
    assert_eq!(asked(&gone.status()), wanted);
}

#[test]
fn a_member_that_refuses_a_part_is_named() {
    let placed = Case {
        works: refused(),
        ..released(JobState::Placed, Reason::Placed)
    };
    insta::assert_snapshot!(placed.said(), @"Starting Inqueue MemberRefused - (m1 refused it: quota exceeded)");
    let part = &placed.status().federation.unwrap().placement[0];
    assert_eq!((part.pods, part.reason.as_str()), (2, "MemberRefused"));
    // A running job is not stopped when its member refuses an update.
    let runs = Case {
        works: refused(),
        ..released(JobState::Running, Reason::Running)
    };
    insta::assert_snapshot!(runs.said(), @"Running Running Running - (as the engine says)");
}

#[test]
fn the_status_of_a_finished_job_says_how_it_ended() {
    let ended = |status: Value| Case {
        reported: reported(status),
        ..released(JobState::Finished, Reason::Finished)
    };
    let condition =
        |name: &str| json!({"conditions": [{"type": name, "status": "True", "message": "why"}]});
    assert!(
        ended(condition("Complete"))
            .said()
            .starts_with("Succeeded Completed Succeeded")
    );
    let failed = ended(condition("Failed")).said();
    assert!(
        failed.starts_with("Failed Completed Failed") && failed.contains("why"),
        "{failed}"
    );
    assert!(
        ended(condition("Suspended"))
            .said()
            .starts_with("Finished Completed Suspended")
    );
}

#[test]
fn pods_are_counted_as_members_report_them() {
    let case = Case {
        reported: reported(json!({"active": 2, "ready": 2, "succeeded": 1, "failed": 3})),
        ..released(JobState::Running, Reason::Running)
    };
    let status = case.status();
    assert_eq!(
        (status.running, status.succeeded, status.failed),
        (Some(2), Some(1), Some(3))
    );
    let federation = status.federation.unwrap();
    assert_eq!(federation.placement_summary.as_deref(), Some("m1:2"));
    assert_eq!(federation.priority, Some(7));
}

#[test]
fn an_unchanged_status_is_computed_again_identically() {
    let first = released(JobState::Running, Reason::Running).status();
    let second = Case {
        seen: Some(first.clone()),
        now: 9_000,
        ..released(JobState::Running, Reason::Running)
    };
    assert_eq!(second.status(), first);
}

#[test]
fn conditions_follow_the_state() {
    let holds = |state| {
        let status = released(state, Reason::Running).status();
        let conditions = status.conditions.into_iter();
        let held: Vec<String> = conditions
            .filter(|condition| condition.status == "True")
            .map(|condition| condition.type_)
            .collect();
        held.join(" ")
    };
    assert_eq!(holds(JobState::Queued), "");
    assert_eq!(holds(JobState::Assumed), "Admitted");
    assert_eq!(holds(JobState::Placed), "Admitted Placed");
    assert_eq!(holds(JobState::Running), "Admitted Placed Ready");
    assert_eq!(holds(JobState::Ending), "");
    assert_eq!(holds(JobState::Finished), "Admitted Placed Finished");
}

/// Returns the spec of the PodGroup of a job with this template.
fn spec_of(template: &Value) -> Value {
    let (fact, binding) = (fact(), binding(&json!([])));
    let ask = workload::read_spec(template).unwrap();
    let object = object(&fact.key, &binding, &fact, &fact.queue, Some(&ask));
    object["spec"].clone()
}

#[test]
fn a_podgroup_is_applied_without_empty_fields() {
    let deployment = |replicas: u32| {
        let container = json!({"name": "main", "resources": {"requests": {"cpu": "1"}}});
        spec_of(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "namespace": "team"},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        }))
    };
    // A service starts with one pod.
    assert_eq!(
        deployment(2)["minResources"],
        json!({"cpu": "1", "pods": "1"})
    );
    // An empty object is as wrong as null: to apply it over entries leaves null.
    assert_eq!(deployment(0), json!({"queue": "q", "minMember": 0}));
}

#[test]
fn a_podgroup_names_the_queue_that_is_charged() {
    let (fact, binding) = (fact(), binding(&json!([])));
    let charged = QueueName::new("charged");
    let object = object(&fact.key, &binding, &fact, &charged, None);
    assert_eq!(object["spec"], json!({"queue": "charged"}));
}

#[test]
fn the_finished_condition_follows_what_is_left_of_a_job() {
    let ends = |state| Case {
        reported: reported(state),
        ..released(JobState::Finished, Reason::Finished)
    };
    let failed = |why: &str| {
        ends(json!({"conditions": [{"type": "Failed", "status": "True", "message": why}]}))
    };
    let first = failed("one").status();
    let later = Case {
        seen: Some(first),
        now: 9_000,
        ..failed("other")
    };
    let status = later.status();
    let finished = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Finished");
    let finished = finished.unwrap();
    assert!(finished.message.contains("other"), "{}", finished.message);
    let since = finished.last_transition_time.as_ref().unwrap();
    assert_eq!(since.0.as_second(), 100);
}

#[test]
fn an_existing_podgroup_is_not_applied_again() {
    let object = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "a-job", "namespace": "team", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u"},
        ]},
        "spec": {"queue": "q", "minMember": 2, "minTaskMember": {"main": 2}, "minResources": {"cpu": "4"}},
    });
    let seen: PodGroup = serde_json::from_value(object.clone()).unwrap();
    assert!(shows(&seen, &object));
    let mut larger = object.clone();
    larger["spec"]["minMember"] = 3.into();
    assert!(!shows(&seen, &larger));
    let mut made_again = object;
    made_again["metadata"]["ownerReferences"][0]["uid"] = "v".into();
    assert!(!shows(&seen, &made_again));
}

#[test]
fn a_changed_record_is_shown_until_the_next_attempt() {
    let intact = |status: &PodGroupStatus| {
        let mut conditions = status.conditions.iter();
        let condition = conditions.find(|condition| condition.type_ == "RecordIntact");
        condition.map(|condition| (condition.status.clone(), condition.reason.clone()))
    };
    let mut case = Case {
        state: JobState::Running,
        attempt: 1,
        reason: Reason::Running,
        ..Case::default()
    };
    assert_eq!(intact(&case.status()), None);
    case.record_changed = Some("its record was changed (clusters)");
    let changed = Some(("False".to_owned(), "RecordChanged".to_owned()));
    let told = case.status();
    assert_eq!(intact(&told), changed);
    // A new process does not know this, and keeps the condition.
    case.record_changed = None;
    case.seen = Some(told);
    let kept = case.status();
    assert_eq!(intact(&kept), changed);
    case.attempt = 2;
    case.seen = Some(kept);
    assert_eq!(intact(&case.status()).unwrap().0, "True");
}

#[test]
fn a_policy_that_is_not_followed_is_shown_until_it_is_changed() {
    let followed = |status: &PodGroupStatus| {
        let mut conditions = status.conditions.iter();
        let condition = conditions.find(|condition| condition.type_ == "PolicyFollowed");
        condition.map(|condition| (condition.status.clone(), condition.message.clone()))
    };
    let mut case = Case::default();
    assert_eq!(followed(&case.status()), None);
    case.not_followed = "spec.placement.workloadAffinity is not followed";
    let told = case.status();
    let said = Some(("False".to_owned(), case.not_followed.to_owned()));
    assert_eq!(followed(&told), said);
    assert!(tells_of_policy(Some(&told), case.not_followed));
    assert!(!tells_of_policy(
        Some(&told),
        "spec.placement.x is not followed"
    ));
    assert!(!tells_of_policy(None, case.not_followed));
    case.not_followed = "";
    case.seen = Some(told);
    assert_eq!(followed(&case.status()).unwrap().0, "True");
}
