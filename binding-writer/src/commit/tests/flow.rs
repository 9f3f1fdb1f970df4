//! Conflicts, lost answers, order, limits, leadership.

use super::*;

fn version_of(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_placement_is_one_patch_and_its_answer_is_the_version_written() {
    let mut bench = bench();
    let binding = bench.put("a", gated());
    let outcome = bench.write(&binding, place(1)).await;
    assert_eq!(outcome.key.to_string(), "ns/a");
    assert_eq!(outcome.uid, "uid-1");
    assert_eq!(
        (outcome.write, outcome.attempt),
        (WriteKind::Place, Some(Attempt(1)))
    );
    assert_eq!(outcome.result.unwrap().generation, 2);
    let requests = bench.api.requests();
    assert_eq!(requests.iter().filter(|r| patches_whole(r)).count(), 1);
    assert!(requests.iter().all(|request| request.verb == "PATCH"));

    let object = bench.api.get(&path("a")).unwrap();
    assert_eq!(
        object["spec"]["suspension"],
        json!({"scheduling": false, "dispatching": true})
    );
    assert_eq!(object["spec"]["clusters"], json!([{"name": "m1"}]));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_unrelated_field_is_no_conflict() {
    let mut bench = bench();
    let binding = bench.put("a", gated());
    let meanwhile = json!({
        "metadata": {"annotations": {"theirs": "x"}, "finalizers": ["z", "muster.io/accounting"]},
        "spec": {"resource": {"resourceVersion": "77"}},
        "status": {"aggregatedStatus": [{"clusterName": "m1"}]},
    });
    bench.api.merge(&path("a"), &meanwhile);
    let outcome = bench.write(&binding, place(1)).await;
    let object = bench.api.get(&path("a")).unwrap();
    assert_eq!(outcome.result.unwrap().generation, 3);
    assert_eq!(
        object["metadata"]["finalizers"],
        json!(["z", "muster.io/accounting"])
    );
    assert_eq!(object["metadata"]["annotations"]["theirs"], "x");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_what_the_decision_depended_on_is_a_conflict() {
    let other = record(7, RecordState::Admitted).to_annotation().unwrap();
    let changes = [
        (
            "record",
            json!({"metadata": {"annotations": {"muster.io/admission": other}}}),
        ),
        (
            "gate",
            json!({"spec": {"suspension": {"scheduling": false}}}),
        ),
        ("clusters", json!({"spec": {"clusters": [{"name": "m9"}]}})),
        (
            "template",
            json!({"spec": {"resource": {"uid": "another"}}}),
        ),
        (
            "deletion",
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        ),
        ("binding", json!({"metadata": {"uid": "another"}})),
    ];
    for (what, change) in changes {
        let mut bench = bench();
        let binding = bench.put("a", gated());
        bench.api.merge(&path("a"), &change);
        let before = bench.api.get(&path("a"));
        let outcome = bench.write(&binding, place(1)).await;
        assert_eq!(outcome.result, Err(WriteFailure::Conflict), "{what}");
        assert_eq!(bench.api.get(&path("a")), before, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_read_back_and_not_written_twice() {
    for fault in [Fault::LoseAnswer, Fault::DoneButStatus(504, "timeout")] {
        let mut bench = bench();
        let binding = bench.put("a", gated());
        bench.api.fault(1, fault, patches_whole);
        // Reading back may fail for any time: unknown is not failed.
        bench
            .api
            .fault(30, Fault::Status(503, "away"), |r| r.verb == "GET");
        let outcome = bench.write(&binding, place(1)).await;
        let object = bench.api.get(&path("a")).unwrap();
        assert_eq!(
            outcome.result.unwrap().resource_version,
            version_of(&object)
        );
        let requests = bench.api.requests();
        assert_eq!(requests.iter().filter(|r| patches_whole(r)).count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_placement_that_karmada_changed_at_once_counts_as_written() {
    let mut bench = bench();
    let binding = bench.put("a", gated());
    bench.api.fault(1, Fault::LoseAnswer, patches_whole);
    let api = bench.api.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        api.merge(&path("a"), &json!({"spec": {"clusters": [{"name": "m2"}]}}));
    });
    assert!(bench.write(&binding, place(1)).await.result.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_not_done_is_repeated() {
    for fault in [
        Fault::Hang,
        Fault::Status(500, "x"),
        Fault::Status(429, "slow down"),
    ] {
        let mut bench = bench();
        let binding = bench.put("a", gated());
        bench.api.fault(2, fault, patches_whole);
        assert!(bench.write(&binding, place(1)).await.result.is_ok());
        let requests = bench.api.requests();
        assert_eq!(requests.iter().filter(|r| patches_whole(r)).count(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_is_unavailable_at_the_deadline_only_if_it_was_not_done() {
    let mut bench = bench();
    let binding = bench.put("a", gated());
    bench
        .api
        .fault(usize::MAX, Fault::Status(500, "no etcd"), patches_whole);
    let outcome = bench.write(&binding, place(1)).await;
    let message = "no etcd".to_owned();
    assert_eq!(outcome.result, Err(WriteFailure::Unavailable { message }));
    let last = bench.api.requests().pop().unwrap();
    assert_eq!(last.verb, "GET");
}

#[tokio::test(start_paused = true)]
async fn a_definite_refusal_is_not_retried() {
    let mut bench = bench();
    let binding = bench.put("a", gated());
    bench.api.fault(
        1,
        Fault::Status(403, "admission webhook denied"),
        patches_whole,
    );
    let outcome = bench.write(&binding, place(1)).await;
    let message = "admission webhook denied".to_owned();
    assert_eq!(
        outcome.result,
        Err(WriteFailure::Refused { code: 403, message })
    );

    bench.api.remove(&path("a"));
    let outcome = bench.write(&binding, Write::Finalize).await;
    assert_eq!(outcome.result, Err(WriteFailure::Gone));
    assert_eq!(bench.api.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn writes_to_one_binding_keep_their_order() {
    let mut bench = bench();
    let binding = bench.put("a", gated());
    bench
        .api
        .fault(1, Fault::Delay(Duration::from_secs(2)), patches_whole);
    let planned = |attempt| Intent {
        binding: binding.clone(),
        write: Write::Plan {
            record: record(attempt, RecordState::Planned),
        },
    };
    bench.committer.submit(vec![planned(1), planned(2)]);
    bench.committer.submit(vec![planned(3)]);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let outcome = bench.outcomes.recv().await.unwrap();
        seen.push((outcome.attempt.unwrap().0, outcome.result.is_ok()));
    }
    // The second and third were decided on what the first changed.
    assert_eq!(seen, [(1, true), (2, false), (3, false)]);
    assert_eq!(bench.api.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn at_most_sixteen_writes_are_in_flight_and_none_is_lost() {
    let mut bench = bench();
    bench
        .api
        .fault(usize::MAX, Fault::Delay(Duration::from_millis(20)), |_| {
            true
        });
    let intents = (0..100).map(|n| Intent {
        binding: bench.put(&format!("b{n}"), gated()),
        write: Write::Plan {
            record: record(1, RecordState::Planned),
        },
    });
    bench.committer.submit(intents.collect());
    for _ in 0..100 {
        assert!(bench.outcomes.recv().await.unwrap().result.is_ok());
    }
    assert_eq!(bench.api.most_at_once(), 16);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_lead_writes_nothing() {
    let api = FakeApi::new();
    let cancel = CancellationToken::new();
    let options = runtime::lease::LeaseOptions::new("us");
    let (mut leadership, _) =
        runtime::lease::spawn(api.client(), options, &Registry::new(), cancel.clone());
    leadership.leading().await;
    let term = Term {
        leadership: leadership.clone(),
        ledger: None,
    };
    let mut bench = bench_of(&api, Some(term));
    let binding = bench.put("a", gated());
    assert!(bench.write(&binding, place(1)).await.result.is_ok());
    bench.settle().await;

    cancel.cancel();
    leadership.changed().await;
    let binding = bench.put("b", gated());
    let outcome = bench.write(&binding, place(1)).await;
    assert_eq!(outcome.result, Err(WriteFailure::NotLeading));
    assert!(!bench.api.requests().iter().any(|r| r.path == path("b")));
}
