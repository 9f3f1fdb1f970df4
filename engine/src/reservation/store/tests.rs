//! What the store finds, and what its audit names.

use super::*;
use crate::api::job::UserId;
use crate::capacity::testing::resources;
use std::cmp::Reverse;

fn key(name: &str) -> JobKey {
    JobKey::new("ns", name)
}

/// One that reserves so many GPUs of each of these nodes of cluster `a`, and waits for these
/// `pending_evictions`.
fn kept(name: &str, nodes: &[(&str, &str)], pending_evictions: &[&str]) -> Reservation {
    let node = |(node, request): &(&str, &str)| ReservedNode {
        cluster: ClusterName::from("a"),
        node: NodeName::from(*node),
        class: PoolClass::from("gpu"),
        resources: resources(request),
    };
    Reservation {
        queue: QueueName::from("q"),
        rank: QueueOrder {
            priority: Reverse(0),
            at: Time(1),
            key: key(name),
            user: UserId::NONE,
        },
        scopes: BTreeSet::from([ReservationSlot::Headroom(QueueName::from("q"))]),
        charge: Resources::new(),
        pools: Vec::new(),
        nodes: nodes.iter().map(node).collect(),
        releases: Vec::new(),
        start: None,
        preemptor: !pending_evictions.is_empty(),
        pending_evictions: pending_evictions.iter().map(|name| key(name)).collect(),
    }
}

#[test]
fn what_is_reserved_of_a_node_is_listed_for_all_and_for_some() {
    let mut all = Reservations::default();
    all.set(kept("one", &[("n0", "gpu 4"), ("n1", "gpu 3")], &[]));
    all.set(kept("two", &[("n0", "gpu 2")], &[]));
    let (a, b) = (ClusterName::from("a"), ClusterName::from("b"));
    let [n0, n1] = ["n0", "n1"].map(NodeName::from);
    let sum = |request: &str| Some(ResourceTotals::from(&resources(request)));
    assert_eq!(all.kept_on(&a, &n0).cloned(), sum("gpu 6"));
    assert_eq!(all.kept_for(&[key("one")], &a, &n0), sum("gpu 4"));
    let both = [key("one"), key("two")];
    assert_eq!(all.kept_for(&both, &a, &n0), sum("gpu 6"));
    assert_eq!(all.kept_for(&both, &a, &n1), sum("gpu 3"));
    assert_eq!(all.kept_for(&both, &b, &n0), None);
    all.remove(&key("one"));
    assert_eq!(all.kept_on(&a, &n0).cloned(), sum("gpu 2"));
    assert_eq!(all.kept_for(&both, &a, &n1), None);
}

#[test]
fn holders_are_found_by_what_they_wait_for() {
    let mut all = Reservations::default();
    assert!(!all.has_preemptors());
    all.set(kept("one", &[], &[]));
    all.set(kept("two", &[], &["victim"]));
    assert!(all.has_preemptors());
    let q = QueueName::from("q");
    assert_eq!(all.short_of(&q), [key("one"), key("two")]);
    assert_eq!(all.short_of(&QueueName::from("other")), []);
    assert_eq!(all.settle(&key("victim")), [key("two")]);
    all.remove(&key("two"));
    assert!(!all.has_preemptors());
    assert_eq!(all.short_of(&q), [key("one")]);
}

#[test]
fn owners_of_several_slots_connect_them() {
    let slots = |names: &[&str]| -> BTreeSet<ReservationSlot> {
        let classes = names.iter().map(|name| PoolClass::from(*name));
        classes.map(ReservationSlot::Class).collect()
    };
    let mut all = Reservations::default();
    for (name, scopes) in [
        ("one", &["c", "d"][..]),
        ("two", &["a", "b"]),
        ("three", &["b", "c"]),
        ("four", &["e"]),
    ] {
        all.set(Reservation {
            scopes: slots(scopes),
            ..kept(name, &[], &[])
        });
    }
    assert_eq!(all.connected(&slots(&["a"])), slots(&["a", "b", "c", "d"]));
    assert_eq!(all.connected(&slots(&["e", "f"])), slots(&["e", "f"]));
    all.remove(&key("three"));
    assert_eq!(all.connected(&slots(&["a"])), slots(&["a", "b"]));
    assert_eq!(all.audit(), [""; 0]);
}

#[test]
fn what_a_freed_node_gives_back_is_replaced_in_the_order_of_nodes() {
    let release = |node: &str, request: &str| ExpectedRelease {
        from: ReleaseSource::Node(NodeName::from(node)),
        queue: QueueName::from("q"),
        cluster: ClusterName::from("a"),
        class: PoolClass::from("gpu"),
        resources: resources(request),
    };
    let three = [("n0", "gpu 4"), ("n1", "gpu 4"), ("n2", "gpu 4")];
    let mut all = Reservations::default();
    all.set(Reservation {
        releases: three.map(|(node, request)| release(node, request)).into(),
        ..kept("one", &three, &[])
    });
    let releases = |all: &Reservations| all.of(&key("one")).map(|kept| kept.releases.clone());
    let n1 = kept("one", &three, &[]).nodes[1].clone();
    for fresh in [Some(release("n1", "gpu 1")), None] {
        let replace = |all: &mut Reservations| {
            let fresh = fresh.iter().cloned().collect();
            all.replace_releases(&key("one"), std::slice::from_ref(&n1), fresh)
        };
        assert!(replace(&mut all) && !replace(&mut all));
        let first = [release("n0", "gpu 4")].into_iter();
        let expected: Vec<_> = first.chain(fresh).chain([release("n2", "gpu 4")]).collect();
        assert_eq!(releases(&all), Some(expected));
    }
}

type Break = fn(&mut Reservations);

#[test]
fn each_index_that_does_not_follow_from_the_reservations_is_named() {
    let mut all = Reservations::default();
    all.set(kept("one", &[("n0", "gpu 4")], &["victim"]));
    assert_eq!(all.audit(), [""; 0]);
    let breaks: [(&str, Break); 8] = [
        ("queue", |all| all.by_queue.clear()),
        ("queue", |all| all.by_scope.clear()),
        ("slots", |all| {
            all.slot_sets.insert(BTreeSet::new(), 1);
        }),
        ("node", |all| all.with_nodes.clear()),
        ("node", |all| all.reserved.clear()),
        ("holder", |all| all.preemptors = 0),
        ("holder", |all| {
            let other = kept("other", &[], &[]);
            all.by_job.insert(key("other"), other);
        }),
        ("victim", |all| all.pending_evictions.clear()),
    ];
    for (index, breaks) in breaks {
        let mut broken = all.clone();
        breaks(&mut broken);
        let told = broken.audit();
        let named = format!("reservations by {index}: ");
        assert!(told.len() == 1 && told[0].starts_with(&named), "{told:?}");
    }
}
