//! Queues of one test that contend for its nodes, and what becomes of jobs that are taken back.

use e2e::harness::jobs::{self, Gang};
use e2e::harness::kinds::{CAPACITY_POLICY, PRIORITY_CLASS, QUEUE};
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};
use std::time::Duration;

use crate::case::{Case, SOON};
use crate::job::{Job, clusters, condition, is_gated, record};

/// What a job says that may not start yet because quota or room is short, whoever has it.
pub(crate) const SHORT: [&str; 5] = [
    "WaitingForQuota",
    "WaitingForRoom",
    "Reserved",
    "ReservedForAnother",
    "BehindHead",
];

impl Case {
    /// Makes a queue `<test>-<word>`, and returns its name.
    pub(crate) async fn queue_of(&self, word: &str, spec: Value) -> anyhow::Result<String> {
        let name = format!("{}-{word}", self.name);
        let queue = json!({"metadata": {"name": name}, "spec": spec});
        self.cluster_object(QUEUE, &queue).await?;
        Ok(name)
    }

    /// Makes this test's own queue, which others can be below.
    pub(crate) async fn parent_queue(&self, spec: Value) -> anyhow::Result<()> {
        let queue = json!({"metadata": {"name": self.name}, "spec": spec});
        self.cluster_object(QUEUE, &queue).await
    }

    /// Changes a queue.
    pub(crate) async fn change_queue(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let patch = json!({"spec": spec});
        self.karmada().merge(QUEUE, None, name, &patch).await?;
        Ok(())
    }

    /// Makes a PriorityClass `<test>-<word>` whose jobs may take the place of lower ones.
    pub(crate) async fn preempting_class(&self, word: &str, value: i32) -> anyhow::Result<String> {
        let name = format!("{}-{word}", self.name);
        let mut class = jobs::priority_class(&name, value);
        class["preemptionPolicy"] = json!("PreemptLowerPriority");
        self.cluster_object(PRIORITY_CLASS, &class).await?;
        Ok(name)
    }

    /// A job in one of this test's queues: `pods` pods with `gpus` GPUs each that run for ever.
    pub(crate) fn gang_in(&self, queue: &str, name: &str, pods: u32, gpus: u32) -> Gang {
        Gang {
            queue: Some(queue.to_owned()),
            ..self.gang(name, pods, gpus)
        }
    }

    /// Submits a batch Job in a queue and waits until it runs.
    pub(crate) async fn run_in(
        &self,
        queue: &str,
        name: &str,
        pods: u32,
        gpus: u32,
    ) -> anyhow::Result<Job> {
        let job = self
            .submit(&self.gang_in(queue, name, pods, gpus).batch())
            .await?;
        self.running(&job).await?;
        Ok(job)
    }

    /// Waits until a job that ran was taken back for `reason`, nothing of it is left and it is
    /// queued again.
    pub(crate) async fn requeued(&self, job: &Job, reason: &str) -> anyhow::Result<()> {
        let again = |binding: &Value| {
            let record = record(binding);
            is_gated(binding)
                && clusters(binding).is_empty()
                && record["state"] == "Requeued"
                && record["reason"] == reason
        };
        self.binding_when(job, &format!("queued again as {reason}"), again)
            .await?;
        for member in crate::plane::MEMBERS {
            let left = self.pods(member).await?;
            let left = left.iter().filter(|pod| job.owns(pod)).count();
            assert_eq!(left, 0, "pods of {} are left in {member}", job.name);
        }
        Ok(())
    }

    /// How often the job was placed.
    pub(crate) fn placements(&self, job: &Job) -> anyhow::Result<u32> {
        Ok(self.placements_of([job])?[0])
    }

    /// How often each job was placed, by one reading of the audit log.
    pub(crate) fn placements_of<'a>(
        &self,
        jobs: impl IntoIterator<Item = &'a Job> + Clone,
    ) -> anyhow::Result<Vec<u32>> {
        let report = self.audit(u64::MAX, jobs.clone())?;
        let times = jobs.into_iter().map(|job| {
            let name = format!("{}/{}", job.namespace, job.binding());
            report.placements.get(&name).copied().unwrap_or(0)
        });
        Ok(times.collect())
    }

    /// Of `jobs`, those that are released.
    pub(crate) async fn released<'a>(&self, jobs: &'a [Job]) -> Result<Vec<&'a Job>, String> {
        let mut released = Vec::new();
        for job in jobs {
            let group = self.pod_group(job).await?.unwrap_or_default();
            let over = condition(&group, "Finished")["status"] == "True";
            let binding = self.binding(job).await?.unwrap_or_default();
            if !over && !clusters(&binding).is_empty() {
                released.push(job);
            }
        }
        Ok(released)
    }

    /// Waits until exactly `count` of `jobs` are released, and they stay so for `time`.
    pub(crate) async fn settles(
        &self,
        jobs: &[Job],
        count: usize,
        time: Duration,
    ) -> anyhow::Result<()> {
        let right = async || {
            let released = self.released(jobs).await?;
            let names: Vec<&str> = released.iter().map(|job| job.name.as_str()).collect();
            match names.len() == count {
                true => Ok(()),
                false => Err(format!("{} released: {names:?}", names.len())),
            }
        };
        eventually(SOON, &format!("{count} of {} released", jobs.len()), right).await?;
        never_within(time, "a change of what is released", right).await
    }

    /// Waits until a queue shows this many GPUs in a field of its status.
    pub(crate) async fn shows_gpus(
        &self,
        queue: &str,
        field: &str,
        gpus: u32,
    ) -> anyhow::Result<()> {
        self.shows(queue, field, "nvidia.com/gpu", gpus).await
    }

    /// The same of any resource that is counted in units.
    pub(crate) async fn shows(
        &self,
        queue: &str,
        field: &str,
        name: &str,
        units: u32,
    ) -> anyhow::Result<()> {
        let what = format!("{queue} shows {field} {units} {name}");
        eventually(SOON, &what, async || {
            let policy = self.karmada().get(CAPACITY_POLICY, None, queue).await;
            let policy = policy.map_err(|error| error.to_string())?;
            let status = &policy.unwrap_or_default()["status"];
            let resources = status["resources"].as_array().into_iter().flatten();
            let mut shown = resources.filter(|resource| resource["name"] == name);
            let shown = shown.next().map(|resource| resource[field].clone());
            // What is not stated is none of it.
            let text = shown.as_ref().and_then(Value::as_str).unwrap_or("0");
            match text == units.to_string() {
                true => Ok(()),
                false => Err(status["resources"].to_string()),
            }
        })
        .await
    }
}
