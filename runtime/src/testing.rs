//! An API server in the process, for tests: no socket, no disk, and virtual time if tokio's is paused.
//!
//! It stores objects of any kind by their path and serves get, list (with pages), watch (with history),
//! create, replace, merge patch, apply (as a merge that may create), delete and the status subresource, and
//! dry runs of create, with resource versions, generations and finalizers like the real one. It ignores
//! selectors and validates nothing. [`FakeApi::fault`] makes calls fail, hang, or succeed without an
//! answer.

mod stopped;
mod store;

pub use stopped::StoppableProcess;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, StatusCode, Uri};
use futures::{Stream, StreamExt};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use store::{Store, StoreChange};
use tokio::sync::broadcast;

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// `GET`, `POST`, `PUT`, `DELETE`; `PATCH` for merges, `APPLY` for applies, `WATCH`.
    pub verb: String,
    /// Path, without the query.
    pub path: String,
    /// Query.
    pub query: HashMap<String, String>,
    /// Body; null if there is none.
    pub body: Value,
    /// The impersonated user, if any (`Impersonate-User`).
    pub impersonated: Option<String>,
}

/// How a call fails.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing is done, and the answer is this status with this message.
    Status(u16, &'static str),
    /// Nothing is done, and no answer comes.
    Hang,
    /// It is done, and no answer comes.
    LoseAnswer,
    /// It is done, and the answer is this status.
    DoneButStatus(u16, &'static str),
    /// It is done after a while.
    Delay(Duration),
}

/// The content of a server, see [`FakeApi::snapshot`].
#[derive(Debug, Clone)]
pub struct ApiSnapshot(store::StoreSnapshot);

/// The answer of a call that stores nothing.
type FakeAnswer = Arc<dyn Fn(&Value) -> Value + Send + Sync>;
type Matcher = Box<dyn Fn(&Recorded) -> bool + Send>;

struct FaultRule {
    matches: Matcher,
    fault: Fault,
    times: usize,
}

struct FakeApiState {
    store: Store,
    documents: HashMap<String, Value>,
    answers: HashMap<String, FakeAnswer>,
    rules: Vec<FaultRule>,
    requests: Vec<Recorded>,
    /// Prefixes of paths that other servers answer.
    passed_on: Vec<(String, FakeApi)>,
    serving: usize,
    most_serving: usize,
    /// Ends all watches that began before it is sent.
    cut: broadcast::Sender<()>,
}

/// The server. Clones share it.
#[derive(Clone)]
pub struct FakeApi(Arc<Mutex<FakeApiState>>);

impl Default for FakeApi {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeApi {
    /// Creates an empty server.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(FakeApiState {
            store: Store::new(),
            documents: HashMap::new(),
            answers: HashMap::new(),
            rules: Vec::new(),
            requests: Vec::new(),
            passed_on: Vec::new(),
            serving: 0,
            most_serving: 0,
            cut: broadcast::channel(1).0,
        })))
    }

    /// Returns a client of it, without retries.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client_in("default")
    }

    /// Returns a client of it whose namespace is `namespace`.
    #[must_use]
    pub fn client_in(&self, namespace: &str) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.serve(request).await) }
        });
        Client::new(service, namespace)
    }

    /// Creates the object at `path`, or replaces it, as another client would.
    pub fn put(&self, path: &str, object: Value) -> Value {
        self.0.lock().store.put(path, object)
    }

    /// Merges `patch` into the object at `path`, including the status, as another client would.
    pub fn merge(&self, path: &str, patch: &Value) {
        self.0.lock().store.merge_all(path, patch);
    }

    /// Deletes the object at `path`, whatever its finalizers.
    pub fn remove(&self, path: &str) {
        self.0.lock().store.remove(path);
    }

    /// Returns the object at `path`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().store.get(path)
    }

    /// Returns all objects, by path.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<String, Value> {
        self.0.lock().store.objects().clone()
    }

    /// Serves `document` for GET of `path`, which is no object: discovery, for instance.
    pub fn document(&self, path: &str, document: Value) {
        self.0.lock().documents.insert(path.to_owned(), document);
    }

    /// Answers requests posted to `path`, and stores nothing: a SubjectAccessReview, for instance.
    pub fn answers(&self, path: &str, answer: impl Fn(&Value) -> Value + Send + Sync + 'static) {
        let answer = Arc::new(answer);
        self.0.lock().answers.insert(path.to_owned(), answer);
    }

    /// Forwards requests under `prefix` to `to`, as for an aggregated API. Both servers record them.
    pub fn pass_on(&self, prefix: &str, to: &Self) {
        let rule = (prefix.to_owned(), to.clone());
        self.0.lock().passed_on.push(rule);
    }

    /// Makes the next `times` calls that `matches` fail. Earlier rules come first.
    pub fn fault(
        &self,
        times: usize,
        fault: Fault,
        matches: impl Fn(&Recorded) -> bool + Send + 'static,
    ) {
        self.0.lock().rules.push(FaultRule {
            matches: Box::new(matches),
            fault,
            times,
        });
    }

    /// Ends all watches, like a lost connection.
    pub fn cut_watches(&self) {
        let _ = self.0.lock().cut.send(());
    }

    /// Returns all objects as they are now, and the version.
    #[must_use]
    pub fn snapshot(&self) -> ApiSnapshot {
        ApiSnapshot(self.0.lock().store.snapshot())
    }

    /// Restores `snapshot`, like a server whose etcd is restored from it: watches end, and versions are used a
    /// second time.
    pub fn restore(&self, snapshot: &ApiSnapshot) {
        self.0.lock().store.restore(&snapshot.0);
        self.cut_watches();
    }

    /// Drops the history of changes: watches from before now get 410.
    pub fn compact(&self) {
        self.0.lock().store.compact();
    }

    /// Returns all requests so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.0.lock().requests.clone()
    }

    /// Returns the requests of `verb`, in order.
    #[must_use]
    pub fn requests_of(&self, verb: &str) -> Vec<Recorded> {
        let mut requests = self.requests();
        requests.retain(|request| request.verb == verb);
        requests
    }

    /// Returns the largest number of calls, without watches, served at one time.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.0.lock().most_serving
    }

    async fn serve(&self, request: Request<kube::client::Body>) -> Response<Body> {
        self.serve_recorded(record(request).await).await
    }

    async fn serve_recorded(&self, recorded: Recorded) -> Response<Body> {
        let (fault, passed_on) = {
            let mut state = self.0.lock();
            state.requests.push(recorded.clone());
            (state.fault_for(&recorded), state.passed_on(&recorded))
        };
        if let (None, Some((to, inner))) = (&fault, passed_on) {
            return Box::pin(to.serve_recorded(inner)).await;
        }
        if recorded.verb == "WATCH" {
            return match fault {
                Some(Fault::Status(code, message)) => status(code, message),
                Some(Fault::Hang) => std::future::pending().await,
                _ => self.watch(&recorded),
            };
        }
        let _serving = Serving::begin(self);
        match fault {
            None => {
                // Other tasks get a turn before the answer, as over a network.
                tokio::task::yield_now().await;
                self.answer(&recorded)
            }
            Some(Fault::Status(code, message)) => status(code, message),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::LoseAnswer) => {
                self.answer(&recorded);
                std::future::pending().await
            }
            Some(Fault::DoneButStatus(code, message)) => {
                self.answer(&recorded);
                status(code, message)
            }
            Some(Fault::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                self.answer(&recorded)
            }
        }
    }

    fn answer(&self, request: &Recorded) -> Response<Body> {
        let mut state = self.0.lock();
        if request.verb == "GET"
            && let Some(document) = state.documents.get(&request.path)
        {
            return respond(200, document);
        }
        if request.verb == "POST"
            && let Some(answer) = state.answers.get(&request.path)
        {
            return respond(201, &answer(&request.body));
        }
        // Nothing is stored or checked: the dry run always succeeds.
        let dry = request.query.get("dryRun").is_some_and(|dry| dry == "All");
        if dry && request.verb == "POST" {
            return respond(201, &request.body);
        }
        match state.store.answer(request) {
            Ok((code, object)) => respond(code, &object),
            Err((code, message)) => refusal(code, &message, name_in(&request.path)),
        }
    }

    fn watch(&self, request: &Recorded) -> Response<Body> {
        let state = self.0.lock();
        let from = request.query.get("resourceVersion");
        let from = from.and_then(|from| from.parse().ok()).unwrap_or_default();
        let Ok((past, future)) = state.store.changes(&request.path, from) else {
            return status(410, "too old resource version");
        };
        let seconds = request.query.get("timeoutSeconds");
        let seconds = seconds
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or(290);
        let end = ends(Duration::from_secs(seconds), state.cut.subscribe());
        let lines = futures::stream::iter(past)
            .chain(live(future, request.path.clone(), from))
            .map(|change| Ok::<_, Infallible>(line(&change)))
            .take_until(end);
        Response::new(Body::from_stream(lines))
    }
}

impl FakeApiState {
    fn fault_for(&mut self, request: &Recorded) -> Option<Fault> {
        let rules = self.rules.iter_mut();
        let rule = rules
            .into_iter()
            .find(|rule| rule.times > 0 && (rule.matches)(request))?;
        rule.times -= 1;
        Some(rule.fault.clone())
    }

    /// Returns the server that answers `request` instead, and the request for it.
    fn passed_on(&self, request: &Recorded) -> Option<(FakeApi, Recorded)> {
        self.passed_on.iter().find_map(|(prefix, to)| {
            let path = request.path.strip_prefix(prefix)?;
            path.starts_with('/').then(|| {
                let inner = Recorded {
                    path: path.to_owned(),
                    ..request.clone()
                };
                (to.clone(), inner)
            })
        })
    }
}

/// Counts a call while it is served, even if it is given up.
struct Serving(FakeApi);

impl Serving {
    fn begin(api: &FakeApi) -> Self {
        let mut state = api.0.lock();
        state.serving += 1;
        state.most_serving = state.most_serving.max(state.serving);
        Self(api.clone())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.0.lock().serving -= 1;
    }
}

async fn record(request: Request<kube::client::Body>) -> Recorded {
    let (parts, body) = request.into_parts();
    let body = body.collect_bytes().await.unwrap_or_default();
    let query = query(&parts.uri);
    let impersonated = parts.headers.get("impersonate-user");
    let impersonated = impersonated.and_then(|user| Some(user.to_str().ok()?.to_owned()));
    let content_type = parts.headers.get("content-type");
    let applies = content_type.is_some_and(|name| name == "application/apply-patch+yaml");
    let watches = query.get("watch").is_some_and(|watch| watch == "true");
    let verb = match parts.method {
        Method::GET if watches => "WATCH".to_owned(),
        Method::PATCH if applies => "APPLY".to_owned(),
        method => method.to_string(),
    };
    Recorded {
        verb,
        path: parts.uri.path().to_owned(),
        query,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        impersonated,
    }
}

fn query(uri: &Uri) -> HashMap<String, String> {
    let pairs = uri.query().unwrap_or_default().split('&');
    pairs
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the changes under `path` after the version `from`, which may be in the future.
fn live(
    changes: broadcast::Receiver<StoreChange>,
    path: String,
    from: u64,
) -> impl Stream<Item = StoreChange> + Send {
    futures::stream::unfold((changes, path), move |(mut changes, path)| async move {
        loop {
            // A receiver that is too slow ends, like a slow watch.
            let change = changes.recv().await.ok()?;
            if change.is_after(from) && change.is_under(&path) {
                return Some((change, (changes, path)));
            }
        }
    })
}

async fn ends(after: Duration, mut cut: broadcast::Receiver<()>) {
    tokio::select! {
        () = tokio::time::sleep(after) => {}
        _ = cut.recv() => {}
    }
}

fn line(change: &StoreChange) -> Bytes {
    let event = json!({"type": change.kind, "object": change.object});
    Bytes::from(format!("{event}\n"))
}

fn respond(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
    response
}

/// A refusal that is about no object.
fn status(code: u16, message: &str) -> Response<Body> {
    refusal(code, message, "")
}

fn refusal(code: u16, message: &str, name: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
        "reason": reason(code), "code": code, "details": {"name": name},
    });
    respond(code, &body)
}

fn name_in(path: &str) -> &str {
    let object = path.strip_suffix("/status").unwrap_or(path);
    object.rsplit('/').next().unwrap_or_default()
}

/// Returns the reason of a status as in Kubernetes; kube reads it rather than the code.
fn reason(code: u16) -> &'static str {
    match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    }
}
