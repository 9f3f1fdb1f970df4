//! Clusters that an operator has declared out of service.

use super::*;
use engine::matching::{Taint, TaintEffect};

impl Stage {
    /// The member `m1` with `taint`; `why` says why it is not usable.
    pub(super) fn member(&mut self, taint: Option<&str>, why: &str) {
        let taint = taint.map(|key| Taint {
            key: key.to_owned(),
            value: String::new(),
            effect: TaintEffect::NoExecute,
        });
        let [cluster, _] = member_facts();
        let Event::ClusterUpserted(cluster) = cluster else {
            panic!("the first is the cluster");
        };
        let cluster = ClusterFact {
            taints: taint.into_iter().collect(),
            usable: why.is_empty(),
            unusable_because: why.to_owned(),
            ..cluster
        };
        let fact = MemberEvent::Fact(Event::ClusterUpserted(cluster));
        self.take(Input::Member(fact));
    }

    /// Karmada has deleted the job's Work, which stays until its member answers.
    fn work_deleting(&mut self, name: &str) {
        let mut metadata = work_metadata(name, &format!("{name}-id"));
        metadata["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        metadata["finalizers"] = json!([names::EXECUTION_FINALIZER]);
        let work = in_m1(name, json!({ "metadata": metadata }));
        self.api.put(&work_path(name), work.clone());
        self.take(Input::Work(Delta::Upserted(ReadWork::of(read(work)))));
    }
}

/// A job of three pods that runs in `m1`, and a pending job that waits for its quota.
async fn lost() -> Stage {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    stage
}

#[tokio::test(start_paused = true)]
async fn deleted_works_in_a_cluster_out_of_service_no_longer_count() {
    let mut stage = lost().await;
    stage.member(Some(names::OUT_OF_SERVICE_ANNOTATION), "it does not answer");
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.charged(), "3", "Karmada has not deleted its Work yet");
    stage.work_deleting("a");
    stage.rest_later(&["a"], 2_000).await;
    assert_eq!(stage.charged(), "0");
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.state("a"), Some(JobState::Queued));
}

#[tokio::test(start_paused = true)]
async fn deleted_works_in_a_drained_cluster_count() {
    let mut stage = lost().await;
    stage.member(Some(names::DRAIN_ANNOTATION), "it does not answer");
    stage.rest(&["a"]).await;
    stage.work_deleting("a");
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.charged(), "3");
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_placed_where_an_earlier_one_is_left() {
    let mut stage = lost().await;
    stage.member(Some(names::OUT_OF_SERVICE_ANNOTATION), "it does not answer");
    stage.rest(&["a"]).await;
    stage.work_deleting("a");
    stage.rest_later(&["a"], 2_000).await;
    assert_eq!(stage.charged(), "0");
    // The cluster is back, with its workloads.
    stage.member(None, "");
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    stage.work("a", false);
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 3 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_job_goes_while_its_cluster_is_out_of_service() {
    let mut stage = lost().await;
    stage.member(Some(names::OUT_OF_SERVICE_ANNOTATION), "it does not answer");
    stage.rest(&["a"]).await;
    stage.work_deleting("a");
    stage.change(
        "a",
        json!({"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}}),
    );
    stage.rest_later(&["a"], 2_000).await;
    assert_eq!(stage.api.get(&path("a")), None);
    assert_eq!(stage.charged(), "0");
}
