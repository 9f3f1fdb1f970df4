//! `queue list`: one line for each queue.

use super::Shown;
use super::quota::{devices, guaranteed_devices};
use crate::age::age;
use crate::output::columns;
use crds::capacity_policy::{CapacityPolicyOrdering, CapacityPolicyStatus};
use crds::loose::Loose;
use crds::queue::FIFO;
use jiff::Timestamp;
use kube::ResourceExt;

/// Formats the table; `wide` adds CPU, the quota, the ordering, and the message of the head.
pub(crate) fn render(queues: &[Shown], wide: bool, header: bool, now: Timestamp) -> String {
    if queues.is_empty() {
        return "No queues found\n".to_owned();
    }
    if wide {
        let names = [
            "NAME",
            "PARENT",
            "STATE",
            "GPUS",
            "CPU",
            "PENDING",
            "JOBS",
            "DESERVED",
            "GUARANTEE",
            "LENT",
            "ORDERING",
            "HEAD",
            "REASON",
            "AGE",
            "MESSAGE",
        ];
        return columns(
            header.then_some(names),
            queues.iter().map(|queue| wide_row(queue, now)),
        );
    }
    let names = [
        "NAME", "PARENT", "STATE", "GPUS", "PENDING", "JOBS", "HEAD", "REASON", "AGE",
    ];
    columns(
        header.then_some(names),
        queues.iter().map(|queue| row(queue, now)),
    )
}

fn row(queue: &Shown, now: Timestamp) -> [String; 9] {
    let status = queue.policy.status.clone().unwrap_or_default();
    let (summary, head) = (
        status.summary.unwrap_or_default(),
        status.head.unwrap_or_default(),
    );
    [
        queue.policy.name_any(),
        queue.parent(),
        queue.state(),
        summary.gpus,
        summary.pending_gpus,
        summary.jobs,
        head.job,
        head.reason,
        age(queue.policy.metadata.creation_timestamp.as_ref(), now),
    ]
}

fn wide_row(queue: &Shown, now: Timestamp) -> [String; 15] {
    let CapacityPolicyStatus { summary, head, .. } =
        queue.policy.status.clone().unwrap_or_default();
    let [name, parent, state, gpus, pending, jobs, job, reason, age] = row(queue, now);
    let cpu = summary.unwrap_or_default().cpu;
    let message = head.unwrap_or_default().message;
    [
        name,
        parent,
        state,
        gpus,
        cpu,
        pending,
        jobs,
        devices(queue, |used| used.deserved.as_ref()),
        guaranteed_devices(queue),
        devices(queue, |used| used.lent.as_ref()),
        ordering(queue),
        job,
        reason,
        age,
        message,
    ]
}

/// Returns the ordering of the policy; if unset, it depends on the Queue, if that could be read.
fn ordering(queue: &Shown) -> String {
    let unset = queue
        .queue
        .as_ref()
        .map(|queue| match queue.spec.dequeue_strategy.as_deref() {
            Some(FIFO) => Loose::Known(CapacityPolicyOrdering::StrictFifo),
            _ => Loose::Known(CapacityPolicyOrdering::Backfill),
        });
    let word = queue.policy.spec.ordering.clone().or(unset);
    let word = serde_json::to_value(word).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::{fresh, vision};
    use super::render;

    #[test]
    fn queues_are_listed_as_kubectl_would() {
        let now = "2026-11-21T14:00:00Z".parse().unwrap();
        let queues = [vision(), fresh()];
        insta::assert_snapshot!(render(&queues, false, true, now), @r"
        NAME     PARENT     STATE    GPUS     PENDING   JOBS     HEAD                REASON            AGE
        vision   research   Closed   24/32    16        3R/2Q    vision/resnet-job   WaitingForQuota   26h
        fresh    <none>     <none>   <none>   <none>    <none>   <none>              <none>            <unknown>
        ");
        insta::assert_snapshot!(render(&queues, true, true, now), @r"
        NAME     PARENT     STATE    GPUS     CPU      PENDING   JOBS     DESERVED   GUARANTEE   LENT     ORDERING   HEAD                REASON            AGE         MESSAGE
        vision   research   Closed   24/32    64       16        3R/2Q    16         4           4        Backfill   vision/resnet-job   WaitingForQuota   26h         needs nvidia.com/gpu 16; queue vision may use 32 and has 24 charged: short by 8
        fresh    <none>     <none>   <none>   <none>   <none>    <none>   <none>     <none>      <none>   <none>     <none>              <none>            <unknown>   <none>
        ");
        insta::assert_snapshot!(render(&queues, false, false, now), @r"
        vision   research   Closed   24/32    16       3R/2Q    vision/resnet-job   WaitingForQuota   26h
        fresh    <none>     <none>   <none>   <none>   <none>   <none>              <none>            <unknown>
        ");
        insta::assert_snapshot!(render(&[], false, true, now), @"No queues found");
    }
}
