//! Preemption within a queue: a job of higher priority evicts one of lower priority if queue and
//! class allow it.

use e2e::harness::jobs::{self, TestGang};
use serde_json::json;

use crate::case::{A_WHILE, Case};
use crate::contest::SHORT;
use crate::story::{managed, managed_and_killed};

/// Two jobs of low priority use a queue of two nodes.
pub(crate) async fn by_priority(case: &Case) -> anyhow::Result<()> {
    case.queue(16).await?;
    case.capacity_policy(json!({"spec": {"preemption": {"withinQueue": "LowerPriority"}}}))
        .await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let low = case.priority_class("low", 1).await?;
    let patient = case.priority_class("patient", 100).await?;
    let urgent = case.preempting_class("urgent", 100).await?;
    let of = |class: &str, name: &str| TestGang {
        priority_class: Some(class.to_owned()),
        ..case.gang(name, 1, 8)
    };
    // Only one of the two may be evicted.
    let firm = jobs::annotated(
        of(&low, "firm").volcano(),
        "volcano.sh/preemptable",
        "false",
    );
    let firm = case.submit(&firm).await?;
    case.running(&firm).await?;
    let soft = case.submit(&of(&low, "soft").volcano()).await?;
    case.running(&soft).await?;
    let waits = case.submit(&of(&patient, "patient").volcano()).await?;
    case.waits(&waits, &SHORT).await?;
    case.stays_unplaced(&waits, A_WHILE).await?;
    case.delete(&waits).await?;

    let held = case.hold_works([&soft]).await?;
    let preemptor = case.submit(&of(&urgent, "preemptor").volcano()).await?;
    case.amid_evict(Some(&preemptor), &[&soft]).await?;
    case.lift(&held).await?;
    case.running(&preemptor).await?;
    case.requeued(&soft, "Preempted").await?;
    case.running(&firm).await?;
    // Jobs of equal priority do not preempt each other.
    let equal = case.submit(&of(&urgent, "equal").volcano()).await?;
    case.waits(&equal, &SHORT).await?;
    case.stays_unplaced(&equal, A_WHILE).await?;
    case.delete(&equal).await?;

    case.end(&preemptor).await?;
    case.running(&soft).await?;
    assert_eq!(case.placements(&soft)?, 2);
    assert_eq!(case.placements(&firm)?, 1);
    assert_eq!(case.placements(&preemptor)?, 1);
    let report = case.audit(16, [&firm, &soft, &preemptor])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_higher_priority_takes_the_place_of_the_lower_that_may_be_evicted() {
    managed("preempt", by_priority);
}

#[test]
fn a_higher_priority_takes_its_place_though_muster_is_killed_meanwhile() {
    managed_and_killed("preemptkill", by_priority);
}

#[test]
fn without_leave_of_the_queue_nobody_is_preempted() {
    managed("nopreempt", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let runs = case.submit(&case.gang("runs", 1, 8).volcano()).await?;
        case.running(&runs).await?;
        let urgent = TestGang {
            priority_class: Some(case.preempting_class("urgent", 100).await?),
            ..case.gang("urgent", 1, 8)
        };
        let urgent = case.submit(&urgent.volcano()).await?;
        case.waits(&urgent, &SHORT).await?;
        case.stays_unplaced(&urgent, A_WHILE).await?;
        case.running(&runs).await.map(drop)
    });
}
