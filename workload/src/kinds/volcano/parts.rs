//! Parts of a Volcano Job: its tasks with their shares of the pods and of the minimums, and with policies that
//! restart no part by itself.

use super::{policies, task_name};
use crate::apportion::apportion;
use crate::parts::{Fields, Gang, add_environment};
use serde_json::{Value, json};

/// Returns the tasks with the pods of the cluster; a task without pods is left out. Minimums are divided
/// like pods, so that they add up; a part's minimum is at least the sum of its tasks', if that holds for
/// the whole job. A part of several never restarts itself.
pub(super) fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    // A part of several stops where its policies would restart it.
    let stops = |object: &Value| match gang.shares.len() {
        0 | 1 => None,
        _ => policies::without_restart(template, object),
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
        if let Some(policies) = stops(&Value::Object(task.clone())) {
            task.insert("policies".to_owned(), policies);
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
    if let Some(policies) = template.get("spec").and_then(stops) {
        fields.push(("/spec/policies".to_owned(), policies));
    }
    if let Some(most) = template.pointer("/spec/maxRetry") {
        fields.push(("/spec/maxRetry".to_owned(), most.clone()));
    }
    let stated = template
        .pointer("/spec/minAvailable")
        .and_then(Value::as_u64);
    if stated.is_some_and(|stated| stated > 0) {
        let all = gang.replicas();
        let share = apportion(u64::from(gang.min_available), &all)[index];
        let of_tasks = if gang.tasks_hold { needed } else { 1 };
        let minimum = share.max(of_tasks).max(1).min(all[index]);
        fields.push(("/spec/minAvailable".to_owned(), minimum.into()));
    }
    fields
}
