//! Jobs over clusters whose pods find each other by Services.

use super::*;

const SERVICES: &str = "/api/v1/namespaces/team/services";
const CARRIED: &str = "/apis/networking.karmada.io/v1alpha1/namespaces/team/multiclusterservices";

/// A controller with an indexed Job of four pods, two in each of two clusters; a Service leads to the first
/// pod.
async fn over_two() -> Stage {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    let indexed = json!({
        "metadata": {"annotations": {"muster.io/split": "Allowed"}},
        "spec": {"completionMode": "Indexed"},
    });
    stage.template("a", 4, indexed.clone());
    let mut template = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "a", "namespace": "team", "uid": "a-uid"},
        "spec": {"parallelism": 4, "completions": 4, "template": {"spec": {"containers": [{"name": "c"}]}}},
    });
    merge(&mut template, indexed);
    stage
        .api
        .put("/apis/batch/v1/namespaces/team/jobs/a", template);
    let share = |name: &str| {
        json!({
            "name": name, "pods": [{"role": "main", "count": 2}],
            "charge": {"cpu": {"cpu": "2", "pods": "2"}},
        })
    };
    let record = json!({
        "templateUID": "a-uid", "attempt": 2, "state": "Admitted", "queue": "q",
        "clusters": [share("m1"), share("m2")], "parts": "Dispatched",
        "address": "{service}.team.svc", "time": jiff::Timestamp::now().to_string(),
    });
    let clusters = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 2}]);
    let placed = json!({
        "metadata": {"annotations": {names::ADMISSION_ANNOTATION: record.to_string()}},
        "spec": {"suspension": {"scheduling": false}, "clusters": clusters},
    });
    stage.binding("a", 4, placed);
    stage.list_all();
    for fact in member_facts() {
        let fact = match fact {
            Event::ClusterUpserted(mut cluster) => {
                cluster.name = ClusterName::new("m2");
                Event::ClusterUpserted(cluster)
            }
            Event::NodeUpserted(mut node) => {
                node.cluster = ClusterName::new("m2");
                Event::NodeUpserted(node)
            }
            other => other,
        };
        stage.member_shows(fact);
    }
    stage.rest(&["a"]).await;
    stage
}

impl Stage {
    /// Returns what was applied under a collection, by path.
    fn applied_under(&self, collection: &str) -> Vec<String> {
        let applied = self.api.requests_of("APPLY").into_iter();
        applied
            .map(|request| request.path)
            .filter(|path| path.starts_with(collection))
            .collect()
    }

    fn warnings_of_pods_apart(&self) -> Vec<String> {
        let posted = self.api.requests_of("POST").into_iter();
        posted
            .filter(|request| request.body["reason"] == "PodsApart")
            .map(|request| request.body["note"].as_str().unwrap().to_owned())
            .collect()
    }

    fn looks(&self) -> usize {
        let reads = self.api.requests_of("GET");
        let mut reads: Vec<_> = reads.iter().map(|request| &request.path).collect();
        reads.retain(|path| path.starts_with(CARRIED));
        reads.len()
    }
}

#[tokio::test(start_paused = true)]
async fn services_that_karmada_does_not_propagate_are_reported() {
    let mut stage = over_two().await;
    assert_eq!(stage.looks(), 0, "Karmada has its time");
    stage.rest_later(&["a"], 31_000).await;
    // Another user had removed them.
    let (services, carried) = (stage.applied_under(SERVICES), stage.applied_under(CARRIED));
    assert_eq!((services.len(), carried.len()), (1, 1));
    let warnings = stage.warnings_of_pods_apart();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for words in ["feature gate MultiClusterService", "karmada-agent"] {
        assert!(warnings[0].contains(words), "{words}: {warnings:?}");
    }
    // The job runs on.
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1", "m2"]"#);

    let managed = json!([{"manager": binding_writer::overrides::MANAGER, "operation": "Apply"}]);
    let managed = json!({"metadata": {"managedFields": managed}});
    for path in [&services[0], &carried[0]] {
        stage.api.merge(path, &managed);
    }
    let taken_up = json!([{"type": "ServiceApplied", "status": "True"}]);
    let status = json!({"status": {"conditions": taken_up}});
    stage.api.merge(&carried[0], &status);
    stage.rest_later(&["a"], 61_000).await;
    let looks = stage.looks();
    stage.rest_later(&["a"], 61_000).await;
    assert_eq!(stage.looks(), looks, "nothing more to look at");
    assert_eq!(stage.warnings_of_pods_apart().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_of_another_manager_is_reported_and_kept() {
    let mut stage = over_two().await;
    stage.rest_later(&["a"], 31_000).await;
    let path = stage.applied_under(SERVICES).remove(0);
    stage.api.remove(&path);
    stage.api.put(&path, json!({"spec": {"mine": true}}));
    stage.rest_later(&["a"], 61_000).await;
    let warnings = stage.warnings_of_pods_apart();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[1].contains("is not Muster's"), "{warnings:?}");
    let kept = stage.api.get(&path).unwrap();
    assert_eq!(kept["spec"], json!({"mine": true}));
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1", "m2"]"#);
}
