//! Metrics of the watches: when each last heard from its server, how often it listed, what failed.

use super::ObjectKey;
use crate::client::CallError;
use crate::metrics::Registry;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Metrics of all watches of a process, by kind. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct WatchMetrics {
    contacts: Arc<Mutex<BTreeMap<String, Instant>>>,
    lists: Family<KindLabel, Counter>,
    objects: Family<KindLabel, Gauge>,
    errors: Family<ErrorLabel, Counter>,
    went_back: Family<KindLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabel {
    kind: String,
    /// The HTTP status, `undecodable`, or `io` if there was no answer.
    code: String,
}

impl WatchMetrics {
    /// Creates metrics in `registry`.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let fresh = Self::default();
        let metrics = Self {
            contacts: fresh.contacts,
            lists: registry.register("watch_lists", "Full lists taken", fresh.lists),
            objects: registry.register("watch_objects", "Objects known", fresh.objects),
            errors: registry.register("watch_errors", "Failed calls", fresh.errors),
            went_back: registry.register(
                "watch_went_back",
                "Times that the server was found at an earlier state than before",
                fresh.went_back,
            ),
        };
        registry.register_collector("watch_age_seconds", metrics)
    }

    /// Returns how long ago the watch of `kind` heard from its server: an event, a bookmark, or the answer to
    /// a call. `None` before the first time, after the watch ended, and while the server does not serve the
    /// kind if that counts as having no objects.
    #[must_use]
    pub fn age(&self, kind: &str) -> Option<Duration> {
        self.contacts.lock().get(kind).map(Instant::elapsed)
    }
}

impl Collector for WatchMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let contacts = self.contacts.lock().clone();
        let mut descriptor = encoder.encode_descriptor(
            "watch_age_seconds",
            "Time since the watch last heard from its server",
            None,
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        for (kind, at) in contacts {
            let age = ConstGauge::new(at.elapsed().as_secs_f64());
            age.encode(descriptor.encode_family(&KindLabel { kind })?)?;
        }
        Ok(())
    }
}

/// Reports of one watch to its metrics and the log. A repeated failure is logged once.
pub(super) struct Reporter {
    kind: String,
    metrics: WatchMetrics,
    objects: Gauge,
    trouble: Option<String>,
}

impl Reporter {
    pub(super) fn new(kind: String, metrics: WatchMetrics) -> Self {
        let label = KindLabel { kind: kind.clone() };
        let objects = metrics.objects.get_or_create(&label).clone();
        Self {
            kind,
            metrics,
            objects,
            trouble: None,
        }
    }

    /// Records that the server was heard from.
    pub(super) fn contact(&mut self) {
        let mut contacts = self.metrics.contacts.lock();
        match contacts.get_mut(&self.kind) {
            Some(at) => *at = Instant::now(),
            None => {
                contacts.insert(self.kind.clone(), Instant::now());
            }
        }
        drop(contacts);
        if self.trouble.take().is_some() {
            tracing::info!(kind = self.kind, "watch works again");
        }
    }

    /// Records a full list.
    pub(super) fn listed(&mut self, objects: usize) {
        self.metrics.lists.get_or_create(&self.label()).inc();
        self.known(objects);
        tracing::debug!(kind = self.kind, objects, "listed");
    }

    /// Records the number of known objects.
    pub(super) fn known(&self, objects: usize) {
        self.objects.set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// Records that `call` failed.
    pub(super) fn failed(&mut self, call: &str, error: &CallError) {
        let code = error
            .code()
            .map_or("io".to_owned(), |code| code.to_string());
        self.count(&code);
        if self.trouble.as_ref() == Some(&code) {
            return;
        }
        let kind = &self.kind;
        match error.code() {
            Some(404) => tracing::info!(kind, "this kind is not served; waiting for it"),
            Some(401 | 403) => {
                tracing::error!(
                    kind,
                    call,
                    error = error.message(),
                    "not permitted to watch"
                );
            }
            _ => tracing::warn!(
                kind,
                call,
                error = error.message(),
                "watch fails; trying again"
            ),
        }
        self.trouble = Some(code);
    }

    /// Records that the server does not serve the kind: there is no age to report.
    pub(super) fn absent(&self) {
        self.metrics.contacts.lock().remove(&self.kind);
    }

    /// Records an event that could not be decoded; its object is unknown.
    pub(super) fn undecodable(&mut self, error: &kube::Error) {
        self.count("undecodable");
        tracing::warn!(kind = self.kind, %error, "an event cannot be decoded and is left out");
    }

    /// Records objects of a list that could not be decoded.
    pub(super) fn skipped(&mut self, keys: &[ObjectKey]) {
        for _ in keys {
            self.count("undecodable");
        }
    }

    /// Records that the server had `reached` a version, and is at `now`, a lower one.
    pub(super) fn went_back(&self, reached: u64, now: u64) {
        self.metrics.went_back.get_or_create(&self.label()).inc();
        tracing::error!(
            kind = self.kind,
            reached,
            now,
            "the API server has gone back to an earlier state, as after a restore of its etcd; the known objects are dropped"
        );
    }

    /// Records that the watch is over: it has no age any more.
    pub(super) fn ended(&self) {
        self.metrics.contacts.lock().remove(&self.kind);
        self.metrics.objects.remove(&self.label());
    }

    fn count(&self, code: &str) {
        let label = ErrorLabel {
            kind: self.kind.clone(),
            code: code.to_owned(),
        };
        self.metrics.errors.get_or_create(&label).inc();
    }

    fn label(&self) -> KindLabel {
        KindLabel {
            kind: self.kind.clone(),
        }
    }
}
