//! Metrics of the committer.

use super::intent::{WriteFailure, WriteKind, WrittenBinding};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use runtime::Registry;
use runtime::metrics::latency_buckets;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteKindLabel {
    kind: WriteKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    kind: WriteKind,
    result: ResultWord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum ResultWord {
    Written,
    Conflict,
    Gone,
    Refused,
    NotLeading,
    Unavailable,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BehindLabel {
    result: BehindWord,
}

/// Result of a status that follows a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum BehindWord {
    Written,
    /// The placement that it belongs to is gone.
    Overtaken,
    /// Given up; the scheduler acknowledges the generation later.
    Failed,
}

/// See the module's documentation.
pub(super) struct CommitMetrics {
    writes: Family<ResultLabel, Counter>,
    seconds: Family<WriteKindLabel, Histogram>,
    conflicts: Family<WriteKindLabel, Counter>,
    behind: Family<BehindLabel, Counter>,
}

impl CommitMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(latency_buckets());
        Self {
            writes: registry.register(
                "binding_writes",
                "Writes to bindings, by result",
                Family::default(),
            ),
            seconds: registry.register(
                "binding_write_seconds",
                "Time from the start of a write until its outcome was certain",
                Family::new_with_constructor(histogram),
            ),
            conflicts: registry.register(
                "binding_write_conflicts",
                "Conflicts of binding writes, before the binding was read again",
                Family::default(),
            ),
            behind: registry.register(
                "binding_status_writes",
                "Statuses that follow a placement",
                Family::default(),
            ),
        }
    }

    pub(super) fn ended(
        &self,
        kind: WriteKind,
        result: &Result<WrittenBinding, WriteFailure>,
        took: Duration,
    ) {
        let word = match result {
            Ok(_) => ResultWord::Written,
            Err(WriteFailure::Conflict) => ResultWord::Conflict,
            Err(WriteFailure::Gone) => ResultWord::Gone,
            Err(WriteFailure::Refused { .. }) => ResultWord::Refused,
            Err(WriteFailure::NotLeading) => ResultWord::NotLeading,
            Err(WriteFailure::Unavailable { .. }) => ResultWord::Unavailable,
        };
        let label = ResultLabel { kind, result: word };
        self.writes.get_or_create(&label).inc();
        let seconds = took.as_secs_f64();
        self.seconds
            .get_or_create(&WriteKindLabel { kind })
            .observe(seconds);
    }

    pub(super) fn conflict(&self, kind: WriteKind) {
        self.conflicts.get_or_create(&WriteKindLabel { kind }).inc();
    }

    pub(super) fn behind(&self, result: BehindWord) {
        self.behind.get_or_create(&BehindLabel { result }).inc();
    }
}
