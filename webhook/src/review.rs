//! `AdmissionReview` (admission.k8s.io/v1), as far as it is looked at.
//!
//! kube's own type decodes the object as a whole into a tree; here the object is decoded as
//! what the handler needs of it, and the rest is skipped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json_patch::PatchOperation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the API server sends.
#[derive(Debug, Deserialize)]
pub struct Review<T> {
    /// The request; a review without one is malformed.
    pub request: Option<ReviewRequest<T>>,
}

/// A request for admission of a `T`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewRequest<T> {
    /// Ties the answer to the request.
    pub uid: String,
    /// `CREATE`, `UPDATE`, ...
    pub operation: String,
    /// Kind of the object.
    pub kind: ReviewKind,
    /// Where it is served.
    #[serde(default)]
    pub resource: ReviewResource,
    /// Set for requests on `status`, `scale`, ...
    #[serde(default)]
    pub sub_resource: Option<String>,
    /// Name of the object; empty where the server generates it.
    #[serde(default)]
    pub name: String,
    /// Its namespace; empty for cluster scope.
    #[serde(default)]
    pub namespace: String,
    /// Whether nothing will be stored.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// Who asks.
    #[serde(default)]
    pub user_info: UserInfo,
    /// The object after the request.
    pub object: Option<T>,
    /// The object before the request, on updates and deletions.
    pub old_object: Option<T>,
}

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The name that the API server authenticated.
    pub username: String,
    /// Its UID, where it has one.
    pub uid: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// What authenticators know besides.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Group and resource, as URLs have them.
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

/// What the webhook says.
#[derive(Debug, Clone, PartialEq)]
pub enum ReviewAnswer {
    /// Admitted, changed by the patch if it has operations.
    Allow {
        /// The change.
        patch: Vec<PatchOperation>,
        /// Sentences that kubectl shows to the user.
        warnings: Vec<String>,
    },
    /// Refused.
    Deny {
        /// Which way.
        denial: Denial,
        /// Why, and what to do instead.
        message: String,
    },
}

/// Kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// 422: a value that cannot be used.
    Invalid,
    /// 403: not allowed now.
    Forbidden,
}

impl ReviewAnswer {
    /// Admitted as it is.
    #[must_use]
    pub fn allow() -> Self {
        Self::Allow {
            patch: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// What the API server gets back.
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
    /// The answer to the request `uid`.
    ///
    /// # Errors
    /// Never for patches built here; serialization is fallible by type only.
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
