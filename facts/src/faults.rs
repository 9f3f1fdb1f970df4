//! Faults: what nodes report of pods that do not run, and the rules that say whose fault it is.
//!
//! A rule names reasons, exit codes and texts; the first rule that matches a symptom decides. The rules come
//! from `FaultPolicy` objects and from the defaults of Muster, so that nothing here knows a reason by name.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What keeps a pod from running, or has ended it, as its node reports it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Symptom {
    /// The reason, in the words of the kubelet: `ImagePullBackOff`, `OutOfcpu`, `Error`, ...
    pub reason: String,
    /// The message beside it.
    pub message: String,
    /// The exit code of the container, if one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// The reason of pods that were evicted by the eviction API, as `kubectl drain` does (`DisruptionTarget`).
const EVICTED_ON_REQUEST: &str = "EvictionByEvictionAPI";

impl Symptom {
    /// Returns true if a person or a controller asked for the end of the pod: nothing has failed.
    #[must_use]
    pub fn is_on_request(&self) -> bool {
        self.reason == EVICTED_ON_REQUEST
    }
}

impl fmt::Display for Symptom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if let Some(code) = self.exit_code {
            write!(f, ", exit code {code}")?;
        }
        match self.message.as_str() {
            "" => Ok(()),
            message => write!(f, " ({message})"),
        }
    }
}

/// Returns what keeps pods from running, with how many each: `2 have ImagePullBackOff (...)`.
#[must_use]
pub fn described(symptoms: &[(&Symptom, u32)]) -> String {
    let each = symptoms.iter().map(|(symptom, pods)| match pods {
        1 => format!("1 has {symptom}"),
        pods => format!("{pods} have {symptom}"),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Whose fault a symptom is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum FaultClass {
    /// The job itself: its image, command or configuration.
    User,
    /// The node: its kubelet, runtime, memory or disk.
    Node,
    /// A device of the node.
    Device,
    /// The network, registries included.
    Network,
    /// Volumes.
    Storage,
    /// The cluster as a whole.
    Cluster,
    /// No rule says.
    #[default]
    Unknown,
}

impl FaultClass {
    /// Every class.
    pub const ALL: [Self; 7] = [
        Self::User,
        Self::Node,
        Self::Device,
        Self::Network,
        Self::Storage,
        Self::Cluster,
        Self::Unknown,
    ];

    /// The word, as in policies, messages and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Node => "Node",
            Self::Device => "Device",
            Self::Network => "Network",
            Self::Storage => "Storage",
            Self::Cluster => "Cluster",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for FaultClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A rule about pods. An empty list matches everything, but a rule with three empty lists matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PodFaultRule {
    /// Its name, which messages give.
    pub name: String,
    /// The reasons that it matches, whole.
    pub reasons: Vec<String>,
    /// Texts of which the message must contain one, whatever the case.
    pub messages: Vec<String>,
    /// The exit codes that it matches.
    pub exit_codes: Vec<i32>,
    /// Whose fault it is.
    pub class: FaultClass,
    /// The FaultPolicy that it is of.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// True if it only counts what it would do: the first other rule that matches decides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// When nodes on which pods fail like this are avoided; `None` if they never are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avoid_node: Option<AvoidNode>,
    /// How the job itself avoids nodes on which its pods fail like this; `None` if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avoid_for_job: Option<AvoidForJob>,
    /// What an outside operator is asked to do with a node that is avoided by it, if it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediate: Option<Remediate>,
}

/// What an outside operator is asked to do with a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Remediate {
    /// The action, in the operator's words; empty if it chooses.
    pub action: String,
}

/// How one job avoids nodes on which its pods failed: its next attempts are not placed there. Others are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AvoidForJob {
    /// The most nodes that it avoids; the oldest go first.
    pub nodes: u32,
    /// Milliseconds for which it avoids each.
    pub for_ms: i64,
}

/// When a node is avoided because jobs fail on it, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AvoidNode {
    /// The number of jobs that have to fail there.
    pub jobs: u32,
    /// The number of namespaces that these jobs have to be of: what a program prints is no proof by itself.
    pub namespaces: u32,
    /// Milliseconds within which they have to fail.
    pub within_ms: i64,
    /// Milliseconds for which the node is avoided after the last of them.
    pub for_ms: i64,
}

/// A rule about conditions of nodes: a node is avoided while it has one of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeFaultRule {
    /// Its name, which messages give.
    pub name: String,
    /// The types of conditions that mean a fault if they are True.
    pub conditions: Vec<String>,
    /// Texts of which the message must contain one, whatever the case; empty if any message will do.
    pub messages: Vec<String>,
    /// Whose fault it is.
    pub class: FaultClass,
    /// The FaultPolicy that it is of.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// True if it only counts what it would do: the first other rule that matches decides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// What an outside operator is asked to do with the node, if it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediate: Option<Remediate>,
    /// Milliseconds after which an alert that is not repeated is over.
    #[serde(default)]
    pub alerts_for_ms: i64,
}

impl NodeFaultRule {
    /// Returns true if it applies to a condition that is True: its type is the reason of `condition`.
    #[must_use]
    pub fn matches(&self, condition: &Symptom) -> bool {
        self.conditions.contains(&condition.reason)
            && (self.messages.is_empty() || contains_one(&condition.message, &self.messages))
    }
}

/// Returns true if `message` contains one of `texts`, whatever the case.
fn contains_one(message: &str, texts: &[String]) -> bool {
    let message = message.to_lowercase();
    let contained = |text: &String| message.contains(&text.to_lowercase());
    texts.iter().any(contained)
}

impl PodFaultRule {
    /// Returns true if it applies to a symptom.
    #[must_use]
    pub fn matches(&self, symptom: &Symptom) -> bool {
        let Self {
            reasons,
            messages,
            exit_codes,
            ..
        } = self;
        if reasons.is_empty() && messages.is_empty() && exit_codes.is_empty() {
            return false;
        }
        let of_code = |code| exit_codes.contains(&code);
        (reasons.is_empty() || reasons.contains(&symptom.reason))
            && (exit_codes.is_empty() || symptom.exit_code.is_some_and(of_code))
            && (messages.is_empty() || contains_one(&symptom.message, messages))
    }
}

/// Rules in order: the first that matches decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FaultRuleSet {
    /// The rules about pods.
    pub rules: Vec<PodFaultRule>,
    /// The rules about nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeFaultRule>,
}

impl FaultRuleSet {
    /// Returns true if there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.nodes.is_empty()
    }

    /// The first rule in force that matches a symptom of a pod.
    #[must_use]
    pub fn rule_of(&self, symptom: &Symptom) -> Option<&PodFaultRule> {
        self.rules_of(symptom).find(|rule| !rule.dry_run)
    }

    /// The first rule in force that matches a condition of a node which is True.
    #[must_use]
    pub fn node_rule_of(&self, condition: &Symptom) -> Option<&NodeFaultRule> {
        self.node_rules_of(condition).find(|rule| !rule.dry_run)
    }

    /// The rules that act on a symptom of a pod: the first in force that matches, after those before it that
    /// are in a dry run.
    pub fn rules_of(&self, symptom: &Symptom) -> impl Iterator<Item = &PodFaultRule> {
        let rules = self.rules.iter().filter(|rule| rule.matches(symptom));
        up_to_first_in_force(rules, |rule| rule.dry_run)
    }

    /// The same for a condition of a node which is True.
    pub fn node_rules_of(&self, condition: &Symptom) -> impl Iterator<Item = &NodeFaultRule> {
        let rules = self.nodes.iter().filter(|rule| rule.matches(condition));
        up_to_first_in_force(rules, |rule| rule.dry_run)
    }

    /// Returns what the rule of this name asks an outside operator for; of the policies in a dry run if `dry_run`, else
    /// of those in force.
    #[must_use]
    pub fn remediation_of(&self, policy: &str, rule: &str, dry_run: bool) -> Option<&Remediate> {
        let is = |of: &str, name: &str, dry| (of, name, dry) == (policy, rule, dry_run);
        let pods = self.rules.iter();
        let mut pods = pods.filter(|rule| is(&rule.policy, &rule.name, rule.dry_run));
        let nodes = self.nodes.iter();
        let mut nodes = nodes.filter(|rule| is(&rule.policy, &rule.name, rule.dry_run));
        let of_pods = pods.find_map(|rule| rule.remediate.as_ref());
        of_pods.or_else(|| nodes.find_map(|rule| rule.remediate.as_ref()))
    }

    /// The class of a symptom, by the first rule that matches it.
    #[must_use]
    pub fn class_of(&self, symptom: &Symptom) -> FaultClass {
        let rule = self.rule_of(symptom);
        rule.map_or(FaultClass::Unknown, |rule| rule.class)
    }
}

/// `rules` up to the first that is in force.
fn up_to_first_in_force<'a, R: 'a>(
    rules: impl Iterator<Item = &'a R>,
    dry_run: impl Fn(&R) -> bool,
) -> impl Iterator<Item = &'a R> {
    let mut decided = false;
    rules.take_while(move |rule| !std::mem::replace(&mut decided, !dry_run(rule)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symptom(reason: &str, message: &str, exit_code: Option<i32>) -> Symptom {
        Symptom {
            reason: reason.to_owned(),
            message: message.to_owned(),
            exit_code,
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        let rules = FaultRuleSet {
            rules: vec![
                PodFaultRule::default(),
                PodFaultRule {
                    name: "no-such-image".to_owned(),
                    reasons: texts(&["ErrImagePull", "ImagePullBackOff"]),
                    messages: texts(&["not found", "manifest unknown"]),
                    class: FaultClass::User,
                    ..PodFaultRule::default()
                },
                PodFaultRule {
                    name: "registry".to_owned(),
                    reasons: texts(&["ErrImagePull", "ImagePullBackOff"]),
                    class: FaultClass::Network,
                    ..PodFaultRule::default()
                },
                PodFaultRule {
                    name: "fell-off-the-bus".to_owned(),
                    messages: texts(&["Xid 79"]),
                    exit_codes: vec![134, 139],
                    class: FaultClass::Device,
                    ..PodFaultRule::default()
                },
            ],
            nodes: vec![NodeFaultRule {
                name: "xid".to_owned(),
                conditions: texts(&["SysLogsXIDError"]),
                messages: texts(&["[79]", "[48]"]),
                class: FaultClass::Device,
                ..NodeFaultRule::default()
            }],
        };
        for (condition, rule) in [
            (
                symptom("SysLogsXIDError", "XID [79] reported", None),
                Some("xid"),
            ),
            (symptom("SysLogsXIDError", "XID [13] reported", None), None),
            (symptom("MemoryPressure", "[79]", None), None),
        ] {
            let found = rules.node_rule_of(&condition);
            assert_eq!(found.map(|rule| rule.name.as_str()), rule, "{condition}");
        }
        for (symptom, class, text) in [
            (
                symptom("ErrImagePull", "a: Not Found", None),
                FaultClass::User,
                "ErrImagePull (a: Not Found)",
            ),
            (
                symptom("ImagePullBackOff", "i/o timeout", None),
                FaultClass::Network,
                "ImagePullBackOff (i/o timeout)",
            ),
            (
                symptom("Error", "NVRM: xid 79", Some(139)),
                FaultClass::Device,
                "Error, exit code 139 (NVRM: xid 79)",
            ),
            (
                symptom("Error", "NVRM: xid 79", Some(1)),
                FaultClass::Unknown,
                "Error, exit code 1 (NVRM: xid 79)",
            ),
            (symptom("Error", "", None), FaultClass::Unknown, "Error"),
        ] {
            assert_eq!(rules.class_of(&symptom), class, "{symptom}");
            assert_eq!(symptom.to_string(), text);
        }
    }
    #[test]
    fn a_rule_in_a_dry_run_decides_nothing_and_hides_nothing() {
        let rule = |name: &str, code: i32, dry_run: bool| PodFaultRule {
            name: name.to_owned(),
            exit_codes: vec![code],
            class: FaultClass::Device,
            dry_run,
            ..PodFaultRule::default()
        };
        let rules = FaultRuleSet {
            rules: vec![
                rule("try", 3, true),
                rule("decides", 3, false),
                rule("late", 3, true),
                rule("alone", 4, true),
            ],
            nodes: Vec::new(),
        };
        let acting = |code| {
            let symptom = symptom("Error", "", Some(code));
            let names = rules
                .rules_of(&symptom)
                .map(|rule| rule.name.clone())
                .collect::<Vec<_>>();
            (names, rules.class_of(&symptom))
        };
        let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(acting(3), (names(&["try", "decides"]), FaultClass::Device));
        assert_eq!(acting(4), (names(&["alone"]), FaultClass::Unknown));
    }
}
