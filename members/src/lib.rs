//! Live nodes, devices and pods of the members: the engine decides on them, and the scheduler checks plans
//! against them.
//!
//! ```text
//! Cluster objects ─► coordinator ─► one session per member ─► watches, probes, climbs
//!                        ▲                                               │
//!                        └───────────── views (facts, compared) ◄────────┘
//!                        └─► MemberEvent: facts that changed, Listed, Ready ─► every sink
//! ```
//!
//! [`Members`] is the handle: it returns the connection to a member and the freshness of its view. A member
//! is usable while Karmada reports it Ready, its nodes and pods have listed, and the view is fresh. The
//! state of an unreachable member is kept, as unusable, until its Cluster object is gone.
//!
//! This crate must never decide anything, never write anything in a member or on the control plane, and
//! never state as a fact what the member did not report: a member with an old view is unusable.

mod address;
mod cluster;
mod connect;
mod coordinator;
mod devices;
mod known;
mod matching;
mod member_rules;
mod metrics;
mod owners;
mod selectors;
mod session;
#[cfg(test)]
mod tests;
mod verdict;
mod view;

pub use matching::likely_job;
pub use member_rules::RulesUpdate;
pub use owners::PodJobs;
pub use verdict::ViewHealth;

use crds::karmada::Cluster;
use crds::node_health::{ClearedNodes, NodeHealth};
use facts::{ClusterName, Event, JobKey, NodeName};
use kube::Client;
use kube::core::Selector;
use matching::Owner;
use parking_lot::RwLock;
use runtime::metrics::Registry;
use runtime::watch::{Delta, WatchMetrics};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Returns a client of a member, reached as its Cluster object says, for checks.
///
/// # Errors
/// Returns why it has no address, or cannot be connected to.
pub async fn reach(
    control_plane: &Client,
    cluster: &Cluster,
    user_agent: &str,
) -> Result<Client, String> {
    let address = address::Address::of(cluster).map_err(|error| error.to_string())?;
    let connector = connect::connector(user_agent);
    let connected = connect::connect(control_plane, &address, &connector).await;
    Ok(connected.map_err(|error| error.to_string())?.client)
}

/// Returns true if a member is reached through Karmada's cluster proxy.
#[must_use]
pub fn is_proxied(cluster: &Cluster) -> bool {
    matches!(
        address::Address::of(cluster),
        Ok(address::Address::Proxy(_))
    )
}

/// Options of watching members.
#[derive(Debug, Clone)]
pub struct MembersOptions {
    /// The greatest age of a member's view for decisions, 60 s by default. A silent watch is restarted after
    /// half of it.
    pub freshness: Duration,
    /// Time between two probes of a member's API server.
    pub probe_period: Duration,
    /// How long decisions wait for a member to list for the first time.
    pub first_list: Duration,
    /// The user agent of every request to a member.
    pub user_agent: String,
    /// The labels of pods that are never charged, should they belong to no job; `None` for no pods.
    pub uncharged_pods: Option<Selector>,
    /// Metrics of the members' watches.
    pub watch_metrics: WatchMetrics,
    /// Registry of the metrics of the views.
    pub registry: Registry,
    /// True if every member is reached through Karmada's cluster proxy with the rights of the client, whatever its
    /// Cluster object says.
    pub through_proxy: bool,
}

impl Default for MembersOptions {
    fn default() -> Self {
        Self {
            freshness: Duration::from_secs(60),
            probe_period: Duration::from_secs(5),
            first_list: Duration::from_secs(30),
            user_agent: "muster".to_owned(),
            uncharged_pods: None,
            watch_metrics: WatchMetrics::default(),
            registry: Registry::default(),
            through_proxy: false,
        }
    }
}

/// A change of the state of the members.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberEvent {
    /// A cluster, node or pod was added, changed or deleted; a claim of devices without a pod is shown as a
    /// pod. One of [`Event::ClusterUpserted`], [`Event::ClusterGone`], [`Event::NodeUpserted`],
    /// [`Event::NodeGone`], [`Event::NodeImages`], [`Event::PodUpserted`], [`Event::PodGone`],
    /// [`Event::PodsEnded`].
    Fact(Event),
    /// The health of a node has changed. A node is healthy until this says otherwise, and after it is gone.
    NodeHealth {
        /// The cluster.
        cluster: ClusterName,
        /// The node.
        node: NodeName,
        /// Its health.
        health: NodeHealth,
    },
    /// The Cluster object has another UID or other cleared nodes than before. Sent before its first fact.
    Marks {
        /// The cluster.
        cluster: ClusterName,
        /// What its object says.
        marks: ClusterMarks,
    },
    /// What a member applies to pods before it stores them has changed. None is known until this says otherwise, and
    /// after the cluster is gone.
    Rules {
        /// The cluster.
        cluster: ClusterName,
        /// What has changed.
        rules: RulesUpdate,
    },
    /// All nodes and pods of a cluster have been sent once, or it is known to be unusable.
    Listed {
        /// The cluster.
        cluster: ClusterName,
    },
    /// Every cluster that existed at the start has listed. Sent once.
    Ready,
}

/// What a Cluster object says besides its fact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterMarks {
    /// Its UID.
    pub uid: String,
    /// The nodes that a person has cleared, and when.
    pub cleared: ClearedNodes,
}

/// What other crates need of a member besides its facts.
#[derive(Clone)]
pub(crate) struct MemberAccess {
    /// The present connection, if there is one.
    pub(crate) client: Option<Client>,
    /// The freshness of its view.
    pub(crate) health: ViewHealth,
}

/// The watched members. Clones share them.
#[derive(Clone, Default)]
pub struct Members {
    reach: Arc<RwLock<BTreeMap<ClusterName, MemberAccess>>>,
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reach = self.reach.read();
        f.debug_map()
            .entries(reach.iter().map(|(name, reach)| (name, reach.health)))
            .finish()
    }
}

impl Members {
    /// Watches the Cluster objects of `control_plane` and every member that they name, until `cancel`. Each
    /// sink gets every event, in the same order. A full sink delays all others; a dropped one is skipped.
    #[must_use]
    pub fn spawn(
        control_plane: Client,
        options: MembersOptions,
        sinks: Vec<mpsc::Sender<MemberEvent>>,
        cancel: CancellationToken,
    ) -> Self {
        let connector = connect::connector(&options.user_agent);
        Self::spawn_with(control_plane, options, connector, sinks, cancel)
    }

    /// Members that are reached by `clients`, for tests of other crates.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn reached_by(clients: &[(&str, Client)]) -> Self {
        let members = Self::default();
        for (name, client) in clients {
            let reach = MemberAccess {
                client: Some(client.clone()),
                health: ViewHealth::Ready,
            };
            members.reach.write().insert(ClusterName::new(name), reach);
        }
        members
    }

    fn spawn_with(
        control_plane: Client,
        options: MembersOptions,
        connector: connect::Connector,
        sinks: Vec<mpsc::Sender<MemberEvent>>,
        cancel: CancellationToken,
    ) -> Self {
        let members = Self::default();
        let coordinator = coordinator::Coordinator::new(
            control_plane,
            options,
            connector,
            sinks,
            members.clone(),
            cancel.clone(),
        );
        runtime::task::spawn(cancel.run_until_cancelled_owned(coordinator.run()));
        members
    }

    /// Returns the connection to `cluster`, if there is one.
    #[must_use]
    pub fn client(&self, cluster: &ClusterName) -> Option<Client> {
        self.reach.read().get(cluster)?.client.clone()
    }

    /// Returns the freshness of the view of `cluster`; `None` for an unknown one.
    #[must_use]
    pub fn health(&self, cluster: &ClusterName) -> Option<ViewHealth> {
        Some(self.reach.read().get(cluster)?.health)
    }
}

/// The connection that a report belongs to. Late reports of an earlier connection are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    cluster: ClusterName,
    epoch: u64,
}

/// A failed probe of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FailedProbe {
    /// True if the member answered with a refusal, so that it is alive.
    answered: bool,
    message: String,
}

/// Messages to the coordinator.
enum CoordinatorMessage {
    Cluster(Box<Delta<Cluster>>),
    /// A connection begins: its client, and the channel for owners to look up.
    Connected(Origin, Client, mpsc::UnboundedSender<Owner>),
    /// No connection could be made, for this reason.
    NotConnected(ClusterName, String),
    Probed(Origin, Result<(), FailedProbe>),
    Node(Origin, Delta<view::SeenNode>),
    Pod(Origin, Delta<view::SeenPod>),
    Device(Origin, devices::DeviceDelta),
    Rule(Origin, member_rules::RuleDelta),
    /// A climb from the owner of this UID has ended.
    Owner(Origin, String, Option<JobKey>),
}
