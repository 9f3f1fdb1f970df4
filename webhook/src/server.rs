//! HTTPS for the API server: one route for each registration.
//!
//! The number and size of requests that are read at a time are limited ([`crate::load`]); [`crate::body`]
//! says what happens to those that cannot be read.

use crate::body::{RequestBody, RequestRefusal, read};
use crate::bounds;
use crate::gate::{self, GateRegistration, GateVerdict};
use crate::load::{RequestBudget, RequestSlot};
use crate::metrics::{RequestOutcome, WebhookMetrics};
use crate::outlook;
use crate::permits::{Checked, Permits};
use crate::probe;
use crate::published::PublishedIndex;
use crate::released::ReleasedIndex;
use crate::review::{ReviewAnswer, ReviewRequest, ReviewResponse};
use crate::templates::{self, TemplateRegistration};
use crate::unqueued;
use crate::users;
use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use jiff::Timestamp;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tower_http::timeout::TimeoutLayer;

/// `/gate/namespace`: bindings of managed namespaces.
pub const GATE_NAMESPACE: &str = "/gate/namespace";
/// `/gate/scheduler`: bindings whose policy names Muster as the scheduler.
pub const GATE_SCHEDULER: &str = "/gate/scheduler";
/// `/validate/templates/managed`: templates of managed namespaces.
pub const TEMPLATES_MANAGED: &str = "/validate/templates/managed";
/// `/validate/templates`: templates elsewhere.
pub const TEMPLATES: &str = "/validate/templates";

/// `/mutate/templates`: the user and the permitted queue of templates in managed namespaces.
pub const USERS: &str = "/mutate/templates";

/// `/warn/objects`: objects that name a queue, and jobs in namespaces whose label has no effect.
pub const WARN_OBJECTS: &str = "/warn/objects";
/// `/warn/namespaces`: namespaces with labels that may be meant for Muster.
pub const WARN_NAMESPACES: &str = "/warn/namespaces";
/// `/warn/policies`: capacity policies.
pub const WARN_POLICIES: &str = "/warn/policies";

/// `/probe`: the dry run that tests whether the API server reaches the webhook.
pub const PROBE: &str = "/probe";

/// Seconds of `Retry-After`. API servers retry within timeoutSeconds.
const RETRY_SECONDS: &str = "1";
/// Below the registrations' timeoutSeconds (3), so that the API server gets the reason.
const TIME_LIMIT: Duration = Duration::from_millis(2500);

/// Dependencies of the handlers.
#[derive(Clone)]
pub struct Handlers {
    /// The admitted jobs.
    pub released: ReleasedIndex,
    /// Numbers and times of requests.
    pub metrics: WebhookMetrics,
    /// Limits of what is served at a time.
    pub load: RequestBudget,
    /// Who may use which queue.
    pub permits: Permits,
    /// What is published of the queues.
    pub published: PublishedIndex,
}

/// Most connections that wait to be accepted; the standard library's default.
const BACKLOG: u32 = 128;

/// Binds a socket to `address` that does not listen yet: API servers get a refusal at once before there is
/// a certificate, and do not wait.
///
/// # Errors
/// Returns an error if the address cannot be bound.
pub fn bind(address: SocketAddr) -> anyhow::Result<TcpSocket> {
    let bound = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // Otherwise a restarted webhook would wait for the connections of the previous one.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        io::Result::Ok(socket)
    };
    bound().with_context(|| format!("the webhook cannot listen on {address}"))
}

/// Makes `socket` listen.
///
/// # Errors
/// Returns an error if another socket listens on its address since it was bound.
pub fn listen(socket: TcpSocket) -> anyhow::Result<TcpListener> {
    let address = socket.local_addr()?;
    let listening = || socket.listen(BACKLOG)?.into_std();
    listening().with_context(|| format!("the webhook cannot listen on {address}"))
}

/// Returns the routes.
pub fn router(handlers: Handlers) -> Router {
    Router::new()
        .route(GATE_NAMESPACE, post(gate_namespace))
        .route(GATE_SCHEDULER, post(gate_scheduler))
        .route(TEMPLATES_MANAGED, post(templates_managed))
        .route(TEMPLATES, post(templates_elsewhere))
        .route(USERS, post(template_users))
        .route(WARN_OBJECTS, post(warn_objects))
        .route(WARN_NAMESPACES, post(warn_namespaces))
        .route(WARN_POLICIES, post(warn_policies))
        .route(PROBE, post(answer_probe))
        // Nothing is served before the certificate is loaded, so an answer proves that it is.
        .route("/readyz", get(async || "ok\n"))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            TIME_LIMIT,
        ))
        .with_state(handlers)
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
        let answer = with_checked(answer, checked, request);
        let (queues, published) = (&handlers.permits.queues, &handlers.published);
        let outlook = || outlook::of_template(request, queues, published, Timestamp::now());
        with_warnings(answer, outlook)
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
        // The API server retries within its time and may then get an answer.
        let code = StatusCode::SERVICE_UNAVAILABLE;
        received.request = Err(RequestRefusal::Http(code, unknown.to_string()));
        None
    });
    received.answer(&handlers, |request| ReviewAnswer::Allow {
        patch: users::stamp(request, permitted.as_deref()),
        warnings: Vec::new(),
    })
}

async fn warn_objects(State(handlers): State<Handlers>, body: RequestBody) -> Response {
    let received = Received::read(WARN_OBJECTS, body);
    received.warn(&handlers, |request| {
        unqueued::of_object(request, &handlers.permits.queues)
    })
}

async fn warn_namespaces(State(handlers): State<Handlers>, body: RequestBody) -> Response {
    let received = Received::read(WARN_NAMESPACES, body);
    received.warn(&handlers, unqueued::of_namespace)
}

async fn warn_policies(State(handlers): State<Handlers>, body: RequestBody) -> Response {
    let received = Received::read(WARN_POLICIES, body);
    received.warn(&handlers, |request| {
        bounds::of_policy(request, &handlers.permits.queues, &handlers.published)
    })
}

async fn answer_probe(State(handlers): State<Handlers>, body: RequestBody) -> Response {
    let received: Received<IgnoredAny> = Received::read(PROBE, body);
    received.answer(&handlers, |_| ReviewAnswer::Allow {
        patch: probe::answer(),
        warnings: Vec::new(),
    })
}

/// Adds warnings to an answer that allows the request.
fn with_warnings(answer: ReviewAnswer, more: impl FnOnce() -> Vec<String>) -> ReviewAnswer {
    match answer {
        ReviewAnswer::Allow {
            patch,
            mut warnings,
        } => {
            warnings.extend(more());
            ReviewAnswer::Allow { patch, warnings }
        }
        denied @ ReviewAnswer::Deny { .. } => denied,
    }
}

/// Adds the result of the permission check to an answer that allows the request.
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
        (answer, _) => with_warnings(answer, || warnings),
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

/// A review that was read, or the refusal, with its slot until it is answered.
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

    /// Allows the request with warnings. What cannot be read gets an HTTP error and passes, because these registrations
    /// are ignored on failure.
    fn warn(
        mut self,
        handlers: &Handlers,
        warnings: impl FnOnce(&ReviewRequest<T>) -> Vec<String>,
    ) -> Response {
        if let Err(RequestRefusal::Denied { message, .. }) = self.request {
            let code = StatusCode::PAYLOAD_TOO_LARGE;
            self.request = Err(RequestRefusal::Http(code, message));
        }
        self.answer(handlers, |request| {
            with_warnings(ReviewAnswer::allow(), || warnings(request))
        })
    }

    /// Answers the request and counts it.
    fn answer(
        self,
        handlers: &Handlers,
        answer: impl FnOnce(&ReviewRequest<T>) -> ReviewAnswer,
    ) -> Response {
        let path = self.path;
        let result = match self.request {
            Ok((request, _place)) => {
                let answer = answer(&request);
                let outcome = RequestOutcome::of(&answer);
                ReviewResponse::new(&request.uid, answer)
                    .map(|response| (outcome, response))
                    .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
            }
            Err(refusal) => refusal.denial().map(|(answer, response)| {
                tracing::info!(path, ?answer, "admission review denied unread");
                (RequestOutcome::of(&answer), response)
            }),
        };
        let later = [(RETRY_AFTER, RETRY_SECONDS)];
        let (outcome, response) = match result {
            Ok((outcome, response)) => (outcome, axum::Json(response).into_response()),
            // Not logged: a flood of requests must not become a flood of log lines. The metric counts them.
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
