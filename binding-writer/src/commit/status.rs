//! The status that Karmada's components need from the scheduler that places a binding. It is written after
//! the placement, so that the placement does not wait for it: `Scheduled=True`,
//! `schedulerObservedGeneration`, `lastScheduledTime`, `schedulerObservingAffinityName` (karmada,
//! pkg/scheduler/scheduler.go, patchBindingStatusCondition).
//!
//! `status.conditions` has no merge keys: a patch replaces the whole list. It is therefore read, changed
//! and written at the version read, so that Karmada's `FullyApplied` is not lost. The first try uses the
//! version of the placement write, whose status is that of the binding in the decision; this usually saves
//! the read.

use super::CommitContext;
use super::intent::{Intent, Write, WrittenBinding};
use super::metrics::BehindWord;
use super::patch::{annotation, is_gated};
use super::write::{pauses, read_binding};
use crds::karmada::ResourceBinding;
use crds::names::ADMISSION_ANNOTATION;
use crds::record::seconds;
use facts::JobKey;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use runtime::client::{CallError, CallFault, with_deadline};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// One part in so many of the writes in flight is always open to statuses. Beyond that they get what
/// placements leave.
const SHARE_OF_WRITES: usize = 8;
/// Most tries of one status.
const TRIES: usize = 8;
/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A status that is due because of a placement.
#[derive(Debug, Clone)]
pub(super) struct Behind {
    key: JobKey,
    uid: Option<String>,
    /// The record of the placement: the status is valid while the binding has it.
    record: String,
    written: WrittenBinding,
    placed_at: Timestamp,
    affinity_name: Option<String>,
    /// True if the binding had no conditions when it was placed, so that none can be lost.
    had_no_conditions: bool,
}

impl Behind {
    /// Returns the status that follows `intent`, if it is a placement.
    pub(super) fn of(intent: &Intent, written: &WrittenBinding) -> Option<Self> {
        let Write::Place {
            record,
            affinity_name,
            ..
        } = &intent.write
        else {
            return None;
        };
        Some(Self {
            key: intent.key(),
            uid: intent.binding.metadata.uid.clone(),
            record: record.to_annotation().ok()?,
            written: written.clone(),
            placed_at: Timestamp::now(),
            affinity_name: affinity_name.clone(),
            had_no_conditions: intent.binding.status.conditions.is_empty(),
        })
    }
}

/// Writes statuses until `cancel`, a limited number at a time, the newest for each binding.
pub(super) async fn follow(
    context: Arc<CommitContext>,
    mut followers: mpsc::UnboundedReceiver<Behind>,
    cancel: CancellationToken,
) {
    let mut newest: HashMap<JobKey, Behind> = HashMap::new();
    let mut order: VecDeque<JobKey> = VecDeque::new();
    let mut in_flight = FuturesUnordered::new();
    loop {
        while in_flight.len() < limit(&context)
            && let Some(key) = order.pop_front()
        {
            if let Some(behind) = newest.remove(&key) {
                in_flight.push(write(context.clone(), behind));
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            Some(()) = in_flight.next() => {}
            Some(behind) = followers.recv() => {
                let key = behind.key.clone();
                if newest.insert(key.clone(), behind).is_none() {
                    order.push_back(key);
                }
            }
            else => return,
        }
    }
}

fn limit(context: &CommitContext) -> usize {
    let all = context.options.in_flight;
    let free = all.saturating_sub(context.writing.load(Ordering::Relaxed));
    free.max(all / SHARE_OF_WRITES).max(1)
}

async fn write(context: Arc<CommitContext>, behind: Behind) {
    let word = match try_write(&context, &behind).await {
        Ok(word) => word,
        Err(error) => {
            let job = &behind.key;
            tracing::warn!(%job, error = error.message(), "the status of a placement is not written");
            BehindWord::Failed
        }
    };
    context.metrics.behind(word);
}

async fn try_write(context: &CommitContext, behind: &Behind) -> Result<BehindWord, CallError> {
    let mut pauses = pauses();
    let mut patch = behind.had_no_conditions.then(|| first_patch(behind));
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match step(context, behind, patch.take()).await {
            Ok(word) => return Ok(word),
            Err(error) => error,
        };
        match error.fault() {
            CallFault::NotFound => return Ok(BehindWord::Overtaken),
            CallFault::Refused => return Err(error),
            // The status is the same however often it is written.
            CallFault::NoSuchKind
            | CallFault::Conflict
            | CallFault::TryAgain
            | CallFault::Unknown => {}
        }
        if tries == TRIES {
            return Err(error);
        }
        let pause = pauses.next().unwrap_or(PAUSE_MAX);
        let asked = error.retry_after().unwrap_or_default();
        tokio::time::sleep(pause.max(asked).min(PAUSE_MAX)).await;
    }
}

/// Sends `patch`, or a patch built from the present binding.
async fn step(
    context: &CommitContext,
    behind: &Behind,
    patch: Option<Value>,
) -> Result<BehindWord, CallError> {
    let patch = match patch {
        Some(patch) => patch,
        None => {
            let found = read_binding(context, &behind.key.namespace, &behind.key.name).await?;
            match found {
                Some((raw, current)) if still_true(behind, &current) => {
                    patch_of(behind, &raw, &current)
                }
                _ => return Ok(BehindWord::Overtaken),
            }
        }
    };
    let Some(permit) = context.leadership.permit() else {
        return Ok(BehindWord::Overtaken);
    };
    let api: Api<PartialObjectMeta<ResourceBinding>> =
        Api::namespaced(context.client.clone(), &behind.key.namespace);
    let params = PatchParams {
        field_manager: Some(context.options.field_manager.clone()),
        ..PatchParams::default()
    };
    let limit = context.options.call_limit.min(permit.limit());
    let patch = Patch::Merge(patch);
    with_deadline(api.patch_status(&behind.key.name, &params, &patch), limit).await?;
    Ok(BehindWord::Written)
}

fn still_true(behind: &Behind, current: &ResourceBinding) -> bool {
    current.metadata.uid == behind.uid
        && current.metadata.deletion_timestamp.is_none()
        && annotation(current, ADMISSION_ANNOTATION) == Some(behind.record.as_str())
        && !is_gated(current)
}

fn first_patch(behind: &Behind) -> Value {
    let version = &behind.written.resource_version;
    status_patch(behind, version, Vec::new(), behind.written.generation)
}

fn patch_of(behind: &Behind, raw: &Value, current: &ResourceBinding) -> Value {
    let version = current.metadata.resource_version.as_deref();
    let conditions = raw["status"]["conditions"].as_array();
    let observed = current.status.scheduler_observed_generation;
    status_patch(
        behind,
        version.unwrap_or_default(),
        conditions.cloned().unwrap_or_default(),
        behind.written.generation.max(observed.unwrap_or_default()),
    )
}

fn status_patch(behind: &Behind, version: &str, conditions: Vec<Value>, generation: i64) -> Value {
    let mut status = json!({
        "conditions": with_scheduled(conditions, behind.placed_at),
        "schedulerObservedGeneration": generation,
        "lastScheduledTime": seconds(behind.placed_at),
    });
    if let Some(name) = &behind.affinity_name {
        status["schedulerObservingAffinityName"] = json!(name);
    }
    json!({"metadata": {"resourceVersion": version}, "status": status})
}

/// Returns `conditions` with `Scheduled=True`, with the text of Karmada's own scheduler. If the condition
/// was true before, its transition time stays.
fn with_scheduled(mut conditions: Vec<Value>, now: Timestamp) -> Vec<Value> {
    let mut scheduled = json!({
        "type": "Scheduled",
        "status": "True",
        "reason": "Success",
        "message": "Binding has been scheduled successfully.",
        "lastTransitionTime": seconds(now),
    });
    let found = conditions
        .iter_mut()
        .find(|condition| condition["type"] == "Scheduled");
    match found {
        Some(condition) => {
            if condition["status"] == "True" && condition["lastTransitionTime"].is_string() {
                scheduled["lastTransitionTime"] = condition["lastTransitionTime"].take();
            }
            *condition = scheduled;
        }
        None => conditions.push(scheduled),
    }
    conditions
}
