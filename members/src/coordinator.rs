//! The task that owns the state of all members.

mod member;

use super::address::Address;
use super::cluster::{marks, unread};
use super::connect::Connector;
use super::session::Session;
use super::verdict::verdict;
use super::view::MemberView;
use super::{CoordinatorMessage, MemberAccess, MemberEvent, Members, MembersOptions, Origin};
use crate::matching::Owner;
use crate::metrics::MemberMetrics;
use crds::karmada::Cluster;
use facts::{ClusterName, Event};
use kube::{Api, Client};
use member::{Member, age};
use runtime::watch::{Delta, WatchOptions, watch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Capacity of the channel of messages; watches block beyond it.
const BUFFER: usize = 1024;
/// Time between two checks of the age of the views.
const TICK: Duration = Duration::from_secs(1);

pub(super) struct Coordinator {
    control_plane: Client,
    options: MembersOptions,
    connector: Connector,
    sinks: Vec<mpsc::Sender<MemberEvent>>,
    metrics: MemberMetrics,
    shared: Members,
    cancel: CancellationToken,
    sink: mpsc::Sender<CoordinatorMessage>,
    messages: mpsc::Receiver<CoordinatorMessage>,
    members: BTreeMap<ClusterName, Member>,
    start: StartProgress,
}

/// Progress of the start.
enum StartProgress {
    /// The Cluster objects have not listed.
    NotListed,
    /// These members have yet to list.
    Awaiting(BTreeSet<ClusterName>),
    Done,
}

impl Coordinator {
    pub(super) fn new(
        control_plane: Client,
        options: MembersOptions,
        connector: Connector,
        sinks: Vec<mpsc::Sender<MemberEvent>>,
        shared: Members,
        cancel: CancellationToken,
    ) -> Self {
        let metrics = MemberMetrics::new(&options.registry);
        let (sink, messages) = mpsc::channel(BUFFER);
        Self {
            control_plane,
            options,
            connector,
            sinks,
            metrics,
            shared,
            cancel,
            sink,
            messages,
            members: BTreeMap::new(),
            start: StartProgress::NotListed,
        }
    }

    pub(super) async fn run(mut self) {
        let clusters: Api<Cluster> = Api::all(self.control_plane.clone());
        let watched = WatchOptions {
            metrics: Some(self.options.watch_metrics.clone()),
            ..WatchOptions::default()
        };
        watch(
            clusters,
            watched,
            "clusters",
            |delta| CoordinatorMessage::Cluster(Box::new(delta)),
            self.sink.clone(),
            self.cancel.clone(),
        );
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Never `None`: a sender is kept here for later sessions.
                Some(message) = self.messages.recv() => self.message(message).await,
                _ = ticks.tick() => {
                    let names: Vec<ClusterName> = self.members.keys().cloned().collect();
                    for name in &names {
                        self.assess(name).await;
                    }
                }
            }
        }
    }

    async fn message(&mut self, message: CoordinatorMessage) {
        match message {
            CoordinatorMessage::Cluster(delta) => match *delta {
                Delta::Upserted(cluster) => self.cluster(cluster).await,
                Delta::Gone(key) => self.cluster_gone(&ClusterName::new(key.name)).await,
                Delta::Listed => self.clusters_listed().await,
            },
            CoordinatorMessage::Connected(origin, client, asks) => {
                self.connected(origin, client, asks).await
            }
            CoordinatorMessage::NotConnected(name, why) => {
                if let Some(member) = self.members.get_mut(&name) {
                    tracing::warn!(cluster = %name, error = why, "member cannot be connected to");
                    member.disconnected();
                    member.state.last_error = why;
                    self.assess(&name).await;
                }
            }
            CoordinatorMessage::Probed(origin, result) => {
                let name = origin.cluster.clone();
                if let Some(member) = self.current(&origin) {
                    member.probed(result);
                    self.assess(&name).await;
                }
            }
            CoordinatorMessage::Node(origin, delta) => {
                let listed = matches!(delta, Delta::Listed);
                self.viewed(&origin, listed, |view| view.node(delta)).await;
            }
            CoordinatorMessage::Pod(origin, delta) => {
                let listed = matches!(delta, Delta::Listed);
                self.viewed(&origin, listed, |view| view.pod(delta)).await;
            }
            CoordinatorMessage::Device(origin, delta) => {
                let listed = delta.is_listed();
                self.viewed(&origin, listed, |view| view.device(delta))
                    .await;
            }
            CoordinatorMessage::Rule(origin, delta) => {
                let listed = delta.is_listed();
                self.viewed(&origin, listed, |view| view.rules.apply(delta))
                    .await;
            }
            CoordinatorMessage::Owner(origin, uid, job) => {
                self.viewed(&origin, false, |view| view.owner_known(&uid, job))
                    .await;
            }
        }
    }

    /// Returns the member whose present connection is `origin`.
    fn current(&mut self, origin: &Origin) -> Option<&mut Member> {
        let member = self.members.get_mut(&origin.cluster)?;
        let epoch = member.connection.as_ref()?.epoch;
        (epoch == origin.epoch).then_some(member)
    }

    /// Handles a Cluster object that is new or has changed.
    async fn cluster(&mut self, cluster: Cluster) {
        let name = ClusterName::new(cluster.metadata.name.as_deref().unwrap_or_default());
        let address = Address::by(&cluster, self.options.through_proxy);
        let member = self
            .members
            .entry(name.clone())
            .or_insert_with(|| Member::new(&name));
        let before = unread(&member.cluster);
        for unread in unread(&cluster)
            .iter()
            .filter(|unread| !before.contains(unread))
        {
            let (problem, consequence) = unread;
            tracing::warn!(cluster = %name, problem, "{consequence}");
        }
        let marks = marks(&cluster);
        let differs = std::mem::replace(&mut member.marks, marks.clone()) != marks;
        member.cluster = cluster;
        member.renewed = true;
        match address {
            Ok(address) => {
                member.state.unreachable_by_design = None;
                if member.session.as_ref().map(|(known, _)| known) != Some(&address) {
                    member.disconnected();
                    self.connect(&name, address);
                }
            }
            Err(error) => {
                member.disconnected();
                member.session = None;
                member.state.unreachable_by_design = Some(error.to_string());
            }
        }
        if differs {
            let cluster = name.clone();
            self.send_event(MemberEvent::Marks { cluster, marks }).await;
        }
        self.assess(&name).await;
    }

    /// Starts a session and ends the one of an earlier address.
    fn connect(&mut self, name: &ClusterName, address: Address) {
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        tracing::info!(cluster = %name, access = address.access(), "connecting to member");
        let token = self.cancel.child_token();
        let session = Session {
            control_plane: self.control_plane.clone(),
            cluster: name.clone(),
            address: address.clone(),
            options: self.options.clone(),
            connector: Arc::clone(&self.connector),
            sink: self.sink.clone(),
        };
        runtime::task::spawn(session.run(token.clone()));
        member.session = Some((address, token.drop_guard()));
    }

    async fn cluster_gone(&mut self, name: &ClusterName) {
        if self.members.remove(name).is_none() {
            return;
        }
        tracing::info!(cluster = %name, "member left the federation");
        self.shared.reach.write().remove(name);
        self.metrics.gone(name);
        self.send_event(MemberEvent::Fact(Event::ClusterGone(name.clone())))
            .await;
        self.settled(name).await;
    }

    async fn clusters_listed(&mut self) {
        if matches!(self.start, StartProgress::NotListed) {
            let open = self.members.iter().filter(|(_, member)| !member.settled);
            self.start = StartProgress::Awaiting(open.map(|(name, _)| name.clone()).collect());
            self.ready_if_all_listed().await;
        }
    }

    async fn connected(
        &mut self,
        origin: Origin,
        client: Client,
        asks: mpsc::UnboundedSender<Owner>,
    ) {
        let Some(member) = self.members.get_mut(&origin.cluster) else {
            return;
        };
        member.connected(origin.epoch, client, asks);
        self.assess(&origin.cluster).await;
    }

    /// Applies a change from a connection.
    async fn viewed(
        &mut self,
        origin: &Origin,
        assess: bool,
        change: impl FnOnce(&mut MemberView),
    ) {
        let Some(member) = self.current(origin) else {
            return;
        };
        change(&mut member.view);
        let (events, asks) = member.view.take();
        member.ask(asks);
        let healths = member.view.take_healths();
        let rules = member.view.rules.take();
        for event in events {
            self.send_event(MemberEvent::Fact(event)).await;
        }
        for (node, health) in healths {
            let cluster = origin.cluster.clone();
            self.send_event(MemberEvent::NodeHealth {
                cluster,
                node,
                health,
            })
            .await;
        }
        for rules in rules {
            let cluster = origin.cluster.clone();
            self.send_event(MemberEvent::Rules { cluster, rules }).await;
        }
        if assess {
            self.assess(&origin.cluster).await;
        }
    }

    /// Sends the fact of `name` if its assessment has changed.
    async fn assess(&mut self, name: &ClusterName) {
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        member.state.listed = member.view.has_listed();
        member.state.devices_listed = member.view.devices_have_listed();
        member.state.rules_listed = member.view.rules.have_listed();
        member.state.age = age(&self.options, name, member);
        let verdict = verdict(&member.cluster, &member.state, self.options.freshness);
        let settled = !member.settled && member.has_settled(&verdict, self.options.first_list);
        let changed_fact = member.changed_fact(name, &verdict);
        self.metrics.seen(
            name,
            member.state.age,
            member.view.counts(),
            verdict.usable(),
        );
        let client = member
            .connection
            .as_ref()
            .map(|connection| connection.client.clone());
        self.shared.reach.write().insert(
            name.clone(),
            MemberAccess {
                client,
                health: verdict.health,
            },
        );
        if let Some(fact) = changed_fact {
            self.send_event(MemberEvent::Fact(Event::ClusterUpserted(fact)))
                .await;
        }
        if settled {
            self.settled(name).await;
        }
    }

    /// Handles that `name` has listed, or is known to be unusable.
    async fn settled(&mut self, name: &ClusterName) {
        if let Some(member) = self.members.get_mut(name) {
            member.settled = true;
            self.send_event(MemberEvent::Listed {
                cluster: name.clone(),
            })
            .await;
        }
        if let StartProgress::Awaiting(open) = &mut self.start {
            open.remove(name);
        }
        self.ready_if_all_listed().await;
    }

    async fn ready_if_all_listed(&mut self) {
        if matches!(&self.start, StartProgress::Awaiting(open) if open.is_empty()) {
            self.start = StartProgress::Done;
            tracing::info!(members = self.members.len(), "all members listed");
            self.send_event(MemberEvent::Ready).await;
        }
    }

    async fn send_event(&mut self, event: MemberEvent) {
        for sink in &self.sinks {
            // A sink whose receiver was dropped needs no events.
            let _ = sink.send(event.clone()).await;
        }
    }
}
