//! Submits, admits, ends and deletes the benchmark's jobs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;

use super::plane::BenchPlane;
use crate::harness::jobs::{self, TestGang};
use crate::harness::kinds::{BATCH_JOB, NAMESPACE, POD, PROPAGATION_POLICY, QUEUE};
use crate::harness::wait::eventually;

/// The number of concurrent requests, the same as Muster's.
pub(super) const IN_FLIGHT: usize = 16;

/// Jobs of one GPU each in one namespace, with its queue.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    /// The name of the namespace and of the queue.
    pub(super) name: String,
}

/// The pod of a job in a member.
#[derive(Debug, Clone)]
pub(super) struct MemberPod {
    pub(super) member: String,
    pub(super) name: String,
}

impl Batch {
    /// Creates a managed namespace, and a queue that has no quota yet.
    pub(super) async fn managed(plane: &BenchPlane, name: &str) -> anyhow::Result<Self> {
        plane.karmada.create(QUEUE, &jobs::queue(name, 0)).await?;
        let labels = json!({"muster.io/managed": "true"});
        let object = json!({"metadata": {"name": name, "labels": labels}});
        plane.karmada.create(NAMESPACE, &object).await?;
        eventually(
            Duration::from_secs(60),
            "Muster's policy in a managed namespace",
            async || match plane
                .karmada
                .get(PROPAGATION_POLICY, Some(name), "muster")
                .await
            {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err("none".to_owned()),
                Err(error) => Err(error.to_string()),
            },
        )
        .await?;
        Ok(Self {
            name: name.to_owned(),
        })
    }

    /// Creates a namespace whose policy leaves placement to Karmada's scheduler, one cluster for
    /// each job.
    pub(super) async fn of_karmada(plane: &BenchPlane, name: &str) -> anyhow::Result<Self> {
        plane
            .karmada
            .create(NAMESPACE, &json!({"metadata": {"name": name}}))
            .await?;
        let policy = json!({
            "metadata": {"name": "karmada", "namespace": name},
            "spec": {
                "propagateDeps": true,
                "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
                "placement": {"replicaScheduling": {
                    "replicaSchedulingType": "Divided",
                    "replicaDivisionPreference": "Aggregated",
                }},
            },
        });
        plane.karmada.create(PROPAGATION_POLICY, &policy).await?;
        Ok(Self {
            name: name.to_owned(),
        })
    }

    /// Submits the jobs with these numbers, and returns the time it took.
    pub(super) async fn submit(
        &self,
        plane: &BenchPlane,
        numbers: Range<usize>,
    ) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let submissions = numbers.map(|number| async move {
            let created = plane.karmada.create(BATCH_JOB, &self.job(number)).await;
            created.map(drop)
        });
        let submitted = stream::iter(submissions)
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<()>();
        submitted.await.context("submit a job")?;
        Ok(start.elapsed())
    }

    /// Sets the quota of the queue, in GPUs.
    pub(super) async fn capability(&self, plane: &BenchPlane, gpus: usize) -> anyhow::Result<()> {
        let patch = json!({"spec": {"capability": {"nvidia.com/gpu": gpus}}});
        plane.karmada.merge(QUEUE, None, &self.name, &patch).await?;
        Ok(())
    }

    /// Returns the running pods in the members, by job.
    #[expect(clippy::disallowed_methods, reason = "lists a testbed, which is small")]
    pub(super) async fn pods(
        &self,
        plane: &BenchPlane,
    ) -> anyhow::Result<BTreeMap<String, MemberPod>> {
        let mut pods = BTreeMap::new();
        for member in plane.testbed.members() {
            let api = Api::<DynamicObject>::namespaced_with(
                member.client().await?,
                &self.name,
                &POD.resource(),
            );
            let listed = api
                .list(&ListParams::default())
                .await
                .context("list pods of a member")?;
            for pod in listed {
                let job = pod
                    .metadata
                    .labels
                    .as_ref()
                    .and_then(|labels| labels.get("batch.kubernetes.io/job-name"));
                if let (Some(job), Some(name), "Running") = (job, &pod.metadata.name, phase(&pod)) {
                    pods.insert(
                        job.clone(),
                        MemberPod {
                            member: member.name.clone(),
                            name: name.clone(),
                        },
                    );
                }
            }
        }
        Ok(pods)
    }

    /// Ends a job with success, as its kubelet would report it.
    pub(super) async fn finish(&self, plane: &BenchPlane, pod: &MemberPod) -> anyhow::Result<()> {
        let client = plane.testbed.cluster(&pod.member)?.client().await?;
        let api = Api::<DynamicObject>::namespaced_with(client, &self.name, &POD.resource());
        let patch = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        api.patch_status(&pod.name, &PatchParams::default(), &patch)
            .await
            .context("end a pod")?;
        Ok(())
    }

    fn job(&self, number: usize) -> serde_json::Value {
        let gang = TestGang {
            namespace: self.name.clone(),
            name: format!("j{number:05}"),
            queue: Some(self.name.clone()),
            pods: 1,
            gpus: 1,
            product: None,
            run_for: None,
            fail: false,
            priority_class: None,
        };
        gang.batch()
    }
}

/// Returns the name of a job's binding.
pub(super) fn binding_name(job: &str) -> String {
    format!("{job}-job")
}

fn phase(pod: &DynamicObject) -> &str {
    pod.data["status"]["phase"].as_str().unwrap_or_default()
}
