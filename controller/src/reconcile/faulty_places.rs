//! Nodes that are avoided and clusters that are paused because of faults: facts go to the books about them
//! ([`crate::avoided_nodes`], [`crate::cluster_breakers`]), and what follows becomes actions.

use crate::avoided_nodes::{ClusterEvent, TaintChange, node_event};
use crate::messages::action::{Effect, Publication};
use crate::messages::job_event::JobEvent;
use crate::reconcile::Reconciler;
use crate::reconcile::placed::avoids::avoids_nodes;
use crds::fault_policy::{PausedCluster, WouldAvoidNode};
use crds::karmada::{Cluster, ObjectReference};
use crds::node_alert::NodeAlert;
use crds::node_health::NodeHealth;
use engine::{ClusterName, Event, JobKey, NodeName, Reason, Time};
use kube::Resource;
use members::ClusterMarks;

/// What the status of a fault policy shows besides its rules.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyEffects {
    /// The clusters that it pauses, or would.
    pub(crate) paused: Vec<PausedCluster>,
    /// The number of nodes that it would avoid, and the first of them.
    pub(crate) would_avoid: (usize, Vec<WouldAvoidNode>),
}

impl Reconciler {
    /// Applies what a Cluster object says besides its fact.
    pub(crate) fn cluster_marks(&mut self, cluster: ClusterName, marks: ClusterMarks) {
        self.breakers.cleared(&cluster, &marks.cleared);
        if self.avoided_nodes.cleared(&cluster, marks.cleared) {
            let avoid = self
                .last_facts
                .iter()
                .filter(|(_, fact)| avoids_nodes(fact));
            self.work_queue.extend(avoid.map(|(key, _)| key.clone()));
        }
        self.cluster_uids.insert(cluster, marks.uid);
    }

    /// Applies the health of a node.
    pub(crate) fn node_health(&mut self, cluster: ClusterName, node: NodeName, health: NodeHealth) {
        if self.ending_nodes.health(&cluster, &node, health.ends_at) {
            // Jobs that declare how long they run may use such nodes.
            self.work_queue.extend(self.last_facts.keys().cloned());
        }
        self.avoided_nodes.health(cluster, node, health);
    }

    /// Notes what a fact of a member says of faults, before the engine knows it.
    pub(crate) fn note_faults(&mut self, fact: &Event, now: Time) {
        match fact {
            Event::ClusterGone(cluster) => {
                self.cluster_uids.remove(cluster);
                self.ending_nodes.forget(cluster, None);
            }
            Event::NodeGone(cluster, node) => self.ending_nodes.forget(cluster, Some(node)),
            _ => {}
        }
        let (engine, pods, facts) = (&self.engine, &self.pods, &self.last_facts);
        let rules = engine.fault_rules();
        self.avoided_nodes
            .note(fact, rules, |uid| pods.has(uid), now);
        let queue_of = |job: &JobKey| facts.get(job).map(|fact| fact.queue.clone());
        self.breakers.note(
            fact,
            rules,
            |uid| pods.has(uid),
            |cluster, node| engine.fleet().jobs_on(cluster, node),
            queue_of,
            now,
        );
    }

    /// Begins to decide with what the status of each fault policy shows: the leader before wrote it.
    pub(crate) fn begin_fault_policies(&mut self) {
        for (name, policy) in self.mirror.fault_policies() {
            let Some(status) = &policy.status else {
                continue;
            };
            let dry_run = policy.is_dry_run();
            self.breakers.begin(name, dry_run, &status.paused_clusters);
            if dry_run {
                self.avoided_nodes
                    .would_mut()
                    .begin(name, &status.would_avoid_nodes);
            }
        }
    }

    /// Requests the taints of nodes that have to change.
    pub(crate) fn taint_nodes(&mut self, now: Time) {
        if !self.avoided_nodes.is_due(now) {
            return;
        }
        let engine = &self.engine;
        let nodes_in = |cluster: &ClusterName| engine.fleet().nodes_in(cluster);
        let due = self.avoided_nodes.due(engine.fault_rules(), nodes_in, now);
        for change in due {
            self.push(Effect::TaintNode(change));
        }
        let engine = &self.engine;
        let is_seen = |cluster: &ClusterName| {
            engine
                .fleet()
                .cluster(cluster)
                .is_none_or(|fact| fact.usable)
        };
        let rules = engine.fault_rules();
        let changes = self.avoided_nodes.remediations_due(rules, is_seen, now);
        for change in changes {
            self.push(Effect::WriteRemediation(change));
        }
        for event in self.avoided_nodes.take_remediation_events() {
            self.record_cluster_event(event);
        }
        let news = self.avoided_nodes.take_remediation_news();
        self.metrics.remediations.count(news);
        let counts = self.avoided_nodes.remediation_counts();
        self.metrics.remediations.set(counts);
        let (policies, events) = self.avoided_nodes.would_mut().take();
        for policy in policies {
            self.push(Publication::FaultPolicy(policy));
        }
        for event in events {
            self.record_cluster_event(event);
        }
        let count = i64::try_from(self.avoided_nodes.count()).unwrap_or(i64::MAX);
        self.metrics.nodes_avoided.set(count);
    }

    /// Handles that the taint of a node was changed.
    pub(crate) fn node_tainted(&mut self, change: &TaintChange) {
        if !change.because.is_empty() {
            self.record_cluster_event(node_event(change));
        }
    }

    /// Handles alerts that were posted.
    pub(crate) fn alerts(&mut self, alerts: Vec<NodeAlert>, now: Time) {
        for alert in alerts {
            let NodeAlert {
                cluster,
                node,
                name,
                firing,
                ..
            } = &alert;
            let is_known = self.engine.fleet().node(cluster, node).is_some();
            self.metrics.alerts.taken(is_known);
            if is_known {
                tracing::info!(%cluster, %node, name, firing, "an alert about a node was posted");
                self.avoided_nodes.alert(alert, now);
            } else {
                tracing::warn!(%cluster, %node, name, "an alert was posted about a node that no member has");
            }
        }
    }

    /// Pauses clusters in which many jobs fail, and lets them take jobs again.
    pub(crate) fn pause_clusters(&mut self, now: Time) {
        let engine = &self.engine;
        let state_of = |job: &JobKey| engine.job(job).map(|job| job.state);
        let changes = self.breakers.compare(state_of, now);
        for cluster in changes.clusters {
            let fact = self.engine.fleet().cluster(&cluster).cloned();
            if let Some(mut fact) = fact {
                fact.paused = self.breakers.pause_of(&cluster);
                self.apply(Event::ClusterUpserted(fact));
                self.work_queue.extend(self.spread_bindings.iter().cloned());
            }
        }
        for policy in changes.policies {
            self.push(Publication::FaultPolicy(policy));
        }
        for event in changes.events {
            self.record_cluster_event(event);
        }
        let count = i64::try_from(self.breakers.count()).unwrap_or(i64::MAX);
        self.metrics.clusters_paused.set(count);
    }

    /// Returns what the status of a fault policy shows besides its rules.
    pub(crate) fn policy_effects(&self, policy: &str) -> PolicyEffects {
        PolicyEffects {
            paused: self.breakers.of(policy),
            would_avoid: self.avoided_nodes.would().of(policy),
        }
    }

    fn record_cluster_event(&mut self, event: ClusterEvent) {
        self.push(Effect::Notify(event.clone()));
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
        self.push(Effect::RecordEvent { object, event });
    }
}
