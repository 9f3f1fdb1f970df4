//! Warns the users of objects that no policy selects: kinds that start pods and that Muster's policy of a
//! managed namespace leaves out. Without a warning nothing would ever say why such an object does not start.

use crate::messages::action::Effect;
use crate::messages::job_event::JobEvent;
use crate::mirror::Mirror;
use crate::mirror::template::{Template, TemplateKey};
use crate::status::Publishing;
use crds::karmada::ObjectReference;
use engine::{Reason, Time, Uid};
use std::collections::{BTreeSet, HashSet};

/// Milliseconds within which Karmada should have selected an object, or its user should have written a policy.
const SELECTED_WITHIN_MS: i64 = 5_000;
/// Most objects that are remembered as warned about.
const REMEMBERED: usize = 10_000;

/// The objects to warn about.
#[derive(Debug, Default)]
pub(crate) struct Unselected {
    due: BTreeSet<(Time, TemplateKey)>,
    warned: HashSet<Uid>,
}

impl Unselected {
    /// Returns when the next object is looked at.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    fn take_due(&mut self, now: Time) -> Vec<TemplateKey> {
        let mut keys = Vec::new();
        while self.next_due().is_some_and(|at| at <= now)
            && let Some((_, key)) = self.due.pop_first()
        {
            keys.push(key);
        }
        keys
    }

    /// Notes that an object gets its warning; returns false if it has had it.
    fn warn(&mut self, uid: &Uid) -> bool {
        if self.warned.len() >= REMEMBERED {
            self.warned.clear();
        }
        self.warned.insert(uid.clone())
    }
}

impl Publishing<'_> {
    /// Notes an object that may have to be warned about.
    pub(crate) fn note_unselected(&mut self, key: &TemplateKey, now: Time) {
        let advice = unselected(&self.reconciler.mirror, key);
        if advice
            .is_some_and(|(template, _)| !self.publisher.unselected.warned.contains(&template.uid))
        {
            let at = now.after(SELECTED_WITHIN_MS);
            self.publisher.unselected.due.insert((at, key.clone()));
        }
    }

    /// Does the same for all objects in a namespace.
    pub(crate) fn note_unselected_in(&mut self, namespace: &str, now: Time) {
        let templates = self.reconciler.mirror.templates().keys();
        let here = templates.filter(|key| key.namespace == namespace);
        for key in here.cloned().collect::<Vec<_>>() {
            self.note_unselected(&key, now);
        }
    }

    /// Warns about the objects that no policy has selected in time.
    pub(crate) fn warn_of_unselected(&mut self, now: Time) {
        for key in self.publisher.unselected.take_due(now) {
            let Some((template, advice)) = unselected(&self.reconciler.mirror, &key) else {
                continue;
            };
            let object = template.reference();
            if self.publisher.unselected.warn(&template.uid) {
                let event = event(&object, &advice);
                self.reconciler
                    .out
                    .push(Effect::RecordEvent { object, event });
            }
        }
    }
}

fn event(object: &ObjectReference, advice: &str) -> JobEvent {
    let message = format!(
        "no PropagationPolicy selects this {}: it is neither queued nor started; {advice}",
        object.kind
    );
    JobEvent::warning(Reason::KindNotSelected, "Select", message)
}

/// Returns an object that no policy selects, with what its user can do; `None` if a policy has selected it,
/// its namespace is not managed, its kind starts no pods, or another object controls it.
fn unselected<'a>(mirror: &'a Mirror, key: &TemplateKey) -> Option<(&'a Template, String)> {
    let template = mirror.templates().get(key)?;
    let namespace = mirror.namespaces().get(&key.namespace)?;
    if !namespace.managed
        || template.deleting
        || template.selected
        || template.controlled
        || mirror.job_of_template(key).is_some()
    {
        return None;
    }
    let advice = workload::unselected_advice(&key.kind.api_version, &key.kind.kind)?;
    Some((template, advice))
}
