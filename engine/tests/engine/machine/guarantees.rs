//! S1 by guarantees: an idle guarantee is withheld for its queue, even from all others together.
//!
//! It is checked overall, and for each class in all clusters or in those that a policy names,
//! computed from the objects of queues, policies and nodes and from the admissions. At each queue
//! and at the root, the charge and the idle guarantees of the children are together at most the
//! real capability, or at most what they were before. (They may be more after a change of a bound
//! or the loss of a cluster: then no job is admitted that adds to them.) The real capability is
//! computed, too, and compared with the engine's.

use super::model::Model;
use engine::facts::{Admission, PoolBound};
use engine::{ClusterName, PoolClass, QueueName, Reason, ResourceName, Resources};
use std::collections::{BTreeMap, BTreeSet};

/// A scope: a class in all clusters, or in these; `None` for all pools.
type Counted = Option<(PoolClass, Option<BTreeSet<ClusterName>>)>;

/// Charges and idle guarantees at each queue with children, and at the root.
pub type Committed = BTreeMap<At, i64>;

/// A resource of one account.
type At = (Counted, ResourceName, QueueName);

/// The children of each queue and of the root; queues that are on a circle, or whose parent does
/// not exist, are below the root.
type Below = BTreeMap<QueueName, Vec<QueueName>>;

/// One resource of one account of each queue.
struct Accounts<'a> {
    model: &'a Model,
    below: &'a Below,
    counted: &'a Counted,
    resource: &'a ResourceName,
    /// Invalid queues have no quota.
    wrong: &'a BTreeSet<QueueName>,
    held: BTreeMap<QueueName, i64>,
}

fn root() -> QueueName {
    QueueName::from("root")
}

fn counts(counted: &Counted, cluster: &ClusterName, class: &PoolClass) -> bool {
    counted.as_ref().is_none_or(|(of, clusters)| {
        let named = clusters.as_ref();
        of == class && named.is_none_or(|named| named.contains(cluster))
    })
}

impl Model {
    pub fn committed(&self) -> Committed {
        self.each_account(|_, _| {})
    }

    /// Checks one decision.
    pub fn check_guarantees(&self, before: &Committed) -> Committed {
        self.each_account(|accounts, (at, now)| {
            let was = before.get(at).copied().unwrap_or(0);
            let most = accounts.real(&at.2).map(|most| most.max(was));
            assert!(
                most.is_none_or(|most| now <= most),
                "{now} held or guaranteed of {most:?}, before {was}: {at:?}"
            );
        })
    }

    fn each_account(&self, check: impl Fn(&Accounts<'_>, (&At, i64))) -> Committed {
        let (below, wrong) = (self.tree_below(), self.wrong_queues());
        let mut committed = Committed::new();
        for (counted, resource) in self.guaranteed_somewhere() {
            let accounts = Accounts::new(self, &below, (&counted, &resource), &wrong);
            for name in below.keys() {
                let at = (counted.clone(), resource.clone(), name.clone());
                let now = accounts.held(name) + accounts.idle_below(name);
                check(&accounts, (&at, now));
                committed.insert(at, now);
            }
        }
        committed
    }

    /// Compares the real capabilities with the engine's, where there is a guarantee.
    pub fn check_real_capability(&self) {
        let (below, wrong) = (self.tree_below(), self.wrong_queues());
        for (counted, resource) in self.guaranteed_somewhere() {
            let accounts = Accounts::new(self, &below, (&counted, &resource), &wrong);
            let fine = |name: &&QueueName| !self.path(name).iter().any(|at| wrong.contains(at));
            for name in self.queues.keys().filter(fine) {
                let usage = self.engine.queue_usage(name).unwrap();
                let of_bounds = self.bounds(name, &counted).map(|(index, _)| index);
                let told: Vec<&Resources> = match counted {
                    None => vec![&usage.real_capability],
                    Some(_) => of_bounds
                        .map(|index| &usage.pools[index].real_capability)
                        .collect(),
                };
                for told in told {
                    let told = told.get(&resource).map(|told| told.0);
                    let found = accounts.real(name);
                    assert_eq!(told, found, "{name} in {resource}: {counted:?}");
                }
            }
        }
    }

    /// The accounts in which any queue has a guarantee.
    fn guaranteed_somewhere(&self) -> BTreeSet<(Counted, ResourceName)> {
        let over_all = self.queues.values().map(|fact| (None, &fact.guarantee));
        let policies = self.policies.values();
        let bounds = policies.flat_map(|policy| &policy.pools);
        let of_pools = bounds.map(|bound| {
            let counted = Some((bound.class.clone(), bound.clusters.clone()));
            (counted, &bound.guarantee)
        });
        let guarantees = over_all.chain(of_pools);
        guarantees
            .flat_map(|(counted, guarantee)| {
                let named = guarantee.iter().map(|(resource, _)| resource.clone());
                named.map(move |resource| (counted.clone(), resource))
            })
            .collect()
    }

    /// The bounds of a queue in a scope, by their index in its policy.
    fn bounds(
        &self,
        queue: &QueueName,
        counted: &Counted,
    ) -> impl Iterator<Item = (usize, &PoolBound)> {
        let policy = self.policies.get(queue).into_iter();
        let bounds = policy.flat_map(|policy| policy.pools.iter().enumerate());
        bounds.filter(move |(_, bound)| {
            let counted = counted.as_ref();
            counted.is_some_and(|(class, clusters)| {
                (&bound.class, &bound.clusters) == (class, clusters)
            })
        })
    }

    fn tree_below(&self) -> Below {
        let mut below = Below::from([(root(), Vec::new())]);
        for name in self.queues.keys().filter(|name| **name != root()) {
            let parent = self.parent_of(name).unwrap_or_else(root);
            below.entry(parent).or_default().push(name.clone());
        }
        below
    }

    fn wrong_queues(&self) -> BTreeSet<QueueName> {
        let wrong = self.queues.keys().filter(|name| self.is_wrong(name));
        wrong.cloned().collect()
    }

    /// Returns true if the queue itself is invalid, whatever its ancestors are.
    fn is_wrong(&self, queue: &QueueName) -> bool {
        let usage = self.engine.queue_usage(queue);
        let closed = usage.and_then(|usage| usage.closed);
        closed.is_some_and(|(reason, why)| {
            let itself = [":", " names", " is below itself"];
            let itself = itself.map(|how| format!("queue {queue}{how}"));
            reason == Reason::QueueInvalid && itself.iter().any(|own| why.starts_with(own))
        })
    }

    /// The total of the usable nodes in a scope.
    fn fleet_of(&self, counted: &Counted, resource: &ResourceName) -> i64 {
        let nodes = self.nodes.values().filter(|node| {
            let cluster = self.clusters.get(&node.cluster);
            node.usable
                && cluster.is_some_and(|cluster| cluster.usable)
                && counts(counted, &node.cluster, &node.class)
        });
        nodes
            .map(|node| node.allocatable.amount_of(resource).0)
            .sum()
    }
}

impl<'a> Accounts<'a> {
    fn new(
        model: &'a Model,
        below: &'a Below,
        (counted, resource): (&'a Counted, &'a ResourceName),
        wrong: &'a BTreeSet<QueueName>,
    ) -> Self {
        let mut held: BTreeMap<QueueName, i64> = BTreeMap::new();
        for granted in model.charged_to_jobs() {
            let charge = within(granted, counted, resource);
            let path = model.path(&granted.queue).into_iter();
            for queue in path.filter(|queue| *queue != root()).chain([root()]) {
                *held.entry(queue).or_default() += charge;
            }
        }
        Self {
            model,
            below,
            counted,
            resource,
            wrong,
            held,
        }
    }

    fn held(&self, queue: &QueueName) -> i64 {
        self.held.get(queue).copied().unwrap_or(0)
    }

    fn directly_below(&self, queue: &QueueName) -> impl Iterator<Item = &QueueName> {
        self.below.get(queue).into_iter().flatten()
    }

    /// The guarantee and the capability of a queue in a scope: the largest of its guarantees, and
    /// the smallest of its capabilities.
    fn named(&self, queue: &QueueName) -> (Option<i64>, Option<i64>) {
        let of = |resources: &Resources| resources.get(self.resource).map(|amount| amount.0);
        if self.counted.is_none() {
            let fact = self.model.queues.get(queue);
            let amounts = fact.map(|fact| (of(&fact.guarantee), of(&fact.capability)));
            return amounts.unwrap_or_default();
        }
        let bounds = || {
            let bounds = self.model.bounds(queue, self.counted);
            bounds.map(|(_, bound)| bound)
        };
        let guarantee = bounds().filter_map(|bound| of(&bound.guarantee)).max();
        let capability = bounds().filter_map(|bound| of(&bound.capability)).min();
        (guarantee, capability)
    }

    /// Its own guarantee, or those of its children together; none if it is invalid.
    fn guaranteed(&self, queue: &QueueName) -> i64 {
        if self.wrong.contains(queue) {
            return 0;
        }
        let (named, _) = self.named(queue);
        named.unwrap_or_else(|| self.guaranteed_below(queue))
    }

    fn guaranteed_below(&self, queue: &QueueName) -> i64 {
        let below = self.directly_below(queue);
        below.map(|below| self.guaranteed(below)).sum()
    }

    fn idle(&self, queue: &QueueName) -> i64 {
        if self.wrong.contains(queue) {
            return 0;
        }
        let own = self.guaranteed(queue) - self.held(queue);
        own.max(self.idle_below(queue)).max(0)
    }

    fn idle_below(&self, queue: &QueueName) -> i64 {
        let below = self.directly_below(queue);
        below.map(|below| self.idle(below)).sum()
    }

    /// The real capability: of the root all there is, if there is a guarantee; of another queue its
    /// parent's without the guarantees, plus its own guarantee. It is never more than the own
    /// capability.
    fn real(&self, queue: &QueueName) -> Option<i64> {
        let (_, named) = self.named(queue);
        let left = if *queue == root() {
            let guaranteed = self.guaranteed_below(queue) > 0;
            guaranteed.then(|| self.model.fleet_of(self.counted, self.resource))
        } else {
            let parent = self.model.parent_of(queue).unwrap_or_else(root);
            self.real(&parent).map(|above| {
                let others = self.guaranteed_below(&parent) - self.guaranteed(queue);
                let free = above - others - self.guaranteed(queue);
                (free.max(0) + self.guaranteed(queue)).min(above)
            })
        };
        [named, left].into_iter().flatten().min()
    }
}

fn within(granted: &Admission, counted: &Counted, resource: &ResourceName) -> i64 {
    let charges = granted.shares.iter().flat_map(|share| {
        let charges = share.charge.iter();
        charges.map(move |(class, charge)| (&share.cluster, class, charge))
    });
    let counted = charges.filter(|(cluster, class, _)| counts(counted, cluster, class));
    counted
        .map(|(.., charge)| charge.amount_of(resource).0)
        .sum()
}
