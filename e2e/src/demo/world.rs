//! The observations so far: of jobs, by their bindings and by the pods in the members; of queues,
//! by the use of their pods. Watches update them; screen and summary read them.
//!
//! They come only from API servers. Muster's admission record is read only for the time of
//! admission; the members report whether pods run, what they use and how jobs end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::end::{self, JobEnd};

const GPU: &str = "nvidia.com/gpu";
const RECORD: &str = "muster.io/admission";

/// A namespace and name. Names have no dash, so that a pod's name determines its job.
pub(super) type JobId = (String, String);

/// A job that is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DemoJob {
    /// The queue that it or its namespace names.
    pub(super) queue: String,
    pub(super) pods: u32,
    pub(super) gpus: u32,
    pub(super) submitted: Timestamp,
    /// The time of the last admission, by its record.
    pub(super) admitted: Option<Timestamp>,
    /// When all its pods had been seen running.
    pub(super) ran: Option<Timestamp>,
    pub(super) ended: Option<(Timestamp, JobEnd)>,
}

/// The stage of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Queued,
    Admitted,
    Running,
    Succeeded,
    Failed,
}

/// All observations.
#[derive(Debug, Default)]
pub(super) struct World {
    jobs: BTreeMap<JobId, DemoJob>,
    /// Pods by cluster, then by `namespace/name`.
    pods: BTreeMap<String, BTreeMap<String, DemoPod>>,
    /// The most GPUs that bound pods used at once: of a queue, and of a queue in one cluster.
    peaks: BTreeMap<(String, Option<String>), u64>,
}

#[derive(Debug, Clone)]
struct DemoPod {
    job: JobId,
    gpus: u64,
    /// True if the pod is on a node and has not ended.
    holds: bool,
    /// True if the pod runs or has run.
    started: bool,
}

impl World {
    /// Follows a job from now on.
    pub(super) fn submit(&mut self, id: JobId, job: DemoJob) {
        self.jobs.insert(id, job);
    }

    pub(super) fn jobs(&self) -> impl Iterator<Item = (&JobId, &DemoJob)> {
        self.jobs.iter()
    }

    /// Returns the GPUs that bound pods use now, grouped by `group`, which receives the cluster and
    /// the queue.
    pub(super) fn held<K: Ord>(&self, group: impl Fn(&str, &str) -> K) -> BTreeMap<K, u64> {
        let mut held = BTreeMap::new();
        for (cluster, pods) in &self.pods {
            for pod in pods.values().filter(|pod| pod.holds) {
                if let Some(job) = self.jobs.get(&pod.job) {
                    *held.entry(group(cluster, &job.queue)).or_default() += pod.gpus;
                }
            }
        }
        held
    }

    /// Returns the most GPUs that a queue's bound pods used at once, in one cluster or in all.
    pub(super) fn peak(&self, queue: &str, cluster: Option<&str>) -> u64 {
        let of = (queue.to_owned(), cluster.map(str::to_owned));
        self.peaks.get(&of).copied().unwrap_or(0)
    }

    /// Notes the current state of a binding.
    pub(super) fn binding(&mut self, binding: &Value, now: Timestamp) {
        let resource = &binding["spec"]["resource"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let id = (text(&resource["namespace"]), text(&resource["name"]));
        let Some(job) = self.jobs.get_mut(&id).filter(|_| is_job(resource)) else {
            return;
        };
        if job.ran.is_none() {
            job.admitted = admitted(binding);
        }
        if job.ended.is_none() {
            job.ended = end::of(binding).map(|end| (now, end));
        }
    }

    /// Notes the current state of a pod of a member.
    pub(super) fn pod(&mut self, cluster: &str, pod: &Value, now: Timestamp) {
        let Some((key, seen)) =
            DemoPod::read(pod).filter(|(_, pod)| self.jobs.contains_key(&pod.job))
        else {
            return;
        };
        let id = seen.job.clone();
        self.pods
            .entry(cluster.to_owned())
            .or_default()
            .insert(key, seen);
        self.note_running(&id, now);
        let of_queues = self.held(|_, queue| (queue.to_owned(), None));
        let in_clusters = self.held(|cluster, queue| (queue.to_owned(), Some(cluster.to_owned())));
        for (of, gpus) in of_queues.into_iter().chain(in_clusters) {
            let peak = self.peaks.entry(of).or_default();
            *peak = gpus.max(*peak);
        }
    }

    /// Notes a deleted pod.
    pub(super) fn pod_gone(&mut self, cluster: &str, pod: &Value) {
        if let (Some(pods), Some((key, _))) = (self.pods.get_mut(cluster), DemoPod::read(pod)) {
            pods.remove(&key);
        }
    }

    /// Forgets all pods of a member before a relist.
    pub(super) fn forget_pods(&mut self, cluster: &str) {
        self.pods.remove(cluster);
    }

    fn note_running(&mut self, id: &JobId, now: Timestamp) {
        let pods = self.pods.values().flat_map(BTreeMap::values);
        let started = pods.filter(|pod| pod.started && pod.job == *id).count();
        if let Some(job) = self
            .jobs
            .get_mut(id)
            .filter(|job| job.ran.is_none() && started >= job.pods as usize)
        {
            job.ran = Some(now);
        }
    }
}

impl DemoJob {
    pub(super) fn stage(&self) -> Stage {
        match (self.ended, self.ran, self.admitted) {
            (Some((_, JobEnd::Failed)), ..) => Stage::Failed,
            (Some((_, JobEnd::Succeeded)), ..) => Stage::Succeeded,
            (None, Some(_), _) => Stage::Running,
            (None, None, Some(_)) => Stage::Admitted,
            (None, None, None) => Stage::Queued,
        }
    }
}

/// Returns true for jobs; ConfigMaps and other dependencies have bindings with the names of jobs.
fn is_job(resource: &Value) -> bool {
    resource["kind"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("Job"))
}

/// Returns when the current attempt was admitted.
fn admitted(binding: &Value) -> Option<Timestamp> {
    let record = binding["metadata"]["annotations"][RECORD].as_str()?;
    let record: Value = serde_json::from_str(record).ok()?;
    let under_way = matches!(record["state"].as_str(), Some("Planned" | "Admitted"));
    record["time"].as_str()?.parse().ok().filter(|_| under_way)
}

impl DemoPod {
    fn read(pod: &Value) -> Option<(String, Self)> {
        let namespace = pod["metadata"]["namespace"].as_str()?;
        let name = pod["metadata"]["name"].as_str()?;
        let (job, _) = name.split_once('-')?;
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let ended = matches!(phase, "Succeeded" | "Failed");
        let pod = Self {
            job: (namespace.to_owned(), job.to_owned()),
            gpus: pod["spec"]["containers"]
                .as_array()
                .into_iter()
                .flatten()
                .map(gpus)
                .sum(),
            holds: pod["spec"]["nodeName"].is_string() && !ended,
            started: ended || phase == "Running",
        };
        Some((format!("{namespace}/{name}"), pod))
    }
}

/// Returns the GPUs of a container. Devices are whole, and a container's request is its limit.
fn gpus(container: &Value) -> u64 {
    let limit = &container["resources"]["limits"][GPU];
    limit
        .as_str()
        .and_then(|text| text.parse().ok())
        .or(limit.as_u64())
        .unwrap_or(0)
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn id(name: &str) -> JobId {
        ("vc-a".into(), name.into())
    }

    pub(in super::super) fn job(queue: &str, pods: u32, gpus: u32) -> DemoJob {
        DemoJob {
            queue: queue.into(),
            pods,
            gpus,
            submitted: at(0),
            admitted: None,
            ran: None,
            ended: None,
        }
    }

    fn pod(name: &str, node: Option<&str>, phase: &str) -> Value {
        json!({
            "metadata": {"namespace": "vc-a", "name": name},
            "spec": {"nodeName": node, "containers": [{"resources": {"limits": {GPU: "8"}}}]},
            "status": {"phase": phase},
        })
    }

    fn binding(state: &str) -> Value {
        let record = json!({"state": state, "time": "1970-01-01T00:00:05Z"});
        json!({
            "metadata": {"annotations": {RECORD: record.to_string()}},
            "spec": {"resource": {"kind": "Job", "namespace": "vc-a", "name": "x"}, "clusters": [{"name": "a"}]},
        })
    }

    fn stage(world: &World) -> Stage {
        world.jobs[&id("x")].stage()
    }

    #[test]
    fn a_job_goes_from_queue_to_end() {
        let mut world = World::default();
        world.submit(id("x"), job("q", 2, 16));
        assert_eq!(stage(&world), Stage::Queued);
        world.binding(&binding("Admitted"), at(6));
        assert_eq!(
            (stage(&world), world.jobs[&id("x")].admitted),
            (Stage::Admitted, Some(at(5)))
        );
        // The job was evicted.
        world.binding(&binding("Ending"), at(7));
        assert_eq!(stage(&world), Stage::Queued);
        world.binding(&binding("Admitted"), at(8));

        world.pod("a", &pod("x-0", Some("n1"), "Running"), at(9));
        assert_eq!(stage(&world), Stage::Admitted, "one of two pods runs");
        world.pod("b", &pod("x-1", Some("n1"), "Running"), at(10));
        assert_eq!(
            (stage(&world), world.jobs[&id("x")].ran),
            (Stage::Running, Some(at(10)))
        );

        let mut ended = binding("Admitted");
        ended["status"] = json!({"aggregatedStatus": [{"clusterName": "a", "status": {"state": {"phase": "Completed"}}}]});
        world.binding(&ended, at(20));
        assert_eq!(stage(&world), Stage::Succeeded);
    }

    #[test]
    fn what_pods_hold_is_added_up_while_they_are_bound() {
        let mut world = World::default();
        world.submit(id("x"), job("q", 2, 16));
        world.submit(id("y"), job("r", 1, 8));
        world.pod("a", &pod("x-0", None, "Pending"), at(1));
        assert_eq!(world.peak("q", None), 0);
        world.pod("a", &pod("x-0", Some("n"), "Pending"), at(1));
        world.pod("b", &pod("x-1", Some("n"), "Running"), at(2));
        world.pod("b", &pod("y-0", Some("n"), "Running"), at(2));
        world.pod("b", &pod("other-0", Some("n"), "Running"), at(2));
        let by_cluster = world.held(|cluster, _| cluster.to_owned());
        assert_eq!(
            by_cluster,
            BTreeMap::from([("a".into(), 8), ("b".into(), 16)])
        );
        world.pod("b", &pod("x-1", Some("n"), "Succeeded"), at(3));
        world.pod_gone("a", &pod("x-0", Some("n"), "Running"));
        let by_queue = world.held(|_, queue| queue.to_owned());
        assert_eq!(by_queue, BTreeMap::from([("r".into(), 8)]));
        assert_eq!((world.peak("q", None), world.peak("q", Some("b"))), (16, 8));
    }
}
