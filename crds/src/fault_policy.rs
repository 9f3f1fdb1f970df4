//! `FaultPolicy` (muster.io/v1alpha1, cluster scope): rules that say whose fault it is when pods do not run.
//!
//! The rules of all FaultPolicies are read in the order of their names, and the rules of Muster
//! (`default.yaml`) after them: the first that matches decides. A rule that cannot be read is left out, and
//! the policy's status says so.

use crate::loose::lenient;
use engine::faults::{FaultClass, FaultRuleSet, PodFaultRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rules that Muster has by itself, as the YAML of a FaultPolicy.
pub const DEFAULT_YAML: &str = include_str!("fault_policy/default.yaml");

/// Rules that say whose fault it is when pods do not run.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "muster.io",
    version = "v1alpha1",
    kind = "FaultPolicy",
    plural = "faultpolicies",
    status = "FaultPolicyStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "fp",
    category = "muster",
    doc = "FaultPolicy says whose fault it is when pods do not run. The rules of all FaultPolicies are read in the order of their names, and those of Muster after them: the first that matches decides.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(
        name = "VALID",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Valid")].status"#
    ),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Valid")].message"#
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicySpec {
    /// The rules; the first that matches decides.
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(deserialize_with = "lenient")]
    pub rules: Vec<FaultPolicyRule>,
}

/// One rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "class", "pod"]))]
pub struct FaultPolicyRule {
    /// Its name, unique in the policy.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Whose fault it is. A job with a fault of class User that keeps it from starting is held at its start
    /// deadline; after any other fault it is queued again.
    #[schemars(extend("enum" = FaultClass::ALL.map(FaultClass::as_str)))]
    #[serde(deserialize_with = "lenient")]
    pub class: String,
    /// What its pods show. Each list that is not empty must match.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "has(self.reasons) || has(self.messages) || has(self.exitCodes)",
        "message": "reasons, messages or exitCodes is needed: an empty rule would match nothing"
    }]))]
    #[serde(deserialize_with = "lenient")]
    pub pod: FaultPolicyPod,
}

/// What a pod shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicyPod {
    /// Reasons of waiting or ended containers, or of the pod: ImagePullBackOff, OutOfcpu, ...
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Texts of which the message beside the reason contains one, whatever the case. The message of a container
    /// that ended is its termination message.
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    /// Exit codes of an ended container.
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
}

/// Whether its rules are in force.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicyStatus {
    /// The generation of the spec that this status is about.
    #[serde(deserialize_with = "lenient")]
    pub observed_generation: Option<i64>,
    /// Valid.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(deserialize_with = "lenient")]
    pub conditions: Vec<Condition>,
}

impl FaultPolicyRule {
    /// Returns the rule for the engine.
    ///
    /// # Errors
    /// Returns which field is wrong, its value, and what would be right.
    fn to_rule(&self, index: usize) -> Result<PodFaultRule, String> {
        let field = format!("spec.rules[{index}]");
        let mut classes = FaultClass::ALL.into_iter();
        let Some(class) = classes.find(|class| class.as_str() == self.class) else {
            let classes = FaultClass::ALL.map(FaultClass::as_str).join(", ");
            return Err(format!(
                "{field}.class: {:?} is not known; one of {classes} is needed",
                self.class
            ));
        };
        let FaultPolicyPod {
            reasons,
            messages,
            exit_codes,
        } = &self.pod;
        if reasons.is_empty() && messages.is_empty() && exit_codes.is_empty() {
            return Err(format!(
                "{field}.pod: is empty; reasons, messages or exitCodes is needed"
            ));
        }
        if messages.iter().any(|text| text.trim().is_empty()) {
            return Err(format!(
                "{field}.pod.messages: contains an empty text, which every message contains; remove it"
            ));
        }
        Ok(PodFaultRule {
            name: self.name.clone(),
            reasons: reasons.clone(),
            messages: messages.clone(),
            exit_codes: exit_codes.clone(),
            class,
        })
    }
}

impl FaultPolicy {
    /// Returns the rules that can be read, and what is wrong with the first that cannot.
    #[must_use]
    pub fn to_rules(&self) -> (Vec<PodFaultRule>, Option<String>) {
        let mut wrong = None;
        let mut rules = Vec::new();
        for (index, rule) in self.spec.rules.iter().enumerate() {
            match rule.to_rule(index) {
                Ok(rule) => rules.push(rule),
                Err(why) => {
                    wrong.get_or_insert(why);
                }
            }
        }
        (rules, wrong)
    }
}

/// Returns the rules in force: of `policies`, in this order, and of Muster after them.
#[must_use]
pub fn rules_in_force<'a>(policies: impl IntoIterator<Item = &'a FaultPolicy>) -> FaultRuleSet {
    let own = policies.into_iter().flat_map(|policy| policy.to_rules().0);
    FaultRuleSet {
        rules: own.chain(default_policy().to_rules().0).collect(),
    }
}

fn default_policy() -> FaultPolicy {
    // A test reads it, so it is always readable.
    serde_saphyr::from_str(DEFAULT_YAML).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use engine::faults::Symptom;
    use serde_json::json;

    fn class(rules: &FaultRuleSet, reason: &str, message: &str) -> FaultClass {
        rules.class_of(&Symptom {
            reason: reason.to_owned(),
            message: message.to_owned(),
            exit_code: None,
        })
    }

    #[test]
    fn every_default_rule_can_be_read_and_has_a_name_of_its_own() {
        let policy: FaultPolicy = serde_saphyr::from_str(DEFAULT_YAML).unwrap();
        let (rules, wrong) = policy.to_rules();
        assert_eq!((rules.len(), wrong), (policy.spec.rules.len(), None));
        let names: std::collections::BTreeSet<&str> =
            rules.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!(names.len(), rules.len());
    }

    #[test]
    fn the_defaults_tell_what_a_job_can_mend_from_what_it_cannot() {
        use FaultClass::{Device, Network, Node, Unknown, User};
        let rules = rules_in_force([]);
        for (reason, message, expected) in [
            (
                "ErrImagePull",
                "rpc error: code = NotFound desc = failed to pull and unpack image \"a:1\": not found",
                User,
            ),
            (
                "ImagePullBackOff",
                "Back-off pulling image \"a:1\": ErrImagePull: pull access denied",
                User,
            ),
            (
                "ImagePullBackOff",
                "Back-off pulling image \"a:1\"",
                Network,
            ),
            (
                "ErrImagePull",
                "dial tcp 10.0.0.1:443: i/o timeout",
                Network,
            ),
            ("InvalidImageName", "couldn't parse image reference", User),
            (
                "CreateContainerConfigError",
                "configmap \"c\" not found",
                User,
            ),
            (
                "RunContainerError",
                "exec: \"train\": executable file not found in $PATH",
                User,
            ),
            (
                "RunContainerError",
                "nvidia-container-cli: initialization error: nvml error",
                Device,
            ),
            (
                "CrashLoopBackOff",
                "back-off 40s restarting failed container",
                User,
            ),
            (
                "CrashLoopBackOff",
                "NVRM: Xid 79, GPU has fallen off the bus",
                Device,
            ),
            (
                "UnexpectedAdmissionError",
                "Allocate failed due to no healthy devices present",
                Device,
            ),
            ("OutOfcpu", "", Node),
            ("Evicted", "The node was low on resource: memory", Node),
            ("Error", "", Unknown),
        ] {
            assert_eq!(
                class(&rules, reason, message),
                expected,
                "{reason} {message}"
            );
        }
    }

    #[test]
    fn the_rules_of_a_policy_come_before_the_defaults_and_wrong_ones_are_named() {
        let policy: FaultPolicy = serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"rules": [
                {"name": "flaky", "class": "Network", "pod": {"reasons": ["CrashLoopBackOff"]}},
                {"name": "new", "class": "Cosmic", "pod": {"reasons": ["Ray"]}},
                {"name": "all", "class": "User", "pod": {}},
                {"name": "any", "class": "User", "pod": {"messages": [" "]}},
            ]},
        }))
        .unwrap();
        let (rules, wrong) = policy.to_rules();
        assert_eq!(rules.len(), 1);
        assert_eq!(
            wrong.unwrap(),
            "spec.rules[1].class: \"Cosmic\" is not known; one of User, Node, Device, Network, Storage, Cluster, Unknown is needed"
        );
        let rules = rules_in_force([&policy]);
        assert_eq!(class(&rules, "CrashLoopBackOff", ""), FaultClass::Network);
        assert_eq!(class(&rules, "OutOfcpu", ""), FaultClass::Node);
    }
}
