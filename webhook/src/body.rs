//! Reads the body of a review, within the limits of [`crate::load`], and says what happens to one that
//! cannot be read.
//!
//! Under `failurePolicy: Ignore` an error lets a request pass. Who submits an object decides how large
//! and how deep the review of it is, so such a review is denied and not answered with an error: what is too
//! large, nested too deeply, or large while many large ones are read. Only a request that is no review gets
//! an HTTP error.

use crate::load::{LARGE, RequestBudget, RequestSlot};
use crate::review::{Denial, ReviewAnswer, ReviewRequest, ReviewResponse};
use crate::server::Handlers;
use axum::body::Bytes;
use axum::extract::FromRequest;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use futures::StreamExt as _;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::convert::Infallible;

/// The largest review of an object that can be stored: etcd takes 1.5 MiB, an update has two of them, and a
/// character of one byte may have six in JSON (`<` is `\u003c`); and the review around them.
pub(crate) const BODY_LIMIT: usize = 20 * 1024 * 1024;
/// Most bytes of a too large body that are read and dropped: an API server takes requests of 3 MiB. If the
/// server closed the connection of a client that still sends, the client would see a broken pipe and not
/// the answer.
const DROPPED: usize = 3 * BODY_LIMIT;
/// Within these first bytes of a review an API server writes the UID, before anything of the object.
const HEAD: usize = 512;
/// What precedes the UID.
const BEFORE_UID: &[u8] = br#""request":{"uid":""#;
/// The message when no slot is free.
const BUSY: &str = "muster webhook: too many requests; try again in a second";

/// Why a request is not answered by a handler.
#[derive(Debug)]
pub(crate) enum RequestRefusal {
    /// It gets an HTTP error, so that the registration's failurePolicy applies.
    Http(StatusCode, String),
    /// The review `uid` is denied.
    Denied {
        /// The UID of the review.
        uid: String,
        /// Why.
        message: String,
    },
}

impl RequestRefusal {
    /// Returns the denial as the answer to its review.
    ///
    /// # Errors
    /// Returns the status and the message of an HTTP error.
    pub(crate) fn denial(self) -> Result<(ReviewAnswer, ReviewResponse), (StatusCode, String)> {
        match self {
            Self::Http(code, message) => Err((code, message)),
            Self::Denied { uid, message } => {
                let answer = ReviewAnswer::Deny {
                    denial: Denial::Forbidden,
                    message,
                };
                let response = ReviewResponse::new(&uid, answer.clone())
                    .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
                Ok((answer, response))
            }
        }
    }
}

/// The body of a request with its slot, which is held until the answer is ready, or why it is refused.
pub(crate) struct RequestBody(pub(crate) Result<(Bytes, RequestSlot), RequestRefusal>);

impl FromRequest<Handlers> for RequestBody {
    type Rejection = Infallible;

    async fn from_request(
        request: axum::extract::Request,
        handlers: &Handlers,
    ) -> Result<Self, Infallible> {
        Ok(Self(within(&handlers.load, request).await))
    }
}

async fn within(
    load: &RequestBudget,
    request: axum::extract::Request,
) -> Result<(Bytes, RequestSlot), RequestRefusal> {
    let length = expected_length(request.headers());
    if let Some(place) = load.place(length) {
        return Ok((whole(request.into_body(), BODY_LIMIT).await?, place));
    }
    let busy = RequestRefusal::Http(StatusCode::TOO_MANY_REQUESTS, BUSY.to_owned());
    match length > LARGE {
        // Who sends many large objects must not get one of them past the webhook.
        true => match whole(request.into_body(), 0).await {
            Err(RequestRefusal::Denied { uid, .. }) => Err(RequestRefusal::Denied {
                uid,
                message: BUSY.to_owned(),
            }),
            _ => Err(busy),
        },
        false => Err(busy),
    }
}

/// Returns how many bytes of a body are buffered at most. API servers send the length.
fn expected_length(headers: &HeaderMap) -> usize {
    let stated = headers.get(CONTENT_LENGTH);
    let stated = stated.and_then(|length| length.to_str().ok()?.parse().ok());
    stated.unwrap_or(LARGE).min(BODY_LIMIT)
}

/// Reads a body of at most `limit` bytes. Of a larger one only the head is kept.
async fn whole(body: axum::body::Body, limit: usize) -> Result<Bytes, RequestRefusal> {
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut length) = (Vec::new(), 0);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            let message = format!("muster webhook: the review cannot be received: {error}");
            RequestRefusal::Http(StatusCode::BAD_REQUEST, message)
        })?;
        length += chunk.len();
        if length <= limit {
            bytes.extend_from_slice(&chunk);
        } else if length <= DROPPED {
            let missing = HEAD.saturating_sub(bytes.len()).min(chunk.len());
            bytes.extend_from_slice(&chunk[..missing]);
            bytes.truncate(HEAD);
            bytes.shrink_to_fit();
        } else {
            break;
        }
    }
    if length <= limit {
        return Ok(bytes.into());
    }
    let message = format!(
        "muster webhook: the review is larger than {BODY_LIMIT} bytes: make the object smaller, \
         for example its annotations"
    );
    Err(match uid_in(&bytes) {
        Some(uid) => RequestRefusal::Denied { uid, message },
        None => RequestRefusal::Http(StatusCode::PAYLOAD_TOO_LARGE, message),
    })
}

/// Returns the UID of the review that begins with `head`, as API servers write it.
fn uid_in(head: &[u8]) -> Option<String> {
    let mut starts = head.windows(BEFORE_UID.len());
    let start = starts.position(|window| window == BEFORE_UID)? + BEFORE_UID.len();
    let rest = head.get(start..)?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let uid = std::str::from_utf8(&rest[..end]).ok()?;
    (!uid.is_empty()).then(|| uid.to_owned())
}

/// What is read of a review whose object cannot be read; the rest is skipped, however deep it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ObjectOutline {
    metadata: MetadataOutline,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetadataOutline {
    deletion_timestamp: Option<IgnoredAny>,
}

/// Parses a review. One that is nested too deeply is denied; the end of an object that is being deleted must
/// not depend on that.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<ReviewRequest<T>, RequestRefusal> {
    let review = crate::review::parse::<T>(body);
    review.map_err(|error| {
        let outline = crate::review::parse::<ObjectOutline>(body).ok();
        let denied = outline.filter(|request| {
            let object = request.object.as_ref();
            object.is_some_and(|object| object.metadata.deletion_timestamp.is_none())
        });
        match denied {
            Some(request) => RequestRefusal::Denied {
                uid: request.uid,
                message: format!(
                    "muster webhook: the object cannot be read ({error}): nest its fields less deeply"
                ),
            },
            None => RequestRefusal::Http(
                StatusCode::BAD_REQUEST,
                format!("muster webhook: not an AdmissionReview: {error}"),
            ),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uid_is_read_from_the_head_that_api_servers_write() {
        let uid = |head: &str| uid_in(head.as_bytes());
        let head = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","kind":{"#;
        assert_eq!(uid(head), Some("u-1".to_owned()));
        for none in [
            "",
            r#"{"request":{"uid":"#,
            r#"{"request":{"uid":"u-"#,
            r#"{"request":{"uid":"","#,
            r#"{"uid":"u"}"#,
        ] {
            assert_eq!(uid(none), None, "{none}");
        }
    }
}
