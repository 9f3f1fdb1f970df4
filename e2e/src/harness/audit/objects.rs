//! Reads single bindings and Works.

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde_json::Value;

use super::footprint::{self, Classes, Footprint};
use super::held::HeldAmounts;
use super::{AuditSubject, AuditedJob, PERMANENT_ID, RECORD, quantity};

/// Returns what a placement grants a job. The division of an elastic job whose pods differ comes
/// from its record; of any other job in parts only the sum is known.
pub(super) fn promised(job: &AuditedJob, binding: &Value) -> anyhow::Result<HeldAmounts> {
    let targets = binding["spec"]["clusters"].as_array();
    let targets: Vec<(String, Option<u64>)> = targets
        .into_iter()
        .flatten()
        .filter_map(|target| {
            let name = target["name"].as_str()?.to_owned();
            Some((name, target["replicas"].as_u64()))
        })
        .collect();
    let parts = targets
        .iter()
        .map(|(name, replicas)| Some((name.clone(), job.takes.part((*replicas)?)?)));
    let parts: Option<Vec<(String, Classes)>> = parts.collect();
    let replicas: u64 = targets.iter().filter_map(|(_, replicas)| *replicas).sum();
    match (parts, &*targets) {
        (Some(parts), _) if job.elastic || replicas == job.takes.count() => {
            Ok(HeldAmounts::in_each(parts))
        }
        (None, _) if job.elastic => recorded(binding),
        (_, [(name, _)]) => Ok(HeldAmounts::in_each([(name.clone(), job.takes.whole())])),
        _ => Ok(HeldAmounts::somewhere(job.takes.whole())),
    }
}

/// Returns the amounts in the record on a binding.
fn recorded(binding: &Value) -> anyhow::Result<HeldAmounts> {
    let record = record(binding);
    let mut all = Vec::new();
    for share in record["clusters"].as_array().into_iter().flatten() {
        let classes = share["charge"].as_object().into_iter().flatten();
        let classes = classes.map(|(class, amounts)| {
            Ok((
                class.clone(),
                footprint::amounts(amounts).context("record")?,
            ))
        });
        let name = share["name"].as_str().unwrap_or_default().to_owned();
        all.push((name, classes.collect::<anyhow::Result<Classes>>()?));
    }
    Ok(HeldAmounts::in_each(all))
}

/// Returns the requests in the manifests of a Work.
pub(super) fn runs(
    job: &AuditedJob,
    subject: &AuditSubject,
    work: &Value,
) -> anyhow::Result<Classes> {
    let manifests = work["spec"]["workload"]["manifests"].as_array();
    let mut runs = Classes::new();
    for manifest in manifests.into_iter().flatten() {
        let mut takes = Footprint::of(manifest)?;
        takes.resolve(&subject.claims)?;
        for (class, amounts) in takes.whole() {
            quantity::add(runs.entry(class).or_default(), &amounts, 1);
        }
    }
    // A Work without visible manifests gives no information.
    Ok(match manifests.is_none_or(Vec::is_empty) {
        true => job.takes.part(0).unwrap_or_default(),
        false => runs,
    })
}

pub(super) fn record(binding: &Value) -> Value {
    let record = binding["metadata"]["annotations"][RECORD].as_str();
    let record = record.and_then(|text| serde_json::from_str(text).ok());
    record.unwrap_or_default()
}

pub(super) fn is_placed(spec: &Value) -> bool {
    spec["suspension"]["scheduling"] != true && cluster_names(spec).next().is_some()
}

pub(super) fn permanent_id(object: &Value) -> Option<String> {
    let id = object["metadata"]["labels"][PERMANENT_ID].as_str()?;
    Some(id.to_owned())
}

/// `namespace/name`.
pub(super) fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

pub(super) fn cluster_names(spec: &Value) -> impl Iterator<Item = String> {
    let clusters = spec["clusters"].as_array().into_iter().flatten();
    clusters.filter_map(|cluster| cluster["name"].as_str().map(str::to_owned))
}

/// Returns true if a binding's status shows an end in every cluster of its placement.
pub(super) fn all_ended(binding: &Value, clusters: &BTreeSet<String>) -> bool {
    let items = binding["status"]["aggregatedStatus"].as_array();
    let ended: BTreeSet<&str> = items
        .into_iter()
        .flatten()
        .filter(|item| ended(&item["status"]))
        .filter_map(|item| item["clusterName"].as_str())
        .collect();
    clusters
        .iter()
        .all(|cluster| ended.contains(cluster.as_str()))
}

/// Returns true if the status of a template, as its member reports it, is final.
pub(super) fn ended(status: &Value) -> bool {
    let volcano = status["state"]["phase"].as_str();
    let pod = status["phase"].as_str();
    let ray = status["jobDeploymentStatus"].as_str();
    let conditions = status["conditions"].as_array();
    let condition = |condition: &Value| {
        condition["status"] == "True"
            && matches!(
                condition["type"].as_str(),
                Some("Complete" | "Completed" | "Succeeded" | "Failed")
            )
    };
    matches!(
        volcano,
        Some("Completed" | "Failed" | "Terminated" | "Aborted")
    ) || matches!(pod, Some("Succeeded" | "Failed"))
        || matches!(ray, Some("Complete" | "Failed"))
        || conditions.is_some_and(|conditions| conditions.iter().any(condition))
}
