//! RayClusters and RayJobs over several clusters, run by KubeRay: one head, which the workers of
//! all clusters find.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::annotated;
use e2e::harness::kinds::{POD, RAY_JOB, SERVICE};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::free_port;

use crate::case::{Case, SOON};
use crate::job::Job;
use crate::leading_part::room_for_seven;
use crate::rendezvous::{said_by, told};
use crate::services::{MEMBERS, fleet, leads_to, service_of};
use crate::split::{environment, no_pods, pods_of};
use crate::story::managed;

/// The scheduling gate of a placeholder for the head.
const GATE: &str = "muster.io/head-is-elsewhere";
/// The timeout until a head listens, and until a worker finds it.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

fn is_stand_in(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"][0]["name"] == GATE
}

fn is_head(pod: &Value) -> bool {
    pod["metadata"]["labels"]["ray.io/node-type"] == "head"
}

/// Returns the Ray nodes by cluster, without placeholders, and the cluster with the head. The other
/// cluster has a placeholder for the head, which never runs.
async fn nodes_of(
    case: &Case,
    job: &Job,
) -> anyhow::Result<(BTreeMap<String, Vec<Value>>, String)> {
    let mut pods = pods_of(case, job).await?;
    ensure!(pods.len() == 2, "{} is in {:?}", job.name, pods.keys());
    let mut leading = None;
    for (cluster, pods) in &mut pods {
        let heads: Vec<Value> = pods.iter().filter(|pod| is_head(pod)).cloned().collect();
        let [head] = heads.as_slice() else {
            anyhow::bail!("{cluster} has {} heads", heads.len());
        };
        if !is_stand_in(head) {
            ensure!(leading.is_none(), "{cluster} has a second head");
            leading = Some(cluster.clone());
            continue;
        }
        assert_eq!(head["spec"]["nodeName"], Value::Null);
        assert_eq!(head["status"]["phase"], "Pending");
        let asked = &head["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(asked["nvidia.com/gpu"], "0", "{asked}");
        pods.retain(|pod| !is_head(pod));
    }
    Ok((pods, leading.context("no head")?))
}

/// Waits until the template's status shows these values.
async fn shows(case: &Case, job: &Job, want: &[(&str, Value)]) -> anyhow::Result<()> {
    let what = format!("the template says {want:?}");
    eventually(SOON, &what, async || {
        let template = case.template(job).await?.unwrap_or_default();
        let status = &template["status"];
        let says = |(path, value): &(&str, Value)| status.pointer(path) == Some(value);
        match want.iter().all(says) {
            true => Ok(()),
            false => Err(status.to_string()),
        }
    })
    .await
}

/// Starts the command of a container as a local process, with the environment that its kubelet
/// would set, where these names resolve to this machine.
fn start(pod: &Value, container: &Value, names: &[String]) -> anyhow::Result<Child> {
    let resolved = |text: &str| {
        let local = |text: String, name: &String| text.replace(name.as_str(), "127.0.0.1");
        names.iter().fold(text.to_owned(), local)
    };
    let words = |field: &str| {
        let words = container[field].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(resolved)
    };
    // Without a head the command would search for ever.
    let mut command = Command::new("timeout");
    command
        .arg(STARTS_WITHIN.as_secs().to_string())
        .args(words("command").chain(words("args")))
        .env_clear()
        .stdout(Stdio::piped());
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = variable["name"]
            .as_str()
            .context("a variable without name")?;
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            None => variable["value"].as_str().unwrap_or_default(),
            Some(path) => {
                let found = match path.split_once("['") {
                    None => pod.pointer(&format!("/{}", path.replace('.', "/"))),
                    Some((_, key)) => pod["metadata"]["labels"].get(key.trim_end_matches("']")),
                };
                let found = found.and_then(Value::as_str);
                found.with_context(|| format!("{name}: no {path}"))?
            }
        };
        command.env(name, resolved(value));
    }
    let ray = Path::new(env!("CARGO_BIN_EXE_ray")).parent();
    let ray = ray.context("no folder of programs")?.display();
    command.env("PATH", format!("{ray}:/usr/bin:/bin"));
    Ok(command.spawn()?)
}

/// Runs all nodes as local processes, by the commands that KubeRay gave them: workers wait for the
/// head, and join it.
fn all_join(
    nodes: &BTreeMap<String, Vec<Value>>,
    port: u16,
    names: &dyn Fn(&str) -> Vec<String>,
) -> anyhow::Result<()> {
    let mut nodes: Vec<(&String, &Value)> = nodes
        .iter()
        .flat_map(|(cluster, pods)| pods.iter().map(move |pod| (cluster, pod)))
        .collect();
    nodes.sort_by_key(|(_, pod)| !is_head(pod));
    let size = nodes.len() as u64;
    let mut running = Vec::new();
    for (cluster, pod) in nodes {
        let names = names(cluster);
        let waits = pod["spec"]["initContainers"].as_array();
        for container in waits.into_iter().flatten() {
            said_by(vec![start(pod, container, &names)?])
                .with_context(|| format!("{} in {cluster}", container["name"]))?;
        }
        running.push(start(pod, &pod["spec"]["containers"][0], &names)?);
        let begun = Instant::now();
        while is_head(pod) && TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(begun.elapsed() < STARTS_WITHIN, "the head does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let sum = size * (size - 1) / 2;
    let all: Vec<String> = (0..size)
        .map(|rank| format!("rank {rank} of {size}: sum {sum}"))
        .collect();
    assert_eq!(said_by(running)?, all);
    Ok(())
}

/// A head and six workers run over two clusters with capacity for four pods each.
pub(crate) async fn cluster(case: &Case) -> anyhow::Result<()> {
    room_for_seven(case).await?;
    let port = free_port()?;
    let mut template = case.gang("train", 7, 2).ray_cluster();
    template["spec"]["headGroupSpec"]["rayStartParams"]["port"] = json!(port.to_string());
    let job = case
        .submit(&annotated(template, "muster.io/split", "Allowed"))
        .await?;
    let group = case.running(&job).await?;
    let whole = [
        ("/state", json!("ready")),
        ("/availableWorkerReplicas", json!(6)),
        ("/desiredWorkerReplicas", json!(6)),
        ("/desiredGPU", json!("14")),
    ];
    shows(case, &job, &whole).await?;
    assert_eq!(
        group["status"]["federation"]["placementSummary"],
        "member1:4,member2:3"
    );

    let (nodes, leading) = nodes_of(case, &job).await?;
    let own = "train-head-svc";
    let address = format!("{own}.{}.svc.{leading}.fleet.example", case.name);
    for (cluster, pods) in &nodes {
        let expected = if *cluster == leading {
            own
        } else {
            address.as_str()
        };
        for pod in pods {
            assert_eq!(environment(pod, "MUSTER_LEADER_ADDRESS"), Some(expected));
        }
        let member = case.plane.member(cluster).await?;
        let service = member.get(SERVICE, Some(&case.name), own).await?;
        service.with_context(|| format!("{cluster} has no {own}"))?;
    }
    let inside = format!("{own}.{}.svc.cluster.local", case.name);
    let names = |cluster: &str| match cluster == leading {
        true => vec![inside.clone(), own.to_owned()],
        false => vec![address.clone()],
    };
    all_join(&nodes, port, &names)?;

    case.shows_gpus(&case.name, "allocated", 14).await?;
    case.delete(&job).await?;
    case.gone(&job).await?;
    no_pods(case, &job).await?;
    let report = case.audit(14, [&job])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

/// Returns the submitter pods of a RayJob, by cluster.
async fn submitters(case: &Case, job: &Job) -> anyhow::Result<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for cluster in pods_of(case, job).await?.into_keys() {
        let pods = case.pods(&cluster).await?;
        let own = pods
            .into_iter()
            .filter(|pod| pod["metadata"]["labels"]["job-name"] == job.name.as_str());
        found.extend(own.map(|pod| (cluster.clone(), pod)));
    }
    Ok(found)
}

/// The head's program ends while the workers in both clusters would run for ever: the RayJob has
/// succeeded, and its pods go. The workers of the other cluster find the head by a Service.
pub(crate) async fn job(case: &Case) -> anyhow::Result<()> {
    fleet(case).await?;
    let mut template = case.gang("train", 7, 2).ray_job();
    // A part that waited for the end would not be done in time.
    template["spec"]["preRunningDeadlineSeconds"] = json!(600);
    let job = case
        .submit(&annotated(template, "muster.io/split", "Allowed"))
        .await?;
    case.running(&job).await?;
    shows(case, &job, &[("/jobDeploymentStatus", json!("Running"))]).await?;
    let (nodes, leading) = nodes_of(case, &job).await?;
    for (cluster, pods) in &nodes {
        let member = case.plane.member(cluster).await?;
        let part = member.get(RAY_JOB, Some(&case.name), "train").await?;
        let part = part.context("no part")?;
        let submitted = *cluster == leading;
        let phase = if submitted { "Running" } else { "Initializing" };
        assert_eq!(part["status"]["jobDeploymentStatus"], phase, "{cluster}");
        let time = &part["spec"]["preRunningDeadlineSeconds"];
        assert_eq!(time.is_null(), !submitted, "{cluster}: {time}");
        let addresses = pods
            .iter()
            .map(|pod| environment(pod, "MUSTER_LEADER_ADDRESS").unwrap_or_default());
        let addresses: BTreeSet<&str> = addresses.collect();
        assert_eq!(addresses.len(), 1, "{cluster}: {addresses:?}");
        let address = addresses.first().copied().unwrap_or_default();
        if submitted {
            assert_eq!(address, "train-head");
        } else {
            let mut heads = nodes[&leading].iter().filter(|pod| is_head(pod));
            let head = heads.next().context("no head")?;
            leads_to(case, MEMBERS, service_of(case, address)?, head).await?;
        }
        let sizes = pods.iter().map(|pod| environment(pod, "MUSTER_GANG_SIZE"));
        assert!(sizes.flatten().all(|size| size == "7"));
    }

    let ran = eventually(SOON, "a pod submits it", async || {
        let found = submitters(case, &job)
            .await
            .map_err(|error| error.to_string())?;
        match found.as_slice() {
            [(cluster, pod)] if pod["status"]["phase"] == "Running" => {
                Ok((cluster.clone(), pod.clone()))
            }
            other => Err(format!("{other:?}")),
        }
    });
    let (cluster, pod) = ran.await?;
    assert_eq!(cluster, leading);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let well = json!({"metadata": {"annotations": {"muster.io/run-for": "1ms"}}});
    let member = case.plane.member(&cluster).await?;
    member.merge(POD, Some(&case.name), name, &well).await?;
    case.midway().await?;

    case.finished(&job, "Succeeded").await?;
    no_pods(case, &job).await?;
    let ended = [
        ("/jobDeploymentStatus", json!("Complete")),
        ("/jobStatus", json!("SUCCEEDED")),
    ];
    shows(case, &job, &ended).await?;
    case.shows_gpus(&case.name, "allocated", 0).await?;
    let report = case.audit(24, [&job])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

/// A RayCluster with an autoscaler would scale in one cluster: it stays there, and reports why.
pub(crate) async fn refused(case: &Case) -> anyhow::Result<()> {
    case.holds_nothing("no one cluster has room for it");
    room_for_seven(case).await?;
    let mut template = case.gang("scales", 7, 2).ray_cluster();
    template["spec"]["enableInTreeAutoscaling"] = json!(true);
    let job = case
        .submit(&annotated(template, "muster.io/split", "Allowed"))
        .await?;
    case.waits(&job, &["ExceedsFleet"]).await?;
    told(
        case,
        "spec.enableInTreeAutoscaling makes the head start and stop workers of its own cluster",
    )
    .await
}

/// A RayService runs one RayCluster, and is charged the one of an upgrade too. No application serves on
/// simulated pods, so it never reports that it is ready.
pub(crate) async fn service(case: &Case) -> anyhow::Result<()> {
    case.queue(12).await?;
    case.nodes("member1", 2).await?;
    let job = case.submit(&case.gang("serve", 3, 2).ray_service()).await?;
    eventually(SOON, "the pods of serve run", async || {
        let pods = case
            .pods("member1")
            .await
            .map_err(|error| error.to_string())?;
        let running = pods
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running");
        let running = running.count();
        match running {
            3 => Ok(()),
            _ => Err(format!("{running} run")),
        }
    })
    .await?;
    case.shows_gpus(&case.name, "allocated", 12).await?;
    let next = case.submit(&case.gang("next", 1, 2).volcano()).await?;
    case.waits(&next, &["WaitingForQuota", "NextInLine"])
        .await?;
    case.delete(&job).await?;
    case.gone(&job).await?;
    case.running(&next).await?;
    let report = case.audit(12, [&job, &next])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_rayservice_is_charged_the_cluster_of_its_upgrade() {
    managed("rayservice", service);
}

#[test]
fn a_raycluster_over_two_clusters_has_one_head_that_all_workers_join() {
    managed("raycluster", cluster);
}

#[test]
fn a_rayjob_over_two_clusters_ends_with_what_its_head_runs() {
    managed("rayjob", job);
}

#[test]
fn a_raycluster_that_scales_itself_runs_in_one_cluster_and_says_why() {
    managed("raywhole", refused);
}
