//! The fields of an `AdmissionReview` (admission.k8s.io/v1) that the webhook reads.
//!
//! kube's own type decodes the object into a tree; here only the fields that a handler needs are decoded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json_patch::PatchOperation;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The request body of the API server.
#[derive(Debug, Deserialize)]
pub struct Review<T> {
    /// The request; a review without one is malformed.
    pub request: Option<ReviewRequest<T>>,
}

/// Parses the body of a request.
///
/// # Errors
/// Returns an error if it is no review, has no request, or its object is no `T`. serde_json rejects nesting
/// beyond 128 levels, except of what `T` skips.
pub(crate) fn parse<T: DeserializeOwned>(
    body: &[u8],
) -> Result<ReviewRequest<T>, serde_json::Error> {
    let review: Review<T> = serde_json::from_slice(body)?;
    let missing = || serde_json::Error::custom("it has no request");
    review.request.ok_or_else(missing)
}

/// A request for admission of a `T`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewRequest<T> {
    /// Identifies the request in the answer.
    pub uid: String,
    /// `CREATE`, `UPDATE`, ...
    pub operation: String,
    /// Kind of the object.
    pub kind: ReviewKind,
    /// The resource in the URL.
    #[serde(default)]
    pub resource: ReviewResource,
    /// Set for requests on `status`, `scale`, ...
    #[serde(default)]
    pub sub_resource: Option<String>,
    /// Name of the object; empty if the server generates it.
    #[serde(default)]
    pub name: String,
    /// Its namespace; empty for cluster scope.
    #[serde(default)]
    pub namespace: String,
    /// True if nothing will be stored.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// The user of the request.
    #[serde(default)]
    pub user_info: UserInfo,
    /// The object after the request.
    pub object: Option<T>,
    /// The object before the request, on updates and deletions.
    pub old_object: Option<T>,
}

/// The user of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The name that the API server authenticated.
    pub username: String,
    /// Its UID, if it has one.
    pub uid: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// Additional information of authenticators.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Group and resource, as in URLs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReviewResource {
    /// Empty for the core group.
    pub group: String,
    /// `pytorchjobs`.
    pub resource: String,
}

/// Group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReviewKind {
    /// Empty for the core group.
    pub group: String,
    /// `v1`, ...
    pub version: String,
    /// `Pod`, ...
    pub kind: String,
}

/// The webhook's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ReviewAnswer {
    /// Allowed, with the patch if it has operations.
    Allow {
        /// The patch.
        patch: Vec<PatchOperation>,
        /// Warnings that kubectl prints.
        warnings: Vec<String>,
    },
    /// Refused.
    Deny {
        /// The kind of refusal.
        denial: Denial,
        /// Why, and what to do instead.
        message: String,
    },
}

/// Kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// 422: an invalid value.
    Invalid,
    /// 403: not allowed at present.
    Forbidden,
}

impl ReviewAnswer {
    /// Allows the request unchanged.
    #[must_use]
    pub fn allow() -> Self {
        Self::Allow {
            patch: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// The response body.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewResponse {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

impl ReviewResponse {
    /// Builds the answer to the request `uid`.
    ///
    /// # Errors
    /// Never for patches built here; serialization can fail by type only.
    pub fn new(uid: &str, answer: ReviewAnswer) -> Result<Self, serde_json::Error> {
        let mut response = Response {
            uid: uid.to_owned(),
            allowed: true,
            patch_type: None,
            patch: None,
            status: None,
            warnings: Vec::new(),
        };
        match answer {
            ReviewAnswer::Allow { patch, warnings } => {
                response.warnings = warnings;
                if !patch.is_empty() {
                    response.patch_type = Some("JSONPatch");
                    response.patch = Some(STANDARD.encode(serde_json::to_vec(&patch)?));
                }
            }
            ReviewAnswer::Deny { denial, message } => {
                response.allowed = false;
                response.status = Some(denial.status(message));
            }
        }
        Ok(Self {
            api_version: "admission.k8s.io/v1",
            kind: "AdmissionReview",
            response,
        })
    }
}

impl Denial {
    fn status(self, message: String) -> Status {
        let (code, reason) = match self {
            Self::Invalid => (422, "Invalid"),
            Self::Forbidden => (403, "Forbidden"),
        };
        Status {
            code,
            reason,
            message,
        }
    }
}
