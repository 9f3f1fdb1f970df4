//! Which lines of a log are read, in which order and as what.

#![allow(clippy::unwrap_used)]
use std::io::Write as _;

use super::*;
use serde_json::json;

fn at(second: u32) -> String {
    format!("2026-01-02T03:04:{second:02}.000000Z")
}

fn line(received: u32, completed: u32, verb: &str, body: Value, object: Value) -> String {
    let event = json!({
        "stage": "ResponseComplete",
        "verb": verb,
        "objectRef": {"resource": "resourcebindings"},
        "responseStatus": {"code": 200},
        "requestObject": body,
        "responseObject": object,
        "requestReceivedTimestamp": at(received),
        "stageTimestamp": at(completed),
    });
    format!("{event}\n")
}

fn object(uid: &str, revision: &str) -> Value {
    json!({"metadata": {"uid": uid, "resourceVersion": revision, "finalizers": ["f"]}})
}

fn of_template(mut object: Value, uid: &str) -> Value {
    object["spec"]["resource"]["uid"] = json!(uid);
    object
}

#[test]
fn writes_are_whole_and_in_the_stores_order() {
    let mut partial = object("a", "7");
    partial["kind"] = json!("PartialObjectMetadata");
    let mut born = of_template(object("a", "5"), "wanted");
    born["spec"]["open"] = json!(false);
    born["spec"]["replicas"] = json!(1);
    let patch = json!({"spec": {"open": true, "replicas": null}});
    let mut gone = of_template(object("b", "1"), "wanted");
    gone["metadata"]["finalizers"].take();
    gone["metadata"]["deletionTimestamp"] = json!("now");
    let other = of_template(object("c", "6"), "other");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let lines = [
        line(3, 8, "patch", patch, partial),
        line(1, 2, "create", Value::Null, born),
        line(1, 3, "create", Value::Null, other),
        // Its last version is old, but 6 was written before the request, and 7 perhaps not.
        line(4, 9, "delete", Value::Null, gone),
    ];
    let lines = lines.concat();
    let log = Log::new(file.path());
    let ask = || {
        let writes = log.writes(false, |of| of.template == "wanted").unwrap();
        let revisions = writes.iter().map(|write| write.revision);
        (revisions.collect::<Vec<u64>>(), writes)
    };
    // The log is read while the second line is being written, and again when all lines are
    // complete.
    let (first, rest) = lines.split_at(lines.find('\n').unwrap() + 10);
    file.write_all(first.as_bytes()).unwrap();
    assert!(
        ask().0.is_empty(),
        "nothing shows yet what the first is about"
    );
    file.write_all(rest.as_bytes()).unwrap();
    let (revisions, writes) = ask();
    assert_eq!(revisions, [5, 6, 7]);
    let opened = json!({"open": true, "resource": {"uid": "wanted"}});
    assert_eq!(writes[2].object["spec"], opened);
    assert!(is_gone(&writes[1]));
}

#[test]
fn nothing_is_written_to_what_is_gone() {
    let mut last = of_template(object("a", "5"), "wanted");
    last["metadata"]["deletionTimestamp"] = json!("now");
    let mut gone = last.clone();
    gone["metadata"]["finalizers"].take();
    gone["metadata"]["resourceVersion"] = json!("4");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    // Both requests were in flight at once, and the one that removed the object was sent first.
    let lines = [
        line(2, 3, "update", Value::Null, last),
        line(1, 4, "update", Value::Null, gone),
    ];
    file.write_all(lines.concat().as_bytes()).unwrap();
    let writes = Log::new(file.path())
        .writes(false, |of| of.template == "wanted")
        .unwrap();
    let ends: Vec<(u64, bool)> = writes
        .iter()
        .map(|write| (write.revision, is_gone(write)))
        .collect();
    assert_eq!(ends, [(5, false), (5, true)]);
}

#[test]
fn works_belong_to_the_bindings_whose_id_they_carry() {
    let labelled = |uid: &str, revision: &str, id: &str| {
        let mut object = object(uid, revision);
        object["metadata"]["labels"] = json!({PERMANENT_ID: id});
        object
    };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let lines = [
        line(
            1,
            1,
            "create",
            Value::Null,
            of_template(labelled("a", "1", "x"), "wanted"),
        ),
        line(2, 2, "create", Value::Null, labelled("work of a", "2", "x")),
        line(
            3,
            3,
            "create",
            Value::Null,
            labelled("another work", "3", "y"),
        ),
        line(4, 4, "update", Value::Null, object("work of a", "4")),
    ];
    file.write_all(lines.concat().as_bytes()).unwrap();
    let writes = Log::new(file.path())
        .writes(false, |of| of.template == "wanted")
        .unwrap();
    let revisions: Vec<u64> = writes.iter().map(|write| write.revision).collect();
    assert_eq!(revisions, [1, 2, 4]);
}

#[test]
fn bounds_are_read_if_asked_for_and_their_status_is_not() {
    let of = |second: u32, resource: &str, subresource: &str| {
        let object = object("a", &second.to_string());
        let text = line(second, second, "patch", Value::Null, object);
        let mut event: Value = serde_json::from_str(&text).unwrap();
        event["objectRef"] = json!({"resource": resource, "subresource": subresource});
        format!("{event}\n")
    };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let lines = [
        of(1, "queues", ""),
        of(2, "queues", "status"),
        of(3, "capacitypolicies", ""),
        of(4, "clusters", ""),
        of(5, "podgroups", ""),
    ];
    file.write_all(lines.concat().as_bytes()).unwrap();
    let log = Log::new(file.path());
    let read = |bounds: bool| {
        let writes = log.writes(bounds, |_| false).unwrap();
        writes.into_iter().map(|write| write.resource).collect()
    };
    let all: Vec<AuditedResource> = read(true);
    assert_eq!(all, [AuditedResource::Queue, AuditedResource::Policy]);
    let none: Vec<AuditedResource> = read(false);
    assert_eq!(none, []);
}

#[test]
fn bindings_are_found_by_their_namespace_too() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut lines = Vec::new();
    for (second, namespace) in [(1, "own"), (2, "other")] {
        let object = of_template(object(namespace, &second.to_string()), namespace);
        let text = line(second, second, "create", Value::Null, object);
        let mut event: Value = serde_json::from_str(&text).unwrap();
        event["objectRef"]["namespace"] = json!(namespace);
        lines.push(format!("{event}\n"));
    }
    file.write_all(lines.concat().as_bytes()).unwrap();
    let log = Log::new(file.path());
    let writes = log.writes(false, |of| of.namespace == "own").unwrap();
    let revisions: Vec<u64> = writes.iter().map(|write| write.revision).collect();
    assert_eq!(revisions, [1]);
}
