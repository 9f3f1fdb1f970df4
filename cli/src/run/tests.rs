#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::args::{Cli, CliCommand};
use clap::Parser as _;
use runtime::testing::FakeApi;
use serde_json::{Value, json};

/// Returns the arguments of a command line.
fn args(line: &str) -> RunCommand {
    let words = ["kubectl-muster", "run"]
        .into_iter()
        .chain(line.split_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        CliCommand::Run(args) => *args,
        other => panic!("{other:?}"),
    }
}

/// Returns what Muster reads from the job that a command line asks for.
fn read(line: &str) -> String {
    let job = manifest::job(&args(line), "vision");
    let spec = workload::read_spec(&job).unwrap();
    let roles = spec.roles.iter().map(|role| {
        let gpus = role.request.iter().filter(|(name, _)| name.is_device());
        let gpus: Vec<String> = gpus
            .map(|(name, amount)| format!("{name} {}", amount.0))
            .collect();
        format!("{} {} × ({})", role.name, role.count, gpus.join(", "))
    });
    let roles: Vec<String> = roles.collect();
    let queue = workload::named_queue(&job).unwrap_or_default();
    let time = spec.expected_duration_ms;
    format!(
        "{} min {} queue {queue:?} time {time:?}",
        roles.join("; "),
        spec.min_available
    )
}

#[test]
fn a_job_is_read_as_its_user_meant_it() {
    let common = "--image i --gpus 8 --nodes 2 --queue q --time 2h";
    let lines = [
        read(&format!("{common} -- python train.py --lr 1")),
        read(&format!("{common} --framework pytorch")),
        read(&format!("{common} --framework volcano")),
        read("--image i --framework pytorch --gpus 4 --device amd.com/gpu"),
        read("--image i"),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r#"
    main 2 × (nvidia.com/gpu 8) min 2 queue "q" time Some(7200000)
    master 1 × (nvidia.com/gpu 8); worker 1 × (nvidia.com/gpu 8) min 2 queue "q" time Some(7200000)
    main 2 × (nvidia.com/gpu 8) min 2 queue "q" time Some(7200000)
    master 1 × (amd.com/gpu 4) min 1 queue "" time None
    main 1 × () min 1 queue "" time None
    "#);
}

#[test]
fn the_manifest_has_no_more_than_what_was_asked_for() {
    let least = manifest::job(&args("--image busybox"), "vision");
    insta::assert_snapshot!(serde_saphyr::to_string(&least).unwrap(), @r"
    apiVersion: batch/v1
    kind: Job
    metadata:
      generateName: run-
      namespace: vision
    spec:
      backoffLimit: 0
      completionMode: Indexed
      completions: 1
      parallelism: 1
      template:
        spec:
          containers:
          - image: busybox
            name: main
          restartPolicy: Never
    ");
    let most = args(
        "--image i --gpus 1 --cpus 4 --memory 16Gi --env A=b=c --mount data:/data --node-selector zone=a --name train \
         --priority high --queue q --time 90m -- sh -c true",
    );
    let most = manifest::job(&most, "vision");
    insta::assert_snapshot!(serde_saphyr::to_string(&most).unwrap(), @r#"
    apiVersion: batch/v1
    kind: Job
    metadata:
      annotations:
        muster.io/expected-duration: 5400s
      labels:
        muster.io/priority-class: high
        muster.io/queue: q
      name: train
      namespace: vision
    spec:
      backoffLimit: 0
      completionMode: Indexed
      completions: 1
      parallelism: 1
      template:
        spec:
          containers:
          - command:
            - sh
            - -c
            - "true"
            env:
            - name: A
              value: b=c
            image: i
            name: main
            resources:
              limits:
                nvidia.com/gpu: "1"
              requests:
                cpu: "4"
                memory: 16Gi
            volumeMounts:
            - mountPath: /data
              name: claim-0
            - mountPath: /dev/shm
              name: shared-memory
          nodeSelector:
            zone: a
          restartPolicy: Never
          volumes:
          - name: claim-0
            persistentVolumeClaim:
              claimName: data
          - emptyDir:
              medium: Memory
            name: shared-memory
    "#);
}

#[test]
fn wrong_arguments_name_what_is_needed() {
    for (line, wanted) in [
        ("--gpus 1", "--image"),
        ("--image i --env A", "KEY=VALUE is needed"),
        ("--image i --mount data", "CLAIM:PATH is needed"),
        ("--image i --mount data:relative", "from / on"),
        ("--image i --nodes 0", "1.."),
        ("--image i --framework slurm", "pytorch"),
        ("--image i python", "unexpected argument"),
    ] {
        let words = ["kubectl-muster", "run"]
            .into_iter()
            .chain(line.split_whitespace());
        let error = Cli::try_parse_from(words).unwrap_err().to_string();
        assert!(error.contains(wanted), "{line}: {error}");
    }
}

fn plane() -> FakeApi {
    let api = FakeApi::new();
    let resource = json!({
        "name": "jobs", "singularName": "", "namespaced": true, "kind": "Job", "verbs": ["create"],
    });
    let list = json!({
        "kind": "APIResourceList", "groupVersion": "batch/v1", "resources": [resource],
    });
    api.document("/apis/batch/v1", list);
    api
}

#[tokio::test]
async fn a_job_is_created_and_its_next_commands_are_named() {
    let api = plane();
    let client = api.client_in("vision");
    let args = args("--image i --gpus 4 --nodes 2 --name train");
    let created = create(&args, &client).await.unwrap();
    assert_eq!(reference(&created), "job.batch/train");
    let path = "/apis/batch/v1/namespaces/vision/jobs/train";
    let stored = api.get(path).unwrap();
    assert_eq!(stored["spec"]["completionMode"], "Indexed");
    let group = |status: Value| -> ListedJob {
        let group = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {"name": "train-job", "namespace": "vision"},
            "spec": {"queue": "vision"}, "status": status,
        });
        ListedJob::of(serde_json::from_value(group).unwrap()).unwrap()
    };
    let waits = group(json!({"phase": "Pending", "federation": {
        "position": 3, "reason": "WaitingForQuota",
        "start": {"earliest": "2026-11-25T11:00:00Z", "latest": "2026-11-25T12:00:00Z", "basis": "", "past": ""},
    }}));
    let texts = [
        next_steps(&args, &created, Some(&waits), Some("vision")),
        next_steps(&args, &created, None, None),
    ];
    insta::assert_snapshot!(texts.join("\n"), @r"
    Asks for  2 pods with 4 nvidia.com/gpu each
    State     Queued: WaitingForQuota (queue vision, position 3)
    Start     from 2026-11-25T11:00:00Z to 2026-11-25T12:00:00Z
    Next      kubectl muster explain train -n vision
              kubectl muster logs -f train -n vision
              kubectl muster wait train -n vision
              kubectl muster cancel train -n vision

    Asks for  2 pods with 4 nvidia.com/gpu each
    State     Muster has not seen it yet. Is the namespace vision managed (label muster.io/managed=true)?
    Next      kubectl muster explain train
              kubectl muster logs -f train
              kubectl muster wait train
              kubectl muster cancel train
    ");
    let again = create(&args, &client).await.unwrap_err();
    assert!(again.to_string().contains("already exists"), "{again}");
}

#[tokio::test]
async fn a_dry_run_creates_nothing() {
    let api = plane();
    let client = api.client_in("vision");
    let created = create(&args("--image i --dry-run=client"), &client)
        .await
        .unwrap();
    assert_eq!(reference(&created), "job.batch/run-");
    assert!(api.requests().is_empty());
}
