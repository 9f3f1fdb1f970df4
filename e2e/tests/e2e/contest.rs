//! Queues of one test that contend for its nodes, the fate of evicted jobs, and ways to hold such a
//! moment open without pausing a component, so that other stories continue.

use anyhow::ensure;
use e2e::harness::jobs::{self, TestGang};
use e2e::harness::kinds::{CAPACITY_POLICY, PRIORITY_CLASS, PROPAGATION_POLICY, QUEUE, WORK};
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};
use std::time::Duration;

use crate::case::{Case, SOON};
use crate::job::{Job, clusters, condition, is_gated, record};

/// Reasons of a pending job that is short of quota or capacity.
pub(crate) const SHORT: [&str; 5] = [
    "WaitingForQuota",
    "WaitingForRoom",
    "NextInLine",
    "ReservedForAnother",
    "BehindHead",
];

/// The finalizer by which a test keeps an object that is being deleted.
const HELD: &str = "e2e.muster.io/held";
/// The time for which a test watches that nothing changes while a moment is held open.
pub(crate) const HELD_FOR: Duration = Duration::from_secs(3);

/// Works that remain after their deletion, as in a slow member, until the test removes its
/// finalizer.
pub(crate) struct HeldWorks(Vec<(String, String)>);

impl Case {
    /// Adds a finalizer to the existing Works of these jobs. They are unchanged until they are
    /// deleted.
    pub(crate) async fn hold_works<'a>(
        &self,
        jobs: impl IntoIterator<Item = &'a Job>,
    ) -> anyhow::Result<HeldWorks> {
        let mut held = Vec::new();
        for job in jobs {
            let binding = self.binding(job).await.map_err(anyhow::Error::msg)?;
            let key = "resourcebinding.karmada.io/permanent-id";
            let id = binding.unwrap_or_default()["metadata"]["labels"][key].clone();
            let own = format!("{key}={}", id.as_str().unwrap_or_default());
            let works = self.karmada().select(WORK, None, &own).await?;
            ensure!(!works.is_empty(), "{} has no Works", job.name);
            held.extend(works.iter().map(|work| {
                let text = |field: &str| work["metadata"][field].as_str().unwrap_or_default();
                (text("namespace").to_owned(), text("name").to_owned())
            }));
        }
        for work in &held {
            self.keep_work(work, true).await?;
        }
        Ok(HeldWorks(held))
    }

    /// Removes the finalizer from the Works.
    pub(crate) async fn lift(&self, held: &HeldWorks) -> anyhow::Result<()> {
        for work in &held.0 {
            self.keep_work(work, false).await?;
        }
        Ok(())
    }

    /// Adds the finalizer to a Work, or removes it. Karmada writes Works too, so it retries on
    /// conflicts.
    async fn keep_work(
        &self,
        (namespace, name): &(String, String),
        keep: bool,
    ) -> anyhow::Result<()> {
        let namespace = Some(namespace.as_str());
        eventually(SOON, &format!("Work {name} kept: {keep}"), async || {
            let found = self.karmada().get(WORK, namespace, name).await;
            let Some(work) = found.map_err(|error| error.to_string())? else {
                return Ok(());
            };
            let finalizers = work["metadata"]["finalizers"].as_array();
            let mut finalizers = finalizers.cloned().unwrap_or_default();
            finalizers.retain(|finalizer| finalizer != HELD);
            finalizers.extend(keep.then(|| json!(HELD)));
            let patch = json!({"metadata": {
                "finalizers": finalizers,
                "resourceVersion": work["metadata"]["resourceVersion"],
            }});
            let patched = self.karmada().merge(WORK, namespace, name, &patch).await;
            patched.map(drop).map_err(|error| error.to_string())
        })
        .await
    }

    /// Waits until `victims`, whose Works are held, are being evicted while `preemptor` waits. Then
    /// it calls [`Case::midway`], and checks that nothing changed: a job with Works is charged, and
    /// no other job gets its quota or nodes.
    pub(crate) async fn amid_evict(
        &self,
        preemptor: Option<&Job>,
        victims: &[&Job],
    ) -> anyhow::Result<()> {
        if let Some(preemptor) = preemptor {
            let said = |group: &Value| group["status"]["federation"]["reason"].is_string();
            self.pod_group_when(preemptor, "says what it waits for", said)
                .await?;
        }
        for victim in victims {
            self.binding_when(victim, "being evicted", is_ending)
                .await?;
        }
        self.midway().await?;
        never_within(HELD_FOR, "an end of the eviction", async || {
            for victim in victims {
                let binding = self.binding(victim).await?.unwrap_or_default();
                if !is_ending(&binding) {
                    return Err(format!("{}: {}", victim.name, record(&binding)));
                }
            }
            let preemptor = match preemptor {
                Some(preemptor) => self.binding(preemptor).await?.unwrap_or_default(),
                None => return Ok(()),
            };
            match is_gated(&preemptor) && clusters(&preemptor).is_empty() {
                true => Ok(()),
                false => Err(format!("the preemptor is placed: {}", record(&preemptor))),
            }
        })
        .await
    }

    /// Deletes a job. While its Works are held this calls [`Case::midway`], and checks that the
    /// binding, and with it the charge, remains until they are gone.
    pub(crate) async fn amid_deletion(&self, job: &Job) -> anyhow::Result<()> {
        let held = self.hold_works([job]).await?;
        self.delete(job).await?;
        let deleted = |binding: &Value| binding["metadata"]["deletionTimestamp"].is_string();
        self.binding_when(job, "being deleted", deleted).await?;
        self.midway().await?;
        never_within(HELD_FOR, "an end of the deletion", async || {
            match self.binding(job).await? {
                Some(binding) if deleted(&binding) => Ok(()),
                other => Err(format!("its Works are there, its binding is {other:?}")),
            }
        })
        .await?;
        self.lift(&held).await?;
        self.gone(job).await
    }

    /// Suspends or resumes the dispatch of a job by the test's policy that selects it. Members keep
    /// what they have, and running pods continue.
    pub(crate) async fn hold_dispatch(
        &self,
        policy: &str,
        job: &Job,
        hold: bool,
    ) -> anyhow::Result<()> {
        let suspension = match hold {
            true => json!({"dispatching": true}),
            false => Value::Null,
        };
        let patch = json!({"spec": {"suspension": suspension}});
        let namespace = Some(self.name.as_str());
        self.karmada()
            .merge(PROPAGATION_POLICY, namespace, policy, &patch)
            .await?;
        let held = |binding: &Value| {
            let suspended = &binding["spec"]["suspension"]["dispatching"];
            suspended.as_bool().unwrap_or_default() == hold
        };
        let what = format!("dispatching held: {hold}");
        self.binding_when(job, &what, held).await?;
        // What Karmada dispatches follows the Works, which are rendered again for the binding.
        let (binding, namespace) = (job.binding(), self.name.as_str());
        let of_job = |work: &&Value| {
            let annotations = &work["metadata"]["annotations"];
            annotations["resourcebinding.karmada.io/name"] == binding.as_str()
                && annotations["resourcebinding.karmada.io/namespace"] == namespace
        };
        eventually(
            SOON,
            &format!("{} Works held: {hold}", job.name),
            async || {
                let works = self.karmada().list(WORK, None).await;
                let works = works.map_err(|error| error.to_string())?;
                let other = |work: &&Value| {
                    let suspended = &work["spec"]["suspendDispatching"];
                    suspended.as_bool().unwrap_or_default() != hold
                };
                match works.iter().filter(of_job).filter(other).count() {
                    0 => Ok(()),
                    others => Err(format!("{others} are not yet")),
                }
            },
        )
        .await
    }

    /// Creates a queue `<test>-<word>`, and returns its name.
    pub(crate) async fn queue_of(&self, word: &str, spec: Value) -> anyhow::Result<String> {
        let name = format!("{}-{word}", self.name);
        let queue = json!({"metadata": {"name": name}, "spec": spec});
        self.cluster_object(QUEUE, &queue).await?;
        Ok(name)
    }

    /// Creates this test's own queue, which can have children.
    pub(crate) async fn parent_queue(&self, spec: Value) -> anyhow::Result<()> {
        let queue = json!({"metadata": {"name": self.name}, "spec": spec});
        self.cluster_object(QUEUE, &queue).await
    }

    /// Patches a queue.
    pub(crate) async fn change_queue(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let patch = json!({"spec": spec});
        self.karmada().merge(QUEUE, None, name, &patch).await?;
        Ok(())
    }

    /// Patches this test's CapacityPolicy, as [`Self::capacity_policy_of`].
    pub(crate) async fn capacity_policy(&self, patch: Value) -> anyhow::Result<()> {
        self.capacity_policy_of(&self.name, patch).await
    }

    /// Patches the CapacityPolicy of a queue, which Muster creates for it, and waits until Muster has seen the
    /// change: a job that is submitted next could be decided before.
    pub(crate) async fn capacity_policy_of(&self, queue: &str, patch: Value) -> anyhow::Result<()> {
        let policies = self.karmada();
        let what = format!("CapacityPolicy {queue}");
        let patched = eventually(SOON, &what, async || {
            let patched = policies.merge(CAPACITY_POLICY, None, queue, &patch).await;
            patched.map_err(|error| error.to_string())
        })
        .await?;
        let generation = patched["metadata"]["generation"].as_u64();
        let what = format!("CapacityPolicy {queue} is observed");
        eventually(SOON, &what, async || {
            let policy = policies.get(CAPACITY_POLICY, None, queue).await;
            let policy = policy.map_err(|error| error.to_string())?;
            let seen = policy.unwrap_or_default()["status"]["observedGeneration"].as_u64();
            let is_seen = seen >= generation;
            is_seen
                .then_some(())
                .ok_or_else(|| format!("{seen:?} of {generation:?}"))
        })
        .await
    }

    /// Creates a PriorityClass `<test>-<word>` whose jobs may preempt those of lower priority.
    pub(crate) async fn preempting_class(&self, word: &str, value: i32) -> anyhow::Result<String> {
        let name = format!("{}-{word}", self.name);
        let mut class = jobs::priority_class(&name, value);
        class["preemptionPolicy"] = json!("PreemptLowerPriority");
        self.cluster_object(PRIORITY_CLASS, &class).await?;
        Ok(name)
    }

    /// Returns a job in one of this test's queues: `pods` pods with `gpus` GPUs each that never
    /// end.
    pub(crate) fn gang_in(&self, queue: &str, name: &str, pods: u32, gpus: u32) -> TestGang {
        TestGang {
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

    /// Waits until a job that ran was evicted for `reason`, all of its pods are gone and it is
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
        for member in self.members() {
            let left = self.pods(member).await?;
            let left = left.iter().filter(|pod| job.owns(pod)).count();
            assert_eq!(left, 0, "pods of {} are left in {member}", job.name);
        }
        Ok(())
    }

    /// Returns the number of the job's placements.
    pub(crate) fn placements(&self, job: &Job) -> anyhow::Result<u32> {
        Ok(self.placements_of([job])?[0])
    }

    /// Returns the number of placements of each job, from one reading of the audit log.
    pub(crate) fn placements_of<'a>(
        &self,
        jobs: impl IntoIterator<Item = &'a Job> + Clone,
    ) -> anyhow::Result<Vec<u32>> {
        let report = self.subject(jobs.clone())?.read(self.plane.audit_log()?)?;
        let times = jobs.into_iter().map(|job| {
            let name = format!("{}/{}", job.namespace, job.binding());
            report.placements.get(&name).copied().unwrap_or(0)
        });
        Ok(times.collect())
    }

    /// Returns those of `jobs` that are admitted.
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

    /// Waits until exactly `count` of `jobs` are admitted, and checks that it stays so for `time`.
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

    /// Waits until a field of a queue's status shows this many GPUs.
    pub(crate) async fn shows_gpus(
        &self,
        queue: &str,
        field: &str,
        gpus: u32,
    ) -> anyhow::Result<()> {
        self.shows(queue, field, "nvidia.com/gpu", gpus).await
    }

    /// Waits until a field of a queue's status shows this many units of a resource.
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
            // A missing amount is zero.
            let text = shown.as_ref().and_then(Value::as_str).unwrap_or("0");
            match text == units.to_string() {
                true => Ok(()),
                false => Err(status["resources"].to_string()),
            }
        })
        .await
    }
}

/// Returns true if a job is being evicted: gated, and charged until its Works are gone.
pub(crate) fn is_ending(binding: &Value) -> bool {
    is_gated(binding) && clusters(binding).is_empty() && record(binding)["state"] == "Ending"
}

/// Returns the number of pods that a job is charged for, by its record.
pub(crate) fn granted(binding: &Value) -> u64 {
    let record = record(binding);
    let parts = record["clusters"].as_array().into_iter().flatten();
    let pods = parts.flat_map(|part| part["pods"].as_array().into_iter().flatten());
    pods.filter_map(|pods| pods["count"].as_u64()).sum()
}
