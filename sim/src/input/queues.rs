//! Queues, as manifests (Volcano Queue, CapacityPolicy, PriorityClass in one file of several
//! documents), or in a short form. A file may have both.

use super::amounts::{QuantityTexts, resources};
use super::manifests;
use crate::error::{InputError, InputLocation, read};
use crate::scenario::{ScenarioQueues, plain_policy, plain_queue};
use crds::capacity_policy::CapacityPolicy;
use crds::kubernetes::PriorityClass;
use crds::queue::Queue;
use engine::QueueName;
use engine::facts::{PolicyFact, PriorityClassFact, QueueFact};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A document in the short form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Short {
    #[serde(default)]
    queues: Vec<ShortQueue>,
    #[serde(default)]
    priority_classes: BTreeMap<String, i32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ShortQueue {
    name: String,
    parent: Option<String>,
    weight: Option<u32>,
    priority: Option<i32>,
    #[serde(default)]
    guarantee: QuantityTexts,
    #[serde(default)]
    deserved: QuantityTexts,
    #[serde(default)]
    capability: QuantityTexts,
    reclaimable: Option<bool>,
    /// As in a CapacityPolicy.
    ordering: Option<Value>,
    /// As in a CapacityPolicy.
    preemption: Option<Value>,
}

/// The manifests of a file, and what was read of its short forms.
#[derive(Default)]
struct QueueManifests<'a> {
    queues: BTreeMap<QueueName, Queue>,
    policies: Vec<(InputLocation<'a>, CapacityPolicy)>,
}

/// Reads queues, their policies and priority classes.
///
/// # Errors
/// Returns the first invalid value.
pub fn read_queues(path: &Path) -> Result<ScenarioQueues, InputError> {
    let name = path.display().to_string();
    let text = read(path)?;
    let malformed = |error: &dyn std::fmt::Display| InputError::Malformed {
        file: name.clone(),
        reason: error.to_string(),
    };
    let mut queues = ScenarioQueues::default();
    let mut manifests = QueueManifests::default();
    for (index, text) in documents(&text).into_iter().enumerate() {
        let place = InputLocation {
            file: &name,
            place: format!("document {}", index + 1),
        };
        let document: Value = serde_saphyr::from_str(&text).map_err(|error| malformed(&error))?;
        match document["kind"].as_str() {
            None => {
                let short: Short =
                    serde_saphyr::from_str(&text).map_err(|error| malformed(&error))?;
                short.add(&name, &mut queues)?;
            }
            Some("Queue") => {
                let queue: Queue = manifests::object(&place, &text, document, "Queue")?;
                let fact = queue.to_fact();
                if let Some(problem) = &fact.invalid {
                    return Err(manifests::invalid(&place, problem));
                }
                manifests.queues.insert(fact.name.clone(), queue);
                queues.queues.push(fact);
            }
            Some("CapacityPolicy") => {
                let policy = manifests::policy(&place, &text, document)?;
                manifests.policies.push((place, policy));
            }
            Some("PriorityClass") => {
                let class: PriorityClass =
                    manifests::object(&place, &text, document, "PriorityClass")?;
                queues.classes.push(class.to_fact());
            }
            Some(other) => {
                let needed = "Queue, CapacityPolicy or PriorityClass is needed, or no kind and \
                              a list `queues`";
                return Err(place.refuse("kind", other, needed));
            }
        }
    }
    manifests.merge(&mut queues)?;
    let policies = manifests.facts(&name)?;
    finish(&name, queues, policies)
}

impl QueueManifests<'_> {
    /// Adds what policies state of queues to the Queues of their names, and a queue for each policy that has none.
    fn merge(&mut self, queues: &mut ScenarioQueues) -> Result<(), InputError> {
        for (place, policy) in &self.policies {
            if !policy.states_queue() {
                continue;
            }
            let name = policy.metadata.name.as_deref().unwrap_or_default();
            let name = QueueName::new(name);
            let at = queues.queues.iter().position(|queue| queue.name == name);
            let object = self.queues.get(&name);
            if at.is_some() && object.is_none() {
                let problem = "spec.resources and spec.parent: the queue is in the list `queues`; state them there";
                return Err(manifests::invalid(place, problem));
            }
            let object = object.cloned();
            let object = object.unwrap_or_else(|| Queue::of_policy(name.as_str()));
            // The policy states the queue.
            let Some(stated) = object.with_policy(Some(policy)) else {
                continue;
            };
            if let Some(conflict) = stated.conflicts.first() {
                return Err(manifests::invalid(place, conflict));
            }
            let fact = stated.queue.to_fact();
            if let Some(problem) = &fact.invalid {
                return Err(manifests::invalid(place, problem));
            }
            match at.and_then(|at| queues.queues.get_mut(at)) {
                Some(known) => *known = fact,
                None => queues.queues.push(fact),
            }
            self.queues.insert(name, stated.queue);
        }
        Ok(())
    }

    /// Returns the fact of each policy, and of an empty one for each Queue that has none.
    fn facts(self, file: &str) -> Result<BTreeMap<QueueName, PolicyFact>, InputError> {
        let mut facts = BTreeMap::new();
        for (place, policy) in &self.policies {
            let name = QueueName::new(policy.metadata.name.as_deref().unwrap_or_default());
            let fact = manifests::fact(place, policy, self.queues.get(&name))?;
            facts.insert(name, fact);
        }
        for (name, queue) in &self.queues {
            if !facts.contains_key(name) {
                let place = InputLocation {
                    file,
                    place: format!("queue {name}"),
                };
                let none = CapacityPolicy::new(name.as_str(), Default::default());
                facts.insert(name.clone(), manifests::fact(&place, &none, Some(queue))?);
            }
        }
        Ok(facts)
    }
}

/// Gives each queue a policy, and checks that names are unique and parents exist.
fn finish(
    file: &str,
    mut queues: ScenarioQueues,
    mut policies: BTreeMap<QueueName, PolicyFact>,
) -> Result<ScenarioQueues, InputError> {
    let place = |queue: &QueueName| InputLocation {
        file,
        place: format!("queue {queue}"),
    };
    let mut names = BTreeSet::new();
    for queue in &queues.queues {
        if queue.name.as_str().is_empty() || !names.insert(queue.name.clone()) {
            let refused = place(&queue.name);
            return Err(refused.refuse("name", queue.name.as_str(), "a name of its own is needed"));
        }
    }
    for queue in &queues.queues {
        if let Some(parent) = queue
            .parent
            .as_ref()
            .filter(|parent| !names.contains(*parent))
        {
            let needed = "the name of a queue in this file is needed";
            return Err(place(&queue.name).refuse("parent", parent.as_str(), needed));
        }
    }
    for queue in policies.keys() {
        if !names.contains(queue) {
            let needed = "the name of a queue in this file is needed";
            let refused = place(queue);
            return Err(refused.refuse("CapacityPolicy metadata.name", queue.as_str(), needed));
        }
    }
    for policy in std::mem::take(&mut queues.policies) {
        policies.entry(policy.queue.clone()).or_insert(policy);
    }
    for name in names {
        let plain = plain_policy(name.as_str());
        policies.entry(name).or_insert(plain);
    }
    queues.policies = policies.into_values().collect();
    Ok(queues)
}

impl Short {
    fn add(self, file: &str, queues: &mut ScenarioQueues) -> Result<(), InputError> {
        for mut queue in self.queues {
            let place = InputLocation {
                file,
                place: format!("queue {}", queue.name),
            };
            let stated = [
                ("ordering", queue.ordering.take()),
                ("preemption", queue.preemption.take()),
            ];
            let stated = stated.into_iter();
            let spec = stated.filter_map(|(field, value)| Some((field.to_owned(), value?)));
            let spec: Map<String, Value> = spec.collect();
            let policy = manifests::short_policy(&place, &queue.name, spec)?;
            queues
                .policies
                .push(manifests::fact(&place, &policy, None)?);
            queues.queues.push(queue.fact(&place)?);
        }
        let classes = self.priority_classes.into_iter();
        queues
            .classes
            .extend(classes.map(|(name, value)| PriorityClassFact {
                name,
                value,
                global_default: false,
                preempts: true,
            }));
        Ok(())
    }
}

impl ShortQueue {
    fn fact(&self, place: &InputLocation<'_>) -> Result<QueueFact, InputError> {
        if self.weight == Some(0) {
            return Err(place.refuse("weight", "0", "1 or more is needed"));
        }
        Ok(QueueFact {
            parent: self.parent.as_deref().map(QueueName::from),
            priority: self.priority.unwrap_or(0),
            weight: self.weight.unwrap_or(1),
            guarantee: resources(place, "guarantee", &self.guarantee)?,
            deserved: resources(place, "deserved", &self.deserved)?,
            capability: resources(place, "capability", &self.capability)?,
            reclaimable: self.reclaimable.unwrap_or(true),
            ..plain_queue(&self.name)
        })
    }
}

/// Splits a file into its documents and omits those with only comments. Each document keeps its
/// line numbers, so that a parser's message points at the right line.
fn documents(text: &str) -> Vec<String> {
    let mut documents = Vec::new();
    let mut current = String::new();
    let mut said = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_end() == "---" {
            if std::mem::take(&mut said) {
                documents.push(std::mem::take(&mut current));
            }
            current = "\n".repeat(number + 1);
            continue;
        }
        let content = line.trim();
        said |= !content.is_empty() && !content.starts_with('#');
        current.push_str(line);
        current.push('\n');
    }
    if said {
        documents.push(current);
    }
    documents
}
