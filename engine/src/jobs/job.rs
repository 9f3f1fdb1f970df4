//! A job: its facts, its state, and what is derived from both.

use crate::amounts::rare::{Nothing, Rare};
use crate::api::charge::Pools;
use crate::api::job::{JobState, PredictedRunTime, QueueOrder};
use crate::jobs::excess::Excess;
use crate::jobs::images::ImageList;
use crate::jobs::recovery::Loss;
use crate::pending::shapes::ShapeId;
use crate::quota::ChargeOwner;
use facts::{
    Admission, Attempt, ClusterName, Demand, Hold, JobKey, Leaving, Progress, QueueName, Reason,
    Share, Time, Uid,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state of a job in the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView<'a> {
    /// UID of its template.
    pub uid: &'a Uid,
    /// Its state.
    pub state: JobState,
    /// The queue that it is charged to, or pending in.
    pub queue: &'a QueueName,
    /// The value of its priority class.
    pub priority: i32,
    /// The number of its last attempt.
    pub attempts: Attempt,
    /// Its admission, if it has one.
    pub admission: Option<&'a Admission>,
    /// When it was queued.
    pub queued_at: Time,
    /// The end of its back-off, if it was evicted.
    pub back_off_until: Option<Time>,
    /// True if an edit of its template that nothing could hold made it larger than its grant. It is
    /// charged for that, and should be reduced to the grant.
    pub exceeds_grant: bool,
}

/// A job: its facts, the engine's decisions about it, and `derived`, which follows from both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) uid: Uid,
    /// The queue that its template names now.
    pub(crate) queue: QueueName,
    pub(crate) priority_class: Option<Arc<str>>,
    /// The user who submitted it, or its namespace if that is not known.
    pub(crate) user: Arc<str>,
    pub(crate) queued_at: Time,
    /// `None` while the job is known by its admission record only.
    pub(crate) demand: Option<Arc<Demand>>,
    pub(crate) duration: Option<i64>,
    /// The run time that was predicted when it became pending, if it ever did.
    pub(crate) forecast: Option<PredictedRunTime>,
    /// True if it may be evicted for another job.
    pub(crate) preemptible: bool,
    /// The images of its largest role.
    #[serde(default, skip_serializing_if = "ImageList::is_empty")]
    pub(crate) images: ImageList,
    /// The last attempt, zero before the first.
    pub(crate) attempt: Attempt,
    pub(crate) cold: Rare<ColdState>,
    pub(crate) released: Option<Box<Released>>,
    #[serde(skip)]
    pub(crate) derived: Derived,
}

/// Facts and state that most pending jobs do not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ColdState {
    /// Why it may not be evaluated, if so.
    pub(crate) hold: Option<Hold>,
    /// When it last saved its work, if it reports that.
    pub(crate) checkpointed_at: Option<Time>,
    /// The run time in milliseconds after which it was stopped at its queue's limit.
    pub(crate) stopped_after: Option<i64>,
    /// The number of failed attempts in a row.
    pub(crate) failures: u32,
    pub(crate) back_off_until: Option<Time>,
    /// The clusters that it avoids, and until when.
    pub(crate) avoid: BTreeMap<ClusterName, Time>,
    /// Why the last attempt was evicted.
    pub(crate) last: Option<Cause>,
    /// If it was ever evicted for another job: when the cause of the last such eviction came up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gave_way_to: Option<Time>,
    /// When it last came back after it failed, or was changed by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) renewed_at: Option<Time>,
    /// How many steps of ageing it has waited.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) age: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Nothing for ColdState {
    const NOTHING: &'static Self = &Self {
        hold: None,
        checkpointed_at: None,
        stopped_after: None,
        failures: 0,
        back_off_until: None,
        avoid: BTreeMap::new(),
        last: None,
        gave_way_to: None,
        renewed_at: None,
        age: 0,
    };
}

/// A reason with its message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cause {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// The state of an admitted job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Released {
    pub(crate) admission: Admission,
    pub(crate) progress: Progress,
    /// True if it had ended by itself: then it is not charged, even before its Works are gone.
    pub(crate) over: bool,
    /// The demand of the admission, with which later edits are compared. For an admission from a
    /// record it is the first observed demand.
    pub(crate) basis: Option<Arc<Demand>>,
    /// The shares that were granted, if an edit that nothing could hold has changed the shares.
    pub(crate) granted: Option<Vec<Share>>,
    /// True if the shares exceed those that were granted.
    pub(crate) exceeds_grant: bool,
    /// True if its pods were assumed. Those of an admission from a record are assumed once its
    /// demand is known.
    pub(crate) placed: bool,
    /// When it was first observed running, if it was.
    pub(crate) started_at: Option<Time>,
    /// The run time that is expected of it in all, in milliseconds: as estimated when it was admitted if it declared
    /// none, and again each time it had run for that long.
    pub(crate) expected_ms: Option<i64>,
    /// The run time that it declared at admission, in milliseconds. A later declaration applies to
    /// the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) declared_ms: Option<i64>,
    /// Terminating pods, which are charged until they are confirmed gone.
    pub(crate) leaving: Vec<Leaving>,
    /// What its members run beyond the admission; charged while it is observed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) excess: Excess,
    /// The jobs that it was shrunk for. It does not scale up while one of them is pending.
    #[serde(default, alias = "gave_to", skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) shrunk_for: BTreeSet<JobKey>,
    /// True if something keeps pods of it from running while it starts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) pods_kept: bool,
    /// The share that runs with fewer pods than its minimum, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) loss: Option<Loss>,
    /// The cluster in which its unbound pods fit on no node, and since when.
    pub(crate) room_lost: Option<(Time, ClusterName)>,
    /// Why it is ending, and the cluster that failed, if one did.
    pub(crate) ending: Option<(Cause, Option<ClusterName>)>,
}

/// The entries of a job in the indexes, updated by [`Jobs::sync`](super::store::Jobs::sync).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Derived {
    /// Its entry among pending jobs, while it competes.
    pub(crate) line: Option<PendingEntry>,
    /// The queue and the state in which it is counted, with its demand while it is pending.
    pub(crate) counted: Option<(QueueName, JobState, Option<Arc<Demand>>)>,
    /// Entries that only charged jobs have.
    pub(crate) has: Rare<ChargedState>,
}

/// The entries of a charged job in the indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChargedState {
    /// Its charge, and the queue that is charged.
    pub(crate) charge: Option<(QueueName, Arc<Pools>)>,
    /// The queue and the user for which it counts as charged.
    pub(crate) holder: Option<(QueueName, Arc<str>)>,
    /// Its expected end.
    pub(crate) expected_end: Option<Time>,
    /// The queue and the priority of its entry in the index of preemptible jobs.
    pub(crate) held: Option<(QueueName, i32)>,
}

impl ChargedState {
    /// Its charge, with the queue and the user that are charged.
    pub(crate) fn owned_charge(&self) -> Option<(&QueueName, &Arc<str>, &Arc<Pools>)> {
        let (queue, pools) = self.charge.as_ref()?;
        let (_, user) = self.holder.as_ref()?;
        Some((queue, user, pools))
    }
}

impl Nothing for ChargedState {
    const NOTHING: &'static Self = &Self {
        charge: None,
        holder: None,
        expected_end: None,
        held: None,
    };
}

/// The entry of a pending job: its queue, shape and sort key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingEntry {
    pub(crate) queue: QueueName,
    pub(crate) shape: ShapeId,
    pub(crate) rank: QueueOrder,
}

impl ColdState {
    /// Clears all but the facts, for a new object with the name of the job.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            hold: self.hold.take(),
            checkpointed_at: self.checkpointed_at,
            ..Self::NOTHING.clone()
        };
    }

    /// Notes that it came back, or that a person changed it.
    pub(crate) fn renew(&mut self, at: Time) {
        self.renewed_at = self.renewed_at.max(Some(at));
    }
}

impl Cause {
    /// Returns true if the attempt was evicted for another job.
    pub(crate) fn is_for_another(&self) -> bool {
        matches!(self.reason, Reason::Reclaimed | Reason::Preempted)
    }

    /// Returns true if the attempt failed; not if it was evicted for another job, or by an operator, or stopped.
    pub(crate) fn is_failure(&self) -> bool {
        !matches!(
            self.reason,
            Reason::Reclaimed
                | Reason::Preempted
                | Reason::RuntimeLimitExceeded
                | Reason::ClusterDrained
                | Reason::NodeEnding
                | Reason::QueueStopped
                | Reason::PodsLost
                | Reason::ScaledToZero
        )
    }
}

impl Job {
    pub(crate) fn state(&self) -> JobState {
        match self.released.as_ref().map(|released| released.progress) {
            None => JobState::Queued,
            Some(Progress::Assumed) => JobState::Assumed,
            Some(Progress::Placed) => JobState::Placed,
            Some(Progress::Running) => JobState::Running,
            Some(Progress::Ending) => JobState::Ending,
            Some(Progress::Finished) => JobState::Finished,
        }
    }

    /// The queue that it is charged to, or pending in.
    pub(crate) fn queue_now(&self) -> &QueueName {
        self.released
            .as_ref()
            .map_or(&self.queue, |released| &released.admission.queue)
    }

    /// Its charge, and the queue that is charged.
    pub(crate) fn charge(&self) -> Option<(QueueName, Arc<Pools>)> {
        let released = self.charged()?;
        Some((released.admission.queue.clone(), Arc::new(released.pools())))
    }

    /// The queue and the user for which it counts as charged.
    pub(crate) fn charged_user(&self) -> Option<(QueueName, Arc<str>)> {
        let released = self.charged()?;
        Some((released.admission.queue.clone(), Arc::clone(&self.user)))
    }

    /// The queue and the state in which it is counted, with its demand while it is pending.
    pub(crate) fn counted_as(&self) -> (QueueName, JobState, Option<Arc<Demand>>) {
        let state = self.state();
        let waits = state == JobState::Queued && self.cold.hold.is_none();
        let pending = self.demand.clone().filter(|_| waits);
        (self.queue_now().clone(), state, pending)
    }

    /// Whose its charge is.
    pub(crate) fn owner<'a>(&'a self, key: &'a JobKey) -> ChargeOwner<'a> {
        ChargeOwner {
            user: &self.user,
            namespace: &key.namespace,
        }
    }

    fn charged(&self) -> Option<&Released> {
        self.released
            .as_deref()
            .filter(|released| released.charged())
    }

    /// Returns true if it is queued and does not compete.
    pub(crate) fn is_queued_not_pending(&self) -> bool {
        self.released.is_none() && self.derived.line.is_none()
    }

    /// Returns true if it was stopped at a limit of run time.
    pub(crate) fn is_stopped(&self) -> bool {
        self.cold.stopped_after.is_some()
    }

    /// Returns true if no run time of it is known, although its demand is: no similar job had ended when it was queued,
    /// or admitted.
    pub(crate) fn is_unpredicted(&self) -> bool {
        let unknown = match self.released.as_deref() {
            Some(released) => released.charged() && released.expected_ms.is_none(),
            None => {
                self.derived.line.is_some() && self.forecast == Some(PredictedRunTime::default())
            }
        };
        unknown && self.duration.is_none() && self.demand.is_some()
    }

    /// Returns true if it is starting or recovering, and has pods that fit on no node of their cluster.
    pub(crate) fn is_stranded(&self) -> bool {
        let released = self.released.as_ref().filter(|r| r.lacks_pods());
        released.is_some_and(|released| released.room_lost.is_some())
    }

    /// Returns true if all of it or some of its pods are terminating and charged.
    pub(crate) fn is_terminating(&self) -> bool {
        self.charged().is_some_and(|released| {
            released.progress == Progress::Ending || !released.leaving.is_empty()
        })
    }

    pub(crate) fn view(&self, priority: i32) -> JobView<'_> {
        JobView {
            uid: self
                .released
                .as_ref()
                .map_or(&self.uid, |r| &r.admission.uid),
            state: self.state(),
            queue: self.queue_now(),
            priority,
            attempts: self.attempt,
            admission: self.released.as_ref().map(|released| &released.admission),
            queued_at: self.queued_at,
            back_off_until: self.cold.back_off_until,
            exceeds_grant: self.released.as_ref().is_some_and(|r| r.exceeds_grant),
        }
    }
}

impl Released {
    /// The state of an attempt of which only this is known.
    pub(super) fn new(admission: Admission, progress: Progress) -> Self {
        Self {
            declared_ms: admission.declared_ms,
            admission,
            progress,
            over: false,
            basis: None,
            granted: None,
            exceeds_grant: false,
            placed: false,
            started_at: None,
            expected_ms: None,
            leaving: Vec::new(),
            excess: Excess::new(),
            shrunk_for: BTreeSet::new(),
            pods_kept: false,
            loss: None,
            room_lost: None,
            ending: None,
        }
    }

    /// Returns true if it is neither ending nor over.
    pub(crate) fn alive(&self) -> bool {
        !matches!(self.progress, Progress::Ending | Progress::Finished)
    }

    /// Returns true if it is admitted and not running yet.
    pub(crate) fn starting(&self) -> bool {
        matches!(self.progress, Progress::Assumed | Progress::Placed)
    }

    /// Returns true if pods of it have to be bound before its minimum runs: it is starting, or has lost some.
    pub(crate) fn lacks_pods(&self) -> bool {
        self.starting() || (self.progress == Progress::Running && self.loss.is_some())
    }

    /// When it was first observed running, else when it was admitted.
    pub(crate) fn begun(&self) -> Time {
        self.started_at.unwrap_or(self.admission.admitted_at)
    }

    /// Returns true if it is charged: until its end is confirmed.
    pub(crate) fn charged(&self) -> bool {
        !self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_keeps_facts_and_clears_state() {
        let facts = ColdState {
            hold: Some(Hold {
                reason: Reason::Suspended,
                message: "by its owner".to_owned(),
            }),
            checkpointed_at: Some(Time(1)),
            ..ColdState::NOTHING.clone()
        };
        let mut known = ColdState {
            failures: 1,
            stopped_after: Some(1),
            back_off_until: Some(Time(2)),
            avoid: BTreeMap::from([(ClusterName::from("a"), Time(3))]),
            ..facts.clone()
        };
        known.reset();
        assert_eq!(known, facts);
    }
}
