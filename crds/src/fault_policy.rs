//! `FaultPolicy` (muster.io/v1alpha1, cluster scope): rules that say whose fault it is when pods do not run.
//!
//! The rules of all FaultPolicies are read in the order of their names, and the rules of Muster
//! (`default.yaml`) after them: the first that matches decides. A rule that cannot be read is left out, and
//! the policy's status says so.

use crate::duration::{DURATION_PATTERN, parse_millis};
use crate::loose::lenient;
use crate::node_health::{ALERT, DEVICE_TAINT, NodeAvoidance};
use engine::faults::{AvoidNode, FaultClass, FaultRuleSet, NodeFaultRule, PodFaultRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod breaker;
mod for_job;
mod remediate;

pub use breaker::{ClusterBreaker, FaultPolicyBreaker, PausedCluster, pause};
pub use for_job::FaultPolicyAvoidForJob;
pub use remediate::FaultPolicyRemediate;

/// The time after which an alert is over that is not repeated: more than Alertmanager's repeat_interval of 4h.
const ALERTS_FOR: (i64, &str) = (5 * 60 * 60 * 1000, "5h");

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
    printcolumn(name = "DRY RUN", type_ = "boolean", json_path = ".spec.dryRun"),
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
        description = "Nodes that would be avoided without dryRun",
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
    /// The rules; the first that matches decides.
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(deserialize_with = "lenient")]
    pub rules: Vec<FaultPolicyRule>,
    /// When a cluster takes no new jobs because many fail there. Without it none is paused.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub cluster_breaker: Option<FaultPolicyBreaker>,
    /// True to do nothing, and to tell in the status and in events what would be done: which nodes would be
    /// avoided, and which clusters would be paused. The rules decide no class, and later ones are read as if
    /// these were not there.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// One rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "class"], "x-kubernetes-validations" = [
    {"rule": "has(self.pod) != has(self.node)", "message": "either pod or node is needed"},
    {"rule": "!has(self.avoidNode) || has(self.pod)", "message": "avoidNode belongs to a rule with pod: with node, the node is avoided while it has the condition"},
    {"rule": "!has(self.remediate) || has(self.node) || has(self.avoidNode)", "message": "remediate belongs to a rule by which nodes are avoided: with node or avoidNode"},
    {"rule": "!has(self.avoidNodeForJob) || has(self.pod)", "message": "avoidNodeForJob belongs to a rule with pod"},
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
    /// What its pods show. Each list that is not empty must match.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "has(self.reasons) || has(self.messages) || has(self.exitCodes)",
        "message": "reasons, messages or exitCodes is needed: an empty rule would match nothing"
    }]))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub pod: Option<FaultPolicyPod>,
    /// What a node shows. The node is avoided while it does.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub node: Option<FaultPolicyNode>,
    /// Nodes on which pods of several jobs show this are avoided for a while: Muster puts the taint
    /// muster.io/avoid:NoSchedule on them. Without it no node is.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub avoid_node: Option<FaultPolicyAvoidNode>,
    /// The next attempts of a job whose pods show this are not placed on the nodes where they did; other jobs are.
    /// It needs no other job to fail there, so it also suits faults of class User or Unknown. The kinds that can be
    /// split over clusters can avoid nodes; an event says so of a job of another kind.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub avoid_node_for_job: Option<FaultPolicyAvoidForJob>,
    /// While a node is avoided by this rule, there is a NodeRemediation that asks an outside operator to repair it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub remediate: Option<FaultPolicyRemediate>,
}

/// What a node shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.conditions) && size(self.conditions) > 0) || (has(self.deviceTaints) && size(self.deviceTaints) > 0) || (has(self.alerts) && size(self.alerts) > 0)",
    "message": "conditions, deviceTaints or alerts is needed"
}]))]
pub struct FaultPolicyNode {
    /// Types of conditions that mean a fault while they are True: GpuMemWatch, KernelDeadlock, ...
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Keys of taints that mean a fault while a device of the node has them in its ResourceSlice, whatever their
    /// effect, or by a DeviceTaintRule with another effect than None: gpu.nvidia.com/unhealthy, ...
    #[schemars(length(max = 64), inner(length(min = 1, max = 317)))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub device_taints: Vec<String>,
    /// Names of alerts (their label alertname) that mean a fault while they fire, as Alertmanager posts them.
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<String>,
    /// The time after which an alert is over that Alertmanager does not repeat; by default 5h. It has to be longer than
    /// the repeat_interval of the route.
    #[schemars(length(max = 32), regex(pattern = DURATION_PATTERN))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub alerts_for: Option<String>,
    /// Texts of which the message of the condition, the value of the taint, or the summary of the alert, contains
    /// one, whatever the case.
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
}

/// When a node is avoided because jobs fail on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicyAvoidNode {
    /// The number of jobs that have to fail there; by default 3.
    #[schemars(range(min = 1))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// The number of namespaces that these jobs have to be of; by default 2, since a program can print what it
    /// likes, or 1 if one job is enough.
    #[schemars(range(min = 1))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<u32>,
    /// The time within which they have to fail; by default 24h.
    #[schemars(length(max = 32), regex(pattern = DURATION_PATTERN))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// The time for which the node is avoided after the last of them; by default 24h.
    #[serde(rename = "for")]
    #[schemars(length(max = 32), regex(pattern = DURATION_PATTERN))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
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
    /// The clusters that the breaker pauses, or would pause without dryRun.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster"]))]
    // Present also if empty: a merge patch removes only what it names.
    #[serde(deserialize_with = "lenient")]
    pub paused_clusters: Vec<PausedCluster>,
    /// The number of nodes that would be avoided without dryRun.
    #[serde(deserialize_with = "lenient")]
    pub would_avoid: Option<i64>,
    /// The first 50 of them, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster", "node"]))]
    #[serde(deserialize_with = "lenient")]
    pub would_avoid_nodes: Vec<WouldAvoidNode>,
}

/// A node that would be avoided, were the policy not in a dry run.
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
        match (&self.pod, &self.node) {
            (Some(pod), None) => self.of_pod(pod, class, &field).map(ReadRule::Pod),
            (None, Some(node)) => self.of_node(node, class, &field).map(ReadRule::Node),
            _ => Err(format!("{field}: either pod or node is needed")),
        }
    }

    fn of_pod(
        &self,
        pod: &FaultPolicyPod,
        class: FaultClass,
        field: &str,
    ) -> Result<PodFaultRule, String> {
        let FaultPolicyPod {
            reasons,
            messages,
            exit_codes,
        } = pod;
        if reasons.is_empty() && messages.is_empty() && exit_codes.is_empty() {
            return Err(format!(
                "{field}.pod: is empty; reasons, messages or exitCodes is needed"
            ));
        }
        no_empty_text(messages, &format!("{field}.pod.messages"))?;
        let avoid = self.avoid_node.as_ref();
        let avoid = avoid.map(|avoid| avoid.to_avoid(&format!("{field}.avoidNode")));
        let for_job = self.avoid_node_for_job.as_ref();
        let for_job = for_job.map(|avoid| avoid.to_avoid(&format!("{field}.avoidNodeForJob")));
        Ok(PodFaultRule {
            name: self.name.clone(),
            reasons: reasons.clone(),
            messages: messages.clone(),
            exit_codes: exit_codes.clone(),
            class,
            policy: String::new(),
            dry_run: false,
            avoid_node: avoid.transpose()?,
            avoid_for_job: for_job.transpose()?,
            remediate: self.wish(&format!("{field}.remediate"))?,
        })
    }

    fn of_node(
        &self,
        node: &FaultPolicyNode,
        class: FaultClass,
        field: &str,
    ) -> Result<NodeFaultRule, String> {
        if node.conditions.is_empty() && node.device_taints.is_empty() && node.alerts.is_empty() {
            return Err(format!(
                "{field}.node: is empty; conditions, like GpuMemWatch, deviceTaints or alerts are needed"
            ));
        }
        no_empty_text(&node.alerts, &format!("{field}.node.alerts"))?;
        no_empty_text(&node.device_taints, &format!("{field}.node.deviceTaints"))?;
        if let Some(index) = node.conditions.iter().position(|type_| type_ == "Ready") {
            return Err(format!(
                "{field}.node.conditions[{index}]: \"Ready\" is True on nodes that work; a condition that is True on \
                 faults is needed"
            ));
        }
        no_empty_text(&node.messages, &format!("{field}.node.messages"))?;
        if self.avoid_node.is_some() {
            return Err(format!(
                "{field}.avoidNode: belongs to a rule with pod; with node, the node is avoided while it has the condition"
            ));
        }
        if self.avoid_node_for_job.is_some() {
            return Err(format!(
                "{field}.avoidNodeForJob: belongs to a rule with pod; with node, all jobs avoid the node"
            ));
        }
        Ok(NodeFaultRule {
            name: self.name.clone(),
            conditions: {
                let taints = node.device_taints.iter();
                let taints = taints.map(|key| format!("{DEVICE_TAINT}{key}"));
                let alerts = node.alerts.iter().map(|name| format!("{ALERT}{name}"));
                let conditions = node.conditions.iter().cloned();
                conditions.chain(taints).chain(alerts).collect()
            },
            alerts_for_ms: positive_millis(
                node.alerts_for.as_ref(),
                ALERTS_FOR,
                &format!("{field}.node.alertsFor"),
            )?,
            messages: node.messages.clone(),
            class,
            policy: String::new(),
            dry_run: false,
            remediate: self.wish(&format!("{field}.remediate"))?,
        })
    }
}

impl FaultPolicyAvoidNode {
    fn to_avoid(&self, field: &str) -> Result<AvoidNode, String> {
        const DAY_MS: i64 = 24 * 60 * 60 * 1000;
        let number = |value: Option<u32>, unset: u32, name: &str| match value.unwrap_or(unset) {
            0 => Err(format!(
                "{field}.{name}: 0 is no number of them; at least 1 is needed"
            )),
            value => Ok(value),
        };
        let millis = |value: Option<&String>, name: &str| {
            positive_millis(value, (DAY_MS, "24h"), &format!("{field}.{name}"))
        };
        Ok(AvoidNode {
            jobs: number(self.jobs, 3, "jobs")?,
            namespaces: number(self.namespaces, 2.min(self.jobs.unwrap_or(2)), "namespaces")?,
            within_ms: millis(self.within.as_ref(), "within")?,
            for_ms: millis(self.lasts.as_ref(), "for")?,
        })
    }
}

/// Returns the milliseconds of a duration above zero; `default` in milliseconds, and as a user writes it, if it is
/// unset.
fn positive_millis(
    text: Option<&String>,
    default: (i64, &str),
    field: &str,
) -> Result<i64, String> {
    match text.map(|text| parse_millis(text)) {
        None => Ok(default.0),
        Some(Ok(0)) => Err(format!(
            "{field}: is no time; more than 0s is needed, like {}",
            default.1
        )),
        Some(millis) => millis.map_err(|error| format!("{field}: {error}")),
    }
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
    /// Returns true if it only counts and tells.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.spec.dry_run == Some(true)
    }

    /// Returns the rules that can be read, and what is wrong with the first that cannot.
    #[must_use]
    pub fn to_rules(&self) -> (FaultRuleSet, Option<String>) {
        let mut wrong = None;
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

/// Returns the rules in force: of `policies`, in this order, and of Muster after them.
#[must_use]
pub fn rules_in_force<'a>(policies: impl IntoIterator<Item = &'a FaultPolicy>) -> FaultRuleSet {
    let mut all = FaultRuleSet::default();
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
