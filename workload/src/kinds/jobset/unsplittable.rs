//! Fields that keep a JobSet from being split: what one cluster cannot do for the others, what cannot be
//! divided, and names that only one cluster resolves.

use super::parts::set;
use super::{ReplicatedJobSize, first_host, name, replicated_jobs, targets};
use crate::kinds::batch;
use crate::parts::CONTAINERS;
use crate::{leading, outcome};
use serde_json::Value;

/// Returns why it cannot be split.
pub(super) fn unsplittable(template: &Value) -> Option<String> {
    of_the_whole(template)
        .or_else(|| coordinator(template))
        .or_else(|| success_policy(template))
        .or_else(|| {
            let mut jobs = replicated_jobs(template).iter().enumerate();
            jobs.find_map(|(index, job)| indivisible(index, job))
        })
        .or_else(|| names_a_pod(template))
}

/// Returns a field that one cluster cannot handle for the others.
fn of_the_whole(template: &Value) -> Option<String> {
    let text = |path| template.pointer(path).and_then(Value::as_str);
    if text("/spec/startupPolicy/startupPolicyOrder") == Some("InOrder") {
        return Some(
            "spec.startupPolicy InOrder waits for pods that may be in another cluster".to_owned(),
        );
    }
    if set(template, "/spec/volumeClaimPolicies").is_some() {
        return Some(
            "spec.volumeClaimPolicies makes all pods share claims of one cluster".to_owned(),
        );
    }
    let restarts = template.pointer("/spec/failurePolicy/maxRestarts");
    if restarts.and_then(Value::as_u64).unwrap_or(0) > 0 {
        return Some(
            "spec.failurePolicy.maxRestarts would restart the pods of one cluster and not the others"
                .to_owned(),
        );
    }
    if text("/spec/failurePolicy/restartStrategy") == Some("InPlaceRestart") {
        return Some(
            "spec.failurePolicy.restartStrategy InPlaceRestart would restart the pods of one cluster and not the others"
                .to_owned(),
        );
    }
    let rules = set(template, "/spec/failurePolicy/rules").and_then(Value::as_array);
    let mut rules = rules.into_iter().flatten().enumerate();
    rules
        .find(|(_, rule)| rule["action"] == "RestartJobSetAndIgnoreMaxRestarts")
        .map(|(index, _)| {
            format!("spec.failurePolicy.rules[{index}] would restart the pods of one cluster and not the others")
        })
}

/// The coordinator has to be the pod whose address is known.
fn coordinator(template: &Value) -> Option<String> {
    let coordinator = set(template, "/spec/coordinator")?;
    let first = replicated_jobs(template).first()?;
    let is_zero = |key| coordinator.get(key).and_then(Value::as_u64).unwrap_or(0) == 0;
    let is_first = coordinator.get("replicatedJob").and_then(Value::as_str) == Some(name(first));
    if !(is_first && is_zero("jobIndex") && is_zero("podIndex")) {
        return Some(format!(
            "spec.coordinator is not the pod of rank 0, the first of replicated job {}, the only one that other clusters know",
            name(first)
        ));
    }
    let unnamed = || {
        "spec.coordinator has no hostname: spec.network.enableDNSHostnames is false, or its Job not Indexed"
            .to_owned()
    };
    first_host(template).is_none().then(unnamed)
}

/// A success policy has to include all Jobs, or one that is in one cluster.
fn success_policy(template: &Value) -> Option<String> {
    let targets = targets(template);
    let operator = template.pointer("/spec/successPolicy/operator");
    let is_any = operator.and_then(Value::as_str) == Some("Any");
    let mut names = replicated_jobs(template).iter().map(name);
    let of_all = targets.is_empty() || names.all(|name| targets.contains(&name));
    let fine = leading::role(template).is_some() || (of_all && !is_any);
    (!fine).then(|| {
        "spec.successPolicy ends the set by some of its Jobs, which may be in several clusters; it may be about all of them, or name a single replicated job of one pod"
            .to_owned()
    })
}

/// Returns why the pods of a replicated job cannot be divided.
fn indivisible(index: usize, job: &Value) -> Option<String> {
    let path = format!("spec.replicatedJobs[{index}]");
    if set(job, "/dependsOn").is_some() {
        return Some(format!(
            "{path}.dependsOn waits for pods that may be in another cluster"
        ));
    }
    let shape = ReplicatedJobSize::of(job);
    let pods = shape.at_once.max(shape.completions.unwrap_or(1));
    if shape.jobs > 1 && pods > 1 {
        return Some(format!(
            "{path} has {} Jobs of {pods} pods, and pods are divided one by one; it may have one Job of many pods, or many Jobs of one pod",
            shape.jobs
        ));
    }
    if shape.jobs > 1 || shape.is_one_pod() {
        return None;
    }
    let why = batch::unsplittable(job.get("template")?)?;
    Some(format!("{path}.template.{why}"))
}

/// Returns a pod that a container names by its hostname. The container would look for it in its own
/// cluster, where another pod has that name, or none.
fn names_a_pod(template: &Value) -> Option<String> {
    let set_name = template.pointer("/metadata/name")?.as_str()?;
    let jobs = replicated_jobs(template);
    let names: Vec<&str> = jobs.iter().map(name).collect();
    let named = |text: &str| {
        let found = names
            .iter()
            .any(|name| has_index_after(text, &format!("{set_name}-{name}-")));
        found.then(|| text.to_owned())
    };
    jobs.iter().enumerate().find_map(|(index, job)| {
        let pods = job.pointer("/template/spec/template/spec")?;
        let lists = CONTAINERS.iter().filter_map(|list| pods.get(list)?.as_array());
        let (container, text) = lists
            .flatten()
            .find_map(|container| Some((container, words(container).find_map(named)?)))?;
        Some(format!(
            "spec.replicatedJobs[{index}] container {} names a pod in {text:?}, which its own cluster alone resolves; MUSTER_LEADER_ADDRESS is where the first one is",
            outcome::text(container, "name")
        ))
    })
}

/// Returns the strings that the template passes to a container.
fn words(container: &Value) -> impl Iterator<Item = &str> {
    let list = |key| {
        container
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let variables = list("env").filter_map(|variable| variable.get("value"));
    let words = list("command").chain(list("args")).chain(variables);
    words.filter_map(Value::as_str)
}

/// Returns true if `text` has `name` followed by an index, or by a variable that expands to one.
fn has_index_after(text: &str, name: &str) -> bool {
    let mut found = text.match_indices(name);
    found.any(|(at, _)| {
        let next = text[at + name.len()..].chars().next();
        next.is_some_and(|next| next.is_ascii_digit() || next == '$')
    })
}
