//! Quotas of queues: of every resource, with parents, by pools, and over time.

use serde_json::{Value, json};

use super::{CLASS, Story, gang};

fn capability(resource: &str, amount: impl Into<Value>) -> Value {
    json!({"capability": {resource: amount.into()}})
}

/// Two jobs of two pods with 2 GPUs each in the queues `left` and `right`, below `top`, and a third
/// job in `right`.
fn tree() -> Story {
    let mut story = Story::default();
    for (job, queue) in [("l", "left"), ("r", "right"), ("s", "right")] {
        story.subject.job(&gang(job, queue, 2)).unwrap();
    }
    story
}

#[test]
fn every_resource_is_bounded() {
    let tell = |resource: &str, amount: &str| {
        let mut story = Story::default();
        story.subject.capability("q", 100);
        story.queue("q", capability(resource, amount));
        story.after(9).placed("a", 1).placed("b", 1);
        story
    };
    tell("cpu", "2").is_fine();
    tell("cpu", "1999m").is_wrong("queue q holds 2 of 1.999 cpu at revision 3");
    tell("nvidia.com/gpu", "16").is_fine();
    tell("nvidia.com/gpu", "15").is_wrong("queue q holds 16 of 15 nvidia.com/gpu at revision 3");
    tell("memory", "0").is_fine();
    // An invalid quota admits nothing.
    let violations = tell("cpu", "-1").report().violations;
    assert_eq!(violations.len(), 2, "{violations:?}");
}

#[test]
fn what_is_below_a_queue_counts_in_it() {
    let tell = |gpus: u64, parent: &str| {
        let mut story = tree();
        story.queue("all", capability("nvidia.com/gpu", gpus));
        story.queue("top", json!({"parent": "all"}));
        story.queue("left", json!({"parent": "top"}));
        story.queue("right", json!({"parent": parent}));
        story.after(9).placed("l", 1).placed("r", 1);
        story
    };
    tell(8, "top").is_fine();
    assert_eq!(tell(8, "top").report().peak("all"), 8);
    tell(7, "top").is_wrong("queue all holds 8 of 7 nvidia.com/gpu at revision 6");
    tell(7, "elsewhere").is_fine();
    // Queues in a cycle count against each other.
    let mut story = tree();
    story.queue("left", json!({"parent": "right"}));
    story.queue("right", json!({"parent": "left"}));
    story.placed("l", 1).is_fine();
}

#[test]
fn pools_are_bounded_by_class_and_by_cluster() {
    let tell = |class: &str, clusters: Value, gpus: u64| {
        let resources =
            json!([{"name": "nvidia.com/gpu", "deserved": 1, "capability": gpus.to_string()}]);
        let mut pool = json!({"class": class, "resources": resources});
        if clusters.is_array() {
            pool["clusters"] = clusters;
        }
        let mut story = tree();
        story.policy("right", json!([pool]));
        story.after(9).placed("r", 1);
        story.placed_on("s", 1, json!([{"name": "m2"}]));
        story
    };
    tell(CLASS, Value::Null, 8).is_fine();
    tell(CLASS, Value::Null, 7).is_wrong("queue right in h100 holds 8 of 7 nvidia.com/gpu");
    tell("a100", Value::Null, 7).is_fine();
    tell(CLASS, json!(["m1"]), 4).is_fine();
    tell(CLASS, json!(["m1", "m2"]), 8).is_fine();
    let both = r#"queue right in h100 of {"m1", "m2"} holds 8 of 7 nvidia.com/gpu"#;
    tell(CLASS, json!(["m1", "m2"]), 7).is_wrong(both);
    let second = r#"queue right in h100 of {"m2"} holds 4 of 3 nvidia.com/gpu at revision 3"#;
    tell(CLASS, json!(["m2"]), 3).is_wrong(second);
}

#[test]
fn a_lowered_bound_holds_for_what_is_released_after_it() {
    let gpus = |gpus: u64| capability("nvidia.com/gpu", gpus);
    let tell = |seconds: i64| {
        let mut story = tree();
        story.queue("right", gpus(8)).placed("r", 1);
        story.queue("right", gpus(4)).after(seconds);
        story
    };
    // A running job may stay, also when its binding is written.
    let mut story = tell(9);
    story.queue("right", gpus(3)).after(9).placed("r", 1);
    story.is_fine();
    tell(9)
        .placed("s", 1)
        .is_wrong("queue right holds 8 of 4 nvidia.com/gpu at revision 4");
    // This admission was in progress when the quota was lowered.
    tell(0).placed("s", 1).is_fine();
    tell(2)
        .placed("s", 1)
        .is_wrong("queue right holds 8 of 4 nvidia.com/gpu at revision 4");
    // A raised quota holds at once; a removed quota no longer does.
    let mut story = tell(9);
    story.queue("right", gpus(8)).placed("s", 1).is_fine();
    let mut story = tell(9);
    story.queue("right", json!({})).placed("s", 1).is_fine();
    // The quota of a new queue holds from the beginning, a quota that is new on a queue after a
    // moment.
    let mut story = tree();
    story.queue("right", gpus(3)).placed("r", 1);
    story.is_wrong("queue right holds 4 of 3 nvidia.com/gpu at revision 2");
    let mut story = tree();
    story
        .queue("right", json!({}))
        .queue("right", gpus(3))
        .placed("r", 1);
    story.is_fine();
    story.after(2).placed("s", 1);
    story.is_wrong("queue right holds 8 of 3 nvidia.com/gpu at revision 4");
}
