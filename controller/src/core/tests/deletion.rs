//! Deletion in every state: the charge ends when nothing of the job is left, not before.

use super::*;
use crate::messages::job_answer::JobAnswer;

pub(super) fn deleted() -> Value {
    json!({"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}})
}

#[tokio::test(start_paused = true)]
async fn a_pending_job_is_deleted_at_once() {
    let mut stage = stage().await;
    stage.job("big", 5);
    stage.rest(&["big"]).await;
    stage.change("big", deleted());
    stage.rest(&["big"]).await;
    assert_eq!(stage.api.get(&path("big")), None);
    assert_eq!(stage.state("big"), None);
}

#[tokio::test(start_paused = true)]
async fn a_job_deleted_while_prepared_is_never_placed() {
    let mut stage = stage().await;
    stage.job("a", 2);
    let now = stage.now();
    stage.core.pass(now);
    assert_eq!(stage.charged(), "2");
    let prepared = loop {
        match stage.inputs.recv().await.unwrap() {
            prepared @ Input::Answer(_, JobAnswer::Prepared { .. }) => break prepared,
            other => stage.take(other),
        }
    };
    stage.change("a", deleted());
    stage.take(prepared);
    stage.rest(&["a"]).await;
    assert_eq!(stage.api.get(&path("a")), None);
    assert_eq!(stage.charged(), "0");
    let places = |patch: &Value| !patch["spec"]["clusters"].is_null();
    assert!(!stage.patches("a").iter().any(places));
}

#[tokio::test(start_paused = true)]
async fn a_job_deleted_during_its_placement_write_loses_nothing() {
    let mut stage = stage().await;
    stage.job("a", 2);
    // The server has the deletion before the placement arrives.
    stage.api.merge(&path("a"), &deleted());
    stage.settle().await;
    stage.rest(&["a"]).await;
    assert_eq!(stage.api.get(&path("a")), None);
    assert_eq!(stage.charged(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_job_deleted_while_placed_is_charged_until_its_works_are_gone() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.change("a", deleted());
    stage.job("b", 3);
    stage.rest_later(&["a", "b"], 60_000).await;
    assert_eq!(stage.state("a"), Some(JobState::Ending));
    assert_eq!(stage.shown("b"), "no record, gated []");
    stage.work("a", false);
    stage.rest_later(&["a", "b"], 2_000).await;
    assert_eq!(stage.api.get(&path("a")), None);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_work_not_yet_in_the_watch_keeps_the_charge() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work_on_server("a", true);
    stage.change("a", deleted());
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.charged(), "3");
    stage.work_on_server("a", false);
    stage.rest_later(&["a"], 2_000).await;
    assert_eq!(stage.api.get(&path("a")), None);
}

#[tokio::test(start_paused = true)]
async fn a_job_deleted_while_ending_goes_with_its_works() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.template("a", 3, json!({"spec": {"suspend": true}}));
    stage.rest(&["a"]).await;
    stage.change("a", deleted());
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "3");
    stage.work("a", false);
    stage.rest(&["a"]).await;
    assert_eq!(stage.api.get(&path("a")), None);
    assert_eq!(stage.charged(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_job_recreated_under_the_same_name_starts_without_state() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.change("a", deleted());
    stage.rest(&["a"]).await;
    let again = json!({"metadata": {"uid": "a-uid-2"}});
    stage.template("a", 2, again);
    let binding = json!({
        "metadata": {"labels": {names::BINDING_PERMANENT_ID: "a-id-2"}},
        "spec": {"resource": {"uid": "a-uid-2"}},
    });
    stage.binding("a", 2, binding);
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "2");
}

#[tokio::test(start_paused = true)]
async fn no_state_is_kept_of_deleted_jobs() {
    let mut stage = stage().await;
    for name in ["a", "b"] {
        stage.job(name, 2);
        stage.rest(&[name]).await;
        stage.change(name, deleted());
        // The watch shows the end before the answer to the last write comes in.
        let now = stage.now();
        stage.core.pass(now);
        let mut answers = Vec::new();
        while let Ok(Some(input)) =
            tokio::time::timeout(Duration::from_millis(50), stage.inputs.recv()).await
        {
            match input {
                answer @ Input::Answer(_, JobAnswer::Written(_)) => answers.push(answer),
                other => stage.take(other),
            }
            let now = stage.now();
            stage.core.pass(now);
        }
        stage.echo(name);
        let now = stage.now();
        stage.core.pass(now);
        answers.into_iter().for_each(|answer| stage.take(answer));
        stage.settle().await;
    }
    assert!(
        stage.core.reconciler.in_flight.is_empty(),
        "{:?}",
        stage.core.reconciler.in_flight
    );
    assert!(stage.core.reconciler.jobs.last_facts.is_empty());
    assert!(stage.core.reconciler.mirror.bindings().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_job_recreated_before_the_first_was_checked_can_be_deleted() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    // A check of the first job's Works is under way when the second job takes its place, so that no pass sees
    // the name unused.
    stage.api.merge(&path("a"), &deleted());
    stage.echo("a");
    let now = stage.now();
    stage.core.pass(now);
    stage.template("a", 3, json!({"metadata": {"uid": "a-uid-2"}}));
    let second = json!({
        "metadata": {"uid": "second", "labels": {names::BINDING_PERMANENT_ID: "a-id-2"}},
        "spec": {"resource": {"uid": "a-uid-2"}},
    });
    stage.binding("a", 3, second);
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
    stage.change("a", deleted());
    stage.rest(&["a"]).await;
    assert_eq!(stage.api.get(&path("a")), None);
    assert_eq!(stage.charged(), "0");
}

#[tokio::test(start_paused = true)]
async fn works_that_karmada_has_left_behind_are_removed() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    // Karmada did not see the Work when it removed those of the binding, and left it behind.
    stage.change("a", deleted());
    stage.rest_later(&["a"], 2_000).await;
    assert!(stage.api.get(&work_path("a")).is_some(), "not at once");
    stage.rest_later(&["a"], 30_000).await;
    assert_eq!(stage.api.get(&work_path("a")), None);
    stage.work("a", false);
    stage.rest_later(&["a"], 2_000).await;
    assert_eq!(stage.api.get(&path("a")), None);
    assert_eq!(stage.charged(), "0");
}

impl Stage {
    /// Takes the pending inputs, echoes what they wrote, and makes a pass.
    async fn step(&mut self) {
        let mut batch = Vec::new();
        let wait = self.inputs.recv_many(&mut batch, 1_024);
        // No input may come before the next check is due.
        let _ = tokio::time::timeout(Duration::from_millis(100), wait).await;
        for input in batch {
            let written = match &input {
                Input::Answer(_, JobAnswer::Written(outcome)) if outcome.result.is_ok() => {
                    Some(outcome.key.name.to_string())
                }
                _ => None,
            };
            self.take(input);
            if let Some(name) = written {
                self.echo(&name);
            }
        }
        let now = self.now();
        self.core.pass(now);
    }
}

/// The time of deleting a namespace of 10,000 jobs, on a clock that runs only while nothing else does: one read for
/// each hundred jobs and one write for each job.
#[tokio::test(start_paused = true)]
async fn ten_thousand_deleted_jobs_give_their_quota_back_within_half_a_minute() {
    const JOBS: usize = 10_000;
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    let names: Vec<String> = (0..JOBS).map(|job| format!("j{job}")).collect();
    for name in &names {
        let annotations = json!({"annotations": left(name, RecordState::Admitted, 1, 1)});
        let mut metadata = deleted();
        merge(&mut metadata["metadata"], annotations);
        stage.binding(name, 1, metadata);
    }
    stage.list_all();
    while stage.charged() == "0" {
        stage.step().await;
    }
    let started = tokio::time::Instant::now();
    assert_eq!(stage.charged(), JOBS.to_string());
    while stage.charged() != "0" && started.elapsed() < Duration::from_secs(60) {
        stage.step().await;
    }
    assert_eq!(stage.charged(), "0");
    let took = started.elapsed();
    println!(
        "{JOBS} jobs: {took:?}, {} reads",
        stage.api.requests_of("GET").len()
    );
    assert!(took < Duration::from_secs(30), "{took:?}");
    let reads = stage.api.requests_of("GET");
    let works = reads.iter().filter(|read| read.path.ends_with("/works"));
    assert!(works.count() <= JOBS / 50);
}

/// The garbage collector has taken the deleted object off the owners of its binding.
#[tokio::test(start_paused = true)]
async fn the_binding_of_an_orphaned_job_is_deleted_once_its_object_is_gone() {
    let mut stage = stage().await;
    let deletions = |stage: &Stage| {
        let sent = stage.api.requests_of("DELETE").into_iter();
        sent.filter(|request| request.path == path("a")).count()
    };
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.change("a", json!({"metadata": {"ownerReferences": null}}));
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(deletions(&stage), 0, "its object is there");
    let gone = Delta::Gone(object_key("team", "a"));
    stage.take(Input::Template(job_kind(), gone));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 5_000).await;
    assert_eq!(deletions(&stage), 0, "the watch may lag");
    stage.rest_later(&["a"], 6_000).await;
    assert_eq!(deletions(&stage), 1);
}

#[tokio::test(start_paused = true)]
async fn a_podgroup_without_owner_and_binding_is_deleted() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    let podgroup = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/a";
    let deletions = |stage: &Stage| {
        let sent = stage.api.requests_of("DELETE").into_iter();
        sent.filter(|request| request.path == podgroup).count()
    };
    let orphan = |owners: Value| {
        let managed =
            json!([{"manager": binding_writer::overrides::MANAGER, "operation": "Apply"}]);
        let metadata = json!({
            "name": "a", "namespace": "team", "ownerReferences": owners, "managedFields": managed,
        });
        json!({"metadata": metadata, "spec": {}})
    };
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "a-uid"}]);
    stage.api.put(podgroup, orphan(owner.clone()));
    stage.take(Input::PodGroup(Delta::Upserted(read(orphan(Value::Null)))));
    stage.rest_later(&["a"], 1_000).await;
    assert_eq!(deletions(&stage), 0, "its binding is there");
    stage.api.remove(&path("a"));
    stage.echo("a");
    stage.rest_later(&["a"], 1_000).await;
    assert_eq!(deletions(&stage), 1);
    stage.take(Input::PodGroup(Delta::Upserted(read(orphan(owner)))));
    stage.rest_later(&["a"], 1_000).await;
    assert_eq!(deletions(&stage), 1, "the garbage collector sees to it");
}
