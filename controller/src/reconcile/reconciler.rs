//! State of reconciling: the mirror, the engine, and the operations under way for jobs.
//!
//! ```text
//! inputs ─► mirror ─► reconcile(key, now) ─► engine events
//!                            │
//!                            └─► Vec<ReconcileAction> ─► effects
//! ```
//!
//! It has no client, no clock and no channel: the time is an argument, and effects are returned as
//! [`ReconcileAction`]s. Except for the engine's facts, a restart derives all of it again.

use crate::avoided_nodes::AvoidedNodes;
use crate::cluster_breakers::ClusterBreakers;
use crate::ending_nodes::EndingNodes;
use crate::facts::member_rules::KnownMemberRules;
use crate::facts::queue_rights::QueueRights;
use crate::messages::action::{Effect, ReconcileAction};
use crate::messages::enforcement::Enforcement;
use crate::metrics::ControllerMetrics;
use crate::mirror::{BindingIdentity, Mirror};
use crate::pre_pulls::PrePulls;
use crate::reconcile::adoption::Marking;
use crate::reconcile::in_flight::InFlight;
use crate::reconcile::placed::avoids::keep_avoided;
use crate::reconcile::placed::cannot_start::keep_generation;
use crate::reconcile::placed::growth::keep_requests;
use crate::reconcile::placed::lost_pods::LostPods;
use crate::reconcile::placed::shrink::LivePods;
use crate::reconcile::queue_places::Places;
use crate::reconcile::work_queue::WorkQueue;
use crate::{OVERRIDE_GRACE_SECONDS, PODS_END_WITHIN_SECONDS};
use binding_writer::{Intent, Write};
use crds::karmada::ResourceBinding;
use crds::record::AdmissionRecord;
use engine::facts::JobFact;
use engine::{ClusterName, Engine, Event, JobKey, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Options that do not change during a life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReconcileOptions {
    /// Milliseconds for which a job may request more than was admitted.
    pub(crate) override_grace_ms: i64,
    /// Milliseconds for which an evicted job is charged at most until its pods have ended.
    pub(crate) pods_end_ms: i64,
    /// True if the scheduler runs in this process and one patch places a plan; otherwise a record in state
    /// Planned hands it over.
    pub(crate) places_itself: bool,
}

impl Default for ReconcileOptions {
    fn default() -> Self {
        Self {
            override_grace_ms: 1_000 * i64::from(OVERRIDE_GRACE_SECONDS),
            pods_end_ms: 1_000 * i64::from(PODS_END_WITHIN_SECONDS),
            places_itself: true,
        }
    }
}

/// See the module's documentation.
pub(crate) struct Reconciler {
    pub(crate) options: ReconcileOptions,
    pub(crate) engine: Engine,
    pub(crate) mirror: Mirror,
    /// Whether the admission policies allow decisions.
    pub(crate) enforcement: Enforcement,
    pub(crate) in_flight: HashMap<JobKey, InFlight>,
    /// The fact of each job that the engine has; the same fact is not applied twice.
    pub(crate) last_facts: HashMap<JobKey, JobFact>,
    pub(crate) work_queue: WorkQueue,
    /// Bindings that are no workloads and go to every cluster; reconciled when clusters change.
    pub(crate) spread_bindings: BTreeSet<JobKey>,
    /// Jobs that are split only where their pods can find each other.
    pub(crate) rendezvous_jobs: BTreeSet<JobKey>,
    /// Jobs whose record this version cannot act on.
    pub(crate) untouched: BTreeSet<JobKey>,
    /// Places of queues that their objects do not show.
    pub(crate) places: Places,
    /// Which namespaces may use which queues.
    pub(crate) rights: QueueRights,
    /// Namespaces whose adoption mark has to change.
    pub(crate) marking: Marking,
    /// Jobs whose bindings are gone and that still have Works, and which binding that was.
    pub(crate) remains: BTreeMap<JobKey, BindingIdentity>,
    /// Pods of jobs that members show.
    pub(crate) pods: LivePods,
    /// What jobs have lost in their present attempts.
    pub(crate) lost_pods: LostPods,
    /// Faults of nodes, and the nodes that are avoided.
    pub(crate) avoided_nodes: AvoidedNodes,
    /// Which clusters take no new jobs because many failed there.
    pub(crate) breakers: ClusterBreakers,
    /// What members apply to pods before they store them.
    pub(crate) member_rules: KnownMemberRules,
    /// The nodes that end at a known time.
    pub(crate) ending_nodes: EndingNodes,
    /// When the jobs on nodes that end soon were last looked at.
    pub(crate) looked_at_ends: Option<Time>,
    /// UIDs of the Cluster objects, for events.
    pub(crate) cluster_uids: BTreeMap<ClusterName, String>,
    /// Images that are pulled ahead of the start of jobs.
    pub(crate) pre_pulls: PrePulls,
    pub(crate) metrics: ControllerMetrics,
    actions: Vec<ReconcileAction>,
}

impl Reconciler {
    /// Creates an empty state.
    pub(crate) fn new(
        options: ReconcileOptions,
        engine: Engine,
        enforcement: Enforcement,
        metrics: ControllerMetrics,
    ) -> Self {
        Self {
            options,
            engine,
            mirror: Mirror::default(),
            enforcement,
            in_flight: HashMap::new(),
            last_facts: HashMap::new(),
            work_queue: WorkQueue::default(),
            spread_bindings: BTreeSet::new(),
            rendezvous_jobs: BTreeSet::new(),
            untouched: BTreeSet::new(),
            places: Places::default(),
            rights: QueueRights::default(),
            marking: Marking::new(),
            remains: BTreeMap::new(),
            pods: LivePods::default(),
            lost_pods: LostPods::default(),
            avoided_nodes: AvoidedNodes::default(),
            breakers: ClusterBreakers::default(),
            member_rules: KnownMemberRules::default(),
            ending_nodes: EndingNodes::default(),
            looked_at_ends: None,
            cluster_uids: BTreeMap::new(),
            pre_pulls: PrePulls::default(),
            metrics,
            actions: Vec::new(),
        }
    }

    /// Returns the actions since the last call, in order.
    pub(crate) fn take_actions(&mut self) -> Vec<ReconcileAction> {
        let asked = self.rights.take_asked().into_iter();
        let asked = asked.map(|(namespace, queue)| Effect::AskRight { namespace, queue });
        self.actions.extend(asked.map(ReconcileAction::Effect));
        std::mem::take(&mut self.actions)
    }

    /// Queues an action.
    pub(crate) fn push(&mut self, action: impl Into<ReconcileAction>) {
        self.actions.push(action.into());
    }

    /// Applies an event to the engine.
    pub(crate) fn apply(&mut self, event: Event) {
        tracing::trace!(?event, "applied");
        self.engine.apply(event);
    }

    /// Queues a write of `binding` for this pass. At most one write is open at a time.
    pub(crate) fn write(&mut self, key: &JobKey, binding: &Arc<ResourceBinding>, mut write: Write) {
        if let Some(record) = write.record_mut() {
            let before = AdmissionRecord::own(binding);
            let before = before.as_ref();
            record.queues_above = self.queues_above(&record.queue);
            let asked = self.last_facts.get(key).map(|fact| &fact.demand);
            keep_requests(record, before, asked);
            keep_generation(record, before, self.mirror.template_of(binding));
            self.keep_retries(record, before, binding);
            self.keep_leaving(key, record);
            keep_avoided(record, before);
        }
        self.write_unchanged(key, binding, write);
    }

    /// Does the same for a record that is already complete.
    pub(crate) fn write_unchanged(
        &mut self,
        key: &JobKey,
        binding: &Arc<ResourceBinding>,
        write: Write,
    ) {
        self.in_flight_of(key).begin_write(binding, &write);
        let binding = Arc::clone(binding);
        let intent = Box::new(Intent { binding, write });
        self.push(Effect::WriteBinding(intent));
    }

    /// Returns the operations of `key`, which are created if there are none.
    pub(crate) fn in_flight_of(&mut self, key: &JobKey) -> &mut InFlight {
        self.in_flight.entry(key.clone()).or_default()
    }
}
