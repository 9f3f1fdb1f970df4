//! Parts of a Volcano Job: its tasks with their shares of the pods and of the minimums, and with policies that
//! restart no part by itself.

use super::{completing, policies, task_name};
use crate::apportion::apportion;
use crate::parts::{Fields, Gang, add_environment};
use serde_json::{Value, json};

/// Returns the tasks with the pods of the cluster; a task without pods is left out. Minimums are divided
/// like pods, so that they add up; a part's minimum is at least the sum of its tasks', if that holds for
/// the whole job. A part of several never restarts itself.
pub(super) fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    // A part of several stops where its policies would restart it, and completes by no task but one that leads.
    let leading = completing::leading_role(template);
    let rewritten = |object: &Value, name: Option<&String>| match gang.shares.len() {
        0 | 1 => None,
        _ => policies::of_part(template, object, name.is_some() && name == leading.as_ref()),
    };
    let list = template.pointer("/spec/tasks").and_then(Value::as_array);
    let mut tasks = Vec::new();
    let mut needed = 0_u64;
    for (position, task) in list.into_iter().flatten().enumerate() {
        let name = task_name(position, task.get("name").and_then(Value::as_str));
        let each = gang.per_cluster(&name);
        let (count, Some(task)) = (each[index], task.as_object()) else {
            continue;
        };
        // No task may be added to a running Job.
        if count == 0 && !gang.resizable {
            continue;
        }
        let mut task = task.clone();
        let minimum = task.get("minAvailable").and_then(Value::as_u64);
        let minimum = minimum.map(|minimum| apportion(minimum, &each)[index]);
        if let Some(minimum) = minimum {
            task.insert("minAvailable".to_owned(), minimum.into());
        }
        if let Some(policies) = rewritten(&Value::Object(task.clone()), Some(&name)) {
            task.insert("policies".to_owned(), policies.into());
        }
        needed += minimum.unwrap_or(count);
        task.insert("name".to_owned(), json!(name));
        task.insert("replicas".to_owned(), count.into());
        let environment = gang.environment(index, gang.rank_offset(&name, &each, index));
        if let Some(pods) = task.get_mut("template").and_then(Value::as_object_mut) {
            add_environment(pods, &environment);
            gang.label(index, pods);
        }
        tasks.push(Value::Object(task));
    }
    let mut fields = vec![("/spec/tasks".to_owned(), Value::Array(tasks))];
    let of_job = template.get("spec");
    if let Some(policies) = of_job.and_then(|spec| rewritten(spec, None)) {
        fields.push(("/spec/policies".to_owned(), policies.into()));
    }
    if let Some(most) = template.pointer("/spec/maxRetry") {
        fields.push(("/spec/maxRetry".to_owned(), most.clone()));
    }
    let stated = template
        .pointer("/spec/minAvailable")
        .and_then(Value::as_u64);
    // The pods of a task that completes the gang are counted by it.
    let counted = !completing::completing_tasks(template).is_empty();
    if counted || stated.is_some_and(|stated| stated > 0) {
        let all = gang.replicas();
        let share = apportion(u64::from(gang.min_available), &all)[index];
        let of_tasks = if gang.tasks_hold { needed } else { 1 };
        let minimum = share.max(of_tasks).max(1).min(all[index]);
        fields.push(("/spec/minAvailable".to_owned(), minimum.into()));
    }
    fields
}
