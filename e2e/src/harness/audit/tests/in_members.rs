//! What pods in members request is within the quota of their queue whenever a pod of a job starts.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::{PodReport, PodSightings};
use super::{Story, assert_none, assert_only, template};

/// The jobs `a` and `b` of 8 GPUs each in a queue of 8, and pods in members.
struct InMembers {
    story: Story,
    pods: PodSightings,
    now: Timestamp,
}

/// The jobs are placed one after the other; the second as late as that.
fn placed(between: i64) -> InMembers {
    let mut story = Story::default();
    story.subject.whole_namespace("n");
    story.subject.default_queue("n", "q");
    story.placed("a", 1).after(between).placed("b", 1);
    InMembers {
        now: story.writes[0].time + SignedDuration::from_millis(100),
        story,
        pods: PodSightings::default(),
    }
}

impl InMembers {
    fn after(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    fn pod_like(&mut self, job: &str, uid: &str, change: impl FnOnce(&mut Value)) -> &mut Self {
        let mut pod = template(job);
        pod["metadata"]["name"] = json!(format!("{job}-{uid}"));
        pod["metadata"]["uid"] = json!(uid);
        pod["metadata"]["labels"] = json!({"volcano.sh/job-name": job});
        pod["spec"]["nodeName"] = json!("n1");
        pod["status"]["phase"] = json!("Running");
        change(&mut pod);
        self.pods.seen("m1", &pod, self.now);
        self
    }

    fn pod(&mut self, job: &str, uid: &str) -> &mut Self {
        self.pod_like(job, uid, |_| {})
    }

    fn report(&mut self) -> PodReport {
        let report = self.story.report();
        self.story.subject.in_members(&self.pods, &report).unwrap()
    }

    fn is_fine(&mut self) {
        assert_none(&self.report().violations);
    }

    fn is_wrong(&mut self, expected: &str) {
        assert_only(&self.report().violations, expected);
    }
}

const BOTH: &str = "queue q holds 16 of 8 nvidia.com/gpu in pods: n/b-y of n/b starts in m1";

fn deleting(pod: &mut Value) {
    pod["metadata"]["deletionTimestamp"] = json!("now");
}

#[test]
fn a_pod_counts_from_its_node_to_its_end_though_it_is_deleted() {
    let mut seen = placed(60);
    seen.pod_like("a", "x", |pod| pod["spec"]["nodeName"] = Value::Null);
    seen.after(62).pod("b", "y").is_fine();
    let mut seen = placed(60);
    seen.pod("a", "x").after(50);
    seen.pods.ended("x", seen.now);
    seen.after(12).pod("b", "y").is_fine();
    assert_eq!(
        seen.report().to_string(),
        "2 pods, peak 8 nvidia.com/gpu in q"
    );
    let mut seen = placed(60);
    seen.pod("a", "x").after(50).pod_like("a", "x", deleting);
    seen.after(12).pod("b", "y").is_wrong(BOTH);
    assert_eq!(
        seen.report().to_string(),
        "2 pods, peak 16 nvidia.com/gpu in q"
    );
}

#[test]
fn what_is_known_before_counts_at_once() {
    // The overhead of its RuntimeClass, which the template does not have.
    let mut seen = placed(60);
    seen.pod_like("a", "x", |pod| {
        pod["spec"]["overhead"] = json!({"nvidia.com/gpu": 8})
    });
    seen.is_wrong("queue q holds 16 of 8 nvidia.com/gpu in pods: n/a-x of n/a starts in m1");
    // Both jobs are placed before any pod is there.
    let mut seen = placed(0);
    seen.after(5).pod("a", "x").pod("b", "y").is_wrong(BOTH);
}

#[test]
fn what_nobody_could_foresee_counts_for_later_placements() {
    let foreign = |pod: &mut Value| pod["metadata"]["labels"] = json!({});
    let sidecar = |pod: &mut Value| {
        let resources = json!({"limits": {"nvidia.com/gpu": 8}});
        pod["spec"]["containers"][0]["resources"] = json!({});
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.push(json!({"name": "injected", "resources": resources}));
    };
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 2] = [("z", foreign), ("a", sidecar)];
    for (owner, change) in cases {
        for (before, found) in [(10, true), (2, false)] {
            let mut seen = placed(60);
            seen.after(61 - before).pod_like(owner, "x", change);
            seen.after(before + 1).pod("b", "y");
            match found {
                true => seen.is_wrong(BOTH),
                false => seen.is_fine(),
            }
        }
    }
    // It may stay beside what ran before.
    let mut seen = placed(60);
    seen.pod("a", "x")
        .after(9)
        .pod_like("z", "z", foreign)
        .is_fine();
}

#[test]
fn a_job_may_replace_pods_that_end_slowly_but_no_other_job_starts_beside_them() {
    let mut seen = placed(60);
    seen.pod("a", "x").after(9).pod_like("a", "x", deleting);
    seen.after(1).pod("a", "w").is_fine();
    seen.pods.ended("w", seen.now);
    seen.after(60).pod("b", "y").is_wrong(BOTH);
}

#[test]
fn members_report_at_different_speeds() {
    for (late, found) in [(1, false), (3, true)] {
        let mut seen = placed(60);
        let mut other = template("a");
        other["metadata"]["uid"] = json!("x");
        other["spec"]["nodeName"] = json!("n1");
        seen.pods.seen("m2", &other, seen.now);
        seen.after(62).pod("b", "y").after(late);
        seen.pods.ended("x", seen.now);
        match found {
            true => seen.is_wrong(BOTH),
            false => seen.is_fine(),
        }
    }
}

#[test]
fn pods_that_muster_does_not_charge_do_not_count() {
    let mut seen = placed(60);
    seen.story.subject.unmanaged_namespace("n");
    seen.pod("a", "x").after(62).pod("b", "y").is_fine();
    let mut seen = placed(60);
    seen.story.subject.out_of_service("m1");
    seen.pod("a", "x").after(62).pod("b", "y").is_fine();
}
