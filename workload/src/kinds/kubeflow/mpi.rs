//! Parts of an MPIJob: its launcher is in one cluster and starts processes on the workers of all clusters
//! by ssh. Statements about mpi-operator refer to its `mpi_job_controller.go`, v0.6 to v0.8.
//!
//! mpi-operator requires a launcher in every MPIJob. In the other clusters a stand-in replaces it, which is
//! never scheduled and requests nothing; the workers are created all the same, and nothing ends there
//! before the eviction.
//!
//! Each cluster's operator creates keys of its own, which do not work in other clusters. The parts mount
//! them where they do no harm, and mount the user's keys in their place.
//!
//! The operator lists the workers of its own cluster, and passes that list to MPI after everything in the
//! template. So a shell runs first in the launcher: it writes the list of the workers of all clusters, in
//! the order of ranks, and waits until their names resolve, because ssh fails on a name that does not. A
//! worker's name in its own cluster belongs to another worker in other clusters. So only the launcher may
//! start processes (MPI would let workers start some of them), and workers must not look for the launcher
//! by its hostname, as Hydra makes them do.

use super::parts::{self, cannot_be_led, containers, own_index, put_first, words};
use super::stand_in::StandIn;
use super::{SplitTrainingJob, TrainingJobKind, known};
use crate::leading;
use crate::parts::{Environment, Fields, Gang};
use crate::pod;
use crate::pod_shape::AddedInit;
use crate::rendezvous::Meeting;
use crate::services;
use facts::{Amount, ResourceName};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The operator considers it finished when its launcher is (`updateMPIJobStatus`, v0.8), starts no worker
/// without their number, and names pods in a headless Service with the job's name (newJobService).
pub(crate) const MPI_JOB: TrainingJobKind = TrainingJobKind {
    api: known("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
    groups: GROUPS,
    leaders: &[LAUNCHER],
    default_replicas: |api_version, group| {
        let is_mpi_operator = api_version != TRAINING_OPERATOR;
        u32::from(!(is_mpi_operator && group == WORKER))
    },
    autoscaled: false,
    added_init,
    secret: Some(SSH_SECRET),
    split: SplitTrainingJob {
        fields,
        unsplittable,
        meeting: Meeting::All,
        first_host: |_, job| Some(format!("{job}-{LAUNCHER}.{job}")),
        pod_labels,
        stand_in_gate: Some(GATE),
    },
};

/// The apiVersion of MPIJobs that training-operator runs.
const TRAINING_OPERATOR: &str = "kubeflow.org/v1";

/// Annotation: the Secret with the keys by which the launcher logs in to the workers of all clusters, with
/// the same entries as the operator's own.
const SSH_SECRET: &str = "muster.io/ssh-auth-secret";
/// The field of the spec with its groups of pods.
const GROUPS: &str = "mpiReplicaSpecs";
/// The group of the launcher.
const LAUNCHER: &str = "launcher";
/// The group of the workers.
const WORKER: &str = "worker";
/// The gate that keeps the stand-in of a launcher from being scheduled.
const GATE: &str = "muster.io/launcher-is-elsewhere";
/// The stand-in of a launcher.
const STAND_IN: StandIn = StandIn {
    groups: GROUPS,
    role: LAUNCHER,
    container: None,
    gate: GATE,
};
/// Where the operator mounts its list of hosts, which it updates as workers come and go.
const OPERATORS_LIST: &str = "/etc/mpi/";
/// Where the parts mount the operator's own keys.
const OPERATORS_KEYS: &str = "/etc/muster/ssh-of-this-cluster";
/// The default mount path of keys; only there they are readable by their owner alone.
const ROOTS_KEYS: &str = "/root/.ssh";
/// Name of the volume with the user's keys.
const KEYS_VOLUME: &str = "muster-ssh-auth";
/// Name of the volume for the list of hosts, and where that is.
const LIST_VOLUME: &str = "muster-mpi";
const LIST_DIR: &str = "/etc/muster/mpi";
const LIST: &str = "/etc/muster/mpi/hostfile";

/// What differs between implementations of MPI.
struct Implementation {
    /// The separator between a host and its slots in a list of hosts.
    slots: &'static str,
    /// The variable that names the list.
    list: &'static str,
    /// The variable that makes the launcher start all processes itself, if other pods could.
    alone: Option<&'static str>,
    /// The variable that makes other pods use the launcher's address at this interface instead of its
    /// hostname.
    interface: Option<&'static str>,
}

const OPEN_MPI: Implementation = Implementation {
    slots: " slots=",
    list: "OMPI_MCA_orte_default_hostfile",
    alone: Some("OMPI_MCA_plm_rsh_no_tree_spawn=1"),
    interface: None,
};
const INTEL: Implementation = Implementation {
    slots: ":",
    list: "I_MPI_HYDRA_HOST_FILE",
    alone: Some("I_MPI_HYDRA_BRANCH_COUNT=-1"),
    interface: Some("I_MPI_HYDRA_IFACE"),
};
const MPICH: Implementation = Implementation {
    slots: ":",
    list: "HYDRA_HOST_FILE",
    alone: None,
    interface: Some("HYDRA_IFACE"),
};

/// The first commands of the shell, for at most ten minutes. An image without getent does not wait.
const WAIT: &str = r#"printf '%s' "$MUSTER_MPI_HOSTS" > "$MUSTER_MPI_HOSTFILE" || exit
seconds=600
while command -v getent > /dev/null && read -r host _; do
  host="${host%%:*}"
  until getent ahosts "$host" > /dev/null || [ "$seconds" -le 0 ]; do
    [ "$seconds" -lt 600 ] || echo "muster: waiting for $host to be found" >&2
    seconds=$((seconds - 1))
    sleep 1
  done
done < "$MUSTER_MPI_HOSTFILE""#;

/// training-operator brings kubectl to the launcher with an init container (newLauncher in its mpijob_controller.go,
/// v1.9); mpi-operator, which uses ssh, adds none.
fn added_init(template: &Value) -> Option<AddedInit> {
    let version = template.get("apiVersion").and_then(Value::as_str);
    (version == Some(TRAINING_OPERATOR)).then(|| {
        let mut amounts = pod::cpu_and_memory(100, 512 << 20);
        amounts.set(ResourceName::new("ephemeral-storage"), Amount(5 << 30));
        AddedInit::new(amounts.clone(), amounts, |role| role == LAUNCHER)
    })
}

impl Implementation {
    fn of(template: &Value) -> &'static Self {
        match template.pointer("/spec/mpiImplementation") {
            Some(Value::String(name)) if name == "Intel" => &INTEL,
            Some(Value::String(name)) if name == "MPICH" => &MPICH,
            _ => &OPEN_MPI,
        }
    }

    /// Returns the script that runs first in the launcher. Its interface is the one with the default route.
    fn shell(&self) -> String {
        let mut lines = vec![WAIT.to_owned()];
        lines.push(format!("export {}=\"$MUSTER_MPI_HOSTFILE\"", self.list));
        lines.extend(self.alone.map(|variable| format!("export {variable}")));
        lines.extend(self.interface.map(|variable| {
            format!(
                r#"while read -r interface destination _; do
  [ "$destination" != 00000000 ] || export {variable}="${{{variable}:-$interface}}"
done < /proc/net/route"#
            )
        }));
        lines.push(r#"exec "$@""#.to_owned());
        lines.join("\n")
    }
}

/// Returns the fields of the cluster at `index`.
fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    let place =
        |name: &str, pods: &mut Map<String, Value>| place(template, gang, index, name, pods);
    let mut fields = parts::groups(GROUPS, template, gang, index, place);
    if gang.shares.len() < 2 {
        return fields;
    }
    fields.push(("/spec/sshAuthMountPath".to_owned(), json!(OPERATORS_KEYS)));
    if gang.per_cluster(LAUNCHER)[index] == 0 {
        STAND_IN.replace(template, gang, index, &mut fields);
    }
    fields
}

/// Returns the labels that defaultLabels and newWorker of mpi-operator set; its launcher has no index.
fn pod_labels(role: &str, index: u32) -> BTreeMap<String, String> {
    let index = index.to_string();
    let labels = [
        ("training.kubeflow.org/job-role", role),
        ("training.kubeflow.org/replica-index", &index),
    ];
    let told = if role == LAUNCHER {
        &labels[..1]
    } else {
        &labels
    };
    services::labels(told)
}

/// Makes the pods of a group use the user's keys, and the launcher all hosts. Returns what these pods
/// receive in addition to what all do.
fn place(
    template: &Value,
    gang: &Gang<'_>,
    index: usize,
    name: &str,
    pods: &mut Map<String, Value>,
) -> Environment {
    mount(pods, KEYS_VOLUME, keys(template), keys_path(template));
    if name != LAUNCHER {
        return vec![("MUSTER_REPLICA_INDEX", own_index())];
    }
    mount(pods, LIST_VOLUME, json!({"emptyDir": {}}), LIST_DIR);
    if let Some(container) = pods
        .get_mut("spec")
        .and_then(|spec| spec.pointer_mut("/containers/0"))
    {
        put_first(container, &Implementation::of(template).shell());
    }
    vec![
        ("MUSTER_REPLICA_INDEX", json!("0")),
        ("MUSTER_MPI_HOSTFILE", json!(LIST)),
        ("MUSTER_MPI_HOSTS", json!(hosts(template, gang, index))),
    ]
}

/// Mounts a volume into the first container, the one that the operator uses.
fn mount(pods: &mut Map<String, Value>, name: &str, mut volume: Value, path: &str) {
    volume["name"] = json!(name);
    let spec = pods.entry("spec").or_insert_with(|| json!({}));
    push(spec, "volumes", volume);
    if let Some(container) = spec.pointer_mut("/containers/0") {
        let mount = json!({"name": name, "mountPath": path});
        push(container, "volumeMounts", mount);
    }
}

fn push(object: &mut Value, list: &str, value: Value) {
    match object.get_mut(list) {
        Some(Value::Array(list)) => list.push(value),
        _ => object[list] = json!([value]),
    }
}

fn secret(template: &Value) -> Option<&str> {
    let annotations = template.pointer("/metadata/annotations")?;
    let name = annotations.get(SSH_SECRET)?.as_str()?;
    (!name.is_empty()).then_some(name)
}

/// Returns where the pods look for keys.
fn keys_path(template: &Value) -> &str {
    let path = template.pointer("/spec/sshAuthMountPath");
    let path = path.and_then(Value::as_str).unwrap_or_default();
    if path.is_empty() { ROOTS_KEYS } else { path }
}

/// Returns the volume with the user's keys, with the files and modes of the operator's own
/// (`setupSSHOnPod`).
fn keys(template: &Value) -> Value {
    let mut secret = json!({
        "secretName": secret(template).unwrap_or_default(),
        "items": [
            {"key": "ssh-privatekey", "path": "id_rsa"},
            {"key": "ssh-publickey", "path": "id_rsa.pub"},
            {"key": "ssh-publickey", "path": "authorized_keys"},
        ],
    });
    if keys_path(template) == ROOTS_KEYS {
        secret["defaultMode"] = json!(0o600);
    }
    json!({ "secret": secret })
}

/// Returns all workers in the order of their ranks, as the launcher in the cluster at `index` reaches them;
/// those in the same cluster by the operator's names.
fn hosts(template: &Value, gang: &Gang<'_>, index: usize) -> String {
    let text = |path| template.pointer(path).and_then(Value::as_str);
    let job = text("/metadata/name").unwrap_or_default();
    let slots = template
        .pointer("/spec/slotsPerWorker")
        .and_then(Value::as_u64);
    let slots = slots.unwrap_or(1);
    let between = Implementation::of(template).slots;
    let mut list = String::new();
    for (share, count) in gang.shares.iter().zip(gang.per_cluster(WORKER)) {
        for pod in 0..u32::try_from(count).unwrap_or(u32::MAX) {
            let host = format!("{job}-{WORKER}-{pod}.{job}");
            let address = gang.address(index, share, WORKER, pod, host);
            list.push_str(&format!("{address}{between}{slots}\n"));
        }
    }
    list
}

/// Returns why it cannot be split.
fn unsplittable(template: &Value) -> Option<String> {
    if template["apiVersion"] == TRAINING_OPERATOR {
        return Some(
            "the launcher of an MPIJob kubeflow.org/v1 reaches its workers by kubectl exec, which reaches one cluster; an MPIJob kubeflow.org/v2beta1 uses ssh"
                .to_owned(),
        );
    }
    parts::of_the_whole(template)
        .or_else(|| of_one_operator(template))
        .or_else(|| launcher(template))
        .or_else(|| {
            secret(template).is_none().then(|| format!(
                "annotation {SSH_SECRET} names no Secret with the keys (ssh-privatekey, ssh-publickey) by which its launcher could log in to workers of other clusters"
            ))
        })
}

/// Returns a field that the operator of one cluster cannot handle for the others.
fn of_one_operator(template: &Value) -> Option<String> {
    if template.pointer("/spec/runLauncherAsWorker") == Some(&json!(true)) {
        return Some(
            "spec.runLauncherAsWorker: each version of the operator counts the workers differently"
                .to_owned(),
        );
    }
    let manager = template.pointer("/spec/runPolicy/managedBy")?.as_str()?;
    (manager != "kubeflow.org/mpi-operator").then(|| {
        format!("spec.runPolicy.managedBy is {manager}: only kubeflow.org/mpi-operator is known to list hosts so that others can be added")
    })
}

/// Returns why the launcher cannot get the list of all hosts.
fn launcher(template: &Value) -> Option<String> {
    let groups = template.get("spec")?.get(GROUPS)?.as_object()?;
    let launcher = leading::role(template)
        .and_then(|role| groups.iter().find(|(key, _)| key.to_lowercase() == role));
    let Some((key, launcher)) = launcher else {
        return Some(format!(
            "spec.{GROUPS} has no single Launcher, whose end would be that of all parts"
        ));
    };
    let container = containers(launcher).next()?;
    let name = container.get("name").and_then(Value::as_str);
    let path = format!(
        "spec.{GROUPS}[{key}] container {}",
        name.unwrap_or_default()
    );
    let overridden = [OPEN_MPI, INTEL, MPICH].map(|implementation| implementation.list);
    cannot_be_led(container, &path, &overridden)
        .or_else(|| names_the_operators_list(container, &path))
}

fn names_the_operators_list(container: &Value, path: &str) -> Option<String> {
    let variables = container.get("env").and_then(Value::as_array);
    let variables = variables.into_iter().flatten();
    let values = variables.filter_map(|variable| variable.get("value")?.as_str());
    let mut all = words(container, "command")
        .chain(words(container, "args"))
        .chain(values);
    all.any(|word| word.contains(OPERATORS_LIST)).then(|| {
        format!("{path} names {OPERATORS_LIST}, where its operator lists the workers of one cluster; let MPI find the list of all by itself, or name $MUSTER_MPI_HOSTFILE")
    })
}

#[cfg(test)]
mod tests;
