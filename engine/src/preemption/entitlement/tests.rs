//! Who may take what from whom, on trees made by hand.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::amounts::totals::ResourceTotals;
use crate::quota::testing;
use facts::{ClusterName, PolicyFact, PoolBound, PoolClass, QueueFact};
use std::collections::BTreeMap;

fn res(text: &str) -> Resources {
    let entries = text.split(", ").filter(|entry| !entry.is_empty());
    Resources::parse(entries.map(|entry| entry.split_once(' ').unwrap())).unwrap()
}

fn charge(text: &str) -> Pools {
    let pool = (ClusterName::from("a"), PoolClass::from("gpu"));
    Pools::from([(pool, res(text))])
}

struct Tree(Quota);

impl Tree {
    fn new() -> Self {
        let mut queues = Quota::default();
        let total = ResourceTotals::from(&res("cpu 100, gpu 10"));
        let fleet = BTreeMap::from([(PoolClass::from("gpu"), total)]);
        queues.set_fleet([(&ClusterName::from("a"), fleet)]);
        Self(queues)
    }

    fn queue(mut self, path: &str, guarantee: &str, deserved: &str, holds: &str) -> Self {
        let (parent, name) = path.rsplit_once('/').unzip();
        let name = QueueName::from(name.unwrap_or(path));
        let fact = QueueFact {
            guarantee: res(guarantee),
            deserved: res(deserved),
            ..testing::queue(&name, parent.map(QueueName::from).as_ref())
        };
        self.0.set_fact(&name, Some(fact));
        if !holds.is_empty() {
            self.0.charge(&name, testing::ann(), &charge(holds), 1);
        }
        self
    }

    fn cap(mut self, name: &str, capability: &str) -> Self {
        let name = QueueName::from(name);
        let mut fact = self.0.fact(&name).unwrap().clone();
        fact.capability = res(capability);
        self.0.set_fact(&name, Some(fact));
        self
    }

    /// Returns what a queue deserves of class gpu.
    fn of_class(mut self, name: &str, deserved: &str) -> Self {
        let bound = PoolBound {
            class: PoolClass::from("gpu"),
            clusters: None,
            guarantee: Resources::new(),
            deserved: res(deserved),
            capability: Resources::new(),
        };
        let policy = PolicyFact {
            pools: vec![bound],
            ..testing::policy(&QueueName::from(name))
        };
        self.0.set_policy(&QueueName::from(name), Some(policy));
        self
    }

    /// True if `other` may have something that `preemptor` could reclaim.
    fn could_reclaim_from(&self, (preemptor, asks): (&str, &str), other: &str) -> bool {
        let [preemptor, other] = [preemptor, other].map(QueueName::from);
        let reclaim = Reclaim {
            quota: &self.0,
            usage: &Overlay::default(),
            queue: &preemptor,
            total: &res(asks),
            pools: None,
        };
        reclaim.could_reclaim_from(&other)
    }

    /// Returns what entitles a queue for a job, with its usage and the job together.
    fn entitled(&self, queue: &str, asks: &str) -> Option<String> {
        self.entitled_in(queue, asks, &charge(asks))
    }

    fn entitled_in(&self, queue: &str, asks: &str, pools: &Pools) -> Option<String> {
        let usage = Overlay::default();
        let total = res(asks);
        let reclaim = Reclaim {
            quota: &self.0,
            usage: &usage,
            queue: &QueueName::from(queue),
            total: &total,
            pools: Some(pools),
        };
        let (id, of) = reclaim.entitlement()?;
        let requested = self.0.requested(id, &total, Some(pools));
        let (_, amount) = requested.into_iter().find(|(at, _)| *at == of)?;
        let holding = self.0.usage_with(&usage, id, of) + amount;
        let deserved = self.0.deserved_of(id, of)?;
        let (queue, resource) = (self.0.name(id), self.0.resource_of(of));
        Some(format!("{queue}: {resource} {holding} of {deserved}"))
    }

    /// Checks whether `victim`, after the victims `gone`, may be reclaimed from `other` for `preemptor`.
    fn take(
        &self,
        (preemptor, asks): (&str, &str),
        other: &str,
        gone: &[&str],
        victim: &str,
    ) -> Result<(), NotPreemptible> {
        let [preemptor, other] = [preemptor, other].map(QueueName::from);
        let mut usage = Overlay::default();
        for gone in gone {
            self.0.assume(&mut usage, &other, &charge(gone), -1);
        }
        let reclaim = Reclaim {
            quota: &self.0,
            usage: &usage,
            queue: &preemptor,
            total: &res(asks),
            pools: Some(&charge(asks)),
        };
        reclaim.check_victim(&other, &charge(victim))
    }
}

#[test]
fn class_7_any_dimension_entitles_and_only_that_one_is_taken() {
    let tree = Tree::new()
        .queue("a", "", "gpu 4", "gpu 2")
        .queue("b", "", "", "gpu 8, cpu 50");
    let asks = "cpu 16, gpu 2, pods 1";
    assert_eq!(tree.entitled("a", asks).unwrap(), "a: gpu 4 of 4");
    assert_eq!(tree.entitled("a", "gpu 3"), None);
    assert_eq!(tree.entitled("a", "cpu 1, pods 1"), None);
    assert_eq!(tree.take(("a", asks), "b", &[], "gpu 2, cpu 1"), Ok(()));
    assert_eq!(
        tree.take(("a", asks), "b", &[], "cpu 40"),
        Err(NotPreemptible::WithinDeserved)
    );
}

#[test]
fn class_6_nobody_reclaims_beyond_its_own_capability() {
    let tree = Tree::new().queue("a", "", "gpu 4", "gpu 2");
    assert!(tree.entitled("a", "gpu 2").is_some());
    let tree = tree.cap("a", "gpu 4, cpu 3");
    assert!(tree.entitled("a", "gpu 2, cpu 3").is_some());
    assert_eq!(tree.entitled("a", "gpu 2, cpu 4"), None);
}

#[test]
fn class_4_what_was_taken_cannot_be_evicted() {
    // Volcano 4947: one job of 4 in a queue that deserves 3; another deserves 5.
    let tree = Tree::new()
        .queue("one", "", "gpu 3", "gpu 4")
        .queue("two", "", "gpu 5", "");
    assert_eq!(tree.take(("two", "gpu 4"), "one", &[], "gpu 4"), Ok(()));
    let after = Tree::new()
        .queue("one", "", "gpu 3", "")
        .queue("two", "", "gpu 5", "gpu 4");
    assert_eq!(after.entitled("one", "gpu 4"), None);
    // On another resource the victim's queue would be entitled, and the preemptor over its due.
    let tree = Tree::new()
        .queue("one", "", "gpu 3, cpu 50", "gpu 4, cpu 40")
        .queue("two", "", "gpu 5", "");
    let asks = ("two", "gpu 4, cpu 20");
    assert_eq!(
        tree.take(asks, "one", &[], "gpu 4, cpu 40"),
        Err(NotPreemptible::WouldThrash)
    );
    assert_eq!(tree.take(asks, "one", &[], "gpu 4"), Ok(()));
    // So it would be once several are gone: seen when the set is complete.
    let tree = Tree::new()
        .queue("one", "", "gpu 3, cpu 50", "gpu 6, cpu 60")
        .queue("two", "", "gpu 5", "");
    assert_eq!(tree.take(asks, "one", &[], "gpu 1, cpu 20"), Ok(()));
    let mut usage = Overlay::default();
    let [one, two] = ["one", "two"].map(QueueName::from);
    for _ in 0..2 {
        tree.0
            .assume(&mut usage, &one, &charge("gpu 1, cpu 20"), -1);
    }
    let reclaim = Reclaim {
        quota: &tree.0,
        usage: &usage,
        queue: &two,
        total: &res(asks.1),
        pools: Some(&charge(asks.1)),
    };
    assert!(reclaim.would_thrash(&one, &charge("gpu 1, cpu 20")));
}

#[test]
fn nothing_is_taken_from_a_queue_at_its_due_and_a_gang_beyond_it_is_taken_whole() {
    let tree = Tree::new()
        .queue("a", "", "gpu 5", "")
        .queue("b", "", "gpu 3", "gpu 4");
    let asks = ("a", "gpu 2");
    assert_eq!(tree.take(asks, "b", &[], "gpu 1"), Ok(()));
    assert_eq!(
        tree.take(asks, "b", &["gpu 1"], "gpu 1"),
        Err(NotPreemptible::WithinDeserved)
    );
    let tree = Tree::new()
        .queue("a", "", "gpu 5", "")
        .queue("b", "gpu 3", "gpu 3", "gpu 4");
    // What it is guaranteed stays kept for it, whatever the size of the job.
    assert_eq!(tree.take(asks, "b", &[], "gpu 4"), Ok(()));
    assert_eq!(
        tree.take(asks, "b", &["gpu 1"], "gpu 3"),
        Err(NotPreemptible::WithinDeserved)
    );
}

#[test]
fn queues_are_compared_where_their_paths_diverge() {
    let tree = Tree::new()
        .queue("x", "", "gpu 4", "")
        .queue("x/x1", "", "gpu 4", "")
        .queue("x/x2", "", "", "gpu 4")
        .queue("y", "", "gpu 4", "")
        .queue("y/y1", "gpu 1", "gpu 1", "gpu 5");
    // x holds all that it deserves: x1 takes from its sibling, not from y, though y is over its deserved.
    let asks = ("x1", "gpu 1");
    assert_eq!(tree.take(asks, "x2", &[], "gpu 1"), Ok(()));
    assert_eq!(
        tree.take(asks, "y1", &[], "gpu 1"),
        Err(NotPreemptible::WithinDeserved)
    );
    assert_eq!(
        tree.take(asks, "x1", &[], "gpu 1"),
        Err(NotPreemptible::SameQueue)
    );
    // With room below x's due, from y too.
    let tree = tree.queue("x", "", "gpu 6", "");
    assert_eq!(tree.take(asks, "y1", &[], "gpu 5"), Ok(()));
    // Of y, which is over its deserved, only from those below it that hold more than they are guaranteed.
    let tree = Tree::new()
        .queue("x", "", "gpu 5", "")
        .queue("x/x1", "", "gpu 5", "gpu 3")
        .queue("y", "", "gpu 3", "")
        .queue("y/y1", "gpu 3", "gpu 3", "gpu 3")
        .queue("y/y2", "", "", "gpu 2");
    assert_eq!(
        tree.take(asks, "y1", &[], "gpu 1"),
        Err(NotPreemptible::Guaranteed)
    );
    assert_eq!(tree.take(asks, "y2", &[], "gpu 2"), Ok(()));
}

#[test]
fn a_bound_on_a_class_entitles_like_one_over_everything() {
    let tree = Tree::new()
        .queue("a", "", "", "")
        .queue("b", "", "", "gpu 9")
        .of_class("a", "gpu 2");
    assert_eq!(tree.entitled("a", "gpu 2").unwrap(), "a: gpu 2 of 2");
    assert_eq!(tree.take(("a", "gpu 2"), "b", &[], "gpu 2"), Ok(()));
    let other = (ClusterName::from("a"), PoolClass::from("other"));
    let elsewhere = Pools::from([(other, res("gpu 2"))]);
    assert_eq!(tree.entitled_in("a", "gpu 2", &elsewhere), None);
}

#[test]
fn a_queue_deserves_something_over_everything_or_of_a_class_itself_or_by_one_above() {
    let tree = Tree::new()
        .queue("a", "", "gpu 4", "")
        .queue("a/below", "", "", "")
        .queue("b", "", "", "")
        .queue("c", "", "", "")
        .of_class("c", "gpu 2");
    for (name, expected) in [("a", true), ("below", true), ("b", false), ("c", true)] {
        assert_eq!(
            deserves(&tree.0, &QueueName::from(name)),
            expected,
            "{name}"
        );
    }
    assert!(!deserves(&tree.0, &QueueName::from("unknown")));
}

#[test]
fn what_is_due_is_what_is_deserved_and_not_held_of_what_a_job_asks_for() {
    let tree = Tree::new()
        .queue("a", "", "gpu 8, cpu 20", "")
        .queue("a/below", "", "gpu 4", "gpu 1");
    let below = QueueName::from("below");
    let gaps = |asks: &str| {
        let gaps = entitlement_gaps(&tree.0, &below, &res(asks)).into_iter();
        let told = gaps.map(|due| {
            let left = tree.0.unused_deserved(&due.queue, &due.resource).unwrap();
            let asked = due
                .resource
                .format(crate::amounts::totals::clamp(due.needs));
            let left = due.resource.format(crate::amounts::totals::clamp(left));
            format!("{}: {} {asked} of {left}", due.queue, due.resource)
        });
        told.collect::<Vec<_>>().join("; ")
    };
    let asks = "cpu 2, gpu 2, pods 1";
    assert_eq!(
        gaps(asks),
        "below: gpu 2 of 3; a: cpu 2 of 20; a: gpu 2 of 7"
    );
    assert_eq!(gaps("cpu 2, gpu 0"), "a: cpu 2 of 20");
}

#[test]
fn only_who_holds_more_than_it_deserves_could_reclaim_from_unless_classes_count() {
    let tree = Tree::new()
        .queue("a", "", "gpu 4", "gpu 2")
        .queue("above", "", "gpu 4", "gpu 5")
        .queue("at", "", "gpu 3", "gpu 3");
    assert!(tree.could_reclaim_from(("a", "gpu 2"), "above"));
    assert!(!tree.could_reclaim_from(("a", "gpu 2"), "at"));
    assert!(!tree.could_reclaim_from(("a", "cpu 1"), "above"));
    assert!(!tree.could_reclaim_from(("a", "gpu 2"), "a"));
    // Which pools count is not known before there is a plan.
    let tree = tree.of_class("a", "gpu 2");
    assert!(tree.could_reclaim_from(("a", "gpu 2"), "at"));
}
