//! All inputs of the controller's owner task, in one enum.

use crate::avoided_nodes::TaintChange;
use crate::messages::enforcement::Enforcement;
use crate::messages::unbound_pods::UnboundPods;
use crate::mirror::seen_work::ReadWork;
use crate::mirror::template::{Template, TemplateKind};
use binding_writer::overrides::OverrideError;
use binding_writer::term::Lead;
use binding_writer::{CommitOutcome, Write};
use crds::capacity_policy::CapacityPolicy;
use crds::devices::ResourceClaimTemplate;
use crds::fault_policy::FaultPolicy;
use crds::karmada::{ClusterOverridePolicy, OverridePolicy, PropagationPolicy, ResourceBinding};
use crds::kubernetes::{Namespace, PriorityClass};
use crds::node_alert::NodeAlert;
use crds::node_remediation::NodeRemediation;
use crds::podgroup::PodGroup;
use crds::queue::Queue;
use engine::{Attempt, ClusterName, JobKey, QueueName};
use members::MemberEvent;
use runtime::watch::Delta;
use scheduler::Refusal;
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
    PriorityClass(Delta<PriorityClass>),
    ClaimTemplate(Delta<ResourceClaimTemplate>),
    PodGroup(Delta<PodGroup>),
    Template(TemplateKind, Delta<Template>),
    /// The kinds that no policy of Muster selects and that the control plane serves.
    UnselectedKinds(BTreeSet<TemplateKind>),
    Member(MemberEvent),
    /// The state of the admission policies has changed.
    Enforcement(Enforcement),
    /// A write of a binding has ended.
    Outcome(CommitOutcome),
    /// The scheduler checked a plan and prepared its members.
    Prepared {
        key: JobKey,
        attempt: Attempt,
        result: Box<Result<Write, Refusal>>,
    },
    /// A fresh read has shown whether Works of a job are left.
    WorksChecked {
        key: JobKey,
        /// UID of the binding that the read was for.
        uid: Option<String>,
        gone: Result<bool, String>,
    },
    /// The parts of a job were written again, or cannot be.
    PartsWritten {
        key: JobKey,
        attempt: Attempt,
        result: Result<(), OverrideError>,
    },
    /// The Services by which the pods of a job find each other were checked; says why Karmada does not
    /// propagate them, if so.
    ServicesSeen {
        key: JobKey,
        attempt: Attempt,
        result: Result<Option<String>, OverrideError>,
    },
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
    /// A member has shown the pods of a job that have no node.
    SchedulerSaid {
        key: JobKey,
        attempt: Attempt,
        cluster: ClusterName,
        pods: UnboundPods,
    },
    /// A member has said whether it has applied the smaller size of a job.
    SizeChecked {
        key: JobKey,
        attempt: Attempt,
        cluster: ClusterName,
        small: Result<bool, String>,
    },
}
