#![allow(clippy::unwrap_used)]
use super::*;
use crate::jobs::tests::{client, plane};
use runtime::testing::FakeApi;
use serde_json::json;

/// Waits for a job, while `change` is merged into the status of its PodGroup step by step.
async fn waited(
    api: &FakeApi,
    name: &str,
    goal: WaitGoal,
    changes: &[serde_json::Value],
) -> (Result<u8>, String) {
    let client = client(api);
    let mut lines = Vec::new();
    let path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups/next-job";
    let user = async {
        for change in changes {
            sleep(Duration::from_millis(50)).await;
            match change.is_null() {
                true => api.remove(path),
                false => api.merge(path, &json!({"status": {"federation": change}})),
            }
        }
    };
    let mut say = |line: &str| lines.push(line.to_owned());
    let (code, ()) = tokio::join!(until(name, goal, &client, &mut say), user);
    (code, lines.join("\n"))
}

#[tokio::test]
async fn a_job_is_waited_for_until_it_has_ended() {
    let api = plane();
    let changes = [
        json!({"status": "Starting", "position": null, "reason": "Placed", "placementSummary": "gpu-a:4"}),
        json!({"status": "Running", "reason": "Running"}),
        json!({"status": "Running", "reason": "Running", "message": "the same to a reader"}),
        json!({"status": "Failed", "reason": "Failed", "message": "failed: Error, exit code 42 (OOM)"}),
    ];
    let (code, lines) = waited(&api, "next", WaitGoal::Finished, &changes).await;
    assert_eq!(code.unwrap(), 42);
    insta::assert_snapshot!(lines, @r"
    job.batch/next Queued at 1: WaitingForQuota
    job.batch/next Starting on gpu-a:4: Placed
    job.batch/next Running on gpu-a:4
    job.batch/next Failed: failed: Error, exit code 42 (OOM)
    ");
    // It is known already.
    let (code, _) = waited(&api, "job/next", WaitGoal::Running, &[]).await;
    assert_eq!(code.unwrap(), 42);
}

#[tokio::test]
async fn a_job_is_waited_for_until_it_runs() {
    let api = plane();
    let changes = [json!({"status": "Running", "position": null, "reason": "Running"})];
    let (code, _) = waited(&api, "next", WaitGoal::Running, &changes).await;
    assert_eq!(code.unwrap(), 0);
}

#[tokio::test]
async fn a_job_that_is_deleted_ends_the_wait() {
    let api = plane();
    let gone = [serde_json::Value::Null];
    let (code, _) = waited(&api, "next", WaitGoal::Finished, &gone).await;
    assert_eq!(code.unwrap_err().to_string(), "job.batch/next was deleted");
}

#[tokio::test(start_paused = true)]
async fn a_name_of_no_job_is_an_error_after_a_while() {
    let (code, _) = waited(&plane(), "gone", WaitGoal::Finished, &[]).await;
    let error = code.unwrap_err().to_string();
    assert!(error.contains("there is no PodGroup of it"), "{error}");
}

#[test]
fn the_exit_code_is_that_of_the_container_where_the_message_names_it() {
    for (message, code) in [
        ("failed: Error, exit code 134 (NVRM: Xid 79)", 134),
        ("failed: DeadlineExceeded", 1),
        ("exit code 0", 1),
        ("exit code 3", 3),
        ("exit code 4000", 1),
        ("only after the exit codes 3", 1),
        ("", 1),
    ] {
        assert_eq!(exit_code(message), code, "{message:?}");
    }
}
