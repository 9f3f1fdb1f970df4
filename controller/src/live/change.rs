//! Changes to try: a job that is submitted, a queue that is edited, a cluster or a node that is gone. Each is made
//! as if the watches showed it.

use crate::facts::job;
use crate::facts::queue_rights::Pair;
use crate::live::LiveState;
use crate::mirror::template::{Template, TemplateKind};
use crate::status::kept_policies;
use crds::capacity_policy::CapacityPolicy;
use crds::karmada::{BindingSpec, ObjectReference, ResourceBinding, Suspension};
use crds::names;
use crds::queue::Queue;
use engine::facts::ClusterFact;
use engine::matching::{LEAVING, Taint, TaintEffect};
use engine::{ClusterName, Event, JobKey, NodeName, QueueName, Uid};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as KubernetesTime;
use kube::api::DynamicObject;
use kube::core::ObjectMeta;
use members::MemberEvent;
use runtime::watch::Delta;
use std::collections::BTreeSet;

/// The permanent id of the policy that claims a job which exists only here.
const CLAIM: &str = "simulated";

/// A change to try.
#[derive(Debug, Clone)]
pub enum LiveChange {
    /// This workload is submitted now, with its namespace. The policy of its namespace claims it.
    Job(Box<DynamicObject>),
    /// The Queue is as this object says.
    Queue(Box<Queue>),
    /// The CapacityPolicy is as this object says.
    CapacityPolicy(Box<CapacityPolicy>),
    /// The cluster leaves the federation, and what runs there with it.
    WithoutCluster(ClusterName),
    /// The node is gone, and what runs there with it.
    WithoutNode(ClusterName, NodeName),
}

/// Why a change cannot be tried.
#[derive(Debug, thiserror::Error)]
pub enum LiveChangeError {
    /// The object has no kind or no name.
    #[error("the manifest has no {0}")]
    Incomplete(&'static str),
    /// The kind starts no pods.
    #[error("{0} is no workload that is queued")]
    NoWorkload(String),
    /// The namespace does not exist, or Muster does not manage it.
    #[error(
        "namespace {0} is not managed by Muster: it exists and has the label muster.io/managed=true if it is"
    )]
    NotManaged(String),
    /// There is a job of this name.
    #[error("job {0} exists already; give the manifest another name")]
    Exists(JobKey),
    /// There is no such cluster.
    #[error("there is no cluster {0}")]
    NoCluster(ClusterName),
    /// There is no such node, as far as its cluster could be read.
    #[error("there is no node {1} in cluster {0}, or the nodes of the cluster cannot be read")]
    NoNode(ClusterName, NodeName),
}

impl LiveState {
    /// Makes a change. Returns the job that it adds, if it adds one.
    ///
    /// # Errors
    /// Returns an error if it names what does not exist, or cannot be read.
    pub fn change(&mut self, change: &LiveChange) -> Result<Option<JobKey>, LiveChangeError> {
        self.make(change)?;
        Ok(match change {
            LiveChange::Job(object) => Some(job_key(object)?),
            _ => None,
        })
    }

    /// Makes a change, and returns what has to be asked because of it.
    pub(crate) fn make(&mut self, change: &LiveChange) -> Result<BTreeSet<Pair>, LiveChangeError> {
        match change {
            LiveChange::Job(object) => self.submit(object)?,
            LiveChange::Queue(queue) => {
                let delta = Delta::Upserted(Queue::clone(queue));
                self.reconciler.queue_pass().queue(delta);
            }
            LiveChange::CapacityPolicy(policy) => {
                let delta = Delta::Upserted(CapacityPolicy::clone(policy));
                self.reconciler.policy(delta);
                let name = policy.metadata.name.as_deref().unwrap_or_default();
                let queues = self.reconciler.mirror.queues();
                if policy.states_queue() && !queues.contains_key(&QueueName::new(name)) {
                    let delta = Delta::Upserted(Queue::of_policy(name));
                    self.reconciler.queue_pass().queue(delta);
                }
            }
            LiveChange::WithoutCluster(name) => self.without_cluster(name)?,
            LiveChange::WithoutNode(cluster, node) => self.without_node(cluster, node)?,
        }
        Ok(self.reconcile())
    }

    /// Submits a job: its template, and the binding that Karmada makes of it and the webhook gates.
    fn submit(&mut self, object: &DynamicObject) -> Result<(), LiveChangeError> {
        let key = job_key(object)?;
        let types = object.types.clone().unwrap_or_default();
        let kind = TemplateKind {
            api_version: types.api_version,
            kind: types.kind,
        };
        if !workload::may_start_pods(&kind.api_version, &kind.kind) {
            return Err(LiveChangeError::NoWorkload(kind.to_string()));
        }
        let namespace = key.namespace.to_string();
        if !self.reconciler.view().namespace_of(&key).managed {
            return Err(LiveChangeError::NotManaged(namespace));
        }
        if self.reconciler.mirror.bindings().contains_key(&key) {
            return Err(LiveChangeError::Exists(key));
        }
        let (mut template, binding) = submitted(object, &key, kind, self.now.0);
        let queue = job::queue(&template, &self.reconciler.view().namespace_of(&key));
        // The webhook records it.
        let right = (namespace, queue);
        if self.own_rights.contains(&right) {
            template.permitted_queue = Some(right.1.to_string());
        }
        let kind = template.key.kind.clone();
        let delta = Delta::Upserted(template);
        self.reconciler.mirror.template(&kind, delta);
        self.reconciler.mirror.binding(Delta::Upserted(binding));
        self.reconciler.out.work_queue.add(&key);
        Ok(())
    }

    fn without_cluster(&mut self, name: &ClusterName) -> Result<(), LiveChangeError> {
        let fact = self.reconciler.engine.fleet().cluster(name);
        let mut fact: ClusterFact = fact
            .cloned()
            .ok_or_else(|| LiveChangeError::NoCluster(name.clone()))?;
        fact.taints.push(Taint {
            key: LEAVING.to_owned(),
            value: String::new(),
            effect: TaintEffect::NoExecute,
        });
        self.member(MemberEvent::Fact(Event::ClusterUpserted(fact)));
        Ok(())
    }

    fn without_node(
        &mut self,
        cluster: &ClusterName,
        node: &NodeName,
    ) -> Result<(), LiveChangeError> {
        if self.reconciler.engine.fleet().node(cluster, node).is_none() {
            let (cluster, node) = (cluster.clone(), node.clone());
            return Err(LiveChangeError::NoNode(cluster, node));
        }
        let pods = self.pods.values().flatten();
        let there = pods.filter(|((of, _), on)| of == cluster && on.as_ref() == Some(node));
        let there: Vec<Uid> = there.map(|((_, uid), _)| uid.clone()).collect();
        let gone = Event::NodeGone(cluster.clone(), node.clone());
        self.member(MemberEvent::Fact(gone));
        for uid in there {
            let gone = Event::PodGone(cluster.clone(), uid);
            self.member(MemberEvent::Fact(gone));
        }
        Ok(())
    }
}

/// Returns the job that a workload becomes.
fn job_key(object: &DynamicObject) -> Result<JobKey, LiveChangeError> {
    let of = |text: Option<&String>, what| match text {
        Some(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err(LiveChangeError::Incomplete(what)),
    };
    let types = object.types.as_ref();
    of(types.map(|types| &types.api_version), "apiVersion")?;
    let kind = of(types.map(|types| &types.kind), "kind")?;
    let name = of(object.metadata.name.as_ref(), "metadata.name")?;
    let namespace = of(object.metadata.namespace.as_ref(), "metadata.namespace")?;
    Ok(JobKey::new(&namespace, &names::binding_name(&kind, &name)))
}

/// Returns the template and the binding of a workload that is submitted at `now`, in milliseconds.
fn submitted(
    object: &DynamicObject,
    key: &JobKey,
    kind: TemplateKind,
    now: i64,
) -> (Template, ResourceBinding) {
    let created = Timestamp::from_millisecond(now).ok().map(KubernetesTime);
    let mut object = object.clone();
    let uid = format!("{CLAIM}-{key}");
    let claim = (names::POLICY_PERMANENT_ID.to_owned(), CLAIM.to_owned());
    object.metadata.uid = Some(uid.clone());
    object.metadata.creation_timestamp = created.clone();
    object.metadata.generation = Some(1);
    // Only the webhook says who submitted it, and what that user may use.
    for name in [names::USER_ANNOTATION, names::PERMITTED_QUEUE_ANNOTATION] {
        object
            .metadata
            .annotations
            .get_or_insert_default()
            .remove(name);
    }
    let labels = object.metadata.labels.get_or_insert_default();
    labels.extend([claim.clone()]);
    // A manifest may have been copied from an object that runs.
    object
        .data
        .as_object_mut()
        .map(|data| data.remove("status"));
    let kept = kept_policies::propagation(&key.namespace);
    let binding = ResourceBinding {
        metadata: ObjectMeta {
            name: Some(key.name.to_string()),
            namespace: Some(key.namespace.to_string()),
            uid: Some(format!("{uid}-binding")),
            creation_timestamp: created,
            labels: Some([claim].into()),
            ..ObjectMeta::default()
        },
        spec: BindingSpec {
            resource: ObjectReference {
                api_version: kind.api_version.clone(),
                kind: kind.kind.clone(),
                namespace: key.namespace.to_string(),
                name: object.metadata.name.clone().unwrap_or_default(),
                uid,
                ..ObjectReference::default()
            },
            placement: kept["spec"].get("placement").cloned(),
            scheduler_name: Some(names::SCHEDULER_NAME.to_owned()),
            suspension: Some(Suspension {
                scheduling: Some(true),
                ..Suspension::default()
            }),
            ..BindingSpec::default()
        },
        ..ResourceBinding::default()
    };
    (Template::read(&kind, object), binding)
}
