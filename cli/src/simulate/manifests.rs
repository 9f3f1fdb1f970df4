//! Reads the manifests of changes, and edits of a queue.

use crate::args::QueueField;
use anyhow::{Context, Result, anyhow, bail, ensure};
use controller::live::{LiveChange, LiveObjects};
use crds::capacity_policy::CapacityPolicy;
use crds::queue::Queue;
use crds::v1alpha1;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// A Queue or a CapacityPolicy as a manifest states it.
#[derive(Debug)]
pub(super) enum QueueEdit {
    Queue(Box<Queue>),
    Policy(Box<CapacityPolicy>),
}

/// Returns the workloads in files, and a note for each other object there, which is left out. Workloads without a
/// namespace are in `namespace`.
///
/// # Errors
/// Returns an error if a file cannot be read, or the files have no workload.
pub(super) fn jobs(files: &[PathBuf], namespace: &str) -> Result<(Vec<LiveChange>, Vec<String>)> {
    match files {
        [] => Ok((Vec::new(), Vec::new())),
        files => workloads(documents(files)?, namespace),
    }
}

fn workloads(
    documents: Vec<(PathBuf, Value)>,
    namespace: &str,
) -> Result<(Vec<LiveChange>, Vec<String>)> {
    let (mut jobs, mut notes) = (Vec::new(), Vec::new());
    for (file, value) in documents {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        // One without either is an error that names what it lacks.
        let is_whole = !version.is_empty() && !kind.is_empty();
        if is_whole && !workload::may_start_pods(&version, &kind) {
            let name = value["metadata"]["name"].as_str().unwrap_or_default();
            notes.push(format!(
                "{kind} {name} of {} is left out: no workload",
                file.display()
            ));
            continue;
        }
        let mut object: DynamicObject = read(value, &file)?;
        let of = object.metadata.namespace.get_or_insert_default();
        if of.is_empty() {
            namespace.clone_into(of);
        }
        jobs.push(LiveChange::Job(Box::new(object)));
    }
    ensure!(
        !jobs.is_empty(),
        "--job: the files have no workload that is queued{}",
        notes
            .iter()
            .map(|note| format!("; {note}"))
            .collect::<String>()
    );
    Ok((jobs, notes))
}

/// Returns the Queues and CapacityPolicies in files.
pub(super) fn queues(files: &[PathBuf]) -> Result<Vec<QueueEdit>> {
    let edits = documents(files)?.into_iter().map(|(file, mut value)| {
        if value["apiVersion"] == v1alpha1::API_VERSION {
            let converted = v1alpha1::convert(&mut value);
            converted.map_err(|problem| anyhow!("{}: {problem}", file.display()))?;
        }
        let kind = value["kind"].as_str().unwrap_or_default().to_owned();
        ensure!(
            value["metadata"]["name"].is_string(),
            "{}: a {kind} without metadata.name",
            file.display()
        );
        Ok(match &*kind {
            "Queue" => QueueEdit::Queue(read(value, &file)?),
            "CapacityPolicy" => QueueEdit::Policy(read(value, &file)?),
            _ => bail!(
                "{}: kind {kind:?}; Queues and CapacityPolicies are read here, and workloads with --job",
                file.display()
            ),
        })
    });
    edits.collect()
}

impl QueueEdit {
    /// Returns the change. A Queue is open or closed as it is now.
    pub(super) fn into_change(self, observed: &LiveObjects) -> Result<LiveChange> {
        Ok(match self {
            Self::Policy(policy) => LiveChange::CapacityPolicy(policy),
            Self::Queue(mut queue) => {
                let name = queue.metadata.name.clone().unwrap_or_default();
                if let Some(known) = observed.queue(&name) {
                    queue.metadata = known.metadata.clone();
                    queue.status = known.status.clone();
                }
                LiveChange::Queue(valid(queue)?)
            }
        })
    }
}

/// Returns the change of a queue by `--set`.
pub(super) fn set(name: &str, fields: &[QueueField], observed: &LiveObjects) -> Result<LiveChange> {
    let queue = observed.queue(name);
    let queue = queue.ok_or_else(|| anyhow!("queue {name} does not exist"))?;
    let mut value = serde_json::to_value(queue)?;
    for field in fields {
        json_patch::merge(&mut value, &patch(field)?);
    }
    let edited: Box<Queue> = serde_json::from_value(value)?;
    let known = observed.conflicts(queue);
    let conflicts = observed.conflicts(&edited).into_iter();
    let new: Vec<String> = conflicts.filter(|text| !known.contains(text)).collect();
    ensure!(
        new.is_empty(),
        "{}; change it there, and give the CapacityPolicy with --filename",
        new.join("; ")
    );
    Ok(LiveChange::Queue(valid(edited)?))
}

/// Returns the merge patch of one field of a Queue.
pub(crate) fn patch(field: &QueueField) -> Result<Value> {
    let text = field.value.as_str();
    let name = field.path.join(".");
    let value = match field.path[0].as_str() {
        _ if text.is_empty() => Value::Null,
        "weight" | "priority" => {
            let number: i64 = text
                .parse()
                .with_context(|| format!("{name}={text}: a whole number is needed"))?;
            json!(number)
        }
        "reclaimable" => match text.parse::<bool>() {
            Ok(value) => json!(value),
            Err(_) => bail!("{name}={text}: true or false is needed"),
        },
        _ => json!(text),
    };
    let nested = field.path.iter().rev();
    let spec = nested.fold(value, |value, name| json!({(name): value}));
    Ok(json!({"spec": spec}))
}

/// Returns the queue, if its fields can be read.
fn valid(queue: Box<Queue>) -> Result<Box<Queue>> {
    match queue.to_fact().invalid {
        None => Ok(queue),
        Some(problem) => bail!("{problem}"),
    }
}

/// Returns the objects in YAML or JSON files; a List is its items.
fn documents(files: &[PathBuf]) -> Result<Vec<(PathBuf, Value)>> {
    let mut objects = Vec::new();
    for file in files {
        let name = || file.display().to_string();
        let text = text_of(file).with_context(name)?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).with_context(name)?;
        for document in documents {
            match document["items"].as_array() {
                Some(items) => objects.extend(items.iter().cloned()),
                None if document.is_null() => {}
                None => objects.push(document),
            }
        }
        ensure!(
            !objects.is_empty(),
            "{}: no object is in it",
            file.display()
        );
    }
    let first = files.first().cloned().unwrap_or_default();
    Ok(objects
        .into_iter()
        .map(|object| (first.clone(), object))
        .collect())
}

fn text_of(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    Ok(std::fs::read_to_string(file)?)
}

fn read<T: DeserializeOwned>(value: Value, file: &Path) -> Result<T> {
    serde_json::from_value(value).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn patched(text: &str) -> String {
        let field: Result<QueueField, String> = text.parse();
        match field.map(|field| patch(&field)) {
            Ok(Ok(patch)) => patch["spec"].to_string(),
            Ok(Err(error)) => format!("{error:#}"),
            Err(error) => error,
        }
    }

    #[test]
    fn what_is_no_workload_is_left_out_with_a_note() {
        let told = |objects: &[Value]| {
            let file = PathBuf::from("job.yaml");
            let objects = objects.iter().map(|object| (file.clone(), object.clone()));
            let read = workloads(objects.collect(), "team");
            let named = read.map(|(jobs, notes)| format!("{} jobs, {notes:?}", jobs.len()));
            named.unwrap_or_else(|error| format!("{error:#}"))
        };
        let object = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "render"}});
        let (map, job) = (object("v1", "ConfigMap"), object("batch/v1", "Job"));
        let all = [told(&[map.clone(), job]), told(&[map]), told(&[])].join("\n");
        insta::assert_snapshot!(all, @r#"
        1 jobs, ["ConfigMap render of job.yaml is left out: no workload"]
        --job: the files have no workload that is queued; ConfigMap render of job.yaml is left out: no workload
        --job: the files have no workload that is queued
        "#);
    }

    #[test]
    fn fields_are_set_by_their_names() {
        let fields = [
            "capability.nvidia.com/gpu=64",
            "guarantee.cpu=4",
            "deserved.nvidia.com/gpu=",
            "weight=3",
            "parent=research",
            "reclaimable=false",
            "weight=many",
            "reclaimable=maybe",
            "capability=64",
            "stopPolicy=Hold",
            "capability.nvidia.com/gpu",
        ];
        let patches = fields.map(patched).join("\n");
        insta::assert_snapshot!(patches, @r#"
        {"capability":{"nvidia.com/gpu":"64"}}
        {"guarantee":{"resource":{"cpu":"4"}}}
        {"deserved":{"nvidia.com/gpu":null}}
        {"weight":3}
        {"parent":"research"}
        {"reclaimable":false}
        weight=many: a whole number is needed: invalid digit found in string
        reclaimable=maybe: true or false is needed
        FIELD=VALUE is needed, and FIELD is weight, priority, parent, reclaimable, dequeueStrategy or capability.RESOURCE, deserved.RESOURCE, guarantee.RESOURCE
        FIELD=VALUE is needed, and FIELD is weight, priority, parent, reclaimable, dequeueStrategy or capability.RESOURCE, deserved.RESOURCE, guarantee.RESOURCE
        FIELD=VALUE is needed, and FIELD is weight, priority, parent, reclaimable, dequeueStrategy or capability.RESOURCE, deserved.RESOURCE, guarantee.RESOURCE
        "#);
    }
}
