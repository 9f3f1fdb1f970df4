//! Versions, as far as they tell whether a server has gone back to an earlier state.

use crate::client::CallError;

/// The number that a version is: those of one API server are comparable integers (Kubernetes
/// KEP-5504). `None` for what is none, which then tells nothing.
pub(super) fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// The number of `version`, if the server had `reached` a higher one.
pub(super) fn earlier(version: &str, reached: u64) -> Option<u64> {
    number(version).filter(|version| *version > 0 && *version < reached)
}

/// Whether the server says that it has yet to reach the version that it was asked for
/// (`ResourceVersionTooLarge`, k8s.io/apiserver/pkg/storage/errors.go, a 504).
pub(super) fn is_too_large(error: &CallError) -> bool {
    error.code() == Some(504) && error.message().contains("Too large resource version")
}
