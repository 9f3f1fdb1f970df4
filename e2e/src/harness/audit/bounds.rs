//! The quotas of queues over time, as the API server has them: capabilities of Queues, their
//! parents, and capabilities of CapacityPolicies, over all pools and by class.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::held::HeldAmounts;
use super::log::{AuditedResource, AuditedWrite};
use super::quantity;

/// The time after a lowered or new quota in which an admission may still follow the previous one,
/// because Muster has to see the change first.
const HEARD_WITHIN: SignedDuration = SignedDuration::from_secs(2);

/// The class of a quota of a CapacityPolicy over all pools.
const ALL_CLASSES: &str = "*";

/// What a quota limits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BoundScope {
    /// The queue and its descendants.
    pub(super) queue: String,
    pub(super) resource: String,
    /// The class of GPUs; `None` for all by the Queue, [`ALL_CLASSES`] for all by the policy.
    pub(super) class: Option<String>,
    /// The clusters that are limited together; `None` for all.
    pub(super) clusters: Option<BTreeSet<String>>,
}

/// The values of a quota, each with the time from which it was in force; `None` if there was no
/// quota.
type Values = Vec<(Timestamp, Option<u128>)>;

/// All quotas so far.
#[derive(Debug, Clone, Default)]
pub(super) struct AuditedBounds {
    parents: BTreeMap<String, String>,
    /// Those that CapacityPolicies state, for queues whose Queue states none.
    policy_parents: BTreeMap<String, String>,
    values: BTreeMap<BoundScope, Values>,
    /// The objects seen so far: a quota that is new on one of them is a change.
    seen: BTreeSet<(&'static str, String)>,
}

impl AuditedBounds {
    /// Adds a quota that holds all the time, besides those in the log.
    pub(super) fn fixed(&mut self, queue: &str, resource: &str, amount: u128) {
        let scope = BoundScope {
            queue: queue.to_owned(),
            resource: resource.to_owned(),
            class: None,
            // An empty list distinguishes it from the quota of the Queue, which has no list of
            // clusters.
            clusters: Some(BTreeSet::new()),
        };
        let values = self.values.entry(scope).or_default();
        values.push((Timestamp::MIN, Some(amount)));
    }

    /// Reads a write of a Queue or a CapacityPolicy.
    pub(super) fn write(&mut self, write: &AuditedWrite) {
        let name = write.object["metadata"]["name"].as_str();
        let name = name.unwrap_or_default();
        let spec = &write.object["spec"];
        match write.resource {
            AuditedResource::Queue => {
                match spec["parent"].as_str() {
                    Some(parent) => self.parents.insert(name.to_owned(), parent.to_owned()),
                    None => self.parents.remove(name),
                };
                self.change("Queue", name, write.time, of_queue(name, spec));
            }
            AuditedResource::Policy => {
                match spec["parent"].as_str() {
                    Some(parent) => self
                        .policy_parents
                        .insert(name.to_owned(), parent.to_owned()),
                    None => self.policy_parents.remove(name),
                };
                self.change("Policy", name, write.time, of_policy(name, spec))
            }
            _ => {}
        }
    }

    fn change(
        &mut self,
        kind: &'static str,
        name: &str,
        time: Timestamp,
        new: BTreeMap<BoundScope, u128>,
    ) {
        let known = !self.seen.insert((kind, name.to_owned()));
        let own = |scope: &BoundScope| scope.queue == name && kind_of(scope) == Some(kind);
        for (scope, values) in &mut self.values {
            if own(scope) && !new.contains_key(scope) {
                values.push((time, None));
            }
        }
        for (scope, amount) in new {
            let values = self.values.entry(scope).or_default();
            if values.is_empty() && known {
                values.push((Timestamp::MIN, None));
            }
            values.push((time, Some(amount)));
        }
    }

    /// Returns a queue and its ancestors.
    pub(super) fn path(&self, queue: &str) -> Vec<String> {
        let mut path = vec![queue.to_owned()];
        let above = |queue: &String| {
            self.parents
                .get(queue)
                .or_else(|| self.policy_parents.get(queue))
        };
        while let Some(parent) = path.last().and_then(above) {
            if path.contains(parent) {
                break;
            }
            path.push(parent.clone());
        }
        path
    }

    /// Returns the quotas of the queue itself, with the highest recent value of each.
    pub(super) fn of(&self, queue: &str, now: Timestamp) -> Vec<(&BoundScope, u128)> {
        self.between(queue, now, now)
    }

    /// Returns the quotas of the queue itself, with the highest value of each from shortly before
    /// `from` until `now`.
    pub(super) fn between(
        &self,
        queue: &str,
        from: Timestamp,
        now: Timestamp,
    ) -> Vec<(&BoundScope, u128)> {
        let since = from.saturating_sub(HEARD_WITHIN).unwrap_or(from);
        let own = self.values.iter().filter(|(scope, _)| scope.queue == queue);
        own.filter_map(|(scope, values)| Some((scope, highest(values, since, now)?)))
            .collect()
    }
}

/// Returns the highest value in force between two times; `None` if there was no quota at some time.
fn highest(values: &Values, since: Timestamp, now: Timestamp) -> Option<u128> {
    let first = values.iter().rposition(|(from, _)| *from <= since);
    let values = values.get(first.unwrap_or(0)..).unwrap_or_default();
    let values = values.iter().take_while(|(from, _)| *from <= now);
    let highest: Option<Vec<u128>> = values.map(|(_, amount)| *amount).collect();
    highest?.into_iter().max()
}

/// Returns the kind of object that has a quota; `None` for one that was not read from the log.
fn kind_of(scope: &BoundScope) -> Option<&'static str> {
    match (&scope.class, &scope.clusters) {
        (Some(_), _) => Some("Policy"),
        (None, None) => Some("Queue"),
        (None, Some(_)) => None,
    }
}

fn of_queue(name: &str, spec: &Value) -> BTreeMap<BoundScope, u128> {
    let capability = spec["capability"].as_object().into_iter().flatten();
    let bound = |(resource, amount): (&String, &Value)| {
        let scope = BoundScope {
            queue: name.to_owned(),
            resource: resource.clone(),
            class: None,
            clusters: None,
        };
        (scope, amount_of(amount))
    };
    capability.map(bound).collect()
}

fn of_policy(name: &str, spec: &Value) -> BTreeMap<BoundScope, u128> {
    let pools = spec["pools"].as_array().into_iter().flatten();
    let pools = pools.flat_map(|pool| {
        let clusters = pool["clusters"].as_array().map(|clusters| {
            let names = clusters.iter().filter_map(Value::as_str);
            names.map(str::to_owned).collect::<BTreeSet<String>>()
        });
        let class = pool["class"].as_str().map(str::to_owned);
        of_list(name, &pool["resources"], class, clusters)
    });
    let totals = of_list(name, &spec["resources"], Some(ALL_CLASSES.to_owned()), None);
    pools.chain(totals).collect()
}

/// Returns the capabilities in a list of resources.
fn of_list(
    name: &str,
    list: &Value,
    class: Option<String>,
    clusters: Option<BTreeSet<String>>,
) -> impl Iterator<Item = (BoundScope, u128)> {
    let resources = list.as_array().into_iter().flatten();
    resources.filter_map(move |bounds| {
        let scope = BoundScope {
            queue: name.to_owned(),
            resource: bounds["name"].as_str().unwrap_or_default().to_owned(),
            class: class.clone(),
            clusters: clusters.clone(),
        };
        let capability = &bounds["capability"];
        (!capability.is_null()).then(|| (scope, amount_of(capability)))
    })
}

/// A quota that cannot be read counts as zero: its queue admits no jobs.
fn amount_of(value: &Value) -> u128 {
    quantity::read(value).unwrap_or(0)
}

impl BoundScope {
    /// Returns the part of `held` that this scope limits.
    pub(super) fn of(&self, held: &HeldAmounts) -> u128 {
        match (&self.class, &self.clusters) {
            (Some(class), Some(clusters)) => held.in_clusters(clusters, class, &self.resource),
            (Some(class), None) if class == ALL_CLASSES => held.all(&self.resource),
            (Some(class), None) => held.of_class(class, &self.resource),
            (None, _) => held.all(&self.resource),
        }
    }
}

impl fmt::Display for BoundScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {}", self.queue)?;
        match (&self.class, &self.clusters) {
            (Some(class), Some(clusters)) => write!(f, " in {class} of {clusters:?}"),
            (Some(class), None) if class == ALL_CLASSES => write!(f, " by its policy"),
            (Some(class), None) => write!(f, " in {class}"),
            (None, _) => Ok(()),
        }
    }
}
