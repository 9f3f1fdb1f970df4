//! Jobs that the control plane or a member refuses.

use super::*;
use engine::Reason;
use runtime::testing::Fault;

impl Stage {
    /// The API server answers the next placements so.
    fn refuse_placements(&self, times: usize, code: u16, message: &'static str) {
        let places = |request: &Recorded| {
            let clusters = &request.body["spec"]["clusters"];
            request.verb == "PATCH" && clusters.as_array().is_some_and(|all| !all.is_empty())
        };
        self.api.fault(times, Fault::Status(code, message), places);
    }

    /// How often it was tried to place the job.
    fn placements(&self, name: &str) -> usize {
        let patches = self.patches(name).into_iter();
        patches
            .filter(|patch| patch["spec"]["clusters"][0].is_object())
            .count()
    }

    fn held(&self, name: &str) -> (Reason, String) {
        let key = JobKey::new("team", name);
        let explained = self.core.reconciler.engine.explain(&key).unwrap();
        (explained.reason, explained.message)
    }

    /// The member says of the Work of job `a` what it applied, or why not.
    fn applies(&mut self, refused: Option<&str>) {
        let status = if refused.is_some() { "False" } else { "True" };
        let condition =
            json!({"type": "Applied", "status": status, "message": refused.unwrap_or("ok")});
        self.work_on_server("a", false);
        self.work_on_server("a", true);
        self.api.merge(
            &work_path("a"),
            &json!({"status": {"conditions": [condition]}}),
        );
        let work = self.api.get(&work_path("a")).unwrap();
        self.take(Input::Work(Delta::Upserted(ReadWork::of(read(work)))));
    }
}

fn selects(cluster: &str) -> Value {
    json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": [cluster]}}}})
}

const TOO_LONG: &str = "metadata.annotations: Too long: may not be more than 262144 bytes";

#[tokio::test(start_paused = true)]
async fn a_job_whose_placement_is_refused_waits_for_another_one() {
    let mut stage = stage().await;
    stage.refuse_placements(usize::MAX, 422, TOO_LONG);
    stage.template("a", 3, json!({}));
    stage.binding("a", 3, selects("m1"));
    stage.rest(&["a"]).await;
    for _ in 0..6 {
        stage.rest_later(&["a"], 20 * 60_000).await;
    }
    assert_eq!(stage.placements("a"), 1);
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.charged(), "0");
    let (reason, message) = stage.held("a");
    assert_eq!(reason, Reason::PlacementRefused);
    assert_eq!(
        message,
        format!(
            "the API server refused the placement (422): {TOO_LONG}; it is not tried again before its template or the \
             placement of its policy changes"
        )
    );
    // The next leader knows it from the record.
    let before = stage.get("a");
    let mut next = super::stage().await;
    next.template("a", 3, json!({}));
    next.earlier_binding("a", 3, before);
    next.rest_later(&["a"], 60 * 60_000).await;
    assert_eq!(next.placements("a"), 0);
    next.change(
        "a",
        json!({"spec": {"placement": {"clusterAffinity": {"exclude": ["m2"]}}}}),
    );
    next.rest_later(&["a"], 1_000).await;
    assert_eq!(next.shown("a"), r#"Admitted 2 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_placement_is_refused_waits_for_another_template() {
    let generation = |number: i64| json!({"metadata": {"generation": number}});
    let mut stage = stage().await;
    stage.refuse_placements(1, 422, TOO_LONG);
    stage.template("a", 3, generation(1));
    stage.binding("a", 3, json!({}));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    stage.template("a", 2, generation(2));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_job_is_held_although_nothing_of_it_can_be_written() {
    let mut stage = stage().await;
    let of_it = |request: &Recorded| request.verb == "PATCH" && request.path == path("a");
    stage.api.fault(usize::MAX, Fault::Status(422, "no"), of_it);
    stage.job("a", 3);
    for _ in 0..6 {
        stage.rest_later(&["a"], 20 * 60_000).await;
    }
    assert_eq!(stage.placements("a"), 1);
    assert!(
        stage.patches("a").len() <= 3,
        "{}",
        stage.patches("a").len()
    );
    assert_eq!(stage.held("a").0, Reason::PlacementRefused);
}

#[tokio::test(start_paused = true)]
async fn a_placement_that_is_forbidden_is_tried_again_after_an_hour() {
    let mut stage = stage().await;
    stage.refuse_placements(1, 403, "exceeded quota: small");
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 50 * 60_000).await;
    assert_eq!(stage.placements("a"), 1);
    let (reason, message) = stage.held("a");
    assert_eq!(reason, Reason::PlacementRefused);
    assert!(
        message.contains("exceeded quota: small") && message.contains(", or at "),
        "{message}"
    );
    stage.rest_later(&["a"], 15 * 60_000).await;
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_not_of_the_job_does_not_hold_it() {
    let rights = r#"resourcebindings "a" is forbidden: User "muster" cannot patch resource "resourcebindings""#;
    let mut stage = stage().await;
    stage.refuse_placements(1, 403, rights);
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_placement_that_is_too_large_is_held_before_it_is_written() {
    let mut stage = stage().await;
    let names: Vec<String> = (0..20_000)
        .map(|n| format!("no-such-cluster-{n}"))
        .collect();
    let exclude = json!({"spec": {"placement": {"clusterAffinity": {"exclude": names}}}});
    stage.template("a", 3, json!({}));
    stage.binding("a", 3, exclude);
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.placements("a"), 0);
    let (reason, message) = stage.held("a");
    assert_eq!(reason, Reason::PlacementRefused);
    assert!(
        message
            .starts_with("spec.placement.clusterAffinity.exclude has 20000 entries; at most 1000"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_whole_job_leaves_a_member_that_refuses_it() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.applies(Some("jobs.batch \"a\" already exists"));
    stage.rest_later(&["a"], 1_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#, "not yet");
    stage.rest_later(&["a"], 3_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(Reason::MemberRefused));
    assert_eq!(
        record.message,
        "m1 refused it: jobs.batch \"a\" already exists"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_passes_or_concerns_a_running_job_ends_nothing() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.applies(Some("the object has been modified"));
    stage.rest_later(&["a"], 2_000).await;
    stage.applies(None);
    stage.rest_later(&["a"], 2_000).await;
    stage.applies(Some("the object has been modified"));
    stage.rest_later(&["a"], 2_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    stage.change("a", reported(json!({"active": 3, "ready": 3})));
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
}

/// A finalizer keeps the template of a job that its owner has deleted.
fn deleted() -> Value {
    json!({"metadata": {
        "deletionTimestamp": "2026-11-21T00:00:00Z", "finalizers": ["example.com/keep"],
    }})
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_deleted_while_it_waits_is_not_started() {
    let mut stage = stage().await;
    stage.job("0-first", 3);
    stage.job("a", 3);
    stage.rest(&["0-first", "a"]).await;
    stage.template("a", 3, deleted());
    let done = json!({"succeeded": 3, "conditions": [{"type": "Complete", "status": "True"}]});
    stage.change("0-first", reported(done));
    stage.rest_later(&["0-first", "a"], 60_000).await;
    assert_eq!(stage.charged(), "0");
    assert_eq!(stage.shown("a"), "no record, gated []");
    assert_eq!(
        stage.held("a"),
        (
            Reason::Deleting,
            "it was deleted and is not started; finalizer example.com/keep keeps its object; submit it again when the \
             object is gone"
                .to_owned()
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_deleted_while_it_runs_goes_on() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.template("a", 3, deleted());
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
}
