//! Decides until when workloads in a managed namespace are adopted.
//!
//! Workloads that run in a namespace when it is labelled run on and are charged as they are, even above the
//! quota of their queue. A user must not be able to obtain that later by removing marks from a binding. So
//! once all of them are recorded, Muster marks the Namespace (`muster.io/adopted-at`), which editors of a
//! namespace cannot change, and from then on a workload that was placed without an admission is evicted. No
//! clocks are compared: the mark exists or not, under any leader. A namespace that is no longer managed
//! loses the mark before its bindings are unmanaged, so that they are adopted when the label comes back.

use crate::messages::action::Effect;
use crate::mirror::Mirror;
use crate::reconcile::binding_phase::{BindingPhase, binding_phase};
use crate::reconcile::output::Output;
use engine::Time;
use std::collections::BTreeMap;

/// Milliseconds for which Muster looks for workloads in a newly managed namespace: the watch of bindings
/// may lag behind that of namespaces.
const ADOPTS_FOR_MS: i64 = 10_000;

/// Namespaces whose mark has to change, and when to try.
pub(crate) type Marking = BTreeMap<String, Time>;

/// Queues a namespace whose mark does not fit its label.
pub(crate) fn note_adoption(marking: &mut Marking, mirror: &Mirror, namespace: &str, now: Time) {
    let fact = mirror.namespaces().get(namespace);
    match fact.map(|fact| (fact.managed, fact.adopted, fact.terminating)) {
        Some((true, false, false)) => {
            let until = now.after(ADOPTS_FOR_MS);
            marking.entry(namespace.to_owned()).or_insert(until);
        }
        Some((false, true, false)) => _ = marking.insert(namespace.to_owned(), now),
        _ => _ = marking.remove(namespace),
    }
}

/// Marks the namespaces whose earlier workloads are all recorded, and removes the mark from namespaces
/// that are no longer managed.
pub(crate) fn mark_adopted(marking: &mut Marking, mirror: &Mirror, out: &mut Output, now: Time) {
    let due = marking.iter().filter(|(_, at)| **at <= now);
    let due: Vec<String> = due.map(|(namespace, _)| namespace.clone()).collect();
    for namespace in due {
        let fact = mirror.namespaces().get(&namespace);
        let managed = fact.is_some_and(|fact| fact.managed);
        let version = fact.and_then(|fact| fact.version.clone());
        if managed && adopts_in(mirror, &namespace) {
            marking.insert(namespace, now.after(1_000));
            continue;
        }
        let at = managed.then(|| crds::record::timestamp(now).to_string());
        out.push(Effect::MarkNamespace {
            namespace: namespace.clone(),
            version,
            adopted_at: at,
        });
        // Retried until the watch shows it.
        marking.insert(namespace, now.after(ADOPTS_FOR_MS));
    }
}

/// Returns true if a workload in the namespace has yet to be recorded.
fn adopts_in(mirror: &Mirror, namespace: &str) -> bool {
    let Some(rule) = mirror.namespaces().get(namespace).map(|fact| fact.rule()) else {
        return false;
    };
    mirror.jobs_in(namespace).iter().any(|key| {
        let binding = mirror.bindings().get(key);
        binding.is_some_and(|binding| binding_phase(binding, rule) == BindingPhase::ToAdopt)
    })
}
