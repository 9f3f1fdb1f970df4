//! The registry of metrics of a process, with the prefix `muster`.
//!
//! Clones share it. Labels must have a limited set of values (kinds, results), never names of jobs: there
//! would be a series for each job.

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::registry::{Metric, Registry as Inner};
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Content type of [`Registry::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns buckets for latencies of API calls, in seconds: 1 ms to about 33 s, doubling.
pub fn latency_buckets() -> impl Iterator<Item = f64> {
    prometheus_client::metrics::histogram::exponential_buckets(0.001, 2.0, 16)
}

/// A shared registry of metrics.
#[derive(Clone)]
pub struct Registry(Arc<Mutex<Shared>>);

struct Shared {
    inner: Inner,
    /// Each metric by its name. A part of the process that is rebuilt, as with each term, continues with the
    /// metrics that it had.
    registered: HashMap<String, Box<dyn Any + Send>>,
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
            inner: Inner::with_prefix("muster"),
            registered: HashMap::new(),
        })))
    }

    /// Registers `metric` as `muster_<name>` and returns it. If one of that name and type is registered
    /// already, returns that one. A counter's name gets the suffix `_total` when it is encoded.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        let mut shared = self.0.lock();
        let known = shared.registered.get(name);
        if let Some(known) = known.and_then(|known| known.downcast_ref::<M>()) {
            return known.clone();
        }
        shared.inner.register(name, help, metric.clone());
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

    /// Returns all metrics as OpenMetrics text; see [`CONTENT_TYPE`].
    ///
    /// # Errors
    /// Returns an error if a collector fails to encode itself.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0.lock().inner)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use prometheus_client::metrics::counter::Counter;

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
