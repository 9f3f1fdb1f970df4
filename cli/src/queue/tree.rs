//! `queue tree`: the queues below their parents, with their devices.

use super::Shown;
use super::quota::{devices, guaranteed_devices};
use crate::output::columns;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};

/// Formats the tree. A queue whose parent is not among `queues` stands at the top.
pub(super) fn render(queues: &[Shown], header: bool) -> String {
    if queues.is_empty() {
        return "No queues found\n".to_owned();
    }
    let by_name: BTreeMap<String, &Shown> = queues
        .iter()
        .map(|queue| (queue.policy.name_any(), queue))
        .collect();
    let mut below: BTreeMap<Option<String>, Vec<&str>> = BTreeMap::new();
    for (name, queue) in &by_name {
        let parent = queue.parent();
        let parent = by_name.contains_key(&parent).then_some(parent);
        below.entry(parent).or_default().push(name);
    }
    let mut rows = Rows {
        by_name: &by_name,
        below: &below,
        shown: BTreeSet::new(),
        rows: Vec::new(),
    };
    rows.add(None, "");
    // Queues that are each other's parents are below no other.
    for name in by_name.keys() {
        if !rows.shown.contains(name.as_str()) {
            rows.add_one(name, "", "");
        }
    }
    let names = [
        "QUEUE",
        "STATE",
        "USED",
        "DESERVED",
        "CAPABILITY",
        "GUARANTEE",
        "LENT",
        "PENDING",
        "JOBS",
    ];
    columns(header.then_some(names), rows.rows)
}

struct Rows<'a> {
    by_name: &'a BTreeMap<String, &'a Shown>,
    below: &'a BTreeMap<Option<String>, Vec<&'a str>>,
    shown: BTreeSet<&'a str>,
    rows: Vec<[String; 9]>,
}

impl<'a> Rows<'a> {
    /// Adds the queues below a parent.
    fn add(&mut self, parent: Option<&str>, indent: &str) {
        let Some(names) = self.below.get(&parent.map(str::to_owned)) else {
            return;
        };
        for (index, name) in names.iter().enumerate() {
            let is_last = index + 1 == names.len();
            let (branch, deeper) = match (parent, is_last) {
                (None, _) => ("", ""),
                (Some(_), true) => ("└─ ", "   "),
                (Some(_), false) => ("├─ ", "│  "),
            };
            let below = format!("{indent}{deeper}");
            self.add_one(name, &format!("{indent}{branch}"), &below);
        }
    }

    fn add_one(&mut self, name: &'a str, before: &str, indent: &str) {
        let Some(queue) = self.by_name.get(name) else {
            return;
        };
        if self.shown.insert(name) {
            self.rows.push(row(queue, format!("{before}{name}")));
            self.add(Some(name), indent);
        }
    }
}

fn row(queue: &Shown, name: String) -> [String; 9] {
    let status = queue.policy.status.as_ref();
    let summary = status.and_then(|status| status.summary.clone());
    let jobs = summary.map(|summary| summary.jobs).unwrap_or_default();
    [
        name,
        queue.state(),
        devices(queue, |used| Some(&used.allocated)),
        devices(queue, |used| used.deserved.as_ref()),
        devices(queue, |used| used.capability.as_ref()),
        guaranteed_devices(queue),
        devices(queue, |used| used.lent.as_ref()),
        devices(queue, |used| Some(&used.pending)),
        jobs,
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::{fresh, vision};
    use super::*;

    fn named(name: &str, parent: &str) -> Shown {
        let mut queue = vision();
        queue.policy.metadata.name = Some(name.to_owned());
        let of = queue.queue.as_mut().unwrap();
        of.metadata.name = Some(name.to_owned());
        of.spec.parent = Some(parent.to_owned());
        queue
    }

    #[test]
    fn queues_stand_below_their_parents() {
        let queues = [
            named("research", "lab"),
            vision(),
            named("nlp", "research"),
            named("lab", "root"),
            named("students", "lab"),
            named("tutors", "students"),
            fresh(),
        ];
        insta::assert_snapshot!(render(&queues, true), @r"
        QUEUE          STATE    USED     DESERVED   CAPABILITY   GUARANTEE   LENT     PENDING   JOBS
        fresh          <none>   <none>   <none>     <none>       <none>      <none>   <none>    <none>
        lab            Closed   24       16         32           4           4        16        3R/2Q
        ├─ research    Closed   24       16         32           4           4        16        3R/2Q
        │  ├─ nlp      Closed   24       16         32           4           4        16        3R/2Q
        │  └─ vision   Closed   24       16         32           4           4        16        3R/2Q
        └─ students    Closed   24       16         32           4           4        16        3R/2Q
           └─ tutors   Closed   24       16         32           4           4        16        3R/2Q
        ");
        assert_eq!(render(&[], true), "No queues found\n");
    }

    #[test]
    fn a_ring_of_parents_is_shown_too() {
        let queues = [named("a", "b"), named("b", "a"), named("c", "c")];
        let tree = render(&queues, false);
        assert_eq!(tree.lines().count(), 3, "{tree}");
    }
}
