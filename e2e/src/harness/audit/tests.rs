//! The auditor sees what it is there to see.

use serde_json::{Value, json};

use super::log::{Resource, Write};
use super::{Report, Subject};

/// Writes of two jobs, `a` and `b`, of 8 GPUs each in a queue that may hold 8.
#[derive(Default)]
struct Story(Vec<Write>);

impl Story {
    fn write(&mut self, resource: Resource, verb: &str, object: Value) -> &mut Self {
        self.0.push(Write {
            revision: self.0.len() as u64 + 1,
            resource,
            verb: verb.into(),
            user: "test".into(),
            object,
        });
        self
    }

    fn binding(&mut self, job: &str, change: impl FnOnce(&mut Value)) -> &mut Self {
        let mut object = json!({
            "metadata": {"namespace": "n", "name": job, "labels": {super::PERMANENT_ID: job}},
            "spec": {"resource": {"uid": job}, "suspension": {"scheduling": true}},
        });
        change(&mut object);
        self.write(Resource::Binding, "patch", object)
    }

    fn gated(&mut self, job: &str) -> &mut Self {
        self.binding(job, |_| {})
    }

    fn placed(&mut self, job: &str, attempt: u64) -> &mut Self {
        self.binding(job, |object| place(object, job, attempt))
    }

    fn ended(&mut self, job: &str, attempt: u64) -> &mut Self {
        self.binding(job, |object| {
            place(object, job, attempt);
            let status = json!({"state": {"phase": "Completed"}});
            object["status"]["aggregatedStatus"] = json!([{"clusterName": "m1", "status": status}]);
        })
    }

    fn work(&mut self, job: &str, deleted: bool) -> &mut Self {
        let mut object = json!({
            "metadata": {"namespace": "es-m1", "name": job, "labels": {super::PERMANENT_ID: job}},
        });
        if deleted {
            object["metadata"]["deletionTimestamp"] = json!("now");
        }
        self.write(Resource::Work, "patch", object)
    }

    fn report(&mut self) -> Report {
        let mut subject = Subject::default();
        subject.capability("q", 8);
        for job in ["a", "b"] {
            let limits = json!({"nvidia.com/gpu": 8});
            subject.job(&json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"uid": job, "labels": {"muster.io/queue": "q"}},
                "spec": {"containers": [{"resources": {"limits": limits}}]},
            }));
        }
        subject.replay(std::mem::take(&mut self.0))
    }
}

fn place(object: &mut Value, job: &str, attempt: u64) {
    let clusters = json!([{"name": "m1"}]);
    let record = json!({"templateUID": job, "attempt": attempt, "clusters": clusters});
    object["metadata"]["annotations"][super::RECORD] = json!(record.to_string());
    object["spec"]["suspension"]["scheduling"] = json!(false);
    object["spec"]["clusters"] = clusters;
}

#[test]
fn one_after_the_other_is_fine() {
    let mut story = Story::default();
    let report = story
        .gated("a")
        .gated("b")
        .placed("a", 1)
        .work("a", false)
        .ended("a", 1)
        .placed("b", 1)
        .report();
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.peaks["q"], 8);
    assert_eq!(report.placements["n/a"], 1);
}

#[test]
fn what_must_not_be_is_named() {
    type Tell = fn(&mut Story);
    let cases: [(&str, Tell); 6] = [
        ("queue q holds 16 of 8 GPUs at revision 2", |story| {
            story.placed("a", 1).placed("b", 1);
        }),
        ("queue q holds 16 of 8 GPUs at revision 4", |story| {
            // Taken back, but its Work is still there.
            story
                .placed("a", 1)
                .work("a", false)
                .gated("a")
                .placed("b", 1);
        }),
        ("n/a: attempt 1 placed again", |story| {
            story.placed("a", 1).gated("a").placed("a", 1);
        }),
        ("n/a: opened without a placement", |story| {
            story.gated("a");
            story.binding("a", |object| {
                object["spec"]["suspension"]["scheduling"] = json!(false)
            });
        }),
        ("n/a: placed without a record of its own", |story| {
            story.binding("a", |object| place(object, "another", 1));
        }),
        ("n/a: gone while a Work of it was there", |story| {
            story.placed("a", 1).work("a", false);
            story.binding("a", |object| {
                object["metadata"]["deletionTimestamp"] = json!("now")
            });
        }),
    ];
    for (expected, tell) in cases {
        let mut story = Story::default();
        tell(&mut story);
        let violations = story.report().violations;
        assert!(
            violations
                .iter()
                .any(|violation| violation.starts_with(expected)),
            "{expected}: {violations:?}"
        );
    }
}

#[test]
fn quota_is_free_once_the_works_of_a_job_taken_back_are_gone() {
    let mut story = Story::default();
    let report = story
        .placed("a", 1)
        .work("a", false)
        .gated("a")
        .work("a", true)
        .placed("b", 1)
        .report();
    assert_eq!(report.violations, Vec::<String>::new());
}
