//! MPIJobs over clusters: one launcher, which has the addresses of all workers, and can log in to
//! them.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::annotated;
use e2e::harness::kinds::{ENDPOINT_SLICE, MPI_JOB, SECRET};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{Case, SOON};
use crate::job::Job;
use crate::leading_part::{end_leader, leads, room_for_seven, shows};
use crate::rendezvous::{said_by, start, told};
use crate::split::{environment, no_pods, play, pods_of};
use crate::story::managed;

const ASKS: &str = "muster.io/split";
const KEYS: &str = "muster.io/ssh-auth-secret";
/// The path of the launcher's hostfile.
const LIST: &str = "/etc/muster/mpi/hostfile";

/// The programs that a launcher runs here. mpirun prints its hostfile. The first lookup of a host
/// finds nothing, as if the worker were not up yet.
const PROGRAMS: [(&str, &str); 2] = [
    ("mpirun", "cat \"$OMPI_MCA_orte_default_hostfile\""),
    (
        "getent",
        "[ -e \"$0.asked\" ] || { echo none >> \"$0.asked\"; exit 2; }; echo \"$2\" >> \"$0.asked\"",
    ),
];

fn write_programs(folder: &Path) -> anyhow::Result<()> {
    for (name, script) in PROGRAMS {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Returns an MPIJob of a launcher and seven workers with two GPUs each, which may be split; its
/// launcher runs the programs in `folder`.
fn bench(case: &Case, folder: &Path) -> Value {
    let mut job = annotated(case.gang("bench", 7, 2).mpi(), ASKS, "Allowed");
    let container = "/spec/mpiReplicaSpecs/Launcher/template/spec/containers/0";
    let path = format!("{}:/usr/bin:/bin", folder.display());
    job.pointer_mut(container).unwrap()["env"] = json!([{"name": "PATH", "value": path}]);
    job["spec"]["runPolicy"]["activeDeadlineSeconds"] = json!(3600);
    job
}

/// Creates the Secret by which the launcher logs in.
async fn keys(case: &Case) -> anyhow::Result<Value> {
    let keys = json!({
        "metadata": {"name": "bench-keys", "namespace": case.name},
        "type": "kubernetes.io/ssh-auth",
        "stringData": {"ssh-privatekey": "private", "ssh-publickey": "public"},
    });
    Ok(case.karmada().create(SECRET, &keys).await?)
}

/// Returns true if a pod is a placeholder for the launcher.
fn stands_in(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"][0]["name"] == "muster.io/launcher-is-elsewhere"
}

/// Returns the cluster with the launcher, and the launcher.
fn launcher(pods: &BTreeMap<String, Vec<Value>>) -> anyhow::Result<(&str, &Value)> {
    let all = pods
        .iter()
        .flat_map(|(cluster, pods)| pods.iter().map(move |pod| (cluster.as_str(), pod)));
    let mut launchers = all.filter(|(_, pod)| leads(pod));
    let first = launchers.next().context("no launcher")?;
    ensure!(launchers.next().is_none(), "two launchers");
    Ok(first)
}

fn workers(pods: &[Value]) -> impl Iterator<Item = &Value> {
    let role = "training.kubeflow.org/job-role";
    let is_worker = move |pod: &&Value| pod["metadata"]["labels"][role] == "worker";
    pods.iter().filter(is_worker)
}

/// Checks that there are one launcher, seven workers in two clusters, unevenly divided, and in the
/// other cluster a placeholder for the launcher, which is never scheduled.
async fn is_divided(case: &Case, job: &Job) -> anyhow::Result<BTreeMap<String, Vec<Value>>> {
    let pods = pods_of(case, job).await?;
    assert_eq!(pods.len(), 2, "{:?}", pods.keys());
    let (leading, _) = launcher(&pods)?;
    let mut counts: Vec<usize> = pods.values().map(|pods| workers(pods).count()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [3, 4]);
    for (cluster, pods) in &pods {
        let stand_ins: Vec<&Value> = pods.iter().filter(|pod| stands_in(pod)).collect();
        assert_eq!(
            stand_ins.len(),
            usize::from(cluster != leading),
            "{cluster}"
        );
        for pod in stand_ins {
            assert_eq!(pod["spec"]["nodeName"], Value::Null);
            assert_eq!(pod["spec"]["containers"][0]["resources"], json!({}));
        }
    }
    Ok(pods)
}

/// Checks that the user's keys are in both clusters, and mounted where MPI looks for them; the
/// operator's own keys are elsewhere.
async fn has_keys(
    case: &Case,
    keys: &Value,
    pods: &BTreeMap<String, Vec<Value>>,
) -> anyhow::Result<()> {
    for (cluster, pods) in pods {
        let member = case.plane.member(cluster).await?;
        let found = member.get(SECRET, Some(&case.name), "bench-keys").await?;
        assert_eq!(found.unwrap_or_default()["data"], keys["data"], "{cluster}");
        for pod in pods.iter().filter(|pod| !stands_in(pod)) {
            let volumes = pod["spec"]["volumes"].as_array().context("no volumes")?;
            let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array();
            let at = |path: &str| {
                let mut mounts = mounts.into_iter().flatten();
                let mount = mounts.find(|mount| mount["mountPath"] == path)?;
                let of_mount = |volume: &&Value| volume["name"] == mount["name"];
                volumes.iter().find(of_mount)
            };
            let own = at("/root/.ssh").context("no keys")?;
            assert_eq!(own["secret"]["secretName"], "bench-keys");
            assert_eq!(own["secret"]["defaultMode"], 0o600);
            let operators = at("/etc/muster/ssh-of-this-cluster").context("no operator's keys")?;
            assert_eq!(operators["secret"]["secretName"], "bench-ssh");
        }
    }
    Ok(())
}

/// Returns the hostfile of its launcher's mpirun, which runs in a process like that of its
/// container.
fn list_of_hosts(launcher: &Value, folder: &Path) -> anyhow::Result<Vec<String>> {
    let list = folder.join("hostfile").display().to_string();
    let resolve = |value: &str| match value {
        LIST => list.clone(),
        value => value.to_owned(),
    };
    let said = said_by(vec![start(launcher, &resolve)?])?;
    let hosts: Vec<String> = said[0].lines().map(str::to_owned).collect();
    let asked = std::fs::read_to_string(folder.join("getent.asked"))?;
    let names = hosts.iter().map(|host| host.split(' ').next());
    let names: Vec<&str> = names.map(Option::unwrap_or_default).collect();
    assert_eq!(asked.trim(), format!("none\n{}", names.join("\n")));
    Ok(hosts)
}

/// Checks that the job's Service in the member resolves to a pod by the pod's name.
async fn is_named(case: &Case, cluster: &str, pod: &Value) -> anyhow::Result<()> {
    let member = case.plane.member(cluster).await?;
    let name = &pod["metadata"]["name"];
    assert_eq!(pod["spec"]["hostname"], *name);
    assert_eq!(pod["spec"]["subdomain"], "bench");
    eventually(
        SOON,
        &format!("{name} has a name in {cluster}"),
        async || {
            let label = "kubernetes.io/service-name=bench";
            let slices = member.select(ENDPOINT_SLICE, Some(&case.name), label).await;
            let slices = slices.map_err(|error| error.to_string())?;
            let mut endpoints = slices
                .iter()
                .flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
            let found = endpoints.any(|endpoint| {
                endpoint["hostname"] == *name
                    && endpoint["targetRef"]["uid"] == pod["metadata"]["uid"]
                    && endpoint["conditions"]["ready"] == true
            });
            found.then_some(()).ok_or_else(|| format!("{slices:?}"))
        },
    )
    .await
}

/// Checks that the launcher's hostfile has each worker once, in the order of ranks, by a name that
/// resolves to it.
async fn all_are_listed(
    case: &Case,
    pods: &BTreeMap<String, Vec<Value>>,
    folder: &Path,
) -> anyhow::Result<()> {
    let (leading, first) = launcher(pods)?;
    let hosts = list_of_hosts(first, folder)?;
    assert_eq!(hosts.len(), 7, "{hosts:?}");
    for (cluster, pods) in pods {
        for worker in workers(pods) {
            let name = worker["metadata"]["name"].as_str().unwrap_or_default();
            let own = format!("{name}.bench.{}.svc", case.name);
            let host = match cluster == leading {
                true => own,
                false => format!("{own}.{cluster}.fleet.example"),
            };
            let host = format!("{host} slots=1");
            let place = hosts.iter().position(|listed| *listed == host);
            let place = place.with_context(|| format!("no {host} in {hosts:?}"))?;
            // The launcher has rank 0, so workers start at 1.
            assert_eq!(crate::split::rank(worker)?, place as u64 + 1, "{host}");
            is_named(case, cluster, worker).await?;
        }
    }
    Ok(())
}

/// Checks that the template's status shows the whole gang. The operator reports a part without a
/// launcher as not running, but counts its workers.
async fn tells_of_all(
    case: &Case,
    job: &Job,
    pods: &BTreeMap<String, Vec<Value>>,
) -> anyhow::Result<()> {
    shows(case, job, "Running").await?;
    let (leading, _) = launcher(pods)?;
    for (cluster, pods) in pods.iter().filter(|(cluster, _)| *cluster != leading) {
        let member = case.plane.member(cluster).await?;
        let part = member.get(MPI_JOB, Some(&case.name), &job.name).await?;
        let status = &part.context("no part")?["status"];
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let conditions: Vec<&Value> = conditions.map(|condition| &condition["type"]).collect();
        assert_eq!(conditions, ["Created"], "{status}");
        let groups = &status["replicaStatuses"];
        assert_eq!(groups["Launcher"], json!({}), "{status}");
        assert_eq!(groups["Worker"]["active"], workers(pods).count());
    }
    eventually(SOON, "the template counts all pods", async || {
        let template = case.template(job).await?.unwrap_or_default();
        let groups = &template["status"]["replicaStatuses"];
        let counts = (&groups["Launcher"]["active"], &groups["Worker"]["active"]);
        match counts == (&json!(1), &json!(7)) {
            true => Ok(()),
            false => Err(template["status"].to_string()),
        }
    })
    .await
}

/// Without keys the job is not split, and an event says why. With keys it runs over two clusters,
/// its launcher reaches all workers, and it ends with its launcher, in success or failure.
pub(crate) async fn mpi(case: &Case) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    write_programs(folder.path())?;
    let keys = keys(case).await?;
    room_for_seven(case).await?;
    let template = bench(case, folder.path());
    let job = case.submit(&template).await?;
    case.waits(&job, &["ExceedsFleet"]).await?;
    told(case, &format!("annotation {KEYS} names no Secret")).await?;
    case.delete(&job).await?;
    case.gone(&job).await?;

    let template = annotated(template, KEYS, "bench-keys");
    let job = case.submit(&template).await?;
    case.running(&job).await?;
    let pods = is_divided(case, &job).await?;
    tells_of_all(case, &job, &pods).await?;
    has_keys(case, &keys, &pods).await?;
    all_are_listed(case, &pods, folder.path()).await?;
    end_leader(case, &job).await?;
    case.midway().await?;
    case.finished(&job, "Succeeded").await?;
    shows(case, &job, "Succeeded").await?;
    no_pods(case, &job).await?;
    case.shows_gpus(&case.name, "allocated", 0).await?;
    case.delete(&job).await?;
    case.gone(&job).await?;

    let job = case.submit(&template).await?;
    case.running(&job).await?;
    play(
        case,
        &job,
        |_, pod| leads(pod),
        json!({"muster.io/fail": "true"}),
    )
    .await?;
    case.finished(&job, "Failed").await?;
    shows(case, &job, "Failed").await?;
    no_pods(case, &job).await?;
    let report = case.audit(14, [&job])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

/// Each worker of another cluster has a Service of its own, by which the launcher finds it.
async fn by_services(case: &Case) -> anyhow::Result<()> {
    use crate::services::{MEMBERS, fleet, leads_to, nothing_left, service_of};

    let folder = tempfile::tempdir()?;
    write_programs(folder.path())?;
    keys(case).await?;
    fleet(case).await?;
    let template = annotated(bench(case, folder.path()), KEYS, "bench-keys");
    let job = case.submit(&template).await?;
    case.running(&job).await?;
    let pods = is_divided(case, &job).await?;
    let (leading, first) = launcher(&pods)?;
    let hosts = environment(first, "MUSTER_MPI_HOSTS").context("no hosts")?;
    let hosts: Vec<&str> = hosts.lines().collect();
    for (cluster, pods) in &pods {
        for worker in workers(pods).filter(|_| cluster != leading) {
            let rank = usize::try_from(crate::split::rank(worker)?)?;
            let host = hosts.get(rank - 1).context("too few hosts")?;
            let address = host.trim_end_matches(" slots=1");
            leads_to(case, MEMBERS, service_of(case, address)?, worker).await?;
        }
    }
    case.delete(&job).await?;
    case.gone(&job).await?;
    nothing_left(case, MEMBERS, None).await
}

#[test]
fn an_mpijob_over_two_clusters_is_led_by_one_launcher() {
    managed("mpisplit", mpi);
}

#[test]
fn a_launcher_finds_workers_by_their_services() {
    managed("mpiserve", by_services);
}
