#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::testing::{asked, asked_with, yaml};
use crate::{growth, named_queue, read_spec, warnings};
use insta::assert_snapshot;

/// The job that volcano-global charges 1 CPU.
const PS_AND_WORKERS: &str = r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train, namespace: team-a}
spec:
  minAvailable: 9
  queue: vision
  priorityClassName: high
  networkTopology: {mode: hard, highestTierAllowed: 2}
  tasks:
  - name: ps
    replicas: 1
    template:
      spec:
        containers: [{name: ps, image: ps, resources: {requests: {cpu: 1}}}]
  - name: worker
    replicas: 8
    template:
      spec:
        nodeSelector: {gpu: h100}
        containers: [{name: w, image: w, resources: {limits: {cpu: 16, memory: 128Gi, nvidia.com/gpu: 8}}}]
"#;

#[test]
fn all_tasks_are_counted() {
    assert_snapshot!(asked(PS_AND_WORKERS), @r#"
    ps 1 × (cpu 1, pods 1)
    worker 8 × (cpu 16, memory 128Gi, nvidia.com/gpu 8, pods 1)
      on gpu in ["h100"]
    min 9 (cpu 129, memory 1Ti, nvidia.com/gpu 64, pods 9)
    members ps 1, worker 8
    queue vision
    class high
    topology {"highestTierAllowed":2,"mode":"hard"}
    "#);
    let spec = read_spec(&yaml(PS_AND_WORKERS)).unwrap();
    let gpu = facts::ResourceName::new("nvidia.com/gpu");
    let gpus = spec
        .roles
        .iter()
        .map(|role| role.request.amount_of(&gpu).0 * i64::from(role.count));
    assert_eq!(gpus.sum::<i64>(), 64);
}

/// A job of tasks `(name, replicas, minAvailable, CPU of a pod)`, each of the class of its name.
fn job(min: &str, tasks: &[(&str, &str, &str, &str)]) -> String {
    let mut text = format!(
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec:\n  minAvailable: {min}\n  tasks:\n"
    );
    for (name, replicas, min, cpu) in tasks {
        text += &format!(
            "  - {{name: {name}, replicas: {replicas}, minAvailable: {min}, template: {{spec: {{priorityClassName: {name}, containers: [{{resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}}}\n"
        );
    }
    text
}

#[test]
fn minimums_default_as_volcano_sets_them() {
    assert_snapshot!(asked(&job("null", &[("null", "4", "null", "1"), ("b", "3", "1", "1"), ("c", "null", "null", "1")])), @r"
    default0 4 × (cpu 1, pods 1)
    b 3 × (cpu 1, pods 1) min 1
    c 0 × (cpu 1, pods 1)
    min 5 (cpu 5, pods 5)
    members b 1, c 0, default0 4
    ");
}

/// The cases of Volcano's own TestCalcPGMinResources: 2 masters of 50m, 2 workers of 100m.
#[test]
fn min_resources_are_volcanos() {
    for (job_min, master_min, worker_min, want) in [
        ("2", "1", "null", "min 2 (cpu 100m, pods 2)"),
        ("2", "null", "1", "min 2 (cpu 100m, pods 2)"),
        ("3", "null", "null", "min 3 (cpu 200m, pods 3)"),
        ("3", "1", "1", "min 3 (cpu 200m, pods 3)"),
        ("3", "1", "null", "min 3 (cpu 250m, pods 3)"),
        ("2", "1", "1", "min 2 (cpu 150m, pods 2)"),
    ] {
        let tasks = [
            ("master", "2", master_min, "50m"),
            ("worker", "2", worker_min, "100m"),
        ];
        let got = asked(&job(job_min, &tasks));
        assert!(
            got.contains(want),
            "{job_min} {master_min} {worker_min}: {got}"
        );
    }
}

#[test]
fn the_task_of_higher_priority_comes_first_in_min_resources() {
    let template = job("2", &[("low", "4", "0", "1"), ("high", "4", "0", "8")]);
    let line = |text: String| {
        text.lines()
            .find(|line| line.starts_with("min"))
            .unwrap()
            .to_owned()
    };
    assert_eq!(line(asked(&template)), "min 2 (cpu 2, pods 2)");
    assert_eq!(
        line(asked_with(&template, &[("high", 10), ("low", 1)])),
        "min 2 (cpu 16, pods 2)"
    );
}

#[test]
fn a_minimum_below_the_sum_of_its_tasks_ignores_their_minimums() {
    assert_snapshot!(asked(&job("5", &[("a", "4", "4", "1"), ("b", "4", "4", "2")])), @r"
    a 4 × (cpu 1, pods 1) min 0
    b 4 × (cpu 2, pods 1) min 0
    min 5 (cpu 6, pods 5)
    members a 4, b 4
    ");
}

#[test]
fn partitions_set_the_minimum() {
    assert_snapshot!(asked(r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
spec:
  tasks:
  - name: w
    replicas: 8
    partitionPolicy: {totalPartitions: 4, partitionSize: 2, minPartitions: 3}
    template: {spec: {containers: [{}]}}
"#), @r"
    w 8 × (pods 1) min 6
    min 6 (pods 6)
    members w 6
    ");
}

#[test]
fn invalid_values_are_named() {
    for (min, replicas, task_min, cpu) in [
        ("-1", "1", "1", "1"),
        ("1", "-4", "null", "1"),
        ("1", "1000001", "null", "1"),
        ("1", "eight", "null", "1"),
        ("1", "2.5", "null", "1"),
        ("3", "2", "null", "1"),
        ("1", "2", "3", "1"),
        ("1", "2", "1", "-1"),
        ("1", "2", "1", "1x"),
        ("1", "2", "1", "9223372036854775"),
        ("1", "2", "1", "9223372036854775807"),
        ("1", "2", "1", "[1]"),
    ] {
        let got = asked(&job(min, &[("w", replicas, task_min, cpu)]));
        assert!(got.starts_with("InvalidTemplate: spec."), "{got}");
    }
    let errors: Vec<String> = [
        job("1", &[("w", "-4", "null", "1")]),
        job("3", &[("w", "2", "null", "1")]),
        job("1", &[("w", "2", "3", "1")]),
        job("1", &[("w", "2", "1", "-1")]),
        job("1", &[("w", "2", "1", "9223372036854775")]),
        job("1", &[("w", "2", "1", "9223372036854775807")]),
        job("1", &[("w", "2", "1", "1"), ("w", "2", "1", "1")]),
        job("1", &[("a", "600000", "1", "1"), ("b", "600000", "1", "1")]),
        job("1", &[]),
        "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {tasks: [{name: w}]}}".to_owned(),
        "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {tasks: {name: w}}}".to_owned(),
        "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: none}".to_owned(),
    ]
    .iter()
    .map(|template| asked(template))
    .collect();
    assert_snapshot!(errors.join("\n"), @r#"
    InvalidTemplate: spec.tasks[0].replicas is -4; needed: a whole number from 0 to 1000000
    InvalidTemplate: spec.minAvailable is 3; needed: at most 2, the replicas of all tasks
    InvalidTemplate: spec.tasks[0].minAvailable is 3; needed: at most 2, the task's replicas
    InvalidTemplate: spec.tasks[0].template.spec.containers[0].resources.requests[cpu] is -1; needed: 0 or more
    InvalidTemplate: spec.tasks[0].template.spec is 2 pods of cpu 9223372036854775, pods 1; needed: amounts whose sum can be counted in 63 bits
    InvalidTemplate: spec.tasks[0].template.spec.containers[0].resources.requests[cpu] is 9223372036854775807; needed: at most 2^63-1 base units
    InvalidTemplate: spec.tasks is "w" twice; needed: a name of its own for each group of pods
    InvalidTemplate: spec.tasks is 1200000 pods in all; needed: at most 1000000 pods
    InvalidTemplate: spec.tasks is absent; needed: at least one task
    InvalidTemplate: spec.tasks[0].template.spec.containers is absent; needed: at least one container
    InvalidTemplate: spec.tasks is an object; needed: a list
    InvalidTemplate: spec is "none"; needed: an object
    "#);
}

#[test]
fn the_default_queue_of_the_schema_does_not_count() {
    let mut template = yaml(PS_AND_WORKERS);
    assert_eq!(named_queue(&template).as_deref(), Some("vision"));
    template["spec"]["queue"] = "default".into();
    assert_eq!(named_queue(&template), None);
    template["metadata"]["labels"] = serde_json::json!({"muster.io/queue": "speech"});
    assert_eq!(named_queue(&template).as_deref(), Some("speech"));
}

#[test]
fn long_task_names_cause_a_warning() {
    let mut template = yaml(PS_AND_WORKERS);
    assert_eq!(warnings(&template), Vec::<String>::new());
    template["spec"]["tasks"][1]["name"] = "w".repeat(33).into();
    assert_snapshot!(warnings(&template).join("\n"), @r#"spec.tasks[1].name: "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww" has 33 characters; Karmada refuses the binding of a job with more than 32 where its gate MultiplePodTemplatesScheduling is on; use a shorter name"#);
    assert!(read_spec(&template).is_ok());
}

#[test]
fn an_event_with_two_actions_causes_a_warning() {
    let refused = |policies: &str| {
        let mut template = yaml(PS_AND_WORKERS);
        template["spec"]["policies"] = yaml(policies);
        warnings(&template).join("\n")
    };
    let fine = "[{event: PodFailed, action: AbortJob}, {events: [PodEvicted, PodEvicted], action: RestartJob}, {exitCode: 3, action: AbortJob}]";
    assert_eq!(refused(fine), "");
    assert_eq!(refused("[{event: '*', action: RestartJob}]"), "");
    assert_snapshot!(refused("[{event: PodFailed, action: RestartJob}, {events: [PodEvicted, PodFailed], action: AbortJob}]"), @"spec.policies[1] names event PodFailed, for which another policy has an action; Volcano's webhook of a member refuses such a job; leave one policy for each event, and none beside *");
    assert_snapshot!(refused("[{event: PodFailed, action: RestartJob}, {event: '*', action: AbortJob}]"), @"spec.policies[1] names event *, for which another policy has an action; Volcano's webhook of a member refuses such a job; leave one policy for each event, and none beside *");
}

#[test]
fn more_workers_are_growth_whatever_the_minimum_says() {
    let old = yaml(PS_AND_WORKERS);
    let mut new = old.clone();
    new["spec"]["minAvailable"] = 5.into();
    assert_eq!(growth(&old, &new).unwrap().to_string(), "no growth");
    new["spec"]["tasks"][1]["replicas"] = 9.into();
    assert_eq!(
        growth(&old, &new).unwrap().to_string(),
        "pods of worker: 8 -> 9"
    );
}
