//! What is known of clusters and nodes besides the engine's facts: which nodes are avoided, which clusters are
//! paused, which nodes end, and where images are pulled ahead. Facts go to the book of each subject, and what follows
//! becomes actions.

use crate::avoided_nodes::{AvoidedNodes, ClusterEvent, TaintChange, node_event};
use crate::cluster_breakers::ClusterBreakers;
use crate::ending_nodes::EndingNodes;
use crate::facts::member_rules::KnownMemberRules;
use crate::messages::action::{Effect, Publication};
use crate::messages::job_event::JobEvent;
use crate::mirror::Mirror;
use crate::pre_pulls::PrePulls;
use crate::reconcile::known_jobs::KnownJobs;
use crate::reconcile::output::Output;
use crate::reconcile::placed::avoids::avoids_nodes;
use crate::reconcile::reconciler::apply;
use crds::fault_policy::{PausedCluster, WouldAvoidNode};
use crds::karmada::{Cluster, ObjectReference};
use crds::node_alert::NodeAlert;
use crds::node_health::NodeHealth;
use engine::{ClusterName, Decision, Engine, Event, JobKey, NodeName, Reason, Time};
use kube::Resource;
use members::ClusterMarks;
use std::collections::BTreeMap;

/// Milliseconds between two looks at the jobs on nodes that end.
const LOOK_MS: i64 = 5_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct FleetState {
    /// Faults of nodes, and the nodes that are avoided.
    pub(crate) avoided_nodes: AvoidedNodes,
    /// Which clusters take no new jobs because many failed there.
    pub(crate) breakers: ClusterBreakers,
    /// What members apply to pods before they store them.
    pub(crate) member_rules: KnownMemberRules,
    /// The nodes that end at a known time.
    pub(crate) ending_nodes: EndingNodes,
    /// When the jobs on nodes that end soon were last looked at.
    looked_at_ends: Option<Time>,
    /// UIDs of the Cluster objects, for events.
    cluster_uids: BTreeMap<ClusterName, String>,
    /// Images that are pulled ahead of the start of jobs.
    pub(crate) pre_pulls: PrePulls,
}

/// What the status of a fault policy shows besides its rules.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyEffects {
    /// The clusters that it pauses, or would.
    pub(crate) paused: Vec<PausedCluster>,
    /// The number of nodes that it would avoid, and the first of them.
    pub(crate) would_avoid: (usize, Vec<WouldAvoidNode>),
}

impl FleetState {
    /// Applies what a Cluster object says besides its fact.
    pub(crate) fn cluster_marks(
        &mut self,
        cluster: ClusterName,
        marks: ClusterMarks,
        jobs: &KnownJobs,
        out: &mut Output,
    ) {
        self.breakers.cleared(&cluster, &marks.cleared);
        if self.avoided_nodes.cleared(&cluster, marks.cleared) {
            let jobs = jobs.last_facts.iter();
            let avoid = jobs.filter(|(_, fact)| avoids_nodes(fact));
            out.work_queue.extend(avoid.map(|(key, _)| key.clone()));
        }
        self.cluster_uids.insert(cluster, marks.uid);
    }

    /// Applies the health of a node.
    pub(crate) fn node_health(
        &mut self,
        cluster: ClusterName,
        node: NodeName,
        health: NodeHealth,
        jobs: &KnownJobs,
        out: &mut Output,
    ) {
        if self.ending_nodes.health(&cluster, &node, health.ends_at) {
            // Jobs that declare how long they run may use such nodes.
            out.work_queue.extend(jobs.last_facts.keys().cloned());
        }
        self.avoided_nodes.health(cluster, node, health);
    }

    /// Notes what a fact of a member says of faults, before the engine knows it.
    pub(crate) fn note_faults(
        &mut self,
        fact: &Event,
        engine: &Engine,
        jobs: &KnownJobs,
        now: Time,
    ) {
        match fact {
            Event::ClusterGone(cluster) => {
                self.cluster_uids.remove(cluster);
                self.ending_nodes.forget(cluster, None);
            }
            Event::NodeGone(cluster, node) => self.ending_nodes.forget(cluster, Some(node)),
            _ => {}
        }
        let rules = engine.fault_rules();
        self.avoided_nodes
            .note(fact, rules, |uid| jobs.pods.has(uid), now);
        let queue_of = |job: &JobKey| jobs.last_facts.get(job).map(|fact| fact.queue.clone());
        self.breakers.note(
            fact,
            rules,
            |uid| jobs.pods.has(uid),
            |cluster, node| engine.fleet().jobs_on(cluster, node),
            queue_of,
            now,
        );
    }

    /// Notes which clusters a decision admits a job to.
    pub(crate) fn note_decision(&mut self, decision: &Decision) {
        if let Decision::Release { key, admission, .. } = decision {
            let clusters = admission.shares.iter().map(|share| &share.cluster);
            self.breakers.admitted(key, clusters);
        }
    }

    /// Begins to decide with what the status of each fault policy shows: the leader before wrote it.
    pub(crate) fn begin_fault_policies(&mut self, mirror: &Mirror) {
        for (name, policy) in mirror.fault_policies() {
            let Some(status) = &policy.status else {
                continue;
            };
            let dry_run = policy.is_dry_run();
            self.breakers.begin(name, dry_run, &status.paused_clusters);
            if dry_run {
                let would = self.avoided_nodes.would_mut();
                would.begin(name, &status.would_avoid_nodes);
            }
        }
    }

    /// Requests the taints of nodes that have to change.
    pub(crate) fn taint_nodes(&mut self, engine: &Engine, out: &mut Output, now: Time) {
        if !self.avoided_nodes.is_due(now) {
            return;
        }
        let nodes_in = |cluster: &ClusterName| engine.fleet().nodes_in(cluster);
        let rules = engine.fault_rules();
        for change in self.avoided_nodes.due(rules, nodes_in, now) {
            out.push(Effect::TaintNode(change));
        }
        let is_seen = |cluster: &ClusterName| {
            let known = engine.fleet().cluster(cluster);
            known.is_none_or(|fact| fact.usable)
        };
        for change in self.avoided_nodes.remediations_due(rules, is_seen, now) {
            out.push(Effect::WriteRemediation(change));
        }
        for event in self.avoided_nodes.take_remediation_events() {
            self.record_cluster_event(event, out);
        }
        let news = self.avoided_nodes.take_remediation_news();
        out.metrics.remediations.count(news);
        let counts = self.avoided_nodes.remediation_counts();
        out.metrics.remediations.set(counts);
        let (policies, events) = self.avoided_nodes.would_mut().take();
        for policy in policies {
            out.push(Publication::FaultPolicy(policy));
        }
        for event in events {
            self.record_cluster_event(event, out);
        }
        let count = i64::try_from(self.avoided_nodes.count()).unwrap_or(i64::MAX);
        out.metrics.nodes_avoided.set(count);
    }

    /// Handles that the taint of a node was changed.
    pub(crate) fn node_tainted(&self, change: &TaintChange, out: &mut Output) {
        if !change.because.is_empty() {
            self.record_cluster_event(node_event(change), out);
        }
    }

    /// Handles alerts that were posted.
    pub(crate) fn alerts(
        &mut self,
        alerts: Vec<NodeAlert>,
        engine: &Engine,
        out: &Output,
        now: Time,
    ) {
        for alert in alerts {
            let NodeAlert {
                cluster,
                node,
                name,
                firing,
                ..
            } = &alert;
            let is_known = engine.fleet().node(cluster, node).is_some();
            out.metrics.alerts.taken(is_known);
            if is_known {
                tracing::info!(%cluster, %node, name, firing, "an alert about a node was posted");
                self.avoided_nodes.alert(alert, now);
            } else {
                tracing::warn!(%cluster, %node, name, "an alert was posted about a node that no member has");
            }
        }
    }

    /// Pauses clusters in which many jobs fail, and lets them take jobs again.
    pub(crate) fn pause_clusters(
        &mut self,
        engine: &mut Engine,
        jobs: &KnownJobs,
        out: &mut Output,
        now: Time,
    ) {
        let state_of = |job: &JobKey| engine.job(job).map(|job| job.state);
        let changes = self.breakers.compare(state_of, now);
        for cluster in changes.clusters {
            let fact = engine.fleet().cluster(&cluster).cloned();
            if let Some(mut fact) = fact {
                fact.paused = self.breakers.pause_of(&cluster);
                apply(engine, Event::ClusterUpserted(fact));
                out.work_queue.extend(jobs.spread.iter().cloned());
            }
        }
        for policy in changes.policies {
            out.push(Publication::FaultPolicy(policy));
        }
        for event in changes.events {
            self.record_cluster_event(event, out);
        }
        let count = i64::try_from(self.breakers.count()).unwrap_or(i64::MAX);
        out.metrics.clusters_paused.set(count);
    }

    /// Tells the engine for how long nodes are left, and reconciles the jobs on those that end soon.
    pub(crate) fn leave_ending_nodes(&mut self, engine: &mut Engine, out: &mut Output, now: Time) {
        for (cluster, node) in self.ending_nodes.changed(now) {
            if let Some(mut fact) = engine.fleet().node(&cluster, &node).cloned() {
                self.ending_nodes.mark(&mut fact, now);
                apply(engine, Event::NodeUpserted(fact));
            }
        }
        let is_recent = |at: Time| now.millis_since(at) < LOOK_MS;
        if self.looked_at_ends.is_some_and(is_recent) {
            return;
        }
        self.looked_at_ends = Some(now);
        for (cluster, node) in self.ending_nodes.all_to_leave(now) {
            out.work_queue.extend(engine.fleet().jobs_on(cluster, node));
        }
    }

    /// Returns what the status of a fault policy shows besides its rules.
    pub(crate) fn policy_effects(&self, policy: &str) -> PolicyEffects {
        PolicyEffects {
            paused: self.breakers.of(policy),
            would_avoid: self.avoided_nodes.would().of(policy),
        }
    }

    fn record_cluster_event(&self, event: ClusterEvent, out: &mut Output) {
        out.push(Effect::Notify(event.clone()));
        let ClusterEvent {
            cluster,
            reason,
            is_warning,
            message,
        } = event;
        tracing::info!(%cluster, %reason, message, "event");
        let action = match reason {
            Reason::NodeAvoided | Reason::NodeReturned => "Avoid",
            Reason::NodeRemediation => "Remediate",
            _ => "Pause",
        };
        let event = match is_warning {
            true => JobEvent::warning(reason, action, message),
            false => JobEvent::normal(reason, action, message),
        };
        let object = ObjectReference {
            api_version: Cluster::api_version(&()).into_owned(),
            kind: Cluster::kind(&()).into_owned(),
            name: cluster.to_string(),
            uid: self.cluster_uids.get(&cluster).cloned().unwrap_or_default(),
            ..ObjectReference::default()
        };
        out.push(Effect::RecordEvent { object, event });
    }
}
