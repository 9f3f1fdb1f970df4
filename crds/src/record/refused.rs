//! Attempts that the API server refused to place, and would refuse again.

use super::AdmissionRecord;
use crate::karmada::ResourceBinding;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Bytes of a digest that are kept: enough to tell the placements of one policy apart.
const KEPT: usize = 8;

impl AdmissionRecord {
    /// Returns the same record with the note that the placement of `binding` was refused in its attempt.
    #[must_use]
    pub fn with_refused_placement(self, binding: &ResourceBinding) -> Self {
        Self {
            refused_placement: Some(digest(binding)),
            ..self
        }
    }

    /// Returns true if the API server has refused its attempt, and the placement of `binding` is still the same.
    #[must_use]
    pub fn refuses_placement_of(&self, binding: &ResourceBinding) -> bool {
        let refused = self.refused_placement.as_deref();
        refused.is_some_and(|refused| refused == digest(binding))
    }
}

/// Returns the digest of the placement of `binding`. Every process and version computes the same.
fn digest(binding: &ResourceBinding) -> String {
    let placement = binding.spec.placement.as_ref();
    let text = placement.map(Value::to_string).unwrap_or_default();
    let bytes = Sha256::digest(text.as_bytes());
    bytes
        .iter()
        .take(KEPT)
        .fold(String::new(), |mut text, byte| {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_counts_for_the_same_placement_only() {
        let binding = |placement: Value| -> ResourceBinding {
            serde_json::from_value(json!({"spec": {"placement": placement}})).unwrap()
        };
        let record: AdmissionRecord = serde_json::from_value(json!({
            "templateUID": "u", "attempt": 1, "state": "Requeued", "queue": "q",
            "time": "2026-11-26T00:00:00Z",
        }))
        .unwrap();
        let a = binding(json!({"clusterAffinity": {"clusterNames": ["a"]}}));
        assert!(!record.refuses_placement_of(&a));
        let record = record.with_refused_placement(&a);
        assert!(record.refuses_placement_of(&a));
        let b = binding(json!({"clusterAffinity": {"clusterNames": ["b"]}}));
        assert!(!record.refuses_placement_of(&b));
        let text = record.to_annotation().unwrap();
        assert!(text.contains(r#""refusedPlacement":"#), "{text}");
    }
}
