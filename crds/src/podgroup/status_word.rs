//! What a job does, in one word: the column STATUS of PodGroups and of `kubectl muster jobs`.
//!
//! Volcano's phases have no words for some of it: `Inqueue` is a job whose pods are starting, and `Completed`
//! one that succeeded or failed. The controller publishes the word; others show what is published.

use super::phase;
use std::fmt;
use std::str::FromStr;

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusWord {
    /// It waits.
    Queued,
    /// Its quota is charged.
    Admitted,
    /// It is placed, and its pods are not all there.
    Starting,
    /// Enough of its pods run.
    Running,
    /// Its pods are being removed.
    Evicting,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// It ended, and its result is not known.
    Finished,
}

/// A word that is no status of a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no status of a job")]
pub struct UnknownStatus(String);

impl StatusWord {
    /// Every status, with what it means.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Queued, "It waits"),
        (Self::Admitted, "Its quota is charged"),
        (
            Self::Starting,
            "It is placed, and its pods are not all there",
        ),
        (Self::Running, "Enough of its pods run"),
        (Self::Evicting, "Its pods are being removed"),
        (Self::Succeeded, "It ended well"),
        (Self::Failed, "It ended badly"),
        (Self::Finished, "It ended, and its result is not known"),
    ];

    /// Returns the status of a job by the phase of its PodGroup ([`phase`]) and its reason.
    #[must_use]
    pub fn of(phase: &str, reason: &str) -> Self {
        match (phase, reason) {
            (phase::INQUEUE, "Admitted") => Self::Admitted,
            (phase::INQUEUE, _) => Self::Starting,
            (phase::RUNNING, _) => Self::Running,
            (phase::UNKNOWN, _) => Self::Evicting,
            (phase::COMPLETED, "Succeeded") => Self::Succeeded,
            (phase::COMPLETED, "Failed") => Self::Failed,
            (phase::COMPLETED, _) => Self::Finished,
            _ => Self::Queued,
        }
    }

    /// Returns its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Admitted => "Admitted",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Evicting => "Evicting",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Finished => "Finished",
        }
    }

    /// Returns true if the job holds quota.
    #[must_use]
    pub fn is_admitted(self) -> bool {
        matches!(
            self,
            Self::Admitted | Self::Starting | Self::Running | Self::Evicting
        )
    }

    /// Returns true if the job has ended.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Finished)
    }
}

impl fmt::Display for StatusWord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for StatusWord {
    type Err = UnknownStatus;

    /// Reads a word in any case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.iter().map(|(status, _)| *status);
        let known = all.find(|status| status.as_str().eq_ignore_ascii_case(text));
        known.ok_or_else(|| UnknownStatus(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_in_one_word_what_a_job_does() {
        use StatusWord::*;
        let cases = [
            (phase::PENDING, "WaitingForQuota", Queued),
            (phase::INQUEUE, "Admitted", Admitted),
            (phase::INQUEUE, "Placed", Starting),
            (phase::INQUEUE, "MemberRefused", Starting),
            (phase::RUNNING, "GrowthHeld", Running),
            (phase::UNKNOWN, "Preempted", Evicting),
            (phase::COMPLETED, "Succeeded", Succeeded),
            (phase::COMPLETED, "Failed", Failed),
            (phase::COMPLETED, "Finished", Finished),
            // Its result is not known: its record is unreadable, or it was aborted.
            (phase::COMPLETED, "RecordUnreadable", Finished),
            (phase::COMPLETED, "Suspended", Finished),
            ("Strange", "Failed", Queued),
        ];
        for (phase, reason, wanted) in cases {
            assert_eq!(StatusWord::of(phase, reason), wanted, "{phase} {reason}");
        }
    }

    #[test]
    fn every_word_is_read_back() {
        for (status, _) in StatusWord::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
            assert_eq!(status.to_string().to_lowercase().parse(), Ok(status));
        }
        assert!("Inqueue".parse::<StatusWord>().is_err());
    }
}
