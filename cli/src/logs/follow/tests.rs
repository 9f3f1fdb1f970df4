#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;

fn found(pods: &[serde_json::Value]) -> FoundPods {
    let pods = pods.iter().map(|status| {
        let pod = json!({"metadata": {"name": "p"}, "status": {"containerStatuses": status}});
        JobPod {
            cluster: "gpu-a".to_owned(),
            rank: 0,
            task: "main".to_owned(),
            pod: serde_json::from_value(pod).unwrap(),
        }
    });
    FoundPods {
        job: crate::jobs::tests::job("train", "batch/v1", "Job", "{}", "{}"),
        pods: pods.collect(),
        away: Vec::new(),
    }
}

#[test]
fn the_exit_code_is_that_of_the_first_container_that_failed() {
    let ended = |code: i32, at: &str| {
        json!([{"name": "main", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "finishedAt": at}}}])
    };
    let failed = found(&[
        ended(143, "2026-11-30T10:00:09Z"),
        ended(42, "2026-11-30T10:00:05Z"),
        ended(0, "2026-11-30T10:00:01Z"),
    ]);
    for (status, pods, want) in [
        (StatusWord::Succeeded, Some(&failed), 0),
        (StatusWord::Failed, Some(&failed), 42),
        (StatusWord::Failed, Some(&found(&[])), 1),
        (StatusWord::Finished, None, 1),
    ] {
        assert_eq!(code(status, pods), want, "{status}");
    }
}

#[test]
fn what_becomes_of_a_job_is_said_once() {
    let queued = "{federation: {status: Queued, position: 1, message: 'short by 8',
        eviction: {time: '2026-11-30T10:00:00Z', reason: Preempted, message: 'for urgent'}}}";
    let running = |attempt: u32, cluster: &str| {
        format!(
            "{{federation: {{status: Running, attempt: {attempt}, placement: [{{cluster: {cluster}, pods: 1}}]}}}}"
        )
    };
    let (first, second) = (running(1, "gpu-a"), running(2, "gpu-b"));
    let mut said = JobNews::default();
    let mut all = Vec::new();
    for status in [&first, &first, queued, queued, &second, &second] {
        let job = crate::jobs::tests::job("train", "batch/v1", "Job", "{}", status);
        let parts = job
            .federation()
            .map(|federation| federation.placement.clone());
        let clusters: Vec<String> = parts
            .unwrap()
            .into_iter()
            .map(|part| part.cluster)
            .collect();
        let (now, texts) = news(&job, &clusters, &said);
        said = now;
        all.extend(texts);
    }
    let want = [
        "job.batch/train was evicted: Preempted: for urgent",
        "job.batch/train is queued at position 1: short by 8",
        "job.batch/train is in gpu-b (attempt 2)",
    ];
    assert_eq!(all, want);
}
