//! A server in the place of an API server and a kubelet gives the answers that each test has written down.
#![allow(clippy::unwrap_used)]
use super::*;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// An answer to a request of a log.
struct CannedAnswer {
    previous: bool,
    /// Lines of the run: second and text.
    lines: Vec<(f64, &'static str)>,
    /// After how many bytes the connection is lost.
    lost_after: Option<usize>,
}

#[derive(Default)]
struct ServerScript {
    /// The pod at each request; the last one stays.
    pods: VecDeque<Value>,
    answers: VecDeque<CannedAnswer>,
}

type Shared = std::sync::Arc<Mutex<ServerScript>>;

async fn pod(State(script): State<Shared>) -> Response {
    let mut script = script.lock().unwrap();
    let pod = match script.pods.len() {
        1 => script.pods[0].clone(),
        _ => script.pods.pop_front().unwrap(),
    };
    match pod {
        Value::Null => {
            let status = json!({
                "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "",
            });
            (axum::http::StatusCode::NOT_FOUND, Json(status)).into_response()
        }
        pod => Json(pod).into_response(),
    }
}

async fn log(State(script): State<Shared>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default().replace("%3A", ":");
    let query: HashMap<&str, &str> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .collect();
    let answer = script.lock().unwrap().answers.pop_front().unwrap();
    assert_eq!(query.contains_key("previous"), answer.previous, "{query:?}");
    let since: Option<Timestamp> = query.get("sinceTime").map(|time| time.parse().unwrap());
    let mut text = String::new();
    for (second, line) in answer.lines {
        let time = at(second);
        if since.is_none_or(|since| since <= time) {
            text += &format!("{time} {line}\n");
        }
    }
    let Some(lost_after) = answer.lost_after else {
        return text.into_response();
    };
    let sent = Bytes::from(text.into_bytes()[..lost_after].to_vec());
    let parts = futures::stream::iter([Ok(sent), Err(std::io::Error::other("lost"))]);
    Body::from_stream(parts).into_response()
}

fn at(second: f64) -> Timestamp {
    let begun: Timestamp = "2026-11-30T10:00:00Z".parse().unwrap();
    begun + jiff::SignedDuration::from_secs_f64(second)
}

/// Returns a pod with the run `id` of its container.
fn run(id: &str, restarts: i32, runs: bool, phase: &str) -> Value {
    let state = match runs {
        true => json!({"running": {}}),
        false => json!({"terminated": {"exitCode": 0, "containerID": id}}),
    };
    json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "status": {"phase": phase, "containerStatuses": [{
        "name": "main", "image": "i", "imageID": "i", "ready": runs, "restartCount": restarts, "containerID": id,
        "state": state, "lastState": {"terminated": {"exitCode": 7, "reason": "Error"}},
    }]}})
}

async fn client(script: &Shared) -> Client {
    let router = Router::new()
        .route("/api/v1/namespaces/n/pods/p", get(pod))
        .route("/api/v1/namespaces/n/pods/p/log", get(log))
        .with_state(script.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, router).await });
    runtime::client::install_crypto();
    Client::try_from(Config::new(format!("http://{address}").parse().unwrap())).unwrap()
}

/// Follows the container of a pod, and returns its lines and notes.
async fn followed(pods: &[Value], answers: Vec<CannedAnswer>) -> Vec<String> {
    let script = Shared::default();
    script.lock().unwrap().pods = pods.iter().cloned().collect();
    script.lock().unwrap().answers = answers.into();
    let (feeds, receiver) = unbounded_channel();
    let source = LogSource {
        id: 0,
        api: Api::namespaced(client(&script).await, "n"),
        cluster: "gpu-a".to_owned(),
        namespace: "n".to_owned(),
        pod: "p".to_owned(),
        uid: "u".to_owned(),
        container: "main".to_owned(),
        since_seconds: None,
        tail: None,
        feeds,
        budget: std::sync::Arc::new(Semaphore::new(BUDGET)),
    };
    source.follow().await;
    assert_eq!(
        script.lock().unwrap().answers.len(),
        0,
        "all answers were asked for"
    );
    received(receiver)
}

fn received(mut feeds: UnboundedReceiver<Feed>) -> Vec<String> {
    let mut all = Vec::new();
    while let Ok(feed) = feeds.try_recv() {
        match feed {
            Feed::Lines(_, block) => {
                let lines = block
                    .lines
                    .iter()
                    .map(|line| line.bytes(&block.bytes, false).to_vec());
                all.extend(lines.map(|line| String::from_utf8(line).unwrap()));
            }
            Feed::Note(_, text) => all.push(text),
            Feed::Ended(_) => all.push("end".to_owned()),
            Feed::Opened(_) => {}
        }
    }
    all
}

fn answer(lines: &[(f64, &'static str)], lost_after: Option<usize>) -> CannedAnswer {
    CannedAnswer {
        previous: false,
        lines: lines.to_vec(),
        lost_after,
    }
}

#[tokio::test]
async fn a_lost_connection_loses_and_doubles_no_line() {
    let lines = [(1.1, "a"), (1.1, "a"), (2.5, "b"), (2.75, "c"), (9.0, "d")];
    // The second line "c" is cut in its middle.
    let cut = "2026-11-30T10:00:01.1Z a\n".len() * 3 + "2026-11-30T10:00:02.75".len();
    let pods = [
        run("1", 0, true, "Running"),
        run("1", 0, true, "Running"),
        run("1", 0, false, "Succeeded"),
    ];
    let answers = vec![
        answer(&lines[..4], Some(cut)),
        // A proxy ends an answer as if it were whole.
        answer(&lines[..4], None),
        answer(&lines, None),
    ];
    assert_eq!(
        followed(&pods, answers).await,
        ["a", "a", "b", "c", "d", "end"]
    );
}

#[tokio::test]
async fn the_rest_of_a_run_is_read_after_the_container_was_started_again() {
    let (first, second) = (
        [(1.0, "a"), (2.0, "b"), (2.1, "fails")],
        [(4.0, "a"), (5.0, "ends")],
    );
    let pods = [
        run("1", 0, true, "Running"),
        run("2", 1, true, "Running"),
        run("2", 1, false, "Succeeded"),
    ];
    let answers = vec![
        // The end of the first run does not come.
        answer(&first[..2], Some("2026-11-30T10:00:01Z a\n".len())),
        CannedAnswer {
            previous: true,
            ..answer(&first, None)
        },
        answer(&second[..1], None),
        answer(&second, None),
    ];
    let note =
        "note: gpu-a/p container main was started again (the run before: Error, exit code 7)";
    assert_eq!(
        followed(&pods, answers).await,
        ["a", "b", "fails", note, "a", "ends", "end"]
    );
}

#[tokio::test]
async fn a_pod_that_is_gone_or_another_one_ends_its_output() {
    let answers = || vec![answer(&[(1.0, "a")], None)];
    let mut other = run("2", 0, true, "Running");
    other["metadata"]["uid"] = json!("other");
    for end in [Value::Null, other] {
        let pods = [run("1", 0, true, "Running"), end];
        assert_eq!(followed(&pods, answers()).await, ["a", "end"]);
    }
}

#[tokio::test]
async fn runs_that_nobody_saw_are_said_to_be_lost() {
    let pods = [run("1", 0, false, "Running"), run("4", 3, false, "Failed")];
    let answers = vec![answer(&[(1.0, "a")], None), answer(&[(9.0, "z")], None)];
    let lines = followed(&pods, answers).await;
    assert_eq!((lines[0].as_str(), lines[2].as_str()), ("a", "z"));
    assert!(
        lines[1].ends_with("exit code 7; what it wrote in runs between is lost)"),
        "{lines:?}"
    );
}
