//! Writes of bindings: collected during a pass, and submitted together at its end.

use binding_writer::{Committer, Intent};

/// The binding writes of this pass, and the committer that carries them out.
pub(crate) struct BindingWrites {
    committer: Committer,
    of_pass: Vec<Intent>,
}

impl BindingWrites {
    pub(crate) fn new(committer: Committer) -> Self {
        Self {
            committer,
            of_pass: Vec::new(),
        }
    }

    /// Adds a write to those of this pass.
    pub(super) fn add(&mut self, intent: Intent) {
        self.of_pass.push(intent);
    }

    /// Submits the writes of this pass.
    pub(crate) fn submit(&mut self) {
        if !self.of_pass.is_empty() {
            self.committer.submit(std::mem::take(&mut self.of_pass));
        }
    }
}
