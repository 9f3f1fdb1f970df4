//! The state of one member in the task that owns all of them.

use crate::address::Address;
use crate::cluster::fact;
use crate::matching::Owner;
use crate::session::{device_watch_names, watch_names};
use crate::verdict::{MemberVerdict, ViewHealth, ViewState};
use crate::view::MemberView;
use crate::{ClusterMarks, FailedProbe, MembersOptions};
use crds::karmada::Cluster;
use facts::{ClusterFact, ClusterName};
use kube::Client;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

/// The state of one member.
pub(super) struct Member {
    pub(super) cluster: Cluster,
    pub(super) view: MemberView,
    pub(super) state: ViewState,
    pub(super) since: Instant,
    /// What the Cluster object said besides its fact when that was last sent.
    pub(super) marks: ClusterMarks,
    /// True if `Listed` was sent.
    pub(super) settled: bool,
    /// True if the Cluster object has changed since it was last sent.
    pub(super) renewed: bool,
    /// The fact that was last sent.
    pub(super) sent: Option<ClusterFact>,
    /// True if the member was silent when its fact was last sent.
    pub(super) sent_silent: bool,
    pub(super) session: Option<(Address, DropGuard)>,
    pub(super) connection: Option<Connection>,
}

/// The present connection to a member.
pub(super) struct Connection {
    pub(super) epoch: u64,
    pub(super) client: Client,
    pub(super) asks: mpsc::UnboundedSender<Owner>,
    pub(super) answered: Option<Instant>,
}

/// Returns the age of the oldest source of a decision.
pub(super) fn age(
    options: &MembersOptions,
    name: &ClusterName,
    member: &Member,
) -> Option<Duration> {
    let probe = member.connection.as_ref()?.answered?.elapsed();
    let age = |watch: &String| options.watch_metrics.age(watch);
    let [nodes, pods] = watch_names(name);
    let watched = probe.max(age(&nodes)?).max(age(&pods)?);
    // Kinds that the member does not serve have no age.
    let devices = device_watch_names(name);
    Some(devices.iter().filter_map(age).fold(watched, Duration::max))
}

impl Member {
    pub(super) fn new(name: &ClusterName) -> Self {
        Self {
            cluster: Cluster::default(),
            view: MemberView::new(name.clone()),
            state: ViewState::default(),
            since: Instant::now(),
            marks: ClusterMarks::default(),
            settled: false,
            renewed: false,
            sent: None,
            sent_silent: false,
            session: None,
            connection: None,
        }
    }

    pub(super) fn connected(
        &mut self,
        epoch: u64,
        client: Client,
        asks: mpsc::UnboundedSender<Owner>,
    ) {
        self.connection = Some(Connection {
            epoch,
            client,
            asks,
            answered: None,
        });
        self.view.begin();
        let (_, open) = self.view.take();
        self.ask(open);
    }

    pub(super) fn disconnected(&mut self) {
        self.connection = None;
        self.state.failed_probes = 0;
        self.state.refuses = false;
        self.state.last_error.clear();
    }

    pub(super) fn ask(&mut self, owners: Vec<Owner>) {
        let Some(connection) = &self.connection else {
            return;
        };
        for owner in owners {
            // If the session has ended, the next one asks again for everything open.
            let _ = connection.asks.send(owner);
        }
    }

    pub(super) fn probed(&mut self, result: Result<(), FailedProbe>) {
        match result {
            Ok(()) => {
                self.state.failed_probes = 0;
                self.state.refuses = false;
                self.state.last_error.clear();
                if let Some(connection) = &mut self.connection {
                    connection.answered = Some(Instant::now());
                }
            }
            Err(error) => {
                self.state.failed_probes = self.state.failed_probes.saturating_add(1);
                self.state.refuses = error.answered;
                self.state.last_error = error.message;
            }
        }
    }

    /// Returns true if decisions need not wait for it: it has listed, is known to be unreachable, or its time
    /// is over.
    pub(super) fn has_settled(&self, verdict: &MemberVerdict, limit: Duration) -> bool {
        let known_out_of_reach = verdict.health == ViewHealth::Unreachable
            && (self.state.unreachable_by_design.is_some() || !self.state.last_error.is_empty());
        let listed = self.view.has_listed()
            && self.view.devices_have_listed()
            && self.view.rules.have_listed();
        let whole = listed && self.state.age.is_some();
        whole || known_out_of_reach || self.since.elapsed() >= limit
    }

    /// Returns its fact if it differs from the one last sent, and records it as sent.
    pub(super) fn changed_fact(
        &mut self,
        name: &ClusterName,
        verdict: &MemberVerdict,
    ) -> Option<ClusterFact> {
        let renewed = std::mem::take(&mut self.renewed);
        let was_silent = std::mem::replace(&mut self.sent_silent, verdict.silent);
        let assessed_alike = |sent: &ClusterFact| {
            sent.unusable_because == verdict.because && was_silent == verdict.silent
        };
        if !renewed && self.sent.as_ref().is_some_and(assessed_alike) {
            return None;
        }
        let fact = fact(name, &self.cluster, verdict);
        if self.sent.as_ref() == Some(&fact) {
            return None;
        }
        self.note_change(name, verdict);
        self.sent = Some(fact.clone());
        Some(fact)
    }

    fn note_change(&self, name: &ClusterName, verdict: &MemberVerdict) {
        let was = self
            .sent
            .as_ref()
            .map(|fact| fact.unusable_because.as_str());
        if was == Some(&verdict.because) {
            return;
        }
        match verdict.usable() {
            true => tracing::info!(cluster = %name, "member is usable"),
            false => {
                tracing::info!(cluster = %name, because = verdict.because, "member is not usable")
            }
        }
    }
}
