//! Jobs to submit, as JSON: pods of one shape in the common kinds of training jobs.
//!
//! The testbed's pods are simulated: each ends after its annotation `muster.io/run-for`, with
//! failure if `muster.io/fail` is set, and never ends without it.

use serde_json::{Value, json};

use super::kinds::{
    BATCH_JOB, DEPLOYMENT, JAX_JOB, JOB_SET, LEADER_WORKER_SET, MPI_JOB, ObjectKind, POD,
    PYTORCH_JOB, RAY_CLUSTER, RAY_JOB, RAY_SERVICE, VOLCANO_JOB, XGBOOST_JOB,
};

/// A job of `pods` pods with `gpus` GPUs each.
#[derive(Debug, Clone)]
pub struct TestGang {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The queue that it names; `None` for the namespace's default.
    pub queue: Option<String>,
    /// The number of pods.
    pub pods: u32,
    /// GPUs of each pod.
    pub gpus: u32,
    /// The GPU product that its pods select.
    pub product: Option<String>,
    /// How long each pod runs, e.g. `5s`; `None` for ever.
    pub run_for: Option<String>,
    /// True if its pods fail when they end.
    pub fail: bool,
    /// Its PriorityClass.
    pub priority_class: Option<String>,
}

impl TestGang {
    /// Returns a Volcano Job with one task, whose minimum is all its pods.
    pub fn volcano(&self) -> Value {
        let mut spec = json!({
            "schedulerName": "volcano",
            "minAvailable": self.pods,
            "tasks": [{"name": "worker", "replicas": self.pods, "template": self.template("Never")}],
        });
        if let Some(queue) = &self.queue {
            spec["queue"] = json!(queue);
        }
        if let Some(class) = &self.priority_class {
            spec["priorityClassName"] = json!(class);
        }
        self.object(VOLCANO_JOB, spec, false)
    }

    /// Returns a batch Job whose pods all run at once.
    pub fn batch(&self) -> Value {
        let spec = json!({
            "completions": self.pods,
            "parallelism": self.pods,
            "backoffLimit": 0,
            "template": self.template("Never"),
        });
        self.object(BATCH_JOB, spec, true)
    }

    /// Returns a PyTorchJob: a master and workers.
    pub fn pytorch(&self) -> Value {
        let role = |replicas: u32| {
            json!({
                "replicas": replicas,
                "restartPolicy": "Never",
                "template": self.template("Never"),
            })
        };
        let spec = json!({
            "runPolicy": {"cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": {
                "Master": role(1),
                "Worker": role(self.pods.saturating_sub(1)),
            },
        });
        self.object(PYTORCH_JOB, spec, true)
    }

    /// Returns a JAXJob, which has workers only.
    pub fn jax(&self) -> Value {
        let spec = json!({
            "runPolicy": {"cleanPodPolicy": "None"},
            "jaxReplicaSpecs": {"Worker": self.group("jax", self.pods)},
        });
        self.object(JAX_JOB, spec, true)
    }

    /// Returns an XGBoostJob: a master and workers.
    pub fn xgboost(&self) -> Value {
        let spec = json!({
            "runPolicy": {"cleanPodPolicy": "None"},
            "xgbReplicaSpecs": {
                "Master": self.group("xgboost", 1),
                "Worker": self.group("xgboost", self.pods.saturating_sub(1)),
            },
        });
        self.object(XGBOOST_JOB, spec, true)
    }

    /// Returns a group of training-operator, with the container that it asks for.
    fn group(&self, container: &str, replicas: u32) -> Value {
        let mut template = self.template("Never");
        template["spec"]["containers"][0]["name"] = json!(container);
        json!({"replicas": replicas, "restartPolicy": "Never", "template": template})
    }

    /// Returns an MPIJob: a launcher without GPUs, which is not retried, and workers.
    pub fn mpi(&self) -> Value {
        let role = |replicas: u32, mut template: Value| {
            // The operator sets the restart policy beside the template.
            let pods = template["spec"].as_object_mut();
            let policy = pods.and_then(|pods| pods.remove("restartPolicy"));
            json!({"replicas": replicas, "restartPolicy": policy, "template": template})
        };
        let mut launcher = self.template("Never");
        let container = &mut launcher["spec"]["containers"][0];
        container["resources"]["limits"] = json!({});
        container["command"] = json!(["mpirun"]);
        let spec = json!({
            "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0},
            "mpiReplicaSpecs": {
                "Launcher": role(1, launcher),
                "Worker": role(self.pods, self.template("Never")),
            },
        });
        self.object(MPI_JOB, spec, true)
    }

    /// Returns a JobSet: a driver and workers, each a Job of one pod that is not retried.
    pub fn job_set(&self) -> Value {
        let job = |name: &str, replicas: u32| {
            let spec = json!({
                "parallelism": 1,
                "completions": 1,
                "backoffLimit": 0,
                "template": self.template("Never"),
            });
            json!({"name": name, "replicas": replicas, "template": {"spec": spec}})
        };
        let jobs = [
            job("driver", 1),
            job("workers", self.pods.saturating_sub(1)),
        ];
        self.object(JOB_SET, json!({"replicatedJobs": jobs}), true)
    }

    /// Returns a LeaderWorkerSet of groups, each with all pods of this job.
    pub fn leader_worker_set(&self, groups: u32) -> Value {
        let group = json!({"size": self.pods, "workerTemplate": self.template("Always")});
        let spec = json!({"replicas": groups, "leaderWorkerTemplate": group});
        self.object(LEADER_WORKER_SET, spec, true)
    }

    /// Returns a RayCluster: a head and workers.
    pub fn ray_cluster(&self) -> Value {
        self.object(RAY_CLUSTER, self.ray_nodes(), true)
    }

    /// Returns a RayJob with a submitter pod, which requests no GPU.
    pub fn ray_job(&self) -> Value {
        let spec = json!({
            "entrypoint": "python train.py",
            "shutdownAfterJobFinishes": true,
            "rayClusterSpec": self.ray_nodes(),
        });
        self.object(RAY_JOB, spec, true)
    }

    /// Returns a RayService, whose applications are none of the testbed's.
    pub fn ray_service(&self) -> Value {
        let spec = json!({"serveConfigV2": "", "rayClusterConfig": self.ray_nodes()});
        self.object(RAY_SERVICE, spec, true)
    }

    fn ray_nodes(&self) -> Value {
        let workers = self.pods.saturating_sub(1);
        json!({
            "headGroupSpec": {"rayStartParams": {}, "template": self.template("Always")},
            "workerGroupSpecs": [{
                "groupName": "workers",
                "replicas": workers,
                "minReplicas": workers,
                "maxReplicas": workers,
                "rayStartParams": {},
                "template": self.template("Always"),
            }],
        })
    }

    /// Returns a Deployment, which never ends.
    pub fn deployment(&self) -> Value {
        let mut template = self.template("Always");
        template["metadata"]["labels"] = json!({"app": self.name});
        let spec = json!({
            "replicas": self.pods,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app": self.name}},
            "template": template,
        });
        self.object(DEPLOYMENT, spec, true)
    }

    /// Returns a bare Pod.
    pub fn pod(&self) -> Value {
        let mut template = self.template("Never");
        let mut object = self.object(POD, template["spec"].take(), true);
        object["metadata"]["annotations"] = template["metadata"]["annotations"].take();
        object
    }

    fn object(&self, kind: ObjectKind, spec: Value, label_queue: bool) -> Value {
        let mut metadata = json!({"name": self.name, "namespace": self.namespace});
        if let Some(queue) = self.queue.as_ref().filter(|_| label_queue) {
            metadata["labels"] = json!({"muster.io/queue": queue});
        }
        json!({
            "apiVersion": kind.api_version(),
            "kind": kind.name,
            "metadata": metadata,
            "spec": spec,
        })
    }

    /// Returns the pod template, with the annotations by which the testbed simulates it.
    fn template(&self, restart_policy: &str) -> Value {
        let mut annotations = json!({});
        if let Some(time) = &self.run_for {
            annotations["muster.io/run-for"] = json!(time);
        }
        if self.fail {
            annotations["muster.io/fail"] = json!("true");
        }
        let mut spec = json!({
            "restartPolicy": restart_policy,
            "containers": [{
                "name": "pytorch",
                "image": "busybox",
                "resources": {
                    "requests": {"cpu": "100m", "memory": "64Mi"},
                    "limits": {"nvidia.com/gpu": self.gpus.to_string()},
                },
            }],
        });
        if let Some(product) = &self.product {
            spec["nodeSelector"] = json!({"nvidia.com/gpu.product": product});
        }
        if let Some(class) = &self.priority_class {
            spec["priorityClassName"] = json!(class);
        }
        json!({"metadata": {"annotations": annotations}, "spec": spec})
    }
}

/// Returns a Queue of `scheduling.volcano.sh` with a quota of `gpus` GPUs in the whole federation.
pub fn queue(name: &str, gpus: u32) -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "capability": {"nvidia.com/gpu": gpus}},
    })
}

/// Returns the same job with one more annotation.
#[must_use]
pub fn annotated(mut template: Value, key: &str, value: &str) -> Value {
    template["metadata"]["annotations"][key] = json!(value);
    template
}

/// Returns a PriorityClass that does not preempt.
pub fn priority_class(name: &str, value: i32) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": "Never",
    })
}
