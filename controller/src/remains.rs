//! What is left of jobs whose bindings are gone.
//!
//! Our finalizer keeps a binding until its Works are gone. Whoever takes it off in the moment of a
//! deletion has the binding gone before them; their pods run on until the members have removed
//! them, and stay charged until then. A job of the same name waits for that.

use crate::core::Core;
use crate::standing::Standing;
use engine::{Event, JobKey, Reason, Time};
use scheduler::commit::Write;

/// Milliseconds between two looks.
const LOOK_MS: i64 = 1_000;

impl Core {
    /// Whether the job, whose binding goes, has Works left that it is charged for. If so they are
    /// remembered.
    pub(crate) fn has_remains(&mut self, key: &JobKey) -> bool {
        if self.remains.contains_key(key) {
            return true;
        }
        let Some(binding) = self.world.bindings.get(key) else {
            return false;
        };
        let charged = self
            .engine
            .job(key)
            .is_some_and(|job| job.admission.is_some());
        if !charged || !self.waits_for_works(binding) {
            return false;
        }
        let Some(id) = crate::world::permanent_id(binding) else {
            return false;
        };
        self.remains.insert(key.clone(), id.to_owned());
        true
    }

    /// Whether what is left of an earlier binding of this name is waited for.
    pub(crate) fn waits_for_remains(&mut self, key: &JobKey, now: Time) -> bool {
        let Some(id) = self.remains.get(key).cloned() else {
            return false;
        };
        let mut left = self.world.works_with(&id);
        let waits = left.any(|work| !self.is_given_up(work));
        drop(left);
        if !waits {
            self.remains.remove(key);
            self.forget(key);
            return false;
        }
        let message = "its binding is gone; it is charged until its Works are";
        self.tell(Event::JobEnding {
            key: key.clone(),
            reason: Reason::Deleting,
            message: message.to_owned(),
            avoid: None,
            at: now,
        });
        self.look_again(key, now.after(LOOK_MS));
        self.gate_successor(key);
        true
    }

    /// A new job of the name is kept gated meanwhile.
    fn gate_successor(&mut self, key: &JobKey) {
        let Some(binding) = self.world.bindings.get(key).cloned() else {
            return;
        };
        let rule = self.namespace_of(key).rule();
        let ungated = crate::standing::standing(&binding, rule);
        let open = self.tracks.get(key).is_some_and(|track| track.is_open());
        if matches!(ungated, Standing::Ungated { .. }) && !open {
            self.write(key, &binding, Write::Hold);
        }
    }
}
