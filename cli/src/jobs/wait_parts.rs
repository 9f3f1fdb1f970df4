//! The wait of a job in parts: submitted, eligible, admitted, running.
//!
//! A stage whose time is not known has no part of its own: the next part covers it.

use crate::age::human;
use crds::podgroup::{StatusWord, Timeline};
use jiff::Timestamp;

/// The stages that end a part, in their order.
pub(super) const STAGES: [&str; 3] = ["eligible", "admitted", "running"];

/// The wait of one job.
pub(crate) struct WaitParts {
    /// Seconds until each of [`STAGES`] since the stage before that is known.
    until: [Option<i64>; 3],
    /// When the last known stage was reached, while the job still waits.
    open_since: Option<Timestamp>,
}

impl WaitParts {
    pub(crate) fn of(timeline: &Timeline, status: StatusWord) -> Self {
        let mut until = [None; 3];
        let mut last = timeline.queued.as_ref().map(|time| time.0);
        // What a queued job has reached beyond that, it reached in an earlier attempt.
        let reached = match status {
            StatusWord::Queued => [&timeline.eligible, &None, &None],
            _ => [&timeline.eligible, &timeline.admitted, &timeline.running],
        };
        for (part, time) in until.iter_mut().zip(reached) {
            let time = time.as_ref().map(|time| time.0);
            if let (Some(since), Some(time)) = (last, time)
                && since <= time
            {
                *part = Some(time.as_second() - since.as_second());
                last = Some(time);
            }
        }
        let waits = matches!(
            status,
            StatusWord::Queued | StatusWord::Admitted | StatusWord::Starting
        );
        Self {
            until,
            open_since: last.filter(|_| waits),
        }
    }

    /// Returns the parts that are over as cells, in the order of [`STAGES`]. They do not change with time.
    pub(super) fn cells(&self) -> [String; 3] {
        self.until
            .map(|seconds| seconds.map(human).unwrap_or_default())
    }

    /// Formats `10m until eligible, 40m until admitted, 5s so far`; empty if nothing is known.
    pub(crate) fn sentence(&self, now: Timestamp) -> String {
        let parts = self.until.iter().zip(STAGES);
        let over = parts
            .filter_map(|(seconds, stage)| Some(format!("{} until {stage}", human((*seconds)?))));
        let open = self.open_since.map(|since| {
            let seconds = now.as_second() - since.as_second();
            format!("{} so far", human(seconds))
        });
        over.chain(open).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sentence(status: StatusWord, times: &str) -> String {
        let timeline: Timeline = serde_saphyr::from_str(times).unwrap();
        let now = "2026-11-25T10:00:00Z".parse().unwrap();
        WaitParts::of(&timeline, status).sentence(now)
    }

    #[test]
    fn a_wait_is_split_by_the_stages_that_are_known() {
        use StatusWord::{Queued, Running, Starting, Succeeded};
        let cases = [
            (
                Queued,
                "{queued: '2026-11-25T09:00:00Z', eligible: '2026-11-25T09:20:00Z'}",
                "20m until eligible, 40m so far",
            ),
            (Queued, "{queued: '2026-11-25T09:00:00Z'}", "60m so far"),
            (
                Starting,
                "{queued: '2026-11-25T09:00:00Z', admitted: '2026-11-25T09:59:00Z'}",
                "59m until admitted, 60s so far",
            ),
            (
                Running,
                "{queued: '2026-11-25T09:00:00Z', eligible: '2026-11-25T09:00:00Z',
                  admitted: '2026-11-25T09:30:00Z', running: '2026-11-25T09:30:12Z'}",
                "0s until eligible, 30m until admitted, 12s until running",
            ),
            // Times of an earlier attempt, and times that nobody knows.
            (
                Queued,
                "{queued: '2026-11-25T09:00:00Z', eligible: '2026-11-25T09:50:00Z',
                  admitted: '2026-11-25T09:10:00Z', running: '2026-11-25T09:11:00Z'}",
                "50m until eligible, 10m so far",
            ),
            (Succeeded, "{}", ""),
        ];
        for (status, times, wanted) in cases {
            assert_eq!(sentence(status, times), wanted, "{status} {times}");
        }
    }
}
