//! The body of each write, as it is sent.

use super::*;
use std::fmt::Write as _;

/// Returns the body of the one patch that `write` makes of `object`, or `nothing`.
async fn body_of(object: Value, write: Write) -> String {
    let mut bench = bench();
    let binding = bench.put("a", object);
    let outcome = bench.write(&binding, write).await;
    outcome.result.unwrap();
    let Some(request) = bench.api.requests().into_iter().next() else {
        return "nothing".to_owned();
    };
    let mut body = request.body;
    // Other tests cover its text; here its state is enough.
    let record = body.pointer_mut("/metadata/annotations/muster.io~1admission");
    if let Some(Value::String(text)) = record {
        let record: AdmissionRecord = serde_json::from_str(text).unwrap();
        *text = format!("{:?} {}", record.state, record.attempt.0);
    }
    body.to_string()
}

/// Returns `name: body` for each write of `object`.
async fn bodies(object: Value, writes: Vec<(&str, Write)>) -> String {
    let mut lines = String::new();
    for (name, write) in writes {
        let body = body_of(object.clone(), write).await;
        writeln!(lines, "{name}: {body}").unwrap();
    }
    lines
}

fn untouched() -> Value {
    let mut object = gated();
    object["metadata"]["finalizers"] = json!(["theirs"]);
    object["spec"]["suspension"] = json!({"dispatching": true});
    object
}

#[tokio::test(start_paused = true)]
async fn writes_of_a_binding_that_the_webhook_missed() {
    let adopted = record(1, RecordState::Admitted);
    let lines = bodies(
        untouched(),
        vec![
            ("gate", Write::Gate { record: None }),
            ("hold", Write::Hold),
            ("adopt", Write::Adopt { record: adopted }),
            ("place", place(1)),
            ("finalize", Write::Finalize),
            ("unmanaged", Write::StopManaging),
        ],
    );
    insta::assert_snapshot!(lines.await, @r#"
    gate: {"metadata":{"finalizers":["theirs","muster.io/accounting"],"resourceVersion":"101"},"spec":{"clusters":[],"suspension":{"scheduling":true}}}
    hold: {"metadata":{"finalizers":["theirs","muster.io/accounting"],"resourceVersion":"101"},"spec":{"suspension":{"scheduling":true}}}
    adopt: {"metadata":{"annotations":{"muster.io/admission":"Admitted 1"},"finalizers":["theirs","muster.io/accounting"],"resourceVersion":"101"}}
    place: {"metadata":{"annotations":{"muster.io/admission":"Admitted 1","policy.karmada.io/applied-placement":"{\"clusterAffinity\":{\"clusterNames\":[\"m1\",\"m2\"]}}"},"finalizers":["theirs","muster.io/accounting"],"resourceVersion":"101"},"spec":{"clusters":[{"name":"m1"}],"suspension":{"scheduling":false}}}
    finalize: nothing
    unmanaged: nothing
    "#);
}

#[tokio::test(start_paused = true)]
async fn of_a_gated_binding() {
    let lines = bodies(
        gated(),
        vec![
            ("hold", Write::Hold),
            (
                "plan",
                Write::Plan {
                    record: record(1, RecordState::Planned),
                },
            ),
            ("place", place(1)),
            ("finalize", Write::Finalize),
            ("unmanaged", Write::StopManaging),
            ("ack", Write::Ack { reschedule: false }),
        ],
    );
    insta::assert_snapshot!(lines.await, @r#"
    hold: nothing
    plan: {"metadata":{"annotations":{"muster.io/admission":"Planned 1"},"resourceVersion":"101"}}
    place: {"metadata":{"annotations":{"muster.io/admission":"Admitted 1","policy.karmada.io/applied-placement":"{\"clusterAffinity\":{\"clusterNames\":[\"m1\",\"m2\"]}}"},"resourceVersion":"101"},"spec":{"clusters":[{"name":"m1"}],"suspension":{"scheduling":false}}}
    finalize: {"metadata":{"finalizers":["karmada.io/binding-controller"],"resourceVersion":"101"}}
    unmanaged: {"metadata":{"finalizers":["karmada.io/binding-controller"],"resourceVersion":"101"},"spec":{"suspension":{"scheduling":null}}}
    ack: {"metadata":{"resourceVersion":"101"},"status":{"schedulerObservedGeneration":1}}
    "#);
}

#[tokio::test(start_paused = true)]
async fn of_a_placed_binding() {
    let lines = bodies(
        placed(),
        vec![
            ("gate", Write::Gate { record: None }),
            (
                "evict",
                Write::Evict {
                    record: record(1, RecordState::Ending),
                },
            ),
            (
                "record",
                Write::Record {
                    record: record(2, RecordState::Requeued),
                },
            ),
            (
                "same record",
                Write::Record {
                    record: record(1, RecordState::Admitted),
                },
            ),
            (
                "refuse",
                Write::Refuse {
                    record: record(1, RecordState::Refused),
                },
            ),
            ("place again", place(1)),
            ("unmanaged", Write::StopManaging),
        ],
    );
    insta::assert_snapshot!(lines.await, @r#"
    gate: {"metadata":{"annotations":{"muster.io/admission":null},"resourceVersion":"101"},"spec":{"clusters":[],"suspension":{"scheduling":true}}}
    evict: {"metadata":{"annotations":{"muster.io/admission":"Ending 1"},"resourceVersion":"101"},"spec":{"clusters":[],"suspension":{"scheduling":true}}}
    record: {"metadata":{"annotations":{"muster.io/admission":"Requeued 2"},"resourceVersion":"101"}}
    same record: nothing
    refuse: {"metadata":{"annotations":{"muster.io/admission":"Refused 1"},"resourceVersion":"101"}}
    place again: {"metadata":{"annotations":{"policy.karmada.io/applied-placement":"{\"clusterAffinity\":{\"clusterNames\":[\"m1\",\"m2\"]}}"},"resourceVersion":"101"},"spec":{"clusters":[{"name":"m1"}],"suspension":{"scheduling":false}}}
    unmanaged: {"metadata":{"annotations":{"muster.io/admission":null},"finalizers":["karmada.io/binding-controller"],"resourceVersion":"101"},"spec":{"suspension":{"scheduling":null}}}
    "#);
}

#[tokio::test(start_paused = true)]
async fn every_patch_is_guarded_by_the_version_decided_on() {
    let writes = [
        place(1),
        Write::StopManaging,
        Write::Finalize,
        Write::Ack { reschedule: true },
    ];
    for write in writes {
        let kind = write.kind();
        let mut bench = bench();
        let binding = bench.put("a", gated());
        bench.write(&binding, write).await.result.unwrap();
        let request = bench.api.requests().remove(0);
        let guard = &request.body["metadata"]["resourceVersion"];
        assert_eq!(*guard, json!(binding.metadata.resource_version), "{kind}");
    }
}
