//! Tests that the audit reports each inconsistency.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::amounts::resource_ids::ResourceVec;
use crate::api::charge::Pools;
use crate::api::job::{JobState, QueueOrder, UserId};
use crate::quota::queue::QueueId;
use crate::quota::scopes::OVERALL;
use crate::quota::sibling_order::QueueHeads;
use crate::quota::testing::{ann, queue};
use facts::{ClusterName, JobKey, PoolClass, Time};
use std::cmp::Reverse;

fn name() -> QueueName {
    QueueName::from("q")
}

fn cluster() -> ClusterName {
    ClusterName::from("a")
}

fn charge() -> Pools {
    let one = Resources::parse([("nvidia.com/gpu", "1")]).unwrap();
    Pools::from([((cluster(), PoolClass::from("gpu")), one)])
}

/// Sets a fleet of eight GPUs and charges a job with one of them.
fn book(quota: &mut Quota) {
    let eight = Resources::parse([("nvidia.com/gpu", "8")]).unwrap();
    let total = BTreeMap::from([(PoolClass::from("gpu"), ResourceTotals::from(&eight))]);
    quota.set_fleet([(&cluster(), total)]);
    quota.charge(&name(), ann(), &charge(), 1);
    quota.hold(&name(), &"ann".into(), 1);
    quota.count(&name(), JobState::Running, None, 1);
}

fn heads(id: QueueId) -> QueueHeads {
    let head = (id != QueueId::ROOT).then(|| QueueOrder {
        priority: Reverse(0),
        at: Time(1),
        key: JobKey::new("ns", "job"),
        user: UserId::NONE,
    });
    QueueHeads {
        pending: head.clone(),
        head,
    }
}

fn sound() -> Quota {
    let mut quota = Quota::default();
    quota.set_fact(&name(), Some(queue(&name(), None)));
    book(&mut quota);
    for id in quota.take_unranked() {
        quota.rank(id, &heads(id));
    }
    quota
}

fn audit(quota: &Quota) -> Vec<String> {
    let mut should = quota.rebuilt();
    book(&mut should);
    let mut wrong = quota.audit(&should);
    wrong.extend(quota.audit_order(heads));
    wrong
}

/// A function that breaks one derived value, and the start of its report.
type Break = (&'static str, fn(&mut Quota, QueueId));

#[test]
fn each_wrong_value_is_reported() {
    assert_eq!(audit(&sound()), Vec::<String>::new());
    let breaks: &[Break] = &[
        ("queue q: kept", |quota, id| {
            quota.node_mut(id).account_mut(OVERALL).unwrap().charged = ResourceVec::default();
        }),
        ("queue q: kept", |quota, id| {
            quota.node_mut(id).own.pools.clear();
        }),
        ("queue q: kept", |quota, id| {
            quota.node_mut(id).own.owners.users.clear();
        }),
        ("queue q: kept", |quota, id| {
            quota.node_mut(id).counts = Counts::default();
        }),
        ("queue q: kept", |quota, id| {
            quota.node_mut(id).parent = None;
        }),
        ("fleet of all: kept", |quota, _| {
            quota.set_fleet([(&cluster(), BTreeMap::new())]);
        }),
        ("queue q: ranked as None", |quota, id| {
            quota.unranked.clear();
            quota.rank(id, &QueueHeads::default());
        }),
    ];
    for (words, breaks) in breaks {
        let mut quota = sound();
        let id = quota.id(&name()).unwrap();
        breaks(&mut quota, id);
        let wrong = audit(&quota);
        let named = wrong.iter().any(|wrong| wrong.starts_with(words));
        assert!(named, "{words}: {wrong:#?}");
    }
}

#[test]
fn positions_are_not_audited_while_queues_are_unranked() {
    let mut quota = sound();
    let id = quota.id(&name()).unwrap();
    quota.rank(id, &QueueHeads::default());
    quota.unrank(&name());
    assert_eq!(quota.audit_order(heads), Vec::<String>::new());
}
