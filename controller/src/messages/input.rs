//! All inputs of the controller's owner task, in one enum.

use crate::avoided_nodes::TaintChange;
use crate::messages::enforcement::Enforcement;
use crate::messages::job_answer::JobAnswer;
use crate::mirror::seen_work::ReadWork;
use crate::mirror::template::{Template, TemplateKind};
use binding_writer::CommitOutcome;
use binding_writer::term::Lead;
use crds::capacity_policy::CapacityPolicy;
use crds::devices::ResourceClaimTemplate;
use crds::fault_policy::FaultPolicy;
use crds::karmada::{ClusterOverridePolicy, OverridePolicy, PropagationPolicy, ResourceBinding};
use crds::kubernetes::{Namespace, PriorityClass};
use crds::muster_config::MusterConfig;
use crds::namespace_queue::NamespaceQueue;
use crds::node_alert::NodeAlert;
use crds::node_remediation::NodeRemediation;
use crds::podgroup::PodGroup;
use crds::queue::Queue;
use engine::{JobKey, QueueName};
use members::MemberEvent;
use runtime::watch::Delta;
use std::collections::BTreeSet;

/// An observed change, or the answer to a question.
#[derive(Debug)]
pub(crate) enum Input {
    /// This replica leads.
    Lead(Lead),
    Binding(Delta<ResourceBinding>),
    Work(Delta<ReadWork>),
    Override(Delta<OverridePolicy>),
    ClusterOverride(Delta<ClusterOverridePolicy>),
    Namespace(Delta<Namespace>),
    /// The PropagationPolicy that Muster keeps in a managed namespace.
    Propagation(Delta<PropagationPolicy>),
    Queue(Delta<Queue>),
    Policy(Delta<CapacityPolicy>),
    FaultPolicy(Delta<FaultPolicy>),
    NodeRemediation(Delta<NodeRemediation>),
    Config(Delta<MusterConfig>),
    PriorityClass(Delta<PriorityClass>),
    ClaimTemplate(Delta<ResourceClaimTemplate>),
    PodGroup(Delta<PodGroup>),
    NamespaceQueue(Delta<NamespaceQueue>),
    Template(TemplateKind, Delta<Template>),
    /// The kinds that no policy of Muster selects and that the control plane serves.
    UnselectedKinds(BTreeSet<TemplateKind>),
    Member(MemberEvent),
    /// The state of the admission policies has changed.
    Enforcement(Enforcement),
    /// What was asked for about a job, or done for it.
    Answer(JobKey, JobAnswer),
    /// The API server has said whether the service accounts of a namespace may use a queue.
    RightAsked {
        namespace: String,
        queue: QueueName,
        allowed: bool,
    },
    /// Alertmanager has posted alerts about nodes.
    Alerts(Vec<NodeAlert>),
    /// The taint of a node was changed.
    NodeTainted(TaintChange),
}

impl Input {
    /// A write of a binding has ended.
    pub(crate) fn written(outcome: CommitOutcome) -> Self {
        Self::Answer(outcome.key.clone(), JobAnswer::Written(outcome))
    }
}
