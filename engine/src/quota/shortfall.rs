//! Shortfalls: bounds that a charge would exceed, and their messages.

use crate::amounts::totals::clamp;
use crate::api::charge::PoolSelector;
use crate::quota::store::Quota;
use facts::{Amount, ClusterName, PoolClass, QueueName, ResourceName};

/// A bound that a charge would exceed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortfall {
    /// The queue whose bound it is.
    pub(crate) queue: QueueName,
    /// The resource that is short.
    pub(crate) resource: ResourceName,
    pub(crate) capability: i128,
    pub(crate) charged: i128,
    pub(crate) needs: i128,
    pub(crate) detail: Box<ShortfallDetail>,
}

/// Details of a shortfall for its message and its requeue condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShortfallDetail {
    /// The pools that the bound counts; all for the queue's overall capability.
    pub(crate) pools: PoolSelector,
    /// The amount that reservations of jobs ahead withhold.
    pub(crate) withheld: i128,
    /// The amount by which the bound would be higher without guarantees of others.
    pub(crate) guaranteed: i128,
    /// The idle guarantees of the queues below it, with the charge.
    pub(crate) idle: i128,
    /// The part of the needs that exceeds the guarantees on the path below this queue.
    pub(crate) beyond: i128,
}

impl Shortfall {
    /// True if the charge would exceed the bound even with nothing charged.
    pub(crate) fn never(&self) -> bool {
        self.needs > self.capability
    }

    /// The class that it bounds; `None` for the queue's overall capability.
    pub(crate) fn class(&self) -> Option<&PoolClass> {
        self.detail.pools.class.as_ref()
    }

    /// True if charges in a pool count towards the bound.
    pub(crate) fn counts(&self, cluster: &ClusterName, class: &PoolClass) -> bool {
        self.detail.pools.counts(cluster, class)
    }

    /// The amount by which the charge would exceed the bound.
    pub(crate) fn excess(&self) -> i128 {
        let ShortfallDetail { withheld, idle, .. } = *self.detail;
        self.needs + self.charged + withheld + idle - self.capability
    }

    /// The free part of the bound, for messages.
    pub(crate) fn free(&self) -> Amount {
        let ShortfallDetail { withheld, idle, .. } = *self.detail;
        clamp((self.capability - self.charged - withheld - idle).max(0))
    }

    /// The message.
    pub(crate) fn message(&self, quota: &Quota) -> String {
        let text = |amount: i128| self.resource.format(clamp(amount));
        let ShortfallDetail {
            withheld,
            guaranteed,
            idle,
            ..
        } = *self.detail;
        let others = if guaranteed > 0 {
            format!(" ({} more is guaranteed to others)", text(guaranteed))
        } else {
            String::new()
        };
        let head = format!(
            "needs {} {}; queue {} may use {}{}{others}",
            self.resource,
            text(self.needs),
            self.queue,
            text(self.capability),
            self.scope(),
        );
        if self.never() {
            let until = if guaranteed > 0 {
                "have while that stands"
            } else {
                "ever have"
            };
            return format!(
                "{head}: {} more than it may {until}",
                text(self.needs - self.capability)
            );
        }
        let mut beside = String::new();
        if withheld > 0 {
            beside += &format!(" and {} kept for a job ahead", text(withheld));
        }
        if idle > 0 {
            let owners = quota.owners_of_idle_guarantees(self);
            beside += &format!(" and {} kept for {owners}", text(idle));
        }
        format!(
            "{head} and has {} charged{beside}: short by {}",
            text(self.charged),
            text(self.excess())
        )
    }

    /// The message that the charge exceeds the bound already.
    pub(super) fn exceeded(&self) -> String {
        let text = |amount: i128| self.resource.format(clamp(amount));
        format!(
            "queue {} may use {} {}{} and has {} charged",
            self.queue,
            self.resource,
            text(self.capability),
            self.scope(),
            text(self.charged),
        )
    }

    /// ` of class gpu in a, b`, or nothing.
    fn scope(&self) -> String {
        match self.class() {
            Some(_) => format!(" of class {}", self.detail.pools),
            None => String::new(),
        }
    }

    /// Keeps the shortfall to report: one that can never be met before others, then the one of the
    /// lowest queue, then the first by name.
    pub(super) fn keep_worse(found: &mut Option<Self>, short: Option<Self>) {
        let Some(short) = short else { return };
        let worse = found.as_ref().is_none_or(|known| {
            let same = short.never() == known.never() && short.queue == known.queue;
            let first =
                (&short.detail.pools, &short.resource) < (&known.detail.pools, &known.resource);
            (short.never() && !known.never()) || (same && first)
        });
        if worse {
            *found = Some(short);
        }
    }
}

impl Quota {
    /// `what queue g is guaranteed`, of the queues whose idle guarantees a bound includes.
    fn owners_of_idle_guarantees(&self, short: &Shortfall) -> String {
        const SHOWN: usize = 3;
        let at = self
            .id(&short.queue)
            .zip(self.resource_ids.find(&short.resource));
        let idle = at.and_then(|(id, resource)| {
            let scope = self.scope_of(short)?;
            Some(self.idle_below(id, scope, resource))
        });
        let owners = idle.into_iter().flatten();
        let mut names: Vec<&str> = owners.map(|(_, node)| node.name.as_str()).collect();
        let more = names.len().saturating_sub(SHOWN);
        names.truncate(SHOWN);
        let (what, are) = if names.len() + more == 1 {
            ("queue", "is")
        } else {
            ("queues", "are")
        };
        let names = names.join(", ");
        match more {
            0 => format!("what {what} {names} {are} guaranteed"),
            more => format!("what {what} {names} and {more} more {are} guaranteed"),
        }
    }
}
