//! The answer to the dry run that tests whether the API server reaches the webhook: an annotation that only the
//! webhook writes. A request that passes without it did not come here, because the registration is missing or wrong.

use crds::names::WEBHOOK_ANSWER_ANNOTATION;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation};
use serde_json::json;

/// Returns the patch that answers: the probe has no annotations of its own.
pub(crate) fn answer() -> Vec<PatchOperation> {
    vec![PatchOperation::Add(AddOperation {
        path: PointerBuf::from_tokens(["metadata", "annotations"]),
        value: json!({WEBHOOK_ANSWER_ANNOTATION: env!("CARGO_PKG_VERSION")}),
    })]
}
