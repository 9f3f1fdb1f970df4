//! The status of a pod: how far it is, and what keeps it from running.

use super::Pod;
use super::PodClaim;
use crate::karmada::{LooseCondition, condition};
use crate::loose::nullable;
use crate::names::UNREADY_IS_LOST_ANNOTATION;
use facts::PodPhase;
use facts::faults::Symptom;
use serde::{Deserialize, Serialize};

/// `status` of a pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    pub phase: String,
    /// Why its node or the control plane ended it (`Evicted`, `UnexpectedAdmissionError`, `OutOfcpu`,
    /// `Terminated`, `NodeShutdown`, ...); empty for a pod that ended by itself.
    pub reason: String,
    /// The message beside `reason`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its conditions.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<LooseCondition>,
    /// The states of its init containers.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// The states of its containers.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
    /// The claims that were created for it.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub resource_claim_statuses: Vec<PodClaim>,
}

/// The state of a container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its present state.
    #[serde(deserialize_with = "nullable")]
    pub state: ContainerState,
    /// How it ended the last time.
    #[serde(deserialize_with = "nullable")]
    pub last_state: ContainerState,
    /// The health of the devices that it was given (KEP-4680).
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub allocated_resources_status: Vec<ResourceStatus>,
}

/// The devices of one resource or claim that a container was given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceStatus {
    /// `nvidia.com/gpu`, or `claim:NAME/REQUEST`.
    pub name: String,
    /// Each device.
    #[serde(deserialize_with = "nullable")]
    pub resources: Vec<ResourceHealth>,
}

/// The health of one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceHealth {
    /// Its id.
    #[serde(rename = "resourceID")]
    pub resource_id: String,
    /// Healthy, Unhealthy or Unknown.
    pub health: String,
}

/// `state` of a container. A running container has neither field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerState {
    /// Why it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<ContainerReason>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<ContainerReason>,
}

/// Why a container waits, or how it ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerReason {
    /// `ImagePullBackOff`, `CrashLoopBackOff`, `Error`, ...
    pub reason: String,
    /// The message beside it.
    pub message: String,
    /// The exit code, if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// The reason of a pod that ran longer than its own `activeDeadlineSeconds`.
const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// The reason of the symptom of a pod with an unhealthy device.
const UNHEALTHY_DEVICE: &str = "DeviceUnhealthy";

/// The reason of the symptom of a running pod that is not Ready.
const UNREADY: &str = "NotReady";

/// The reasons of a scheduler that cannot bind a pod. Volcano has another, `Schedulable`, for one that could be
/// bound if the others of its gang could. The API server's `SchedulingGated` is of a pod that nothing may bind yet.
const NOT_BOUND: [&str; 2] = ["Unschedulable", "SchedulerError"];

/// Reasons of containers that wait for their turn: nothing is wrong with them.
const IN_TURN: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];

/// The most characters of a message that are kept: users see it in the status of their jobs. Of a longer one its
/// beginning and its end are kept, since runtimes of containers say last what the cause is.
const LONGEST: usize = 240;
const BEGINNING: usize = 90;

impl Pod {
    /// Returns how far it is, and whether it ended by itself. The kubelet states in `status.reason` why it ended
    /// or refused a pod, and the control plane in the condition `DisruptionTarget`. A pod with a container that
    /// waits after a fault does not run, whatever its phase.
    #[must_use]
    pub fn phase(&self) -> PodPhase {
        let status = &self.status;
        let target = status.disruption();
        match status.phase.as_str() {
            "Failed" if status.ended_by_kubelet() || target.is_some() => PodPhase::Disrupted,
            "Failed" | "Succeeded" => PodPhase::Ended,
            _ if target.is_some() => PodPhase::Evicting,
            "Running" if status.waiting().is_none() => PodPhase::Running,
            _ => PodPhase::Starting,
        }
    }

    /// Returns what keeps it from running, or has ended it without success.
    #[must_use]
    pub fn symptom(&self) -> Option<Symptom> {
        let status = &self.status;
        match self.phase() {
            PodPhase::Starting => status.waiting().map(|(waiting, last)| {
                // How a container ended says more than that it waits to be started again.
                let ended = last.map(|last| last.message.as_str());
                let message = ended.filter(|message| !message.is_empty());
                Symptom {
                    exit_code: last.and_then(|last| last.exit_code),
                    ..symptom(&waiting.reason, message.unwrap_or(&waiting.message))
                }
            }),
            PodPhase::Disrupted if status.ended_by_kubelet() => {
                Some(symptom(&status.reason, &status.message))
            }
            PodPhase::Evicting | PodPhase::Disrupted => {
                let target = status.disruption()?;
                Some(symptom(&target.reason, &target.message))
            }
            PodPhase::Ended if status.phase == "Failed" => status.failed().map(|failed| Symptom {
                exit_code: failed.exit_code,
                ..symptom(&failed.reason, &failed.message)
            }),
            PodPhase::Running => status.unhealthy_device().or_else(|| self.unready()),
            _ => None,
        }
    }

    /// Returns what a scheduler says of a pod that it does not bind, with the name of the pod. Any words may be in it,
    /// so it is one line.
    #[must_use]
    pub fn unbound(&self) -> Option<Symptom> {
        let scheduled = condition(&self.status.conditions, "PodScheduled")?;
        let is_said = NOT_BOUND.contains(&scheduled.reason.as_str()) && !scheduled.is_true();
        let is_said = is_said && self.spec.node_name.is_none();
        let words: Vec<&str> = scheduled.message.split_whitespace().collect();
        if !is_said || words.is_empty() {
            return None;
        }
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let message = format!("pod {name}: {}", words.join(" "));
        Some(symptom(&scheduled.reason, &message))
    }

    /// Returns the symptom of a running pod that is not Ready, if its template says that this counts.
    fn unready(&self) -> Option<Symptom> {
        let annotations = self.metadata.annotations.as_ref()?;
        let counts = annotations.get(UNREADY_IS_LOST_ANNOTATION)? == "true";
        let ready = condition(&self.status.conditions, "Ready")?;
        (counts && !ready.is_true()).then(|| symptom(UNREADY, &ready.message))
    }
}

impl PodStatus {
    /// Returns the symptom of a running pod that was given a device which is unhealthy now.
    fn unhealthy_device(&self) -> Option<Symptom> {
        let given = self
            .containers()
            .flat_map(|c| &c.allocated_resources_status);
        let mut devices = given.flat_map(|of| of.resources.iter().map(move |device| (of, device)));
        let (of, device) = devices.find(|(_, device)| device.health == "Unhealthy")?;
        let message = format!("{} {}", of.name, device.resource_id);
        Some(symptom(UNHEALTHY_DEVICE, &message))
    }

    /// Returns the condition by which the control plane says that it is ending the pod.
    fn disruption(&self) -> Option<&LooseCondition> {
        condition(&self.conditions, "DisruptionTarget").filter(|target| target.is_true())
    }

    fn ended_by_kubelet(&self) -> bool {
        !matches!(self.reason.as_str(), "" | DEADLINE_EXCEEDED)
    }

    fn containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.init_container_statuses
            .iter()
            .chain(&self.container_statuses)
    }

    /// Returns why a container waits after a fault, and how it ended before, if it did.
    fn waiting(&self) -> Option<(&ContainerReason, Option<&ContainerReason>)> {
        self.containers().find_map(|container| {
            let waiting = container.state.waiting.as_ref()?;
            let faulty = !IN_TURN.contains(&waiting.reason.as_str());
            faulty.then_some((waiting, container.last_state.terminated.as_ref()))
        })
    }

    /// Returns how the first container that failed has ended.
    fn failed(&self) -> Option<&ContainerReason> {
        let ended = self
            .containers()
            .filter_map(|c| c.state.terminated.as_ref());
        ended.into_iter().find(|ended| ended.exit_code != Some(0))
    }
}

/// Returns a symptom whose message is cut to what users are shown.
#[must_use]
pub fn symptom(reason: &str, message: &str) -> Symptom {
    let message = message.trim();
    let length = message.chars().count();
    Symptom {
        reason: reason.to_owned(),
        message: match length > LONGEST {
            true => {
                let beginning: String = message.chars().take(BEGINNING).collect();
                let end = message.chars().skip(length - (LONGEST - BEGINNING));
                format!(
                    "{} ... {}",
                    beginning.trim_end(),
                    end.collect::<String>().trim_start()
                )
            }
            false => message.to_owned(),
        },
        exit_code: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::fault_policy::rules_in_force;
    use serde_json::{Value, json};

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"spec": {}, "status": status})).unwrap()
    }

    /// As a kubelet with containerd said it of an image that its registry does not have.
    #[test]
    fn the_end_of_a_long_message_is_kept_since_it_has_the_cause() {
        let image = "registry.research.example:5000/team-vision/experiments/training-image:2026-11-30-nightly";
        let message = format!(
            "rpc error: code = NotFound desc = failed to pull and unpack image \"{image}\": \
             failed to resolve reference \"{image}\": {image}: not found"
        );
        let symptom = symptom("ErrImagePull", &message);
        assert!(symptom.message.starts_with("rpc error: code = NotFound"));
        assert!(
            symptom.message.ends_with("nightly: not found"),
            "{symptom:?}"
        );
        let class = rules_in_force([]).class_of(&symptom);
        assert_eq!(class, facts::faults::FaultClass::User);
    }

    #[test]
    fn a_pod_without_a_node_has_the_words_of_its_scheduler() {
        let pod = |node: Option<&str>, reason: &str, status: &str, message: &str| {
            let conditions = json!([{
                "type": "PodScheduled", "status": status, "reason": reason, "message": message,
            }]);
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "train-0"}, "spec": {"nodeName": node},
                "status": {"phase": "Pending", "conditions": conditions},
            }))
            .unwrap();
            pod.unbound().map(|symptom| symptom.to_string())
        };
        let said = "0/2 nodes are available:\n persistentvolumeclaim \"data\" not found.";
        assert_eq!(
            pod(None, "Unschedulable", "False", said).unwrap(),
            "Unschedulable (pod train-0: 0/2 nodes are available: persistentvolumeclaim \"data\" not found.)"
        );
        assert_eq!(pod(Some("n1"), "Unschedulable", "False", said), None);
        assert_eq!(pod(None, "Unschedulable", "True", said), None);
        assert_eq!(pod(None, "Unschedulable", "False", " "), None);
        assert_eq!(
            pod(None, "Schedulable", "False", "can possibly be assigned"),
            None
        );
        assert_eq!(
            pod(None, "SchedulingGated", "False", "Scheduling is blocked"),
            None
        );
        let long = pod(None, "SchedulerError", "False", &"no ".repeat(500)).unwrap();
        assert!(long.len() < 300 && long.contains(" ..."), "{long}");
    }

    #[test]
    fn the_grace_period_is_that_of_the_deletion_or_else_of_the_spec() {
        for (deletion, spec, want) in [
            (Some(5), Some(600), 5),
            (None, Some(600), 600),
            (None, None, 0),
            (None, Some(-1), 0),
            (None, Some(i64::MAX), u32::MAX),
        ] {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"deletionGracePeriodSeconds": deletion},
                "spec": {"terminationGracePeriodSeconds": spec},
            }))
            .unwrap();
            assert_eq!(pod.grace_s(), want);
        }
    }

    #[test]
    fn pods_that_end_by_themselves_differ_from_those_that_were_ended() {
        let target = json!([{"type": "DisruptionTarget", "status": "True"}]);
        for (status, expected) in [
            (json!({"phase": "Pending"}), PodPhase::Starting),
            (
                json!({"phase": "Running", "conditions": target}),
                PodPhase::Evicting,
            ),
            (json!({"phase": "Unknown"}), PodPhase::Starting),
            (json!({"phase": "Succeeded"}), PodPhase::Ended),
            (json!({"phase": "Failed"}), PodPhase::Ended),
            (
                json!({"phase": "Failed", "reason": "DeadlineExceeded"}),
                PodPhase::Ended,
            ),
            (
                json!({"phase": "Failed", "reason": "UnexpectedAdmissionError"}),
                PodPhase::Disrupted,
            ),
            (
                json!({"phase": "Failed", "reason": "OutOfcpu"}),
                PodPhase::Disrupted,
            ),
            (
                json!({"phase": "Failed", "reason": "Evicted"}),
                PodPhase::Disrupted,
            ),
            (
                json!({"phase": "Failed", "conditions": target}),
                PodPhase::Disrupted,
            ),
        ] {
            assert_eq!(pod(status.clone()).phase(), expected, "{status}");
        }
    }

    #[test]
    fn a_running_pod_that_is_not_ready_has_a_symptom_if_its_template_asks_for_it() {
        for (stated, ready, expected) in [
            (Some("true"), "False", Some("NotReady (no answer)")),
            (Some("true"), "True", None),
            (Some("false"), "False", None),
            (None, "False", None),
        ] {
            let mut pod = pod(json!({"phase": "Running", "conditions": [
                {"type": "Ready", "status": ready, "message": "no answer"},
            ]}));
            let annotation =
                stated.map(|stated| (UNREADY_IS_LOST_ANNOTATION.to_owned(), stated.to_owned()));
            pod.metadata.annotations = Some(annotation.into_iter().collect());
            assert_eq!(pod.phase(), PodPhase::Running);
            let found = pod.symptom().map(|symptom| symptom.to_string());
            assert_eq!(found.as_deref(), expected, "{stated:?} {ready}");
        }
    }

    #[test]
    fn what_keeps_a_pod_from_running_is_read_from_its_containers() {
        let waits = |reason: &str, message: &str| json!([{"state": {"waiting": {"reason": reason, "message": message}}}]);
        let crashes = json!([
            {"state": {"running": {"startedAt": "2026-11-25T00:00:00Z"}}},
            {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
             "lastState": {"terminated": {"reason": "Error", "exitCode": 3}}},
        ]);
        let failed = json!([{"state": {"terminated": {"reason": "Error", "exitCode": 134, "message": "NVRM: Xid 79"}}}]);
        let long = "x".repeat(500);
        for (status, phase, expected) in [
            (
                json!({"phase": "Pending", "containerStatuses": waits("ContainerCreating", "")}),
                PodPhase::Starting,
                None,
            ),
            (
                json!({"phase": "Pending", "containerStatuses": waits("ErrImagePull", "a: not found")}),
                PodPhase::Starting,
                Some("ErrImagePull (a: not found)".to_owned()),
            ),
            (
                json!({"phase": "Pending", "initContainerStatuses": waits("CreateContainerConfigError", "no configmap c"),
                       "containerStatuses": waits("PodInitializing", "")}),
                PodPhase::Starting,
                Some("CreateContainerConfigError (no configmap c)".to_owned()),
            ),
            (
                json!({"phase": "Running", "containerStatuses": crashes}),
                PodPhase::Starting,
                Some("CrashLoopBackOff, exit code 3 (back-off 10s)".to_owned()),
            ),
            (
                json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}),
                PodPhase::Disrupted,
                Some("OutOfcpu (Node didn't have enough resource: cpu)".to_owned()),
            ),
            (
                json!({"phase": "Failed", "containerStatuses": failed}),
                PodPhase::Ended,
                Some("Error, exit code 134 (NVRM: Xid 79)".to_owned()),
            ),
            (
                json!({"phase": "Pending", "containerStatuses": waits("RunContainerError", &long)}),
                PodPhase::Starting,
                Some(format!(
                    "RunContainerError ({} ... {})",
                    "x".repeat(BEGINNING),
                    "x".repeat(LONGEST - BEGINNING)
                )),
            ),
            (
                json!({"phase": "Running", "containerStatuses": [{
                    "state": {"running": {}},
                    "allocatedResourcesStatus": [{"name": "nvidia.com/gpu", "resources": [
                        {"resourceID": "GPU-1", "health": "Healthy"}, {"resourceID": "GPU-2", "health": "Unhealthy"},
                    ]}],
                }]}),
                PodPhase::Running,
                Some("DeviceUnhealthy (nvidia.com/gpu GPU-2)".to_owned()),
            ),
            (
                json!({"phase": "Running", "conditions": [{
                    "type": "DisruptionTarget", "status": "True",
                    "reason": "DeletionByTaintManager", "message": "Taint manager: deleting due to NoExecute taint",
                }]}),
                PodPhase::Evicting,
                Some(
                    "DeletionByTaintManager (Taint manager: deleting due to NoExecute taint)"
                        .to_owned(),
                ),
            ),
            (json!({"phase": "Succeeded"}), PodPhase::Ended, None),
            (json!({"phase": "Running"}), PodPhase::Running, None),
        ] {
            let pod = pod(status.clone());
            assert_eq!(pod.phase(), phase, "{status}");
            assert_eq!(
                pod.symptom().map(|symptom| symptom.to_string()),
                expected,
                "{status}"
            );
        }
    }
}
