//! Tasks that complete a Volcano Job: the action `CompleteJob` by the event `TaskCompleted`.
//!
//! The operator of a member counts the pods of its own cluster, and would complete a job over several clusters
//! as soon as the pods of one have succeeded. So a part has no such policy: Muster completes the gang once the
//! pods of the task have succeeded in all clusters together ([`crate::policies::completed_task`]). A task of one
//! pod that alone completes the job is in one cluster: it leads, and keeps its policy.
//!
//! A part whose pods have all ended completes by itself, and its operator drops the counts of its pods (`killPods`
//! in pkg/controllers/job, v1.14). It had at least `minAvailable` pods that succeeded. So the pods of a task can be
//! counted in all clusters only if `minAvailable` is all pods: the status interpreter counts them then, and another
//! job stays in one cluster.

use super::policies::{action, events, policies};
use super::{task_name, tasks};
use crate::leading::is_one;
use serde_json::{Value, json};

const EVENT: &str = "TaskCompleted";
const ACTION: &str = "CompleteJob";

/// Returns the tasks that complete the job by the pods of several clusters.
pub(super) fn completing_tasks(template: &Value) -> Vec<String> {
    let leads = leading_role(template);
    let named = named_tasks(template);
    let completing = named.filter(|(name, task)| {
        let mut all = policies(task).chain(of_job(template));
        leads.as_ref() != Some(name) && all.find(|policy| matches(policy)).is_some_and(completes)
    });
    completing.map(|(name, _)| name).collect()
}

/// Returns why Muster cannot complete a gang over several clusters as the policies of `template` say.
pub(super) fn unsplittable(template: &Value) -> Option<String> {
    let leads = leading_role(template);
    let mut objects = vec![("spec".to_owned(), template.get("spec")?, None)];
    for (index, (name, task)) in named_tasks(template).enumerate() {
        objects.push((format!("spec.tasks[{index}]"), task, Some(name)));
    }
    let of_job: Vec<&Value> = of_job(template).collect();
    let by_policy = objects.into_iter().find_map(|(path, object, name)| {
        if name.is_some() && leads == name {
            return None;
        }
        let why = |what: &str| Some(format!("{path}.policies: {ACTION} {what}"));
        let of_any =
            |policy: &Value| action(policy) == Some(ACTION) && events(policy).any(|e| e == "*");
        if policies(object).any(of_any) {
            return why("by * would end the part of one cluster and not the others");
        }
        let delayed = |policy: &Value| policy.get("timeout").is_some_and(|value| !value.is_null());
        if policies(object).any(|policy| completes(policy) && delayed(policy)) {
            return why("by TaskCompleted has a timeout, which counts in one cluster only");
        }
        // Without the policy, a part would do what a later one says.
        let later = if name.is_some() { &of_job[..] } else { &[] };
        let all = policies(object).chain(later.iter().copied());
        let mut matching = all.filter(|policy| matches(policy));
        let hides = matching.next().is_some_and(completes) && !matching.all(completes);
        match hides {
            true => why("by TaskCompleted comes before another policy for that event"),
            false => None,
        }
    });
    by_policy.or_else(|| uncountable(template))
}

/// Returns why the pods of a task that completes the gang cannot be counted in all clusters.
fn uncountable(template: &Value) -> Option<String> {
    let task = completing_tasks(template).into_iter().next()?;
    let number = |object: &Value, key: &str| object.get(key).and_then(Value::as_u64);
    let replicas = |task: &Value| number(task, "replicas").unwrap_or(0);
    let all: u64 = tasks(template).iter().map(replicas).sum();
    let least = |task: &Value| number(task, "minAvailable").unwrap_or_else(|| replicas(task));
    let of_tasks = || tasks(template).iter().map(least).sum();
    let stated = template
        .pointer("/spec/minAvailable")
        .and_then(Value::as_u64);
    let least: u64 = stated.filter(|least| *least > 0).unwrap_or_else(of_tasks);
    (least < all).then(|| {
        format!(
            "spec.minAvailable: {least} of {all} pods, but {ACTION} by {EVENT} of task {task} needs the number of pods \
             that succeeded, which a part that has completed with fewer does not show"
        )
    })
}

/// Returns the only task of a Volcano Job whose completion completes it.
pub(super) fn leading_role(template: &Value) -> Option<String> {
    let of_task = |policy: &Value| {
        let by_end = |event: &str| matches!(event, EVENT | "*");
        action(policy) == Some(ACTION) && events(policy).any(by_end)
    };
    let completing = named_tasks(template);
    let mut completing = completing.filter(|(_, task)| policies(task).any(of_task));
    let (name, task) = completing.next().filter(|_| completing.next().is_none())?;
    let mut by_task = policies(task).filter(|policy| of_task(policy));
    let by_its_end = by_task.all(|policy| events(policy).all(|event| event == EVENT));
    let leads = by_its_end && is_one(task.get("replicas").unwrap_or(&Value::Null), false);
    leads.then_some(name)
}

/// Returns `policy` as a part has it: without the event by which it would complete; `None` if nothing is left.
pub(super) fn of_part(policy: &Value) -> Option<Value> {
    if !completes(policy) {
        return Some(policy.clone());
    }
    let rest: Vec<&str> = events(policy).filter(|event| *event != EVENT).collect();
    let by_code = policy.get("exitCode").is_some_and(|code| !code.is_null());
    if rest.is_empty() && !by_code {
        return None;
    }
    let mut policy = policy.clone();
    if let Some(fields) = policy.as_object_mut() {
        fields.remove("event");
        fields.remove("events");
        if !rest.is_empty() {
            fields.insert("events".to_owned(), json!(rest));
        }
    }
    Some(policy)
}

fn named_tasks(template: &Value) -> impl Iterator<Item = (String, &Value)> {
    tasks(template).iter().enumerate().map(|(index, task)| {
        let name = task.get("name").and_then(Value::as_str);
        (task_name(index, name), task)
    })
}

fn of_job(template: &Value) -> impl Iterator<Item = &Value> {
    template.get("spec").into_iter().flat_map(policies)
}

/// Returns true if a policy applies when all pods of a task have succeeded.
fn matches(policy: &Value) -> bool {
    events(policy).any(|event| matches!(event, EVENT | "*"))
}

/// Returns true if a policy completes the job when all pods of a task have succeeded.
pub(super) fn completes(policy: &Value) -> bool {
    action(policy) == Some(ACTION) && events(policy).any(|event| event == EVENT)
}
