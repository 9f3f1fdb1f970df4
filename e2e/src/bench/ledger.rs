//! The usage of queues at each revision, from the records on bindings. It shows whether a quota was
//! ever exceeded.
//!
//! Bindings and Works come by two watches that are not synchronized, but the store's revisions
//! order them: entries are sorted by revision before they are added up.

use std::collections::HashMap;

/// The namespace and name of a binding.
pub(super) type BindingId = (String, String);

/// The effect of a revision of a binding or of its Work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChargeEntry {
    /// The binding's record charges a queue.
    Charged {
        queue: String,
        gpus: u64,
        attempt: u64,
        /// True if its status shows an end, which ends the charge.
        ended: bool,
    },
    /// The binding's Work shows an end.
    Ended,
    /// The binding charges no queue.
    Free,
}

/// Entries in the order in which they arrived.
#[derive(Debug, Default)]
pub(super) struct ChargeHistory(Vec<(u64, BindingId, ChargeEntry)>);

#[derive(Debug, Clone)]
struct Charge {
    queue: String,
    gpus: u64,
    attempt: u64,
    ended: bool,
}

impl ChargeHistory {
    /// Adds what `revision` shows of a binding.
    pub(super) fn note(&mut self, revision: u64, id: BindingId, entry: ChargeEntry) {
        self.0.push((revision, id, entry));
    }

    /// Returns the most GPUs that `queue` was charged at any revision.
    pub(super) fn peak(&self, queue: &str) -> u64 {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by_key(|(revision, _, _)| *revision);
        let mut charges: HashMap<&BindingId, Charge> = HashMap::new();
        let (mut held, mut peak) = (0_u64, 0_u64);
        for (_, id, entry) in entries {
            let before = charges.get(id).map_or(0, |charge| charge.held(queue));
            let after = apply(&mut charges, id, entry).held(queue);
            held = held + after - before;
            peak = peak.max(held);
        }
        peak
    }
}

fn apply<'a>(
    charges: &mut HashMap<&'a BindingId, Charge>,
    id: &'a BindingId,
    entry: &ChargeEntry,
) -> Charge {
    let nothing = || Charge {
        queue: String::new(),
        gpus: 0,
        attempt: 0,
        ended: false,
    };
    let charge = charges.entry(id).or_insert_with(nothing);
    match entry {
        ChargeEntry::Charged {
            queue,
            gpus,
            attempt,
            ended,
        } => {
            // An end holds until a later attempt begins, because statuses are cleared again.
            let ended = *ended || (charge.ended && charge.attempt == *attempt);
            *charge = Charge {
                queue: queue.clone(),
                gpus: *gpus,
                attempt: *attempt,
                ended,
            };
        }
        ChargeEntry::Ended => charge.ended = true,
        ChargeEntry::Free => *charge = nothing(),
    }
    charge.clone()
}

impl Charge {
    fn held(&self, queue: &str) -> u64 {
        if self.ended || self.queue != queue {
            0
        } else {
            self.gpus
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> BindingId {
        ("n".into(), name.into())
    }

    fn charged(attempt: u64, ended: bool) -> ChargeEntry {
        ChargeEntry::Charged {
            queue: "q".into(),
            gpus: 1,
            attempt,
            ended,
        }
    }

    #[test]
    fn the_store_orders_what_arrives_out_of_step() {
        let mut ledger = ChargeHistory::default();
        ledger.note(1, id("a"), charged(1, false));
        // The watch shows the next binding before the end that freed its quota.
        ledger.note(3, id("b"), charged(1, false));
        ledger.note(2, id("a"), ChargeEntry::Ended);
        ledger.note(4, id("a"), charged(1, true));
        assert_eq!(ledger.peak("q"), 1);
    }

    #[test]
    fn too_much_for_a_moment_is_seen() {
        let mut ledger = ChargeHistory::default();
        ledger.note(1, id("a"), charged(1, false));
        ledger.note(2, id("b"), charged(1, false));
        ledger.note(3, id("b"), ChargeEntry::Free);
        assert_eq!((ledger.peak("q"), ledger.peak("other")), (2, 0));
    }

    #[test]
    fn a_later_attempt_is_charged_again() {
        let mut ledger = ChargeHistory::default();
        ledger.note(1, id("a"), charged(1, true));
        ledger.note(2, id("a"), charged(1, false));
        assert_eq!(ledger.peak("q"), 0);
        ledger.note(3, id("a"), charged(2, false));
        assert_eq!(ledger.peak("q"), 1);
    }
}
