//! Works that pull images on the nodes that are reserved for a job.

use super::*;

const TEMPLATE: &str = "/apis/batch/v1/namespaces/team/jobs/next";

impl Stage {
    /// A job uses the whole node, and another with an image waits for it.
    async fn waiting_job(&mut self, pre_pull: Option<&str>) {
        self.queue("16");
        let policy = json!({
            "metadata": {"name": "q"}, "spec": {"placement": {"prePull": pre_pull}},
        });
        self.take(Input::Policy(Delta::Upserted(read(policy))));
        self.job("old", 8);
        self.rest(&["old"]).await;
        let requests = json!({"requests": {"cpu": "1"}});
        let containers = json!([{"name": "main", "image": "r.io/train:1", "resources": requests}]);
        let change = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        self.template("next", 8, change.clone());
        let mut template = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "next", "namespace": "team", "uid": "next-uid"},
        });
        merge(&mut template, change);
        self.api.put(TEMPLATE, template);
        self.binding("next", 8, json!({}));
        self.rest(&["old", "next"]).await;
        // What is reserved is compared every second.
        self.ahead_ms += 2_000;
        self.rest(&["old", "next"]).await;
        assert_eq!(self.shown("next"), "no record, gated []", "it waits");
    }

    fn pull(&self) -> Option<Value> {
        self.api.get(&work_path("muster-pre-pull-next-uid"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserved_node_pulls_the_image_of_a_waiting_job() {
    let mut stage = stage().await;
    stage.waiting_job(Some("Reserved")).await;
    let work = stage.pull().expect("a Work pulls its image");
    assert_eq!(work["metadata"]["labels"]["muster.io/pre-pull"], "next-uid");
    // Else the Job would stay in the member.
    let finalizers = &work["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!(["karmada.io/execution-controller"]));
    let job = &work["spec"]["workload"]["manifests"][0];
    assert_eq!(job["metadata"]["namespace"], "team");
    assert_eq!(job["spec"]["completions"], 1);
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "r.io/train:1");
    assert!(job.to_string().contains(r#""n1""#), "{job}");
}

#[tokio::test(start_paused = true)]
async fn without_the_policy_nothing_is_pulled() {
    for pre_pull in [None, Some("Never")] {
        let mut stage = stage().await;
        stage.waiting_job(pre_pull).await;
        assert_eq!(stage.pull(), None, "{pre_pull:?}");
    }
}
