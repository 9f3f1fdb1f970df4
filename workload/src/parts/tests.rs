#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::yaml;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

mod any_value;
mod resizing;

/// Shares like `a: master=1 worker=5`.
pub(crate) fn shares(parts: &[(&str, &[(&str, u32)])]) -> Vec<Share> {
    let share = |(cluster, pods): &(&str, &[(&str, u32)])| Share {
        cluster: ClusterName::new(cluster),
        pods: pods
            .iter()
            .map(|(role, count)| RolePods {
                role: (*role).to_owned(),
                count: *count,
            })
            .collect(),
        charge: BTreeMap::new(),
        slots: Vec::new(),
    };
    parts.iter().map(share).collect()
}

const TRAIN: &str = "
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
spec:
  minAvailable: 9
  tasks:
    - {name: master, replicas: 1, template: {spec: {containers: [{name: m}]}}}
    - name: worker
      replicas: 8
      policies: [{event: PodFailed, action: RestartTask}]
      template:
        metadata: {labels: {a: b}}
        spec:
          initContainers: [{name: i}]
          containers:
            - {name: w, env: [{name: LR, value: '1'}, {name: MUSTER_CLUSTER, value: mine}]}
            - {name: sidecar}
";

pub(crate) fn field<'a>(part: &'a RenderedPart, path: &str) -> &'a Value {
    &part
        .fields
        .iter()
        .find(|(known, _)| known == path)
        .unwrap()
        .1
}

#[test]
fn a_volcano_job_is_split_by_tasks() {
    let shares = shares(&[
        ("gpu-a", &[("master", 1), ("worker", 5)]),
        ("gpu-b", &[("master", 0), ("worker", 3)]),
    ]);
    let parts = parts(&yaml(TRAIN), Attempt(2), &shares, &Reach::default(), false).unwrap();
    assert_eq!(parts[0].mark, "attempt 2, part 1 of 2: master=1 worker=5");
    assert_eq!(parts[1].mark, "attempt 2, part 2 of 2: worker=3");
    assert_eq!(attempt_of(&parts[1].mark), Some(Attempt(2)));
    assert_eq!(attempt_of("somebody's"), None);
    assert_eq!(field(&parts[0], "/spec/minAvailable"), 6);
    assert_eq!(field(&parts[1], "/spec/minAvailable"), 3);
    let env = |cluster: &str, offset: &str| {
        json!([
            {"name": "MUSTER_ATTEMPT", "value": "2"},
            {"name": "MUSTER_CLUSTER", "value": cluster},
            {"name": "MUSTER_CLUSTERS", "value": "gpu-a,gpu-b"},
            {"name": "MUSTER_GANG_SIZE", "value": "9"},
            {"name": "MUSTER_RANK_OFFSET", "value": offset},
        ])
    };
    // The user's own variables stay, and come after the ones that they may refer to.
    let mut own = env("gpu-b", "6");
    own.as_array_mut().unwrap().remove(1);
    let users = [
        json!({"name": "LR", "value": "1"}),
        json!({"name": "MUSTER_CLUSTER", "value": "mine"}),
    ];
    own.as_array_mut().unwrap().extend(users);
    assert_eq!(
        *field(&parts[1], "/spec/tasks"),
        json!([{
            "name": "worker", "replicas": 3,
            "policies": [{"event": "PodFailed", "action": "RestartTask"}],
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "initContainers": [{"name": "i", "env": env("gpu-b", "6")}],
                "containers": [
                    {"name": "w", "env": own},
                    {"name": "sidecar", "env": env("gpu-b", "6")},
                ],
            }},
        }])
    );
    let first = field(&parts[0], "/spec/tasks");
    assert_eq!(
        first[0]["template"]["spec"]["containers"][0]["env"],
        env("gpu-a", "0")
    );
    assert_eq!(
        first[1]["template"]["spec"]["containers"][1]["env"],
        env("gpu-a", "1")
    );
}

#[test]
fn minimums_are_divided_as_the_pods_are() {
    let template = yaml(
        "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {minAvailable: 5, tasks: [
            {replicas: 2, minAvailable: 1, template: {spec: {containers: [{name: c}]}}},
            {name: w, replicas: 8, minAvailable: 4, template: {spec: {containers: [{name: c}]}}}]}}",
    );
    let shares = shares(&[
        ("a", &[("default0", 2), ("w", 5)]),
        ("b", &[("default0", 0), ("w", 3)]),
    ]);
    let parts = parts(&template, Attempt(1), &shares, &Reach::default(), false).unwrap();
    let minimums = |part: &RenderedPart| {
        let tasks = field(part, "/spec/tasks").as_array().unwrap().clone();
        let tasks = tasks
            .iter()
            .map(|task| task["minAvailable"].as_u64().unwrap());
        (
            field(part, "/spec/minAvailable").as_u64().unwrap(),
            tasks.collect::<Vec<_>>(),
        )
    };
    assert_eq!(minimums(&parts[0]), (4, vec![1, 3]));
    assert_eq!(minimums(&parts[1]), (1, vec![1]));
}

#[test]
fn a_batch_job_is_split_by_completions() {
    let template = yaml(
        "{apiVersion: batch/v1, kind: Job, spec: {completionMode: Indexed, completions: 10, parallelism: 4,
          template: {spec: {containers: [{name: c}]}}}}",
    );
    let shares = shares(&[("a", &[("main", 3)]), ("b", &[("main", 1)])]);
    let parts = parts(&template, Attempt(1), &shares, &Reach::default(), false).unwrap();
    let paths: Vec<&str> = parts[0].fields.iter().map(|(path, _)| &**path).collect();
    assert_eq!(
        paths,
        [
            "/spec/parallelism",
            "/spec/completions",
            "/spec/template/spec/containers"
        ]
    );
    let of = |part: &RenderedPart| {
        let env = &field(part, "/spec/template/spec/containers")[0]["env"];
        (
            field(part, "/spec/parallelism").clone(),
            field(part, "/spec/completions").clone(),
            env[4]["value"].clone(),
        )
    };
    assert_eq!(of(&parts[0]), (json!(3), json!(8), json!("0")));
    assert_eq!(of(&parts[1]), (json!(1), json!(2), json!("8")));
}

#[test]
fn a_changed_template_is_not_split() {
    let fails = |template: &str, pods: &[(&str, u32)]| {
        parts(
            &yaml(template),
            Attempt(1),
            &shares(&[("a", pods)]),
            &Reach::default(),
            false,
        )
        .unwrap_err()
        .to_string()
    };
    assert_eq!(
        fails(TRAIN, &[("master", 1), ("worker", 7)]),
        "its template changed since it was planned: worker has 8 pods, 7 were planned"
    );
    assert_eq!(
        fails(TRAIN, &[("master", 1), ("worker", 8), ("ps", 1)]),
        "its template changed since it was planned: ps has 0 pods, 1 were planned"
    );
    assert_eq!(
        fails("{apiVersion: v1, kind: Pod, spec: {}}", &[]),
        "a Pod cannot be placed in parts"
    );
    assert!(
        fails(
            "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {tasks: 1}}",
            &[]
        )
        .contains("spec.tasks")
    );
}

/// Pods of up to three tasks over up to eight clusters, at most 512 in all.
fn gangs() -> impl Strategy<Value = Vec<Vec<u32>>> {
    (1usize..=3, 1usize..=8).prop_flat_map(|(tasks, clusters)| {
        let pods = prop::collection::vec(0u32..=21, clusters);
        prop::collection::vec(pods, tasks).prop_filter(
            "every task and every cluster has a pod",
            move |counts| {
                let tasks = counts.iter().all(|task| task.iter().sum::<u32>() > 0);
                tasks && (0..clusters).all(|index| counts.iter().any(|task| task[index] > 0))
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn parts_add_up_to_the_gang_and_every_rank_is_there_once(
        counts in gangs(), permille in 0u64..=1000,
    ) {
        let clusters = counts[0].len();
        let name = |task: usize| format!("t{task}");
        let tasks: Vec<Value> = counts.iter().enumerate().map(|(task, pods)| {
            let replicas: u32 = pods.iter().sum();
            let containers = json!([{"name": "c"}]);
            json!({
                "name": name(task), "replicas": replicas,
                "minAvailable": u64::from(replicas) * permille / 1000,
                "template": {"spec": {"containers": containers}},
            })
        }).collect();
        let pods: u32 = counts.iter().flatten().sum();
        let minimum = (u64::from(pods) * permille / 1000).max(1);
        let template = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "spec": {"minAvailable": minimum, "tasks": tasks},
        });
        let shares: Vec<Share> = (0..clusters).map(|index| Share {
            cluster: ClusterName::new(format!("c{index}")),
            pods: counts.iter().enumerate().map(|(task, pods)| RolePods {
                role: name(task), count: pods[index],
            }).collect(),
            charge: BTreeMap::new(),
            slots: Vec::new(),
        }).collect();
        let parts = parts(&template, Attempt(1), &shares, &Reach::default(), false).unwrap();
        let mut ranks = BTreeSet::new();
        let (mut total, mut minimums) = (0, 0);
        for (index, part) in parts.iter().enumerate() {
            let mut own = 0;
            for task in field(part, "/spec/tasks").as_array().unwrap() {
                let replicas = task["replicas"].as_u64().unwrap();
                let env = &task["template"]["spec"]["containers"][0]["env"];
                let offset: u64 = env[4]["value"].as_str().unwrap().parse().unwrap();
                prop_assert!(task["minAvailable"].as_u64().unwrap() <= replicas);
                for rank in offset..offset + replicas {
                    prop_assert!(ranks.insert(rank), "rank {} is there twice", rank);
                }
                own += replicas;
            }
            prop_assert_eq!(own, u64::from(shares[index].replicas()));
            let minimum = field(part, "/spec/minAvailable").as_u64().unwrap();
            prop_assert!((1..=own).contains(&minimum));
            total += own;
            minimums += minimum;
        }
        prop_assert_eq!(total, u64::from(pods));
        prop_assert_eq!(ranks.last().copied(), Some(u64::from(pods) - 1));
        prop_assert!(minimums >= minimum, "{} of {}", minimums, minimum);
    }
}

const TORCH: &str = "
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: tune}
spec:
  nprocPerNode: '8'
  runPolicy: {schedulingPolicy: {minAvailable: 4}}
  pytorchReplicaSpecs:
    Master:
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: pytorch
              command: [torchrun]
              args: [train.py, --seed, $(SEED)]
              ports: [{name: pytorchjob-port, containerPort: 29500}]
    Worker:
      replicas: 4
      template:
        spec: {containers: [{name: pytorch, command: [torchrun, train.py]}, {name: sidecar, command: [log]}]}
";

/// The address of the pod of rank 0.
pub(crate) fn leader(address: Option<&str>) -> Reach {
    Reach {
        leader: address.map(str::to_owned),
        ..Reach::default()
    }
}

/// A variable of a container, and its source.
pub(crate) fn variable(container: &Value, name: &str) -> Option<Value> {
    let env = container["env"].as_array()?;
    let found = env.iter().find(|variable| variable["name"] == name)?;
    let value = found.get("value").or_else(|| found.get("valueFrom"));
    value.cloned()
}

#[test]
fn a_pytorchjob_is_split_by_groups_and_all_find_the_master() {
    let shares = shares(&[
        ("gpu-a", &[("master", 1), ("worker", 1)]),
        ("gpu-b", &[("worker", 3)]),
    ]);
    let address = "tune-master-0.team.svc.gpu-a.example.com";
    let parts = parts(
        &yaml(TORCH),
        Attempt(1),
        &shares,
        &leader(Some(address)),
        false,
    )
    .unwrap();
    let groups = |index: usize| field(&parts[index], "/spec/pytorchReplicaSpecs");
    let containers =
        |index: usize, group: &str| groups(index)[group]["template"]["spec"]["containers"].clone();
    assert_eq!(groups(0)["Master"]["replicas"], 1);
    assert_eq!(groups(0)["Master"]["restartPolicy"], "Never");
    assert_eq!(groups(0)["Worker"]["replicas"], 1);
    assert!(groups(1).get("Master").is_none());
    assert_eq!(groups(1)["Worker"]["replicas"], 3);
    let minimum = "/spec/runPolicy/schedulingPolicy/minAvailable";
    assert_eq!(*field(&parts[0], minimum), 2);
    assert_eq!(*field(&parts[1], minimum), 2);

    let (master, worker) = (&containers(0, "Master")[0], &containers(1, "Worker")[0]);
    let told = |container: &Value| {
        [
            "MUSTER_LEADER_ADDRESS",
            "MUSTER_LEADER_PORT",
            "MUSTER_WORLD_SIZE",
            "MUSTER_RANK_OFFSET",
        ]
        .map(|name| {
            variable(container, name)
                .unwrap()
                .as_str()
                .unwrap()
                .to_owned()
        })
    };
    assert_eq!(told(master), ["tune-master-0", "29500", "40", "0"]);
    assert_eq!(told(&containers(0, "Worker")[0])[3], "1");
    assert_eq!(told(worker), [address, "29500", "40", "2"]);
    let index = json!({"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}});
    assert_eq!(variable(worker, "MUSTER_REPLICA_INDEX"), Some(index));

    let command = master["command"].as_array().unwrap();
    assert_eq!(command[..2], [json!("/bin/sh"), json!("-c")]);
    assert_eq!(command[3..], [json!("muster"), json!("torchrun")]);
    assert_eq!(master["args"], json!(["train.py", "--seed", "$(SEED)"]));
    // Only the container that trains is led by the shell.
    assert_eq!(containers(1, "Worker")[1]["command"], json!(["log"]));
}

#[test]
fn a_pytorchjob_in_one_cluster_is_left_to_its_operator() {
    let shares = shares(&[("gpu-a", &[("master", 1), ("worker", 4)])]);
    let parts = parts(&yaml(TORCH), Attempt(1), &shares, &Reach::default(), false).unwrap();
    let groups = field(&parts[0], "/spec/pytorchReplicaSpecs");
    let container = &groups["Worker"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], json!(["torchrun", "train.py"]));
    assert_eq!(variable(container, "MUSTER_WORLD_SIZE"), None);
}

#[test]
fn a_pytorchjob_without_an_address_is_not_split() {
    let shares = shares(&[
        ("gpu-a", &[("master", 1), ("worker", 2)]),
        ("gpu-b", &[("worker", 2)]),
    ]);
    let error = parts(&yaml(TORCH), Attempt(1), &shares, &Reach::default(), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no address is known at which its other pods could reach tune-master-0 on gpu-a"
    );
}

const TENSORFLOW: &str = "
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: tune, namespace: team}
spec:
  successPolicy: ''
  tfReplicaSpecs:
    Chief:
      template:
        spec: {containers: [{name: tensorflow, command: [python, train.py], ports: [{name: tfjob-port, containerPort: 3000}]}]}
    PS:
      replicas: 2
      template:
        spec: {containers: [{name: tensorflow, command: [python, train.py]}]}
    Worker:
      replicas: 3
      template:
        spec: {containers: [{name: tensorflow, command: [python, train.py]}]}
";

fn tensorflow_shares() -> Vec<Share> {
    shares(&[
        ("a", &[("chief", 1), ("ps", 1), ("worker", 1)]),
        ("b", &[("ps", 1), ("worker", 2)]),
    ])
}

#[test]
fn a_tfjob_has_the_addresses_of_all_of_its_pods() {
    let shares = tensorflow_shares();
    let open = |cluster: &str| format!("{{host}}.team.svc.{cluster}.example.com");
    let hosts = ["a", "b"].map(|cluster| (ClusterName::new(cluster), open(cluster)));
    let reach = Reach {
        leader: None,
        hosts: hosts.into(),
    };
    let parts = parts(&yaml(TENSORFLOW), Attempt(1), &shares, &reach, false).unwrap();
    let groups = |index: usize| field(&parts[index], "/spec/tfReplicaSpecs");
    let worker = |index: usize| &groups(index)["Worker"]["template"]["spec"]["containers"][0];
    let told = |index: usize, name| variable(worker(index), name).unwrap();
    let cluster = |index: usize| -> Value {
        serde_json::from_str(told(index, "MUSTER_TF_CLUSTER").as_str().unwrap()).unwrap()
    };
    assert_eq!(
        cluster(0),
        json!({
            "chief": ["tune-chief-0.team.svc:3000"],
            "ps": ["tune-ps-0.team.svc:2222", "tune-ps-0.team.svc.b.example.com:2222"],
            "worker": [
                "tune-worker-0.team.svc:2222",
                "tune-worker-0.team.svc.b.example.com:2222",
                "tune-worker-1.team.svc.b.example.com:2222",
            ],
        })
    );
    let chief = &cluster(1)["chief"];
    assert_eq!(*chief, json!(["tune-chief-0.team.svc.a.example.com:3000"]));
    let task = ["MUSTER_TASK_TYPE", "MUSTER_TASK_OFFSET"];
    assert_eq!(task.map(|name| told(0, name)), ["worker", "0"]);
    assert_eq!(task.map(|name| told(1, name)), ["worker", "1"]);
    assert_eq!(worker(1)["command"][0], "/bin/sh");
    // The part with the chief ends with it, the other when all of its workers have ended.
    let policy = |index: usize| {
        let mut fields = parts[index].fields.iter();
        fields.find(|(path, _)| path == "/spec/successPolicy")
    };
    assert_eq!(policy(0), None);
    assert_eq!(policy(1).unwrap().1, "AllWorkers");
}

#[test]
fn a_tfjob_without_addresses_is_not_split() {
    let shares = tensorflow_shares();
    let reach = Reach {
        leader: Some("tune-chief-0.a".to_owned()),
        hosts: [(ClusterName::new("a"), "{host}.a".to_owned())].into(),
    };
    let error = parts(&yaml(TENSORFLOW), Attempt(1), &shares, &reach, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no address is known at which its other pods could reach its pods on b"
    );
}

#[test]
fn pods_of_a_job_with_a_service_have_the_address_of_the_first() {
    let template = yaml(
        "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: j}, spec: {plugins: {svc: []}, tasks: [
            {name: w, replicas: 4, template: {spec: {containers: [{name: c}]}}}]}}",
    );
    let shares = shares(&[("a", &[("w", 2)]), ("b", &[("w", 2)])]);
    let told = |address: Option<&str>| {
        let parts = parts(&template, Attempt(1), &shares, &leader(address), false).unwrap();
        let of = |part: &RenderedPart| {
            let tasks = field(part, "/spec/tasks");
            variable(
                &tasks[0]["template"]["spec"]["containers"][0],
                "MUSTER_LEADER_ADDRESS",
            )
        };
        parts.iter().map(of).collect::<Vec<_>>()
    };
    let (own, other) = (Some(json!("j-w-0.j")), Some(json!("j-w-0.j.a.example.com")));
    assert_eq!(told(Some("j-w-0.j.a.example.com")), [own.clone(), other]);
    assert_eq!(told(None), [own, None]);
}
