//! The examples as they run on nodes without GPUs: with the command of their README, every job is read as on a control
//! plane, and admitted by its queue to a fleet of CPUs.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Files, run_with};
use engine::facts::{ClusterPlacement, Split};
use serde_json::Value;
use sim::input::read_scenario;
use sim::scenario::ScenarioOverrides;
use std::path::{Path, PathBuf};

/// The command of the README that leaves the GPUs out.
const COMMAND: &str = r"sed '/nvidia.com\/gpu:/d' ";
/// Two clusters as of kind or k3s.
const CPUS: &str = "clusters:
- {name: east, nodes: [{count: 3, cpu: 8, memory: 32Gi}]}
- {name: west, nodes: [{count: 3, cpu: 8, memory: 32Gi}]}
";
/// The one is about GPUs, the other states no job.
const LEFT_OUT: [&str; 2] = ["sharing.yaml", "fault-policy.yaml"];
/// Public images, as their own projects tag them.
const IMAGES: [&str; 4] = [
    "busybox:1.37",
    "pytorch/pytorch:2.9.1-cuda12.6-cudnn9-runtime",
    "mpioperator/mpi-pi:openmpi",
    "rayproject/ray:2.52.0",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

fn examples() -> Vec<(String, String)> {
    let files = std::fs::read_dir(folder()).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let manifests = files.filter(|path| path.extension().is_some_and(|of| of == "yaml"));
    let mut all: Vec<(String, String)> = manifests
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    all.sort();
    all
}

/// Returns a text without its GPUs, as the command does.
fn without_gpus(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.contains("nvidia.com/gpu:"));
    lines.map(|line| format!("{line}\n")).collect()
}

fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

/// Calls `found` for each object that is somewhere in a value, and for the value.
fn each<'a>(value: &'a Value, found: &mut impl FnMut(&'a Value)) {
    found(value);
    match value {
        Value::Object(map) => map.values().for_each(|value| each(value, found)),
        Value::Array(list) => list.iter().for_each(|value| each(value, found)),
        _ => {}
    }
}

#[test]
fn the_examples_run_on_nodes_without_gpus() {
    let readme = std::fs::read_to_string(folder().join("README.md")).unwrap();
    assert!(readme.contains(COMMAND), "README.md has another command");
    let (mut entries, mut demands) = (String::from("jobs:\n"), Vec::new());
    for (file, text) in examples() {
        if LEFT_OUT.contains(&&*file) {
            continue;
        }
        for object in objects(&without_gpus(&text)) {
            let name = object["metadata"]["name"].as_str().unwrap();
            let spec = match workload::read_spec(&object) {
                Ok(spec) => spec,
                Err(workload::SpecError::SizeUnknown { .. }) => continue,
                Err(error) => panic!("{file}: {error}"),
            };
            for role in &spec.roles {
                let request = format!("{:?}", role.request);
                assert!(!request.contains("gpu"), "{file}: {request}");
            }
            entries += &format!("- {{name: {name}, queue: vision, run: 1m}}\n");
            let placement = ClusterPlacement::default();
            demands.push(spec.demand(false, Split::Never, placement));
        }
    }
    assert_eq!(demands.len(), 10, "{entries}");

    let files = Files::new();
    let queue = std::fs::read_to_string(folder().join("queue.yaml")).unwrap();
    let queue = files.with("queue.yaml", &without_gpus(&queue));
    let fleet = files.with("fleet.yaml", CPUS);
    let jobs = files.with("jobs.yaml", &entries);
    let mut scenario = read_scenario(&fleet, Some(&queue), &jobs).unwrap().what;
    let capability = format!("{:?}", scenario.queues.queues[0].capability);
    assert!(capability.contains("cpu"), "{capability}");
    for (job, demand) in scenario.jobs.iter_mut().zip(demands) {
        job.fact.demand = demand;
    }
    scenario.change(&ScenarioOverrides::default());
    let (metrics, outcome) = run_with(&scenario, true);
    assert_eq!(metrics.finished, scenario.jobs.len(), "{:?}", outcome.stuck);
}

#[test]
fn the_examples_name_public_images_and_no_product() {
    for (file, text) in examples() {
        for object in objects(&text) {
            each(&object, &mut |value| {
                if let Some(image) = value.get("image").and_then(Value::as_str) {
                    assert!(IMAGES.contains(&image), "{file}: {image}");
                }
                let selects = value.get("nodeSelector").or(value.get("nodeAffinity"));
                assert_eq!(selects, None, "{file}: not every fleet has such nodes");
            });
        }
    }
}
