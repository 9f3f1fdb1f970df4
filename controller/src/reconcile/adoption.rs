//! Until when what runs in a managed namespace is adopted.
//!
//! What runs in a namespace when it is labelled runs on and is charged as it is, over the bound of
//! its queue if need be. That may not be had again later by taking marks off a binding. So once all
//! that ran there is recorded the Namespace is marked (`muster.io/adopted-at`), which those who may
//! edit what is in a namespace may not do, and from then on what is found placed without an
//! admission is evicted. No clock is compared with another: the mark is there or is not, any leader
//! leads. A namespace that is managed no longer loses the mark before anything in it is unmanaged, so
//! that what is unmanaged is adopted when the label comes back.

use crate::reconcile::Reconciler;
use crate::reconcile::action::ReconcileAction;
use crate::reconcile::binding_phase::{BindingPhase, binding_phase};
use engine::Time;
use std::collections::BTreeMap;

/// Milliseconds for which a namespace that is managed from now on is looked through for what runs
/// there: the watch of bindings may be behind that of namespaces.
const ADOPTS_FOR_MS: i64 = 10_000;

/// Namespaces whose mark is to change, and when to try.
pub(crate) type Marking = BTreeMap<String, Time>;

impl Reconciler {
    /// Notes a namespace whose mark does not fit its label.
    pub(crate) fn note_adoption(&mut self, namespace: &str, now: Time) {
        let fact = self.mirror.namespaces().get(namespace);
        match fact.map(|fact| (fact.managed, fact.adopted, fact.terminating)) {
            Some((true, false, false)) => {
                let until = now.after(ADOPTS_FOR_MS);
                self.marking.entry(namespace.to_owned()).or_insert(until);
            }
            Some((false, true, false)) => _ = self.marking.insert(namespace.to_owned(), now),
            _ => _ = self.marking.remove(namespace),
        }
    }

    /// Marks the namespaces in which all that ran before is recorded, and takes the mark off those
    /// that are managed no longer.
    pub(crate) fn mark_adopted(&mut self, now: Time) {
        let due = self.marking.iter().filter(|(_, at)| **at <= now);
        let due: Vec<String> = due.map(|(namespace, _)| namespace.clone()).collect();
        for namespace in due {
            let fact = self.mirror.namespaces().get(&namespace);
            let managed = fact.is_some_and(|fact| fact.managed);
            let version = fact.and_then(|fact| fact.version.clone());
            if managed && self.adopts_in(&namespace) {
                self.marking.insert(namespace, now.after(1_000));
                continue;
            }
            let at = managed.then(|| crds::record::timestamp(now).to_string());
            self.push(ReconcileAction::MarkNamespace {
                namespace: namespace.clone(),
                version,
                adopted_at: at,
            });
            // Until the watch shows it.
            self.marking.insert(namespace, now.after(ADOPTS_FOR_MS));
        }
    }

    /// Whether something in the namespace has yet to be recorded.
    fn adopts_in(&self, namespace: &str) -> bool {
        let Some(rule) = self
            .mirror
            .namespaces()
            .get(namespace)
            .map(|fact| fact.rule())
        else {
            return false;
        };
        self.mirror.jobs_in(namespace).iter().any(|key| {
            let binding = self.mirror.bindings().get(key);
            binding.is_some_and(|binding| binding_phase(binding, rule) == BindingPhase::ToAdopt)
        })
    }
}
