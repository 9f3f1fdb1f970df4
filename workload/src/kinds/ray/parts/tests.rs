#![allow(clippy::unwrap_used)]

use super::*;
use crate::kinds::ray::unsplittable::unsplittable;
use crate::parts::tests::{field, shares, variable};
use crate::parts::{RenderedPart, parts};
use crate::rendezvous::Reach;
use crate::testing::yaml;
use facts::{Attempt, Share};

const CLUSTER: &str = "
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: tune, namespace: team, uid: u-1}
spec:
  headGroupSpec:
    enableIngress: true
    serviceType: NodePort
    rayStartParams: {num-cpus: '0'}
    template:
      metadata: {labels: {app: tune}}
      spec:
        nodeName: here
        priorityClassName: high
        securityContext: {runAsUser: 7}
        initContainers: [{name: i}]
        volumes: [{name: v}]
        containers:
          - name: head
            image: ray
            env: [{name: A, value: b}]
            ports: [{name: gcs-server, containerPort: 6379}]
            securityContext: {privileged: false}
            resources: {limits: {cpu: '4', nvidia.com/gpu: 1}, requests: {cpu: '2'}}
          - name: sidecar
  workerGroupSpecs:
    - groupName: gpu
      replicas: 5
      minReplicas: 3
      maxReplicas: 10
      rayStartParams: {num-gpus: '8'}
      template: {spec: {containers: [{name: w}]}}
    - groupName: cpu
      replicas: 1
      minReplicas: 0
      maxReplicas: 2147483647
      template: {spec: {containers: [{name: w, env: [{name: RAY_ADDRESS, value: mine}]}]}}
";

/// The RayJob of that RayCluster, with these additional fields.
fn job(beside: Value) -> Value {
    let mut cluster = yaml(CLUSTER);
    let mut spec =
        json!({"entrypoint": "python tune.py", "rayClusterSpec": cluster["spec"].take()});
    let fields = spec.as_object_mut().unwrap();
    fields.extend(beside.as_object().unwrap().clone());
    json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": cluster["metadata"], "spec": spec})
}

/// The head and its workers are in `a`, and most workers in `b`.
fn uneven() -> Vec<Share> {
    shares(&[
        ("a", &[("ray-head", 1), ("gpu", 2)]),
        ("b", &[("ray-head", 0), ("gpu", 3), ("cpu", 1)]),
    ])
}

fn reached(address: &str) -> Reach {
    Reach {
        leader: Some(address.to_owned()),
        ..Reach::default()
    }
}

fn taken_apart(template: &Value, shares: &[Share], address: &str) -> Vec<RenderedPart> {
    parts(template, Attempt(1), shares, &reached(address), false).unwrap()
}

#[test]
fn the_head_is_in_one_cluster_and_workers_are_divided() {
    let template = yaml(CLUSTER);
    let parts = taken_apart(&template, &uneven(), "tune.a.example.com");
    let (head, own) = (
        field(&parts[0], "/spec/headGroupSpec"),
        &template["spec"]["headGroupSpec"],
    );
    for kept in [
        "enableIngress",
        "serviceType",
        "rayStartParams",
        "headService",
    ] {
        assert_eq!(head[kept], own[kept], "{kept}");
    }
    let container = &head["template"]["spec"]["containers"][0];
    assert_eq!(variable(container, "MUSTER_RANK_OFFSET").unwrap(), "0");
    assert_eq!(variable(container, "MUSTER_GANG_SIZE").unwrap(), "7");
    let address = "MUSTER_LEADER_ADDRESS";
    assert_eq!(variable(container, address).unwrap(), "tune-head-svc");

    let groups = |part: usize| {
        field(&parts[part], "/spec/workerGroupSpecs")
            .as_array()
            .unwrap()
    };
    let sizes = |part: usize| {
        let sizes = groups(part).iter().map(|group| {
            let bounds = ["replicas", "minReplicas", "maxReplicas"];
            (
                group["groupName"].clone(),
                bounds.map(|bound| group[bound].as_u64().unwrap()),
            )
        });
        sizes.collect::<Vec<_>>()
    };
    assert_eq!(sizes(0), [(json!("gpu"), [2, 1, 4])]);
    assert_eq!(
        sizes(1),
        [
            (json!("gpu"), [3, 2, 6]),
            (json!("cpu"), [1, 0, 2_147_483_647])
        ]
    );
    let worker =
        |part: usize, group: usize| &groups(part)[group]["template"]["spec"]["containers"][0];
    let told = |part, group, name| variable(worker(part, group), name);
    let offsets =
        [(0, 0), (1, 0), (1, 1)].map(|(part, group)| told(part, group, "MUSTER_RANK_OFFSET"));
    assert_eq!(
        offsets,
        [Some(json!("1")), Some(json!("3")), Some(json!("6"))]
    );
    let own = "metadata.labels['ray.io/worker-group-replica-index']";
    let index = told(1, 1, "MUSTER_REPLICA_INDEX").unwrap();
    assert_eq!(index, json!({"fieldRef": {"fieldPath": own}}));
    assert_eq!(variable(container, "MUSTER_REPLICA_INDEX").unwrap(), "0");
    assert_eq!(told(0, 0, address).unwrap(), "tune-head-svc");
    assert_eq!(told(1, 0, address).unwrap(), "tune.a.example.com");
    // In the head's own cluster KubeRay sets the address.
    assert_eq!(told(0, 0, "RAY_ADDRESS"), None);
    assert_eq!(groups(0)[0]["rayStartParams"], json!({"num-gpus": "8"}));
    assert_eq!(
        told(1, 0, "RAY_ADDRESS").unwrap(),
        "tune.a.example.com:6379"
    );
    assert_eq!(told(1, 0, "RAY_PORT").unwrap(), "6379");
    let params = json!({"num-gpus": "8", "address": "tune.a.example.com:6379"});
    assert_eq!(groups(1)[0]["rayStartParams"], params);
    assert_eq!(
        told(1, 1, "RAY_ADDRESS").unwrap(),
        "mine",
        "what is the user's stays"
    );
}

#[test]
fn the_stand_in_of_a_head_is_never_scheduled_and_requests_nothing() {
    let parts = taken_apart(&yaml(CLUSTER), &uneven(), "tune.a.example.com");
    assert_eq!(
        *field(&parts[1], "/spec/headGroupSpec"),
        json!({
            "rayStartParams": {"port": "6379 --address 'tune.a.example.com:6379'"},
            "template": {
                "metadata": {"labels": {"app": "tune"}},
                "spec": {
                    "securityContext": {"runAsUser": 7},
                    "schedulingGates": [{"name": "muster.io/head-is-elsewhere"}],
                    "containers": [{
                        "name": "head",
                        "image": "ray",
                        "ports": [{"name": "gcs-server", "containerPort": 6379}],
                        "securityContext": {"privileged": false},
                        "resources": {
                            "limits": {"cpu": "0", "nvidia.com/gpu": "0"},
                            "requests": {"cpu": "0"},
                        },
                    }],
                },
            },
        })
    );
}

#[test]
fn an_address_may_be_of_any_kind_and_the_port_is_the_heads() {
    let mut template = yaml(CLUSTER);
    template["spec"]["headGroupSpec"]["rayStartParams"]["port"] = json!("6380");
    for (address, endpoint) in [("10.0.0.1", "10.0.0.1:6380"), ("fd00::1", "[fd00::1]:6380")] {
        let parts = taken_apart(&template, &uneven(), address);
        let groups = field(&parts[1], "/spec/workerGroupSpecs");
        assert_eq!(groups[0]["rayStartParams"]["address"], endpoint);
        let port = &field(&parts[1], "/spec/headGroupSpec")["rayStartParams"]["port"];
        assert_eq!(*port, format!("6380 --address '{endpoint}'"));
    }
}

/// The head's Service in the leading part.
fn service_of(template: &Value) -> Value {
    let shares = shares(&[
        ("a", &[("ray-head", 1), ("gpu", 2), ("ray-submitter", 1)]),
        ("b", &[("gpu", 3), ("cpu", 1)]),
    ]);
    let parts = taken_apart(template, &shares, "a.example.com");
    let head = field(&parts[0], "/spec/rayClusterSpec/headGroupSpec");
    let container = &head["template"]["spec"]["containers"][0];
    assert_eq!(variable(container, "MUSTER_GANG_SIZE").unwrap(), "7");
    assert_eq!(
        variable(container, "MUSTER_LEADER_ADDRESS").unwrap(),
        head["headService"]["metadata"]["name"]
    );
    head["headService"].clone()
}

#[test]
fn the_head_of_a_rayjob_has_a_service_whose_name_is_known() {
    let mut template = job(json!({}));
    let head = "/spec/rayClusterSpec/headGroupSpec";
    let typed = service_of(&template);
    assert_eq!(
        typed,
        json!({"metadata": {"name": "tune-head"}, "spec": {}})
    );
    let fields = template.pointer_mut(head).unwrap().as_object_mut().unwrap();
    fields.remove("serviceType");
    let headless = json!({"clusterIP": "None", "publishNotReadyAddresses": true});
    assert_eq!(
        service_of(&template),
        json!({"metadata": {"name": "tune-head"}, "spec": headless})
    );
    let own = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"ports": [{"port": 1}]}});
    template.pointer_mut(head).unwrap()["headService"] = own.clone();
    let mut named = own;
    named["metadata"]["name"] = json!("tune-head");
    assert_eq!(service_of(&template), named);
    template.pointer_mut(head).unwrap()["headService"] = json!({"metadata": {"name": "mine"}});
    assert_eq!(service_of(&template)["metadata"]["name"], "mine");
}

#[test]
fn a_rayjob_part_without_the_head_has_no_fields_of_the_head() {
    let mut template = job(json!({"submissionMode": "HTTPMode", "activeDeadlineSeconds": 60}));
    let annotations = json!({"external-dns": "head.example.com"});
    template["spec"]["rayClusterSpec"]["headServiceAnnotations"] = annotations;
    let parts = taken_apart(&template, &uneven(), "a.example.com");
    let gone = |part: &RenderedPart| {
        let gone = part.fields.iter().filter(|(_, value)| value.is_null());
        gone.map(|(path, _)| path.clone()).collect::<Vec<_>>()
    };
    assert_eq!(gone(&parts[0]), Vec::<String>::new());
    assert_eq!(
        gone(&parts[1]),
        [
            "/spec/rayClusterSpec/headServiceAnnotations",
            "/spec/activeDeadlineSeconds"
        ]
    );
}

#[test]
fn a_raycluster_in_one_cluster_is_left_to_kuberay() {
    let template = yaml(CLUSTER);
    let whole = shares(&[("a", &[("ray-head", 1), ("gpu", 5), ("cpu", 1)])]);
    let parts = parts(&template, Attempt(1), &whole, &Reach::default(), false).unwrap();
    let groups = field(&parts[0], "/spec/workerGroupSpecs");
    for (group, own) in
        [0, 1].map(|group| (&groups[group], &template["spec"]["workerGroupSpecs"][group]))
    {
        for same in [
            "groupName",
            "replicas",
            "minReplicas",
            "maxReplicas",
            "rayStartParams",
        ] {
            assert_eq!(group[same], own[same], "{same}");
        }
    }
    let none = parts[0].fields.iter().find(|(_, value)| value.is_null());
    assert_eq!(none, None);
}

#[test]
fn a_ray_workload_without_an_address_is_not_split() {
    let error = parts(
        &yaml(CLUSTER),
        Attempt(1),
        &uneven(),
        &Reach::default(),
        false,
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "no address is known at which its other pods could reach tune-head-svc on a"
    );
}

#[test]
fn an_unsplittable_ray_workload_gets_a_reason() {
    let set = |path: &str, value: Value| {
        let mut template = yaml(CLUSTER);
        let (above, name) = path.rsplit_once('/').unwrap();
        template.pointer_mut(above).unwrap()[name] = value;
        unsplittable(&template)
    };
    let group = "/spec/workerGroupSpecs/1";
    let worker = "/spec/workerGroupSpecs/1/template/spec/containers/0";
    for (path, value, want) in [
        (
            "/spec/enableInTreeAutoscaling",
            json!(true),
            Some("spec.enableInTreeAutoscaling makes"),
        ),
        ("/spec/enableInTreeAutoscaling", json!(false), None),
        (
            "/spec/gcsFaultToleranceOptions",
            json!({}),
            Some("spec.gcsFaultToleranceOptions makes"),
        ),
        (
            "/metadata/annotations",
            json!({"ray.io/ft-enabled": "true"}),
            Some("gcsFaultToleranceOptions"),
        ),
        (
            "/metadata/annotations",
            json!({"ray.io/ft-enabled": "false"}),
            None,
        ),
        (
            "/spec/managedBy",
            json!("kueue.x-k8s.io/multikueue"),
            Some("spec.managedBy is \"kueue.x-k8s.io/multikueue\""),
        ),
        ("/spec/managedBy", json!("ray.io/kuberay-operator"), None),
        (
            "/spec/authOptions",
            json!({"mode": "token"}),
            Some("spec.authOptions.mode token"),
        ),
        (
            "/spec/authOptions",
            json!({"mode": "token", "secretName": "s"}),
            None,
        ),
        ("/spec/authOptions", json!({"mode": "disabled"}), None),
        (
            &format!("{group}/numOfHosts"),
            json!(4),
            Some("spec.workerGroupSpecs[1].numOfHosts is 4"),
        ),
        (&format!("{group}/numOfHosts"), json!(1), None),
        (
            &format!("{group}/suspend"),
            json!(true),
            Some("spec.workerGroupSpecs[1].suspend is true"),
        ),
        (
            &format!("{worker}/command"),
            json!(["sh", "-c", "ping $FQ_RAY_IP"]),
            Some("container w reads FQ_RAY_IP"),
        ),
        (
            &format!("{worker}/env"),
            json!([{"name": "HEAD", "value": "$(RAY_IP)"}]),
            Some("MUSTER_LEADER_ADDRESS is"),
        ),
    ] {
        let told = set(path, value);
        let as_wanted = match (&told, want) {
            (Some(told), Some(want)) => told.contains(want),
            (told, want) => told.is_none() && want.is_none(),
        };
        assert!(as_wanted, "{path}: {told:?}");
    }
    assert_eq!(unsplittable(&job(json!({}))), None);
    let there = unsplittable(&job(
        json!({"clusterSelector": {"ray.io/cluster": "shared"}}),
    ))
    .unwrap();
    assert!(there.contains("spec.clusterSelector"), "{there}");
    let mut scaled = job(json!({}));
    scaled["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = json!(true);
    let told = unsplittable(&scaled).unwrap();
    assert!(
        told.starts_with("spec.rayClusterSpec.enableInTreeAutoscaling"),
        "{told}"
    );
}
