#![allow(clippy::unwrap_used)]

use super::*;
use crate::parts::tests::{field, shares, variable};
use crate::parts::{RenderedPart, parts};
use crate::rendezvous::Reach;
use crate::split;
use crate::testing::yaml;
use facts::{Attempt, ClusterName, Share};
use insta::assert_snapshot;

const JOB: &str = "
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: bench, namespace: team, annotations: {muster.io/split: Allowed, muster.io/ssh-auth-secret: keys}}
spec:
  slotsPerWorker: 8
  runPolicy: {cleanPodPolicy: Running, activeDeadlineSeconds: 60}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          nodeSelector: {a: b}
          volumes: [{name: data, emptyDir: {}}]
          containers:
            - name: mpi
              image: bench:1
              command: [mpirun]
              args: [-n, '40', bench]
              resources: {requests: {cpu: 1}}
              volumeMounts: [{name: data, mountPath: /data}]
            - {name: log}
    Worker:
      replicas: 5
      template: {spec: {containers: [{name: mpi, image: bench:1}]}}
";

/// The launcher is in the cluster with fewer workers.
fn over_two() -> Vec<Share> {
    shares(&[
        ("a", &[("launcher", 0), ("worker", 3)]),
        ("b", &[("launcher", 1), ("worker", 2)]),
    ])
}

fn reach(open: &str) -> Reach {
    let hosts = ["a", "b"].map(|cluster| {
        let open = open.replace("{cluster}", cluster);
        (ClusterName::new(cluster), open)
    });
    Reach {
        leader: None,
        hosts: hosts.into(),
    }
}

fn of(template: &str, shares: &[Share]) -> Vec<RenderedPart> {
    let reach = reach("{host}.team.svc.{cluster}.example");
    parts(&yaml(template), Attempt(1), shares, &reach, false).unwrap()
}

fn groups(part: &RenderedPart) -> &Value {
    field(part, "/spec/mpiReplicaSpecs")
}

fn pods<'a>(part: &'a RenderedPart, group: &str) -> &'a Value {
    &groups(part)[group]["template"]["spec"]
}

fn told(pods: &Value, name: &str) -> String {
    let value = variable(&pods["containers"][0], name).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn the_launcher_is_in_one_cluster_and_workers_are_in_all() {
    let parts = of(JOB, &over_two());
    let workers = |part: &RenderedPart| groups(part)["Worker"]["replicas"].clone();
    assert_eq!([&parts[0], &parts[1]].map(workers), [3, 2]);
    // The stand-in is gated, and has nothing that it could need.
    assert_eq!(
        groups(&parts[0])["Launcher"],
        json!({
            "replicas": 1,
            "restartPolicy": "OnFailure",
            "template": {"spec": {
                "schedulingGates": [{"name": "muster.io/launcher-is-elsewhere"}],
                "containers": [{"name": "mpi", "image": "bench:1"}],
            }},
        })
    );
    let launcher = pods(&parts[1], "Launcher");
    assert_eq!(launcher["schedulingGates"], Value::Null);
    assert_eq!(launcher["nodeSelector"], json!({"a": "b"}));
    let command = &launcher["containers"][0]["command"];
    assert_eq!(command[0], "/bin/sh");
    assert_eq!(command[4], "mpirun");
    assert_eq!(launcher["containers"][0]["args"][2], "bench");
    let paths = |part: &RenderedPart| {
        let paths: Vec<String> = part
            .fields
            .iter()
            .map(|(path, value)| match path.as_str() {
                "/spec/mpiReplicaSpecs" => path.clone(),
                path => format!("{path} {value}"),
            })
            .collect();
        paths.join("\n")
    };
    assert_snapshot!(paths(&parts[0]), @r#"
    /spec/mpiReplicaSpecs
    /spec/sshAuthMountPath "/etc/muster/ssh-of-this-cluster"
    /spec/runPolicy/activeDeadlineSeconds null
    /spec/runPolicy/schedulingPolicy {"minAvailable":3}
    "#);
    assert_snapshot!(paths(&parts[1]), @r#"
    /spec/mpiReplicaSpecs
    /spec/sshAuthMountPath "/etc/muster/ssh-of-this-cluster"
    "#);
}

#[test]
fn the_users_keys_are_mounted_in_place_of_the_operators() {
    let parts = of(JOB, &over_two());
    for pods in [
        pods(&parts[0], "Worker"),
        pods(&parts[1], "Worker"),
        pods(&parts[1], "Launcher"),
    ] {
        let volumes = pods["volumes"].as_array().unwrap();
        let keys = volumes.iter().find(|volume| volume["name"] == KEYS_VOLUME);
        let keys = &keys.unwrap()["secret"];
        assert_eq!(keys["secretName"], "keys");
        assert_eq!(keys["defaultMode"], 0o600);
        let mounts = pods["containers"][0]["volumeMounts"].as_array().unwrap();
        assert!(mounts.contains(&json!({"name": KEYS_VOLUME, "mountPath": "/root/.ssh"})));
        assert_eq!(pods["containers"][1]["volumeMounts"], Value::Null);
    }
    let launcher = pods(&parts[1], "Launcher");
    assert_eq!(launcher["volumes"][0]["name"], "data", "its own stay");
    assert_eq!(launcher["containers"][0]["volumeMounts"][0]["name"], "data");
    let home = "/home/mpi/.ssh";
    let elsewhere = JOB.replace("slotsPerWorker: 8", &format!("sshAuthMountPath: {home}"));
    let parts = of(&elsewhere, &over_two());
    let worker = pods(&parts[0], "Worker");
    assert_eq!(
        worker["containers"][0]["volumeMounts"][0]["mountPath"],
        home
    );
    assert_eq!(worker["volumes"][0]["secret"]["defaultMode"], Value::Null);
}

#[test]
fn the_launcher_has_the_workers_of_all_clusters_in_the_order_of_ranks() {
    let parts = of(JOB, &over_two());
    let launcher = pods(&parts[1], "Launcher");
    assert_snapshot!(told(launcher, "MUSTER_MPI_HOSTS"), @r"
    bench-worker-0.bench.team.svc.a.example slots=8
    bench-worker-1.bench.team.svc.a.example slots=8
    bench-worker-2.bench.team.svc.a.example slots=8
    bench-worker-0.bench.team.svc slots=8
    bench-worker-1.bench.team.svc slots=8
    ");
    let list = told(launcher, "MUSTER_MPI_HOSTFILE");
    let mounts = &launcher["containers"][0]["volumeMounts"];
    assert!(list.starts_with(mounts[2]["mountPath"].as_str().unwrap()));
    // The launcher has rank 0, and the workers follow through the clusters.
    let offset = |pods: &Value| told(pods, "MUSTER_RANK_OFFSET");
    assert_eq!(offset(launcher), "0");
    assert_eq!(told(launcher, "MUSTER_REPLICA_INDEX"), "0");
    assert_eq!(offset(pods(&parts[0], "Worker")), "1");
    assert_eq!(offset(pods(&parts[1], "Worker")), "4");
    let worker = &pods(&parts[0], "Worker")["containers"][0];
    assert_eq!(variable(worker, "MUSTER_REPLICA_INDEX"), Some(own_index()));

    let reach = reach("{service}.team.svc");
    let found = |attempt| parts_by(&reach, attempt);
    let hosts = found(1);
    let mut hosts = hosts.lines();
    let first = hosts.next().unwrap();
    assert!(first.starts_with("muster-bench-worker-0-") && first.ends_with(".team.svc slots=8"));
    assert_eq!(hosts.nth(2), Some("bench-worker-0.bench.team.svc slots=8"));
    assert_ne!(found(1), found(2), "Services are of an attempt");
}

fn parts_by(reach: &Reach, attempt: u32) -> String {
    let parts = parts(&yaml(JOB), Attempt(attempt), &over_two(), reach, false).unwrap();
    told(pods(&parts[1], "Launcher"), "MUSTER_MPI_HOSTS")
}

#[test]
fn each_implementation_reads_the_list_in_its_own_way() {
    let of = |name: &str| {
        let implementation = format!("mpiImplementation: {name}");
        let job = JOB.replace("runPolicy:", &format!("{implementation}\n  runPolicy:"));
        let parts = of(&job, &over_two());
        let launcher = pods(&parts[1], "Launcher");
        let hosts = told(launcher, "MUSTER_MPI_HOSTS");
        let script = launcher["containers"][0]["command"][2].as_str().unwrap();
        let own = script.strip_prefix(WAIT).unwrap();
        format!("{}{own}", hosts.lines().last().unwrap())
    };
    assert_snapshot!(of("OpenMPI"), @r#"
    bench-worker-1.bench.team.svc slots=8
    export OMPI_MCA_orte_default_hostfile="$MUSTER_MPI_HOSTFILE"
    export OMPI_MCA_plm_rsh_no_tree_spawn=1
    exec "$@"
    "#);
    assert_snapshot!(of("Intel"), @r#"
    bench-worker-1.bench.team.svc:8
    export I_MPI_HYDRA_HOST_FILE="$MUSTER_MPI_HOSTFILE"
    export I_MPI_HYDRA_BRANCH_COUNT=-1
    while read -r interface destination _; do
      [ "$destination" != 00000000 ] || export I_MPI_HYDRA_IFACE="${I_MPI_HYDRA_IFACE:-$interface}"
    done < /proc/net/route
    exec "$@"
    "#);
    assert_snapshot!(of("MPICH"), @r#"
    bench-worker-1.bench.team.svc:8
    export HYDRA_HOST_FILE="$MUSTER_MPI_HOSTFILE"
    while read -r interface destination _; do
      [ "$destination" != 00000000 ] || export HYDRA_IFACE="${HYDRA_IFACE:-$interface}"
    done < /proc/net/route
    exec "$@"
    "#);
}

#[test]
fn minimums_include_the_launcher_in_its_cluster() {
    let minimums = |policy: &str| {
        let job = JOB.replace("activeDeadlineSeconds: 60", policy);
        let parts = of(&job, &over_two());
        let of = |part: &RenderedPart| {
            let mut fields = part.fields.iter();
            let found = fields.find(|(path, _)| path.contains("schedulingPolicy"));
            found.map(|(path, value)| format!("{path} {value}"))
        };
        [of(&parts[0]), of(&parts[1])].map(Option::unwrap_or_default)
    };
    let path = "/spec/runPolicy/schedulingPolicy";
    let stated = minimums("schedulingPolicy: {minAvailable: 4}");
    assert_eq!(stated, [2, 2].map(|n| format!("{path}/minAvailable {n}")));
    let unstated = minimums("schedulingPolicy: {queue: q}");
    assert_eq!(unstated, [format!("{path}/minAvailable 3"), String::new()]);
    let none = JOB.replace(
        "runPolicy: {cleanPodPolicy: Running, activeDeadlineSeconds: 60}",
        "",
    );
    let parts = of(&none, &over_two());
    let policy = json!({"schedulingPolicy": {"minAvailable": 3}});
    assert_eq!(*field(&parts[0], "/spec/runPolicy"), policy);
}

#[test]
fn an_mpijob_in_one_cluster_is_left_to_its_operator() {
    let parts = of(JOB, &shares(&[("a", &[("launcher", 1), ("worker", 5)])]));
    let launcher = pods(&parts[0], "Launcher");
    assert_eq!(launcher["containers"][0]["command"], json!(["mpirun"]));
    assert_eq!(told(launcher, "MUSTER_RANK_OFFSET"), "0");
    assert_eq!(told(launcher, "MUSTER_MPI_HOSTS"), "");
    assert_eq!(parts[0].fields.len(), 1, "{:?}", parts[0].fields);
    let alone = of(
        JOB,
        &shares(&[
            ("a", &[("launcher", 1), ("worker", 0)]),
            ("b", &[("worker", 5)]),
        ]),
    );
    assert_eq!(groups(&alone[0])["Worker"], Value::Null);
}

#[test]
fn an_unsplittable_mpijob_says_why() {
    let why = |from: &str, to: &str| split::refused(&yaml(&JOB.replacen(from, to, 1)));
    assert_eq!(split::refused(&yaml(JOB)), None);
    let command = "command: [mpirun]";
    for (from, to, told) in [
        (
            ", muster.io/ssh-auth-secret: keys",
            "",
            "annotation muster.io/ssh-auth-secret names no Secret with the keys (ssh-privatekey, ssh-publickey)",
        ),
        (
            "secret: keys",
            "secret: ''",
            "annotation muster.io/ssh-auth-secret names no Secret",
        ),
        ("v2beta1", "v1", "by kubectl exec"),
        (
            command,
            "",
            "spec.mpiReplicaSpecs[Launcher] container mpi has no command",
        ),
        (
            command,
            "command: [mpirun, --hostfile, /etc/mpi/hostfile]",
            "names /etc/mpi/",
        ),
        (
            command,
            "command: [horovodrun, --host-discovery-script, /etc/mpi/discover_hosts.sh]",
            "names /etc/mpi/",
        ),
        (
            command,
            "command: [mpirun]\n              env: [{name: HOSTS, value: /etc/mpi/hostfile}]",
            "names /etc/mpi/",
        ),
        (
            command,
            "command: [mpirun, --hostfile, $(OMPI_MCA_orte_default_hostfile)]",
            "$(OMPI_MCA_orte_default_hostfile)",
        ),
        (
            "slotsPerWorker: 8",
            "runLauncherAsWorker: true",
            "spec.runLauncherAsWorker",
        ),
        (
            "activeDeadlineSeconds: 60",
            "managedBy: kueue.x-k8s.io/multikueue",
            "spec.runPolicy.managedBy is kueue.x-k8s.io/multikueue",
        ),
        (
            "activeDeadlineSeconds: 60",
            "schedulingPolicy: {minResources: {cpu: 1}}",
            "minResources is of the whole",
        ),
        (
            "Launcher:\n      replicas: 1",
            "Launcher:\n      replicas: 2",
            "no single Launcher",
        ),
    ] {
        let said = why(from, to).unwrap_or_default();
        assert!(said.contains(told), "{to}: {said}");
    }
    let by_the_operator = "managedBy: kubeflow.org/mpi-operator";
    assert_eq!(why("activeDeadlineSeconds: 60", by_the_operator), None);
}
