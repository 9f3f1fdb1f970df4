//! The status that follows a placement.

use super::*;

const FULLY_APPLIED: &str = r#"{"type":"FullyApplied","status":"True","reason":"Ok","message":"m",
    "lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":3}"#;

fn fully_applied() -> Value {
    serde_json::from_str(FULLY_APPLIED).unwrap()
}

/// The status without times of now.
fn settled_status(api: &FakeApi) -> Value {
    let mut status = api.get(&path("a")).unwrap()["status"].take();
    assert!(status["lastScheduledTime"].take().is_string());
    for condition in status["conditions"].as_array_mut().unwrap() {
        if condition["type"] == "Scheduled" {
            assert!(condition["lastTransitionTime"].take().is_string());
        }
    }
    status
}

#[tokio::test(start_paused = true)]
async fn a_status_without_earlier_conditions_needs_no_read() {
    let mut bench = bench();
    let binding = bench.put("a", gated());
    let write = Write::Place {
        record: record(1, RecordState::Admitted),
        clusters: Vec::new(),
        affinity_name: Some("near".to_owned()),
    };
    bench.write(&binding, write).await.result.unwrap();
    bench.settle().await;
    insta::assert_json_snapshot!(settled_status(&bench.api), @r#"
    {
      "conditions": [
        {
          "lastTransitionTime": null,
          "message": "Binding has been scheduled successfully.",
          "reason": "Success",
          "status": "True",
          "type": "Scheduled"
        }
      ],
      "lastScheduledTime": null,
      "schedulerObservedGeneration": 2,
      "schedulerObservingAffinityName": "near"
    }
    "#);
    assert!(bench.api.requests_of("GET").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_status_never_loses_a_condition_of_karmada() {
    // Before the placement, or between the placement and its status.
    for before in [true, false] {
        let mut bench = bench();
        let mut object = gated();
        if before {
            object["status"]["conditions"] = json!([fully_applied()]);
        }
        let binding = bench.put("a", object);
        bench
            .api
            .fault(1, Fault::Delay(Duration::from_secs(2)), patches_status);
        bench.write(&binding, place(1)).await.result.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let status = json!({"status": {"conditions": [fully_applied()]}});
        bench.api.merge(&path("a"), &status);
        bench.settle().await;
        let status = settled_status(&bench.api);
        assert_eq!(status["conditions"][0], fully_applied());
        assert_eq!(status["conditions"][1]["type"], "Scheduled");
        assert_eq!(status["schedulerObservedGeneration"], 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_dropped_if_the_job_was_evicted_meanwhile() {
    let mut bench = bench();
    let binding = bench.put("a", gated());
    bench
        .api
        .fault(1, Fault::Delay(Duration::from_secs(2)), patches_status);
    bench.write(&binding, place(1)).await.result.unwrap();
    let placed = slim(bench.api.get(&path("a")).unwrap());
    let record = record(1, RecordState::Ending);
    bench
        .write(&placed, Write::Evict { record })
        .await
        .result
        .unwrap();
    bench.settle().await;
    assert!(bench.api.get(&path("a")).unwrap()["status"].is_null());
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_never_goes_back() {
    let mut bench = bench();
    let mut object = placed();
    object["metadata"]["generation"] = json!(5);
    object["spec"]["rescheduleTriggeredAt"] = json!("2999-01-01T00:00:00Z");
    object["status"] = json!({"conditions": [fully_applied()], "schedulerObservedGeneration": 4});
    let binding = bench.put("a", object);
    bench
        .write(&binding, Write::Ack { reschedule: true })
        .await
        .result
        .unwrap();
    let status = bench.api.get(&path("a")).unwrap()["status"].take();
    assert_eq!(status["schedulerObservedGeneration"], 5);
    // Not before the request, although this clock is: otherwise the request would stay open.
    assert_eq!(status["lastScheduledTime"], "2999-01-01T00:00:00Z");
    assert_eq!(status["conditions"], json!([fully_applied()]));

    let seen = slim(bench.api.get(&path("a")).unwrap());
    let before = bench.api.requests().len();
    bench
        .write(&seen, Write::Ack { reschedule: false })
        .await
        .result
        .unwrap();
    assert_eq!(bench.api.requests().len(), before);
}
