//! Chooses pods of a job, and a container of one.

use super::{FoundPods, JobPod};
use crate::args::PodChoice;
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// The annotation that names the container that commands use unless they name one, as for kubectl.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

impl PodChoice {
    /// Returns true if it names pods.
    pub(crate) fn is_some(&self) -> bool {
        self.rank.is_some() || self.task.is_some() || self.pod.is_some()
    }

    /// Returns true for a pod that it chooses. A choice of nothing chooses all.
    pub(crate) fn takes(&self, pod: &JobPod) -> bool {
        let is_task = |task: &String| {
            let own = pod.task.as_str();
            own == task || own.strip_prefix("ray-") == Some(task)
        };
        let is_pod = |name: &String| match name.split_once('/') {
            Some((cluster, name)) => pod.cluster == cluster && pod.name() == name,
            None => pod.name() == *name,
        };
        self.rank.is_none_or(|rank| pod.rank == rank)
            && self.task.as_ref().is_none_or(is_task)
            && self.pod.as_ref().is_none_or(is_pod)
    }

    /// Returns the pods that it chooses, by rank.
    ///
    /// # Errors
    /// Fails if there are pods and it chooses none of them.
    pub(crate) fn of<'a>(&self, found: &'a FoundPods) -> Result<Vec<&'a JobPod>> {
        let chosen: Vec<&JobPod> = found.pods.iter().filter(|pod| self.takes(pod)).collect();
        if chosen.is_empty() && self.is_some() && !found.pods.is_empty() {
            bail!("{}", self.none_of(found));
        }
        Ok(chosen)
    }

    /// Returns the one pod to run a command in or to connect to: of several, the one of the lowest rank that runs.
    ///
    /// # Errors
    /// Fails if there is none.
    #[allow(dead_code, reason = "for the commands about one pod")]
    pub(crate) fn one<'a>(&self, found: &'a FoundPods) -> Result<&'a JobPod> {
        let chosen = self.of(found)?;
        let runs = chosen.iter().find(|pod| phase(&pod.pod) == "Running");
        match runs.or_else(|| chosen.first()) {
            Some(pod) => Ok(pod),
            None => bail!("{}", found.no_pods()),
        }
    }

    fn none_of(&self, found: &FoundPods) -> String {
        let listed = |mut all: Vec<String>| {
            all.dedup();
            all.join(", ")
        };
        let pods = found.pods.iter();
        let name = found.job.reference();
        if let Some(rank) = self.rank {
            let ranks = listed(pods.map(|pod| pod.rank.to_string()).collect());
            return format!("--rank {rank}: {name} has no pod of this rank; it has {ranks}");
        }
        if let Some(task) = &self.task {
            let mut tasks: Vec<String> = pods.map(|pod| pod.task.clone()).collect();
            tasks.sort();
            return format!(
                "--task {task}: {name} has no pod of this task; it has {}",
                listed(tasks)
            );
        }
        let pod = self.pod.as_deref().unwrap_or_default();
        let names = listed(
            pods.map(|pod| format!("{}/{}", pod.cluster, pod.name()))
                .collect(),
        );
        format!("--pod {pod}: {name} has no such pod; it has {names}")
    }
}

/// Returns the names of a pod's containers: those that prepare it, and then those of its work.
pub(crate) fn containers(pod: &Pod) -> Vec<&str> {
    let spec = pod.spec.iter();
    let inits = spec
        .clone()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let all = inits.chain(spec.flat_map(|spec| &spec.containers));
    all.map(|container| container.name.as_str()).collect()
}

/// Returns the container that is meant: that of `-c`, else the pod's default one, else its first.
///
/// # Errors
/// Fails if the pod has no container of this name.
pub(crate) fn container(named: Option<&str>, pod: &Pod) -> Result<String> {
    let all = containers(pod);
    if let Some(named) = named {
        return match all.contains(&named) {
            true => Ok(named.to_owned()),
            false => bail!(
                "-c {named}: pod {} has no such container; it has {}",
                pod.name_any(),
                all.join(", ")
            ),
        };
    }
    let default = pod.annotations().get(DEFAULT_CONTAINER);
    let default = default.filter(|name| all.contains(&name.as_str()));
    let mut first = pod.spec.iter().flat_map(|spec| &spec.containers);
    let first = || first.next().map(|container| container.name.clone());
    Ok(default.cloned().or_else(first).unwrap_or_default())
}

pub(crate) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}
