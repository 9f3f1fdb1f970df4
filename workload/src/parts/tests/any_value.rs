//! The schemas of many kinds accept any value in fields that Muster does not read. Splitting a job may
//! refuse such a template, and never panics.

use super::*;

const PODS: &str = "
  metadata: {labels: {app: x}, annotations: {note: y}}
  spec:
    initContainers: [{name: i, env: [{name: A, value: b}]}]
    containers: [{name: c, command: [run, --fast], args: [a], env: [{name: A, value: b}], ports: [{name: p, containerPort: 1}]}]
    volumes: [{name: v}]
";

/// Kinds that can be in parts; `PODS` stands for a pod template, whose container `C` is.
const SPLIT: [&str; 11] = [
    "{apiVersion: kubeflow.org/v1, kind: JAXJob, spec: {runPolicy: {schedulingPolicy: {minAvailable: 3}}, jaxReplicaSpecs: {Worker: {replicas: 4, template: PODS=jax}}}}",
    "{apiVersion: kubeflow.org/v1, kind: PaddleJob, spec: {paddleReplicaSpecs: {Master: {template: PODS=paddle}, Worker: {replicas: 3, template: PODS=paddle}}}}",
    "{apiVersion: kubeflow.org/v1, kind: XGBoostJob, spec: {runPolicy: {activeDeadlineSeconds: 5, schedulingPolicy: {}}, xgbReplicaSpecs: {Master: {replicas: 1, template: PODS=xgboost}, Worker: {replicas: 3, template: PODS=xgboost}}}}",
    "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {minAvailable: 4, plugins: {svc: []}, tasks: [{name: m, replicas: 1, minAvailable: 1, policies: [{event: TaskCompleted, action: CompleteJob}], template: PODS}, {name: w, replicas: 4, template: PODS}]}}",
    "{apiVersion: batch/v1, kind: Job, spec: {completionMode: Indexed, parallelism: 4, completions: 9, backoffLimit: 3, template: PODS}}",
    "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {nprocPerNode: '2', runPolicy: {schedulingPolicy: {minAvailable: 3}}, pytorchReplicaSpecs: {Master: {replicas: 1, template: PODS=pytorch}, Worker: {replicas: 3, template: PODS=pytorch}}}}",
    "{apiVersion: kubeflow.org/v1, kind: TFJob, spec: {successPolicy: '', tfReplicaSpecs: {Chief: {replicas: 1, template: PODS=tensorflow}, PS: {replicas: 2, template: PODS=tensorflow}, Worker: {replicas: 3, template: PODS=tensorflow}}}}",
    "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {coordinator: {replicatedJob: d}, network: {subdomain: s}, successPolicy: {operator: All, targetReplicatedJobs: [d]}, replicatedJobs: [{name: d, template: {spec: {template: PODS}}}, {name: w, replicas: 4, template: {metadata: {labels: {a: b}}, spec: {completionMode: Indexed, template: PODS}}}]}}",
    "{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {slotsPerWorker: 2, sshAuthMountPath: /home/mpi/.ssh, mpiImplementation: Intel, runPolicy: {schedulingPolicy: {minAvailable: 3}}, mpiReplicaSpecs: {Launcher: {replicas: 1, template: PODS}, Worker: {replicas: 4, template: PODS}}}}",
    "{apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {rayStartParams: {port: '6380'}, headService: {metadata: {name: h}, spec: {}}, template: PODS}, workerGroupSpecs: [{groupName: g, replicas: 4, minReplicas: 1, maxReplicas: 5, rayStartParams: {a: b}, template: PODS}]}}",
    "{apiVersion: ray.io/v1, kind: RayJob, spec: {submissionMode: K8sJobMode, submitterPodTemplate: PODS, rayClusterSpec: {headGroupSpec: {headService: {metadata: {name: h}}, template: PODS}, workerGroupSpecs: [{groupName: g, replicas: 4, rayStartParams: {a: b}, template: PODS}]}}}",
];

const METADATA: &str = "{name: j, namespace: team, uid: u, labels: {a: b}, annotations: {muster.io/ssh-auth-secret: keys}}";

fn template(text: &str) -> Value {
    let mut template = yaml(text);
    template["metadata"] = yaml(METADATA);
    fill(&mut template);
    template
}

/// Inserts the pods in place of their names.
fn fill(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("PODS") => {
            let name = text.strip_prefix("PODS=").unwrap_or("c").to_owned();
            *value = yaml(PODS);
            value["spec"]["containers"][0]["name"] = json!(name);
        }
        Value::Array(list) => list.iter_mut().for_each(fill),
        Value::Object(map) => map.values_mut().for_each(fill),
        _ => {}
    }
}

/// Adds the paths of all values below.
fn places(value: &Value, path: &str, into: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(at, value)| (at.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        let key = key.replace('~', "~0").replace('/', "~1");
        let path = format!("{path}/{key}");
        places(child, &path, into);
        into.push(path);
    }
}

/// Its pods in two clusters, the larger half in the first.
fn halves(template: &Value) -> Vec<Share> {
    let spec = read_spec(template);
    let roles = spec.map(|spec| spec.roles).unwrap_or_default();
    let of = |half: fn(u32) -> u32| {
        let pods = roles.iter().map(|role| (&*role.name, half(role.count)));
        pods.collect::<Vec<_>>()
    };
    shares(&[("a", &of(|all| all.div_ceil(2))), ("b", &of(|all| all / 2))])
}

/// Returns true if it can be split, in every way.
fn taken_apart(template: &Value) -> bool {
    let shares = halves(template);
    let mut taken = true;
    for address in ["{host}.example.com", "{service}.team.svc"] {
        let hosts = ["a", "b"].map(|cluster| (ClusterName::new(cluster), address.to_owned()));
        let reach = Reach {
            leader: Some(address.replace("{host}", "j")),
            hosts: hosts.into(),
        };
        for resizable in [false, true] {
            let parts = parts(template, Attempt(1), &shares, &reach, resizable);
            taken &= parts.is_ok();
            for part in parts.into_iter().flatten() {
                let before = part.fields.clone();
                let _ = resized(part, &before);
            }
        }
        taken &= crate::services(template, Attempt(1), &shares, &reach).is_ok();
    }
    taken
}

#[test]
fn no_value_makes_a_split_panic() {
    let values = [
        Value::Null,
        json!(-7),
        json!("x"),
        json!(["x", null, 1]),
        json!({"x": "y"}),
    ];
    for text in SPLIT {
        let whole = template(text);
        assert!(taken_apart(&whole), "{text}");
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        assert!(all.len() > 20, "{text}");
        for (place, value) in all
            .iter()
            .flat_map(|place| values.iter().map(move |v| (place, v)))
        {
            let mut template = whole.clone();
            if let Some(at) = template.pointer_mut(place) {
                *at = value.clone();
            }
            let done = std::panic::catch_unwind(|| {
                taken_apart(&template);
                crate::split::refused(&template);
            });
            assert!(done.is_ok(), "{} {place} = {value}", whole["kind"]);
        }
    }
}

/// Makes every container request a GPU.
fn with_gpus(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(with_gpus),
        Value::Object(map) => {
            for container in map
                .get_mut("containers")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                container["resources"] = json!({"limits": {"nvidia.com/gpu": 1}});
            }
            map.values_mut().for_each(with_gpus);
        }
        _ => {}
    }
}

/// The template as Karmada renders it for one cluster.
fn applied(template: &Value, part: &RenderedPart) -> Value {
    let mut whole = template.clone();
    for (path, value) in &part.fields {
        let (parent, key) = path.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/").replace("~0", "~");
        let parent = whole.pointer_mut(parent).and_then(Value::as_object_mut);
        let parent = parent.unwrap();
        match value {
            Value::Null => drop(parent.remove(&key)),
            value => drop(parent.insert(key, value.clone())),
        }
    }
    whole
}

#[test]
fn a_part_requests_only_its_share() {
    for text in SPLIT {
        let mut template = template(text);
        with_gpus(&mut template);
        let spec = read_spec(&template).unwrap();
        let shares = halves(&template);
        let hosts = ["a", "b"].map(|cluster| (ClusterName::new(cluster), "{host}.x".to_owned()));
        let reach = Reach {
            leader: Some("j.x".to_owned()),
            hosts: hosts.into(),
        };
        let parts = parts(&template, Attempt(1), &shares, &reach, false).unwrap();
        let nothing = facts::Resources::new();
        for (part, share) in parts.iter().zip(&shares) {
            let charged = share.pods.iter().fold(nothing.clone(), |sum, pods| {
                let role = spec
                    .roles
                    .iter()
                    .find(|role| role.name == pods.role)
                    .unwrap();
                sum.checked_add(&role.request.checked_mul(pods.count).unwrap())
                    .unwrap()
            });
            let rendered = crate::rendered(applied(&template, part)).unwrap();
            let beyond = rendered.beyond(&charged, &nothing);
            assert_eq!(
                beyond, nothing,
                "{} {}: {charged}",
                template["kind"], share.cluster
            );
            // The whole job requests more than a half.
            let whole = crate::rendered(template.clone()).unwrap();
            assert_ne!(
                whole.beyond(&charged, &nothing),
                nothing,
                "{}",
                template["kind"]
            );
        }
    }
}
