//! Objects of `muster.io/v1alpha1`, converted to `muster.io/v1alpha2`.
//!
//! `muster install` converts stored objects with it, and the simulator reads old files with it. JsonFields that both
//! versions have alike stay as they are, so that an object that was converted once is converted to itself.

use crate::duration::parse_millis;
use serde_json::{Map, Value, json};

/// The `apiVersion` of objects that are converted.
pub const API_VERSION: &str = "muster.io/v1alpha1";

/// The version of [`API_VERSION`].
pub const VERSION: &str = "v1alpha1";

/// The fields of an object.
type JsonFields = Map<String, Value>;

/// Converts a whole object of any kind of `muster.io`.
///
/// # Errors
/// Returns the field of a duration that cannot be read, and its value.
pub fn convert(object: &mut Value) -> Result<(), String> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        match kind.as_str() {
            "CapacityPolicy" => capacity_policy(spec)?,
            "FaultPolicy" => fault_policy(spec)?,
            _ => {}
        }
    }
    object["apiVersion"] = "muster.io/v1alpha2".into();
    Ok(())
}

/// Converts the spec of a CapacityPolicy.
///
/// # Errors
/// Returns the field of a duration that cannot be read, and its value.
pub fn capacity_policy(spec: &mut JsonFields) -> Result<(), String> {
    if let Some(Value::Array(pools)) = spec.get_mut("pools") {
        name_pools(pools);
    }
    if let Some(ageing) = fields(spec, "ageing") {
        seconds(ageing, "spec.ageing", "every", "intervalSeconds")?;
        rename(ageing, "raise", "increment");
    }
    if let Some(backfill) = fields(spec, "backfill") {
        word(backfill, "conservative", "mode", ["Easy", "Conservative"]);
    }
    if let Some(share) = fields(spec, "fairShare") {
        seconds(
            share,
            "spec.fairShare",
            "usageHalfLife",
            "usageHalfLifeSeconds",
        )?;
    }
    if let Some(rules) = fields(spec, "preemption") {
        let label = "preemptableLabel";
        word(
            rules,
            "withinQueue",
            "withinQueue",
            ["Never", "LowerPriority"],
        );
        word(rules, "reclaim", "reclaim", ["Never", "Any"]);
        word(rules, "allowNonPreemptable", label, ["Ignore", "Honor"]);
        word(
            rules,
            "evictOverdue",
            "evictOverdue",
            ["Never", "ForDelayedJobs"],
        );
        seconds(rules, "spec.preemption", "minRuntime", "minRuntimeSeconds")?;
    }
    if let Some(limits) = fields(spec, "limits") {
        seconds(limits, "spec.limits", "runtime", "runtimeSeconds")?;
        for count in ["jobs", "jobsPerUser", "pending"] {
            // More than int32 has means no limit, as before.
            let stated = limits.get(count).and_then(Value::as_i64);
            if let Some(most) = stated.filter(|most| *most > i64::from(i32::MAX)) {
                limits.insert(count.to_owned(), most.min(i64::from(i32::MAX)).into());
            }
        }
    }
    if let Some(placement) = fields(spec, "placement") {
        let field = "spec.placement";
        seconds(placement, field, "startDeadline", "startDeadlineSeconds")?;
        seconds(
            placement,
            field,
            "recoveryDeadline",
            "recoveryDeadlineSeconds",
        )?;
        word(placement, "prePull", "prePull", ["Never", "Reserved"]);
    }
    Ok(())
}

/// Gives each pool a name, that of its class if it is free, and lists its resources.
fn name_pools(pools: &mut [Value]) {
    let mut names: Vec<String> = Vec::new();
    for pool in pools.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(Value::Object(resources)) = pool.get_mut("resources") {
            let list = std::mem::take(resources).into_iter().map(|(name, bounds)| {
                let mut named = JsonFields::new();
                named.insert("name".to_owned(), name.into());
                named.extend(bounds.as_object().cloned().unwrap_or_default());
                Value::Object(named)
            });
            let list = list.collect();
            pool.insert("resources".to_owned(), Value::Array(list));
        }
        let class = pool.get("class").and_then(Value::as_str).unwrap_or("pool");
        let stated = pool.get("name").and_then(Value::as_str);
        let numbered = (2..).map(|number| format!("{class}-{number}"));
        let mut free = std::iter::once(class.to_owned()).chain(numbered);
        let name = stated
            .map(str::to_owned)
            .or_else(|| free.find(|name| !names.contains(name)));
        let name = name.unwrap_or_default();
        pool.insert("name".to_owned(), name.as_str().into());
        names.push(name);
    }
}

/// Converts the spec of a FaultPolicy.
///
/// # Errors
/// Returns the field of a duration that cannot be read, and its value.
pub fn fault_policy(spec: &mut JsonFields) -> Result<(), String> {
    word(spec, "dryRun", "mode", ["Enforce", "DryRun"]);
    if let Some(breaker) = fields(spec, "clusterBreaker") {
        seconds(breaker, "spec.clusterBreaker", "within", "windowSeconds")?;
        seconds(breaker, "spec.clusterBreaker", "for", "pauseSeconds")?;
    }
    let Some(Value::Array(rules)) = spec.get_mut("rules") else {
        return Ok(());
    };
    let old = std::mem::take(rules);
    for (index, rule) in old.into_iter().enumerate() {
        match rule {
            Value::Object(rule) => rules.extend(fault_rule(rule, &format!("spec.rules[{index}]"))?),
            other => rules.push(other),
        }
    }
    Ok(())
}

/// Converts a rule. One that looks for conditions and alerts of a node becomes two.
fn fault_rule(mut rule: JsonFields, field: &str) -> Result<Vec<Value>, String> {
    let mut actions = Vec::new();
    for (old, kind) in [
        ("avoidNode", "AvoidNode"),
        ("avoidNodeForJob", "AvoidNodeForJob"),
        ("remediate", "Remediate"),
    ] {
        let Some(Value::Object(mut settings)) = rule.remove(old) else {
            continue;
        };
        let field = format!("{field}.{old}");
        seconds(&mut settings, &field, "within", "windowSeconds")?;
        seconds(&mut settings, &field, "for", "avoidSeconds")?;
        actions.push(json!({"type": kind, old: settings}));
    }
    if !actions.is_empty() {
        rule.insert("actions".to_owned(), Value::Array(actions));
    }
    if let Some(pod) = rule.remove("pod") {
        rule.insert("match".to_owned(), json!({"pod": pod}));
    }
    let Some(Value::Object(mut node)) = rule.remove("node") else {
        return Ok(vec![Value::Object(rule)]);
    };
    let mut alert = JsonFields::new();
    for (old, new) in [("alerts", "names"), ("alertsFor", "resolveAfter")] {
        if let Some(value) = node.remove(old) {
            alert.insert(new.to_owned(), value);
        }
    }
    let resolved = format!("{field}.node");
    seconds(&mut alert, &resolved, "resolveAfter", "resolveAfterSeconds")?;
    let alerts = alert.get("names").and_then(Value::as_array);
    let has_alerts = alerts.is_some_and(|names| !names.is_empty());
    let has_others = ["conditions", "deviceTaints"]
        .iter()
        .any(|of| node.contains_key(*of));
    if let Some(messages) = node.get("messages") {
        alert.insert("messages".to_owned(), messages.clone());
    }
    let mut rules = Vec::new();
    if has_others || !has_alerts {
        let mut rule = rule.clone();
        rule.insert("match".to_owned(), json!({"node": node}));
        rules.push(Value::Object(rule));
    }
    if has_alerts {
        if has_others {
            let name = rule
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            rule.insert("name".to_owned(), format!("{name}-alert").into());
        }
        rule.insert("match".to_owned(), json!({"alert": alert}));
        rules.push(Value::Object(rule));
    }
    Ok(rules)
}

/// Returns the fields of the object in the field `name`.
fn fields<'a>(of: &'a mut JsonFields, name: &str) -> Option<&'a mut JsonFields> {
    of.get_mut(name)?.as_object_mut()
}

/// Moves a value to another field.
fn rename(of: &mut JsonFields, old: &str, new: &str) {
    if let Some(value) = of.remove(old) {
        of.insert(new.to_owned(), value);
    }
}

/// Moves a duration to a field of whole seconds, rounded up; more than it takes counts as the most.
fn seconds(of: &mut JsonFields, field: &str, old: &str, new: &str) -> Result<(), String> {
    let Some(value) = of.remove(old) else {
        return Ok(());
    };
    let stated = value.as_str().map(str::to_owned);
    let stated = stated.unwrap_or_else(|| value.to_string());
    let millis = parse_millis(&stated).map_err(|error| format!("{field}.{old}: {error}"))?;
    let seconds = millis / 1_000 + i64::from(millis % 1_000 > 0);
    let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
    of.insert(new.to_owned(), seconds.into());
    Ok(())
}

/// Turns a boolean into the word for false or true. Other values stay, so that their reader names them.
fn word(of: &mut JsonFields, old: &str, new: &str, [no, yes]: [&str; 2]) {
    if let Some(value) = of.get(old).and_then(Value::as_bool) {
        of.remove(old);
        of.insert(new.to_owned(), (if value { yes } else { no }).into());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::capacity_policy::CapacityPolicy;
    use crate::fault_policy::FaultPolicy;

    fn object(kind: &str, spec: Value) -> Value {
        json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "a"}, "spec": spec})
    }

    /// Converts it, and checks that a second conversion changes nothing.
    fn converted(kind: &str, spec: Value) -> Value {
        let mut new = object(kind, spec);
        convert(&mut new).unwrap();
        assert_eq!(new["apiVersion"], "muster.io/v1alpha2");
        let mut again = new.clone();
        convert(&mut again).unwrap();
        assert_eq!(again, new);
        new
    }

    #[test]
    fn a_capacity_policy_says_the_same() {
        let new = converted(
            "CapacityPolicy",
            json!({
                "pools": [
                    {"class": "h100", "resources": {"nvidia.com/gpu": {"capability": 8, "deserved": "4"}}},
                    {"class": "h100", "clusters": ["m1"], "resources": {"cpu": {"guarantee": "2"}}},
                ],
                "ordering": "Backfill",
                "ageing": {"every": "1h30m", "raise": 5},
                "backfill": {"conservative": true},
                "fairShare": {"usageHalfLife": "24h", "within": "User"},
                "preemption": {
                    "withinQueue": true, "reclaim": false, "minRuntime": "1500ms", "allowNonPreemptable": false,
                    "evictOverdue": true,
                },
                "limits": {"jobs": 5_000_000_000_i64, "runtime": "72h"},
                "placement": {"startDeadline": "5m", "recoveryDeadline": "90s", "prePull": true, "split": "Allowed"},
            }),
        );
        let spec = json!({
            "pools": [
                {"name": "h100", "class": "h100", "resources": [
                    {"name": "nvidia.com/gpu", "capability": 8, "deserved": "4"},
                ]},
                {"name": "h100-2", "class": "h100", "clusters": ["m1"], "resources": [{"name": "cpu", "guarantee": "2"}]},
            ],
            "ordering": "Backfill",
            "ageing": {"intervalSeconds": 5400, "increment": 5},
            "backfill": {"mode": "Conservative"},
            "fairShare": {"usageHalfLifeSeconds": 86400, "within": "User"},
            "preemption": {
                "withinQueue": "LowerPriority", "reclaim": "Never", "minRuntimeSeconds": 2,
                "preemptableLabel": "Ignore", "evictOverdue": "ForDelayedJobs",
            },
            "limits": {"jobs": i32::MAX, "runtimeSeconds": 259_200},
            "placement": {
                "startDeadlineSeconds": 300, "recoveryDeadlineSeconds": 90, "prePull": "Reserved", "split": "Allowed",
            },
        });
        assert_eq!(new["spec"], spec);
        let policy: CapacityPolicy = serde_json::from_value(new).unwrap();
        assert_eq!(policy.to_fact(None).invalid, None);
    }

    #[test]
    fn a_fault_policy_says_the_same() {
        let new = converted(
            "FaultPolicy",
            json!({
                "dryRun": false,
                "clusterBreaker": {"jobs": 5, "within": "10m", "for": "30m"},
                "rules": [
                    {
                        "name": "xid", "class": "Device", "pod": {"messages": ["xid 79"]},
                        "avoidNode": {"jobs": 1, "within": "1h", "for": "2h"}, "avoidNodeForJob": {"nodes": 2, "for": "24h"},
                        "remediate": {"action": "Reboot"},
                    },
                    {"name": "memory", "class": "Device", "node": {"conditions": ["GpuMemWatch"], "messages": ["ecc"]}},
                    {
                        "name": "both", "class": "Device", "remediate": {},
                        "node": {"conditions": ["A"], "alerts": ["B"], "alertsFor": "1h", "messages": ["m"]},
                    },
                ],
            }),
        );
        let spec = json!({
            "mode": "Enforce",
            "clusterBreaker": {"jobs": 5, "windowSeconds": 600, "pauseSeconds": 1800},
            "rules": [
                {
                    "name": "xid", "class": "Device", "match": {"pod": {"messages": ["xid 79"]}},
                    "actions": [
                        {"type": "AvoidNode", "avoidNode": {"jobs": 1, "windowSeconds": 3600, "avoidSeconds": 7200}},
                        {"type": "AvoidNodeForJob", "avoidNodeForJob": {"nodes": 2, "avoidSeconds": 86400}},
                        {"type": "Remediate", "remediate": {"action": "Reboot"}},
                    ],
                },
                {
                    "name": "memory", "class": "Device",
                    "match": {"node": {"conditions": ["GpuMemWatch"], "messages": ["ecc"]}},
                },
                {
                    "name": "both", "class": "Device", "actions": [{"type": "Remediate", "remediate": {}}],
                    "match": {"node": {"conditions": ["A"], "messages": ["m"]}},
                },
                {
                    "name": "both-alert", "class": "Device", "actions": [{"type": "Remediate", "remediate": {}}],
                    "match": {"alert": {"names": ["B"], "resolveAfterSeconds": 3600, "messages": ["m"]}},
                },
            ],
        });
        assert_eq!(new["spec"], spec);
        let policy: FaultPolicy = serde_json::from_value(new).unwrap();
        let (rules, wrong) = policy.to_rules();
        assert_eq!((rules.rules.len(), rules.nodes.len(), wrong), (1, 3, None));
    }

    #[test]
    fn a_duration_that_cannot_be_read_is_named_and_other_kinds_pass() {
        let mut policy = object("CapacityPolicy", json!({"limits": {"runtime": "soon"}}));
        let error = convert(&mut policy).unwrap_err();
        assert!(
            error.starts_with("spec.limits.runtime: \"soon\" is not a duration"),
            "{error}"
        );
        let pool = converted("GpuPool", json!({"cluster": "m1", "class": "cpu"}));
        assert_eq!(pool["spec"]["class"], "cpu");
        assert_eq!(converted("CapacityPolicy", json!({}))["spec"], json!({}));
    }
}
