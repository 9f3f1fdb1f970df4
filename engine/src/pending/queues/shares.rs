//! The shares of users, by which the jobs of a queue come in turn.

use super::PendingQueues;
use crate::api::job::UserId;
use facts::QueueName;
use std::collections::BTreeMap;

impl PendingQueues {
    /// The users of a queue whose order is by users have these shares. Whether any has another than before.
    pub(crate) fn set_shares(&mut self, queue: &QueueName, shares: &BTreeMap<UserId, u64>) -> bool {
        let pending_queue = self.by_name.get_mut(queue);
        let moved = pending_queue.is_some_and(|pending_queue| pending_queue.set_shares(shares));
        if moved {
            self.note_changed(queue);
        }
        moved
    }
}
