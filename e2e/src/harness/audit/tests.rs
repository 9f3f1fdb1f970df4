//! The auditor finds every violation, and nothing else.

#![allow(clippy::unwrap_used)]

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::log::{AuditedResource, AuditedWrite};
use super::{AuditReport, AuditSubject};

mod bounds;
mod charges;
mod in_members;
mod pods;

/// The class of GPUs that all jobs of these tests select.
const CLASS: &str = "h100";

/// Writes, a second apart, about jobs of 8 GPUs and one CPU each in a queue with a quota of 8 GPUs.
struct Story {
    writes: Vec<AuditedWrite>,
    subject: AuditSubject,
    now: Timestamp,
}

impl Default for Story {
    fn default() -> Self {
        let mut story = Self {
            writes: Vec::new(),
            subject: AuditSubject::default(),
            now: "2026-01-02T03:04:05Z".parse().unwrap(),
        };
        for job in ["a", "b"] {
            story.subject.job(&template(job)).unwrap();
        }
        story.subject.capability("q", 8);
        story
    }
}

/// Returns a Pod that requests 8 GPUs.
fn template(job: &str) -> Value {
    let resources = json!({"limits": {"nvidia.com/gpu": 8, "cpu": 1}});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "n", "name": job, "uid": job,
            "labels": {"muster.io/queue": "q"},
        },
        "spec": {
            "nodeSelector": {"nvidia.com/gpu.product": CLASS.to_uppercase()},
            "containers": [{"resources": resources}],
        },
    })
}

/// Returns a batch Job of pods with 2 GPUs each in a queue of its own.
fn gang(job: &str, queue: &str, pods: u64) -> Value {
    let mut pod = template(job);
    let mut spec = pod["spec"].take();
    spec["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 2}});
    pod["apiVersion"] = json!("batch/v1");
    pod["kind"] = json!("Job");
    pod["metadata"]["labels"]["muster.io/queue"] = json!(queue);
    pod["spec"] = json!({"parallelism": pods, "template": {"spec": spec}});
    pod
}

impl Story {
    fn write(&mut self, resource: AuditedResource, verb: &str, object: Value) -> &mut Self {
        self.after(1);
        self.writes.push(AuditedWrite {
            revision: self.writes.len() as u64 + 1,
            time: self.now,
            resource,
            verb: verb.into(),
            user: "test".into(),
            object,
        });
        self
    }

    /// Advances the time.
    fn after(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    fn binding(&mut self, job: &str, change: impl FnOnce(&mut Value)) -> &mut Self {
        let mut object = json!({
            "metadata": {"namespace": "n", "name": job, "labels": {super::PERMANENT_ID: job}},
            "spec": {
                "resource": {"uid": job, "kind": "Pod", "namespace": "n", "name": job},
                "suspension": {"scheduling": true},
            },
        });
        change(&mut object);
        self.write(AuditedResource::Binding, "patch", object)
    }

    fn gated(&mut self, job: &str) -> &mut Self {
        self.binding(job, |_| {})
    }

    fn placed(&mut self, job: &str, attempt: u64) -> &mut Self {
        self.binding(job, |object| {
            place(object, job, attempt, json!([{"name": "m1"}]))
        })
    }

    fn placed_on(&mut self, job: &str, attempt: u64, clusters: Value) -> &mut Self {
        self.binding(job, |object| place(object, job, attempt, clusters))
    }

    fn ended(&mut self, job: &str, attempt: u64) -> &mut Self {
        self.binding(job, |object| {
            place(object, job, attempt, json!([{"name": "m1"}]));
            let status = json!({"state": {"phase": "Completed"}});
            object["status"]["aggregatedStatus"] = json!([{"clusterName": "m1", "status": status}]);
        })
    }

    fn work(&mut self, job: &str, deleted: bool) -> &mut Self {
        self.work_in("m1", job, |object| {
            if deleted {
                object["metadata"]["deletionTimestamp"] = json!("now");
            }
        })
    }

    fn work_in(&mut self, cluster: &str, job: &str, change: impl FnOnce(&mut Value)) -> &mut Self {
        let mut object = json!({"metadata": {
            "namespace": format!("karmada-es-{cluster}"), "name": job, "uid": format!("{cluster}/{job}"),
            "labels": {super::PERMANENT_ID: job},
        }});
        change(&mut object);
        self.write(AuditedResource::Work, "patch", object)
    }

    fn queue(&mut self, name: &str, spec: Value) -> &mut Self {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        self.write(AuditedResource::Queue, "patch", object)
    }

    fn policy(&mut self, name: &str, pools: Value) -> &mut Self {
        let object = json!({"metadata": {"name": name}, "spec": {"pools": pools}});
        self.write(AuditedResource::Policy, "patch", object)
    }

    fn report(&mut self) -> AuditReport {
        self.subject.replay(&self.writes).unwrap()
    }

    /// Asserts that there is no violation.
    fn is_fine(&mut self) {
        assert_none(&self.report().violations);
    }

    /// Asserts that this is the only violation.
    fn is_wrong(&mut self, expected: &str) {
        assert_only(&self.report().violations, expected);
    }
}

/// Asserts that there is no violation.
fn assert_none(violations: &[String]) {
    assert_eq!(violations, Vec::<String>::new());
}

/// Asserts that there is one violation, which begins with `expected`.
fn assert_only(violations: &[String], expected: &str) {
    let one = violations.len() == 1 && violations[0].starts_with(expected);
    assert!(one, "{expected}: {violations:?}");
}

fn place(object: &mut Value, job: &str, attempt: u64, clusters: Value) {
    let record = json!({"templateUID": job, "attempt": attempt, "clusters": clusters});
    object["metadata"]["annotations"][super::RECORD] = json!(record.to_string());
    object["spec"]["suspension"]["scheduling"] = json!(false);
    object["spec"]["clusters"] = clusters;
}

#[test]
fn one_after_the_other_is_fine() {
    let mut story = Story::default();
    story.gated("a").gated("b").placed("a", 1).work("a", false);
    story
        .after(9)
        .ended("a", 1)
        .placed("b", 1)
        .after(4)
        .gated("b");
    story.is_fine();
    let report = story.report();
    assert_eq!(report.peak("q"), 8);
    assert_eq!(report.peak_of("q", "cpu"), 1);
    assert_eq!(report.placements["n/a"], 1);
    // The first job held its devices for 11 s, the second for 5 s.
    let told = "2 jobs, 128 device-seconds, peak 8 of 8 nvidia.com/gpu in q";
    assert_eq!(report.to_string(), told);
}

#[test]
fn the_reason_of_an_eviction_is_in_the_report() {
    let mut story = Story::default();
    story
        .placed("a", 1)
        .work("a", false)
        .binding("a", |object| {
            let record = json!({"templateUID": "a", "attempt": 1, "reason": "RoomLost"});
            object["metadata"]["annotations"][super::RECORD] = json!(record.to_string());
        });
    story.work("a", true).after(9).placed("a", 2);
    let report = story.report();
    assert_eq!(report.placements["n/a"], 2);
    assert_eq!(report.evictions["n/a"], ["RoomLost"]);
}

#[test]
fn what_must_not_be_is_named() {
    type Tell = fn(&mut Story);
    let cases: [(&str, Tell); 6] = [
        (
            "queue q holds 16 of 8 nvidia.com/gpu at revision 2",
            |story| {
                story.placed("a", 1).placed("b", 1);
            },
        ),
        (
            "queue q holds 16 of 8 nvidia.com/gpu at revision 4",
            |story| {
                // The job is evicted, but its Work still exists.
                story
                    .placed("a", 1)
                    .work("a", false)
                    .gated("a")
                    .placed("b", 1);
            },
        ),
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
            let clusters = json!([{"name": "m1"}]);
            story.binding("a", |object| place(object, "another", 1, clusters));
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
        story.is_wrong(expected);
    }
}

#[test]
fn an_audit_of_nothing_is_none() {
    let fails = |story: &mut Story| {
        let report = story.report();
        story
            .subject
            .is_enough(&report)
            .err()
            .map(|error| error.to_string())
    };
    let mut story = Story::default();
    assert!(
        fails(&mut story)
            .unwrap()
            .starts_with("an audit without a job")
    );
    story.gated("a").after(9).gated("b");
    assert!(
        fails(&mut story)
            .unwrap()
            .starts_with("an audit in which no device is held")
    );
    story.subject.nothing_held();
    assert_eq!(fails(&mut story), None);
    // A placement that is gone at once is seen, too.
    story.placed("a", 1).gated("a");
    story.writes.last_mut().unwrap().time -= SignedDuration::from_millis(900);
    assert_eq!(story.report().device_seconds(), 0);
    assert!(
        fails(&mut story)
            .unwrap()
            .starts_with("devices are held where none were expected: 2 jobs, 0 device-seconds")
    );
    story.subject.nothing_held = false;
    assert_eq!(fails(&mut story), None);
}

#[test]
fn a_job_that_is_left_out_of_a_whole_namespace_is_named() {
    let mut story = Story::default();
    story.placed("c", 1);
    story.is_fine();
    story.subject.whole_namespace("n");
    story.is_wrong("n/c: a Pod that is left out of the audit is placed at revision 1");
    let mut story = Story::default();
    story.subject.whole_namespace("n");
    story.gated("c").binding("c", |object| {
        place(object, "c", 1, json!([{"name": "m1"}]));
        object["spec"]["resource"]["kind"] = json!("ConfigMap");
    });
    story.is_fine();
    story.subject.whole_namespace("another");
    story.placed("a", 1).is_fine();
}
