//! The object that `run` creates. It has what a user would write: no field of it is read by `kubectl muster` only.

use crate::age::human;
use crate::args::{JobFramework, RunCommand};
use crds::names::{PRIORITY_CLASS_LABEL, QUEUE_KEY};
use serde_json::{Value, json};

/// How names begin that the server completes.
const PREFIX: &str = "run-";
/// How long it is expected to run.
const EXPECTED_DURATION_ANNOTATION: &str = "muster.io/expected-duration";
/// A volume in place of the 64 MB that a container has by default: too few for NCCL.
const SHARED_MEMORY: &str = "shared-memory";

/// Returns the job that the arguments ask for.
pub(super) fn job(args: &RunCommand, namespace: &str) -> Value {
    let (api_version, kind, spec) = match args.framework {
        JobFramework::Job => ("batch/v1", "Job", batch(args)),
        JobFramework::Pytorch => ("kubeflow.org/v1", "PyTorchJob", pytorch(args)),
        JobFramework::Volcano => ("batch.volcano.sh/v1alpha1", "Job", volcano(args)),
    };
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata(args, namespace),
        "spec": spec,
    })
}

fn metadata(args: &RunCommand, namespace: &str) -> Value {
    let mut metadata = json!({"namespace": namespace});
    match &args.name {
        Some(name) => metadata["name"] = json!(name),
        None => metadata["generateName"] = json!(PREFIX),
    }
    for (key, value) in [
        (QUEUE_KEY, &args.queue),
        (PRIORITY_CLASS_LABEL, &args.priority),
    ] {
        if let Some(value) = value {
            metadata["labels"][key] = json!(value);
        }
    }
    if let Some(time) = args.time {
        let text = format!("{}s", time.seconds());
        metadata["annotations"] = json!({EXPECTED_DURATION_ANNOTATION: text});
    }
    metadata
}

fn batch(args: &RunCommand) -> Value {
    json!({
        "completionMode": "Indexed",
        "completions": args.nodes,
        "parallelism": args.nodes,
        "backoffLimit": 0,
        "template": template(args, "main"),
    })
}

/// The operator looks for a container of this name.
fn pytorch(args: &RunCommand) -> Value {
    let replicas = |count: u32| {
        json!({
            "replicas": count,
            "restartPolicy": "Never",
            "template": template(args, "pytorch"),
        })
    };
    let mut specs = json!({"Master": replicas(1)});
    if args.nodes > 1 {
        specs["Worker"] = replicas(args.nodes - 1);
    }
    json!({"runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "None"}, "pytorchReplicaSpecs": specs})
}

fn volcano(args: &RunCommand) -> Value {
    let mut spec = json!({
        "minAvailable": args.nodes,
        "maxRetry": 1,
        "plugins": {"env": [], "svc": []},
        "tasks": [{
            "name": "main",
            "replicas": args.nodes,
            "template": template(args, "main"),
        }],
    });
    if let Some(queue) = &args.queue {
        spec["queue"] = json!(queue);
    }
    spec
}

/// Returns the template of the pods.
fn template(args: &RunCommand, container: &str) -> Value {
    let mut volumes = Vec::new();
    let mut mounts = Vec::new();
    for (index, mount) in args.mount.iter().enumerate() {
        let name = format!("claim-{index}");
        volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": mount.claim}}));
        mounts.push(json!({"name": name, "mountPath": mount.path}));
    }
    if args.gpus > 0 {
        volumes.push(json!({"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}));
        mounts.push(json!({"name": SHARED_MEMORY, "mountPath": "/dev/shm"}));
    }
    let mut main = json!({"name": container, "image": args.image});
    let resources = resources(args);
    if resources != json!({}) {
        main["resources"] = resources;
    }
    let env = args.env.iter();
    let env: Vec<Value> = env
        .map(|env| json!({"name": env.key, "value": env.value}))
        .collect();
    let mut pod = json!({"restartPolicy": "Never"});
    for (field, list) in [
        ("command", json!(args.command)),
        ("env", json!(env)),
        ("volumeMounts", json!(mounts)),
    ] {
        if list.as_array().is_some_and(|list| !list.is_empty()) {
            main[field] = list;
        }
    }
    pod["containers"] = json!([main]);
    if !volumes.is_empty() {
        pod["volumes"] = json!(volumes);
    }
    if !args.node_selector.is_empty() {
        let labels = args.node_selector.iter();
        let labels = labels.map(|label| (label.key.clone(), json!(label.value)));
        pod["nodeSelector"] = Value::Object(labels.collect());
    }
    json!({"spec": pod})
}

fn resources(args: &RunCommand) -> Value {
    let mut resources = json!({});
    for (name, amount) in [("cpu", &args.cpus), ("memory", &args.memory)] {
        if let Some(amount) = amount {
            resources["requests"][name] = json!(amount);
        }
    }
    if args.gpus > 0 {
        resources["limits"] = json!({(&args.device): args.gpus.to_string()});
    }
    resources
}

/// Says what is asked for: `2 pods with 8 nvidia.com/gpu each, for 2h`.
pub(super) fn summary(args: &RunCommand) -> String {
    let pods = engine::counted(args.nodes as usize, "pod");
    let each = if args.nodes > 1 { " each" } else { "" };
    let gpus = match args.gpus {
        0 => String::new(),
        gpus => format!(" with {gpus} {}{each}", args.device),
    };
    let time = args
        .time
        .map(|time| format!(", for {}", human(time.seconds())));
    format!("{pods}{gpus}{}", time.unwrap_or_default())
}
