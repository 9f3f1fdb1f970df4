//! Hands the actions of a reconcile to those that carry them out.

use crate::core::Core;
use crate::messages::action::{Publication, ReconcileAction};

impl Core {
    /// Carries out the actions since the last call, in order.
    pub(crate) fn run_actions(&mut self) {
        let actions = self.reconciler.take_actions();
        self.run(actions);
    }

    /// Carries out `actions`, in order.
    pub(crate) fn run(&mut self, actions: Vec<ReconcileAction>) {
        for action in actions {
            match action {
                ReconcileAction::Publish(Publication::Job(key)) => self.publisher.due.job(&key),
                ReconcileAction::Publish(Publication::Queue(name)) => {
                    self.publisher.due.queue(&name)
                }
                ReconcileAction::Publish(Publication::FaultPolicy(name)) => {
                    self.publisher.due.fault_policy(&name);
                }
                ReconcileAction::Publish(Publication::Gone(key)) => {
                    self.publisher.forget(&key, self.now());
                    self.sweep_podgroup(&key);
                }
                ReconcileAction::WatchTemplates(kind) => self.watch_kind(kind),
                ReconcileAction::Effect(effect) => self.effects.run(effect),
            }
        }
    }
}
