#![allow(clippy::unwrap_used)]

use super::*;
use facts::ClusterName;
use runtime::testing::{FakeApi, Fault};

const SERVICE: &str = "/api/v1/namespaces/team/services/muster-a-0";
const MCS: &str =
    "/apis/networking.karmada.io/v1alpha1/namespaces/team/multiclusterservices/muster-a-0";

fn binding() -> ResourceBinding {
    let metadata = json!({"namespace": "team", "name": "a-job", "uid": "b-uid"});
    serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
}

fn first() -> PodService {
    PodService {
        name: "muster-a-0".to_owned(),
        provider: ClusterName::new("gpu-a"),
        consumers: vec![ClusterName::new("gpu-b"), ClusterName::new("gpu-c")],
        selector: [("index".to_owned(), "0".to_owned())].into(),
    }
}

/// Adds the server's record of which manager applied it.
fn applied(api: &FakeApi) {
    let managed = json!([{"manager": MANAGER, "operation": "Apply"}]);
    for path in [SERVICE, MCS] {
        api.merge(path, &json!({"metadata": {"managedFields": managed}}));
    }
}

fn verbs(api: &FakeApi) -> Vec<String> {
    let writes = api.requests().into_iter();
    let writes = writes.filter(|request| request.verb != "GET");
    writes
        .map(|request| {
            format!(
                "{} {}",
                request.verb,
                request.path.rsplit('/').nth(1).unwrap()
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_service_is_written_for_karmada_and_owned_by_its_binding() {
    let api = FakeApi::new();
    let binding = binding();
    let services = Services::of(api.client(), &binding);
    services.apply(Attempt(2), &[first()]).await.unwrap();
    assert_eq!(
        verbs(&api),
        ["APPLY services", "APPLY multiclusterservices"]
    );
    let (service, mcs) = (api.get(SERVICE).unwrap(), api.get(MCS).unwrap());
    let owner = json!([{
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "name": "a-job", "uid": "b-uid",
    }]);
    for object in [&service, &mcs] {
        assert_eq!(object["metadata"]["ownerReferences"], owner);
        assert_eq!(object["metadata"]["labels"]["muster.io/job-uid"], "b-uid");
        assert_eq!(object["metadata"]["labels"]["muster.io/attempt"], "2");
    }
    // No policy may claim it before Karmada's controller does.
    assert_eq!(
        service["metadata"]["labels"]["resourcetemplate.karmada.io/claimed-by"],
        "MultiClusterService"
    );
    assert_eq!(
        service["spec"],
        json!({"clusterIP": "None", "selector": {"index": "0"}, "publishNotReadyAddresses": true})
    );
    assert_eq!(
        mcs["spec"],
        json!({
            "types": ["CrossCluster"],
            "providerClusters": [{"name": "gpu-a"}],
            "consumerClusters": [{"name": "gpu-b"}, {"name": "gpu-c"}],
        })
    );
    applied(&api);
    let before = (api.get(SERVICE), api.get(MCS));
    services.apply(Attempt(2), &[first()]).await.unwrap();
    assert_eq!(
        (api.get(SERVICE), api.get(MCS)),
        before,
        "nothing new to say"
    );
}

#[tokio::test(start_paused = true)]
async fn objects_of_another_manager_stay_unchanged() {
    let binding = binding();
    for path in [SERVICE, MCS] {
        let api = FakeApi::new();
        api.put(path, json!({"spec": {"mine": true}}));
        let services = Services::of(api.client(), &binding);
        let refused = services.apply(Attempt(1), &[first()]).await.unwrap_err();
        let kind = if path == MCS {
            "MultiClusterService"
        } else {
            "Service"
        };
        assert_eq!(
            refused.to_string(),
            format!(
                "{kind} muster-a-0, which its pods need to be found, exists already and is not Muster's"
            )
        );
        services.clear(Attempt(9)).await;
        assert_eq!(api.get(path).unwrap()["spec"], json!({"mine": true}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_without_the_kind_gets_an_error_with_the_feature_gate() {
    let api = FakeApi::new();
    let of_mcs = |request: &runtime::testing::Recorded| request.path == MCS;
    let unknown = Fault::Status(404, "the server could not find the requested resource");
    api.fault(usize::MAX, unknown, of_mcs);
    let binding = binding();
    let services = Services::of(api.client(), &binding);
    let refused = services.apply(Attempt(1), &[first()]).await.unwrap_err();
    let words = refused.to_string();
    for part in ["no MultiClusterService", "{service}", "feature gate"] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[tokio::test(start_paused = true)]
async fn services_of_ended_attempts_are_deleted_and_later_ones_stay() {
    let api = FakeApi::new();
    let binding = binding();
    let services = Services::of(api.client(), &binding);
    services.apply(Attempt(2), &[first()]).await.unwrap();
    applied(&api);
    services.clear(Attempt(1)).await;
    assert!(api.get(SERVICE).is_some() && api.get(MCS).is_some());
    // A job that was submitted again has a binding of its own.
    let mut other = binding.clone();
    other.metadata.uid = Some("other".to_owned());
    Services::of(api.client(), &other).clear(Attempt(9)).await;
    assert!(api.get(SERVICE).is_some() && api.get(MCS).is_some());
    services.clear(Attempt(2)).await;
    assert!(api.get(SERVICE).is_none() && api.get(MCS).is_none());
    let written = verbs(&api);
    assert_eq!(
        written[2..],
        ["DELETE services", "DELETE multiclusterservices"]
    );
    services.clear(Attempt(2)).await;
}

#[tokio::test(start_paused = true)]
async fn services_that_karmada_does_not_propagate_say_why() {
    let api = FakeApi::new();
    let binding = binding();
    let services = Services::of(api.client(), &binding);
    let problem = async || services.problem(&[first()]).await.unwrap();
    let gone = problem().await.unwrap();
    assert_eq!(gone, "multiclusterservice muster-a-0: it is gone");
    services.apply(Attempt(1), &[first()]).await.unwrap();
    let off = problem().await.unwrap();
    assert!(off.contains("feature gate MultiClusterService"), "{off}");
    let condition = |status: &str, message: &str| {
        let condition = json!({"type": "ServiceApplied", "status": status, "message": message});
        api.merge(MCS, &json!({"status": {"conditions": [condition]}}));
    };
    condition("False", "no such cluster");
    let failed = problem().await.unwrap();
    assert!(failed.ends_with("no such cluster"), "{failed}");
    condition("True", "");
    assert_eq!(problem().await, None);
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_a_deleted_service_are_removed() {
    let api = FakeApi::new();
    let work = |path: &str, namespace: &str, of: &str| {
        let path = format!("/apis/work.karmada.io/v1alpha1/namespaces/{path}");
        let labels = json!({(MCS_NAMESPACE): namespace, (MCS_NAME): of});
        api.put(&path, json!({"metadata": {"labels": labels}}));
        path
    };
    let left = work("karmada-es-gpu-a/works/left", "team", "muster-gone");
    let kept = [
        work("karmada-es-gpu-a/works/kept", "team", "muster-a-0"),
        work("karmada-es-gpu-a/works/elsewhere", "other", "muster-gone"),
        work("karmada-es-gpu-a/works/theirs", "team", "somebodys"),
    ];
    api.put(MCS, json!({}));
    sweep(&api.client(), "team").await.unwrap();
    assert!(api.get(&left).is_none());
    for path in kept {
        assert!(api.get(&path).is_some(), "{path}");
    }
}
