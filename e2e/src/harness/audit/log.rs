//! Reads a Kubernetes audit log: the writes to bindings and Works that succeeded, in the order in
//! which the store took them.
//!
//! A log of many tests has hundreds of megabytes and is asked often, about few jobs each time: so what
//! each line is about is noted when it is first met, and only the lines about those are taken apart.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::PERMANENT_ID;

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

/// An audit log, which may still be written.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    /// How much of the file has been looked at.
    end: u64,
    lines: Vec<Line>,
}

/// A line about a write that succeeded and was no dry run.
#[derive(Debug)]
struct Line {
    start: u64,
    length: usize,
    received: String,
    completed: String,
    revision: u64,
    resource: Resource,
    gone: bool,
    /// Of the object that was written.
    uid: String,
    permanent_id: Option<String>,
    /// UID of a binding's template.
    template: Option<String>,
}

impl Log {
    /// The log at `path`, of which nothing is read yet.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            index: Mutex::default(),
        }
    }

    /// All writes so far to the bindings of these templates and to their Works, oldest first.
    ///
    /// # Errors
    /// If the log cannot be read or a line is no audit event; a last line without its end is still
    /// being written and left out.
    pub(super) fn writes(&self, of_template: impl Fn(&str) -> bool) -> anyhow::Result<Vec<Write>> {
        let path = &self.path;
        let open = File::open(path).with_context(|| format!("open audit log {}", path.display()));
        let mut reader = BufReader::new(open?);
        let mut index = self.index.lock();
        index.read_on(&mut reader)?;
        let mut writes = Vec::new();
        for (revision, line) in index.in_order(&index.about(of_template)) {
            reader.seek(SeekFrom::Start(line.start))?;
            let mut text = vec![0; line.length];
            reader.read_exact(&mut text)?;
            let event: Event = serde_json::from_slice(&text).context("a line of the audit log")?;
            writes.push(event.write(revision, line.resource));
        }
        whole(writes)
    }
}

impl Index {
    /// Notes what has been written since.
    fn read_on(&mut self, reader: &mut BufReader<File>) -> anyhow::Result<()> {
        reader.seek(SeekFrom::Start(self.end))?;
        let mut text = String::new();
        while reader.read_line(&mut text)? > 0 && text.ends_with('\n') {
            let head: Head = serde_json::from_str(&text).context("a line of the audit log")?;
            self.lines.extend(head.line(self.end, text.len()));
            self.end += text.len() as u64;
            text.clear();
        }
        // In the order in which requests ended, which is nearly that of the lines.
        self.lines.sort_by(|a, b| a.completed.cmp(&b.completed));
        Ok(())
    }

    /// The lines about bindings of these templates, and about Works of these bindings.
    fn about(&self, of_template: impl Fn(&str) -> bool) -> Vec<usize> {
        // Not every answer shows the template or has labels, but all have the UID of their object.
        let named = |line: &&Line| line.template.as_deref().is_some_and(&of_template);
        let named = self.lines.iter().filter(named);
        let bindings: HashSet<&str> = named.map(|line| &*line.uid).collect();
        let own = self.lines.iter();
        let own = own.filter(|line| bindings.contains(&*line.uid));
        let ids: HashSet<&str> = own
            .filter_map(|line| line.permanent_id.as_deref())
            .collect();
        let works = |line: &&Line| {
            line.permanent_id
                .as_deref()
                .is_some_and(|id| ids.contains(id))
        };
        let works = self.lines.iter().filter(works).map(|line| &*line.uid);
        let about: HashSet<&str> = bindings.iter().copied().chain(works).collect();
        let lines = self.lines.iter().enumerate();
        lines
            .filter(|(_, line)| about.contains(&*line.uid))
            .map(|(at, _)| at)
            .collect()
    }

    /// These lines in the store's order, with the revision by which each stands there. Lines stand in
    /// the order in which requests ended, which is another. The write that ends an object is answered
    /// with its last version, however old; what is sure is that it came after all that had been answered
    /// when it was received, and after all else that was written to that object.
    fn in_order(&self, lines: &[usize]) -> Vec<(u64, &Line)> {
        let mut highest = 0;
        let answered = self.lines.iter().map(|line| {
            highest = line.revision.max(highest);
            highest
        });
        let answered: Vec<u64> = answered.collect();
        let mut latest: HashMap<&str, u64> = HashMap::new();
        for line in lines.iter().map(|&at| &self.lines[at]) {
            let latest = latest.entry(&line.uid).or_default();
            *latest = line.revision.max(*latest);
        }
        let in_order = lines.iter().map(|&at| {
            let line = &self.lines[at];
            if !line.gone {
                return (line.revision, line);
            }
            let before = |other: &Line| other.completed < line.received;
            let sure = self.lines.partition_point(before).checked_sub(1);
            let sure = sure.map_or(0, |last| answered[last]);
            (sure.max(latest[&*line.uid]), line)
        });
        let mut in_order: Vec<(u64, &Line)> = in_order.collect();
        // Stable: of two ends with one revision, the one that was answered later is the later one.
        in_order.sort_by_key(|(revision, line)| (*revision, line.gone));
        in_order
    }
}

/// What has to be known of a line to find it again, and no more of its objects.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    stage: String,
    verb: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    response_object: Option<Answer>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(rename = "requestURI", default)]
    uri: String,
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

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    metadata: Metadata,
    spec: Option<Spec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    uid: String,
    resource_version: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Option<Vec<IgnoredAny>>,
    labels: Option<HashMap<String, String>>,
}

#[derive(Deserialize)]
struct Spec {
    /// A binding's template; a Work has none.
    resource: Option<Template>,
}

#[derive(Deserialize)]
struct Template {
    uid: Option<String>,
}

impl Head {
    fn line(self, start: u64, length: usize) -> Option<Line> {
        let resource = match self.object_ref?.resource.as_str() {
            "resourcebindings" => Resource::Binding,
            "works" => Resource::Work,
            _ => return None,
        };
        let succeeded = self.response_status.is_some_and(|status| status.code < 300);
        if self.stage != "ResponseComplete" || !succeeded || self.uri.contains("dryRun=") {
            return None;
        }
        let Answer { metadata, spec } = self.response_object?;
        let no_finalizers = metadata.finalizers.is_none_or(|names| names.is_empty());
        let deleting = metadata.deletion_timestamp.is_some();
        let template = spec.and_then(|spec| spec.resource);
        Some(Line {
            start,
            length,
            received: self.request_received_timestamp,
            completed: self.stage_timestamp,
            revision: metadata.resource_version?.parse().ok()?,
            resource,
            gone: ends(&self.verb, deleting, no_finalizers),
            uid: metadata.uid,
            permanent_id: metadata
                .labels
                .and_then(|mut labels| labels.remove(PERMANENT_ID)),
            template: template.and_then(|template| template.uid),
        })
    }
}

/// A line about a write.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    #[serde(default)]
    user: User,
    request_object: Option<Value>,
    response_object: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
}

impl Event {
    /// The write, and what was sent for it.
    fn write(self, revision: u64, resource: Resource) -> (Write, Value) {
        let write = Write {
            revision,
            resource,
            verb: self.verb,
            user: self.user.username,
            object: self.response_object,
        };
        (write, self.request_object.unwrap_or_default())
    }
}

/// Some clients ask to be answered with metadata alone; what they wrote stands in their request.
fn whole(answered: Vec<(Write, Value)>) -> anyhow::Result<Vec<Write>> {
    let mut latest: HashMap<String, Value> = HashMap::new();
    let mut writes = Vec::new();
    for (mut write, body) in answered {
        let object = &mut write.object;
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let uid = uid.to_owned();
        if object["kind"] == "PartialObjectMetadata" {
            ensure!(
                body.is_object() || write.verb == "delete",
                "a {} of {} is answered in part and is no merge patch",
                write.verb,
                object["metadata"]["name"]
            );
            let metadata = object["metadata"].take();
            let mut merged = latest.remove(&uid).unwrap_or_default();
            if write.verb != "delete" {
                merge(&mut merged, &body);
            }
            merged["metadata"] = metadata;
            *object = merged;
        }
        latest.insert(uid, object.clone());
        writes.push(write);
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
    let deleting = !metadata["deletionTimestamp"].is_null();
    ends(&write.verb, deleting, no_finalizers)
}

fn ends(verb: &str, deleting: bool, no_finalizers: bool) -> bool {
    (verb == "delete" || deleting) && no_finalizers
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

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
            // Its last version is old, but 6 was written before it was asked for, and 7 maybe not.
            line(4, 9, "delete", Value::Null, gone),
        ];
        let lines = lines.concat();
        let log = Log::new(file.path());
        let ask = || {
            let writes = log.writes(|uid| uid == "wanted").unwrap();
            let revisions = writes.iter().map(|write| write.revision);
            (revisions.collect::<Vec<u64>>(), writes)
        };
        // It is asked while the second line is being written, and again when all is.
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
        // Both were under way at once, and the one that ended it was asked for first.
        let lines = [
            line(2, 3, "update", Value::Null, last),
            line(1, 4, "update", Value::Null, gone),
        ];
        file.write_all(lines.concat().as_bytes()).unwrap();
        let writes = Log::new(file.path()).writes(|uid| uid == "wanted").unwrap();
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
        let writes = Log::new(file.path()).writes(|uid| uid == "wanted").unwrap();
        let revisions: Vec<u64> = writes.iter().map(|write| write.revision).collect();
        assert_eq!(revisions, [1, 2, 4]);
    }
}
