//! Which nodes a pod may run on: node selector, required node affinity, tolerations.
//!
//! Preferences do not matter: they cannot keep a pod from a node.

use crate::error::SpecError;
use crate::field::Field;
use facts::matching::{NodeTerm, Operator, Requirement, TaintEffect, Toleration};

/// Returns alternative terms; empty means any node. The node selector, and a node that is named directly,
/// are part of every term.
pub(crate) fn terms(spec: &Field<'_>) -> Result<Vec<NodeTerm>, SpecError> {
    let affinity =
        spec.get("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution")?;
    let named = spec.get("nodeName")?.name()?;
    merged(&spec.get("nodeSelector")?, &affinity, named)
}

/// Returns the terms of a node selector (labels), a required node affinity, and a node by name.
pub(crate) fn merged(
    selector: &Field<'_>,
    affinity: &Field<'_>,
    node: Option<&str>,
) -> Result<Vec<NodeTerm>, SpecError> {
    let mut always = NodeTerm::default();
    for (key, value) in selector.entries()? {
        let value = value.text()?.ok_or_else(|| value.invalid("a text"))?;
        always.labels.push(one_of(key, value));
    }
    always
        .fields
        .extend(node.map(|node| one_of("metadata.name", node)));
    if !affinity.is_set() {
        let is_free = always == NodeTerm::default();
        return Ok(if is_free { Vec::new() } else { vec![always] });
    }
    let mut terms = Vec::new();
    for term in affinity.get("nodeSelectorTerms")?.items()? {
        let own = NodeTerm {
            labels: requirements(&term.get("matchExpressions")?)?,
            fields: requirements(&term.get("matchFields")?)?,
        };
        // In Kubernetes an empty term matches no node.
        if own != NodeTerm::default() {
            terms.push(both(&always, own));
        }
    }
    Ok(if terms.is_empty() {
        vec![nowhere()]
    } else {
        terms
    })
}

fn both(always: &NodeTerm, own: NodeTerm) -> NodeTerm {
    let mut term = always.clone();
    term.labels.extend(own.labels);
    term.fields.extend(own.fields);
    term
}

/// Returns the term that matches no node.
fn nowhere() -> NodeTerm {
    let none = Requirement {
        key: "metadata.name".to_owned(),
        operator: Operator::In,
        values: Vec::new(),
    };
    NodeTerm {
        labels: Vec::new(),
        fields: vec![none],
    }
}

fn one_of(key: &str, value: &str) -> Requirement {
    Requirement {
        key: key.to_owned(),
        operator: Operator::In,
        values: vec![value.to_owned()],
    }
}

/// Reads a list of label or field requirements.
pub(crate) fn requirements(list: &Field<'_>) -> Result<Vec<Requirement>, SpecError> {
    list.items()?.iter().map(requirement).collect()
}

fn requirement(item: &Field<'_>) -> Result<Requirement, SpecError> {
    let operator = item.get("operator")?;
    let values = item.get("values")?.items()?;
    Ok(Requirement {
        key: required_text(&item.get("key")?)?,
        operator: match operator.text()? {
            Some("In") => Operator::In,
            Some("NotIn") => Operator::NotIn,
            Some("Exists") => Operator::Exists,
            Some("DoesNotExist") => Operator::DoesNotExist,
            Some("Gt") => Operator::Gt,
            Some("Lt") => Operator::Lt,
            _ => return Err(operator.invalid("In, NotIn, Exists, DoesNotExist, Gt or Lt")),
        },
        values: values.iter().map(required_text).collect::<Result<_, _>>()?,
    })
}

fn required_text(field: &Field<'_>) -> Result<String, SpecError> {
    field
        .text()?
        .map(str::to_owned)
        .ok_or_else(|| field.invalid("a text"))
}

/// Reads the taints that are tolerated.
pub(crate) fn tolerations(list: &Field<'_>) -> Result<Vec<Toleration>, SpecError> {
    let mut tolerations = Vec::new();
    for item in list.items()? {
        tolerations.extend(toleration(&item)?);
    }
    Ok(tolerations)
}

/// Reads a toleration; `None` for one that compares numbers (Gt, Lt: alpha in 1.35). Muster does not rely
/// on these, so that no pod is sent where it might be refused.
fn toleration(item: &Field<'_>) -> Result<Option<Toleration>, SpecError> {
    let operator = item.get("operator")?;
    let value = item.get("value")?.text()?.unwrap_or_default().to_owned();
    let value = match operator.name()? {
        None | Some("Equal") => Some(value),
        Some("Exists") => None,
        Some("Gt" | "Lt") => return Ok(None),
        Some(_) => return Err(operator.invalid("Exists or Equal")),
    };
    let effect = item.get("effect")?;
    let effect = match effect.name()? {
        None => None,
        Some("NoSchedule") => Some(TaintEffect::NoSchedule),
        Some("PreferNoSchedule") => Some(TaintEffect::PreferNoSchedule),
        Some("NoExecute") => Some(TaintEffect::NoExecute),
        Some(_) => return Err(effect.invalid("NoSchedule, PreferNoSchedule or NoExecute")),
    };
    let key = item.get("key")?.text()?.unwrap_or_default().to_owned();
    Ok(Some(Toleration { key, value, effect }))
}

#[cfg(test)]
mod tests;
