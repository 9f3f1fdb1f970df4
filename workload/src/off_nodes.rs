//! Keeps the pods of a job off some nodes: their node affinity, in the template as its members get it.
//!
//! A pod keeps off a node by the required node affinity on the field `metadata.name`, which only it and the
//! schedulers read: nothing else of the job changes, and other jobs may use the node. Kubernetes takes one name for
//! each requirement, and every alternative of an affinity needs it.

use crate::parts::Fields;
use crate::pod_specs;
use serde_json::{Map, Value, json};

/// Where the affinity of a pod has its alternatives.
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Returns `template` with pods that keep off `nodes`. A pod whose affinity cannot be read stays as it is: its
/// member refuses it. Kinds that are not known stay as they are.
#[must_use]
pub fn off_nodes(template: &Value, nodes: &[&str]) -> Value {
    let mut off = template.clone();
    if !nodes.is_empty() {
        for (_, spec) in pod_specs::of(&mut off) {
            let mut kept = spec.clone();
            if keep_off(&mut kept, nodes).is_some() {
                *spec = kept;
            }
        }
    }
    off
}

/// Returns the affinities of the pods in `off` that are not those of `template`, each with its path (a JSON
/// pointer). `off` is what [`off_nodes`] made of `template`.
#[must_use]
pub fn changed_affinities(template: &Value, off: &Value) -> Fields {
    let mut fields = Fields::new();
    find(template, off, String::new(), &mut fields);
    fields
}

/// Adds the affinities of `off` to the `fields` of a part, except those in a subtree that the part replaces, which
/// was rendered from `off`.
#[must_use]
pub fn with_affinities(mut fields: Fields, affinities: Fields) -> Fields {
    let is_in = |path: &str, subtree: &str| {
        let rest = path.strip_prefix(subtree);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    for (path, affinity) in affinities {
        if !fields.iter().any(|(subtree, _)| is_in(&path, subtree)) {
            fields.push((path, affinity));
        }
    }
    fields
}

/// Adds the requirement to every alternative of a pod's affinity. `None` if it has no valid place.
fn keep_off(spec: &mut Value, nodes: &[&str]) -> Option<()> {
    let affinity = object(spec.as_object_mut()?, "affinity")?;
    let affinity = object(affinity, "nodeAffinity")?;
    let required = object(affinity, REQUIRED)?;
    let terms = required.entry("nodeSelectorTerms").or_insert(json!([]));
    if terms.is_null() {
        *terms = json!([]);
    }
    let terms = terms.as_array_mut()?;
    if terms.is_empty() {
        terms.push(json!({}));
    } else {
        // In Kubernetes an empty term matches no node, and with a requirement it would match most.
        terms.retain(|term| !is_empty(term));
        if terms.is_empty() {
            return None;
        }
    }
    for term in terms.iter_mut().filter_map(Value::as_object_mut) {
        let fields = term.entry("matchFields").or_insert(json!([]));
        if fields.is_null() {
            *fields = json!([]);
        }
        let own = nodes
            .iter()
            .map(|node| json!({"key": "metadata.name", "operator": "NotIn", "values": [node]}));
        fields.as_array_mut()?.extend(own);
    }
    Some(())
}

fn is_empty(term: &Value) -> bool {
    let is_set = |key: &str| {
        let list = term.get(key).and_then(Value::as_array);
        list.is_some_and(|list| !list.is_empty())
    };
    !is_set("matchExpressions") && !is_set("matchFields")
}

/// Returns the object in a field, which is created if it is absent.
fn object<'a>(
    parent: &'a mut Map<String, Value>,
    field: &str,
) -> Option<&'a mut Map<String, Value>> {
    crate::parts::metadata::object(parent, field)
}

fn find(before: &Value, after: &Value, path: String, found: &mut Fields) {
    if before == after {
        return;
    }
    match after {
        Value::Object(fields) => {
            for (name, value) in fields {
                let own = before.get(name).unwrap_or(&Value::Null);
                let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
                match name.as_str() {
                    "affinity" if own != value => found.push((path, value.clone())),
                    _ => find(own, value, path, found),
                }
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                let own = before.get(index).unwrap_or(&Value::Null);
                find(own, value, format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::spec::read_spec;
    use crate::testing::yaml;

    fn job(affinity: Option<Value>) -> Value {
        let mut job = yaml(
            "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {spec: {containers: [{name: c}]}}}}",
        );
        if let Some(affinity) = affinity {
            job["spec"]["template"]["spec"]["affinity"] = affinity;
        }
        job
    }

    fn required(terms: Value) -> Option<Value> {
        Some(json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}))
    }

    #[test]
    fn every_alternative_of_an_affinity_keeps_off_the_nodes() {
        let off =
            |node: &str| json!({"key": "metadata.name", "operator": "NotIn", "values": [node]});
        let zone = json!([{"key": "zone", "operator": "Exists"}]);
        let preferred = json!({"podAffinity": {}, "nodeAffinity": {"preferred": []}});
        let both = json!([off("n1"), off("n2")]);
        for (before, terms) in [
            (None, json!([{"matchFields": both}])),
            (Some(preferred), json!([{"matchFields": both}])),
            (
                required(json!([{"matchExpressions": zone}, {}, {"matchFields": [off("n0")]}])),
                json!([
                    {"matchExpressions": zone, "matchFields": both},
                    {"matchFields": [off("n0"), off("n1"), off("n2")]},
                ]),
            ),
        ] {
            let before = job(before);
            let after = off_nodes(&before, &["n1", "n2"]);
            let affinity = &after["spec"]["template"]["spec"]["affinity"];
            let found = &affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"];
            assert_eq!(*found, terms, "{before}");
            // Muster's own reading of nodes knows what it writes.
            let spec = read_spec(&after).unwrap();
            assert_eq!(
                spec.roles[0].node_terms.len(),
                terms.as_array().unwrap().len()
            );
            let fields = changed_affinities(&before, &after);
            assert_eq!(
                fields,
                [("/spec/template/spec/affinity".to_owned(), affinity.clone())]
            );
        }
    }

    #[test]
    fn what_cannot_be_read_or_matches_no_node_stays_so() {
        for affinity in [
            json!("x"),
            json!({"nodeAffinity": 3}),
            required(json!([{}])).unwrap(),
        ] {
            let before = job(Some(affinity));
            let after = off_nodes(&before, &["n1"]);
            let nodes = read_spec(&after).map(|spec| spec.roles[0].node_terms.clone());
            assert_eq!(
                nodes.ok(),
                read_spec(&before)
                    .map(|spec| spec.roles[0].node_terms.clone())
                    .ok()
            );
        }
        let before = job(None);
        assert_eq!(off_nodes(&before, &[]), before);
        assert_eq!(
            off_nodes(&json!({"kind": "Thing"}), &["n1"]),
            json!({"kind": "Thing"})
        );
    }

    #[test]
    fn an_affinity_in_a_subtree_that_is_replaced_is_there_already() {
        let affinity = |path: &str| (path.to_owned(), json!({}));
        let part = vec![
            affinity("/spec/tasks"),
            affinity("/spec/template/spec/containers"),
        ];
        let affinities = vec![
            affinity("/spec/tasks/0/template/spec/affinity"),
            affinity("/spec/template/spec/affinity"),
        ];
        let all = with_affinities(part.clone(), affinities);
        assert_eq!(all[..2], part);
        assert_eq!(all[2..], [affinity("/spec/template/spec/affinity")]);
    }
}
