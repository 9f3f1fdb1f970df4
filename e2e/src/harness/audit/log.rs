//! Reads the successful writes to bindings, Works and quotas from a Kubernetes audit log, in the
//! order of the store.
//!
//! The log of many tests has hundreds of megabytes and is read often, each time for a few jobs. So
//! an index says which objects each line is about, and only the lines of the wanted objects are
//! parsed.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::PERMANENT_ID;

/// The kind of a written object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuditedResource {
    /// A ResourceBinding or its status.
    Binding,
    /// A Work or its status.
    Work,
    /// A queue: its quota and its parent.
    Queue,
    /// A CapacityPolicy: the quota of a queue by pool.
    Policy,
}

impl AuditedResource {
    /// Returns the kind of a written object. For bindings and Works, writes of the status count
    /// too.
    fn of(written: &ObjectRef) -> Option<Self> {
        let name = (&*written.resource, &*written.subresource);
        Some(match name {
            ("resourcebindings", _) => Self::Binding,
            ("works", _) => Self::Work,
            ("queues", "") => Self::Queue,
            ("capacitypolicies", "") => Self::Policy,
            _ => return None,
        })
    }

    /// Returns true if the kind concerns all jobs.
    fn bounds(self) -> bool {
        matches!(self, Self::Queue | Self::Policy)
    }
}

/// One successful write.
#[derive(Debug, Clone)]
pub(super) struct AuditedWrite {
    /// The store's revision of the object after the write, which orders all objects of an API
    /// server. A write that removed an object has none; it gets the highest revision that certainly
    /// was before it.
    pub(super) revision: u64,
    /// The time of the response.
    pub(super) time: Timestamp,
    /// The kind of the written object.
    pub(super) resource: AuditedResource,
    /// The verb: create, update, patch, delete.
    pub(super) verb: String,
    /// The user who wrote.
    pub(super) user: String,
    /// The object after the write.
    pub(super) object: Value,
}

/// The job that a binding is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'a> {
    /// The UID of its template.
    pub(super) template: &'a str,
    pub(super) namespace: &'a str,
}

/// An audit log, which may still grow.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    index: Mutex<AuditIndex>,
}

#[derive(Debug, Default)]
struct AuditIndex {
    /// The size of the part of the file that is indexed.
    end: u64,
    lines: Vec<AuditLine>,
}

/// A line about a successful write that was no dry run.
#[derive(Debug)]
struct AuditLine {
    start: u64,
    length: usize,
    received: String,
    completed: String,
    revision: u64,
    resource: AuditedResource,
    gone: bool,
    /// The UID of the written object.
    uid: String,
    permanent_id: Option<String>,
    /// The UID of a binding's template.
    template: Option<String>,
    namespace: String,
}

impl Log {
    /// Opens the log at `path` without reading it.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            index: Mutex::default(),
        }
    }

    /// Returns all writes so far to the bindings of these templates, or in these namespaces, and to
    /// their Works, oldest first; with `bounds`, also to all queues and policies.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read or a line is not an audit event. An incomplete
    /// last line is still being written and is ignored.
    pub(super) fn writes(
        &self,
        bounds: bool,
        wanted: impl Fn(Named<'_>) -> bool,
    ) -> anyhow::Result<Vec<AuditedWrite>> {
        let path = &self.path;
        let open = File::open(path).with_context(|| format!("open audit log {}", path.display()));
        let mut reader = BufReader::new(open?);
        let mut index = self.index.lock();
        index.read_on(&mut reader)?;
        let mut writes = Vec::new();
        for (revision, line) in index.in_order(&index.about(bounds, wanted)) {
            reader.seek(SeekFrom::Start(line.start))?;
            let mut text = vec![0; line.length];
            reader.read_exact(&mut text)?;
            let event: AuditEvent =
                serde_json::from_slice(&text).context("a line of the audit log")?;
            writes.push(event.write(revision, line)?);
        }
        whole(writes)
    }
}

impl AuditIndex {
    /// Indexes the lines that were appended since the last call.
    fn read_on(&mut self, reader: &mut BufReader<File>) -> anyhow::Result<()> {
        reader.seek(SeekFrom::Start(self.end))?;
        let mut text = String::new();
        while reader.read_line(&mut text)? > 0 && text.ends_with('\n') {
            let head: AuditEventHead =
                serde_json::from_str(&text).context("a line of the audit log")?;
            self.lines.extend(head.line(self.end, text.len()));
            self.end += text.len() as u64;
            text.clear();
        }
        // The order is by the end of the request, which is nearly the order of the lines.
        self.lines.sort_by(|a, b| a.completed.cmp(&b.completed));
        Ok(())
    }

    /// Returns the lines about the wanted bindings, about Works of these bindings, and about
    /// quotas.
    fn about(&self, bounds: bool, wanted: impl Fn(Named<'_>) -> bool) -> Vec<usize> {
        // Not every response has the template or labels, but all have the UID of their object.
        let named = |line: &&AuditLine| {
            let template = line.template.as_deref();
            let namespace = &*line.namespace;
            template.is_some_and(|template| {
                wanted(Named {
                    template,
                    namespace,
                })
            })
        };
        let named = self.lines.iter().filter(named);
        let bindings: HashSet<&str> = named.map(|line| &*line.uid).collect();
        let own = self.lines.iter();
        let own = own.filter(|line| bindings.contains(&*line.uid));
        let ids: HashSet<&str> = own
            .filter_map(|line| line.permanent_id.as_deref())
            .collect();
        let works = |line: &&AuditLine| {
            line.permanent_id
                .as_deref()
                .is_some_and(|id| ids.contains(id))
        };
        let works = self.lines.iter().filter(works).map(|line| &*line.uid);
        let about: HashSet<&str> = bindings.iter().copied().chain(works).collect();
        let lines = self.lines.iter().enumerate();
        lines
            .filter(|(_, line)| about.contains(&*line.uid) || (bounds && line.resource.bounds()))
            .map(|(at, _)| at)
            .collect()
    }

    /// Returns these lines in the store's order, with their revisions.
    ///
    /// Lines are in the order in which requests ended, which differs. The response to a write that
    /// removes an object is the object's last version, however old. That write certainly came after
    /// all responses that were sent before its request arrived, and after all other writes of that
    /// object.
    fn in_order(&self, lines: &[usize]) -> Vec<(u64, &AuditLine)> {
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
            let before = |other: &AuditLine| other.completed < line.received;
            let sure = self.lines.partition_point(before).checked_sub(1);
            let sure = sure.map_or(0, |last| answered[last]);
            (sure.max(latest[&*line.uid]), line)
        });
        let mut in_order: Vec<(u64, &AuditLine)> = in_order.collect();
        // The sort is stable: of two removals with one revision, the later response comes later.
        in_order.sort_by_key(|(revision, line)| (*revision, line.gone));
        in_order
    }
}

/// The fields of a line that are needed to find it again.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEventHead {
    stage: String,
    verb: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    response_object: Option<AuditedObject>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(rename = "requestURI", default)]
    uri: String,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

#[derive(Deserialize)]
struct AuditedObject {
    #[serde(default)]
    metadata: AuditedMetadata,
    spec: Option<AuditedSpec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AuditedMetadata {
    uid: String,
    resource_version: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Option<Vec<IgnoredAny>>,
    labels: Option<HashMap<String, String>>,
}

#[derive(Deserialize)]
struct AuditedSpec {
    /// A binding's template; a Work has none.
    resource: Option<AuditedTemplate>,
}

#[derive(Deserialize)]
struct AuditedTemplate {
    uid: Option<String>,
}

impl AuditEventHead {
    fn line(self, start: u64, length: usize) -> Option<AuditLine> {
        let object_ref = self.object_ref?;
        let resource = AuditedResource::of(&object_ref)?;
        let succeeded = self.response_status.is_some_and(|status| status.code < 300);
        if self.stage != "ResponseComplete" || !succeeded || self.uri.contains("dryRun=") {
            return None;
        }
        let AuditedObject { metadata, spec } = self.response_object?;
        let no_finalizers = metadata.finalizers.is_none_or(|names| names.is_empty());
        let deleting = metadata.deletion_timestamp.is_some();
        let template = spec.and_then(|spec| spec.resource);
        Some(AuditLine {
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
            namespace: object_ref.namespace,
        })
    }
}

/// A line about a write.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEvent {
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

impl AuditEvent {
    /// Returns the write, and the body of its request.
    fn write(self, revision: u64, line: &AuditLine) -> anyhow::Result<(AuditedWrite, Value)> {
        let time = line.completed.parse();
        let write = AuditedWrite {
            revision,
            time: time.with_context(|| format!("time {:?} in the audit log", line.completed))?,
            resource: line.resource,
            verb: self.verb,
            user: self.user.username,
            object: self.response_object,
        };
        Ok((write, self.request_object.unwrap_or_default()))
    }
}

/// Completes responses that have only metadata, which some clients request; the request has what
/// they wrote.
fn whole(answered: Vec<(AuditedWrite, Value)>) -> anyhow::Result<Vec<AuditedWrite>> {
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

/// Applies a JSON merge patch (RFC 7386).
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

/// Returns true if this write removed the object: it removed the last finalizer of a deleted
/// object, or deleted one without finalizers.
pub(super) fn is_gone(write: &AuditedWrite) -> bool {
    let metadata = &write.object["metadata"];
    let no_finalizers = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
    let deleting = !metadata["deletionTimestamp"].is_null();
    ends(&write.verb, deleting, no_finalizers)
}

fn ends(verb: &str, deleting: bool, no_finalizers: bool) -> bool {
    (verb == "delete" || deleting) && no_finalizers
}

#[cfg(test)]
mod tests;
