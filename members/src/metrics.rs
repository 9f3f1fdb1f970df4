//! Metrics of the members: the freshness and size of their views.
//!
//! Labels are clusters, never nodes or pods.

use facts::ClusterName;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use runtime::metrics::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    cluster: String,
}

/// Metrics of the members' views.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemberMetrics {
    age: Family<ClusterLabel, Gauge<f64, AtomicU64>>,
    nodes: Family<ClusterLabel, Gauge>,
    pods: Family<ClusterLabel, Gauge>,
    usable: Family<ClusterLabel, Gauge>,
}

impl MemberMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let gauge = |name, help| registry.register(name, help, Family::default());
        Self {
            age: registry.register(
                "member_view_age_seconds",
                "Age of the view of a member",
                Family::default(),
            ),
            nodes: gauge("member_nodes", "Known nodes of a member"),
            pods: gauge(
                "member_pods",
                "Known pods of a member: bound ones, and those of jobs that have ended",
            ),
            usable: gauge("member_usable", "Whether decisions use a member"),
        }
    }

    /// Records the state of `cluster`; an age of `None` means that it was never heard of.
    pub(crate) fn seen(
        &self,
        cluster: &ClusterName,
        age: Option<Duration>,
        (nodes, pods): (usize, usize),
        usable: bool,
    ) {
        let label = label(cluster);
        self.age
            .get_or_create(&label)
            .set(age.map_or(f64::INFINITY, |age| age.as_secs_f64()));
        self.nodes.get_or_create(&label).set(count(nodes));
        self.pods.get_or_create(&label).set(count(pods));
        self.usable.get_or_create(&label).set(usable.into());
    }

    /// Removes the metrics of a deleted `cluster`.
    pub(crate) fn gone(&self, cluster: &ClusterName) {
        let label = label(cluster);
        self.age.remove(&label);
        self.nodes.remove(&label);
        self.pods.remove(&label);
        self.usable.remove(&label);
    }
}

fn label(cluster: &ClusterName) -> ClusterLabel {
    ClusterLabel {
        cluster: cluster.to_string(),
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
