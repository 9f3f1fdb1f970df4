//! Ranks the users of the queues whose order is by users, before a head is searched.

use crate::api::job::UserId;
use crate::cycle::react::{Change, react};
use crate::state::Engine;
use facts::QueueName;
use std::collections::{BTreeMap, BTreeSet};

/// Ranks the users of the queues about which something changed. It costs a step for each user with a charge, past
/// usage or pending jobs there, whatever is pending.
pub(crate) fn rank_users(engine: &mut Engine) {
    let changed = engine.pending.queues.changed().iter();
    let changed = changed.filter(|queue| engine.quota.orders_users(queue));
    let unranked = engine.quota.unranked_by_users();
    let queues: BTreeSet<QueueName> = changed.chain(unranked).cloned().collect();
    for queue in queues {
        engine.quota.rank_users(&queue);
        let pending_queue = engine.pending.queues.pending_queue(&queue);
        let users = pending_queue.into_iter().flat_map(|of| of.ranks().users());
        let share = |user| (user, engine.quota.user_share(&queue, user));
        let shares: BTreeMap<UserId, u64> = users.map(share).collect();
        if engine.pending.queues.set_shares(&queue, &shares) {
            react(engine, Change::UsersMoved(&queue));
        }
    }
}
