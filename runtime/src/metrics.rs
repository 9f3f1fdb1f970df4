//! The registry of metrics of a process, with the prefix `muster`, and metrics of the process itself.
//!
//! Clones share it. Labels must have a limited set of values (kinds, results), never names of jobs: there
//! would be a series for each job.

mod scoped;

pub use scoped::{AmountGauge, ScopedFamily};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::{Metric, Registry as Inner};
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// Content type of [`Registry::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The prefix of the names.
const PREFIX: &str = "muster";

/// Returns buckets for the time that jobs wait, in seconds: 1 s to about 6 days, doubling. Each queue has two
/// such histograms.
pub fn wait_buckets() -> impl Iterator<Item = f64> {
    prometheus_client::metrics::histogram::exponential_buckets(1.0, 2.0, 20)
}

/// Returns buckets for latencies of API calls, in seconds: 1 ms to about 33 s, doubling.
pub fn latency_buckets() -> impl Iterator<Item = f64> {
    prometheus_client::metrics::histogram::exponential_buckets(0.001, 2.0, 16)
}

/// A shared registry of metrics.
#[derive(Clone)]
pub struct Registry(Arc<Mutex<Shared>>);

struct Shared {
    inner: Inner,
    /// Collectors of metrics that have no prefix, because all programs name them the same.
    unprefixed: Inner,
    /// Each metric by its name. A part of the process that is rebuilt, as with each term, continues with the
    /// metrics that it had.
    registered: HashMap<String, Box<dyn Any + Send>>,
    /// Each metric, whether or not it has labels yet.
    described: BTreeMap<String, MetricDescription>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// Creates an empty registry with the prefix `muster`.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Shared {
            inner: Inner::with_prefix(PREFIX),
            unprefixed: Inner::default(),
            registered: HashMap::new(),
            described: BTreeMap::new(),
        })))
    }

    /// Registers `metric` as `muster_<name>` and returns it. If one of that name and type is registered
    /// already, returns that one. A counter's name gets the suffix `_total` when it is encoded.
    ///
    /// # Panics
    /// Panics in debug builds if a metric of that name and another type is registered: the name would be
    /// exported twice.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.register_in(name, &format!("{PREFIX}_{name}"), help, metric)
    }

    /// Registers `metric` as `name`, without the prefix; see [`Self::register`]. For names that other programs
    /// gave.
    ///
    /// # Panics
    /// As [`Self::register`].
    pub fn register_as<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.register_in(name, name, help, metric)
    }

    fn register_in<M: Metric + Clone>(&self, name: &str, full: &str, help: &str, metric: M) -> M {
        let mut shared = self.0.lock();
        let known = shared.registered.get(name);
        if let Some(known) = known.and_then(|known| known.downcast_ref::<M>()) {
            return known.clone();
        }
        debug_assert!(known.is_none(), "{name} is registered with two types");
        let kind = metric.metric_type();
        let described = MetricDescription::new(full, kind.as_str(), help);
        let name_in_text = described.name.clone();
        shared.described.insert(name_in_text, described);
        let inner = match full == name {
            true => &mut shared.unprefixed,
            false => &mut shared.inner,
        };
        inner.register(name, help, metric.clone());
        shared
            .registered
            .insert(name.to_owned(), Box::new(metric.clone()));
        metric
    }

    /// Registers a collector, which computes its metrics at each scrape, and returns it. If one of that name
    /// and type is registered already, returns that one.
    pub fn register_collector<C: Collector + Clone>(&self, name: &str, collector: C) -> C {
        let mut shared = self.0.lock();
        let known = shared.registered.get(name);
        if let Some(known) = known.and_then(|known| known.downcast_ref::<C>()) {
            return known.clone();
        }
        let boxed = Box::new(collector.clone());
        shared.inner.register_collector(boxed);
        let known = Box::new(collector.clone());
        shared.registered.insert(name.to_owned(), known);
        collector
    }

    /// Registers a collector whose metrics keep their names, without the prefix.
    pub fn register_unprefixed(&self, collector: impl Collector) {
        let boxed = Box::new(collector);
        self.0.lock().unprefixed.register_collector(boxed);
    }

    /// Returns all metrics as OpenMetrics text; see [`CONTENT_TYPE`].
    ///
    /// # Errors
    /// Returns an error if a collector fails to encode itself.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let shared = self.0.lock();
        encode_registry(&mut text, &shared.inner)?;
        encode_registry(&mut text, &shared.unprefixed)?;
        encode_eof(&mut text)?;
        Ok(text)
    }

    /// Describes all metrics, by name: also those that have no labels yet, and so no series.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn described(&self) -> Result<BTreeMap<String, MetricDescription>, fmt::Error> {
        let text = self.encode()?;
        let after = |word: &str| -> BTreeMap<String, String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(word));
            let pairs = lines.filter_map(|line| line.split_once(' '));
            pairs
                .map(|(name, rest)| (name.to_owned(), rest.to_owned()))
                .collect()
        };
        let helps = after("# HELP ");
        let mut described = self.0.lock().described.clone();
        for (name, kind) in after("# TYPE ") {
            let help = helps
                .get(&name)
                .map_or("", |help| help.trim_end_matches('.'));
            let metric = MetricDescription::new(&name, &kind, help);
            described.entry(metric.name.clone()).or_insert(metric);
        }
        Ok(described)
    }
}

/// A metric as Prometheus knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricDescription {
    /// Its name, with the suffix `_total` if it is a counter.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// What it is.
    pub help: String,
}

impl MetricDescription {
    fn new(name: &str, kind: &str, help: &str) -> Self {
        let suffix = match kind {
            "counter" => "_total",
            _ => "",
        };
        Self {
            name: format!("{name}{suffix}"),
            kind: kind.to_owned(),
            help: help.to_owned(),
        }
    }

    /// Returns the names of its series.
    #[must_use]
    pub fn series(&self) -> Vec<String> {
        let suffixes: &[&str] = match self.kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let suffixes = suffixes.iter();
        suffixes
            .map(|suffix| format!("{}{suffix}", self.name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;

    #[test]
    fn every_metric_is_described_before_it_has_labels() {
        let registry = Registry::new();
        let labelled = Family::<Vec<(String, String)>, Counter>::default();
        registry.register("writes", "Writes", labelled);
        registry.register("seconds", "Time", Histogram::new(latency_buckets()));
        registry.register("leading", "Leads", Gauge::<i64>::default());
        registry.register_unprefixed(crate::process_metrics::ProcessMetrics);
        assert!(!registry.encode().unwrap().contains("muster_writes_total{"));
        let described = registry.described().unwrap();
        let writes = MetricDescription::new("muster_writes", "counter", "Writes");
        assert_eq!(described.get("muster_writes_total"), Some(&writes));
        let seconds = described.get("muster_seconds").unwrap();
        let buckets = [
            "muster_seconds_bucket",
            "muster_seconds_sum",
            "muster_seconds_count",
        ];
        assert_eq!(seconds.series(), buckets);
        assert_eq!(described.get("muster_leading").unwrap().kind, "gauge");
        let cpu = described.get("process_cpu_seconds_total");
        assert_eq!(cpu.unwrap().help, "User and system CPU time of the process");
    }

    #[test]
    #[should_panic(expected = "writes is registered with two types")]
    fn a_name_has_one_type() {
        let registry = Registry::new();
        registry.register("writes", "Writes", Counter::<u64>::default());
        registry.register("writes", "Writes", Gauge::<i64>::default());
    }

    #[test]
    fn a_name_is_registered_once_and_goes_on_counting() {
        let registry = Registry::new();
        let counter = || registry.register("writes", "Writes", Counter::<u64>::default());
        counter().inc();
        counter().inc();
        let text = registry.encode().unwrap();
        assert_eq!(text.matches("muster_writes_total").count(), 1);
        assert!(text.contains("muster_writes_total 2"), "{text}");
    }
}
