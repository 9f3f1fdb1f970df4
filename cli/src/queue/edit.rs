//! `queue create` and `queue set`: the quota of a queue, as fields of its CapacityPolicy or its Queue.
//!
//! A queue that Muster made for a CapacityPolicy has its amounts there; otherwise the Queue states them. A field that
//! both state is changed in both, because the lower amount counts.

use crate::acts::{FIELD_MANAGER, merge};
use crate::args::{CreateQueue, DryRun, QueueField, WriteArgs};
use crate::connect::{self, api_error};
use crate::{output, simulate};
use anyhow::{Result, bail, ensure};
use crds::capacity_policy::CapacityPolicy;
use crds::queue::Queue;
use kube::api::{DynamicObject, PostParams};
use kube::{Client, Resource};
use serde_json::{Value, json};

/// Creates the CapacityPolicy of a queue. Muster creates the Queue.
pub(super) async fn create(args: &CreateQueue, client: &Client) -> Result<String> {
    let mut policy: DynamicObject = serde_json::from_value(json!({
        "apiVersion": CapacityPolicy::api_version(&()),
        "kind": CapacityPolicy::kind(&()),
        "metadata": {"name": args.name},
        "spec": spec(args),
    }))?;
    if args.write.dry_run != DryRun::Client {
        let queues = connect::objects::<Queue>(client);
        let exists = queues.get_opt(&args.name).await.map_err(api_error)?;
        ensure!(
            exists.is_none(),
            "queue {:?} exists already; `kubectl muster queue set` changes it",
            args.name
        );
        let params = PostParams {
            dry_run: args.write.dry_run == DryRun::Server,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let api = connect::objects::<CapacityPolicy>(client);
        policy = api.create(&params, &policy).await.map_err(api_error)?;
        policy.metadata.managed_fields = None;
    }
    let name = output::name_line::<CapacityPolicy>(&policy);
    output::changed(&name, "created", &policy, &args.write)
}

/// Returns the spec of a new CapacityPolicy.
fn spec(args: &CreateQueue) -> Value {
    let text = |amount: Option<u32>| amount.map(|amount| amount.to_string());
    let most = args.max_gpus.or(args.gpus);
    let mut bounds = json!({"name": args.device});
    for (field, amount) in [
        ("guarantee", text(args.guarantee_gpus)),
        ("deserved", text(args.gpus)),
        ("capability", text(most)),
    ] {
        if let Some(amount) = amount {
            bounds[field] = json!(amount);
        }
    }
    let mut spec = json!({"parent": args.parent, "resources": [bounds]});
    if let (Some(class), Some(amount)) = (&args.class, text(most)) {
        spec["pools"] = json!([{
            "name": class, "class": class,
            "resources": [{"name": args.device, "capability": amount}],
        }]);
    }
    spec
}

/// Changes fields of a queue, and returns what was changed.
pub(super) async fn set(
    name: &str,
    fields: &[QueueField],
    write: &WriteArgs,
    client: &Client,
) -> Result<String> {
    let queues = connect::objects::<Queue>(client);
    let Some(queue) = queues.get_opt(name).await.map_err(api_error)? else {
        bail!("queue {name:?} does not exist; `kubectl muster queue create` makes one");
    };
    let policies = connect::objects::<CapacityPolicy>(client);
    let policy = policies.get_opt(name).await.map_err(api_error)?;
    let of_policy = connect::typed::<Queue>(&queue)?.is_of_policy();
    let (mut to_queue, mut to_policy) = (Value::Null, Vec::new());
    for field in fields {
        let states = policy
            .as_ref()
            .is_some_and(|policy| is_stated(policy, field));
        let in_policy = policy.is_some() && is_of_both(field) && (of_policy || states);
        if in_policy {
            to_policy.push(field);
        }
        let patch = simulate::queue_patch(field)?;
        let own = queue.data["spec"].pointer(&pointer(field)).is_some();
        if !in_policy || own {
            json_patch::merge(&mut to_queue, &patch);
        }
    }
    let mut text = String::new();
    if !to_queue.is_null() {
        text += &changed::<Queue>(queue, to_queue, write, &queues).await?;
    }
    if let Some(policy) = policy.filter(|_| !to_policy.is_empty()) {
        let patch = policy_patch(&policy, &to_policy);
        text += &changed::<CapacityPolicy>(policy, patch, write, &policies).await?;
    }
    Ok(text)
}

/// Returns true for the fields that a CapacityPolicy has too.
fn is_of_both(field: &QueueField) -> bool {
    field.path.len() > 1 || field.path[0] == "parent"
}

/// Returns the JSON pointer of a field in the spec of a Queue.
fn pointer(field: &QueueField) -> String {
    let words = field
        .path
        .iter()
        .map(|word| word.replace('~', "~0").replace('/', "~1"));
    words.map(|word| format!("/{word}")).collect()
}

/// Returns true if a CapacityPolicy states the field.
fn is_stated(policy: &DynamicObject, field: &QueueField) -> bool {
    let spec = &policy.data["spec"];
    match (field.path.as_slice(), field.path.last()) {
        ([_], _) => !spec["parent"].is_null(),
        ([amount, ..], Some(resource)) => {
            let bounds = spec["resources"].as_array().into_iter().flatten();
            let mut named = bounds.filter(|bounds| bounds["name"] == **resource);
            named.any(|bounds| !bounds[amount].is_null())
        }
        _ => false,
    }
}

/// Returns the merge patch of fields in a CapacityPolicy. A list is patched as a whole, as it was read.
fn policy_patch(policy: &DynamicObject, fields: &[&QueueField]) -> Value {
    let mut resources = policy.data["spec"]["resources"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut spec = json!({});
    for field in fields {
        let value = match field.value.is_empty() {
            true => Value::Null,
            false => json!(field.value),
        };
        let ([amount, _, ..], Some(resource)) = (field.path.as_slice(), field.path.last()) else {
            spec["parent"] = value;
            continue;
        };
        let index = resources
            .iter()
            .position(|bounds| bounds["name"] == **resource);
        let index = index.unwrap_or_else(|| {
            resources.push(json!({"name": resource}));
            resources.len() - 1
        });
        json_patch::merge(&mut resources[index], &json!({(amount): value}));
        // An amount that was the only one of its resource.
        resources.retain(|bounds| bounds.as_object().is_some_and(|bounds| bounds.len() > 1));
        spec["resources"] = json!(resources);
    }
    json!({"metadata": {"resourceVersion": policy.metadata.resource_version}, "spec": spec})
}

/// Writes a patch, and returns the line of the object and a line for each field that differs.
async fn changed<K: Resource<DynamicType = ()>>(
    mut object: DynamicObject,
    patch: Value,
    write: &WriteArgs,
    api: &kube::Api<DynamicObject>,
) -> Result<String> {
    object.metadata.managed_fields = None;
    let before = object.data["spec"].clone();
    let mut wanted = before.clone();
    json_patch::merge(&mut wanted, &patch["spec"]);
    let name = output::name_line::<K>(&object);
    if wanted == before {
        return output::changed(&name, "unchanged", &object, write);
    }
    let after = merge(api, object, patch, write.dry_run).await?;
    let text = output::changed(&name, "changed", &after, write)?;
    if !write.output.format.is_table() {
        return Ok(text);
    }
    let mut lines = Vec::new();
    differences("", &before, &after.data["spec"], &mut lines);
    Ok(text + &lines.concat())
}

/// Adds a line for each field that differs.
fn differences(path: &str, before: &Value, after: &Value, lines: &mut Vec<String>) {
    let is_map = |value: &Value| value.is_object() || value.is_null();
    if before == after {
        return;
    }
    if is_map(before) && is_map(after) {
        let all = [before, after].into_iter().filter_map(Value::as_object);
        let names: std::collections::BTreeSet<&String> = all.flat_map(|map| map.keys()).collect();
        for name in names {
            let path = match path.is_empty() {
                true => name.clone(),
                false => format!("{path}.{name}"),
            };
            differences(&path, &before[name], &after[name], lines);
        }
        return;
    }
    if let (Some(old), Some(new)) = (by_name(before), by_name(after)) {
        return differences(path, &old, &new, lines);
    }
    let text = |value: &Value| match value {
        Value::Null => "unset".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    lines.push(format!("  {path}: {} -> {}\n", text(before), text(after)));
}

/// Returns a list of objects with names as a map, without the names.
fn by_name(list: &Value) -> Option<Value> {
    let items = match list {
        Value::Null => return Some(json!({})),
        list => list.as_array()?,
    };
    let named = items.iter().map(|item| {
        let mut rest = item.as_object()?.clone();
        let name = rest.remove("name")?.as_str()?.to_owned();
        Some((name, Value::Object(rest)))
    });
    Some(Value::Object(named.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests;
