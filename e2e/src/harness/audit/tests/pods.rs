//! Pods show whether a job runs twice.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::PodSightings;
use super::{Story, assert_none, assert_only, template};

const START: &str = "2026-01-02T03:04:05Z";

/// A job of 8 GPUs that was placed on one cluster and then on another, and its pods.
struct Seen {
    story: Story,
    pods: PodSightings,
    now: Timestamp,
}

fn seen() -> Seen {
    let mut story = Story::default();
    story.placed("a", 1).gated("a").after(9);
    story.placed_on("a", 2, json!([{"name": "m2"}, {"name": "m3"}]));
    Seen {
        story,
        pods: PodSightings::default(),
        now: START.parse().unwrap(),
    }
}

impl Seen {
    fn pod(&mut self, cluster: &str, uid: &str, phase: &str, gpus: u64) -> &mut Self {
        let mut pod = template("a");
        pod["metadata"]["name"] = json!(format!("a-{uid}"));
        pod["metadata"]["uid"] = json!(uid);
        pod["metadata"]["labels"] = json!({"volcano.sh/job-name": "a"});
        pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!(gpus);
        pod["spec"]["nodeName"] = json!("n1");
        pod["status"]["phase"] = json!(phase);
        self.pods.seen(cluster, &pod, self.now);
        self
    }

    fn after(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    fn twice(&mut self) -> Vec<String> {
        let report = self.story.report();
        let jobs = self.story.subject.known(&report);
        super::super::twice::verify(&self.pods, &jobs, self.now)
    }

    fn is_fine(&mut self) {
        assert_none(&self.twice());
    }

    fn is_wrong(&mut self, expected: &str) {
        assert_only(&self.twice(), expected);
    }
}

#[test]
fn one_attempt_after_the_other_is_fine() {
    let mut seen = seen();
    seen.pod("m1", "x", "Pending", 8)
        .pod("m1", "x", "Running", 8)
        .after(60);
    seen.pod("m1", "x", "Failed", 8).after(1);
    seen.pod("m2", "y", "Running", 4)
        .pod("m3", "z", "Running", 4)
        .after(60);
    seen.pod("m2", "y", "Succeeded", 4).is_fine();
    // A moment in which both are seen is allowed.
    let mut seen = self::seen();
    seen.pod("m1", "x", "Running", 4)
        .after(60)
        .pod("m2", "y", "Running", 4)
        .after(9);
    seen.pods.ended("x", seen.now);
    seen.after(60).pod("m2", "y", "Succeeded", 4).is_fine();
}

#[test]
fn two_attempts_at_a_time_are_not() {
    let both = r#"n/a: pods run in {"m1", "m2"} at once"#;
    let mut seen = seen();
    seen.pod("m1", "x", "Running", 4)
        .after(60)
        .pod("m2", "y", "Running", 4)
        .after(11);
    seen.pods.ended("x", seen.now);
    seen.is_wrong(both);
    // The first pod never goes.
    let mut seen = self::seen();
    seen.pod("m1", "x", "Running", 4).after(60);
    seen.pod("m2", "y", "Running", 4).after(9).is_fine();
    seen.after(2).is_wrong(both);
}

#[test]
fn more_pods_than_a_job_has_are_not() {
    let mut seen = seen();
    seen.pod("m2", "x", "Running", 8)
        .pod("m2", "y", "Running", 8)
        .after(60);
    seen.pods.ended("x", seen.now);
    seen.is_wrong("n/a: pods with 16 of its 8 devices run");
}

#[test]
fn pods_of_others_are_not_looked_at() {
    let mut seen = seen();
    let mut pod: Value = template("other");
    pod["metadata"]["uid"] = json!("other");
    pod["spec"]["nodeName"] = json!("n1");
    pod["status"]["phase"] = json!("Running");
    seen.pods.seen("m4", &pod, seen.now);
    seen.is_fine();
}
