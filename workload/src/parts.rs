//! The parts of a gang over several clusters: the fields that Karmada has to replace in its template for
//! each cluster, so that each runs its share and every pod knows its place.
//!
//! ```text
//! template + admitted shares ──► Part per cluster: whole subtrees, a mark to know it by
//! ```
//!
//! Whole subtrees replace single indexes, so that they cannot be misapplied to a template that was
//! reordered meanwhile. The subtrees come from the admitted template: later edits reach no member.
//!
//! Pods of two parts have the same names and indexes, so a pod's rank in the whole gang is
//! `MUSTER_RANK_OFFSET` plus its index in its own task (`VC_TASK_INDEX`, `JOB_COMPLETION_INDEX`;
//! `MUSTER_REPLICA_INDEX` in a JobSet). Ranks count through the tasks in the template's order, and through
//! the clusters within each task, so that the whole gang has each rank from 0 once. In an elastic gang each
//! task reserves ranks for all of its pods in each cluster, so that ranks stay fixed when parts are
//! resized; some ranks are then unused. `MUSTER_LEADER_ADDRESS` is the address of the pod of rank 0
//! ([`crate::rendezvous`]).

pub(crate) mod metadata;
mod resize;

use crate::kinds::{self, WorkloadKind};
use crate::rendezvous::{Meeting, Reach};
use crate::services::Whose;
use crate::spec::read_spec;
use crate::{rendezvous, services};
use facts::{Attempt, ClusterName, RolePods, Share};
use metadata::MetadataField;
pub use resize::resized;
pub(crate) use resize::{PartResizing, resizing};
use serde_json::{Map, Value, json};

/// The part of one cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedPart {
    /// The cluster.
    pub cluster: ClusterName,
    /// Identifies the attempt and the shares of the part ([`mark`]).
    pub mark: String,
    /// Paths (JSON pointers) and the values to set; null removes the field.
    pub fields: Vec<(String, Value)>,
}

/// Why a gang cannot be split.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartsError {
    /// Its kind cannot be split.
    #[error("a {0} cannot be placed in parts")]
    Kind(String),
    /// The template has changed since it was admitted.
    #[error(
        "its template changed since it was planned: {role} has {now} pods, {planned} were planned"
    )]
    Changed {
        /// The task.
        role: String,
        /// The planned number of pods.
        planned: u32,
        /// The number of pods in the template now.
        now: u32,
    },
    /// Pods in other clusters would look for a pod that they cannot find.
    #[error("no address is known at which its other pods could reach {0} on {1}")]
    NoAddress(String, ClusterName),
    /// The template can no longer be read.
    #[error("its template changed since it was planned: {0}")]
    Unreadable(String),
}

/// Returns the mark of a part: the same for the same attempt and shares, unique otherwise.
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

/// Returns the mark of a job that an override changes and does not split.
#[must_use]
pub fn whole_mark(attempt: Attempt) -> String {
    format!("attempt {}, whole", attempt.0)
}

/// Returns the attempt of a [`mark`] or a [`whole_mark`]; `None` if it is none.
#[must_use]
pub fn attempt_of(mark: &str) -> Option<Attempt> {
    let (attempt, _) = mark.strip_prefix("attempt ")?.split_once(',')?;
    attempt.parse().ok().map(Attempt)
}

/// Returns true if objects of `api` (`batch/v1/Job`) can be split.
#[must_use]
pub fn may_be_in_parts(api: &str) -> bool {
    kinds::of_api(api).is_some_and(|kind| kind.part_fields().is_some())
}

/// Returns true if the operator of objects of `api` may forget the next one of a name for a while.
#[must_use]
pub fn may_be_forgotten(api: &str) -> bool {
    kinds::of_api(api).is_some_and(|kind| kind.may_be_forgotten())
}

/// Returns what each cluster of `shares` gets of `template`, in order. `reach` says how pods of other
/// clusters are reached, if known. Parts that are `resizable` may have fewer pods than the template, and
/// receive nothing that depends on their size.
///
/// # Errors
/// Returns an error if the kind cannot be split, or `template` is not what `shares` were planned for.
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

/// Names of variables with their values: a string, or a `valueFrom` object.
pub(crate) type Environment = Vec<(&'static str, Value)>;

/// The whole gang.
pub(crate) struct Gang<'a> {
    pub(crate) attempt: Attempt,
    pub(crate) shares: &'a [Share],
    /// Its tasks in the template's order, with all of their pods.
    pub(crate) tasks: Vec<RolePods>,
    pub(crate) min_available: u32,
    /// True if its parts may be resized while they run.
    pub(crate) resizable: bool,
    /// True if Volcano enforces the tasks' own minimums, which it does if the job's minimum is at least their
    /// sum (pkg/scheduler/api/job_info.go, `CheckTaskMinAvailable`).
    pub(crate) tasks_hold: bool,
    /// Which pods have to be found from other clusters.
    pub(crate) meeting: Meeting,
    /// Names of all its clusters.
    pub(crate) clusters: String,
    /// How pods of the leading cluster reach the pod of rank 0.
    pub(crate) host: Option<String>,
    /// How pods of the other clusters reach it.
    pub(crate) leader: Option<String>,
    /// How they reach all other pods.
    pub(crate) reach: &'a Reach,
    /// Its namespace.
    pub(crate) namespace: &'a str,
    /// The names of its Services derive from it.
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
            // A resizable role may be admitted with any number; a part that is too large shrinks.
            (planned != task.count && !resizable).then(|| (task.role.clone(), planned, task.count))
        });
        if let Some((role, planned, now)) = gone.or(resized) {
            return Err(PartsError::Changed { role, planned, now });
        }
        let clusters: Vec<&str> = shares.iter().map(|share| share.cluster.as_str()).collect();
        let namespace = template.pointer("/metadata/namespace");
        let whose = Whose::of(template, attempt);
        let service = first_service(&whose, &tasks, shares).unwrap_or_default();
        // The Service of the first pod also exists in its own cluster.
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

    /// Checks that its pods can find the pods that they need.
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

    /// Returns the most pods that it may have.
    pub(crate) fn size(&self) -> u64 {
        self.tasks.iter().map(|task| u64::from(task.count)).sum()
    }

    /// Returns the pods of one task in each cluster.
    pub(crate) fn per_cluster(&self, role: &str) -> Vec<u64> {
        let of_role = |share| u64::from(of_role(share, role));
        self.shares.iter().map(of_role).collect()
    }

    /// Returns the pods in each cluster.
    pub(crate) fn replicas(&self) -> Vec<u64> {
        let replicas = |share: &Share| u64::from(share.replicas());
        self.shares.iter().map(replicas).collect()
    }

    /// Returns the rank of the first pod of a task in the cluster at `index`; `each` has the number of its
    /// ranks in each cluster.
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

    /// Returns what every container of the cluster at `index` receives.
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

    /// Returns how pods of the cluster at `index` reach the pod of rank 0.
    pub(crate) fn leader(&self, index: usize) -> Option<&str> {
        let first = self.tasks.first()?;
        let leading = rendezvous::leading(self.shares, &first.role)?;
        if leading.cluster == self.shares[index].cluster {
            self.host.as_deref()
        } else {
            self.leader.as_deref()
        }
    }

    /// Returns how pods of the cluster at `index` reach the pod with this index of a role in `share`, whose
    /// name there is `host`.
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

    /// Labels the pods of the cluster at `index` with their part, if Services select by it.
    pub(crate) fn label(&self, index: usize, pods: &mut Map<String, Value>) {
        if let Some(part) = self.part_label(index) {
            metadata::write(pods, MetadataField::Labels, services::PART_LABEL, &part);
        }
    }

    /// Returns the part label of the pods of the cluster at `index`.
    pub(crate) fn part_label(&self, index: usize) -> Option<String> {
        let needed = services::needs_services(self.shares.len(), self.reach);
        needed.then(|| self.whose.part_label(&self.shares[index].cluster))
    }
}

/// Returns the name that the Service of the pod of rank 0 has, or would have.
fn first_service(whose: &Whose<'_>, tasks: &[RolePods], shares: &[Share]) -> Option<String> {
    let first = &tasks.first()?.role;
    let leading = rendezvous::leading(shares, first)?;
    Some(whose.service(&leading.cluster, first, 0))
}

fn of_role(share: &Share, role: &str) -> u32 {
    let pods = share.pods.iter().filter(|pods| pods.role == role);
    pods.map(|pods| pods.count).sum()
}

/// The lists of containers that get an environment.
pub(crate) const CONTAINERS: [&str; 2] = ["initContainers", "containers"];

/// Adds the `environment` to every container of a pod template.
pub(crate) fn add_environment(pods: &mut Map<String, Value>, environment: &Environment) {
    let Some(spec) = pods.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for list in CONTAINERS {
        if let Some(containers) = spec.get_mut(list) {
            add_environment_to(containers, environment);
        }
    }
}

/// Inserted before the container's own variables, so that those may refer to these; a variable that the
/// container sets itself stays unchanged.
pub(crate) fn add_environment_to(containers: &mut Value, environment: &Environment) {
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
