//! Parts of a batch/v1 Job: its parallelism and completions are divided.

use super::MAIN;
use crate::apportion::apportion;
use crate::parts::{CONTAINERS, Fields, Gang, add_environment_to};
use crate::services;
use serde_json::{Value, json};

/// Returns the parallelism and completions of a cluster. The indexes of an indexed Job start at 0 in each
/// cluster.
pub(super) fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    let at_once = gang.per_cluster(MAIN);
    let mut fields = vec![("/spec/parallelism".to_owned(), at_once[index].into())];
    let completions = template
        .pointer("/spec/completions")
        .and_then(Value::as_u64);
    let ranks = completions.map_or_else(
        || at_once.clone(),
        |completions| apportion(completions, &at_once),
    );
    if completions.is_some() {
        fields.push(("/spec/completions".to_owned(), ranks[index].into()));
    }
    let environment = gang.environment(index, gang.rank_offset(MAIN, &ranks, index));
    for list in CONTAINERS {
        let path = format!("/spec/template/spec/{list}");
        if let Some(containers) = template.pointer(&path) {
            let mut containers = containers.clone();
            add_environment_to(&mut containers, &environment);
            fields.push((path, containers));
        }
    }
    fields.extend(
        gang.part_label(index)
            .map(|part| own_label(template, &part)),
    );
    fields
}

/// Returns the label of a Job's pods with their part, in the smallest possible field: Karmada removes what
/// the API server has added next to it.
fn own_label(template: &Value, part: &str) -> (String, Value) {
    let (metadata, labels) = ("/spec/template/metadata", "/spec/template/metadata/labels");
    let is_object = |path| template.pointer(path).is_some_and(Value::is_object);
    let label = json!({ (services::PART_LABEL): part });
    match (is_object(metadata), is_object(labels)) {
        (_, true) => {
            let key = services::PART_LABEL.replace('/', "~1");
            (format!("{labels}/{key}"), json!(part))
        }
        (true, false) => (labels.to_owned(), label),
        (false, false) => (metadata.to_owned(), json!({ "labels": label })),
    }
}
