//! What follows when a rule of a FaultPolicy matches, besides the class of the fault.

use super::{at_least, positive_millis};
use crate::loose::{Loose, lenient};
use facts::faults::{AvoidForJob, AvoidNode, Remediate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most nodes that one job avoids: each is in the admission record and in the affinity of the job's pods.
const MOST_NODES: u32 = 16;
const DAY: i32 = 24 * 60 * 60;

/// One action: its type, and the field of that name, which may be absent if its defaults do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"], "x-kubernetes-validations" = [
    {"rule": "!has(self.avoidNode) || self.type == 'AvoidNode'", "message": "avoidNode belongs to the type AvoidNode"},
    {"rule": "!has(self.avoidNodeForJob) || self.type == 'AvoidNodeForJob'", "message": "avoidNodeForJob belongs to the type AvoidNodeForJob"},
    {"rule": "!has(self.remediate) || self.type == 'Remediate'", "message": "remediate belongs to the type Remediate"},
]))]
pub struct FaultPolicyAction {
    /// Its type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<Loose<FaultPolicyActionType>>,
    /// When all jobs avoid the node.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub avoid_node: Option<FaultPolicyAvoidNode>,
    /// How the job itself avoids the node.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub avoid_node_for_job: Option<FaultPolicyAvoidForJob>,
    /// What an outside operator is asked for.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub remediate: Option<FaultPolicyRemediate>,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FaultPolicyActionType {
    /// Nodes on which pods of several jobs match are avoided by all jobs for a while: Muster puts the taint
    /// muster.io/avoid:NoSchedule on them.
    AvoidNode,
    /// The next attempts of the job are not placed on the nodes where its pods matched; other jobs are. It needs no
    /// other job to fail there, so it also suits faults of class User or Unknown. The kinds that can be split over
    /// clusters can avoid nodes; an event says so of a job of another kind.
    AvoidNodeForJob,
    /// While a node is avoided by this rule, there is a NodeRemediation that asks an outside operator to repair it.
    Remediate,
}

/// When a node is avoided because jobs fail on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicyAvoidNode {
    /// The number of jobs that have to fail there.
    #[schemars(range(min = 1), extend("default" = {"stated": 3}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub jobs: Option<i32>,
    /// The number of namespaces that these jobs have to be of. Unset: 2, since a program can print what it
    /// likes, or 1 if one job is enough.
    #[schemars(range(min = 1))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<i32>,
    /// The seconds within which they have to fail.
    #[schemars(range(min = 1), extend("default" = {"stated": DAY}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<i32>,
    /// The seconds for which the node is avoided after the last of them.
    #[schemars(range(min = 1), extend("default" = {"stated": DAY}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub avoid_seconds: Option<i32>,
}

/// How a job avoids the nodes where its own pods failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicyAvoidForJob {
    /// The most nodes that the job avoids at a time. The oldest go first.
    #[schemars(range(min = 1, max = 16), extend("default" = {"stated": 3}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i32>,
    /// The seconds for which it avoids each of them.
    #[schemars(range(min = 1), extend("default" = {"stated": DAY}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub avoid_seconds: Option<i32>,
}

/// What an outside operator is asked to do with a node that is avoided ([`crate::node_remediation`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicyRemediate {
    /// The action, in the operator's words, such as Reboot; without it the operator chooses.
    #[schemars(length(max = 63))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// The actions of one rule.
#[derive(Debug, Default)]
pub(super) struct Actions {
    pub(super) avoid_node: Option<AvoidNode>,
    pub(super) avoid_for_job: Option<AvoidForJob>,
    pub(super) remediate: Option<Remediate>,
}

/// Reads the actions of the rule with the path `field`.
///
/// # Errors
/// Returns which field is wrong, its value, and what would be right.
pub(super) fn read(actions: &[FaultPolicyAction], field: &str) -> Result<Actions, String> {
    let mut read = Actions::default();
    for (index, action) in actions.iter().enumerate() {
        let field = format!("{field}.actions[{index}]");
        match &action.kind {
            Some(Loose::Known(FaultPolicyActionType::AvoidNode)) => {
                let avoid = action.avoid_node.clone().unwrap_or_default();
                read.avoid_node = Some(avoid.to_avoid(&format!("{field}.avoidNode"))?);
            }
            Some(Loose::Known(FaultPolicyActionType::AvoidNodeForJob)) => {
                let avoid = action.avoid_node_for_job.clone().unwrap_or_default();
                read.avoid_for_job = Some(avoid.to_avoid(&format!("{field}.avoidNodeForJob"))?);
            }
            Some(Loose::Known(FaultPolicyActionType::Remediate)) => {
                let remediate = action.remediate.clone().unwrap_or_default();
                let action = remediate.action.unwrap_or_default();
                read.remediate = Some(Remediate { action });
            }
            Some(unknown) => {
                let problem = unknown.problem().unwrap_or_default();
                return Err(format!("{field}.type: {problem}"));
            }
            None => {
                let words = Loose::<FaultPolicyActionType>::words();
                return Err(format!("{field}.type: is missing; {words} is needed"));
            }
        }
    }
    Ok(read)
}

impl FaultPolicyAvoidNode {
    fn to_avoid(&self, field: &str) -> Result<AvoidNode, String> {
        let number = |value, unset, name| at_least(value, unset, 1, &format!("{field}.{name}"));
        let millis = |value, name| positive_millis(value, DAY, &format!("{field}.{name}"));
        let namespaces = 2.min(self.jobs.unwrap_or(2));
        Ok(AvoidNode {
            jobs: number(self.jobs, 3, "jobs")?,
            namespaces: number(self.namespaces, namespaces, "namespaces")?,
            within_ms: millis(self.window_seconds, "windowSeconds")?,
            for_ms: millis(self.avoid_seconds, "avoidSeconds")?,
        })
    }
}

impl FaultPolicyAvoidForJob {
    fn to_avoid(&self, field: &str) -> Result<AvoidForJob, String> {
        let nodes = at_least(self.nodes, 3, 1, &format!("{field}.nodes"))?;
        if nodes > MOST_NODES {
            return Err(format!(
                "{field}.nodes: {nodes} is too large; at most {MOST_NODES} is possible"
            ));
        }
        Ok(AvoidForJob {
            nodes,
            for_ms: positive_millis(self.avoid_seconds, DAY, &format!("{field}.avoidSeconds"))?,
        })
    }
}
