//! What a role demands of nodes that no node of a cluster has: in words, for messages and advice.

use crate::capacity::ClusterCapacity;
use crate::placement::no_plan::ClusterLack;
use facts::matching::{NodeTerm, Operator, Requirement};
use facts::{ClusterName, Role, listed};

/// How many values of a requirement are named.
const VALUES: usize = 4;

/// Returns what no node of a cluster has, of the labels and fields that a role selects nodes by: each requirement of an
/// only alternative, or the alternatives together. If nodes have each requirement but none has all, it is all of them.
/// Empty if some node is selected; `None` if there is no node.
pub(crate) fn unmatched(known: Option<&ClusterCapacity>, role: &Role) -> Option<Vec<String>> {
    let known = known.filter(|known| !known.nodes().is_empty())?;
    let nodes = || known.nodes().values();
    let matched = |term: &NodeTerm| nodes().any(|node| term.matches(&node.fact));
    let selected = role.node_terms.is_empty() || role.node_terms.iter().any(matched);
    if selected {
        return Some(Vec::new());
    }
    let missing = |term: &NodeTerm| -> Vec<String> {
        let all = || parts(term).map(|(requirement, alone)| (words(requirement), alone));
        let alone = all().filter(|(_, alone)| !matched(alone));
        let alone: Vec<String> = alone.map(|(words, _)| words).collect();
        if alone.is_empty() {
            let all: Vec<String> = all().map(|(words, _)| words).collect();
            return vec![all.join(" and ")];
        }
        alone
    };
    Some(match role.node_terms.as_slice() {
        [only] => missing(only),
        several => {
            let first = |term| missing(term).into_iter().next();
            let mut firsts: Vec<String> = several.iter().filter_map(first).collect();
            firsts.dedup();
            vec![listed_by(firsts, " or ")]
        }
    })
}

/// The requirements of a term, each with a term of its own.
fn parts(term: &NodeTerm) -> impl Iterator<Item = (&Requirement, NodeTerm)> {
    let labels = term.labels.iter().map(|one| {
        let alone = NodeTerm {
            labels: vec![one.clone()],
            ..NodeTerm::default()
        };
        (one, alone)
    });
    let fields = term.fields.iter().map(|one| {
        let alone = NodeTerm {
            fields: vec![one.clone()],
            ..NodeTerm::default()
        };
        (one, alone)
    });
    labels.chain(fields)
}

/// Returns what no node of any of these clusters has, and for which role: the same in all that have nodes. The cluster
/// is named if there is one only.
pub(crate) fn of_all(lacks: &[ClusterLack]) -> Option<(Option<&ClusterName>, &str, usize)> {
    let with_nodes = || {
        let lacks = lacks.iter();
        lacks.filter_map(|lack| Some((lack, lack.unmatched.as_ref()?)))
    };
    let (first, labels) = with_nodes().next()?;
    let too = |label| {
        with_nodes().all(|(lack, labels)| lack.role == first.role && labels.contains(label))
    };
    let label = labels.iter().find(|label| too(label))?;
    let one = (lacks.len() == 1).then_some(&first.cluster);
    Some((one, label, first.role))
}

fn listed_by(texts: Vec<String>, by: &str) -> String {
    match texts.len() {
        0..=VALUES => texts.join(by),
        _ => listed(texts, VALUES),
    }
}

/// `accelerator=h900`, or as a selector is written.
fn words(requirement: &Requirement) -> String {
    let Requirement {
        key,
        operator,
        values,
    } = requirement;
    let all = || listed(values.clone(), VALUES);
    let first = || values.first().map(String::as_str).unwrap_or_default();
    match operator {
        Operator::In if values.len() == 1 => format!("{key}={}", first()),
        Operator::In => format!("{key} in ({})", all()),
        Operator::NotIn => format!("{key} notin ({})", all()),
        Operator::Exists => key.clone(),
        Operator::DoesNotExist => format!("!{key}"),
        Operator::Gt => format!("{key}>{}", first()),
        Operator::Lt => format!("{key}<{}", first()),
    }
}
