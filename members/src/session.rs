//! The connection to one member: it is made, probed, and made again when the credentials change.
//!
//! A session only reports; the coordinator decides what the reports mean for the member.

mod member_rules;
mod taint_rules;

use super::address::Address;
use super::connect::{self, ConnectError, Connector};
use super::devices::{DeviceDelta, claim_delta};
use super::owners;
use super::view::{node_delta, pod_delta};
use super::{CoordinatorMessage, FailedProbe, MembersOptions, Origin};
use crds::kubernetes::{Node, Pod};
use facts::ClusterName;
use kube::{Api, Client, Resource};
use runtime::client::{CallFault, with_deadline};
use runtime::watch::{Delta, WatchOptions, watch};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

/// Deadline of a probe.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// Successful probes between two reads of the Secret; after a failed probe it is always read.
const PROBES_PER_SECRET: u32 = 6;
/// Field selector of bound pods. The server sends no others. Those that have ended use no capacity, but how they
/// ended says whose fault it was, and they are no loss of their job: without them the view could not tell them
/// from pods that were deleted.
const PODS_THAT_COUNT: &str = "spec.nodeName!=";

/// Source of connection numbers, unique also among those of one member.
static EPOCHS: AtomicU64 = AtomicU64::new(1);

/// One member's session.
pub(super) struct Session {
    pub(super) control_plane: Client,
    pub(super) cluster: ClusterName,
    pub(super) address: Address,
    pub(super) options: MembersOptions,
    pub(super) connector: Connector,
    pub(super) sink: mpsc::Sender<CoordinatorMessage>,
}

/// Returns the names under which the watches of `cluster` report their state.
pub(super) fn watch_names(cluster: &ClusterName) -> [String; 2] {
    [format!("nodes@{cluster}"), format!("pods@{cluster}")]
}

/// Returns the names of the watches of devices.
pub(super) fn device_watch_names(cluster: &ClusterName) -> [String; 3] {
    [
        format!("resourceslices@{cluster}"),
        format!("deviceclasses@{cluster}"),
        format!("resourceclaims@{cluster}"),
    ]
}

impl Session {
    /// Connects, and stays connected until `cancel`.
    pub(super) async fn run(self, cancel: CancellationToken) {
        let _ = cancel
            .clone()
            .run_until_cancelled(self.connect_for_ever(cancel))
            .await;
    }

    async fn connect_for_ever(&self, cancel: CancellationToken) {
        loop {
            let connection = cancel.child_token();
            // The watches of this connection end with it, however it ends.
            let _guard = connection.clone().drop_guard();
            if let Err(error) = self.connected(connection).await {
                self.report(CoordinatorMessage::NotConnected(
                    self.cluster.clone(),
                    error.to_string(),
                ))
                .await;
                sleep(self.options.probe_period).await;
            }
        }
    }

    /// Makes one connection and keeps it until its credentials change.
    async fn connected(&self, cancel: CancellationToken) -> Result<(), ConnectError> {
        let connected =
            connect::connect(&self.control_plane, &self.address, &self.connector).await?;
        let client = connected.client.clone();
        let epoch = EPOCHS.fetch_add(1, Ordering::Relaxed);
        let origin = Origin {
            cluster: self.cluster.clone(),
            epoch,
        };
        let (ask, asks) = mpsc::unbounded_channel();
        self.report(CoordinatorMessage::Connected(
            origin.clone(),
            client.clone(),
            ask,
        ))
        .await;
        let climbing = owners::run(client.clone(), origin.clone(), asks, self.sink.clone());
        runtime::task::spawn(cancel.clone().run_until_cancelled_owned(climbing));
        self.watch(&client, &origin, &cancel);
        let mut taint_rules = pin!(self.follow_taint_rules(&client, &origin, &cancel));
        let mut until_secret = PROBES_PER_SECRET;
        let mut ticks = interval(self.options.probe_period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = &mut taint_rules => {
                    tracing::info!(cluster = %self.cluster, "DeviceTaintRules are served in another version, or not any more; connecting again");
                    return Ok(());
                }
            }
            let probed = probe(&client).await;
            until_secret = if probed.is_ok() {
                until_secret.saturating_sub(1)
            } else {
                0
            };
            self.report(CoordinatorMessage::Probed(origin.clone(), probed))
                .await;
            if until_secret == 0 {
                until_secret = PROBES_PER_SECRET;
                if connect::is_outdated(&self.control_plane, &self.address, &connected).await {
                    tracing::info!(cluster = %self.cluster, "credentials changed; connecting again");
                    return Ok(());
                }
            }
        }
    }

    fn watch(&self, client: &Client, origin: &Origin, cancel: &CancellationToken) {
        let [nodes, pods] = watch_names(&self.cluster);
        let options = self.watch_options();
        let of_pods = WatchOptions {
            fields: Some(PODS_THAT_COUNT.to_owned()),
            ..options.clone()
        };
        let uncharged = self.options.uncharged_pods.clone();
        let node = |origin: &Origin, delta: Delta<Node>| {
            CoordinatorMessage::Node(origin.clone(), node_delta(&origin.cluster, delta))
        };
        let pod = move |origin: &Origin, delta: Delta<Pod>| {
            let delta = pod_delta(&origin.cluster, delta, uncharged.as_ref());
            CoordinatorMessage::Pod(origin.clone(), delta)
        };
        self.watch_kind(client, nodes, options, origin, node, cancel);
        self.watch_kind(client, pods, of_pods, origin, pod, cancel);
        self.watch_devices(client, origin, cancel);
        self.watch_rules(client, origin, cancel);
    }

    /// Many members serve none of these kinds; those count as listed at once.
    fn watch_devices(&self, client: &Client, origin: &Origin, cancel: &CancellationToken) {
        let [slices, classes, claims] = device_watch_names(&self.cluster);
        self.watch_device(client, slices, origin, DeviceDelta::Slice, cancel);
        self.watch_device(client, classes, origin, DeviceDelta::Class, cancel);
        let read = |delta| DeviceDelta::Claim(claim_delta(delta));
        self.watch_device(client, claims, origin, read, cancel);
    }

    fn watch_device<K>(
        &self,
        client: &Client,
        name: String,
        origin: &Origin,
        read: fn(Delta<K>) -> DeviceDelta,
        cancel: &CancellationToken,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let options = WatchOptions {
            absent_is_empty: true,
            ..self.watch_options()
        };
        let message =
            move |origin: &Origin, delta| CoordinatorMessage::Device(origin.clone(), read(delta));
        self.watch_kind(client, name, options, origin, message, cancel);
    }

    /// Watches all objects of a kind; the coordinator receives the `message` of each change.
    fn watch_kind<K>(
        &self,
        client: &Client,
        name: String,
        options: WatchOptions,
        origin: &Origin,
        message: impl Fn(&Origin, Delta<K>) -> CoordinatorMessage + Send + 'static,
        cancel: &CancellationToken,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let origin = origin.clone();
        watch(
            Api::<K>::all(client.clone()),
            options,
            name,
            move |delta| message(&origin, delta),
            self.sink.clone(),
            cancel.clone(),
        );
    }

    fn watch_options(&self) -> WatchOptions {
        WatchOptions {
            // A silent watch is restarted well before the view becomes too old.
            timeout: self.options.freshness / 2,
            metrics: Some(self.options.watch_metrics.clone()),
            ..WatchOptions::default()
        }
    }

    async fn report(&self, message: CoordinatorMessage) {
        // The coordinator ends only with the process, and this task with it.
        let _ = self.sink.send(message).await;
    }
}

/// Checks that the member's API server answers, reports ready, and accepts the token.
async fn probe(client: &Client) -> Result<(), FailedProbe> {
    let request = http::Request::get("/readyz")
        .body(Vec::new())
        .map_err(|error| FailedProbe {
            answered: false,
            message: error.to_string(),
        })?;
    let answer = with_deadline(client.request_text(request), PROBE_LIMIT).await;
    answer.map(drop).map_err(|error| FailedProbe {
        answered: error.fault() != CallFault::Unknown,
        message: error.message(),
    })
}
