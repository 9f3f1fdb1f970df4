//! Who may read the metrics, or use another URL of a process, where others than this machine reach it.
//!
//! ```text
//! GET /metrics, Authorization: Bearer TOKEN ─► TokenReview: whose token is it?      ─► 401
//!                                           ─► SubjectAccessReview: get /metrics?   ─► 403
//!                                           ─► no answer from the API server        ─► 503
//! ```
//!
//! kube-rbac-proxy and controller-runtime do the same, so that Prometheus needs nothing but its account and
//! the right `get` on the URL `/metrics`. Answers are cached for a minute by a hash of the token, so that a
//! scrape asks nothing as a rule, and the number of questions at a time is limited.

use crate::client::{CallError, with_deadline};
use crate::rights::Principal;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The URL of the metrics, and the right that a reader needs on it.
const METRICS: UrlRight = UrlRight {
    path: "/metrics",
    verb: "get",
};
/// Deadline of both questions, including the wait for their turn. Below the timeout of a scrape.
const ASK_LIMIT: Duration = Duration::from_secs(3);
/// How long a yes is cached.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// How long a no is cached. An account that was just given the right should not wait.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Most answers in the cache.
const KEPT: usize = 256;
/// Most requests that ask at a time.
const AT_A_TIME: usize = 4;

/// A right on a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UrlRight {
    path: &'static str,
    verb: &'static str,
}

impl fmt::Display for UrlRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the right {} on the URL {}", self.verb, self.path)
    }
}

/// Who may read the metrics, or use another URL.
#[derive(Clone)]
pub enum MetricsAccess {
    /// Every client that reaches the port.
    Anyone,
    /// Accounts of an API server that have the right.
    Reviewed(MetricsReviewer),
}

/// Asks an API server who may read the metrics. Clones share the known answers.
#[derive(Clone)]
pub struct MetricsReviewer {
    client: Client,
    right: UrlRight,
    answers: Arc<Mutex<HashMap<TokenHash, (Instant, AccessAnswer)>>>,
    turns: Arc<Semaphore>,
}

type TokenHash = [u8; 32];

/// What the API server said of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AccessAnswer {
    Allowed,
    Unauthenticated,
    /// The user has not the right.
    Forbidden(String),
}

/// Why a request gets no metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessRefusal {
    /// There is no token of an account with this right.
    NoToken(UrlRight),
    Unauthenticated,
    /// The user has not the right.
    Forbidden(String, UrlRight),
    /// The API server gave no answer, and why.
    Unknown(String),
}

impl MetricsAccess {
    /// Returns the access that `client`'s API server decides on.
    #[must_use]
    pub fn reviewed_by(client: Client) -> Self {
        Self::of_right(client, METRICS)
    }

    /// Returns the access to another URL, for accounts with the right `verb` on `path`, that `client`'s API server
    /// decides on.
    #[must_use]
    pub fn of_url(client: Client, path: &'static str, verb: &'static str) -> Self {
        Self::of_right(client, UrlRight { path, verb })
    }

    fn of_right(client: Client, right: UrlRight) -> Self {
        Self::Reviewed(MetricsReviewer {
            client,
            right,
            answers: Arc::default(),
            turns: Arc::new(Semaphore::new(AT_A_TIME)),
        })
    }

    /// Checks whether a request with these headers has access.
    pub(crate) async fn check(&self, headers: &HeaderMap) -> Result<(), AccessRefusal> {
        let Self::Reviewed(reviewer) = self else {
            return Ok(());
        };
        let right = reviewer.right;
        let token = bearer(headers).ok_or(AccessRefusal::NoToken(right))?;
        match reviewer.answer(token).await {
            Ok(AccessAnswer::Allowed) => Ok(()),
            Ok(AccessAnswer::Unauthenticated) => Err(AccessRefusal::Unauthenticated),
            Ok(AccessAnswer::Forbidden(user)) => Err(AccessRefusal::Forbidden(user, right)),
            Err(error) => {
                let error = error.message();
                tracing::warn!(
                    error,
                    url = right.path,
                    "cannot check who has access to a URL"
                );
                Err(AccessRefusal::Unknown(error))
            }
        }
    }
}

impl MetricsReviewer {
    /// Returns the access to another URL, for accounts with the right `verb` on `path`. The same API server decides.
    #[must_use]
    pub fn of_url(&self, path: &'static str, verb: &'static str) -> MetricsAccess {
        MetricsAccess::of_url(self.client.clone(), path, verb)
    }

    async fn answer(&self, token: &str) -> Result<AccessAnswer, CallError> {
        let hash = TokenHash::from(Sha256::digest(token));
        if let Some(known) = self.known(&hash) {
            return Ok(known);
        }
        let ask = async {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await;
            match self.known(&hash) {
                // An earlier request with the same token may have got the answer by now.
                Some(known) => Ok(known),
                None => self.ask(token).await,
            }
        };
        let answer = tokio::time::timeout(ASK_LIMIT, ask).await;
        let answer = answer.map_err(|_| CallError::Timeout(ASK_LIMIT))??;
        self.keep(hash, answer.clone());
        Ok(answer)
    }

    async fn ask(&self, token: &str) -> Result<AccessAnswer, CallError> {
        let Some(user) = whose(&self.client, token).await? else {
            return Ok(AccessAnswer::Unauthenticated);
        };
        Ok(match has_right(&self.client, &user, self.right).await? {
            true => AccessAnswer::Allowed,
            false => AccessAnswer::Forbidden(user.user),
        })
    }

    fn known(&self, hash: &TokenHash) -> Option<AccessAnswer> {
        let answers = self.answers.lock();
        let (until, answer) = answers.get(hash)?;
        (*until > Instant::now()).then(|| answer.clone())
    }

    fn keep(&self, hash: TokenHash, answer: AccessAnswer) {
        let now = Instant::now();
        let mut answers = self.answers.lock();
        if answers.len() >= KEPT {
            answers.retain(|_, (until, _)| *until > now);
        }
        if answers.len() >= KEPT {
            answers.clear();
        }
        let cached_for = match answer {
            AccessAnswer::Allowed => ALLOWED_FOR,
            _ => REFUSED_FOR,
        };
        answers.insert(hash, (now + cached_for, answer));
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Returns whose token it is, or `None` if the API server does not accept it.
async fn whose(client: &Client, token: &str) -> Result<Option<Principal>, CallError> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token.to_owned()),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let api: Api<TokenReview> = Api::all(client.clone());
    let params = PostParams::default();
    let answer = with_deadline(api.create(&params, &review), ASK_LIMIT).await?;
    let status = answer.status;
    let status = status.filter(|status| status.authenticated == Some(true));
    let user = status.and_then(|status| status.user);
    Ok(user.map(|user| Principal {
        user: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }))
}

async fn has_right(client: &Client, who: &Principal, right: UrlRight) -> Result<bool, CallError> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(who.user.clone()),
            uid: Some(who.uid.clone()),
            groups: Some(who.groups.clone()),
            extra: Some(who.extra.clone()),
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(right.path.to_owned()),
                verb: Some(right.verb.to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    let answer = with_deadline(api.create(&params, &review), ASK_LIMIT).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

impl IntoResponse for AccessRefusal {
    fn into_response(self) -> Response {
        let bearer = [(header::WWW_AUTHENTICATE, "Bearer")];
        match self {
            Self::NoToken(right) => {
                let text = format!("a bearer token of an account with {right} is needed\n");
                (StatusCode::UNAUTHORIZED, bearer, text).into_response()
            }
            Self::Unauthenticated => {
                let text = "the API server does not accept the token\n";
                (StatusCode::UNAUTHORIZED, bearer, text).into_response()
            }
            Self::Forbidden(user, right) => {
                let text = format!("{user} has not {right}\n");
                (StatusCode::FORBIDDEN, text).into_response()
            }
            Self::Unknown(why) => {
                let text = format!("the API server cannot be asked who has access: {why}\n");
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests;
