//! How a rule of a FaultPolicy lets one job avoid the nodes where its own pods failed.

use crate::duration::DURATION_PATTERN;
use crate::fault_policy::positive_millis;
use crate::loose::lenient;
use engine::faults::AvoidForJob;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The nodes that a job avoids if a rule does not say how many.
const NODES: u32 = 3;
/// The most that a rule may say: each is in the admission record and in the affinity of the job's pods.
const MOST_NODES: u32 = 16;
/// The time for which a job avoids a node if a rule does not say.
const FOR: (i64, &str) = (24 * 60 * 60 * 1000, "24h");

/// How a job avoids the nodes where its own pods failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicyAvoidForJob {
    /// The most nodes that the job avoids at a time; by default 3. The oldest go first.
    #[schemars(range(min = 1, max = 16))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// The time for which it avoids each of them; by default 24h.
    #[serde(rename = "for")]
    #[schemars(length(max = 32), regex(pattern = DURATION_PATTERN))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
}

impl FaultPolicyAvoidForJob {
    /// Returns it for the engine; `field` is its path.
    ///
    /// # Errors
    /// Returns which field is wrong, its value, and what would be right.
    pub(super) fn to_avoid(&self, field: &str) -> Result<AvoidForJob, String> {
        let nodes = self.nodes.unwrap_or(NODES);
        if !(1..=MOST_NODES).contains(&nodes) {
            return Err(format!(
                "{field}.nodes: {nodes} is no number of nodes from 1 to {MOST_NODES}"
            ));
        }
        Ok(AvoidForJob {
            nodes,
            for_ms: positive_millis(self.lasts.as_ref(), FOR, &format!("{field}.for"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_defaults_and_wrong_values_are_named() {
        let read = |nodes: Option<u32>, lasts: Option<&str>| {
            let spec = FaultPolicyAvoidForJob {
                nodes,
                lasts: lasts.map(str::to_owned),
            };
            let avoid = spec.to_avoid("f").map(|avoid| (avoid.nodes, avoid.for_ms));
            avoid.map_err(|error| error.chars().take(20).collect::<String>())
        };
        assert_eq!(read(None, None), Ok((3, 86_400_000)));
        assert_eq!(read(Some(16), Some("90m")), Ok((16, 5_400_000)));
        for wrong in [0, 17] {
            let said = read(Some(wrong), None);
            assert!(said.is_err_and(|error| error.starts_with("f.nodes: ")));
        }
        assert!(read(None, Some("0s")).is_err_and(|error| error.starts_with("f.for: is no time")));
    }
}
