//! What a pod does, in the words of `kubectl get pods`. Pure.
//!
//! The rules are kubectl's (`printPod` in pkg/printers/internalversion/printers.go, v1.35).

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus,
};
use std::collections::BTreeMap;

/// What a pod does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodWords {
    /// kubectl's STATUS.
    pub(super) status: String,
    /// `1/2`.
    pub(super) ready: String,
    pub(super) restarts: i32,
    /// Why, in a few words; empty if the status says all.
    pub(super) reason: String,
}

/// Returns what a pod does.
pub(super) fn of(pod: &Pod) -> PodWords {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let own = status.container_statuses.as_deref().unwrap_or_default();
    let inits = status
        .init_container_statuses
        .as_deref()
        .unwrap_or_default();
    let all = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let ready = own.iter().filter(|container| container.ready).count();
    PodWords {
        status: word(pod, status, inits, own),
        ready: format!("{ready}/{all}"),
        restarts: own
            .iter()
            .chain(inits)
            .map(|container| container.restart_count)
            .sum(),
        reason: reason(status, inits, own),
    }
}

fn word(
    pod: &Pod,
    status: &PodStatus,
    inits: &[ContainerStatus],
    own: &[ContainerStatus],
) -> String {
    let gone = pod.metadata.deletion_timestamp.is_some();
    let phase = status.phase.as_deref().unwrap_or("Unknown");
    let is_over = matches!(phase, "Succeeded" | "Failed");
    if gone && !is_over {
        return if status.reason.as_deref() == Some("NodeLost") {
            "Unknown"
        } else {
            "Terminating"
        }
        .to_owned();
    }
    let mut word = status.reason.clone().unwrap_or_else(|| phase.to_owned());
    if scheduled(status).is_some_and(|(reason, _)| reason == "SchedulingGated") {
        "SchedulingGated".clone_into(&mut word);
    }
    let restartable = |name: &str| {
        let inits = pod
            .spec
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten());
        let mut inits = inits.filter(|init| init.name == name);
        inits.any(|init| init.restart_policy.as_deref() == Some("Always"))
    };
    let is_done = |init: &ContainerStatus| {
        terminated(init).is_some_and(|end| end.exit_code == 0)
            || (restartable(&init.name) && init.started == Some(true))
    };
    if let Some(at) = inits.iter().position(|init| !is_done(init)) {
        return preparing(&inits[at], at, inits.len());
    }
    let mut runs = false;
    for container in own.iter().rev() {
        let state = container.state.as_ref();
        let waits = state.and_then(|state| state.waiting.as_ref()?.reason.clone());
        if let Some(reason) = waits.filter(|reason| !reason.is_empty()) {
            word = reason;
        } else if let Some(end) = terminated(container) {
            word = ended(end);
        } else if container.ready && state.is_some_and(|state| state.running.is_some()) {
            runs = true;
        }
    }
    if word == "Completed" && runs {
        word = if is_ready(status) {
            "Running"
        } else {
            "NotReady"
        }
        .to_owned();
    }
    word
}

/// Returns the word while an init container has not ended.
fn preparing(init: &ContainerStatus, at: usize, all: usize) -> String {
    if let Some(end) = terminated(init) {
        return format!("Init:{}", ended(end));
    }
    let waiting = init
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref()?.reason.as_deref());
    match waiting {
        Some(reason) if !reason.is_empty() && reason != "PodInitializing" => {
            format!("Init:{reason}")
        }
        _ => format!("Init:{at}/{all}"),
    }
}

fn ended(end: &ContainerStateTerminated) -> String {
    match (end.reason.as_deref(), end.signal) {
        (Some(reason), _) if !reason.is_empty() => reason.to_owned(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", end.exit_code),
    }
}

fn terminated(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

fn is_ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns reason and message of a pod that is not scheduled.
fn scheduled(status: &PodStatus) -> Option<(&str, &str)> {
    let mut conditions = status.conditions.iter().flatten();
    let scheduled = conditions.find(|condition| condition.type_ == "PodScheduled")?;
    let reason = scheduled
        .reason
        .as_deref()
        .filter(|_| scheduled.status == "False")?;
    Some((reason, scheduled.message.as_deref().unwrap_or_default()))
}

fn reason(status: &PodStatus, inits: &[ContainerStatus], own: &[ContainerStatus]) -> String {
    if let Some((reason, message)) = scheduled(status) {
        return if message.is_empty() { reason } else { message }.to_owned();
    }
    let failed = |state: Option<&ContainerState>| {
        let end = state?.terminated.as_ref()?;
        (end.exit_code != 0).then(|| format!("exit code {}", end.exit_code))
    };
    let all = || inits.iter().chain(own);
    let now = all().find_map(|container| failed(container.state.as_ref()));
    let waits =
        || all().find_map(|container| container.state.as_ref()?.waiting.as_ref()?.message.clone());
    let last = || {
        all().find_map(|container| {
            let last = failed(container.last_state.as_ref())?;
            Some(format!("was started again after {last}"))
        })
    };
    let told = now
        .or_else(|| status.message.clone())
        .or_else(last)
        .or_else(waits);
    told.unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Returns the devices that a pod requests: `nvidia.com/gpu:8`.
pub(super) fn devices(pod: &Pod) -> String {
    let mut sums = BTreeMap::<&str, u64>::new();
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        let limits = container
            .resources
            .iter()
            .flat_map(|resources| resources.limits.iter().flatten());
        for (name, amount) in limits {
            let is_device = name.contains('/') && !name.contains("kubernetes.io/");
            if let (true, Ok(amount)) = (is_device, amount.0.parse::<u64>()) {
                *sums.entry(name).or_default() += amount;
            }
        }
    }
    let words: Vec<String> = sums
        .iter()
        .map(|(name, amount)| format!("{name}:{amount}"))
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shown(status: &str) -> String {
        let text = format!(
            "{{metadata: {{name: p}}, spec: {{containers: [{{name: a}}, {{name: b}}],
              initContainers: [{{name: i}}, {{name: side, restartPolicy: Always}}]}}, status: {status}}}"
        );
        let pod: Pod = serde_saphyr::from_str(&text).unwrap();
        let shown = of(&pod);
        format!(
            "{} {} {} {}",
            shown.status, shown.ready, shown.restarts, shown.reason
        )
        .trim_end()
        .to_owned()
    }

    fn container(name: &str, more: &str) -> String {
        format!("{{name: {name}, image: i, imageID: i, ready: false, restartCount: 0, {more}}}")
    }

    #[test]
    fn a_pod_is_shown_as_kubectl_shows_it() {
        let one = |more: &str| {
            format!(
                "{{phase: Running, containerStatuses: [{}]}}",
                container("a", more)
            )
        };
        for (status, want) in [
            ("{}".to_owned(), "Unknown 0/2 0"),
            ("{phase: Pending}".to_owned(), "Pending 0/2 0"),
            (
                "{phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable,
                  message: no node}]}"
                    .to_owned(),
                "Pending 0/2 0 no node",
            ),
            ("{phase: Failed, reason: Evicted, message: low on memory}".to_owned(), "Evicted 0/2 0 low on memory"),
            (
                one("ready: true, restartCount: 2, state: {running: {}}, lastState: {terminated: {exitCode: 3}}")
                    .replace("ready: false, restartCount: 0, ", ""),
                "Running 1/2 2 was started again after exit code 3",
            ),
            (
                one("state: {waiting: {reason: CrashLoopBackOff, message: back-off}},
                    lastState: {terminated: {exitCode: 3}}"),
                "CrashLoopBackOff 0/2 0 was started again after exit code 3",
            ),
            (one("state: {waiting: {reason: ImagePullBackOff, message: no image}}"), "ImagePullBackOff 0/2 0 no image"),
            (one("state: {terminated: {exitCode: 0, reason: Completed}}"), "Completed 0/2 0"),
            (one("state: {terminated: {exitCode: 42, reason: Error}}"), "Error 0/2 0 exit code 42"),
            (one("state: {terminated: {exitCode: 137, signal: 9}}"), "Signal:9 0/2 0 exit code 137"),
            (
                format!(
                    "{{phase: Pending, initContainerStatuses: [{}, {}]}}",
                    container("i", "state: {terminated: {exitCode: 0}}"),
                    container("side", "started: false, state: {waiting: {reason: PodInitializing}}"),
                ),
                "Init:1/2 0/2 0",
            ),
            (
                format!(
                    "{{phase: Pending, initContainerStatuses: [{}]}}",
                    container("i", "state: {terminated: {exitCode: 1, reason: Error}}"),
                ),
                "Init:Error 0/2 0 exit code 1",
            ),
        ] {
            assert_eq!(shown(&status), want, "{status}");
        }
    }

    #[test]
    fn devices_are_those_of_all_containers() {
        let pod: Pod = serde_saphyr::from_str(
            "{metadata: {name: p}, spec: {containers: [
              {name: a, resources: {limits: {nvidia.com/gpu: '4', cpu: '1', hugepages-2Mi: 1Gi}}},
              {name: b, resources: {limits: {nvidia.com/gpu: '4'}}}]}}",
        )
        .unwrap();
        assert_eq!(devices(&pod), "nvidia.com/gpu:8");
    }
}
