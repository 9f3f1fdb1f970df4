//! The requests of a template's pods, and their queue, computed for each kind.
//!
//! This is on purpose a second reading of templates, much simpler than Muster's. An unknown kind or
//! an unreadable number is an error, because a job that is left out is not audited. The pod by
//! which KubeRay submits a RayJob, which requests no device, and what an update starts beside other
//! pods (`maxSurge`) are left out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::quantity::{self, AuditedAmounts, UNIT};

/// The node label by which a template selects a class of GPUs.
const PRODUCT: &str = "nvidia.com/gpu.product";
const GPU: &str = "nvidia.com/gpu";
/// The prefix of a ResourceClaimTemplate's name, where a pod has a claim by it.
pub(super) const CLAIM: &str = "claim:";

/// Amounts by the class of GPUs that pods select, in the lower case of GpuPools; `""` for none.
pub(super) type Classes = BTreeMap<String, AuditedAmounts>;

/// The amounts that a template charges to a queue while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footprint {
    /// The queue that it names, if any.
    pub queue: Option<String>,
    pods: Vec<EqualPods>,
}

/// Pods of one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EqualPods {
    count: u64,
    class: String,
    each: AuditedAmounts,
}

impl Footprint {
    /// Reads a template.
    ///
    /// # Errors
    /// Returns an error if its kind is unknown here, or a number in it cannot be read.
    pub fn of(template: &Value) -> anyhow::Result<Self> {
        let kind = template["kind"].as_str().unwrap_or_default();
        let api_version = template["apiVersion"].as_str().unwrap_or_default();
        let pods = pods_of(api_version, kind, &template["spec"]);
        let name = template["metadata"]["name"].as_str().unwrap_or_default();
        Ok(Self {
            queue: queue(template),
            pods: pods.with_context(|| format!("{api_version} {kind} {name:?}"))?,
        })
    }

    /// Returns the GPUs of all its pods.
    pub fn gpus(&self) -> u64 {
        let gpus = |pods: &EqualPods| pods.each.get(GPU).copied().unwrap_or(0) / UNIT;
        let gpus = self
            .pods
            .iter()
            .map(|pods| u128::from(pods.count) * gpus(pods));
        u64::try_from(gpus.sum::<u128>()).unwrap_or(u64::MAX)
    }

    /// Returns the requests of all its pods.
    pub(super) fn whole(&self) -> Classes {
        let mut whole = Classes::new();
        for pods in &self.pods {
            let class = whole.entry(pods.class.clone()).or_default();
            quantity::add(class, &pods.each, pods.count.into());
        }
        whole
    }

    /// Returns the requests of `count` of its pods; `None` if that depends on which ones.
    pub(super) fn part(&self, count: u64) -> Option<Classes> {
        let first = self.pods.first()?;
        let alike = |pods: &EqualPods| pods.class == first.class && pods.each == first.each;
        if !self.pods.iter().all(alike) {
            return None;
        }
        let mut amounts = AuditedAmounts::new();
        quantity::add(&mut amounts, &first.each, count.into());
        Some([(first.class.clone(), amounts)].into())
    }

    /// Returns the number of its pods.
    pub(super) fn count(&self) -> u64 {
        self.pods.iter().map(|pods| pods.count).sum()
    }

    /// Replaces each claim by the amounts it stands for.
    ///
    /// # Errors
    /// Returns an error if a pod has a claim by a template that is not among `claims`.
    pub(super) fn resolve(
        &mut self,
        claims: &BTreeMap<String, AuditedAmounts>,
    ) -> anyhow::Result<()> {
        for pods in &mut self.pods {
            let named = pods.each.keys().filter(|name| name.starts_with(CLAIM));
            for name in named.cloned().collect::<Vec<_>>() {
                let claim = claims.get(&name);
                let claim = claim.with_context(|| format!("nothing is known of {name}"))?;
                let times = pods.each.remove(&name).unwrap_or(0) / UNIT;
                quantity::add(&mut pods.each, claim, times);
            }
        }
        Ok(())
    }
}

/// Returns the queue that a template names, in the order of docs/reference/jobs.md. If it names
/// none, its namespace may name one.
fn queue(template: &Value) -> Option<String> {
    let [labels, annotations] = ["labels", "annotations"].map(|of| &template["metadata"][of]);
    let named = [
        &template["spec"]["queue"],
        &labels["muster.io/queue"],
        &annotations["muster.io/queue"],
        &annotations["scheduling.volcano.sh/queue-name"],
        &labels["scheduling.volcano.sh/queue-name"],
        &labels["volcano.sh/queue-name"],
    ];
    let mut named = named.into_iter().filter_map(Value::as_str);
    named.find(|name| !name.is_empty()).map(str::to_owned)
}

fn pods_of(api_version: &str, kind: &str, spec: &Value) -> anyhow::Result<Vec<EqualPods>> {
    let group = api_version.split('/').next().unwrap_or_default();
    let replicas = |spec: &Value| Ok(vec![pods(count(&spec["replicas"])?, &spec["template"])?]);
    match (group, kind) {
        ("batch.volcano.sh", "Job") => each(&spec["tasks"], replicas),
        ("kubeflow.org", "PyTorchJob") => each(&spec["pytorchReplicaSpecs"], replicas),
        ("kubeflow.org", "TFJob") => each(&spec["tfReplicaSpecs"], replicas),
        ("kubeflow.org", "MPIJob") => each(&spec["mpiReplicaSpecs"], replicas),
        ("kubeflow.org", "JAXJob") => each(&spec["jaxReplicaSpecs"], replicas),
        ("kubeflow.org", "PaddleJob") => each(&spec["paddleReplicaSpecs"], replicas),
        ("kubeflow.org", "XGBoostJob") => each(&spec["xgbReplicaSpecs"], replicas),
        ("jobset.x-k8s.io", "JobSet") => each(&spec["replicatedJobs"], |job| {
            let times = count(&job["replicas"])?;
            let mut one = batch(&job["template"]["spec"])?;
            one.iter_mut().for_each(|pods| pods.count *= times);
            Ok(one)
        }),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => groups(spec),
        ("ray.io", "RayCluster") => ray(spec),
        ("ray.io", "RayJob") => ray(&spec["rayClusterSpec"]),
        // An upgrade starts a second cluster beside the first.
        ("ray.io", "RayService") => {
            let mut all = ray(&spec["rayClusterConfig"])?;
            if spec["upgradeStrategy"]["type"] != "None" {
                all.iter_mut().for_each(|pods| pods.count *= 2);
            }
            Ok(all)
        }
        ("batch", "Job") => batch(spec),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet") => replicas(spec),
        // This kind exists only in the tests.
        ("example.com", "Thing") => replicas(spec),
        ("v1", "Pod") => Ok(vec![pod(1, spec)?]),
        _ => bail!("its kind is not known to the auditor"),
    }
}

/// Returns the pods of each entry of a list, or of each field of an object.
fn each(
    of: &Value,
    read: impl Fn(&Value) -> anyhow::Result<Vec<EqualPods>>,
) -> anyhow::Result<Vec<EqualPods>> {
    let entries: Vec<&Value> = match of {
        Value::Array(list) => list.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        other => bail!("{other} is no list of roles"),
    };
    let mut all = Vec::new();
    for entry in entries {
        all.extend(read(entry)?);
    }
    Ok(all)
}

/// Returns the pods of a Job, which runs at most as many at once as it has completions left.
fn batch(spec: &Value) -> anyhow::Result<Vec<EqualPods>> {
    let parallelism = count(&spec["parallelism"])?;
    let completions = match &spec["completions"] {
        Value::Null => parallelism,
        completions => count(completions)?,
    };
    Ok(vec![pods(parallelism.min(completions), &spec["template"])?])
}

/// Returns the leaders and workers of groups, none beside those that it asks for.
fn groups(spec: &Value) -> anyhow::Result<Vec<EqualPods>> {
    let (replicas, group) = (count(&spec["replicas"])?, &spec["leaderWorkerTemplate"]);
    let of_workers = &group["workerTemplate"];
    let of_leader = match &group["leaderTemplate"] {
        Value::Null => of_workers,
        own => own,
    };
    let workers = count(&group["size"])?.checked_sub(1).context("no leader")?;
    Ok(vec![
        pods(replicas, of_leader)?,
        pods(replicas * workers, of_workers)?,
    ])
}

/// Returns the head and the workers. With an autoscaler, the workers are the most that it may start.
fn ray(cluster: &Value) -> anyhow::Result<Vec<EqualPods>> {
    let scaled = cluster["enableInTreeAutoscaling"] == true;
    let mut head = cluster["headGroupSpec"]["template"].clone();
    if scaled {
        add_autoscaler(
            &mut head["spec"],
            &cluster["autoscalerOptions"]["resources"],
        );
    }
    let mut all = vec![pods(1, &head)?];
    if cluster["workerGroupSpecs"].is_null() {
        return Ok(all);
    }
    all.extend(each(&cluster["workerGroupSpecs"], |group| {
        let pods_of_one = count(&group["numOfHosts"])?;
        let replicas = count(&group[if scaled { "maxReplicas" } else { "replicas" }])?;
        let mut template = group["template"].clone();
        wait_for_head(&mut template["spec"]);
        Ok(vec![pods(replicas * pods_of_one, &template)?])
    })?);
    Ok(all)
}

/// Adds the sidecar by which KubeRay scales, with its default requests unless the cluster names others.
fn add_autoscaler(head: &mut Value, named: &Value) {
    let usual = json!({"requests": {"cpu": "500m", "memory": "512Mi"}});
    let resources = if named.is_null() { &usual } else { named };
    if let Some(containers) = head["containers"].as_array_mut() {
        containers.push(json!({ "resources": resources }));
    }
}

/// Adds the init container in which KubeRay has workers wait for the head.
fn wait_for_head(spec: &mut Value) {
    let waits = json!({"resources": {"requests": {"cpu": "200m", "memory": "256Mi"}}});
    match spec["initContainers"].as_array_mut() {
        Some(own) => own.push(waits),
        None => spec["initContainers"] = json!([waits]),
    }
}

/// Returns a replica count; the default is 1.
fn count(value: &Value) -> anyhow::Result<u64> {
    match value {
        Value::Null => Ok(1),
        value => value
            .as_u64()
            .with_context(|| format!("{value} is no count")),
    }
}

fn pods(count: u64, template: &Value) -> anyhow::Result<EqualPods> {
    pod(count, &template["spec"])
}

/// Returns the requests of a pod as Kubernetes counts them: the sum of its containers, or the
/// larger request of an init container, plus its overhead. A gated pod never runs.
fn pod(count: u64, spec: &Value) -> anyhow::Result<EqualPods> {
    let gates = spec["schedulingGates"].as_array();
    let gated = gates.is_some_and(|gates| !gates.is_empty());
    let mut each = AuditedAmounts::new();
    let list = |of: &str| spec[of].as_array().cloned().unwrap_or_default();
    ensure!(spec["containers"].is_array(), "a pod without containers");
    for container in list("containers") {
        quantity::add(&mut each, &requests(&container)?, 1);
    }
    let (mut sidecars, mut most) = (AuditedAmounts::new(), AuditedAmounts::new());
    for container in list("initContainers") {
        let mut now = requests(&container)?;
        if container["restartPolicy"] == "Always" {
            quantity::add(&mut sidecars, &now, 1);
            quantity::raise(&mut most, &sidecars);
        } else {
            quantity::add(&mut now, &sidecars, 1);
            quantity::raise(&mut most, &now);
        }
    }
    quantity::add(&mut each, &sidecars, 1);
    quantity::raise(&mut each, &most);
    // Requests of the pod as a whole replace those of its containers.
    each.extend(requests(spec)?);
    quantity::add(&mut each, &amounts(&spec["overhead"])?, 1);
    for claim in list("resourceClaims") {
        if let Some(template) = claim["resourceClaimTemplateName"].as_str() {
            *each.entry(format!("{CLAIM}{template}")).or_default() += UNIT;
        }
    }
    each.retain(|_, amount| *amount > 0);
    let class = spec["nodeSelector"][PRODUCT].as_str().unwrap_or_default();
    Ok(EqualPods {
        count: if gated { 0 } else { count },
        class: class.to_lowercase(),
        each,
    })
}

/// Returns the requests of a container; a limit without a request counts as a request.
fn requests(container: &Value) -> anyhow::Result<AuditedAmounts> {
    let mut all = amounts(&container["resources"]["limits"])?;
    all.extend(amounts(&container["resources"]["requests"])?);
    Ok(all)
}

/// Reads a list of resources.
pub(super) fn amounts(of: &Value) -> anyhow::Result<AuditedAmounts> {
    let fields = of.as_object().into_iter().flatten();
    let read = fields.map(|(resource, value)| {
        let amount = quantity::read(value);
        let amount = amount.with_context(|| format!("{resource}: {value} is no amount"))?;
        Ok((resource.clone(), amount))
    });
    read.collect()
}

/// Returns the devices of one claim by a ResourceClaimTemplate, as units of their classes.
pub(super) fn claim(template: &Value) -> anyhow::Result<AuditedAmounts> {
    let requests = &template["spec"]["spec"]["devices"]["requests"];
    let mut all = AuditedAmounts::new();
    for request in requests.as_array().into_iter().flatten() {
        let exactly = &request["exactly"];
        let class = exactly["deviceClassName"].as_str();
        let class = class.with_context(|| format!("{request} names no class"))?;
        let resource = format!("deviceclass.resource.kubernetes.io/{class}");
        *all.entry(resource).or_default() += u128::from(count(&exactly["count"])?) * UNIT;
    }
    Ok(all)
}

/// Returns all resources of some classes.
pub(super) fn resources(of: &Classes) -> BTreeSet<&String> {
    of.values().flat_map(AuditedAmounts::keys).collect()
}

#[cfg(test)]
mod tests;
