//! Measures `kubectl muster logs -f` with many pods that write much: `cargo test -p cli --test log_streams --
//! --ignored --nocapture`.
//!
//! A server stands in for the control plane, the members and the kubelets. Each line says when it was written and has a
//! number, so that the time to its print is measured, and a line that is lost or doubled is found.
#![allow(clippy::unwrap_used)]

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery};
use axum::response::Json;
use axum::routing::get;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// How often a pod writes, in milliseconds.
const BEAT: u64 = 10;

/// One case: pods, lines of each in a second, seconds.
const CASES: [(usize, u64, u64); 3] = [(1, 10, 5), (64, 10, 5), (64, 1000, 10)];

fn pod_group(pods: usize) -> Value {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "t"});
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "train-job", "namespace": "n", "uid": "g", "resourceVersion": "1",
            "ownerReferences": [owner]},
        "status": {"phase": "Running", "federation": {"status": "Running", "attempt": 1,
            "placement": [{"cluster": "a", "pods": pods}]}}})
}

fn pod(index: usize) -> Value {
    json!({"metadata": {"name": format!("train-{index}"), "namespace": "n", "uid": index.to_string(),
            "annotations": {"batch.kubernetes.io/job-completion-index": index.to_string()},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "t", "controller": true},
            ]},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "image": "i", "imageID": "i",
            "ready": true, "restartCount": 0, "containerID": "c", "state": {"running": {}}}]}})
}

/// Writes lines for ever: number and time.
fn lines(rate: u64) -> Body {
    let beats = futures::stream::unfold(0_u64, move |number| async move {
        tokio::time::sleep(Duration::from_millis(if rate < 100 {
            1000 / rate
        } else {
            BEAT
        }))
        .await;
        let count = if rate < 100 { 1 } else { rate * BEAT / 1000 };
        let mut text = String::new();
        for line in number..number + count {
            let now = Timestamp::now();
            writeln!(
                text,
                "{now} {line} {} loss 0.31 of a step of training",
                now.as_microsecond()
            )
            .unwrap();
        }
        Some((Ok::<_, std::io::Error>(Bytes::from(text)), number + count))
    });
    Body::from_stream(beats)
}

async fn serve(pods: usize, rate: u64) -> std::net::SocketAddr {
    let groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/n/podgroups";
    let members = "/apis/cluster.karmada.io/v1alpha1/clusters/a/proxy/api/v1/namespaces/n/pods";
    let index = |name: &str| name.rsplit('-').next().unwrap().parse::<usize>().unwrap();
    let router = Router::new()
        .route(
            groups,
            get(move || async move {
                Json(json!({"metadata": {"resourceVersion": "1"}, "items": [pod_group(pods)]}))
            }),
        )
        .route(
            &format!("{groups}/train-job"),
            get(move || async move { Json(pod_group(pods)) }),
        )
        .route(
            members,
            get(move || async move {
                let items: Vec<Value> = (0..pods).map(pod).collect();
                Json(json!({"metadata": {"resourceVersion": "1"}, "items": items}))
            }),
        )
        .route(
            &format!("{members}/{{name}}"),
            get(move |Path(name): Path<String>| async move { Json(pod(index(&name))) }),
        )
        .route(
            &format!("{members}/{{name}}/log"),
            get(move |RawQuery(_): RawQuery| async move { lines(rate) }),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, router).await });
    address
}

async fn measure((pods, rate, seconds): (usize, u64, u64)) {
    let address = serve(pods, rate).await;
    let folder = std::env::temp_dir().join(format!("muster-log-streams-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let kubeconfig = folder.join("kubeconfig");
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "n"}}]});
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-muster"))
        .args(["logs", "train", "-f", "--prefix", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut output = BufReader::with_capacity(1 << 20, child.stdout.take().unwrap()).lines();
    let mut next = vec![0_u64; pods];
    let mut late = Vec::new();
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    while let Ok(line) = tokio::time::timeout_at(end, output.next_line()).await {
        let line = line.unwrap().unwrap();
        let (rank, rest) = line.strip_prefix('[').unwrap().split_once("/a] ").unwrap();
        let mut words = rest.split(' ');
        let number: u64 = words.next().unwrap().parse().unwrap();
        let written: i64 = words.next().unwrap().parse().unwrap();
        let rank: usize = rank.parse().unwrap();
        assert_eq!(number, next[rank], "of rank {rank}");
        next[rank] += 1;
        late.push(Timestamp::now().as_microsecond() - written);
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id().unwrap())).unwrap();
    let memory = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap()
        .to_owned();
    child.kill().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    late.sort_unstable();
    let millis = |part: usize| late[(late.len() - 1) * part / 100] as f64 / 1000.0;
    println!(
        "{pods} pods x {rate} lines/s for {seconds} s: {} lines, p50 {:.1} ms, p99 {:.1} ms, {memory}",
        late.len(),
        millis(50),
        millis(99),
    );
    assert!(next.iter().all(|lines| *lines > 0), "each pod is read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn many_pods_that_write_much() {
    for case in CASES {
        measure(case).await;
    }
}
