//! State of one job between passes, one type for each subject; each is in the file of its subject. It is in memory
//! only: a restart derives it again.

use crate::reconcile::ending_pods::FormerPods;
use crate::reconcile::open_write::OpenWrite;
use crate::reconcile::placed::attempt_end::AttemptEnd;
use crate::reconcile::placed::excess::ExcessState;
use crate::reconcile::placed::growth::Pins;
use crate::reconcile::placed::not_running::UnscheduledPods;
use crate::reconcile::placed::parts::PartsState;
use crate::reconcile::placed::shrink::Shrinks;
use crate::reconcile::placement_refused::RefusedAttempt;
use crate::reconcile::preserved::PreservedObjects;
use crate::reconcile::record_guard::RecordGuard;
use crate::reconcile::works_end::WorksEnd;
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use engine::Time;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) open: OpenWrite,
    /// What other users have changed of its binding that only Muster may write.
    pub(crate) guard: RecordGuard,
    pub(crate) timers: JobTimers,
    /// The last attempt, if the API server has refused to place it and would again.
    pub(crate) refused: Option<RefusedAttempt>,
    /// State of the parts of the present placement, for a job in parts.
    pub(crate) parts: PartsState,
    pub(crate) unscheduled: UnscheduledPods,
    /// Clusters that have not confirmed the smaller size of the job.
    pub(crate) shrinks: Shrinks,
    pub(crate) pins: Pins,
    /// What its Works request beyond what was admitted.
    pub(crate) excess: ExcessState,
    pub(crate) preserved: PreservedObjects,
    pub(crate) end: AttemptEnd,
    pub(crate) works: WorksEnd,
    /// Pods of earlier attempts; an attempt that ends does not change since when they are waited for.
    pub(crate) former_pods: FormerPods,
}

/// Since when conditions of one job hold, and when one is checked again.
#[derive(Debug, Default)]
pub(crate) struct JobTimers {
    /// Since when its adoption waits for its template.
    pub(crate) adopting_since: Option<Time>,
    /// Since when its object is missing while nothing deletes its binding.
    pub(crate) orphaned_since: Option<Time>,
    /// Since when a member refuses the job.
    pub(crate) refused_since: Option<Time>,
    /// When to check again what it needs in its members, while none of its pods runs.
    pub(crate) renew_at: Option<Time>,
    /// Since when this process sees it run.
    pub(crate) runs_since: Option<Time>,
}

impl InFlight {
    /// Begins a write of `binding`.
    pub(crate) fn begin_write(&mut self, binding: &ResourceBinding, write: &Write) {
        self.open.begin(binding);
        self.guard.writes(write);
        if matches!(write, Write::Place { .. }) {
            self.works.reset();
            self.former_pods = FormerPods::default();
            self.timers.refused_since = None;
            self.refused = None;
        }
    }

    /// Resets what belongs to an attempt when it is over.
    pub(crate) fn ended(&mut self) {
        self.works.reset();
        self.timers.refused_since = None;
        self.shrinks = Shrinks::default();
        self.parts = PartsState::default();
        self.excess = ExcessState::default();
        self.preserved = PreservedObjects::default();
        self.guard.ended();
    }
}
