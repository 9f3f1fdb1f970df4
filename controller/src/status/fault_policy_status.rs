//! The status of a fault policy: whether all its rules are in force, and what it does or would do.

use crate::reconcile::fleet::PolicyEffects;
use crds::conditions::{self, Statement};
use crds::fault_policy::{FaultPolicy, FaultPolicyStatus};

/// Returns the status of `policy`, with its present `effects`.
pub(crate) fn status(
    policy: &FaultPolicy,
    effects: PolicyEffects,
    now: jiff::Timestamp,
) -> FaultPolicyStatus {
    let generation = policy.metadata.generation;
    let mut status = policy.status.clone().unwrap_or_default();
    let (rules, wrong) = policy.to_rules();
    let wrong = wrong.or_else(|| policy.breaker().err());
    let count = rules.rules.len() + rules.nodes.len();
    let force = match policy.is_dry_run() {
        true => "in a dry run",
        false => "in force",
    };
    let message = match &wrong {
        Some(wrong) => format!("{wrong}; the other {count} rules of it are {force}"),
        None => format!("its {count} rules are {force}"),
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
    status.paused_clusters = effects.paused;
    let (count, nodes) = effects.would_avoid;
    let would = policy.is_dry_run().then_some(count);
    status.would_avoid = would.and_then(|count| i64::try_from(count).ok());
    status.would_avoid_nodes = nodes;
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
                    {"name": "one", "class": "User", "match": {"pod": {"reasons": ["Error"]}}},
                    {"name": "two", "class": class, "match": {"pod": {"exitCodes": [3]}}},
                ]},
            }))
            .unwrap()
        };
        let now = jiff::Timestamp::UNIX_EPOCH;
        let said = |policy: &FaultPolicy| {
            let status = status(policy, PolicyEffects::default(), now);
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
