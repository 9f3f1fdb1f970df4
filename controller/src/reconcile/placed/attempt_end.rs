//! How the attempts of a job ended, as far as this process has seen it.

use engine::{Attempt, JobKey};
use workload::Outcome;

/// See the module's documentation. What is noted of one attempt says nothing of another.
#[derive(Debug, Default)]
pub(crate) struct AttemptEnd {
    /// How it ended, as last reported.
    outcome: Option<(Attempt, Outcome)>,
    /// Why it failed, and why it is not queued again.
    failure: Option<(Attempt, String)>,
    /// The finished attempt that is charged again, until it has ended or was seen to run.
    reopened: Option<Attempt>,
    /// The attempt that is evicted for another job, and that job.
    evicted_for: Option<(Attempt, JobKey)>,
    /// True if its members are kept from deleting it after its end.
    pub(crate) kept_alive: bool,
}

impl AttemptEnd {
    /// Records how `attempt` ended.
    pub(crate) fn note(&mut self, attempt: Attempt, outcome: Outcome) {
        self.outcome = Some((attempt, outcome));
    }

    /// Returns how `attempt` ended; the report itself may be gone by now.
    pub(crate) fn outcome_of(&self, attempt: Attempt) -> Option<&Outcome> {
        let (_, outcome) = self.outcome.as_ref().filter(|(of, _)| *of == attempt)?;
        Some(outcome)
    }

    /// Records why `attempt` has failed for good.
    pub(crate) fn note_failure(&mut self, attempt: Attempt, why: String) {
        self.failure = Some((attempt, why));
    }

    /// Returns why `attempt` has failed for good.
    pub(crate) fn failure_of(&self, attempt: Attempt) -> Option<&str> {
        let (_, why) = self.failure.as_ref().filter(|(of, _)| *of == attempt)?;
        Some(why)
    }

    /// Records that `attempt` is evicted for `preemptor`.
    pub(crate) fn evict_for(&mut self, attempt: Attempt, preemptor: JobKey) {
        self.evicted_for = Some((attempt, preemptor));
    }

    /// Returns the job that `attempt` is evicted for, if any.
    pub(crate) fn preemptor_of(&self, attempt: Attempt) -> Option<JobKey> {
        let (_, preemptor) = self.evicted_for.as_ref().filter(|(of, _)| *of == attempt)?;
        Some(preemptor.clone())
    }

    /// Records whether `attempt` is over, was so before, and runs. Returns true the first time that it runs after
    /// its end: its report may only be late or lost, so it has to be seen to run.
    pub(crate) fn runs_again(&mut self, attempt: Attempt, over: (bool, bool), runs: bool) -> bool {
        match over {
            (true, _) => self.reopened = None,
            (false, true) => self.reopened = Some(attempt),
            (false, false) => {}
        }
        let again = runs && self.reopened == Some(attempt);
        if again {
            self.reopened = None;
        }
        again
    }
}
