//! What the watches of the benchmark saw: when each binding was gated, admitted, placed, applied
//! and ended, and the usage of queues at every revision.
//!
//! A time is when the event arrived here. The benchmark reads Muster's record as any user can,
//! without code of Muster.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ledger::{BindingId, ChargeEntry, ChargeHistory};

const GPU: &str = "nvidia.com/gpu";

/// When each state of a binding was first seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct BindingSighting {
    pub(super) first: Instant,
    /// Gated for schedulers.
    pub(super) gated: Option<Instant>,
    /// Not gated, with clusters and a record that says Admitted.
    pub(super) admitted: Option<Instant>,
    /// Has clusters.
    pub(super) placed: Option<Instant>,
    /// All of its parts are dispatched.
    pub(super) dispatched: Option<Instant>,
    /// A Work of it was applied in its member.
    pub(super) applied: Option<Instant>,
    /// Its Work shows an end.
    pub(super) ended_in_work: Option<Instant>,
    /// Its status shows an end in all of its clusters.
    pub(super) ended: Option<Instant>,
}

/// A binding as an event shows it.
#[derive(Debug, Clone)]
pub(super) struct BindingNow {
    pub(super) id: BindingId,
    pub(super) revision: u64,
    pub(super) suspended: bool,
    pub(super) clusters: Vec<String>,
    /// The annotation with Muster's record, unparsed.
    pub(super) record: Option<String>,
    /// Clusters in which the status shows an end.
    pub(super) ended_in: Vec<String>,
}

/// A Work as an event shows it.
#[derive(Debug, Clone)]
pub(super) struct WorkNow {
    pub(super) binding: BindingId,
    pub(super) revision: u64,
    pub(super) applied: bool,
    pub(super) ended: bool,
}

/// The number of changes seen of each kind of object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangeCounts {
    pub(super) bindings: u64,
    pub(super) pod_groups: u64,
    pub(super) works: u64,
}

/// All observations.
#[derive(Debug)]
pub(super) struct Seen {
    bindings: HashMap<BindingId, BindingSighting>,
    pub(super) ledger: ChargeHistory,
    changes: ChangeCounts,
    last_change: Instant,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            bindings: HashMap::new(),
            ledger: ChargeHistory::default(),
            changes: ChangeCounts::default(),
            last_change: Instant::now(),
        }
    }
}

impl Seen {
    /// Notes a created or changed binding.
    pub(super) fn binding(&mut self, now: &BindingNow) {
        let at = self.changed();
        self.changes.bindings += 1;
        let record = now.record.as_deref().and_then(SeenRecord::read);
        let open = !now.suspended && !now.clusters.is_empty();
        let ended = !now.clusters.is_empty()
            && now
                .clusters
                .iter()
                .all(|cluster| now.ended_in.contains(cluster));
        let sighting = self
            .bindings
            .entry(now.id.clone())
            .or_insert_with(|| BindingSighting::new(at));
        let mark = |slot: &mut Option<Instant>, holds: bool| {
            if holds {
                slot.get_or_insert(at);
            }
        };
        mark(&mut sighting.gated, now.suspended);
        mark(&mut sighting.placed, !now.clusters.is_empty());
        mark(&mut sighting.ended, ended);
        let admitted = open
            && record
                .as_ref()
                .is_some_and(|record| record.state == "Admitted");
        mark(&mut sighting.admitted, admitted);
        let dispatched = record.as_ref().is_some_and(|record| record.dispatched);
        mark(&mut sighting.dispatched, admitted && dispatched);
        if let Some(record) = record {
            let entry = ChargeEntry::Charged {
                queue: record.queue,
                gpus: record.gpus,
                attempt: record.attempt,
                ended,
            };
            let holds = record.state != "Requeued" && record.state != "Refused";
            let entry = if holds { entry } else { ChargeEntry::Free };
            self.ledger.note(now.revision, now.id.clone(), entry);
        }
    }

    /// Notes a deleted binding.
    pub(super) fn binding_gone(&mut self, id: &BindingId, revision: u64) {
        self.changed();
        self.changes.bindings += 1;
        self.bindings.remove(id);
        self.ledger.note(revision, id.clone(), ChargeEntry::Free);
    }

    /// Notes a created or changed Work.
    pub(super) fn work(&mut self, now: &WorkNow) {
        let at = self.changed();
        self.changes.works += 1;
        if now.ended {
            self.ledger
                .note(now.revision, now.binding.clone(), ChargeEntry::Ended);
        }
        let Some(sighting) = self.bindings.get_mut(&now.binding) else {
            return;
        };
        if now.applied {
            sighting.applied.get_or_insert(at);
        }
        if now.ended {
            sighting.ended_in_work.get_or_insert(at);
        }
    }

    /// Notes a created, changed or deleted PodGroup.
    pub(super) fn pod_group(&mut self) {
        self.changed();
        self.changes.pod_groups += 1;
    }

    /// Returns the number of changes.
    pub(super) fn changes(&self) -> ChangeCounts {
        self.changes
    }

    /// Returns the time since the last change.
    pub(super) fn quiet_for(&self) -> Duration {
        self.last_change.elapsed()
    }

    /// Returns the bindings in a namespace.
    pub(super) fn of<'a>(
        &'a self,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a BindingId, &'a BindingSighting)> {
        let namespace = namespace.to_owned();
        self.bindings
            .iter()
            .filter(move |((in_namespace, _), _)| *in_namespace == namespace)
    }

    /// Returns one binding.
    pub(super) fn get(&self, id: &BindingId) -> Option<&BindingSighting> {
        self.bindings.get(id)
    }

    fn changed(&mut self) -> Instant {
        self.last_change = Instant::now();
        self.last_change
    }
}

impl BindingSighting {
    fn new(first: Instant) -> Self {
        Self {
            first,
            gated: None,
            admitted: None,
            placed: None,
            dispatched: None,
            applied: None,
            ended_in_work: None,
            ended: None,
        }
    }
}

/// The fields of Muster's record that the benchmark reads.
struct SeenRecord {
    state: String,
    queue: String,
    attempt: u64,
    gpus: u64,
    dispatched: bool,
}

impl SeenRecord {
    fn read(text: &str) -> Option<Self> {
        let record: Value = serde_json::from_str(text).ok()?;
        let clusters = record["clusters"].as_array().into_iter().flatten();
        let classes = clusters
            .filter_map(|cluster| cluster["charge"].as_object())
            .flatten();
        Some(Self {
            state: record["state"].as_str()?.to_owned(),
            queue: record["queue"].as_str()?.to_owned(),
            attempt: record["attempt"].as_u64()?,
            dispatched: record["parts"] == "Dispatched",
            gpus: classes.filter_map(|(_, charge)| gpus(&charge[GPU])).sum(),
        })
    }
}

/// Parses a quantity of devices, a whole number as text or number.
fn gpus(quantity: &Value) -> Option<u64> {
    quantity
        .as_u64()
        .or_else(|| quantity.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn record(state: &str) -> String {
        let charge = json!({"h100": {"cpu": "100m", GPU: "3"}, "a100": {GPU: 1}});
        json!({"state": state, "queue": "q", "attempt": 1, "clusters": [{"charge": charge}]})
            .to_string()
    }

    fn now(suspended: bool, clusters: &[&str], record: Option<String>) -> BindingNow {
        BindingNow {
            id: ("n".into(), "b".into()),
            revision: 1,
            suspended,
            clusters: clusters.iter().map(|&name| name.to_owned()).collect(),
            record,
            ended_in: Vec::new(),
        }
    }

    #[test]
    fn admitted_is_an_open_binding_with_clusters_and_a_record_that_says_so() {
        let cases = [
            ("gated", now(true, &[], None), false),
            (
                "gated with a record",
                now(true, &["m"], Some(record("Admitted"))),
                false,
            ),
            (
                "open without clusters",
                now(false, &[], Some(record("Admitted"))),
                false,
            ),
            (
                "open, evicted",
                now(false, &["m"], Some(record("Ending"))),
                false,
            ),
            (
                "open and placed without a record",
                now(false, &["m"], None),
                false,
            ),
            (
                "admitted",
                now(false, &["m"], Some(record("Admitted"))),
                true,
            ),
        ];
        for (what, now, admitted) in cases {
            let mut seen = Seen::default();
            seen.binding(&now);
            assert_eq!(
                seen.get(&now.id).unwrap().admitted.is_some(),
                admitted,
                "{what}"
            );
        }
    }

    #[test]
    fn a_record_charges_all_its_classes() {
        let read = SeenRecord::read(&record("Admitted")).unwrap();
        assert_eq!((read.gpus, read.attempt), (4, 1));
    }
}
