//! Converts what is seen of a job into facts for the engine: size, queue, priority, placement, and whether
//! it may compete. Pure.

use crate::facts::holds;
use crate::mirror::binding::{
    admitted_record, has_our_scheduler, is_claimed, own_record, record_problem,
};
use crate::mirror::namespace::NamespaceFact;
use crate::mirror::template::Template;
use crds::capacity_policy::RefusedClass;
use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::AdmissionRecord;
use engine::facts::{ClusterPlacement, Demand, Filters, Held, Hold, JobFact, Split};
use engine::{JobKey, QueueName, Reason, Time, Uid};
use std::collections::BTreeSet;
use workload::{ClaimedDevices, Meeting, SpecError, WorkloadSpec};

#[cfg(test)]
mod tests;

/// Whether a job may be in its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Permission {
    Granted,
    /// It is being checked whether its namespace has the right.
    Unknown,
    /// Why its namespace may not use the queue without a right.
    Refused(String),
}

/// Returns what a ResourceClaimTemplate of the job's namespace claims for one pod.
pub(crate) type Claimed<'a> = &'a dyn Fn(&str) -> Option<&'a ClaimedDevices>;

/// The rules of queues for their jobs.
#[derive(Clone, Copy)]
pub(crate) struct QueueRules<'a> {
    /// Returns whether jobs of the namespace may be in a queue, without the rights of users.
    pub(crate) permitted: &'a dyn Fn(&QueueName) -> Permission,
    /// Returns the first of the named PriorityClasses that a queue does not allow; without a name the
    /// cluster's default counts.
    pub(crate) class_refused: &'a dyn Fn(&QueueName, &BTreeSet<String>) -> Option<RefusedClass>,
    /// Returns whether a queue splits jobs by default.
    pub(crate) split: &'a dyn Fn(&QueueName) -> Split,
    /// Returns the filters of a queue.
    pub(crate) filters: &'a dyn Fn(&QueueName) -> Filters,
    /// Returns why pods of different clusters could not find each other, if so.
    pub(crate) rendezvous_problem: &'a dyn Fn(&QueueName, Meeting) -> Option<String>,
}

/// A job as the engine receives it, with what its PodGroup shows.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedJob {
    pub(crate) fact: JobFact,
    /// What it requests; `None` if unknown. Without the devices that its pods claim if only these are unknown.
    pub(crate) ask: Option<WorkloadSpec>,
    /// Why it is not split although it asks for it, as text.
    pub(crate) unsplit: Option<String>,
}

/// Returns the job of `binding` and its `template`.
pub(crate) fn job(
    key: &JobKey,
    binding: &ResourceBinding,
    template: &Template,
    namespace: &NamespaceFact,
    rules: QueueRules<'_>,
    claimed: Claimed<'_>,
) -> ResolvedJob {
    let queue = queue(template, namespace);
    let (ask, mut hold) = match size(binding, template) {
        Ok(ask) if ask.claim_templates().is_empty() => (Some(ask), None),
        Ok(ask) => match ask.with_claims(claimed) {
            Ok(whole) => (Some(whole), None),
            // A running job continues with all its other values.
            Err(error) => (Some(ask.without_claims()), Some(held(&error))),
        },
        Err(error) => (None, Some(held(&error))),
    };
    let queue_split = (rules.split)(&queue);
    let unsplit = ask.as_ref().and_then(|ask| {
        let asks = ask.meeting != Meeting::Nobody && ask.may_be_split(queue_split);
        asks.then(|| (rules.rendezvous_problem)(&queue, ask.meeting))
            .flatten()
    });
    let ask = if unsplit.is_some() {
        ask.map(WorkloadSpec::whole)
    } else {
        ask
    };
    let own_hold = own_hold(binding, template, namespace, ask.as_ref(), &queue, rules);
    hold = hold.or(own_hold);
    let fact = JobFact {
        key: key.clone(),
        uid: Uid::new(&binding.spec.resource.uid),
        demand: demand(
            binding,
            template,
            ask.as_ref(),
            queue_split,
            (rules.filters)(&queue),
        ),
        queue,
        priority_class: ask
            .as_ref()
            .and_then(|ask| priority_class(binding, ask, rules)),
        queued_at: queued_at(binding, template),
        hold,
        expected_duration_ms: ask.as_ref().and_then(|ask| ask.expected_duration_ms),
        user: template.user.clone(),
        preemptible: ask.as_ref().is_none_or(|ask| ask.preemptible),
        checkpointed_at: template.checkpointed_at,
        images: template.images.clone(),
    };
    ResolvedJob { fact, ask, unsplit }
}

/// Returns a job whose template was not found; it is held until the template appears.
pub(crate) fn unread(
    key: &JobKey,
    binding: &ResourceBinding,
    namespace: &NamespaceFact,
) -> JobFact {
    let resource = &binding.spec.resource;
    let queue = namespace.queue();
    let created = binding.metadata.creation_timestamp.as_ref();
    let message = format!(
        "its template {} {} ({}) was not found: it is deleted, or Muster may not read its kind; \
         grant get, list and watch on it by a ClusterRole labelled rbac.muster.io/aggregate-to-workloads=true",
        resource.kind, resource.name, resource.api_version
    );
    let api = format!("{}/{}", resource.api_version, resource.kind);
    JobFact {
        key: key.clone(),
        uid: Uid::new(&resource.uid),
        queue: QueueName::new(queue),
        priority_class: None,
        queued_at: Time(created.map_or(0, |at| at.0.as_millisecond())),
        demand: unknown_demand(workload::cluster_placement(
            binding.spec.placement.as_ref(),
            &api,
        )),
        hold: Some(Hold {
            reason: Reason::SizeUnknown,
            message,
        }),
        expected_duration_ms: None,
        user: String::new(),
        preemptible: true,
        checkpointed_at: None,
        images: Vec::new(),
    }
}

/// Returns an empty demand, for jobs of unknown size; they are never admitted.
fn unknown_demand(placement: ClusterPlacement) -> Demand {
    Demand {
        roles: Vec::new(),
        min_available: 0,
        natively_divisible: false,
        held: Held::Not,
        elastic: false,
        split: Split::Never,
        topology: None,
        placement,
    }
}

/// Returns the template's own queue, or the namespace's, or `default`.
pub(crate) fn queue(template: &Template, namespace: &NamespaceFact) -> QueueName {
    QueueName::new(
        template
            .queue
            .as_deref()
            .unwrap_or_else(|| namespace.queue()),
    )
}

/// Returns the size by kind, or else by what Karmada's interpreter says on the binding.
fn size(binding: &ResourceBinding, template: &Template) -> Result<WorkloadSpec, SpecError> {
    match &template.ask {
        Err(SpecError::SizeUnknown { .. }) => {
            let spec = serde_json::json!({
                "resource": binding.spec.resource,
                "replicas": binding.spec.replicas,
                "replicaRequirements": binding.spec.replica_requirements,
                "components": binding.spec.components,
            });
            let ask = workload::read_spec_from_binding(&spec, None)?;
            Ok(WorkloadSpec {
                labelled_class: template.labelled_class.clone(),
                ..ask
            })
        }
        known => known.clone(),
    }
}

fn held(error: &SpecError) -> Hold {
    Hold {
        reason: error.reason(),
        message: error.to_string(),
    }
}

/// Returns what keeps a job of known size from competing.
fn own_hold(
    binding: &ResourceBinding,
    template: &Template,
    namespace: &NamespaceFact,
    ask: Option<&WorkloadSpec>,
    queue: &QueueName,
    rules: QueueRules<'_>,
) -> Option<Hold> {
    let held = |reason, message| Some(Hold { reason, message });
    let bound = &binding.spec.resource;
    let within = binding.metadata.namespace.as_deref().unwrap_or_default();
    if bound.namespace != within {
        return held(
            Reason::InvalidTemplate,
            format!(
                "its binding is in namespace {within} and binds {} {} of namespace {:?}; Karmada binds only objects of the same namespace: delete the binding",
                bound.kind, bound.name, bound.namespace
            ),
        );
    }
    if !is_claimed(binding) {
        return held(Reason::PolicyNotFound, unclaimed());
    }
    if !has_our_scheduler(binding) {
        return held(Reason::WrongScheduler, wrong_scheduler(binding));
    }
    let over = holds::over_before(binding).filter(|over| !is_resumed(binding, template, over));
    if let Some(over) = over.or_else(|| holds::cannot_start(binding, template)) {
        return Some(over);
    }
    let admitted = admitted_record(binding).is_some();
    if template.deleting && !admitted {
        return held(Reason::Deleting, being_deleted(template));
    }
    if ask.is_some_and(|ask| ask.suspended) {
        return held(
            Reason::Suspended,
            "suspended by its owner; resume it to have it queued".into(),
        );
    }
    if ask.is_some_and(|ask| ask.scaled_to_zero) {
        return held(
            Reason::ScaledToZero,
            "its template asks for no pods; it is queued at its size once it asks for some".into(),
        );
    }
    if admitted {
        // These rules apply again once it is evicted.
        return invalid_record(binding);
    }
    if let Some(hold) = on_hold(binding, template) {
        return Some(hold);
    }
    if let Some(hold) = holds::placement_refused(binding, template) {
        return Some(hold);
    }
    if let Some(hold) =
        not_managed(binding, namespace).or_else(|| not_permitted(binding, template, queue, rules))
    {
        return Some(hold);
    }
    let classes = ask.map(WorkloadSpec::named_classes).unwrap_or_default();
    if let Some(refused) = (rules.class_refused)(queue, &classes) {
        let RefusedClass { class, listed, .. } = &refused;
        let is_label = template.labelled_class.as_ref() == Some(class);
        let mend = match is_label {
            true => format!(
                "name one that it lists ({listed}) in the label {}, or remove the label",
                names::PRIORITY_CLASS_LABEL
            ),
            false => format!("submit it with one that it lists ({listed}), or to another queue"),
        };
        return held(
            Reason::PriorityClassNotPermitted,
            format!("{}; {mend}", refused.why(queue.as_str())),
        );
    }
    invalid_record(binding)
}

/// Returns the hold of the user's label. A value that cannot be read holds the job, too.
fn on_hold(binding: &ResourceBinding, template: &Template) -> Option<Hold> {
    let label = names::HOLD_LABEL;
    match &template.on_hold {
        Ok(false) => None,
        Ok(true) => {
            let object = &binding.spec.resource;
            let kind = names::kubectl_kind(&object.api_version, &object.kind);
            Some(Hold {
                reason: Reason::OnHold,
                message: format!(
                    "on hold by its label {label}; to release it: kubectl label -n {} {kind} {} {label}-",
                    object.namespace, object.name
                ),
            })
        }
        Err(error) => Some(held(error)),
    }
}

/// Returns the PriorityClass that counts in the queue. The label of an admitted job may have changed since
/// its admission: a class that the charged queue does not allow must not protect it from eviction.
fn priority_class(
    binding: &ResourceBinding,
    ask: &WorkloadSpec,
    rules: QueueRules<'_>,
) -> Option<String> {
    let labelled = ask.labelled_class.clone().filter(|class| {
        let classes = BTreeSet::from([class.clone()]);
        admitted_record(binding)
            .is_none_or(|record| (rules.class_refused)(&record.queue, &classes).is_none())
    });
    labelled.or_else(|| ask.priority_class.clone())
}

/// Returns true if its user has resumed the job after the attempt in which it was aborted.
fn is_resumed(binding: &ResourceBinding, template: &Template, over: &Hold) -> bool {
    let aborted = own_record(binding).filter(|_| over.reason == Reason::Aborted);
    aborted.is_some_and(|record| template.resumed_after == Some(record.attempt))
}

fn invalid_record(binding: &ResourceBinding) -> Option<Hold> {
    record_problem(binding).map(|message| Hold {
        reason: Reason::InvalidTemplate,
        message,
    })
}

/// Returns why no queue takes the job, if its namespace is not managed: there nobody sees to who its user is, and
/// the rules for tenants do not hold.
fn not_managed(binding: &ResourceBinding, namespace: &NamespaceFact) -> Option<Hold> {
    let name = binding.metadata.namespace.as_deref().unwrap_or_default();
    (!namespace.managed).then(|| Hold {
        reason: Reason::QueueNotPermitted,
        message: format!(
            "queues take jobs of managed namespaces only, and {name} is none; ask an operator to label it {}=true, \
             or use a policy with another schedulerName",
            names::MANAGED_LABEL
        ),
    })
}

/// Returns why the job may not be in its queue: neither its namespace may use it, nor could its user when
/// the job was submitted.
fn not_permitted(
    binding: &ResourceBinding,
    template: &Template,
    queue: &QueueName,
    rules: QueueRules<'_>,
) -> Option<Hold> {
    if template.permitted_queue.as_deref() == Some(queue.as_str()) {
        return None;
    }
    let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
    match (rules.permitted)(queue) {
        Permission::Granted => None,
        Permission::Unknown => Some(Hold {
            reason: Reason::NotEvaluated,
            message: format!(
                "whether namespace {namespace} may use queue {queue} is being checked"
            ),
        }),
        Permission::Refused(why) => Some(Hold {
            reason: Reason::QueueNotPermitted,
            message: format!(
                "{why}, and neither the service accounts of {namespace} nor, when it was submitted, its user had the verb use \
                 on the Queue; use another queue, or ask its owner"
            ),
        }),
    }
}

/// A job that runs goes on until its object is gone, as it would in Kubernetes.
fn being_deleted(template: &Template) -> String {
    let kept_by = match template.kept_by.as_slice() {
        [] => String::new(),
        [one] => format!("; finalizer {one} keeps its object"),
        several => format!("; finalizers {} keep its object", several.join(", ")),
    };
    format!("it was deleted and is not started{kept_by}; submit it again when the object is gone")
}

fn unclaimed() -> String {
    format!(
        "no propagation policy claims it; policy {} of its namespace takes it unless one of your own selects it",
        names::DEFAULT_POLICY
    )
}

fn wrong_scheduler(binding: &ResourceBinding) -> String {
    format!(
        "its propagation policy names schedulerName {:?} in a namespace that Muster manages; \
         set schedulerName: {} in a new policy (the field is immutable), or delete the policy so that policy {} takes it",
        binding
            .spec
            .scheduler_name
            .as_deref()
            .unwrap_or("default-scheduler"),
        names::SCHEDULER_NAME,
        names::DEFAULT_POLICY,
    )
}

/// Returns when the template was created, or else the binding.
fn queued_at(binding: &ResourceBinding, template: &Template) -> Time {
    let of_binding = || {
        binding
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(0, |t| t.0.as_millisecond())
    };
    if template.created.0 > 0 {
        template.created
    } else {
        Time(of_binding())
    }
}

fn demand(
    binding: &ResourceBinding,
    template: &Template,
    ask: Option<&WorkloadSpec>,
    queue_split: Split,
    filters: Filters,
) -> Demand {
    let resource = &binding.spec.resource;
    let api = format!("{}/{}", resource.api_version, resource.kind);
    let placement = ClusterPlacement {
        filters,
        ..workload::cluster_placement(binding.spec.placement.as_ref(), &api)
    };
    let Some(ask) = ask else {
        return unknown_demand(placement);
    };
    let divisible = template.divisible_kind && workload::divided(binding.spec.placement.as_ref());
    let demand = ask.demand(divisible, queue_split, placement);
    match admitted_record(binding) {
        Some(record) => as_released(demand, &record),
        None => demand,
    }
}

/// Returns the `demand` of a placed job: whether its parts can be resized was decided when they were made,
/// whatever its template says now.
fn as_released(demand: Demand, record: &AdmissionRecord) -> Demand {
    match (demand.held, record.resizable) {
        (Held::ByOverride, false) => Demand {
            held: Held::Not,
            elastic: false,
            ..demand
        },
        (Held::Not, true) => Demand {
            held: Held::ByOverride,
            ..demand
        },
        _ => demand,
    }
}
