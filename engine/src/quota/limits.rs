//! Limits of a queue: on the number of admitted jobs, of all and of each user, on what one user and one
//! namespace are charged, on the pending jobs that compete, and on run time.
//!
//! A limit holds at its queue for all jobs there and below. A job that is blocked by a limit does not count as
//! ahead of others: it gets no reservation, and no job waits behind it.

use crate::amounts::totals::clamp;
use crate::quota::owners::{ChargeOwner, Limited};
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::store::Quota;
use facts::{Limits, QueueName, Reason, ResourceName, Resources, counted};
use std::borrow::Cow;
use std::fmt;

/// A limit that a request would exceed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitReached {
    pub(crate) reason: Reason,
    /// The queue that has the limit.
    pub(crate) queue: QueueName,
    pub(crate) message: String,
    /// The resource that is limited; `None` for a number of jobs.
    pub(crate) resource: Option<ResourceName>,
    /// How much the request needs of what is limited.
    pub(crate) needs: i128,
    /// How much the limit leaves.
    pub(crate) free: i128,
}

/// Whether a charge is that of a user or of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerKind {
    User,
    Namespace,
}

/// A limit on the charge of one owner, and what the owner has of it.
struct OwnerLimit<'a> {
    kind: OwnerKind,
    owner: &'a str,
    queue: &'a QueueName,
    resource: &'a ResourceName,
    limit: i128,
    charged: i128,
}

/// What is asked for in a queue, and for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnedRequest<'a> {
    pub(crate) queue: &'a QueueName,
    pub(crate) owner: ChargeOwner<'a>,
    pub(crate) request: &'a Resources,
}

impl LimitReached {
    /// The pending limit of a queue, for the job at `position`.
    pub(crate) fn pending(queue: &QueueName, limit: u32, position: usize) -> Self {
        let message = format!(
            "queue {queue} lets {} compete; this one is number {position}",
            counted(limit, "pending job")
        );
        Self::of_jobs(Reason::PendingLimitReached, queue, message)
    }

    /// A limit on a number of jobs, which is reached.
    fn of_jobs(reason: Reason, queue: &QueueName, message: String) -> Self {
        Self {
            reason,
            queue: queue.clone(),
            message,
            resource: None,
            needs: 1,
            free: 0,
        }
    }

    /// True if the request alone is larger than the limit.
    pub(crate) fn never(&self) -> bool {
        self.reason == Reason::ExceedsLimit
    }
}

impl OwnerKind {
    fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Namespace => "namespace",
        }
    }
}

impl fmt::Display for OwnerLimit<'_> {
    /// `user ann has nvidia.com/gpu 6 of 8 in queue q`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [has, most] = [self.charged, self.limit].map(|of| self.resource.format(clamp(of)));
        write!(
            f,
            "{} {} has {} {has} of {most} in queue {}",
            self.kind.word(),
            self.owner,
            self.resource,
            self.queue
        )
    }
}

impl OwnerLimit<'_> {
    /// How much a request needs of what is limited.
    fn needs(&self, request: &Resources) -> i128 {
        i128::from(request.amount_of(self.resource).0)
    }

    /// Returns true if so much more would exceed the limit.
    fn is_exceeded_by(&self, needs: i128) -> bool {
        needs > 0 && self.charged + needs > self.limit
    }

    /// How a request exceeds the limit, if it does.
    fn reached(&self, needs: i128) -> Option<LimitReached> {
        if !self.is_exceeded_by(needs) {
            return None;
        }
        let text = |amount: i128| self.resource.format(clamp(amount));
        let reason = match self.kind {
            OwnerKind::User => Reason::UserResourceLimitReached,
            OwnerKind::Namespace => Reason::NamespaceResourceLimitReached,
        };
        let kind = self.kind.word();
        let head = format!(
            "needs {} {}; {kind} {} may use {} in queue {}",
            self.resource,
            text(needs),
            self.owner,
            text(self.limit),
            self.queue
        );
        let (reason, message) = if needs > self.limit {
            let more = text(needs - self.limit);
            let message = format!("{head}: {more} more than it may ever have");
            (Reason::ExceedsLimit, message)
        } else {
            let short = text(self.charged + needs - self.limit);
            let has = text(self.charged);
            (
                reason,
                format!("{head} and has {has} charged: short by {short}"),
            )
        };
        Some(LimitReached {
            reason,
            queue: self.queue.clone(),
            message,
            resource: Some(self.resource.clone()),
            needs,
            free: (self.limit - self.charged).max(0),
        })
    }
}

impl QueueNode {
    pub(super) fn limits(&self) -> Option<&Limits> {
        self.policy.as_ref().map(|policy| &policy.limits)
    }

    /// Returns which sums of owners it limits.
    pub(super) fn limited(&self) -> Limited {
        Limited::by(self.limits())
    }

    /// The limit on the jobs of one user, if `user` has reached it with `more` jobs.
    fn user_limit_reached(&self, user: &str, more: u32) -> Option<u32> {
        let limit = self.limits()?.jobs_per_user?;
        (self.charged_jobs_of(user).saturating_add(more) >= limit).then_some(limit)
    }

    fn charged_jobs_of(&self, user: &str) -> u32 {
        self.owners.jobs.get(user).copied().unwrap_or_default()
    }

    /// The limit on the number of all jobs, if it is reached with `more` jobs.
    fn all_jobs_limit_reached(&self, more: u32) -> Option<u32> {
        let limit = self.limits()?.jobs?;
        (self.counts.charged.saturating_add(more) >= limit).then_some(limit)
    }

    /// The limit on a number of jobs that is reached, if one is, with so many jobs of all and of the user more.
    fn job_limit_reached(&self, user: &str, [all, of_user]: [u32; 2]) -> Option<LimitReached> {
        let name = &self.name;
        if let Some(limit) = self.all_jobs_limit_reached(all) {
            let message = format!(
                "queue {name} may have {} and has {}",
                counted(limit, "admitted job"),
                self.counts.charged
            );
            return Some(LimitReached::of_jobs(
                Reason::JobLimitReached,
                name,
                message,
            ));
        }
        let limit = self.user_limit_reached(user, of_user)?;
        let has = self.charged_jobs_of(user);
        let message = format!(
            "user {user} may have {} in queue {name} and has {has}",
            counted(limit, "admitted job")
        );
        Some(LimitReached::of_jobs(
            Reason::UserJobLimitReached,
            name,
            message,
        ))
    }
}

impl Quota {
    /// Checks whether one more job may be admitted beside others that are not charged yet.
    ///
    /// # Errors
    /// The limit that would be exceeded: one that the job alone exceeds before others, else that of the lowest
    /// queue that has one.
    pub(crate) fn check_limits(
        &self,
        job: OwnedRequest<'_>,
        beside: &[OwnedRequest<'_>],
    ) -> Result<(), LimitReached> {
        let up = self.id(job.queue).map(|id| self.upwards(id));
        let reached = up.into_iter().flatten().flat_map(|(_, node)| {
            let others = beside.iter();
            let others = others.filter(|other| self.is_within(other.queue, &node.name));
            let more = others.fold([0, 0], |[all, of_user], other| {
                let is_of_user = other.owner.user == job.owner.user;
                [all + 1, of_user + u32::from(is_of_user)]
            });
            let jobs = node.job_limit_reached(job.owner.user, more);
            jobs.into_iter()
                .chain(self.owner_limits_reached(node, job, beside))
        });
        first_or_never(reached)
    }

    /// Checks whether this much more may be charged to an owner, as far as limits on owners go.
    ///
    /// # Errors
    /// As [`Self::check_limits`].
    pub(crate) fn check_owner(&self, more: OwnedRequest<'_>) -> Result<(), LimitReached> {
        let up = self.id(more.queue).map(|id| self.upwards(id));
        let reached = up.into_iter().flatten();
        first_or_never(reached.flat_map(|(_, node)| self.owner_limits_reached(node, more, &[])))
    }

    /// The limits of a queue on owners that a request would exceed beside others.
    fn owner_limits_reached<'a>(
        &'a self,
        node: &'a QueueNode,
        asked: OwnedRequest<'a>,
        beside: &'a [OwnedRequest<'a>],
    ) -> impl Iterator<Item = LimitReached> + 'a {
        self.owner_limits(node, asked.owner)
            .filter_map(move |mut of| {
                let alike = |other: &&OwnedRequest<'_>| match of.kind {
                    OwnerKind::User => other.owner.user == asked.owner.user,
                    OwnerKind::Namespace => other.owner.namespace == asked.owner.namespace,
                };
                let others = beside.iter().filter(alike);
                let others = others.filter(|other| self.is_within(other.queue, &node.name));
                let more: i128 = others.map(|other| of.needs(other.request)).sum();
                let needs = of.needs(asked.request);
                of.charged += more;
                of.reached(needs)
            })
    }

    /// The limits of a queue on an owner: those on the user, then those on the namespace, by resource.
    fn owner_limits<'a>(
        &'a self,
        node: &'a QueueNode,
        owner: ChargeOwner<'a>,
    ) -> impl Iterator<Item = OwnerLimit<'a>> + 'a {
        let owners = &node.owners;
        node.limits().into_iter().flat_map(move |limits| {
            let of_user = (OwnerKind::User, owner.user, owners.users.get(owner.user));
            let of_namespace = owners.namespaces.get(owner.namespace);
            let of_namespace = (OwnerKind::Namespace, owner.namespace, of_namespace);
            let limited = [
                (of_user, &limits.resources_per_user),
                (of_namespace, &limits.resources_per_namespace),
            ];
            let each = limited.into_iter();
            each.flat_map(move |((kind, owner, charged), limited)| {
                limited.iter().map(move |(resource, limit)| OwnerLimit {
                    kind,
                    owner,
                    queue: &node.name,
                    resource,
                    limit: i128::from(limit.0),
                    charged: charged
                        .zip(self.resource_ids.find(resource))
                        .map_or(0, |(charged, id)| charged.get(id)),
                })
            })
        })
    }

    /// Returns what an owner has of the limits on it, in the resources that are asked for, in words: those of the
    /// lowest queue first.
    pub(crate) fn use_of_limits(&self, asked: OwnedRequest<'_>) -> Vec<String> {
        let up = self.id(asked.queue).map(|id| self.upwards(id));
        let limits = up.into_iter().flatten();
        let limits = limits.flat_map(|(_, node)| self.owner_limits(node, asked.owner));
        let asks = |of: &OwnerLimit<'_>| asked.request.amount_of(of.resource).0 > 0;
        limits.filter(asks).map(|of| of.to_string()).collect()
    }

    /// Returns which owners the queue or one above it limits.
    pub(crate) fn limited_owners(&self, queue: &QueueName) -> Limited {
        let up = self.id(queue).into_iter().flat_map(|id| self.upwards(id));
        up.fold(Limited::NONE, |limited, (_, node)| {
            limited.or(node.limited())
        })
    }

    /// The queues that admit no further job: those in the subtree of the topmost queue on the path of `queue`
    /// whose limit on the number of all jobs is reached.
    pub(crate) fn queues_at_job_limit(&self, queue: &QueueName) -> Vec<&QueueName> {
        self.below_topmost(queue, |node| node.all_jobs_limit_reached(0).is_some())
    }

    /// The queues in which jobs of an owner with one of these requests are blocked by what is charged to it in
    /// `queue`: those in the subtree of the topmost queue on its path whose limits leave the owner no further
    /// job, or less than such a request. A request that is larger than a limit was blocked before.
    pub(crate) fn queues_at_owner_limit(
        &self,
        queue: &QueueName,
        owner: ChargeOwner<'_>,
        requests: &[Cow<'_, Resources>],
    ) -> Vec<&QueueName> {
        let leaves_less = |of: OwnerLimit<'_>| {
            let needs = requests.iter().map(|request| of.needs(request));
            let mut needs = needs.filter(|needs| *needs <= of.limit);
            needs.any(|needs| of.is_exceeded_by(needs))
        };
        self.below_topmost(queue, |node| {
            let is_reached = || {
                node.user_limit_reached(owner.user, 0).is_some()
                    || self.owner_limits(node, owner).any(&leaves_less)
            };
            !requests.is_empty() && is_reached()
        })
    }

    /// The queues in the subtree of the topmost queue on the path of `queue` of which something holds; none if
    /// it holds of none.
    fn below_topmost(
        &self,
        queue: &QueueName,
        holds: impl Fn(&QueueNode) -> bool,
    ) -> Vec<&QueueName> {
        let up = self.id(queue).into_iter().flat_map(|id| self.upwards(id));
        let topmost = up.filter(|(_, node)| holds(node)).last();
        let below = topmost.map(|(id, _)| self.subtree(id));
        let below = below.into_iter().flatten();
        below.map(|id| &self.node(id).name).collect()
    }

    /// The number of pending jobs of a queue that may compete, if it is limited.
    pub(crate) fn pending_limit(&self, queue: &QueueName) -> Option<u32> {
        self.policy(queue)?.limits.pending
    }

    /// The longest run time of a job of the queue in milliseconds, and the queue that has this
    /// limit: the lowest limit on the path.
    pub(crate) fn runtime_limit(&self, queue: &QueueName) -> Option<(i64, &QueueName)> {
        let up = self.upwards(self.id(queue).unwrap_or(QueueId::ROOT));
        let limits = up.filter_map(|(_, node)| {
            let limit = node.limits()?.runtime_ms?;
            Some((limit.max(0), &node.name))
        });
        limits.min_by_key(|(limit, _)| *limit)
    }
}

/// The first of these limits that the request alone exceeds, or else the first.
fn first_or_never(mut reached: impl Iterator<Item = LimitReached>) -> Result<(), LimitReached> {
    let Some(first) = reached.next() else {
        return Ok(());
    };
    if first.never() {
        return Err(first);
    }
    Err(reached.find(LimitReached::never).unwrap_or(first))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::api::charge::Pools;
    use crate::quota::testing::{ann, policy, queue};
    use facts::{ClusterName, PolicyFact, PoolClass};

    fn gpus(count: &str) -> Resources {
        Resources::parse([("nvidia.com/gpu", count)]).unwrap()
    }

    /// A charge wakes jobs in the queues below a limit only where the limit leaves less than one of them needs.
    #[test]
    fn a_limit_that_leaves_enough_names_no_queue() {
        let [dept, low, other] = ["dept", "low", "other"].map(QueueName::from);
        let mut quota = Quota::default();
        for (name, parent) in [(&dept, None), (&low, Some(&dept)), (&other, Some(&dept))] {
            quota.set_fact(name, Some(queue(name, parent)));
        }
        let limit = |jobs_per_user| PolicyFact {
            limits: Limits {
                jobs_per_user,
                resources_per_user: gpus("8"),
                ..Limits::default()
            },
            ..policy(&dept)
        };
        quota.set_policy(&dept, Some(limit(None)));
        let place = (ClusterName::from("a"), PoolClass::from("gpu"));
        quota.charge(&low, ann(), &Pools::from([(place, gpus("4"))]), 1);
        quota.hold(&low, ann().user, 1);
        let named = |quota: &Quota, requests: &[&str]| {
            let requests = requests.iter().map(|count| Cow::Owned(gpus(count)));
            let requests: Vec<Cow<'_, Resources>> = requests.collect();
            let queues = quota.queues_at_owner_limit(&low, ann(), &requests);
            queues.into_iter().cloned().collect::<Vec<_>>()
        };
        let none = Vec::<QueueName>::new();
        let all = [dept.clone(), low.clone(), other.clone()];
        assert_eq!(named(&quota, &["1", "4"]), none);
        assert_eq!(named(&quota, &["1", "5"]), all);
        // It is larger than the limit, and was blocked before.
        assert_eq!(named(&quota, &["9"]), none);
        quota.set_policy(&dept, Some(limit(Some(2))));
        assert_eq!(named(&quota, &["1"]), none);
        quota.set_policy(&dept, Some(limit(Some(1))));
        assert_eq!(named(&quota, &["1"]), all);
        assert_eq!(named(&quota, &[]), none);
    }
}
