//! For tests: templates from YAML, and their specs in a few lines.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::{SpecError, WorkloadSpec, read_spec, read_spec_with};
use facts::Role;
use facts::matching::{NodeTerm, Operator, Requirement};
use serde_json::Value;
use std::fmt::Write;

pub(crate) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Returns the spec of the template, or why it is unknown.
pub(crate) fn asked(template: &str) -> String {
    shown(read_spec(&yaml(template)))
}

/// Does the same with the values of PriorityClasses.
pub(crate) fn asked_with(template: &str, priorities: &[(&str, i32)]) -> String {
    let value = |name: &str| {
        priorities
            .iter()
            .find(|(class, _)| *class == name)
            .map(|(_, value)| *value)
    };
    shown(read_spec_with(&yaml(template), &value))
}

pub(crate) fn shown(result: Result<WorkloadSpec, SpecError>) -> String {
    let spec = match result {
        Ok(spec) => spec,
        Err(error) => return format!("{}: {error}", error.reason()),
    };
    let mut text = String::new();
    for role in &spec.roles {
        role_line(&mut text, role);
    }
    write!(text, "min {} ({})", spec.min_available, spec.min_resources).unwrap();
    let members: Vec<String> = spec
        .min_task_member
        .iter()
        .map(|(name, min)| format!("{name} {min}"))
        .collect();
    word(
        &mut text,
        "members",
        (!members.is_empty()).then(|| members.join(", ")),
    );
    word(&mut text, "queue", spec.queue);
    word(&mut text, "class", spec.priority_class);
    word(
        &mut text,
        "runs",
        spec.expected_duration_ms.map(|ms| format!("{ms} ms")),
    );
    word(&mut text, "topology", spec.network_topology);
    word(&mut text, "surge", (spec.surge > 0).then_some(spec.surge));
    for (flag, name) in [
        (spec.suspended, "suspended"),
        (spec.replicas_held, "held"),
        (spec.keeps_pods, "keeps its pods"),
    ] {
        text.push_str(if flag { "\n" } else { "" });
        text.push_str(if flag { name } else { "" });
    }
    text
}

fn role_line(text: &mut String, role: &Role) {
    write!(text, "{} {} × ({})", role.name, role.count, role.request).unwrap();
    if role.min != role.count {
        write!(text, " min {}", role.min).unwrap();
    }
    let terms: Vec<String> = role.node_terms.iter().map(term).collect();
    word(
        text,
        "  on",
        (!terms.is_empty()).then(|| terms.join(" or ")),
    );
    for toleration in &role.tolerations {
        write!(
            text,
            "\n  tolerates {:?} {:?} {:?}",
            toleration.key, toleration.value, toleration.effect
        )
        .unwrap();
    }
    text.push('\n');
}

pub(crate) fn term(term: &NodeTerm) -> String {
    let labels = term.labels.iter().map(requirement);
    let fields = term
        .fields
        .iter()
        .map(|field| format!("field {}", requirement(field)));
    labels.chain(fields).collect::<Vec<_>>().join(" and ")
}

fn requirement(requirement: &Requirement) -> String {
    let operator = match requirement.operator {
        Operator::In => "in",
        Operator::NotIn => "not in",
        Operator::Exists => "exists",
        Operator::DoesNotExist => "absent",
        Operator::Gt => ">",
        Operator::Lt => "<",
    };
    format!("{} {operator} {:?}", requirement.key, requirement.values)
}

fn word(text: &mut String, name: &str, value: Option<impl std::fmt::Display>) {
    if let Some(value) = value {
        write!(text, "\n{name} {value}").unwrap();
    }
}
