//! From when to when a job holds its amounts, and where.

use serde_json::{Value, json};

use super::{CLASS, Story, gang, place};

#[test]
fn quota_is_free_once_the_works_of_a_job_evicted_are_gone() {
    let mut story = Story::default();
    story.placed("a", 1).work("a", false).gated("a");
    story.work("a", true).placed("b", 1).is_fine();
}

#[test]
fn a_late_work_keeps_the_charge() {
    // The job is evicted before a Work was seen; one comes after its quota went to another job.
    let mut story = Story::default();
    story.placed("a", 1).gated("a").after(20).placed("b", 1);
    story.is_fine();
    story.work("a", false);
    story.is_wrong("queue q holds 16 of 8 nvidia.com/gpu at revision 3");
    // The same Work belongs to the next placement.
    let mut story = Story::default();
    story.placed("a", 1).gated("a").after(20).placed("b", 1);
    story.ended("b", 1).placed("a", 2).work("a", false);
    story.is_fine();
    // The job is deleted, and its last Work comes and goes after that.
    let mut story = Story::default();
    story.placed("a", 1).binding("a", |object| {
        object["metadata"]["deletionTimestamp"] = json!("now");
    });
    story.placed("b", 1).is_fine();
    story.work("a", false).work("a", true);
    story.is_wrong("queue q holds 16 of 8 nvidia.com/gpu at revision 3");
}

#[test]
fn while_a_work_may_still_come_nothing_is_free() {
    let mut story = Story::default();
    story.placed("a", 1).gated("a").after(2).placed("b", 1);
    story.is_wrong("queue q holds 16 of 8 nvidia.com/gpu at revision 3");
    let mut story = Story::default();
    story
        .placed("a", 1)
        .gated("a")
        .after(4)
        .placed("b", 1)
        .is_fine();
    // A Work of an older placement that is being deleted says nothing about this one.
    let mut story = Story::default();
    story.placed("a", 1).work("a", false).gated("a");
    story.work_in("m1", "a", |work| {
        work["metadata"]["deletionTimestamp"] = json!("now");
        work["metadata"]["finalizers"] = json!(["f"]);
    });
    story
        .placed("a", 2)
        .work("a", true)
        .gated("a")
        .placed("b", 1);
    story.is_wrong("queue q holds 16 of 8 nvidia.com/gpu at revision 8");
}

#[test]
fn what_an_operator_gave_up_is_gone() {
    let tell = |given_up: bool| {
        let mut story = Story::default();
        if given_up {
            story.subject.out_of_service("m1");
        }
        story.placed("a", 1).work("a", false).gated("a");
        story.work_in("m1", "a", |work| {
            work["metadata"]["deletionTimestamp"] = json!("now");
            work["metadata"]["finalizers"] = json!(["f"]);
        });
        story.placed("b", 1);
        story
    };
    tell(true).is_fine();
    tell(false).is_wrong("queue q holds 16 of 8 nvidia.com/gpu at revision 5");
    // The Work of the next attempt is deleted only after that attempt's eviction.
    let mut story = tell(true);
    story
        .ended("b", 1)
        .gated("b")
        .placed("a", 2)
        .work_in("m1", "a", |work| {
            work["metadata"]["uid"] = json!("another");
        });
    story.gated("a").work_in("m1", "a", |work| {
        work["metadata"]["uid"] = json!("another");
        work["metadata"]["deletionTimestamp"] = json!("now");
        work["metadata"]["finalizers"] = json!(["f"]);
    });
    story.placed("b", 2).is_fine();
    // The Work returns with the cluster, and does not count again.
    let mut story = tell(true);
    story
        .ended("b", 1)
        .gated("b")
        .placed("a", 2)
        .after(9)
        .gated("a");
    story.work_in("m1", "a", |work| {
        work["metadata"]["deletionTimestamp"] = json!("now");
        work["metadata"]["finalizers"] = json!(["f"]);
    });
    story.after(9).placed("b", 2).is_fine();
}

/// A gang of five pods of 2 GPUs in a queue, and the requests of one of its Works.
fn parts() -> Story {
    let mut story = Story::default();
    story.subject.job(&gang("g", "p", 5)).unwrap();
    story
}

fn part(pods: u64) -> impl FnOnce(&mut Value) {
    move |work| work["spec"]["workload"]["manifests"] = json!([gang("g", "p", pods)])
}

fn in_m2(gpus: u64) -> Value {
    let resources = json!([{"name": "nvidia.com/gpu", "capability": gpus}]);
    json!([{"class": CLASS, "clusters": ["m2"], "resources": resources}])
}

#[test]
fn the_works_say_how_much_is_where() {
    let both = json!([{"name": "m1"}, {"name": "m2"}]);
    let mut story = parts();
    story.policy("p", in_m2(4)).placed_on("g", 1, both.clone());
    story
        .work_in("m1", "g", part(3))
        .work_in("m2", "g", part(2));
    story.is_fine();
    assert_eq!(story.report().peak("p"), 10);
    story.work_in("m2", "g", part(3));
    story.is_wrong(r#"queue p in h100 of {"m2"} holds 6 of 4 nvidia.com/gpu at revision 5"#);
    assert_eq!(story.report().peak("p"), 12, "more than its template");
    // The cluster has no requests yet.
    let mut story = parts();
    story.policy("p", in_m2(4)).placed_on("g", 1, both);
    story.work_in("m2", "g", |work| {
        part(5)(work);
        work["spec"]["suspendDispatching"] = json!(true);
    });
    story.is_fine();
    story.work_in("m2", "g", part(5));
    story.is_wrong(r#"queue p in h100 of {"m2"} holds 10 of 4 nvidia.com/gpu at revision 4"#);
}

#[test]
fn shares_say_how_much_is_where_if_all_pods_are_alike() {
    let shares = |first: u64, second: u64| json!([{"name": "m1", "replicas": first}, {"name": "m2", "replicas": second}]);
    let mut story = parts();
    story.policy("p", in_m2(4)).placed_on("g", 1, shares(3, 2));
    story.is_fine();
    let mut story = parts();
    story.policy("p", in_m2(4)).placed_on("g", 1, shares(2, 3));
    story.is_wrong(r#"queue p in h100 of {"m2"} holds 6 of 4 nvidia.com/gpu at revision 2"#);
}

#[test]
fn an_elastic_job_holds_what_it_has() {
    let elastic = |limit: u64| {
        let mut story = Story::default();
        let mut job = gang("g", "p", 5);
        job["metadata"]["annotations"]["muster.io/elastic"] = json!("true");
        story.subject.job(&job).unwrap();
        story.subject.capability("p", limit);
        story.placed_on("g", 1, json!([{"name": "m1", "replicas": 2}]));
        story
    };
    let mut story = elastic(4);
    story.is_fine();
    assert_eq!(story.report().peak("p"), 4);
    story.placed_on("g", 1, json!([{"name": "m1", "replicas": 3}]));
    story.is_wrong("queue p holds 6 of 4 nvidia.com/gpu at revision 2");
    // Its Work grows before its placement.
    let mut story = elastic(4);
    story.work_in("m1", "g", part(4));
    story.is_wrong("queue p holds 8 of 4 nvidia.com/gpu at revision 2");
    // A part that grows in one cluster adds to the amount promised in the other.
    let mut story = elastic(7);
    let shares = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 1}]);
    story.placed_on("g", 1, shares).work_in("m2", "g", part(2));
    let violations = story.report().violations;
    assert!(
        violations
            .iter()
            .any(|what| what.contains("p holds 8 of 7")),
        "{violations:?}"
    );
    // It frees nothing before its Work does.
    let mut story = elastic(9);
    story.subject.job(&gang("h", "p", 2)).unwrap();
    story.work_in("m1", "g", part(3));
    story.placed_on("g", 1, json!([{"name": "m1", "replicas": 2}]));
    story.placed("h", 1);
    story.is_wrong("queue p holds 10 of 9 nvidia.com/gpu at revision 4");
}

#[test]
fn a_record_says_how_much_an_elastic_job_has_whose_pods_differ() {
    let mut job = gang("g", "p", 5);
    job["metadata"]["annotations"]["muster.io/elastic"] = json!("true");
    let mut story = Story::default();
    story.subject.job(&job).unwrap();
    story.subject.capability("p", 4);
    let tell = |story: &mut Story, gpus: &str| {
        let shares = json!([{"name": "m1", "charge": {CLASS: {"nvidia.com/gpu": gpus}}}]);
        story.binding("g", |object| {
            place(object, "g", 1, shares);
            object["spec"]["clusters"] = json!([{"name": "m1"}]);
        });
    };
    tell(&mut story, "4");
    story.is_fine();
    tell(&mut story, "6");
    story.is_wrong("queue p holds 6 of 4 nvidia.com/gpu at revision 2");
}
