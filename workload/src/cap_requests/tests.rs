#![allow(clippy::unwrap_used)]
use super::*;

fn admitted(role: &str, request: &[(&str, &str)]) -> AdmittedRequests {
    let request = Resources::parse(request.iter().copied()).unwrap();
    [(role.to_owned(), request)].into()
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2, "template": {"spec": spec}}})
}

/// The requests of a pod of the capped Deployment, and its spec.
fn capped_pod(spec: Value, most: &[(&str, &str)]) -> (String, Value) {
    let template = deployment(spec);
    let capped = cap_requests(&template, &admitted("main", most));
    let spec = capped["spec"]["template"]["spec"].clone();
    (crate::pod_request(&spec).unwrap().to_string(), spec)
}

#[test]
fn a_container_is_capped_to_its_admitted_requests() {
    let spec = json!({"containers": [{"name": "c", "image": "i", "resources": {
        "requests": {"cpu": "2", "nvidia.com/gpu": "4"}, "limits": {"cpu": 8, "nvidia.com/gpu": 4},
    }}]});
    let (request, spec) = capped_pod(
        spec,
        &[("cpu", "1"), ("nvidia.com/gpu", "1"), ("pods", "1")],
    );
    assert_eq!(request, "cpu 1, nvidia.com/gpu 1, pods 1");
    assert_eq!(
        spec["containers"][0],
        json!({"name": "c", "image": "i", "resources": {
            "requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"cpu": 8, "nvidia.com/gpu": "1"},
        }})
    );
}

#[test]
fn every_place_of_a_request_is_capped() {
    let gpus = |gpus: u32| json!({"limits": {"nvidia.com/gpu": gpus}});
    let cases = [
        json!({"containers": [{"name": "a", "resources": gpus(2)}, {"name": "b", "resources": gpus(2)}]}),
        json!({"containers": [{"name": "a", "resources": gpus(2)}],
            "initContainers": [{"name": "i", "resources": gpus(8)}]}),
        json!({"containers": [{"name": "a", "resources": gpus(2)}],
            "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": gpus(1)},
                {"name": "i", "resources": gpus(2)}]}),
        json!({"containers": [{"name": "a", "resources": gpus(2)}], "overhead": {"nvidia.com/gpu": "1"}}),
    ];
    for spec in cases {
        let (request, capped) = capped_pod(spec, &[("nvidia.com/gpu", "2"), ("pods", "1")]);
        assert_eq!(request, "nvidia.com/gpu 2, pods 1", "{capped}");
    }
    let whole = json!({"containers": [{"name": "a", "resources": {"limits": {"memory": "2Gi"}}}],
        "resources": {"requests": {"memory": "4Gi"}, "limits": {"cpu": 4}}});
    let (request, _) = capped_pod(whole, &[("memory", "1Gi"), ("cpu", "1"), ("pods", "1")]);
    assert_eq!(request, "cpu 1, memory 1Gi, pods 1");
}

#[test]
fn a_resource_that_was_not_admitted_is_removed() {
    let spec = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": 1, "nvidia.com/gpu": 1}}}]});
    let (request, _) = capped_pod(spec, &[("cpu", "1"), ("pods", "1")]);
    assert_eq!(request, "cpu 1, pods 1");
}

#[test]
fn a_template_within_its_admission_is_unchanged() {
    let template = deployment(
        json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "1000m"}}}]}),
    );
    let most = admitted("main", &[("cpu", "1"), ("pods", "1")]);
    assert_eq!(cap_requests(&template, &most), template);
    assert_eq!(cap_requests(&template, &AdmittedRequests::new()), template);
}

#[test]
fn pods_of_every_kind_are_found() {
    let pods = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 4}}}]}});
    let job = json!({"spec": {"parallelism": 1, "template": pods}});
    let kinds = [
        ("batch/v1", "Job", json!({"template": pods}), "main"),
        ("apps/v1", "StatefulSet", json!({"template": pods}), "main"),
        ("apps/v1", "ReplicaSet", json!({"template": pods}), "main"),
        ("v1", "Pod", pods["spec"].clone(), "main"),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"tasks": [{"replicas": 1, "template": pods}]}),
            "default0",
        ),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": pods}}}),
            "worker",
        ),
        (
            "kubeflow.org/v2beta1",
            "MPIJob",
            json!({"mpiReplicaSpecs": {"Worker": {"replicas": 1, "template": pods}}}),
            "worker",
        ),
        (
            "ray.io/v1",
            "RayCluster",
            json!({"headGroupSpec": {"template": pods}}),
            "ray-head",
        ),
        (
            "ray.io/v1",
            "RayJob",
            json!({"rayClusterSpec": {"headGroupSpec": {"template": pods}}}),
            "ray-head",
        ),
        (
            "ray.io/v1",
            "RayCluster",
            json!({"headGroupSpec": {"template": pods},
            "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "template": pods}]}),
            "w",
        ),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            json!({"replicatedJobs": [{"name": "j", "template": job}]}),
            "j",
        ),
    ];
    for (api_version, kind, spec, role) in kinds {
        let template = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        // What the operator adds to workers of a RayCluster was admitted too.
        let added = [("cpu", "200m"), ("memory", "256Mi")];
        let most = admitted(
            role,
            &[added[0], added[1], ("nvidia.com/gpu", "1"), ("pods", "1")],
        );
        let of = |template: &Value| {
            let roles = crate::read_spec(template).unwrap().roles;
            let role = roles.into_iter().find(|asked| asked.name == role).unwrap();
            raised_requests(&[role], &most)
        };
        let want = format!("nvidia.com/gpu of each pod of {role} 1 -> 4");
        assert_eq!(of(&template), vec![want], "{kind}");
        assert_eq!(
            of(&cap_requests(&template, &most)),
            Vec::<String>::new(),
            "{kind} {role}"
        );
    }
}

/// What KubeRay runs before the containers of a worker leaves all that was admitted to them.
#[test]
fn an_added_init_container_takes_nothing_from_the_others() {
    let template = |cpu: &str| {
        let pods = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}});
        let workers = json!([{"groupName": "w", "replicas": 1, "template": pods}]);
        let spec = json!({"headGroupSpec": {"template": pods}, "workerGroupSpecs": workers});
        json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "a"}, "spec": spec})
    };
    let most = admitted("w", &[("cpu", "200m"), ("pods", "1")]);
    let capped = |cpu: &str| {
        let capped = cap_requests(&template(cpu), &most);
        capped["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone()
    };
    assert_eq!(capped("150m"), "150m");
    assert_eq!(capped("300m"), "200m");
    // One that was admitted before the init container was counted keeps its requests.
    let most = admitted("w", &[("cpu", "100m"), ("pods", "1")]);
    assert_eq!(cap_requests(&template("100m"), &most), template("100m"));
}
