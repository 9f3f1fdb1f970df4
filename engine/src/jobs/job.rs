//! A job inside the engine: what was told of it, how far it is, and what is derived of that.

use crate::amounts::rare::{Nothing, Rare};
use crate::api::charge::Pools;
use crate::api::demand::{Demand, Hold};
use crate::api::event::Progress;
use crate::api::facts::{Admission, Leaving, Share};
use crate::api::ids::{Attempt, ClusterName, JobKey, QueueName, Time, Uid};
use crate::api::job::{JobState, PredictedRunTime, QueueOrder};
use crate::api::reason::Reason;
use crate::jobs::excess::Excess;
use crate::jobs::expected_end::ExpectedEnd;
use crate::jobs::recovery::Loss;
use crate::pending::shapes::ShapeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A job as the engine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView<'a> {
    /// UID of its template.
    pub uid: &'a Uid,
    /// How far it is.
    pub state: JobState,
    /// The queue that it is charged to, or waits in.
    pub queue: &'a QueueName,
    /// Value of its priority class.
    pub priority: i32,
    /// Releases so far.
    pub attempts: Attempt,
    /// What is admitted, while it is released.
    pub admission: Option<&'a Admission>,
    /// When it was queued.
    pub queued_at: Time,
    /// Until when it does not compete, if it was evicted.
    pub back_off_until: Option<Time>,
    /// Whether it took more than it was granted, by a template edit that nothing could hold.
    /// It is charged for it, and should be pinned back.
    pub exceeds_grant: bool,
}

/// A job. What the facts say and what the engine decided; `derived` follows from both.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) uid: Uid,
    /// The queue that its template names now.
    pub(crate) queue: QueueName,
    pub(crate) priority_class: Option<Arc<str>>,
    /// Who submitted it, or its namespace where that is not told.
    pub(crate) user: Arc<str>,
    pub(crate) queued_at: Time,
    /// `None` while the job is known by its admission record only.
    pub(crate) demand: Option<Arc<Demand>>,
    pub(crate) duration: Option<i64>,
    /// How long it was predicted to run when it joined the line; nothing while it never did.
    pub(crate) forecast: Option<PredictedRunTime>,
    /// Whether it may be evicted for another job.
    pub(crate) preemptible: bool,
    /// The last attempt, zero before the first.
    pub(crate) attempt: Attempt,
    /// What few jobs have.
    pub(crate) cold: Rare<ColdState>,
    pub(crate) released: Option<Box<Released>>,
    pub(crate) derived: Derived,
}

/// What was told of a job or happened to it that most jobs which wait have nothing of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ColdState {
    /// Why it may not be considered, if so.
    pub(crate) hold: Option<Hold>,
    /// When it last saved its work, if it tells.
    pub(crate) checkpointed_at: Option<Time>,
    /// Milliseconds that it had run when it was stopped for its queue's limit.
    pub(crate) stopped_after: Option<i64>,
    /// Attempts in a row that were evicted or refused.
    pub(crate) failures: u32,
    pub(crate) back_off_until: Option<Time>,
    /// Clusters left out, and until when.
    pub(crate) avoid: BTreeMap<ClusterName, Time>,
    /// Why the last attempt was evicted.
    pub(crate) last: Option<Cause>,
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
    };
}

/// A reason with its words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cause {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// What a released job has beside what was told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Released {
    pub(crate) admission: Admission,
    pub(crate) progress: Progress,
    /// Whether it had ended by itself: then it is charged nothing, also while it is removed.
    pub(crate) over: bool,
    /// What the admission was made for, or first seen with: later edits are measured by it.
    pub(crate) basis: Option<Arc<Demand>>,
    /// What was granted, where an edit that nothing could hold has changed what it has.
    pub(crate) granted: Option<Vec<Share>>,
    /// Whether it took more than was granted.
    pub(crate) exceeds_grant: bool,
    /// Whether assumed pods were asked for; a record read back may come before its demand.
    pub(crate) placed: bool,
    /// When it was first seen running; `None` while it was not.
    pub(crate) started_at: Option<Time>,
    /// Milliseconds in which it was predicted to end when it was released, if it does not
    /// declare that.
    pub(crate) expected_ms: Option<i64>,
    /// Milliseconds that it declared to run when it was released: what it says later counts for its
    /// next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) declared_ms: Option<i64>,
    /// Pods told to go that may still be there: charged until that is confirmed.
    pub(crate) leaving: Vec<Leaving>,
    /// What its members run beyond the admission: charged while that is observed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) excess: Excess,
    /// Jobs that it was made smaller for: while one of them waits, it does not grow.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) gave_to: BTreeSet<JobKey>,
    /// Since when, and where, it runs with fewer pods than its minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) loss: Option<Loss>,
    /// Since when its unbound pods fit nowhere in this cluster.
    pub(crate) room_lost: Option<(Time, ClusterName)>,
    /// Why it is ending, and where it failed.
    pub(crate) ending: Option<(Cause, Option<ClusterName>)>,
}

/// What the indexes hold of a job; brought up to date by `register`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Derived {
    /// Its place in line, while it competes.
    pub(crate) line: Option<PendingEntry>,
    /// In which queue it counts as what, with what it wants while it waits.
    pub(crate) counted: Option<(QueueName, JobState, Option<Arc<Demand>>)>,
    /// When it has to be looked at again.
    pub(crate) timer: Option<Time>,
    /// What follows from what it is charged, while it is.
    pub(crate) has: Rare<ChargedState>,
}

/// What the indexes hold of a job that is charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChargedState {
    /// What is charged to which queue.
    pub(crate) charge: Option<(QueueName, Arc<Pools>)>,
    /// In which queue and for which user it counts as released.
    pub(crate) holder: Option<(QueueName, Arc<str>)>,
    /// When it is expected to end.
    pub(crate) expected_end: Option<ExpectedEnd>,
    /// In whose list of what may be evicted it stands, by priority.
    pub(crate) held: Option<(QueueName, i32)>,
}

impl Nothing for ChargedState {
    const NOTHING: &'static Self = &Self {
        charge: None,
        holder: None,
        expected_end: None,
        held: None,
    };
}

/// A place in line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingEntry {
    pub(crate) queue: QueueName,
    pub(crate) shape: ShapeId,
    pub(crate) rank: QueueOrder,
}

impl ColdState {
    /// Forgets what happened to the object that had the job's name before.
    pub(crate) fn begin_again(&mut self) {
        *self = Self {
            hold: self.hold.take(),
            checkpointed_at: self.checkpointed_at,
            ..Self::NOTHING.clone()
        };
    }
}

impl Cause {
    /// Whether the attempt failed: not where it was evicted for another job, or stopped.
    pub(crate) fn is_failure(&self) -> bool {
        !matches!(
            self.reason,
            Reason::Reclaimed
                | Reason::Preempted
                | Reason::RuntimeLimitExceeded
                | Reason::ClusterDrained
                | Reason::PodsLost
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

    /// The queue that it is charged to, or waits in.
    pub(crate) fn queue_now(&self) -> &QueueName {
        self.released
            .as_ref()
            .map_or(&self.queue, |released| &released.admission.queue)
    }

    /// What is charged for it, and to which queue.
    pub(crate) fn charge(&self) -> Option<(QueueName, Arc<Pools>)> {
        let released = self.charged()?;
        Some((released.admission.queue.clone(), Arc::new(released.pools())))
    }

    /// In which queue and for which user it counts as released.
    pub(crate) fn charged_user(&self) -> Option<(QueueName, Arc<str>)> {
        let released = self.charged()?;
        Some((released.admission.queue.clone(), Arc::clone(&self.user)))
    }

    /// In which queue it counts as what, with what it wants while it waits.
    pub(crate) fn counted_as(&self) -> (QueueName, JobState, Option<Arc<Demand>>) {
        let state = self.state();
        let waits = state == JobState::Queued && self.cold.hold.is_none();
        let pending = self.demand.clone().filter(|_| waits);
        (self.queue_now().clone(), state, pending)
    }

    fn charged(&self) -> Option<&Released> {
        self.released
            .as_deref()
            .filter(|released| released.charged())
    }

    /// Whether it was stopped for a limit of run time.
    pub(crate) fn is_stopped(&self) -> bool {
        self.cold.stopped_after.is_some()
    }

    /// Whether it is starting or recovering, and has pods that fit on no node of their cluster.
    pub(crate) fn is_stranded(&self) -> bool {
        let released = self.released.as_ref().filter(|r| r.lacks_pods());
        released.is_some_and(|released| released.room_lost.is_some())
    }

    /// Whether it is charged for what is terminating: all of it, or some of its pods.
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
    /// What an attempt has for which nothing but this is known.
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
            gave_to: BTreeSet::new(),
            loss: None,
            room_lost: None,
            ending: None,
        }
    }

    /// Whether it is neither ending nor over.
    pub(crate) fn alive(&self) -> bool {
        !matches!(self.progress, Progress::Ending | Progress::Finished)
    }

    /// Whether pods of it may still have to be bound: it is neither ending nor over.
    pub(crate) fn starting(&self) -> bool {
        matches!(self.progress, Progress::Assumed | Progress::Placed)
    }

    /// Whether pods of it have to be bound before its minimum runs: it is starting, or has lost some.
    pub(crate) fn lacks_pods(&self) -> bool {
        self.starting() || (self.progress == Progress::Running && self.loss.is_some())
    }

    /// When the job began to use its nodes, as far as that was seen.
    pub(crate) fn begun(&self) -> Time {
        self.started_at.unwrap_or(self.admission.admitted_at)
    }

    /// Whether it is charged: until its end is confirmed.
    pub(crate) fn charged(&self) -> bool {
        !self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_another_object_stay_and_what_happened_to_the_first_does_not() {
        let told = ColdState {
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
            ..told.clone()
        };
        known.begin_again();
        assert_eq!(known, told);
    }
}
