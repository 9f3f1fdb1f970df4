//! Parts of a JobSet: the replicated jobs with the share of each cluster.
//!
//! A replicated job of several Jobs is divided by Jobs if each is one pod, because the engine places pods
//! and does not know Jobs. Of a single Job the pods are divided, as for a batch/v1 Job. A replicated job
//! without pods in a cluster is left out there: with `replicas: 0` JobSet's webhook would drop the number,
//! and the default is 1 (v0.11). So nothing may name it there either: not the success policy, no rule of
//! the failure policy, not the coordinator.

use super::{ReplicatedJobSize, is_indexed, name, replicated_jobs, targets};
use crate::apportion::apportion;
use crate::leading;
use crate::parts::metadata::{self, MetadataField};
use crate::parts::{Fields, Gang, add_environment};
use serde_json::{Map, Value, json};

/// The label in which JobSet writes the index of a Job within its replicated job.
const JOB_INDEX: &str = "metadata.labels['jobset.sigs.k8s.io/job-index']";
/// The annotation in which Kubernetes writes the index of a pod within its Job.
const POD_INDEX: &str = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
/// The label and annotation in which JobSet writes the address of the coordinator.
const COORDINATOR: &str = "jobset.sigs.k8s.io/coordinator";
/// Longest value of a label.
const LABEL_CHARS: usize = 63;

/// Returns the fields of the cluster at `index`.
pub(super) fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    let elsewhere = coordinator_elsewhere(template, gang, index);
    let (mut jobs, mut ranks_before) = (Vec::new(), 0);
    for job in replicated_jobs(template) {
        let each = gang.per_cluster(name(job));
        let ranks = ranks(job, &each);
        let mut environment =
            gang.environment(index, ranks_before + ranks[..index].iter().sum::<u64>());
        ranks_before += ranks.iter().sum::<u64>();
        environment.extend(own_index(job).map(|own| ("MUSTER_REPLICA_INDEX", own)));
        let change_pods = |pods: &mut Map<String, Value>| {
            add_environment(pods, &environment);
            gang.label(index, pods);
            if let Some(address) = elsewhere {
                set_coordinator(pods, address);
            }
        };
        let part =
            (each[index] > 0).then(|| of_cluster(job, each[index], ranks[index], change_pods));
        jobs.extend(part.flatten());
    }
    let mut fields = vec![("/spec/replicatedJobs".to_owned(), Value::Array(jobs))];
    let leads = leading::role(template).is_some_and(|role| gang.per_cluster(&role)[index] > 0);
    if !targets(template).is_empty() && !leads {
        let all = json!({"operator": "All"});
        fields.push(("/spec/successPolicy".to_owned(), all));
    }
    // Without restarts each rule fails the set, which a failed Job does in any case.
    if set(template, "/spec/failurePolicy/rules").is_some() {
        fields.push(("/spec/failurePolicy/rules".to_owned(), Value::Null));
    }
    if elsewhere.is_some() {
        fields.push(("/spec/coordinator".to_owned(), Value::Null));
    }
    fields
}

/// Returns a replicated job with the `count` pods of a cluster, which have `ranks` ranks in all;
/// `change_pods` sets what only the pods of this cluster receive.
fn of_cluster(
    job: &Value,
    count: u64,
    ranks: u64,
    change_pods: impl FnOnce(&mut Map<String, Value>),
) -> Option<Value> {
    let shape = ReplicatedJobSize::of(job);
    let mut job = job.clone();
    if shape.jobs > 1 {
        job.as_object_mut()?
            .insert("replicas".to_owned(), count.into());
    }
    let spec = job.pointer_mut("/template/spec")?.as_object_mut()?;
    // A single pod is left unchanged: Kubernetes' defaults depend on which fields are set.
    if shape.jobs == 1 && shape.at_once > 1 {
        spec.insert("parallelism".to_owned(), count.into());
        if shape.completions.is_some() {
            spec.insert("completions".to_owned(), ranks.into());
        }
    }
    change_pods(spec.get_mut("template")?.as_object_mut()?);
    Some(job)
}

/// Returns the ranks of a replicated job in each cluster; `each` has its pods there. Pods that run one
/// after the other have a rank each.
fn ranks(job: &Value, each: &[u64]) -> Vec<u64> {
    let shape = ReplicatedJobSize::of(job);
    match shape.completions {
        Some(completions) if shape.jobs == 1 => apportion(completions, each),
        _ => each.to_vec(),
    }
}

/// Returns where a pod finds its index within its replicated job, if it has one.
fn own_index(job: &Value) -> Option<Value> {
    let shape = ReplicatedJobSize::of(job);
    let field = match shape.jobs {
        1 if is_indexed(job) => POD_INDEX,
        1 if shape.at_once == 1 && shape.completions.is_none_or(|completions| completions == 1) => {
            return Some(json!("0"));
        }
        1 => return None,
        _ => JOB_INDEX,
    };
    Some(json!({"fieldRef": {"fieldPath": field}}))
}

/// Returns the address of the coordinator for the pods of a cluster without it.
fn coordinator_elsewhere<'a>(
    template: &Value,
    gang: &'a Gang<'_>,
    index: usize,
) -> Option<&'a str> {
    set(template, "/spec/coordinator")?;
    // The coordinator is the pod of rank 0; in its own cluster JobSet sets its address.
    let address = gang.leader(index)?;
    (gang.host.as_deref() != Some(address)).then_some(address)
}

/// Sets the address of the coordinator as JobSet does; in the label only if it is a valid value.
fn set_coordinator(pods: &mut Map<String, Value>, address: &str) {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_label = address.len() <= LABEL_CHARS
        && !address.contains(':')
        && ends(address.chars().next())
        && ends(address.chars().last());
    metadata::write(pods, MetadataField::Annotations, COORDINATOR, address);
    if is_label {
        metadata::write(pods, MetadataField::Labels, COORDINATOR, address);
    }
}

/// Returns the value at `path`, unless it is absent or empty.
pub(super) fn set<'a>(template: &'a Value, path: &str) -> Option<&'a Value> {
    template.pointer(path).filter(|value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    })
}

#[cfg(test)]
mod tests;
