//! Hands the actions of a reconcile to those that carry them out: what jobs and queues show to the publisher, all else
//! to the effects.

use crate::core::Core;
use crate::messages::action::ReconcileAction;

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
                ReconcileAction::PublishJob(key) => self.publisher.job(&key),
                ReconcileAction::PublishQueue(name) => self.publisher.queue(&name),
                ReconcileAction::PublishFaultPolicy(name) => self.publisher.fault_policy(&name),
                ReconcileAction::ForgetJob(key) => {
                    self.publisher.forget(&key, self.now());
                    self.sweep_podgroup(&key);
                }
                ReconcileAction::WatchTemplates(kind) => self.watch_kind(kind),
                action => self.effects.run(action),
            }
        }
    }
}
