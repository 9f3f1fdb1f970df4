//! `FaultPolicy` (muster.io/v1alpha2, cluster scope): rules that say whose fault it is when pods do not run.
//!
//! The rules of all FaultPolicies are read in the order of their priorities, the highest first, and of their names. The
//! rules of Muster (`default.yaml`) come after them: the first that matches decides. A rule that cannot be read is left
//! out, and the policy's status says so.

use crate::loose::{self, Loose, lenient};
use crate::node_health::NodeAvoidance;
use facts::faults::{FaultClass, FaultRuleSet, NodeFaultRule, PodFaultRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

mod actions;
mod breaker;
mod matches;

pub use actions::{
    FaultPolicyAction, FaultPolicyActionType, FaultPolicyAvoidForJob, FaultPolicyAvoidNode,
    FaultPolicyRemediate,
};
pub use breaker::{ClusterBreaker, FaultPolicyBreaker, PausedCluster, pause};
pub use matches::{FaultPolicyAlert, FaultPolicyMatch, FaultPolicyNode, FaultPolicyPod};

/// The rules that Muster has by itself, as the YAML of a FaultPolicy.
pub const DEFAULT_YAML: &str = include_str!("fault_policy/default.yaml");

/// Rules that say whose fault it is when pods do not run.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "muster.io",
    version = "v1alpha2",
    kind = "FaultPolicy",
    plural = "faultpolicies",
    status = "FaultPolicyStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "fp",
    category = "muster",
    doc = "FaultPolicy says whose fault it is when pods do not run. The rules of all FaultPolicies are read in the order of their priorities, the highest first, and those of Muster after them: the first that matches decides.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(
        name = "VALID",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Valid")].status"#
    ),
    printcolumn(name = "PRIORITY", type_ = "integer", json_path = ".spec.priority"),
    printcolumn(name = "MODE", type_ = "string", json_path = ".spec.mode"),
    printcolumn(
        name = "PAUSED",
        type_ = "string",
        json_path = ".status.pausedClusters[*].cluster",
        description = "The first cluster that takes no new jobs"
    ),
    printcolumn(
        name = "WOULD AVOID",
        type_ = "integer",
        json_path = ".status.wouldAvoid",
        description = "Nodes that would be avoided in the mode Enforce",
        priority = 1
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
    /// Rules of policies with a higher priority are read first; of equal priority, in the order of names.
    #[schemars(extend("default" = {"stated": 0}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether the policy acts.
    #[schemars(extend("default" = {"stated": "Enforce"}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub mode: Option<Loose<FaultPolicyMode>>,
    /// The rules; the first that matches decides.
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(deserialize_with = "lenient")]
    pub rules: Vec<FaultPolicyRule>,
    /// When a cluster takes no new jobs because many fail there. Without it none is paused.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub cluster_breaker: Option<FaultPolicyBreaker>,
}

/// Whether a policy acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FaultPolicyMode {
    /// It acts.
    Enforce,
    /// It does nothing, and its status and events say what it would do: which nodes would be avoided, and which
    /// clusters would be paused. Its rules decide no class, and later ones are read as if these were not there.
    DryRun,
}

/// One rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "class", "match"], "x-kubernetes-validations" = [
    {"rule": "!has(self.actions) || has(self.match.pod) || self.actions.all(a, a.type == 'Remediate')", "message": "a rule about a node or an alert avoids the node while it matches; its only action is Remediate"},
    {"rule": "!has(self.actions) || !has(self.match.pod) || !self.actions.exists(a, a.type == 'Remediate') || self.actions.exists(a, a.type == 'AvoidNode')", "message": "a rule about a pod needs the action AvoidNode beside Remediate"},
]))]
pub struct FaultPolicyRule {
    /// Its name, unique in the policy.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Whose fault it is. A job with a fault of class User that keeps it from starting is held at its start
    /// deadline; after any other fault it is queued again.
    #[schemars(extend("enum" = FaultClass::ALL.map(FaultClass::as_str)))]
    #[serde(deserialize_with = "lenient")]
    pub class: String,
    /// What must be seen: of a pod, a node or an alert.
    #[serde(rename = "match", deserialize_with = "lenient")]
    pub matches: FaultPolicyMatch,
    /// What follows besides the class. A node on which a rule about a node or an alert matches is avoided while it
    /// does.
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<FaultPolicyAction>,
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
    /// The clusters that the breaker pauses, or would pause in the mode Enforce.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster"]))]
    // Present also if empty: a merge patch removes only what it names.
    #[serde(deserialize_with = "lenient")]
    pub paused_clusters: Vec<PausedCluster>,
    /// The number of nodes that would be avoided in the mode Enforce.
    #[serde(deserialize_with = "lenient")]
    pub would_avoid: Option<i64>,
    /// The first 50 of them, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster", "node"]))]
    #[serde(deserialize_with = "lenient")]
    pub would_avoid_nodes: Vec<WouldAvoidNode>,
}

/// A node that would be avoided, were the policy enforced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster", "node"]))]
pub struct WouldAvoidNode {
    /// Its cluster.
    pub cluster: String,
    /// Its name.
    pub node: String,
    /// Why, and until when.
    #[serde(flatten)]
    pub avoidance: NodeAvoidance,
}

/// A rule that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReadRule {
    Pod(PodFaultRule),
    Node(NodeFaultRule),
}

impl FaultPolicyRule {
    /// Returns the rule for the engine.
    ///
    /// # Errors
    /// Returns which field is wrong, its value, and what would be right.
    fn to_rule(&self, index: usize) -> Result<ReadRule, String> {
        let field = format!("spec.rules[{index}]");
        let mut classes = FaultClass::ALL.into_iter();
        let Some(class) = classes.find(|class| class.as_str() == self.class) else {
            let classes = FaultClass::ALL.map(FaultClass::as_str).join(", ");
            return Err(format!(
                "{field}.class: {:?} is not known; one of {classes} is needed",
                self.class
            ));
        };
        let matches = &self.matches;
        let seen = format!("{field}.match");
        match (&matches.pod, &matches.node, &matches.alert) {
            (Some(pod), None, None) => {
                pod.check(&format!("{seen}.pod"))?;
                self.of_pod(pod, class, &field).map(ReadRule::Pod)
            }
            (None, Some(node), None) => {
                let rule = node.to_rule(&format!("{seen}.node"))?;
                self.of_node(rule, class, &field).map(ReadRule::Node)
            }
            (None, None, Some(alert)) => {
                let rule = alert.to_rule(&format!("{seen}.alert"))?;
                self.of_node(rule, class, &field).map(ReadRule::Node)
            }
            _ => Err(format!(
                "{seen}: exactly one of pod, node and alert is needed"
            )),
        }
    }

    fn of_pod(
        &self,
        pod: &FaultPolicyPod,
        class: FaultClass,
        field: &str,
    ) -> Result<PodFaultRule, String> {
        let actions = actions::read(&self.actions, field)?;
        if actions.remediate.is_some() && actions.avoid_node.is_none() {
            return Err(format!(
                "{field}.actions: Remediate needs the action AvoidNode beside it in a rule about a pod"
            ));
        }
        Ok(PodFaultRule {
            name: self.name.clone(),
            reasons: pod.reasons.clone(),
            messages: pod.messages.clone(),
            exit_codes: pod.exit_codes.clone(),
            class,
            policy: String::new(),
            dry_run: false,
            avoid_node: actions.avoid_node,
            avoid_for_job: actions.avoid_for_job,
            remediate: actions.remediate,
        })
    }

    /// Returns `rule` with its name, class and actions.
    fn of_node(
        &self,
        rule: NodeFaultRule,
        class: FaultClass,
        field: &str,
    ) -> Result<NodeFaultRule, String> {
        let actions = actions::read(&self.actions, field)?;
        if actions.avoid_node.is_some() || actions.avoid_for_job.is_some() {
            return Err(format!(
                "{field}.actions: a rule about a node or an alert avoids the node while it matches; its only action is \
                 Remediate"
            ));
        }
        Ok(NodeFaultRule {
            name: self.name.clone(),
            class,
            remediate: actions.remediate,
            ..rule
        })
    }
}

/// Returns the milliseconds of a number of seconds above zero; `default` seconds if it is unset.
fn positive_millis(seconds: Option<i32>, default: i32, field: &str) -> Result<i64, String> {
    at_least(seconds, default, 1, field).map(|seconds| i64::from(seconds) * 1_000)
}

/// Returns a number of at least `least`; `default` if it is unset.
fn at_least(value: Option<i32>, default: i32, least: i64, field: &str) -> Result<u32, String> {
    loose::at_least(field, value.unwrap_or(default).into(), least)
}

fn no_empty_text(texts: &[String], field: &str) -> Result<(), String> {
    match texts.iter().any(|text| text.trim().is_empty()) {
        true => Err(format!(
            "{field}: contains an empty text, which every message contains; remove it"
        )),
        false => Ok(()),
    }
}

impl FaultPolicy {
    /// Returns true if it only counts and tells. In a mode that this version does not know, it does.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        let mode = self.spec.mode.as_ref();
        mode.is_some_and(|mode| *mode != Loose::Known(FaultPolicyMode::Enforce))
    }

    /// Returns the rules that can be read, and what is wrong with the first that cannot.
    #[must_use]
    pub fn to_rules(&self) -> (FaultRuleSet, Option<String>) {
        let mode = self.spec.mode.as_ref().and_then(Loose::problem);
        let mut wrong = mode.map(|problem| format!("spec.mode: {problem}"));
        let mut set = FaultRuleSet::default();
        let policy = self.metadata.name.clone().unwrap_or_default();
        let dry_run = self.is_dry_run();
        for (index, rule) in self.spec.rules.iter().enumerate() {
            match rule.to_rule(index) {
                Ok(ReadRule::Pod(rule)) => set.rules.push(PodFaultRule {
                    policy: policy.clone(),
                    dry_run,
                    ..rule
                }),
                Ok(ReadRule::Node(rule)) => set.nodes.push(NodeFaultRule {
                    policy: policy.clone(),
                    dry_run,
                    ..rule
                }),
                Err(why) => {
                    wrong.get_or_insert(why);
                }
            }
        }
        (set, wrong)
    }
}

/// Returns the rules in force: of `policies`, by priority and name, and of Muster after them.
#[must_use]
pub fn rules_in_force<'a>(policies: impl IntoIterator<Item = &'a FaultPolicy>) -> FaultRuleSet {
    let mut all = FaultRuleSet::default();
    let mut policies: Vec<&FaultPolicy> = policies.into_iter().collect();
    policies.sort_by_key(|policy| {
        let priority = policy.spec.priority.unwrap_or_default();
        (Reverse(priority), &policy.metadata.name)
    });
    let own = policies.into_iter().map(|policy| policy.to_rules().0);
    for set in own.chain([default_policy().to_rules().0]) {
        all.rules.extend(set.rules);
        all.nodes.extend(set.nodes);
    }
    all
}

fn default_policy() -> FaultPolicy {
    // A test reads it, so it is always readable.
    serde_saphyr::from_str(DEFAULT_YAML).unwrap_or_default()
}

#[cfg(test)]
mod tests;
