//! Uses versions to detect a server that has gone back to an earlier state.

use crate::client::CallError;

/// Parses a version: those of one API server are comparable integers (Kubernetes KEP-5504). `None` if it is
/// no number, which then says nothing.
pub(super) fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// Returns the number of `version` if the server had `reached` a higher one.
pub(super) fn earlier(version: &str, reached: u64) -> Option<u64> {
    number(version).filter(|version| *version > 0 && *version < reached)
}

/// Returns true if the server says that the requested version is in the future (`ResourceVersionTooLarge`,
/// k8s.io/apiserver/pkg/storage/errors.go, a 504).
pub(super) fn is_too_large(error: &CallError) -> bool {
    error.code() == Some(504) && error.message().contains("Too large resource version")
}
