//! Reads a Kubernetes audit log: the writes to bindings and Works that succeeded, in the order in
//! which the store took them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    /// A ResourceBinding or its status.
    Binding,
    /// A Work or its status.
    Work,
}

/// One successful write.
#[derive(Debug, Clone)]
pub(super) struct Write {
    /// The store's revision of the object after it: of all objects of an API server the order in which
    /// they changed. A write that ended an object has none; it gets the highest that surely was before.
    pub(super) revision: u64,
    /// What it wrote to.
    pub(super) resource: Resource,
    /// The verb: create, update, patch, delete.
    pub(super) verb: String,
    /// Who wrote.
    pub(super) user: String,
    /// The object as it was afterwards.
    pub(super) object: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(default)]
    user: User,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    request_object: Option<Value>,
    response_object: Option<Value>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(rename = "requestURI", default)]
    uri: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

/// All writes in the log that succeeded and were no dry runs, oldest first.
///
/// # Errors
/// If the log cannot be read or a line is no audit event; a last line without its end is still being
/// written and left out.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Write>> {
    let file = File::open(path).with_context(|| format!("open audit log {}", path.display()))?;
    let mut reader = BufReader::new(file);
    let mut requests = Vec::new();
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        if !line.ends_with('\n') {
            break;
        }
        let event: Event = serde_json::from_str(&line).context("a line of the audit log")?;
        requests.extend(Request::of(event));
        line.clear();
    }
    order(&mut requests);
    whole(requests)
}

/// A write with what is needed to put it in its place.
struct Request {
    write: Write,
    received: String,
    completed: String,
    body: Value,
}

impl Request {
    fn of(event: Event) -> Option<Self> {
        let resource = match event.object_ref?.resource.as_str() {
            "resourcebindings" => Resource::Binding,
            "works" => Resource::Work,
            _ => return None,
        };
        let succeeded = event
            .response_status
            .is_some_and(|status| status.code < 300);
        if event.stage != "ResponseComplete" || !succeeded || event.uri.contains("dryRun=") {
            return None;
        }
        let object = event.response_object?;
        let revision = object["metadata"]["resourceVersion"].as_str()?;
        Some(Self {
            write: Write {
                revision: revision.parse().ok()?,
                resource,
                verb: event.verb,
                user: event.user.username,
                object,
            },
            received: event.request_received_timestamp,
            completed: event.stage_timestamp,
            body: event.request_object.unwrap_or_default(),
        })
    }
}

/// Lines stand in the order in which requests ended, which is not that of the store. The write that
/// ends an object is answered with its last version, however old; what is sure is that it came after
/// all that had been answered when it was received.
fn order(requests: &mut [Request]) {
    requests.sort_by(|a, b| a.completed.cmp(&b.completed));
    let mut highest = 0;
    let completed: Vec<(String, u64)> = requests
        .iter()
        .map(|request| {
            highest = request.write.revision.max(highest);
            (request.completed.clone(), highest)
        })
        .collect();
    for request in requests
        .iter_mut()
        .filter(|request| is_gone(&request.write))
    {
        let before = completed.partition_point(|(time, _)| *time < request.received);
        let sure = before.checked_sub(1).map_or(0, |last| completed[last].1);
        request.write.revision = request.write.revision.max(sure);
    }
    // Stable: of two with one revision, the one that was answered later is the later one.
    requests.sort_by_key(|request| request.write.revision);
}

/// Some clients ask to be answered with metadata alone; what they wrote stands in their request.
fn whole(requests: Vec<Request>) -> anyhow::Result<Vec<Write>> {
    let mut latest: HashMap<String, Value> = HashMap::new();
    let mut writes = Vec::new();
    for mut request in requests {
        let object = &mut request.write.object;
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let uid = uid.to_owned();
        if object["kind"] == "PartialObjectMetadata" {
            ensure!(
                request.body.is_object() || request.write.verb == "delete",
                "a {} of {} is answered in part and is no merge patch",
                request.write.verb,
                object["metadata"]["name"]
            );
            let metadata = object["metadata"].take();
            let mut merged = latest.remove(&uid).unwrap_or_default();
            if request.write.verb != "delete" {
                merge(&mut merged, &request.body);
            }
            merged["metadata"] = metadata;
            *object = merged;
        }
        latest.insert(uid, object.clone());
        writes.push(request.write);
    }
    Ok(writes)
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (key, value) in patch {
        match (value, target.as_object_mut()) {
            (Value::Null, Some(target)) => drop(target.remove(key)),
            _ => merge(&mut target[key], value),
        }
    }
}

/// Whether this write ended the object: the last finalizer of a deleted one went, or it had none.
pub(super) fn is_gone(write: &Write) -> bool {
    let metadata = &write.object["metadata"];
    let no_finalizers = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
    let deleting = write.verb == "delete" || !metadata["deletionTimestamp"].is_null();
    deleting && no_finalizers
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn line(received: u32, completed: u32, verb: &str, body: Value, object: Value) -> String {
        let event = json!({
            "stage": "ResponseComplete",
            "verb": verb,
            "objectRef": {"resource": "resourcebindings"},
            "responseStatus": {"code": 200},
            "requestObject": body,
            "responseObject": object,
            "requestReceivedTimestamp": format!("{received:03}"),
            "stageTimestamp": format!("{completed:03}"),
        });
        format!("{event}\n")
    }

    fn object(uid: &str, revision: &str) -> Value {
        json!({"metadata": {"uid": uid, "resourceVersion": revision, "finalizers": ["f"]}})
    }

    #[test]
    fn writes_are_whole_and_in_the_stores_order() {
        let mut partial = object("a", "7");
        partial["kind"] = json!("PartialObjectMetadata");
        let mut born = object("a", "5");
        born["spec"] = json!({"open": false, "replicas": 1});
        let patch = json!({"spec": {"open": true, "replicas": null}});
        let mut gone = object("b", "1");
        gone["metadata"]["finalizers"].take();
        gone["metadata"]["deletionTimestamp"] = json!("now");
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = [
            line(3, 8, "patch", patch, partial),
            line(1, 2, "create", Value::Null, born),
            // Its last version is old, but 5 was written before it was asked for, and 7 maybe not.
            line(4, 9, "delete", Value::Null, gone),
            "{\"unfinished".to_owned(),
        ];
        std::fs::write(file.path(), lines.concat()).unwrap();
        let writes = read(file.path()).unwrap();
        let revisions: Vec<u64> = writes.iter().map(|write| write.revision).collect();
        assert_eq!(revisions, [5, 5, 7]);
        assert_eq!(writes[2].object["spec"], json!({"open": true}));
        assert!(is_gone(&writes[1]));
    }
}
