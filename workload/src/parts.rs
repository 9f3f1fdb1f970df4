//! The parts of a gang that is placed over several clusters: what Karmada has to replace in its
//! template for each of them, so that each runs its share and every pod knows its place.
//!
//! ```text
//! template + admitted shares ──► Part per cluster: whole subtrees, a mark to know it by
//! ```
//!
//! Whole subtrees and not single indexes, so that a template that was reordered meanwhile
//! cannot be misapplied. The subtrees come from the template that was admitted: what it becomes
//! later reaches no member.
//!
//! Pods of two parts have the same names and indexes, so a pod's rank in the whole gang is
//! `MUSTER_RANK_OFFSET` plus its index in its own task (`VC_TASK_INDEX`,
//! `JOB_COMPLETION_INDEX`; `MUSTER_REPLICA_INDEX` in a JobSet). Ranks count through the tasks in
//! the template's order, and through the clusters within each task, so that the whole gang has each
//! rank from 0 once. In an elastic gang each task has room for all of its pods in each of the
//! clusters, so that a rank belongs to one pod however the parts grow; some ranks are then unused.
//! `MUSTER_LEADER_ADDRESS` is where the pod of rank 0 is reached ([`crate::rendezvous`]).

pub(crate) mod metadata;
mod resize;

use crate::kinds::{self, WorkloadKind};
use crate::rendezvous::{Meeting, Reach};
use crate::services::Whose;
use crate::spec::read_spec;
use crate::{rendezvous, services};
use engine::facts::{RolePods, Share};
use engine::{Attempt, ClusterName};
use metadata::MetadataField;
pub use resize::resized;
pub(crate) use resize::{PartResizing, resizing};
use serde_json::{Map, Value, json};

/// What makes one cluster's part out of the whole template.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedPart {
    /// The cluster.
    pub cluster: ClusterName,
    /// What tells that the part was made from this attempt and these shares ([`mark`]).
    pub mark: String,
    /// Paths (JSON pointers) and the values that are put there; null takes away what is there.
    pub fields: Vec<(String, Value)>,
}

/// Why a gang cannot be taken apart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartsError {
    /// Its kind is none that can be.
    #[error("a {0} cannot be placed in parts")]
    Kind(String),
    /// The template is no longer the one that was admitted.
    #[error(
        "its template changed since it was planned: {role} has {now} pods, {planned} were planned"
    )]
    Changed {
        /// The task.
        role: String,
        /// Pods that were planned.
        planned: u32,
        /// Pods that the template has now.
        now: u32,
    },
    /// Pods of several clusters would look for one that they cannot find.
    #[error("no address is known at which its other pods could reach {0} on {1}")]
    NoAddress(String, ClusterName),
    /// The template cannot be read any more.
    #[error("its template changed since it was planned: {0}")]
    Unreadable(String),
}

/// What a part is known by: the same for the same attempt and shares, another for any other.
#[must_use]
pub fn mark(attempt: Attempt, shares: &[Share], index: usize) -> String {
    let pods = shares.get(index).map_or(&[][..], |share| &share.pods);
    let pods: Vec<String> = pods
        .iter()
        .filter(|role| role.count > 0)
        .map(|role| format!("{}={}", role.role, role.count))
        .collect();
    format!(
        "attempt {}, part {} of {}: {}",
        attempt.0,
        index + 1,
        shares.len(),
        pods.join(" ")
    )
}

/// The attempt that a [`mark`] was made for; `None` where it is none.
#[must_use]
pub fn attempt_of(mark: &str) -> Option<Attempt> {
    let (attempt, _) = mark.strip_prefix("attempt ")?.split_once(',')?;
    attempt.parse().ok().map(Attempt)
}

/// Whether objects of `api` (`batch/v1/Job`) can be taken apart.
#[must_use]
pub fn may_be_in_parts(api: &str) -> bool {
    kinds::of_api(api).is_some_and(|kind| kind.part_fields().is_some())
}

/// What each cluster of `shares` gets of `template`, in their order. `reach` is how pods of
/// other clusters are reached, as far as that is known. Parts that are `resizable` may have fewer
/// pods than the template, and receive nothing that a change of their size would change.
///
/// # Errors
/// Where the kind cannot be taken apart, or `template` is not what `shares` were planned for.
pub fn parts(
    template: &Value,
    attempt: Attempt,
    shares: &[Share],
    reach: &Reach,
    resizable: bool,
) -> Result<Vec<RenderedPart>, PartsError> {
    let kind = template.get("kind").and_then(Value::as_str);
    let fields = kinds::of_template(template)
        .and_then(WorkloadKind::part_fields)
        .ok_or_else(|| PartsError::Kind(kind.unwrap_or_default().to_owned()))?;
    let gang = Gang::read(template, attempt, shares, reach, resizable)?;
    gang.can_meet()?;
    let part = |(index, share): (usize, &Share)| RenderedPart {
        cluster: share.cluster.clone(),
        mark: mark(attempt, shares, index),
        fields: fields(template, &gang, index),
    };
    Ok(shares.iter().enumerate().map(part).collect())
}

/// Paths and values.
pub(crate) type Fields = Vec<(String, Value)>;

/// Names of variables, and what each is: a text, or an object that tells where it comes from.
pub(crate) type Environment = Vec<(&'static str, Value)>;

/// The whole gang.
pub(crate) struct Gang<'a> {
    pub(crate) attempt: Attempt,
    pub(crate) shares: &'a [Share],
    /// Its tasks in the template's order, with all of their pods.
    pub(crate) tasks: Vec<RolePods>,
    pub(crate) min_available: u32,
    /// Whether its parts may be resized while they run.
    pub(crate) resizable: bool,
    /// Whether Volcano looks at the tasks' own minimums, which it does where the job's is no
    /// less than they add up to (pkg/scheduler/api/job_info.go, `CheckTaskMinAvailable`).
    pub(crate) tasks_hold: bool,
    /// Whom pods of all clusters have to find.
    pub(crate) meeting: Meeting,
    /// Names of all its clusters.
    pub(crate) clusters: String,
    /// How pods of the leading cluster reach the pod of rank 0.
    pub(crate) host: Option<String>,
    /// How those of the others do.
    pub(crate) leader: Option<String>,
    /// How they reach all other pods.
    pub(crate) reach: &'a Reach,
    /// Its namespace.
    pub(crate) namespace: &'a str,
    /// Its Services are called after it.
    pub(crate) whose: Whose<'a>,
}

impl<'a> Gang<'a> {
    fn read(
        template: &'a Value,
        attempt: Attempt,
        shares: &'a [Share],
        reach: &'a Reach,
        resizable: bool,
    ) -> Result<Self, PartsError> {
        let spec =
            read_spec(template).map_err(|error| PartsError::Unreadable(error.to_string()))?;
        let tasks: Vec<RolePods> = spec
            .roles
            .iter()
            .map(|role| RolePods {
                role: role.name.clone(),
                count: role.count,
            })
            .collect();
        let gone = shares.iter().flat_map(|share| &share.pods).find(|planned| {
            planned.count > 0 && !tasks.iter().any(|task| task.role == planned.role)
        });
        let gone = gone.map(|planned| (planned.role.clone(), planned.count, 0));
        let resized = tasks.iter().find_map(|task| {
            let planned = shares.iter().map(|share| of_role(share, &task.role)).sum();
            // Of what is resized any number may be admitted; a part that is too large shrinks.
            (planned != task.count && !resizable).then(|| (task.role.clone(), planned, task.count))
        });
        if let Some((role, planned, now)) = gone.or(resized) {
            return Err(PartsError::Changed { role, planned, now });
        }
        let clusters: Vec<&str> = shares.iter().map(|share| share.cluster.as_str()).collect();
        let namespace = template.pointer("/metadata/namespace");
        let whose = Whose::of(template, attempt);
        let service = first_service(&whose, &tasks, shares).unwrap_or_default();
        // The Service of the first pod is there in its own cluster, too.
        let found = shares.len() > 1 && reach.first_has_service();
        let own = || found.then(|| service.clone());
        Ok(Self {
            attempt,
            shares,
            tasks,
            min_available: spec.min_available,
            resizable,
            tasks_hold: spec.min_available >= spec.min_task_member.values().sum(),
            meeting: spec.meeting,
            clusters: clusters.join(","),
            host: rendezvous::host(template).or_else(own),
            leader: reach.first(&service),
            reach,
            namespace: namespace.and_then(Value::as_str).unwrap_or_default(),
            whose,
        })
    }

    /// Whether its pods can find those that they have to.
    fn can_meet(&self) -> Result<(), PartsError> {
        let host = || self.host.clone().unwrap_or_else(|| "its pods".to_owned());
        let unknown = match self.meeting {
            _ if self.shares.len() < 2 => None,
            Meeting::Nobody => None,
            Meeting::First => self.shares.first().filter(|_| self.reach.leader.is_none()),
            Meeting::All => {
                let mut shares = self.shares.iter();
                shares.find(|share| !self.reach.hosts.contains_key(&share.cluster))
            }
        };
        unknown.map_or(Ok(()), |share| {
            Err(PartsError::NoAddress(host(), share.cluster.clone()))
        })
    }

    /// Pods that it has at most.
    pub(crate) fn size(&self) -> u64 {
        self.tasks.iter().map(|task| u64::from(task.count)).sum()
    }

    /// Pods of one task in each cluster.
    pub(crate) fn per_cluster(&self, role: &str) -> Vec<u64> {
        let of_role = |share| u64::from(of_role(share, role));
        self.shares.iter().map(of_role).collect()
    }

    /// Pods in each cluster.
    pub(crate) fn replicas(&self) -> Vec<u64> {
        let replicas = |share: &Share| u64::from(share.replicas());
        self.shares.iter().map(replicas).collect()
    }

    /// The rank of the first pod of a task in the cluster at `index`, where `each` of the
    /// clusters has so many ranks of it.
    pub(crate) fn rank_offset(&self, role: &str, each: &[u64], index: usize) -> u64 {
        let before = self.tasks.iter().take_while(|task| task.role != role);
        let before: u64 = before.map(|task| u64::from(task.count)).sum();
        if self.resizable {
            let task = self.tasks.iter().find(|task| task.role == role);
            let all = task.map_or(0, |task| u64::from(task.count));
            return before * self.shares.len() as u64 + all * index as u64;
        }
        before + each[..index].iter().sum::<u64>()
    }

    /// What every container of the cluster at `index` receives.
    pub(crate) fn environment(&self, index: usize, rank_offset: u64) -> Environment {
        let mut environment = vec![
            ("MUSTER_ATTEMPT", json!(self.attempt.0.to_string())),
            ("MUSTER_CLUSTER", json!(self.shares[index].cluster)),
            ("MUSTER_CLUSTERS", json!(self.clusters)),
            ("MUSTER_GANG_SIZE", json!(self.size().to_string())),
            ("MUSTER_RANK_OFFSET", json!(rank_offset.to_string())),
        ];
        if let Some(leader) = self.leader(index) {
            environment.push(("MUSTER_LEADER_ADDRESS", json!(leader)));
        }
        environment
    }

    /// Where pods of the cluster at `index` reach the one of rank 0.
    pub(crate) fn leader(&self, index: usize) -> Option<&str> {
        let first = self.tasks.first()?;
        let leading = rendezvous::leading(self.shares, &first.role)?;
        if leading.cluster == self.shares[index].cluster {
            self.host.as_deref()
        } else {
            self.leader.as_deref()
        }
    }

    /// Where pods of the cluster at `index` reach the pod with this index of a role in `share`, which
    /// has the name `host` there.
    pub(crate) fn address(
        &self,
        index: usize,
        share: &Share,
        role: &str,
        pod: u32,
        host: String,
    ) -> String {
        let cluster = &share.cluster;
        let address = match *cluster == self.shares[index].cluster {
            true => Some(format!("{host}.{}.svc", self.namespace)),
            false => {
                let service = self.whose.service(cluster, role, pod);
                self.reach.of(cluster, &host, &service)
            }
        };
        address.unwrap_or(host)
    }

    /// Has the pods of the cluster at `index` labelled with their part, where Services select by
    /// that.
    pub(crate) fn label(&self, index: usize, pods: &mut Map<String, Value>) {
        if let Some(part) = self.part_label(index) {
            metadata::write(pods, MetadataField::Labels, services::PART_LABEL, &part);
        }
    }

    /// The part that pods of the cluster at `index` are labelled with.
    pub(crate) fn part_label(&self, index: usize) -> Option<String> {
        let needed = services::needs_services(self.shares.len(), self.reach);
        needed.then(|| self.whose.part_label(&self.shares[index].cluster))
    }
}

/// The name that the Service of the pod of rank 0 has, or would have.
fn first_service(whose: &Whose<'_>, tasks: &[RolePods], shares: &[Share]) -> Option<String> {
    let first = &tasks.first()?.role;
    let leading = rendezvous::leading(shares, first)?;
    Some(whose.service(&leading.cluster, first, 0))
}

fn of_role(share: &Share, role: &str) -> u32 {
    let pods = share.pods.iter().filter(|pods| pods.role == role);
    pods.map(|pods| pods.count).sum()
}

/// Where pods have containers that may be given an environment.
pub(crate) const CONTAINERS: [&str; 2] = ["initContainers", "containers"];

/// Gives every container of a pod template the `environment`.
pub(crate) fn tell(pods: &mut Map<String, Value>, environment: &Environment) {
    let Some(spec) = pods.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for list in CONTAINERS {
        if let Some(containers) = spec.get_mut(list) {
            tell_each(containers, environment);
        }
    }
}

/// Before the container's own variables, so that those may refer to these; one that it sets
/// itself stays its own.
pub(crate) fn tell_each(containers: &mut Value, environment: &Environment) {
    let objects = containers.as_array_mut().into_iter().flatten();
    for container in objects.filter_map(Value::as_object_mut) {
        let own = container.get("env").and_then(Value::as_array);
        let own = own.cloned().unwrap_or_default();
        let is_own = |name: &str| own.iter().any(|variable| variable["name"] == name);
        let ours = environment.iter().filter(|(name, _)| !is_own(name));
        let ours = ours.map(|(name, value)| match value {
            Value::Object(_) => json!({"name": name, "valueFrom": value}),
            _ => json!({"name": name, "value": value}),
        });
        let all: Vec<Value> = ours.chain(own.iter().cloned()).collect();
        container.insert("env".to_owned(), Value::Array(all));
    }
}

#[cfg(test)]
pub(crate) mod tests;
