//! The objects of the fake server, by path, with one revision for all.

use super::Recorded;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use tokio::sync::broadcast;

/// Status and message of a refusal.
type StoreRefusal = (u16, String);

/// A change of an object.
#[derive(Debug, Clone)]
pub(super) struct StoreChange {
    pub(super) kind: &'static str,
    pub(super) object: Value,
    path: String,
    revision: u64,
}

impl StoreChange {
    pub(super) fn is_after(&self, revision: u64) -> bool {
        self.revision > revision
    }

    pub(super) fn is_under(&self, collection: &str) -> bool {
        is_under(&self.path, collection)
    }
}

/// Objects and version at one moment.
#[derive(Debug, Clone)]
pub(super) struct StoreSnapshot {
    objects: BTreeMap<String, Value>,
    revision: u64,
}

/// See the module's documentation.
pub(super) struct Store {
    objects: BTreeMap<String, Value>,
    revision: u64,
    uids: u64,
    history: Vec<StoreChange>,
    compacted: u64,
    live: broadcast::Sender<StoreChange>,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            revision: 100,
            uids: 0,
            history: Vec::new(),
            compacted: 100,
            live: broadcast::channel(1024).0,
        }
    }

    pub(super) fn get(&self, path: &str) -> Option<Value> {
        self.objects.get(path).cloned()
    }

    pub(super) fn objects(&self) -> &BTreeMap<String, Value> {
        &self.objects
    }

    pub(super) fn put(&mut self, path: &str, mut object: Value) -> Value {
        if self.objects.contains_key(path) {
            return self.update(path, object);
        }
        self.uids += 1;
        let meta = &mut object["metadata"];
        let place = ObjectPath::of(path);
        meta["name"] = json!(place.name);
        if let Some(namespace) = place.namespace {
            meta["namespace"] = json!(namespace);
        }
        if meta["uid"].is_null() {
            meta["uid"] = json!(format!("uid-{}", self.uids));
        }
        if meta["generation"].is_null() {
            meta["generation"] = json!(1);
        }
        self.store(path, object, "ADDED")
    }

    pub(super) fn merge_all(&mut self, path: &str, patch: &Value) {
        if let Some(mut object) = self.get(path) {
            json_patch::merge(&mut object, patch);
            self.update(path, object);
        }
    }

    pub(super) fn remove(&mut self, path: &str) {
        if let Some(object) = self.objects.remove(path) {
            self.happened(path, object, "DELETED");
        }
    }

    pub(super) fn snapshot(&self) -> StoreSnapshot {
        StoreSnapshot {
            objects: self.objects.clone(),
            revision: self.revision,
        }
    }

    pub(super) fn restore(&mut self, snapshot: &StoreSnapshot) {
        self.objects.clone_from(&snapshot.objects);
        self.revision = snapshot.revision;
        self.history
            .retain(|change| change.revision <= snapshot.revision);
    }

    pub(super) fn compact(&mut self) {
        self.history.clear();
        self.revision += 1;
        self.compacted = self.revision;
    }

    /// Returns past and future changes under `collection` after `revision`.
    pub(super) fn changes(
        &self,
        collection: &str,
        revision: u64,
    ) -> Result<(Vec<StoreChange>, broadcast::Receiver<StoreChange>), ()> {
        if revision < self.compacted {
            return Err(());
        }
        let past = self.history.iter();
        let past = past
            .filter(|change| change.revision > revision && change.is_under(collection))
            .cloned();
        Ok((past.collect(), self.live.subscribe()))
    }

    /// Serves one request; returns status and body.
    pub(super) fn answer(&mut self, request: &Recorded) -> Result<(u16, Value), StoreRefusal> {
        let (path, subresource) = match request.path.strip_suffix("/status") {
            Some(path) => (path, true),
            None => (request.path.as_str(), false),
        };
        match request.verb.as_str() {
            "GET" => match self.get(path) {
                Some(object) => Ok((200, object)),
                None if ObjectPath::of(path).is_collection => {
                    Ok((200, self.list(path, &request.query)))
                }
                None => Err(absent(path)),
            },
            "POST" => self.create(path, &request.body),
            "PATCH" => self.patch(path, &request.body, subresource),
            "PUT" => self.replace(path, &request.body),
            "APPLY" => match self.objects.contains_key(path) {
                true => self.patch(path, &request.body, false),
                // A request with a UID is meant for an object that existed.
                false if !request.body["metadata"]["uid"].is_null() => {
                    Err((409, "uid mismatch".to_owned()))
                }
                false => Ok((201, self.put(path, request.body.clone()))),
            },
            "DELETE" => self.delete(path, &request.body),
            verb => Err((405, format!("the fake server does not serve {verb}"))),
        }
    }

    fn list(&self, collection: &str, query: &HashMap<String, String>) -> Value {
        let skip = query.get("continue").and_then(|token| token.parse().ok());
        let skip: usize = skip.unwrap_or_default();
        let limit = query.get("limit").and_then(|limit| limit.parse().ok());
        let limit: usize = limit.unwrap_or(usize::MAX);
        let objects = self.objects.iter();
        let all: Vec<&Value> = objects
            .filter(|(path, _)| is_under(path, collection))
            .map(|(_, object)| object)
            .collect();
        let items: Vec<&Value> = all.iter().skip(skip).take(limit).copied().collect();
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if skip + items.len() < all.len() {
            metadata["continue"] = json!((skip + items.len()).to_string());
        }
        json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})
    }

    fn create(&mut self, collection: &str, object: &Value) -> Result<(u16, Value), StoreRefusal> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{collection}/{name}");
        match self.objects.contains_key(&path) {
            true => Err((409, format!("{path} already exists"))),
            false => Ok((201, self.put(&path, object.clone()))),
        }
    }

    fn patch(
        &mut self,
        path: &str,
        patch: &Value,
        subresource: bool,
    ) -> Result<(u16, Value), StoreRefusal> {
        let mut object = self.expect(path, patch)?;
        let mut patch = patch.clone();
        let meta = patch["metadata"].as_object_mut();
        if let Some(meta) = meta {
            meta.remove("resourceVersion");
        }
        if let Some(patch) = patch.as_object_mut() {
            match subresource {
                true => patch.retain(|part, _| part == "status"),
                false => {
                    patch.remove("status");
                }
            }
        }
        json_patch::merge(&mut object, &patch);
        Ok((200, self.update(path, object)))
    }

    fn replace(&mut self, path: &str, object: &Value) -> Result<(u16, Value), StoreRefusal> {
        self.expect(path, object)?;
        Ok((200, self.update(path, object.clone())))
    }

    fn delete(&mut self, path: &str, options: &Value) -> Result<(u16, Value), StoreRefusal> {
        let mut object = self.expect(path, &json!({"metadata": options["preconditions"]}))?;
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        Ok((200, self.update(path, object)))
    }

    /// Returns the object at `path`, if it has the version and UID of `with`, as far as that names them.
    fn expect(&self, path: &str, with: &Value) -> Result<Value, StoreRefusal> {
        let object = self.get(path).ok_or_else(|| absent(path))?;
        let is_meant = |field: &str| {
            let wanted = &with["metadata"][field];
            wanted.is_null() || *wanted == object["metadata"][field]
        };
        match is_meant("resourceVersion") && is_meant("uid") {
            true => Ok(object),
            false => Err((409, "the object has been modified".to_owned())),
        }
    }

    fn update(&mut self, path: &str, mut object: Value) -> Value {
        let before = self.get(path).unwrap_or_default();
        if before == object {
            return object;
        }
        if before["spec"] != object["spec"] {
            let generation = before["metadata"]["generation"]
                .as_i64()
                .unwrap_or_default();
            object["metadata"]["generation"] = json!(generation + 1);
        }
        let meta = &object["metadata"];
        let finalizers = meta["finalizers"].as_array().is_none_or(Vec::is_empty);
        if finalizers && !meta["deletionTimestamp"].is_null() {
            self.objects.remove(path);
            return self.happened(path, object, "DELETED");
        }
        self.store(path, object, "MODIFIED")
    }

    fn store(&mut self, path: &str, object: Value, kind: &'static str) -> Value {
        let object = self.happened(path, object, kind);
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn happened(&mut self, path: &str, mut object: Value, kind: &'static str) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let change = StoreChange {
            kind,
            object: object.clone(),
            path: path.to_owned(),
            revision: self.revision,
        };
        self.history.push(change.clone());
        // There may be no watch.
        let _ = self.live.send(change);
        object
    }
}

/// What a path refers to.
struct ObjectPath<'a> {
    namespace: Option<&'a str>,
    name: &'a str,
    is_collection: bool,
}

impl<'a> ObjectPath<'a> {
    fn of(path: &'a str) -> Self {
        let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        // `api/v1` or `apis/<group>/<version>`.
        let head = if parts.first() == Some(&"api") { 2 } else { 3 };
        let mut rest = parts.split_off(head.min(parts.len()));
        let mut namespace = None;
        if rest.len() > 2 && rest[0] == "namespaces" {
            namespace = Some(rest[1]);
            rest.drain(..2);
        }
        Self {
            namespace,
            name: rest.get(1).copied().unwrap_or_default(),
            is_collection: rest.len() == 1,
        }
    }
}

fn absent(path: &str) -> StoreRefusal {
    (404, format!("{path} not found"))
}

/// Returns true if the object at `path` is in `collection`, which may cover all namespaces.
fn is_under(path: &str, collection: &str) -> bool {
    let Some((parent, _)) = path.rsplit_once('/') else {
        return false;
    };
    if parent == collection {
        return true;
    }
    let Some((head, kind)) = collection.rsplit_once('/') else {
        return false;
    };
    let inner = parent
        .strip_prefix(head)
        .and_then(|rest| rest.strip_prefix("/namespaces/"));
    inner
        .and_then(|rest| rest.split_once('/'))
        .map(|(_, rest)| rest)
        == Some(kind)
}
