//! What a rule of a FaultPolicy asks an outside operator for ([`crate::node_remediation`]).

use crate::fault_policy::FaultPolicyRule;
use crate::loose::lenient;
use engine::faults::Remediate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an outside operator is asked to do with a node that is avoided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicyRemediate {
    /// The action, in the operator's words, such as Reboot; without it the operator chooses.
    #[schemars(length(max = 63))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

impl FaultPolicyRule {
    /// Returns what its field `remediate`, with the path `field`, asks for.
    ///
    /// # Errors
    /// Returns that no node is avoided by the rule.
    pub(super) fn wish(&self, field: &str) -> Result<Option<Remediate>, String> {
        let Some(remediate) = &self.remediate else {
            return Ok(None);
        };
        if self.node.is_none() && self.avoid_node.is_none() {
            return Err(format!(
                "{field}: belongs to a rule by which nodes are avoided: with node or avoidNode"
            ));
        }
        Ok(Some(Remediate {
            action: remediate.action.clone().unwrap_or_default(),
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::fault_policy::FaultPolicy;
    use serde_json::{Value, json};

    #[test]
    fn it_belongs_to_a_rule_by_which_nodes_are_avoided() {
        let read = |mut rule: Value| {
            rule["name"] = json!("a");
            rule["class"] = json!("Device");
            rule["remediate"] = json!({"action": "Reboot"});
            let policy = json!({"metadata": {"name": "p"}, "spec": {"rules": [rule]}});
            let policy: FaultPolicy = serde_json::from_value(policy).unwrap();
            let (rules, wrong) = policy.to_rules();
            let action = rules.remediation_of("p", "a", false);
            (action.map(|remediate| remediate.action.clone()), wrong)
        };
        let pod = json!({"exitCodes": [3]});
        let reboot = Some("Reboot".to_owned());
        assert_eq!(
            read(json!({"node": {"conditions": ["A"]}})),
            (reboot.clone(), None)
        );
        assert_eq!(read(json!({"pod": pod, "avoidNode": {}})), (reboot, None));
        let (action, wrong) = read(json!({"pod": pod, "avoidNodeForJob": {}}));
        assert_eq!(action, None);
        assert!(
            wrong
                .unwrap()
                .starts_with("spec.rules[0].remediate: belongs")
        );
    }
}
