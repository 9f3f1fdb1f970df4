//! What is said of a bound that a charge would exceed.

use crate::amounts::quantity::Amount;
use crate::amounts::resources::ResourceName;
use crate::amounts::totals::clamp;
use crate::api::ids::{ClusterName, PoolClass, QueueName};
use crate::quota::store::Quota;
use std::collections::BTreeSet;

/// A bound that a charge would exceed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortfall {
    /// The queue whose bound it is.
    pub(crate) queue: QueueName,
    /// The class that it bounds; `None` for the queue's overall capability.
    pub(crate) class: Option<PoolClass>,
    /// The resource that is short.
    pub(crate) resource: ResourceName,
    pub(crate) capability: i128,
    pub(crate) charged: i128,
    pub(crate) needs: i128,
    pub(crate) detail: Box<ShortfallDetail>,
}

/// What else there is to say of a bound that a charge would exceed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShortfallDetail {
    /// Withheld for jobs further ahead.
    pub(crate) withheld: i128,
    /// The clusters that it counts together; `None` for all.
    pub(crate) clusters: Option<BTreeSet<ClusterName>>,
    /// What it would allow more if nothing were guaranteed to others.
    pub(crate) guaranteed: i128,
    /// Idle guarantees of the queues below it, with the charge.
    pub(crate) idle: i128,
    /// What of the needs is not guaranteed on the way down to the request.
    pub(crate) beyond: i128,
}

impl Shortfall {
    /// True if the charge would exceed the bound even with nothing charged.
    pub(crate) fn never(&self) -> bool {
        self.needs > self.capability
    }

    /// True if what is charged in a pool counts towards the bound.
    pub(crate) fn counts(&self, cluster: &ClusterName, class: &PoolClass) -> bool {
        let clusters = self.detail.clusters.as_ref();
        self.class.as_ref().is_none_or(|bounded| bounded == class)
            && clusters.is_none_or(|clusters| clusters.contains(cluster))
    }

    /// How much more than the bound there would be.
    pub(crate) fn excess(&self) -> i128 {
        let ShortfallDetail { withheld, idle, .. } = *self.detail;
        self.needs + self.charged + withheld + idle - self.capability
    }

    /// What is free of the bound, for people.
    pub(crate) fn free(&self) -> Amount {
        let ShortfallDetail { withheld, idle, .. } = *self.detail;
        clamp((self.capability - self.charged - withheld - idle).max(0))
    }

    /// In words.
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

    /// That what is charged exceeds the bound already, in words.
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
        let Some(class) = &self.class else {
            return String::new();
        };
        let clusters = self.detail.clusters.iter().flatten();
        let clusters: Vec<&str> = clusters.map(ClusterName::as_str).collect();
        let among = if clusters.is_empty() { "" } else { " in " };
        format!(" of class {class}{among}{}", clusters.join(", "))
    }

    /// Keeps the one to report: one that can never be met before one that is met later, else the
    /// one nearest to the leaf, else the first by name.
    pub(super) fn keep_worse(found: &mut Option<Self>, short: Option<Self>) {
        let Some(short) = short else { return };
        let worse = found.as_ref().is_none_or(|known| {
            let same = short.never() == known.never() && short.queue == known.queue;
            let by_name = |short: &Self| {
                let clusters = short.detail.clusters.clone();
                (short.class.clone(), clusters, short.resource.clone())
            };
            (short.never() && !known.never()) || (same && by_name(&short) < by_name(known))
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
