//! HTTPS for the API server: one route per registration.
//!
//! A request that cannot be read is an HTTP error, not a denial, so that the registration's
//! failurePolicy decides what becomes of it. Number and size of what is read at a time are bounded
//! ([`crate::load`]); nesting beyond 128 levels is an error of serde_json's.

use crate::gate::{self, GateRegistration, GateVerdict};
use crate::load::{RequestBudget, RequestSlot};
use crate::metrics::{RequestOutcome, WebhookMetrics};
use crate::permits::{Checked, Permits};
use crate::released::ReleasedIndex;
use crate::review::{Review, ReviewAnswer, ReviewRequest, ReviewResponse};
use crate::templates::{self, TemplateRegistration};
use crate::users;
use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequest, State};
use axum::http::header::{CONTENT_LENGTH, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::StreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tower_http::timeout::TimeoutLayer;

/// `/gate/namespace`: bindings of managed namespaces.
pub const GATE_NAMESPACE: &str = "/gate/namespace";
/// `/gate/scheduler`: bindings whose policy names our scheduler.
pub const GATE_SCHEDULER: &str = "/gate/scheduler";
/// `/validate/templates/managed`: templates of managed namespaces.
pub const TEMPLATES_MANAGED: &str = "/validate/templates/managed";
/// `/validate/templates`: templates elsewhere.
pub const TEMPLATES: &str = "/validate/templates";

/// `/mutate/templates`: who submitted a template, in managed namespaces.
pub const USERS: &str = "/mutate/templates";

/// Two objects of etcd's limit (1.5 MiB each, on updates) and the review around them.
const BODY_LIMIT: usize = 4 * 1024 * 1024;
/// How much of a body that is too large is read and dropped. The connection of a client that still sends
/// is closed with the answer unread: it sees a broken pipe, and never why.
const DROPPED: usize = 4 * BODY_LIMIT;
/// What is said where no place is free.
const BUSY: &str = "muster webhook: too many requests; try again in a second";
/// Seconds after which who was told so may ask again. API servers do, within timeoutSeconds.
const RETRY_SECONDS: &str = "1";
/// Below the registrations' timeoutSeconds (3), so that the API server hears why.
const TIME_LIMIT: Duration = Duration::from_millis(2500);

/// What handlers need.
#[derive(Clone)]
pub struct Handlers {
    /// Which jobs are released.
    pub released: ReleasedIndex,
    /// Counts and times.
    pub metrics: WebhookMetrics,
    /// How much is taken on at a time.
    pub load: RequestBudget,
    /// Who may use which queue.
    pub permits: Permits,
}

/// Connections that may wait to be accepted; what the standard library takes where it is not told.
const BACKLOG: u32 = 128;

/// A socket on `address` that does not listen yet: what API servers send before there is a
/// certificate is refused at once, and does not wait for it.
///
/// # Errors
/// Where the address cannot be had.
pub fn bind(address: SocketAddr) -> anyhow::Result<TcpSocket> {
    let bound = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // Else a webhook that starts again waits for the connections of the one before it.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        io::Result::Ok(socket)
    };
    bound().with_context(|| format!("the webhook cannot listen on {address}"))
}

/// Has `socket` listen.
///
/// # Errors
/// Where another socket listens on its address since it was bound.
pub fn listen(socket: TcpSocket) -> anyhow::Result<TcpListener> {
    let address = socket.local_addr()?;
    let listening = || socket.listen(BACKLOG)?.into_std();
    listening().with_context(|| format!("the webhook cannot listen on {address}"))
}

/// The routes.
pub fn router(handlers: Handlers) -> Router {
    Router::new()
        .route(GATE_NAMESPACE, post(gate_namespace))
        .route(GATE_SCHEDULER, post(gate_scheduler))
        .route(TEMPLATES_MANAGED, post(templates_managed))
        .route(TEMPLATES, post(templates_elsewhere))
        .route(USERS, post(template_users))
        // Nothing is served before the certificate is loaded: an answer proves that it is.
        .route("/readyz", get(async || "ok\n"))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            TIME_LIMIT,
        ))
        .with_state(handlers)
}

/// Why a request is not answered with a review.
type RequestRefusal = (StatusCode, String);

/// The body of a request with its place, which is held until the answer is made, or why it is not
/// taken.
struct RequestBody(Result<(Bytes, RequestSlot), RequestRefusal>);

impl FromRequest<Handlers> for RequestBody {
    type Rejection = Infallible;

    async fn from_request(
        request: axum::extract::Request,
        handlers: &Handlers,
    ) -> Result<Self, Infallible> {
        let Some(place) = handlers.load.place(expected_length(request.headers())) else {
            return Ok(Self(Err((StatusCode::TOO_MANY_REQUESTS, BUSY.to_owned()))));
        };
        let body = whole(request.into_body()).await;
        Ok(Self(body.map(|bytes| (bytes, place))))
    }
}

/// Bytes of a body that are kept at most. API servers say how many come.
fn expected_length(headers: &HeaderMap) -> usize {
    let stated = headers.get(CONTENT_LENGTH);
    let stated = stated.and_then(|length| length.to_str().ok()?.parse().ok());
    stated.unwrap_or(BODY_LIMIT).min(BODY_LIMIT)
}

async fn whole(body: axum::body::Body) -> Result<Bytes, RequestRefusal> {
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut length) = (Vec::new(), 0);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            let message = format!("muster webhook: the review cannot be received: {error}");
            (StatusCode::BAD_REQUEST, message)
        })?;
        length += chunk.len();
        if length <= BODY_LIMIT {
            bytes.extend_from_slice(&chunk);
        } else if length > DROPPED {
            break;
        }
    }
    match length <= BODY_LIMIT {
        true => Ok(bytes.into()),
        false => Err((
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("muster webhook: the review is larger than {BODY_LIMIT} bytes"),
        )),
    }
}

async fn gate_namespace(State(handlers): State<Handlers>, body: RequestBody) -> Response {
    let received = Received::read(GATE_NAMESPACE, body);
    received.answer(&handlers, |request| {
        gate_answer(GateRegistration::Namespace, request)
    })
}

async fn gate_scheduler(State(handlers): State<Handlers>, body: RequestBody) -> Response {
    let received = Received::read(GATE_SCHEDULER, body);
    received.answer(&handlers, |request| {
        gate_answer(GateRegistration::Scheduler, request)
    })
}

async fn templates_managed(State(handlers): State<Handlers>, body: RequestBody) -> Response {
    let received = Received::read(TEMPLATES_MANAGED, body);
    let checked = match &received.request {
        Ok((request, _)) if users::concerns(request) => handlers.permits.check(request).await,
        _ => Checked::default(),
    };
    received.answer(&handlers, |request| {
        let answer = template_answer(TemplateRegistration::Managed, request, &handlers.released);
        with_checked(answer, checked, request)
    })
}

async fn templates_elsewhere(State(handlers): State<Handlers>, body: RequestBody) -> Response {
    let received = Received::read(TEMPLATES, body);
    received.answer(&handlers, |request| {
        template_answer(TemplateRegistration::Elsewhere, request, &handlers.released)
    })
}

async fn template_users(State(handlers): State<Handlers>, body: RequestBody) -> Response {
    let mut received = Received::read(USERS, body);
    let permitted = match &received.request {
        Ok((request, _)) if users::concerns(request) => handlers.permits.stamp(request).await,
        _ => Ok(None),
    };
    let permitted = permitted.unwrap_or_else(|unknown| {
        // Asked again within its time, the API server may get an answer.
        received.request = Err((StatusCode::SERVICE_UNAVAILABLE, unknown.to_string()));
        None
    });
    received.answer(&handlers, |request| ReviewAnswer::Allow {
        patch: users::stamp(request, permitted.as_deref()),
        warnings: Vec::new(),
    })
}

/// What else was found of a template, where nothing stood against it before.
fn with_checked(
    answer: ReviewAnswer,
    checked: Checked,
    request: &ReviewRequest<Value>,
) -> ReviewAnswer {
    let Checked { denial, warnings } = checked;
    match (answer, denial) {
        (ReviewAnswer::Allow { .. }, Some((denial, message))) => {
            let ReviewRequest {
                namespace, name, ..
            } = request;
            tracing::info!(namespace, name, ?denial, message, "template refused");
            ReviewAnswer::Deny { denial, message }
        }
        (
            ReviewAnswer::Allow {
                patch,
                warnings: said,
            },
            None,
        ) => ReviewAnswer::Allow {
            patch,
            warnings: said.into_iter().chain(warnings).collect(),
        },
        (denied, _) => denied,
    }
}

fn gate_answer(
    entry: GateRegistration,
    request: &ReviewRequest<gate::ReviewedBinding>,
) -> ReviewAnswer {
    let ReviewRequest {
        namespace, name, ..
    } = request;
    let template = request
        .object
        .as_ref()
        .map(gate::ReviewedBinding::template)
        .unwrap_or_default();
    let dry_run = request.dry_run.unwrap_or(false);
    match gate::decide(entry, request) {
        GateVerdict::LeftAlone(why) => {
            tracing::debug!(
                namespace,
                binding = name,
                template,
                why,
                dry_run,
                "binding left alone"
            );
            ReviewAnswer::allow()
        }
        GateVerdict::Gated(patch) => {
            tracing::info!(
                namespace,
                binding = name,
                template,
                ?entry,
                dry_run,
                "binding gated"
            );
            ReviewAnswer::Allow {
                patch,
                warnings: Vec::new(),
            }
        }
    }
}

fn template_answer(
    scope: TemplateRegistration,
    request: &ReviewRequest<Value>,
    released: &ReleasedIndex,
) -> ReviewAnswer {
    let answer = templates::review(scope, request, released);
    if let ReviewAnswer::Deny { denial, message } = &answer {
        let ReviewRequest {
            namespace,
            name,
            kind,
            ..
        } = request;
        tracing::info!(
            namespace,
            name,
            kind = kind.kind,
            ?denial,
            message,
            "template refused"
        );
    }
    answer
}

/// A review that was read, or why not, with the place that it takes until it is answered.
struct Received<T> {
    path: &'static str,
    start: Instant,
    request: Result<(ReviewRequest<T>, RequestSlot), RequestRefusal>,
}

impl<T: DeserializeOwned> Received<T> {
    fn read(path: &'static str, body: RequestBody) -> Self {
        let start = Instant::now();
        let request = body.0.and_then(|(body, place)| Ok((read(&body)?, place)));
        Self {
            path,
            start,
            request,
        }
    }

    /// Has it answered, and counts.
    fn answer(
        self,
        handlers: &Handlers,
        answer: impl FnOnce(&ReviewRequest<T>) -> ReviewAnswer,
    ) -> Response {
        let path = self.path;
        let result = self.request.and_then(|(request, _place)| {
            let answer = answer(&request);
            let outcome = RequestOutcome::of(&answer);
            let response = ReviewResponse::new(&request.uid, answer)
                .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
            Ok((outcome, response))
        });
        let later = [(RETRY_AFTER, RETRY_SECONDS)];
        let (outcome, response) = match result {
            Ok((outcome, response)) => (outcome, axum::Json(response).into_response()),
            // Not logged: a flood of requests must not become one of lines. The metric tells.
            Err((code @ StatusCode::TOO_MANY_REQUESTS, message)) => {
                (RequestOutcome::Busy, (code, later, message).into_response())
            }
            Err((code, message)) => {
                tracing::warn!(path, %code, message, "admission review not answered");
                let response = match code {
                    StatusCode::SERVICE_UNAVAILABLE => (code, later, message).into_response(),
                    _ => (code, message).into_response(),
                };
                (RequestOutcome::Error, response)
            }
        };
        handlers
            .metrics
            .observe(path, outcome, self.start.elapsed());
        response
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<ReviewRequest<T>, RequestRefusal> {
    let review: Review<T> = serde_json::from_slice(body).map_err(|error| {
        let message = format!("muster webhook: not an AdmissionReview that can be read: {error}");
        (StatusCode::BAD_REQUEST, message)
    })?;
    review.request.ok_or_else(|| {
        let message = "muster webhook: the AdmissionReview has no request".to_owned();
        (StatusCode::BAD_REQUEST, message)
    })
}
