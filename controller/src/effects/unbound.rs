//! What the scheduler of a member says of the pods of a job that it has not bound.
//!
//! Members are watched for bound pods only, since they may have very many others. So these are read when a job waits
//! for too long, one page of its namespace. Where there are none, Volcano may not have let the job's PodGroup in
//! ([`waiting_groups`]), or the member may refuse them ([`failed_creates`]).

use crate::effects::{Effects, failed_creates, waiting_groups};
use crate::messages::input::Input;
use crate::messages::job_answer::JobAnswer;
use crate::messages::unbound_pods::UnboundPods;
use crds::kubernetes::Pod;
use engine::{Attempt, ClusterName, JobKey};
use kube::api::{Api, ListParams};
use runtime::client::{CallError, with_deadline};
use std::time::Duration;

/// Deadline of the read.
const LIMIT: Duration = Duration::from_secs(10);
/// The pods that are read at most.
const PAGE: u32 = 500;

impl Effects {
    /// Asks a member what its scheduler says of the pods of a job.
    pub(super) fn ask_scheduler(&self, key: JobKey, attempt: Attempt, cluster: ClusterName) {
        let Some(client) = self.members.client(&cluster) else {
            return; // asked again
        };
        let (inputs, checks) = (self.inputs.clone(), self.checks.clone());
        runtime::task::spawn(async move {
            // The semaphore is never closed.
            let _slot = checks.acquire().await;
            match unbound_pods(client.clone(), &key).await {
                Ok(mut pods) => {
                    if pods == UnboundPods::Absent {
                        pods = why_absent(&client, &key).await;
                    }
                    let answer = JobAnswer::SchedulerSaid {
                        attempt,
                        cluster,
                        pods,
                    };
                    // The core ends only with the process.
                    let _ = inputs.send(Input::Answer(key, answer)).await;
                }
                Err(error) => {
                    tracing::debug!(job = %key, %cluster, %error, "cannot read its unbound pods")
                }
            }
        });
    }
}

/// Returns why a job has no pods in a member, as far as the member says so.
async fn why_absent(client: &kube::Client, key: &JobKey) -> UnboundPods {
    if let Some(said) = waiting_groups::what_keeps(client, key).await {
        return UnboundPods::Waits(said);
    }
    let said = failed_creates::why_not_made(client, key).await;
    said.map_or(UnboundPods::Absent, UnboundPods::NotMade)
}

#[expect(clippy::disallowed_methods, reason = "of one page")]
async fn unbound_pods(client: kube::Client, key: &JobKey) -> Result<UnboundPods, CallError> {
    let pods: Api<Pod> = Api::namespaced(client, &key.namespace);
    let params = ListParams::default().fields("spec.nodeName=").limit(PAGE);
    let listed = with_deadline(pods.list(&params), LIMIT).await?;
    let is_own = |pod: &&Pod| members::likely_job(&pod.metadata).as_ref() == Some(key);
    Ok(told(listed.items.iter().filter(is_own)))
}

fn told<'a>(pods: impl Iterator<Item = &'a Pod>) -> UnboundPods {
    let mut told = UnboundPods::Absent;
    for pod in pods {
        told = match (told, pod.unbound()) {
            (UnboundPods::Said(first), Some(said)) => UnboundPods::Said(first.min(said)),
            (_, Some(said)) => UnboundPods::Said(said),
            (UnboundPods::Absent, None) => UnboundPods::Silent(of_silent(pod)),
            (told, None) => told,
        };
    }
    told
}

/// Returns what keeps a pod of which no scheduler says anything, as far as its spec tells.
fn of_silent(pod: &Pod) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let gates = pod.spec.scheduling_gates.iter();
    let gates: Vec<&str> = gates.map(|gate| gate.name.as_str()).collect();
    if !gates.is_empty() {
        let gates = gates.join(", ");
        return format!("pod {name} has spec.schedulingGates: {gates}");
    }
    let scheduler = pod.spec.scheduler_name.as_deref();
    let scheduler = scheduler.unwrap_or("default-scheduler");
    format!("scheduler {scheduler} of pod {name} has said nothing of it; it may not run there")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    fn pod(name: &str, reason: &str) -> Pod {
        let conditions = json!([{
            "type": "PodScheduled", "status": "False", "reason": reason, "message": "no node fits",
        }]);
        serde_json::from_value(json!({
            "metadata": {"name": name}, "spec": {},
            "status": {"phase": "Pending", "conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn the_first_pod_of_which_a_scheduler_says_something_is_named() {
        let gated = || pod("a", "SchedulingGated");
        let [b, c] = ["b", "c"].map(|name| pod(name, "Unschedulable"));
        assert_eq!(told([].iter()), UnboundPods::Absent);
        let silent = |spec: serde_json::Value| {
            let mut pod = gated();
            pod.spec = serde_json::from_value(spec).unwrap();
            told([pod, gated()].iter())
        };
        let by_gates = UnboundPods::Silent("pod a has spec.schedulingGates: x, y".to_owned());
        let gates = json!({"schedulingGates": [{"name": "x"}, {"name": "y"}]});
        assert_eq!(silent(gates), by_gates);
        let said = "scheduler nope of pod a has said nothing of it; it may not run there";
        let by_scheduler = UnboundPods::Silent(said.to_owned());
        assert_eq!(silent(json!({"schedulerName": "nope"})), by_scheduler);
        let UnboundPods::Said(said) = told([gated(), c, b, gated()].iter()) else {
            panic!("nothing is said");
        };
        assert_eq!(said.message, "pod b: no node fits");
    }
}
