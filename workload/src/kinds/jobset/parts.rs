//! Parts of a JobSet: the replicated jobs with what each cluster gets of them.
//!
//! A replicated job of several Jobs is divided by them where each is one pod, since the engine
//! places pods and knows no Jobs; of a single Job the pods are divided, as those of a batch/v1 Job
//! are. One that has none in a cluster is left out there: with `replicas: 0` JobSet's webhook
//! would drop the number, and the default is 1 (v0.11). So nothing may name it there either: not
//! the success policy, not a rule of the failure policy, not the coordinator.

use super::{ReplicatedJobSize, is_indexed, name, replicated_jobs, targets};
use crate::apportion::apportion;
use crate::leading;
use crate::parts::metadata::{self, MetadataField};
use crate::parts::{Fields, Gang, tell};
use serde_json::{Map, Value, json};

/// The label in which JobSet writes the index of a Job within its replicated job.
const JOB_INDEX: &str = "metadata.labels['jobset.sigs.k8s.io/job-index']";
/// The annotation in which Kubernetes writes the index of a pod within its Job.
const POD_INDEX: &str = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
/// The label and annotation in which JobSet tells a pod where its coordinator is.
const COORDINATOR: &str = "jobset.sigs.k8s.io/coordinator";
/// Longest value of a label.
const LABEL_CHARS: usize = 63;

/// What the cluster at `index` gets.
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
        let tell_pods = |pods: &mut Map<String, Value>| {
            tell(pods, &environment);
            gang.label(index, pods);
            if let Some(address) = elsewhere {
                tell_coordinator(pods, address);
            }
        };
        let part = (each[index] > 0).then(|| of_cluster(job, each[index], ranks[index], tell_pods));
        jobs.extend(part.flatten());
    }
    let mut fields = vec![("/spec/replicatedJobs".to_owned(), Value::Array(jobs))];
    let leads = leading::role(template).is_some_and(|role| gang.per_cluster(&role)[index] > 0);
    if !targets(template).is_empty() && !leads {
        let all = json!({"operator": "All"});
        fields.push(("/spec/successPolicy".to_owned(), all));
    }
    // Without restarts each of them fails the set, which one that has failed does anyway.
    if set(template, "/spec/failurePolicy/rules").is_some() {
        fields.push(("/spec/failurePolicy/rules".to_owned(), Value::Null));
    }
    if elsewhere.is_some() {
        fields.push(("/spec/coordinator".to_owned(), Value::Null));
    }
    fields
}

/// A replicated job with the `count` pods that a cluster gets, which have `ranks` ranks in all;
/// `tell_pods` what only the pods of this cluster receive.
fn of_cluster(
    job: &Value,
    count: u64,
    ranks: u64,
    tell_pods: impl FnOnce(&mut Map<String, Value>),
) -> Option<Value> {
    let shape = ReplicatedJobSize::of(job);
    let mut job = job.clone();
    if shape.jobs > 1 {
        job.as_object_mut()?
            .insert("replicas".to_owned(), count.into());
    }
    let spec = job.pointer_mut("/template/spec")?.as_object_mut()?;
    // One pod goes as it is: Kubernetes' defaults depend on what is left out.
    if shape.jobs == 1 && shape.at_once > 1 {
        spec.insert("parallelism".to_owned(), count.into());
        if shape.completions.is_some() {
            spec.insert("completions".to_owned(), ranks.into());
        }
    }
    tell_pods(spec.get_mut("template")?.as_object_mut()?);
    Some(job)
}

/// Ranks of a replicated job in each cluster, of which each gets so many pods: those that run one
/// after another have one each.
fn ranks(job: &Value, each: &[u64]) -> Vec<u64> {
    let shape = ReplicatedJobSize::of(job);
    match shape.completions {
        Some(completions) if shape.jobs == 1 => apportion(completions, each),
        _ => each.to_vec(),
    }
}

/// Where a pod finds its index within its replicated job, as far as it has one.
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

/// Where the coordinator is reached, for the pods of a cluster that has not got it.
fn coordinator_elsewhere<'a>(
    template: &Value,
    gang: &'a Gang<'_>,
    index: usize,
) -> Option<&'a str> {
    set(template, "/spec/coordinator")?;
    // It is the pod of rank 0; in its own cluster JobSet tells of it.
    let address = gang.leader(index)?;
    (gang.host.as_deref() != Some(address)).then_some(address)
}

/// Tells pods as JobSet does where its coordinator is; by the label only what may be one.
fn tell_coordinator(pods: &mut Map<String, Value>, address: &str) {
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

/// What is at `path`, unless that is nothing or empty.
pub(super) fn set<'a>(template: &'a Value, path: &str) -> Option<&'a Value> {
    template.pointer(path).filter(|value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    })
}

#[cfg(test)]
mod tests;
