//! The members' nodes, devices and pods, live: for the engine, which decides on them, and for the
//! scheduler, which checks plans against them.
//!
//! ```text
//! Cluster objects ─► coordinator ─► one session per member ─► watches, probes, climbs
//!                        ▲                                               │
//!                        └───────────── views (facts, compared) ◄────────┘
//!                        └─► MemberEvent: facts that changed, Listed, Ready ─► every sink
//! ```
//!
//! [`Members`] is the handle: it gives the connection to a member, and says how fresh its view is.
//! A member is usable while Karmada says Ready, its nodes and pods have listed, and the view
//! is fresh. What is known of one that went away is kept, unusable, until the Cluster object
//! is gone.
//!
//! It must never decide anything, never write anything, in a member or on the control plane, and
//! never say of a member what that member did not say: one whose view is old is unusable.

mod address;
mod cluster;
mod connect;
mod coordinator;
mod devices;
mod known;
mod matching;
mod metrics;
mod owners;
mod selectors;
mod session;
#[cfg(test)]
mod tests;
mod verdict;
mod view;

pub use verdict::ViewHealth;

use crds::karmada::Cluster;
use engine::facts::NodeFact;
use engine::{ClusterName, Event, JobKey};
use kube::Client;
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

/// How members are watched.
#[derive(Debug, Clone)]
pub struct MembersOptions {
    /// How old the view of a member may be for decisions, 60 s by default. A watch that says
    /// nothing is restarted every half of it.
    pub freshness: Duration,
    /// Time between two probes of a member's API server.
    pub probe_period: Duration,
    /// How long a member may take to list for the first time before decisions begin without
    /// it.
    pub first_list: Duration,
    /// Sent with every request to a member.
    pub user_agent: String,
    /// Where the watches of the members show how they do.
    pub watch_metrics: WatchMetrics,
    /// Where the metrics of the views show.
    pub registry: Registry,
}

impl Default for MembersOptions {
    fn default() -> Self {
        Self {
            freshness: Duration::from_secs(60),
            probe_period: Duration::from_secs(5),
            first_list: Duration::from_secs(30),
            user_agent: "muster".to_owned(),
            watch_metrics: WatchMetrics::default(),
            registry: Registry::default(),
        }
    }
}

/// A change of what is known of the members.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "all but a few are facts")]
pub enum MemberEvent {
    /// A cluster, node or pod (or a claim of devices that is no pod's, in the shape of one) is there,
    /// changed or is gone: one of [`Event::ClusterUpserted`], [`Event::ClusterGone`],
    /// [`Event::NodeUpserted`], [`Event::NodeGone`], [`Event::PodUpserted`], [`Event::PodGone`].
    Fact(Event),
    /// Nodes and pods of a cluster have all been told once, or it is known to be unusable.
    Listed {
        /// The cluster.
        cluster: ClusterName,
    },
    /// Every cluster that there was at start is listed. Told once.
    Ready,
}

/// What others need of a member besides its facts.
#[derive(Clone)]
pub(crate) struct MemberAccess {
    /// The present connection, while there is one.
    pub(crate) client: Option<Client>,
    /// How fresh what is known of it is.
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
    /// Watches the Cluster objects of `control_plane`, and every member that they name, until
    /// `cancel`. Each sink gets every event, in the same order; one that is full holds all
    /// others up, one that is dropped is left out.
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

    /// Members that are reached by `clients`, for tests of what is done with them.
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

    /// The connection to `cluster`, while there is one.
    #[must_use]
    pub fn client(&self, cluster: &ClusterName) -> Option<Client> {
        self.reach.read().get(cluster)?.client.clone()
    }

    /// How fresh what is known of `cluster` is; `None` for one that is not known.
    #[must_use]
    pub fn health(&self, cluster: &ClusterName) -> Option<ViewHealth> {
        Some(self.reach.read().get(cluster)?.health)
    }
}

/// The connection that a report is about. What an earlier one still reports is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    cluster: ClusterName,
    epoch: u64,
}

/// A member that is not found well.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FailedProbe {
    /// Whether it answered all the same: it refuses what it is asked, and is alive.
    answered: bool,
    message: String,
}

/// What reaches the coordinator.
enum CoordinatorMessage {
    Cluster(Box<Delta<Cluster>>),
    /// A connection begins: its client, and where to ask for climbs.
    Connected(Origin, Client, mpsc::UnboundedSender<Owner>),
    /// No connection could be made, and why.
    NotConnected(ClusterName, String),
    Probed(Origin, Result<(), FailedProbe>),
    Node(Origin, Delta<NodeFact>),
    Pod(Origin, Delta<view::SeenPod>),
    Device(Origin, devices::DeviceDelta),
    /// A climb from the owner of this UID ended.
    Owner(Origin, String, Option<JobKey>),
}
