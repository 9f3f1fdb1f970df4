//! The pods of a job in all clusters where it is placed: what `pods`, `logs` and `events` are about.
//!
//! ```text
//! PodGroup on the control plane ──► clusters ──► Karmada's cluster proxy, as the user ──► pods ──► rank, task
//! ```
//!
//! Each member is asked with the user's own rights; Muster's account is never used. A member that does not answer, or
//! refuses is named ([`AwayCluster`]), and the others go on. Which pods are of the job, `members` says: by the
//! names that a pod has, or by its owners where these name no job.

mod choice;
mod rank;
mod refusal;
mod status;
mod table;

pub(crate) use choice::{container, containers, phase};
pub(crate) use refusal::reason;
pub(crate) use table::run;

use crate::args::JobFilter;
use crate::connect;
use crate::jobs::{self, ListedJob};
use anyhow::{Context, Result};
use engine::JobKey;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use members::PodJobs;
use rank::TaskRanks;
use runtime::client::{CallError, with_deadline};
use runtime::kinds::KindCache;
use runtime::pages;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Deadline of asking one member, so that one that does not answer holds up no other.
const MEMBER_LIMIT: Duration = Duration::from_secs(15);

/// A pod of a job.
#[derive(Debug, Clone)]
pub(crate) struct JobPod {
    pub(crate) cluster: String,
    /// Its number in the whole job. A pod and one that has replaced it have the same, if the kind gives indexes.
    pub(crate) rank: u64,
    /// Its role: worker, ray-head, main, ...
    pub(crate) task: String,
    pub(crate) pod: Pod,
}

impl JobPod {
    pub(crate) fn name(&self) -> String {
        self.pod.name_any()
    }

    pub(crate) fn uid(&self) -> String {
        self.pod.uid().unwrap_or_default()
    }

    /// Returns the API of the pods of its namespace in its cluster, with the rights of the user of `client`.
    pub(crate) fn api(&self, client: &Client) -> Result<Api<Pod>> {
        let member = connect::member(&self.cluster, client)?;
        let namespace = self.pod.namespace().unwrap_or_default();
        Ok(Api::namespaced(member, &namespace))
    }
}

/// A cluster of a job that does not show its pods.
#[derive(Debug, Clone)]
pub(crate) struct AwayCluster {
    pub(crate) cluster: String,
    pub(crate) why: String,
}

/// The pods of a job.
#[derive(Debug, Clone)]
pub(crate) struct FoundPods {
    pub(crate) job: ListedJob,
    /// By rank, the oldest of a rank first.
    pub(crate) pods: Vec<JobPod>,
    pub(crate) away: Vec<AwayCluster>,
}

impl FoundPods {
    /// Says on standard error which clusters do not show their pods.
    pub(crate) fn warn(&self) {
        for away in &self.away {
            eprintln!("warning: {}", away.why);
        }
    }

    /// Returns why there are no pods.
    pub(crate) fn no_pods(&self) -> String {
        let job = &self.job;
        if let Some(away) = self.away.first() {
            return format!("no pods of {} are visible: {}", job.reference(), away.why);
        }
        let message = match job.message() {
            "" => String::new(),
            message => format!(": {message}"),
        };
        format!(
            "{} has no pods; it is {}{message}",
            job.reference(),
            job.status()
        )
    }
}

/// A job, and what its pods are known by.
pub(crate) struct JobPlace {
    pub(crate) job: ListedJob,
    key: JobKey,
    /// All jobs of the namespace: names that name one of them are certain.
    known: BTreeSet<JobKey>,
    tasks: Vec<TaskRanks>,
    /// What is known of owners, by cluster.
    owners: BTreeMap<String, PodJobs>,
}

/// Returns the pods of the job of this name: of the workload, KIND/NAME, or of the PodGroup.
///
/// # Errors
/// Fails if there is no such job, or several. Members that cannot be asked are no error.
pub(crate) async fn find(name: &str, client: &Client) -> Result<FoundPods> {
    let mut place = JobPlace::of(name, client).await?;
    Ok(place.look(client).await)
}

impl JobPlace {
    /// Returns the job of this name.
    pub(crate) async fn of(name: &str, client: &Client) -> Result<Self> {
        let listed = jobs::list(&JobFilter::default(), &mut None, client).await?;
        let place = format!("namespace {:?}", client.default_namespace());
        let (mut chosen, errors) = jobs::choose(&listed.jobs, &[name.to_owned()], &place);
        if let Some(error) = errors.into_iter().next() {
            return Err(error);
        }
        let job = chosen.pop().context("no job is named")?.clone();
        let key = |job: &ListedJob| {
            let namespace = job.object.namespace().unwrap_or_default();
            JobKey::new(&namespace, &job.object.name_any())
        };
        let template = template(&job, client).await;
        Ok(Self {
            key: key(&job),
            known: listed.jobs.iter().map(key).collect(),
            tasks: template.as_ref().map(rank::tasks).unwrap_or_default(),
            owners: BTreeMap::new(),
            job,
        })
    }

    /// Reads the job again. Returns false if it is gone.
    pub(crate) async fn refresh(&mut self, client: &Client) -> Result<bool> {
        let api = jobs::pod_groups(false, client);
        let read = with_deadline(api.get_opt(&self.job.object.name_any()), MEMBER_LIMIT).await;
        let Some(object) = read.map_err(|error| anyhow::anyhow!("{}", error.message()))? else {
            return Ok(false);
        };
        self.job = ListedJob::of(object)?;
        Ok(true)
    }

    pub(crate) fn namespace(&self) -> String {
        self.job.object.namespace().unwrap_or_default()
    }

    /// Returns the clusters where the job is, in the order of its parts.
    pub(crate) fn clusters(&self) -> Vec<String> {
        let parts = self
            .job
            .federation()
            .map(|federation| &federation.placement);
        let parts = parts.into_iter().flatten();
        parts.map(|part| part.cluster.clone()).collect()
    }

    /// Returns its pods in the clusters where it is now.
    pub(crate) async fn look(&mut self, client: &Client) -> FoundPods {
        let clusters = self.clusters();
        for cluster in &clusters {
            if let (false, Ok(member)) = (
                self.owners.contains_key(cluster),
                connect::member(cluster, client),
            ) {
                self.owners.insert(cluster.clone(), PodJobs::new(member));
            }
        }
        let asked = join_all(clusters.iter().map(|cluster| self.pods_in(cluster, client))).await;
        let (mut pods, mut away) = (Vec::new(), Vec::new());
        for (index, (cluster, answer)) in clusters.iter().zip(asked).enumerate() {
            match answer {
                Ok(found) => pods.extend(found.into_iter().map(|pod| (index, pod))),
                Err(why) => away.push(AwayCluster {
                    cluster: cluster.clone(),
                    why,
                }),
            }
        }
        FoundPods {
            job: self.job.clone(),
            pods: self.ranked(&clusters, pods),
            away,
        }
    }

    /// Returns pods, each with the index of its cluster, with their ranks, by rank.
    fn ranked(&self, clusters: &[String], pods: Vec<(usize, Pod)>) -> Vec<JobPod> {
        let borrowed: Vec<(usize, &Pod)> = pods.iter().map(|(index, pod)| (*index, pod)).collect();
        let ranks = rank::ranks(&borrowed, &self.tasks);
        let with_rank = pods
            .into_iter()
            .zip(ranks)
            .map(|((index, pod), of)| JobPod {
                cluster: clusters[index].clone(),
                rank: of.rank,
                task: of.task,
                pod,
            });
        let mut all: Vec<JobPod> = with_rank.collect();
        all.sort_by_cached_key(|pod| {
            let created = pod.pod.creation_timestamp().map(|time| time.0);
            (pod.rank, created, pod.name())
        });
        all
    }

    /// Returns the pods of the job in one cluster.
    async fn pods_in(&self, cluster: &str, client: &Client) -> Result<Vec<Pod>, String> {
        let namespace = self.namespace();
        let member = connect::member(cluster, client).map_err(|error| format!("{error:#}"))?;
        let api = Api::<Pod>::namespaced(member, &namespace);
        let params = ListParams::default();
        let listed = pages::list(&api, &params, MEMBER_LIMIT);
        let listed = tokio::time::timeout(MEMBER_LIMIT, listed).await;
        let listed = listed.unwrap_or(Err(CallError::Timeout(MEMBER_LIMIT)));
        let listed = listed.map_err(|error| reason(&error, "list pods", cluster, &namespace))?;
        let mut pods = Vec::new();
        for mut pod in listed.items {
            if !is_stand_in(&pod) && self.is_of(&pod, cluster).await {
                pod.metadata.managed_fields = None;
                pods.push(pod);
            }
        }
        Ok(pods)
    }

    /// Returns true if a pod is of the job.
    pub(crate) async fn is_of(&self, pod: &Pod, cluster: &str) -> bool {
        let Some(owners) = self.owners.get(cluster) else {
            return members::likely_job(&pod.metadata).as_ref() == Some(&self.key);
        };
        let is_known = |job: &JobKey| self.known.contains(job);
        owners.of(&pod.metadata, is_known).await.as_ref() == Some(&self.key)
    }
}

/// Returns true for a pod that stands for one in another cluster.
fn is_stand_in(pod: &Pod) -> bool {
    let gates = pod
        .spec
        .iter()
        .flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates
        .into_iter()
        .any(|gate| workload::is_stand_in(&gate.name))
}

/// Returns the workload, if the user may read it: it says the order of its tasks.
async fn template(job: &ListedJob, client: &Client) -> Option<Value> {
    let owner = job.template()?;
    let kinds = KindCache::new(client.clone());
    let namespace = job.object.namespace()?;
    let api = kinds
        .api(&owner.api_version, &owner.kind, &namespace)
        .await
        .ok()?;
    serde_json::to_value(api.get_opt(&owner.name).await.ok()??).ok()
}
