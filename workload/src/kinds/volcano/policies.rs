//! The policies of a Volcano Job: which action follows an event, of the whole job and of each task
//! (pkg/controllers/job/state and `applyPolicies`, v1.14).
//!
//! Actions on the whole job stop a part and leave it in a phase of its own: `AbortJob` in Aborted,
//! `TerminateJob` in Terminated, `CompleteJob` in Completed, after Completing. `RestartJob` has none, and pods
//! would start again before Muster has seen it. So each part has another action in its place, one that the
//! template does not use. Restarts of tasks and pods stay as they are: they concern the pods of one cluster.
//!
//! `CompleteJob` by `TaskCompleted` has no place in a part either ([`completing`]).
//!
//! If all pods of a Job fail together, Volcano may find that all have ended before it handles the first
//! failure: it has the pods in a cache, and the failures in a queue. Then the phase is Failed, and the action is
//! lost. The fewer pods a part has, the likelier that is. If every pod's failure has the same action, a part
//! that has failed therefore asks for it.

use super::{completing, tasks};
use crate::outcome::text;
use crate::policies::{GangAction, GangPolicies};
use serde_json::{Value, json};

/// Volcano's default for `spec.maxRetry`.
const DEFAULT_MAX_RETRY: u32 = 3;

const RESTART: &str = "RestartJob";

/// An action that can take the place of `RestartJob`, with the phases of a part that executes it.
struct StopAction {
    action: &'static str,
    stopping: &'static str,
    stopped: &'static str,
}

const TERMINATE: StopAction = StopAction {
    action: "TerminateJob",
    stopping: "Terminating",
    stopped: "Terminated",
};

const ABORT: StopAction = StopAction {
    action: "AbortJob",
    stopping: "Aborting",
    stopped: "Aborted",
};

/// Returns the policies of `object`, a Volcano Job's spec or a task.
pub(super) fn policies(object: &Value) -> impl Iterator<Item = &Value> {
    let policies = object.get("policies").and_then(Value::as_array);
    policies.into_iter().flatten()
}

/// Returns the action of a policy.
pub(super) fn action(policy: &Value) -> Option<&str> {
    policy.get("action").and_then(Value::as_str)
}

/// Returns the events of a policy; a policy for an exit code has none.
pub(super) fn events(policy: &Value) -> impl Iterator<Item = &str> {
    let one = policy.get("event").into_iter();
    let many = policy.get("events").and_then(Value::as_array);
    let events = one.chain(many.into_iter().flatten());
    events
        .filter_map(Value::as_str)
        .filter(|event| !event.is_empty())
}

/// Returns why Volcano's webhook of a member would refuse the policies of `template` (`validatePolicies`, v1.14): an
/// event may have one action, and `*` no other event beside it. Without that webhook one of the actions would win.
pub(super) fn refused_by_volcano(template: &Value) -> Vec<String> {
    let spec = template.get("spec");
    let of_spec = spec.into_iter().map(|spec| ("spec".to_owned(), spec));
    let of_tasks = tasks(template).iter().enumerate();
    let of_tasks = of_tasks.map(|(index, task)| (format!("spec.tasks[{index}]"), task));
    let mut refused = Vec::new();
    for (path, object) in of_spec.chain(of_tasks) {
        let mut known: Vec<&str> = Vec::new();
        for (index, policy) in policies(object).enumerate() {
            let mut own: Vec<&str> = events(policy).collect();
            own.sort_unstable();
            own.dedup();
            let twice = own.iter().find(|event| known.contains(event));
            let beside = own
                .iter()
                .find(|event| !known.is_empty() && (**event == "*" || known.contains(&"*")));
            if let Some(event) = twice.or(beside) {
                refused.push(format!(
                    "{path}.policies[{index}] names event {event}, for which another policy has an action; Volcano's \
                     webhook of a member refuses such a job; leave one policy for each event, and none beside *"
                ));
            }
            known.extend(own);
        }
    }
    refused
}

fn uses(template: &Value, wanted: &str) -> bool {
    let spec = template.get("spec");
    let mut objects = spec.into_iter().chain(tasks(template));
    objects.any(|object| policies(object).any(|policy| action(policy) == Some(wanted)))
}

/// Returns what a part does in place of `RestartJob`: an action that its template does not use.
fn in_place_of_restart(template: &Value) -> Option<&'static StopAction> {
    let mut actions = [&TERMINATE, &ABORT].into_iter();
    actions.find(|stop| !uses(template, stop.action))
}

/// Returns true if a part could not show that a policy asks for a restart of the whole gang.
pub(super) fn is_ambiguous(template: &Value) -> bool {
    uses(template, RESTART) && in_place_of_restart(template).is_none()
}

/// Returns the policies of the whole gang.
pub(super) fn gang_policies(template: &Value) -> GangPolicies {
    let stop = in_place_of_restart(template).filter(|_| uses(template, RESTART));
    GangPolicies {
        restart_phase: stop.map(|stop| stop.stopped.to_owned()),
        failed_action: failed_action(template),
        max_retry: max_retry(template),
        // The pods of each follow from the shares.
        completing: completing::completing_tasks(template)
            .into_iter()
            .map(|task| (task, 0))
            .collect(),
    }
}

/// Returns the action that follows when any pod fails; `None` if it depends on the pod or its exit code.
fn failed_action(template: &Value) -> Option<GangAction> {
    let spec = template.get("spec")?;
    let mut actions = tasks(template).iter().map(|task| on_failure(task, spec));
    let first = actions.next()??;
    actions.all(|action| action == Some(first)).then_some(first)
}

/// Returns the action on the whole job that follows when a pod of `task` fails, whatever its exit code. The
/// first policy that matches applies, those of the task before those of the job.
fn on_failure(task: &Value, spec: &Value) -> Option<GangAction> {
    let mut by_code = Vec::new();
    for policy in policies(task).chain(policies(spec)) {
        let by_event = events(policy).any(|event| matches!(event, "PodFailed" | "*"));
        let is_set = |key| {
            policy
                .get(key)
                .is_some_and(|value: &Value| !value.is_null())
        };
        if !by_event && !is_set("exitCode") {
            continue;
        }
        let action = match action(policy)? {
            _ if is_set("timeout") => return None,
            RESTART => GangAction::Restart,
            "AbortJob" => GangAction::Abort,
            "CompleteJob" => GangAction::Complete,
            _ => return None,
        };
        if by_event {
            return by_code
                .iter()
                .all(|known| *known == action)
                .then_some(action);
        }
        by_code.push(action);
    }
    None
}

/// Returns the policies of `object`, a spec or a task of `template`, as a part of several has them: with another
/// action in place of `RestartJob`, and without those that complete the job by a task, except in the task that
/// `leads`. `None` if they are the same.
pub(super) fn of_part(template: &Value, object: &Value, leads: bool) -> Option<Vec<Value>> {
    let stop = in_place_of_restart(template);
    let restarts = |policy: &Value| stop.filter(|_| action(policy) == Some(RESTART));
    let changes =
        |policy: &Value| restarts(policy).is_some() || !leads && completing::completes(policy);
    if !policies(object).any(changes) {
        return None;
    }
    let rewritten = policies(object).filter_map(|policy| {
        let mut policy = match leads {
            true => policy.clone(),
            false => completing::of_part(policy)?,
        };
        if let Some(stop) = restarts(&policy) {
            policy["action"] = json!(stop.action);
        }
        Some(policy)
    });
    Some(rewritten.collect())
}

/// Returns what a part asks of its gang. Both the phase in which its pods are ended and the one after it ask:
/// the other parts need not wait for pods that take long to end.
pub(super) fn request(status: &Value, policies: &GangPolicies) -> Option<GangAction> {
    let phase = text(status.get("state")?, "phase");
    let is = |stop: &StopAction| phase == stop.stopping || phase == stop.stopped;
    let (stop, request) = if is(&TERMINATE) {
        (TERMINATE.stopped, GangAction::Terminate)
    } else if is(&ABORT) {
        (ABORT.stopped, GangAction::Abort)
    } else if phase == "Failed" {
        return policies.failed_action;
    } else {
        let completes = phase == "Completing" || phase == "Completed" && was_completing(status);
        return completes.then_some(GangAction::Complete);
    };
    match policies.restart_phase.as_deref() == Some(stop) {
        true => Some(GangAction::Restart),
        false => Some(request),
    }
}

/// Returns the policy by which a part has failed, and that asks for nothing more.
pub(super) fn ended_by_rule(status: &Value, policies: Option<&GangPolicies>) -> Option<String> {
    let phase = text(status.get("state")?, "phase");
    let restarts = policies.and_then(|policies| policies.restart_phase.as_deref());
    let ended = phase == TERMINATE.stopped && restarts != Some(TERMINATE.stopped);
    ended.then(|| "spec.policies (TerminateJob)".to_owned())
}

/// Returns true if a policy completed the part. It did not end because its pods had ended.
fn was_completing(status: &Value) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| text(condition, "status") == "Completing")
}

/// Lowers `spec.maxRetry` by the retries of earlier attempts. Zero would be the default.
pub(super) fn limit_retries(template: &mut Value, used: u32) {
    let left = max_retry(template).saturating_sub(used).max(1);
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("maxRetry".to_owned(), left.into());
    }
}

fn max_retry(template: &Value) -> u32 {
    let stated = template.pointer("/spec/maxRetry").and_then(Value::as_u64);
    let stated = stated.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    stated.filter(|most| *most > 0).unwrap_or(DEFAULT_MAX_RETRY)
}

#[cfg(test)]
mod tests;
