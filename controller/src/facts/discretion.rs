//! Hides other tenants from the users of a job.
//!
//! Verdicts are written for operators: they name the jobs and queues that are in the way. Tenants read
//! PodGroups, events and admission records, so neutral words replace jobs of other namespaces there, and
//! queues that the job's namespace may not use. Numbers stay. The log has the whole text.
//!
//! This module works on the text: every message passes through [`View::discreet`] on its way out, and
//! its author need not know who reads it. Job keys are `NAMESPACE/NAME`; names of queues follow the words
//! `queue` and `queues`.

use crate::facts::view::View;
use crds::podgroup::Eviction;
use engine::{Explanation, JobKey, QueueName};
use std::collections::BTreeSet;
use workload::WorkloadSpec;

/// Most queues above a queue that are searched.
const DEEPEST: usize = 64;

const OTHER_JOB: &str = "a job of another namespace";

/// The readers of a text.
pub(crate) struct Reader<'a> {
    /// The namespace of the job.
    pub(crate) namespace: &'a str,
    /// Returns true if the namespace exists.
    pub(crate) is_namespace: &'a dyn Fn(&str) -> bool,
    /// Returns true if the queue exists and must not be named to them.
    pub(crate) hides_queue: &'a dyn Fn(&str) -> bool,
}

/// Returns `text` as `reader` may see it.
pub(crate) fn discreet(text: &str, reader: &Reader<'_>) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = Words(text);
    while let Some((word, between)) = rest.next() {
        let list = match word {
            "queues" => rest.clone().list(),
            "children" => rest.clone().list().filter(NameList::is_in_brackets),
            "queue" | "capacitypolicy" => rest.clone().one(),
            _ => None,
        };
        match list {
            Some(list) if list.names.iter().any(|name| (reader.hides_queue)(name)) => {
                list.show(word, &mut shown, reader);
                rest = list.rest;
            }
            _ => {
                let job = is_others_job(word, reader);
                shown.push_str(if job { OTHER_JOB } else { word });
                shown.push_str(between);
            }
        }
    }
    shown
}

/// Returns true if a word is the key of a job in another namespace. Bindings have the name of their
/// template and its kind; `batch/v1` and `nvidia.com/gpu` are no keys.
fn is_others_job(word: &str, reader: &Reader<'_>) -> bool {
    let Some((namespace, name)) = word.split_once('/') else {
        return false;
    };
    namespace != reader.namespace && name.contains('-') && (reader.is_namespace)(namespace)
}

/// The rest of a text as words; a word may be a name or a key.
#[derive(Clone)]
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    /// A word, which may be empty at the start, and the text up to the next word.
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '/' | '_');
        let end = self.0.find(|c| !is_word(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        let next = rest.find(is_word).unwrap_or(rest.len());
        let (between, rest) = rest.split_at(next);
        self.0 = rest;
        Some((word, between))
    }
}

/// Names of queues as a text lists them.
struct NameList<'a> {
    names: Vec<&'a str>,
    /// True if the text counts more queues than it names.
    more: bool,
    /// The text after the last name.
    behind: &'a str,
    rest: Words<'a>,
}

impl<'a> Words<'a> {
    /// Reads `NAME` and the text after it.
    fn one(self) -> Option<NameList<'a>> {
        let mut rest = self;
        let (name, behind) = rest.next()?;
        Some(NameList {
            names: vec![name],
            more: false,
            behind,
            rest,
        })
    }

    /// Reads `A, B and 3 more`, as far as the list goes.
    fn list(self) -> Option<NameList<'a>> {
        let mut list = self.one()?;
        while list.behind == ", " {
            let (name, behind) = list.rest.next()?;
            list.names.push(name);
            list.behind = behind;
        }
        let mut after = list.rest.clone();
        let more = [after.next(), after.next(), after.next()];
        if let [Some(("and", " ")), Some((_, " ")), Some(("more", behind))] = more {
            list.more = true;
            list.behind = behind;
            list.rest = after;
        }
        Some(list)
    }
}

impl NameList<'_> {
    fn is_in_brackets(&self) -> bool {
        self.behind.starts_with(')')
    }

    /// Writes the names that may be shown, after `word`.
    fn show(&self, word: &str, shown: &mut String, reader: &Reader<'_>) {
        let names = self.names.iter().copied();
        let named: Vec<&str> = names.filter(|name| !(reader.hides_queue)(name)).collect();
        let text = match (word, named.as_slice()) {
            ("queues", []) => "other queues".to_owned(),
            ("queues", named) => format!("queues {} and others", named.join(", ")),
            // In brackets that follow the names.
            ("children", []) => "children (other queues".to_owned(),
            ("children", named) => format!("children ({} and others", named.join(", ")),
            _ => format!("another {word}"),
        };
        shown.push_str(&text);
        shown.push_str(self.behind);
    }
}

impl View<'_> {
    /// Returns `text`, written for the job `key`, as readers of its namespace may see it.
    pub(crate) fn discreet(&self, key: &JobKey, text: &str) -> String {
        let shown = discreet(
            text,
            &Reader {
                namespace: &key.namespace,
                is_namespace: &|name| self.mirror.namespaces().contains_key(name),
                hides_queue: &|name| self.hides_queue(key, &QueueName::new(name)),
            },
        );
        if shown != text {
            tracing::debug!(job = %key, text, "names are hidden from its user");
        }
        shown
    }

    /// Makes an explanation of a job readable in its namespace.
    pub(crate) fn make_discreet(&self, key: &JobKey, explanation: &mut Explanation) {
        let texts = std::iter::once(&mut explanation.message).chain(&mut explanation.evidence);
        let basis = explanation.start.iter_mut().map(|start| &mut start.basis);
        for text in texts.chain(basis) {
            *text = self.discreet(key, text);
        }
    }

    /// Makes an eviction readable in the namespace: another version may have written names into the record.
    pub(crate) fn make_eviction_discreet(&self, key: &JobKey, back: &mut Eviction) {
        for text in std::iter::once(&mut back.message).chain(&mut back.for_job) {
            *text = self.discreet(key, text);
        }
    }

    /// Returns true if readers of a job must not see the name of a queue. They may see the queue that it is charged
    /// to, the one that its template names, and those above.
    fn hides_queue(&self, key: &JobKey, queue: &QueueName) -> bool {
        self.mirror.queues().contains_key(queue)
            && !self.may_use(key, queue)
            && !self.is_at_or_above(key, queue)
    }

    fn is_at_or_above(&self, key: &JobKey, queue: &QueueName) -> bool {
        let named = self.last_facts.get(key).map(|fact| fact.queue.clone());
        let charged = self.engine.job(key).map(|job| job.queue.clone());
        [named, charged].into_iter().any(|own| {
            let up = std::iter::successors(own, |name| self.mirror.queues().get(name)?.parent());
            up.take(DEEPEST).any(|above| above == *queue)
        })
    }

    /// Returns the PriorityClasses that its queue must allow.
    pub(crate) fn classes_of(&self, key: &JobKey) -> BTreeSet<String> {
        let binding = self.mirror.bindings().get(key);
        let ask = binding.and_then(|binding| self.mirror.ask_of(binding));
        ask.map(WorkloadSpec::named_classes).unwrap_or_default()
    }

    /// Returns true if advice may name a queue: the job's namespace may use it, and it allows the job's
    /// PriorityClasses.
    pub(crate) fn may_be_named(&self, key: &JobKey, queue: &QueueName) -> bool {
        let allowed = || {
            let refused = self
                .mirror
                .queueing
                .refused_class(queue, &self.classes_of(key));
            refused.is_none()
        };
        self.may_use(key, queue) && allowed()
    }

    /// Returns true if the namespace of a job is known to have the use of a queue. The right of a single user
    /// does not count.
    pub(crate) fn may_use(&self, key: &JobKey, queue: &QueueName) -> bool {
        let namespace = self.namespace_of(key);
        let closed = self
            .mirror
            .queueing
            .closed_to(queue, &key.namespace, &namespace.labels);
        closed.is_none() || self.rights.is_known(&key.namespace, queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let namespaces = ["team-a", "team-b", "batch", "apps"];
        discreet(
            text,
            &Reader {
                namespace: "team-a",
                is_namespace: &|name| namespaces.contains(&name),
                hides_queue: &|name| ["gold", "g", "other"].contains(&name),
            },
        )
    }

    #[test]
    fn jobs_and_queues_of_other_tenants_are_not_named() {
        let cases = [
            (
                "what is free is kept for team-b/train-job, further ahead; beside that it needs 2 pods",
                "what is free is kept for a job of another namespace, further ahead; beside that it needs 2 pods",
            ),
            (
                "what is free is kept for team-b/train-job and team-a/mine-job, further ahead",
                "what is free is kept for a job of another namespace and team-a/mine-job, further ahead",
            ),
            (
                "it is next: team-b/a-job, team-b/b-job and 2 more are evicted for it",
                "it is next: a job of another namespace, a job of another namespace and 2 more are evicted for it",
            ),
            (
                "needs nvidia.com/gpu 2; queue vision may use 8 and has 6 charged and 2 kept for what queue g is guaranteed: short by 2",
                "needs nvidia.com/gpu 2; queue vision may use 8 and has 6 charged and 2 kept for what another queue is guaranteed: short by 2",
            ),
            (
                "kept for what queues g, other and 3 more are guaranteed",
                "kept for what other queues are guaranteed",
            ),
            (
                "kept for what queues g, vision are guaranteed",
                "kept for what queues vision and others are guaranteed",
            ),
            (
                "reclaimed for team-b/x-job: queue gold has nvidia.com/gpu 2 of the 4 that it deserves, queue vision has 6 and deserves 4",
                "reclaimed for a job of another namespace: another queue has nvidia.com/gpu 2 of the 4 that it deserves, queue vision has 6 and deserves 4",
            ),
            (
                "queue vision has children (g, other); only a queue without children takes jobs",
                "queue vision has children (other queues); only a queue without children takes jobs",
            ),
            (
                "raise the bound of capacitypolicy gold on pools",
                "raise the bound of another capacitypolicy on pools",
            ),
        ];
        for (text, discreet) in cases {
            assert_eq!(shown(text), discreet);
            // Applying it twice changes nothing: records are read again.
            assert_eq!(shown(discreet), discreet);
        }
    }

    #[test]
    fn own_names_and_other_words_are_unchanged() {
        for text in [
            "",
            "queue",
            "queue ",
            "queue vision is strictly ordered: team-a/first-job has to start first",
            "no other g is here; gold is dear",
            "gone/some-job is unknown",
            "batch/v1 Job, apps/v1, nvidia.com/gpu, 2/3 pods",
            "(queue) über queue; ",
            "queues vision, research and 3 more are guaranteed",
        ] {
            assert_eq!(shown(text), text);
        }
    }
}
