//! Metrics whose labels name something that comes and goes, as a queue or a pool.

use super::Registry;
use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Metric;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A gauge that may have fractions.
pub type AmountGauge = Gauge<f64, AtomicU64>;

/// A family of metrics that knows which labels are about which scope, for example a queue, so that no series
/// outlives its scope. Clones share it.
#[derive(Debug)]
pub struct ScopedFamily<S, L, M> {
    family: Family<L, M, fn() -> M>,
    exported: Arc<Mutex<HashMap<S, HashSet<L>>>>,
}

impl<S, L, M> Clone for ScopedFamily<S, L, M> {
    fn clone(&self) -> Self {
        Self {
            family: self.family.clone(),
            exported: Arc::clone(&self.exported),
        }
    }
}

impl<S, L, M> ScopedFamily<S, L, M>
where
    S: Clone + Eq + Hash,
    L: Clone + Eq + Hash,
    M: Clone,
    Family<L, M, fn() -> M>: Metric,
{
    /// Registers the metrics as `muster_<name>`.
    pub fn register(registry: &Registry, name: &str, help: &str, new: fn() -> M) -> Self {
        Self {
            family: registry.register(name, help, Family::new_with_constructor(new)),
            exported: Arc::default(),
        }
    }

    /// Registers the metrics as `name`, which has no prefix.
    pub fn register_as(registry: &Registry, name: &str, help: &str, new: fn() -> M) -> Self {
        Self {
            family: registry.register_as(name, help, Family::new_with_constructor(new)),
            exported: Arc::default(),
        }
    }

    /// Returns the metric with `label`, which is about `scope`.
    pub fn of(&self, scope: &S, label: L) -> M {
        let metric = self.family.get_or_create_owned(&label);
        let mut exported = self.exported.lock();
        exported.entry(scope.clone()).or_default().insert(label);
        metric
    }

    /// Removes what is exported about `scope`.
    pub fn forget(&self, scope: &S) {
        for label in self.exported.lock().remove(scope).into_iter().flatten() {
            self.family.remove(&label);
        }
    }

    /// Removes everything.
    pub fn clear(&self) {
        self.exported.lock().clear();
        self.family.clear();
    }
}

impl<S, L> ScopedFamily<S, L, AmountGauge>
where
    S: Clone + Eq + Hash,
    L: Clone + Eq + Hash,
{
    /// Exports exactly `values` about `scope`.
    pub fn replace(&self, scope: &S, values: impl IntoIterator<Item = (L, f64)>) {
        let mut exported = self.exported.lock();
        let mut labels = HashSet::new();
        for (label, value) in values {
            self.family.get_or_create(&label).set(value);
            labels.insert(label);
        }
        let known = exported.entry(scope.clone()).or_default();
        for label in known.difference(&labels) {
            self.family.remove(label);
        }
        *known = labels;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_scope_exports_what_was_recorded_last() {
        let registry = Registry::new();
        let table = ScopedFamily::register(&registry, "free", "Free", AmountGauge::default);
        let label = |pool: &str| vec![("pool".to_owned(), pool.to_owned())];
        table.replace(&"m1", [(label("a"), 1.0), (label("b"), 2.0)]);
        table.replace(&"m2", [(label("c"), 1.0)]);
        table.replace(&"m1", [(label("b"), 3.5)]);
        let text = registry.encode().unwrap();
        assert!(text.contains("muster_free{pool=\"b\"} 3.5"), "{text}");
        assert!(!text.contains("pool=\"a\""), "{text}");
        table.replace(&"m1", []);
        let text = registry.encode().unwrap();
        assert!(!text.contains("pool=\"b\""), "{text}");
        assert!(text.contains("pool=\"c\""), "{text}");
        table.forget(&"m2");
        assert!(!registry.encode().unwrap().contains("pool="));
    }
}
