//! What a template of any kind requests.

use crate::claims::{self, ClaimedDevices};
use crate::duration;
use crate::error::SpecError;
use crate::field::Field;
use crate::kinds::{self, WorkloadKind};
use crate::policies::{self, GangPolicies};
use crate::queue::named_queue;
use crate::rendezvous::{Addresses, Meeting, Reach};
use crate::size::{PriorityOf, Size, check_total};
use crate::{annotations, labels, leading, pod_rules, rendezvous, services, split};
use facts::{ClusterName, ClusterPlacement, Demand, Held, Resources, Role, Share, Split, Topology};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Annotation: the expected run time of the job.
const EXPECTED_DURATION: &str = "muster.io/expected-duration";

/// Why a job has no size that its kind, and Karmada's interpreter, do not know.
const NO_SIZE: &str = "its binding names no replicas with replicaRequirements and no components; give Karmada a ResourceInterpreterCustomization for it";

/// What a job requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadSpec {
    /// Its groups of equal pods, with all pods that the members may start.
    pub roles: Vec<Role>,
    /// The gang's minimum: pods that must run together for it to start. Zero only for a job without pods.
    pub min_available: u32,
    /// Minimum of each role for Volcano (`PodGroup.spec.minTaskMember`); empty if the kind has none.
    pub min_task_member: BTreeMap<String, u32>,
    /// The requests of its smallest gang (`PodGroup.spec.minResources`).
    pub min_resources: Resources,
    /// The queue that it names itself, if any ([`named_queue`]).
    pub queue: Option<String>,
    /// The PriorityClass that its template names, if any.
    pub priority_class: Option<String>,
    /// The PriorityClass that its label names, if any: it counts in the queue, and its pods do not have it.
    pub labelled_class: Option<String>,
    /// True if its owner has suspended it by a field of its template. A Volcano Job has no such field: an
    /// aborted one shows as [`crate::Outcome::Suspended`].
    pub suspended: bool,
    /// True if its owner has scaled it to zero: it holds nothing until its template asks for pods again. A job
    /// without pods of its own that a member completes or starts all the same is not.
    pub scaled_to_zero: bool,
    /// Expected run time in milliseconds: as declared, at most its own deadline.
    pub expected_duration_ms: Option<i64>,
    /// True if Karmada starts exactly `spec.clusters[].replicas` ([`crate::holds_replicas`]).
    pub replicas_held: bool,
    /// True if it may run with fewer pods, down to its minimum, and be resized (`muster.io/elastic`).
    pub elastic: bool,
    /// True if it may be evicted for another job (`volcano.sh/preemptable`).
    pub preemptible: bool,
    /// Clusters that hold its data (`muster.io/data-clusters`).
    pub data_clusters: Vec<ClusterName>,
    /// Whether it may be split over clusters, besides what Karmada divides (`muster.io/split`): `Never` if it
    /// cannot be, `None` if its queue decides.
    pub split: Option<Split>,
    /// True if its own template asks for it.
    pub asks_to_be_split: bool,
    /// The most clusters, if it names a number.
    pub max_clusters: Option<u32>,
    /// It can be split only if its pods can find these pods from different clusters.
    pub meeting: Meeting,
    /// The name by which pods of the same cluster reach the pod of rank 0, if it has one.
    pub leader_host: Option<String>,
    /// True if a Service can select single pods of it, by the labels of its operator.
    pub selectable: bool,
    /// The role of one pod whose success is that of the whole job, whatever its other pods do.
    pub leading_role: Option<String>,
    /// Its policies, as far as they concern the whole gang if it is in several parts.
    pub policies: Option<GangPolicies>,
    /// How close its pods must be.
    pub topology: Option<Topology>,
    /// `PodGroup.spec.networkTopology`, unchanged from the template.
    pub network_topology: Option<Value>,
    /// PriorityClasses that its pods name and the members must have.
    pub pod_priority_classes: BTreeSet<String>,
    /// The pods of the first role that only a rolling update starts: they are charged, but are not included in
    /// `spec.clusters[].replicas`.
    pub surge: u32,
    /// True if its pods stay after its end (a RayJob that keeps its cluster): its quota is free only when it
    /// is deleted.
    pub keeps_pods: bool,
}

impl WorkloadSpec {
    /// Returns its demand for the engine. `divisible` says whether Karmada itself may divide its replicas over
    /// clusters, and `queue_split` whether its queue splits jobs by default. The caller has to know whether a
    /// job that needs a rendezvous can have it ([`Self::may_be_split`]).
    #[must_use]
    pub fn demand(
        &self,
        divisible: bool,
        queue_split: Split,
        placement: ClusterPlacement,
    ) -> Demand {
        let split = self.split.unwrap_or(queue_split);
        // A job that cannot be resized once it is divided has to stay in one cluster.
        let stays = self.elastic
            && kinds::of_api(&placement.api).is_some_and(WorkloadKind::is_fixed_once_divided);
        // The override of each part sets its size, and changes only if the parts were made resizable.
        let held = match (self.replicas_held, split) {
            (true, Split::Never) => Held::ByReplicas,
            (false, _) if self.elastic => Held::ByOverride,
            _ => Held::Not,
        };
        Demand {
            roles: self.roles.clone(),
            min_available: self.min_available,
            natively_divisible: divisible && !stays,
            held,
            elastic: self.elastic,
            split,
            topology: self.topology,
            placement: ClusterPlacement {
                data_clusters: self.data_clusters.clone(),
                max_clusters: [placement.max_clusters, self.max_clusters]
                    .into_iter()
                    .flatten()
                    .min(),
                ..placement
            },
        }
    }

    /// Returns true if it would be split, with `queue_split` as its queue's default.
    #[must_use]
    pub fn may_be_split(&self, queue_split: Split) -> bool {
        self.split.unwrap_or(queue_split) != Split::Never
    }

    /// Returns the same job, in one cluster.
    #[must_use]
    pub fn whole(self) -> Self {
        Self {
            split: Some(Split::Never),
            ..self
        }
    }

    /// Returns how pods of other clusters are reached by `addresses`, once the share of each cluster is known.
    #[must_use]
    pub fn reach(&self, addresses: &Addresses, namespace: &str, shares: &[Share]) -> Reach {
        let first = self.roles.first();
        let leading = first.and_then(|first| rendezvous::leading(shares, &first.name));
        let all = shares.iter().filter(|_| self.meeting == Meeting::All);
        let open = |share: &Share| {
            let open = addresses.open(&share.cluster, namespace)?;
            Some((share.cluster.clone(), open))
        };
        Reach {
            leader: leading.and_then(|leading| {
                let host = self.leader_host.as_deref();
                addresses.of(&leading.cluster, namespace, host, self.selectable)
            }),
            hosts: all.filter_map(open).collect(),
        }
    }

    /// Returns the cluster whose part ends the whole job with its success, if there is one.
    #[must_use]
    pub fn leading_cluster(&self, shares: &[Share]) -> Option<ClusterName> {
        let leading = rendezvous::leading(shares, self.leading_role.as_deref()?)?;
        Some(leading.cluster.clone())
    }

    /// Returns its policies as those of a gang over the clusters of `shares`; `None` if it is whole in one.
    #[must_use]
    pub fn gang_policies(&self, shares: &[Share]) -> Option<GangPolicies> {
        policies::over(self.policies.as_ref(), shares)
    }

    /// Returns the ResourceClaimTemplates that its pods name. Their names stand for devices in its amounts
    /// until [`Self::with_claims`] replaces them.
    #[must_use]
    pub fn claim_templates(&self) -> BTreeSet<&str> {
        let requests = self.roles.iter().map(|role| &role.request);
        requests.flat_map(claims::templates).collect()
    }

    /// Returns the same job with the devices that the ResourceClaimTemplates of its pods claim; `of` looks up
    /// a template of its namespace.
    ///
    /// # Errors
    /// Returns an error if a template is missing, or claims devices that cannot be counted.
    pub fn with_claims<'a>(
        &self,
        of: &dyn Fn(&str) -> Option<&'a ClaimedDevices>,
    ) -> Result<Self, SpecError> {
        let mut whole = self.clone();
        for role in &mut whole.roles {
            role.request = claims::resolved(&role.request, of)?;
        }
        whole.min_resources = claims::resolved(&self.min_resources, of)?;
        check_total(&Field::absent(), &whole.roles)?;
        Ok(whole)
    }

    /// Returns the same job without the devices that its pods claim, for its other values while these are
    /// unknown.
    #[must_use]
    pub fn without_claims(mut self) -> Self {
        for role in &mut self.roles {
            role.request = claims::left_out(&role.request);
        }
        self.min_resources = claims::left_out(&self.min_resources);
        self
    }

    /// Returns every PriorityClass that its queue must allow: those of its pods, and that of its label.
    #[must_use]
    pub fn named_classes(&self) -> BTreeSet<String> {
        let mut all = self.priority_classes();
        all.extend(self.labelled_class.clone());
        all
    }

    /// Returns every PriorityClass that a member must have for it.
    #[must_use]
    pub fn priority_classes(&self) -> BTreeSet<String> {
        let own = self.priority_class.iter().cloned();
        own.chain(self.pod_priority_classes.iter().cloned())
            .collect()
    }
}

/// Returns what `template` requests, by its apiVersion and kind.
///
/// # Errors
/// [`SpecError::SizeUnknown`] for an unknown kind ([`read_spec_from_binding`] may know more),
/// [`SpecError::Invalid`] for a field with an invalid value.
pub fn read_spec(template: &Value) -> Result<WorkloadSpec, SpecError> {
    read_spec_with(template, &|_| None)
}

/// Does the same as [`read_spec`] with the values of PriorityClasses, which only order the tasks of a
/// Volcano Job in `min_resources`.
///
/// # Errors
/// As [`read_spec`].
pub fn read_spec_with(
    template: &Value,
    priority_of: PriorityOf<'_>,
) -> Result<WorkloadSpec, SpecError> {
    let root = Field::root(template);
    let api_version = root.get("apiVersion")?.text()?.unwrap_or_default();
    let kind = root.get("kind")?.text()?.unwrap_or_default();
    let Some(known) = kinds::of(api_version, kind) else {
        return Err(unknown(api_version, kind, "this kind is not known"));
    };
    has_pods_of_its_own(&root)?;
    let size = known.size(&root, priority_of)?;
    finish(size, &root, kinds::holds_replicas(api_version, kind))
}

/// Returns what a job of any other kind requests, as Karmada's interpreter writes it into the `spec` of its
/// binding: `components`, or `replicas` with `replicaRequirements`. All of its pods are its minimum. The
/// template, if available, gives queue, suspension (`spec.suspend`, `spec.runPolicy.suspend`) and expected
/// duration.
///
/// # Errors
/// [`SpecError::SizeUnknown`] if the binding has neither, [`SpecError::Invalid`] for a field with an
/// invalid value.
pub fn read_spec_from_binding(
    binding_spec: &Value,
    template: Option<&Value>,
) -> Result<WorkloadSpec, SpecError> {
    let spec = Field::at("binding.spec", binding_spec);
    let resource = spec.get("resource")?;
    let api_version = resource.get("apiVersion")?.text()?.unwrap_or_default();
    let kind = resource.get("kind")?.text()?.unwrap_or_default();
    let unknown = || {
        let advice = kinds::maker_advice(api_version, kind);
        unknown(api_version, kind, advice.as_deref().unwrap_or(NO_SIZE))
    };
    let mut size = crate::binding::size(&spec)?.ok_or_else(unknown)?;
    let nothing = Value::Null;
    let template = template.unwrap_or(&nothing);
    let suspended = |path| {
        template
            .pointer(path)
            .and_then(Value::as_bool)
            .unwrap_or(false)
    };
    size.suspended = suspended("/spec/suspend") || suspended("/spec/runPolicy/suspend");
    let root = if template.is_object() {
        Field::root(template)
    } else {
        Field::absent()
    };
    finish(size, &root, kinds::holds_replicas(api_version, kind))
}

/// Checks that no job controls the template: where a controller of workloads runs on the control plane, what
/// it makes there, such as the ReplicaSet of a Deployment, has the pods of that job and not more.
fn has_pods_of_its_own(template: &Field<'_>) -> Result<(), SpecError> {
    let owners = template.get("metadata.ownerReferences")?;
    for owner in owners.items()? {
        let text = |key| Ok::<_, SpecError>(owner.get(key)?.text()?.unwrap_or_default());
        let (api_version, kind) = (text("apiVersion")?, text("kind")?);
        if owner.get("controller")?.flag()? && kinds::of(api_version, kind).is_some() {
            return Err(SpecError::Invalid {
                field: owner.path().to_owned(),
                value: format!("{kind} {}", text("name")?),
                want: "no controller that is a job itself: its pods are those of that job, which is queued by itself".to_owned(),
            });
        }
    }
    Ok(())
}

fn unknown(api_version: &str, kind: &str, why: &str) -> SpecError {
    SpecError::SizeUnknown {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        why: why.to_owned(),
    }
}

/// Adds the fields that all kinds have in common to `size`.
fn finish(
    mut size: Size,
    template: &Field<'_>,
    replicas_held: bool,
) -> Result<WorkloadSpec, SpecError> {
    let declared = duration::millis(
        &template
            .get("metadata.annotations")?
            .entry(EXPECTED_DURATION)?,
    )?;
    let pod_templates = pod_templates(template);
    let elastic = annotations::elastic(template, replicas_held, &mut size)?;
    let split = split::request(template)?;
    let pods = size
        .roles
        .iter()
        .fold(0_u32, |sum, role| sum.saturating_add(role.count));
    if let Some(object) = template.value() {
        pod_rules::set(object, &mut size.roles, size.surge)?;
    }
    Ok(WorkloadSpec {
        // Even a gang without a minimum needs one pod.
        min_available: size.min_available.max(1).min(pods),
        queue: template.value().and_then(named_queue),
        expected_duration_ms: shorter(declared, size.duration_ms),
        replicas_held,
        elastic,
        preemptible: annotations::preemptible(template, &pod_templates)?,
        data_clusters: annotations::data_clusters(template)?,
        split: split.split,
        asks_to_be_split: split.split.is_some_and(|split| split != Split::Never),
        max_clusters: split.max_clusters,
        meeting: split::meeting(template)?,
        leader_host: template.value().and_then(rendezvous::host),
        selectable: template.value().is_some_and(services::can_select),
        leading_role: template.value().and_then(leading::role),
        policies: template.value().and_then(policies::of),
        topology: annotations::topology(size.network_topology.as_ref())?,
        pod_priority_classes: priority_classes(&pod_templates),
        roles: size.roles,
        min_task_member: size.min_task_member,
        min_resources: size.min_resources,
        priority_class: size.priority_class,
        labelled_class: template.value().and_then(labels::labelled_class),
        suspended: size.suspended,
        scaled_to_zero: pods == 0 && is_scaled_to_zero(template),
        network_topology: size.network_topology,
        surge: size.surge,
        keeps_pods: size.keeps_pods,
    })
}

/// Returns true if a template without pods has nothing to do. That holds for a kind of which only replicas are
/// known, as a binding has them.
fn is_scaled_to_zero(template: &Field<'_>) -> bool {
    let Some(object) = template.value() else {
        return true;
    };
    kinds::of_template(object).is_none_or(|kind| kind.is_scaled_to_zero(object))
}

/// Returns the templates of its pods, if its kind is known.
fn pod_templates<'a>(template: &Field<'a>) -> Vec<&'a Value> {
    let Some(object) = template.value() else {
        return Vec::new();
    };
    let known = kinds::of_template(object);
    known.map_or_else(Vec::new, |kind| kind.pod_templates(object))
}

fn priority_classes(pod_templates: &[&Value]) -> BTreeSet<String> {
    let named = pod_templates.iter().filter_map(|pods| {
        let name = pods.pointer("/spec/priorityClassName")?.as_str()?;
        (!name.is_empty()).then(|| name.to_owned())
    });
    named.collect()
}

fn shorter(declared: Option<i64>, deadline: Option<i64>) -> Option<i64> {
    match (declared, deadline) {
        (Some(declared), Some(deadline)) => Some(declared.min(deadline)),
        (one, other) => one.or(other),
    }
}

/// Returns what pods of a RuntimeClass need besides their containers, from its `overhead`.
///
/// # Errors
/// [`SpecError::Invalid`] for an invalid amount.
pub fn pod_overhead(overhead: &Value) -> Result<Resources, SpecError> {
    Field::root(overhead).get("podFixed")?.resources()
}

/// Returns what one pod of `spec` (a pod spec as the API server stores it) requests, including one `pods`.
///
/// # Errors
/// [`SpecError::Invalid`] for a field with an invalid value.
pub fn pod_request(spec: &Value) -> Result<Resources, SpecError> {
    crate::pod::PodRequirements::read(&Field::root(spec)).map(|pod| pod.request)
}

#[cfg(test)]
mod tests;
