//! The order of a list: by queue, what is placed before what waits, and what ended last.

use super::ListedJob;
use super::table::run_time;
use crate::args::JobOrder;
use crds::podgroup::StatusWord;
use jiff::Timestamp;
use kube::ResourceExt;
use std::cmp::Reverse;

/// The sort key of a job; the order of its fields is the order of the list.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ListOrder {
    queue: String,
    stage: ListStage,
    /// Position in the queue; a job without one is last.
    position: i64,
    priority: Reverse<i32>,
    /// Jobs that ended: the latest first.
    ended: Reverse<Option<Timestamp>>,
    submitted: Option<Timestamp>,
    namespace: Option<String>,
    name: String,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum ListStage {
    Placed,
    Queued,
    Ended,
}

/// Sorts jobs as a list has them without `--sort-by`.
pub(super) fn sort(jobs: &mut [ListedJob]) {
    jobs.sort_by_cached_key(order);
}

/// Sorts jobs that are in that order already by another one; jobs that are equal stay as they are.
pub(super) fn sort_by(jobs: &mut [ListedJob], order: JobOrder, now: Timestamp) {
    let devices = |job: &ListedJob| job.federation().and_then(|federation| federation.devices);
    match order {
        JobOrder::Queue => {}
        JobOrder::Name => jobs.sort_by_cached_key(ListedJob::name),
        JobOrder::User => jobs.sort_by_cached_key(|job| {
            let user = job
                .federation()
                .and_then(|federation| federation.user.clone());
            (user.is_none(), user)
        }),
        JobOrder::Gpus => jobs.sort_by_key(|job| Reverse(devices(job))),
        JobOrder::Runtime => jobs.sort_by_key(|job| Reverse(run_time(job, now))),
        JobOrder::Age => {
            jobs.sort_by_cached_key(|job| job.object.creation_timestamp().map(|created| created.0))
        }
    }
}

fn order(job: &ListedJob) -> ListOrder {
    let federation = job.federation();
    let status = job.status();
    let stage = match status {
        StatusWord::Queued => ListStage::Queued,
        _ if status.is_over() => ListStage::Ended,
        _ => ListStage::Placed,
    };
    let ended = federation.and_then(|federation| federation.timeline.finished.as_ref());
    let position = federation.and_then(|federation| federation.position);
    let submitted = job.object.creation_timestamp();
    ListOrder {
        queue: job.group.spec.queue.clone(),
        stage,
        position: position.unwrap_or(i64::MAX),
        priority: Reverse(
            federation
                .and_then(|federation| federation.priority)
                .unwrap_or_default(),
        ),
        ended: Reverse(ended.map(|time| time.0)),
        submitted: submitted.map(|time| time.0),
        namespace: job.object.namespace(),
        name: job.object.name_any(),
    }
}
