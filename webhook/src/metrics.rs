//! Metrics of the webhook.

use crate::review::ReviewAnswer;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use runtime::Registry;
use std::time::Duration;

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum RequestOutcome {
    /// Allowed without a change.
    Allowed,
    /// Allowed with a patch.
    Patched,
    /// Denied.
    Denied,
    /// The request could not be read.
    Error,
    /// The request was not read because the limits were reached.
    Busy,
}

impl RequestOutcome {
    /// Returns the outcome of `answer`.
    #[must_use]
    pub fn of(answer: &ReviewAnswer) -> Self {
        match answer {
            ReviewAnswer::Allow { patch, .. } if patch.is_empty() => Self::Allowed,
            ReviewAnswer::Allow { .. } => Self::Patched,
            ReviewAnswer::Deny { .. } => Self::Denied,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    path: &'static str,
    outcome: RequestOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabel {
    path: &'static str,
}

/// Numbers and times of requests. Clones share them.
#[derive(Debug, Clone)]
pub struct WebhookMetrics {
    requests: Family<Labels, Counter>,
    seconds: Family<PathLabel, Histogram, fn() -> Histogram>,
    certificate_until: Gauge,
}

impl WebhookMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        // From 25 µs: a decision takes microseconds, and slower ones should show.
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(25e-6, 2.0, 16));
        Self {
            requests: registry.register(
                "webhook_requests",
                "Admission reviews by path and outcome",
                Family::default(),
            ),
            seconds: registry.register(
                "webhook_seconds",
                "Time to answer an admission review once it has been received, by path",
                Family::new_with_constructor(histogram),
            ),
            certificate_until: registry.register(
                "webhook_certificate_expiry_timestamp_seconds",
                "When the serving certificate in use expires",
                Gauge::default(),
            ),
        }
    }

    /// Records that the serving certificate in use expires at `time`.
    pub fn certificate_until(&self, time: jiff::Timestamp) {
        self.certificate_until.set(time.as_second());
    }

    /// Counts one request.
    pub fn observe(&self, path: &'static str, outcome: RequestOutcome, took: Duration) {
        self.requests.get_or_create(&Labels { path, outcome }).inc();
        let seconds = self.seconds.get_or_create(&PathLabel { path });
        seconds.observe(took.as_secs_f64());
    }
}
