//! The status of a fault policy: whether all its rules are in force.

use crds::conditions::{self, Statement};
use crds::fault_policy::{FaultPolicy, FaultPolicyStatus};

/// Returns the status of `policy`.
pub(crate) fn status(policy: &FaultPolicy, now: jiff::Timestamp) -> FaultPolicyStatus {
    let generation = policy.metadata.generation;
    let mut status = policy.status.clone().unwrap_or_default();
    let (rules, wrong) = policy.to_rules();
    let count = rules.rules.len() + rules.nodes.len();
    let message = match &wrong {
        Some(wrong) => format!("{wrong}; the other {count} rules of it are in force"),
        None => format!("its {count} rules are in force"),
    };
    let statement = Statement {
        type_: "Valid",
        holds: Some(wrong.is_none()),
        reason: match wrong {
            Some(_) => "RuleInvalid",
            None => "Checked",
        },
        message: &message,
    };
    conditions::set(&mut status.conditions, &statement, generation, now);
    status.observed_generation = generation;
    status
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_wrong_rule_is_named_and_the_others_are_in_force() {
        let policy = |class: &str| -> FaultPolicy {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "generation": 2},
                "spec": {"rules": [
                    {"name": "one", "class": "User", "pod": {"reasons": ["Error"]}},
                    {"name": "two", "class": class, "pod": {"exitCodes": [3]}},
                ]},
            }))
            .unwrap()
        };
        let now = jiff::Timestamp::UNIX_EPOCH;
        let said = |policy: &FaultPolicy| {
            let status = status(policy, now);
            let condition = &status.conditions[0];
            (condition.status.clone(), condition.message.clone())
        };
        let (status, message) = said(&policy("Node"));
        assert_eq!(
            (status.as_str(), message.as_str()),
            ("True", "its 2 rules are in force")
        );
        let (status, message) = said(&policy("Sun"));
        assert_eq!(status, "False");
        assert!(
            message.starts_with("spec.rules[1].class: \"Sun\" is not known"),
            "{message}"
        );
        assert!(
            message.ends_with("the other 1 rules of it are in force"),
            "{message}"
        );
    }
}
