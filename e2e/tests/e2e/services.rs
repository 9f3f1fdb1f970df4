//! Gangs over clusters whose pods find each other by Services that Muster creates and Karmada's
//! MultiClusterService propagates. The tests resolve names as each member's DNS would, from the
//! objects in the member.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::annotated;
use e2e::harness::kinds::{
    BINDING, ENDPOINT_SLICE, MULTI_CLUSTER_SERVICE, OVERRIDE_POLICY, SERVICE, WORK,
};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::free_port;

use crate::case::{Case, SOON};
use crate::job::{Job, condition, record};
use crate::rendezvous::{all_meet, training};
use crate::split::{environment, pods_in, pods_of, rank};
use crate::story::managed;

/// The address of pods in this fleet.
pub(crate) const ADDRESSES: &str = "{service}.{namespace}.svc";
/// The members that these tests use.
pub(crate) const MEMBERS: [&str; 2] = ["member1", "member2"];

/// Creates nodes for a gang of seven or eight over two clusters, whose pods find each other by
/// Services.
pub(crate) async fn fleet(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    for member in MEMBERS {
        case.nodes(member, 1).await?;
    }
    let addresses = json!({"spec": {"placement": {"addresses": {"*": ADDRESSES}}}});
    case.capacity_policy(addresses).await
}

/// Returns the UIDs and addresses of the pods to which a name of this namespace resolves in a
/// member.
async fn resolved(
    case: &Case,
    member: &str,
    service: &str,
) -> anyhow::Result<Vec<(String, String)>> {
    let member = case.plane.member(member).await?;
    let found = member.get(SERVICE, Some(&case.name), service).await?;
    let found = found.with_context(|| format!("no Service {service}"))?;
    ensure!(found["spec"]["clusterIP"] == "None", "{found}");
    let label = format!("kubernetes.io/service-name={service}");
    let slices = member.select(ENDPOINT_SLICE, Some(&case.name), &label);
    let mut all = Vec::new();
    for slice in slices.await? {
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            ensure!(endpoint["conditions"]["ready"] != false, "{endpoint}");
            let uid = endpoint["targetRef"]["uid"].as_str().unwrap_or_default();
            for address in endpoint["addresses"].as_array().into_iter().flatten() {
                let address = address.as_str().unwrap_or_default();
                all.push((uid.to_owned(), address.to_owned()));
            }
        }
    }
    Ok(all)
}

/// Waits until `service` resolves to `pod` in these members, and to no other pod in any member.
pub(crate) async fn leads_to(
    case: &Case,
    members: [&str; 2],
    service: &str,
    pod: &Value,
) -> anyhow::Result<()> {
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let ip = pod["status"]["podIP"].as_str().context("no address")?;
    for member in members {
        let what = format!("{service} leads to one pod in {member}");
        eventually(SOON, &what, async || {
            let found = resolved(case, member, service).await;
            let found = found.map_err(|error| format!("{error:#}"))?;
            match *found == [(uid.to_owned(), ip.to_owned())] {
                true => Ok(()),
                false => Err(format!("{found:?}, not {uid} {ip}")),
            }
        })
        .await?;
    }
    Ok(())
}

/// Returns the Service of `address`.
pub(crate) fn service_of<'a>(case: &Case, address: &'a str) -> anyhow::Result<&'a str> {
    let service = address.strip_suffix(&format!(".{}.svc", case.name));
    let service = service.with_context(|| format!("{address} is no Service's"))?;
    ensure!(service.starts_with("muster-"), "{service}");
    Ok(service)
}

/// Ensures that the pods of a job over two members have the address of a Service that resolves to
/// the pod of rank 0, even if it is in the other member; returns the address.
pub(crate) async fn first_is_found(
    case: &Case,
    job: &Job,
    members: [&str; 2],
) -> anyhow::Result<String> {
    let pods = pods_in(case, job, &members).await?;
    assert_eq!(pods.len(), 2, "{:?}", pods.keys());
    let mut first = None;
    for (cluster, pods) in &pods {
        for pod in pods.iter().filter(|pod| rank_of(pod) == Some(0)) {
            ensure!(
                first.replace((cluster, pod)).is_none(),
                "two pods have rank 0"
            );
        }
    }
    let (leading, first) = first.context("no rank 0")?;
    let mut addresses: Vec<&str> = pods
        .iter()
        .filter(|(cluster, _)| *cluster != leading)
        .flat_map(|(_, pods)| pods)
        .map(|pod| environment(pod, "MUSTER_LEADER_ADDRESS").unwrap_or_default())
        .collect();
    addresses.dedup();
    let [address] = addresses[..] else {
        anyhow::bail!("{addresses:?}");
    };
    leads_to(case, members, service_of(case, address)?, first).await?;
    Ok(address.to_owned())
}

/// Returns the rank of a pod of any kind.
fn rank_of(pod: &Value) -> Option<u64> {
    let index = &pod["metadata"]["labels"]["training.kubeflow.org/replica-index"];
    match index.as_str() {
        None => rank(pod).ok(),
        Some(index) => {
            let offset = environment(pod, "MUSTER_RANK_OFFSET")?;
            Some(offset.parse::<u64>().ok()? + index.parse::<u64>().ok()?)
        }
    }
}

/// Returns the Services of this test, and the objects that belong to them, on the control plane and
/// in the members.
async fn left(case: &Case, members: [&str; 2]) -> anyhow::Result<Vec<String>> {
    let mut left = Vec::new();
    let namespace = Some(case.name.as_str());
    let of_services = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        name.contains("muster-")
    };
    let planes = members.map(|member| (member, [SERVICE, ENDPOINT_SLICE].to_vec()));
    for (member, kinds) in planes {
        let objects = case.plane.member(member).await?;
        for kind in kinds {
            let found = objects.list(kind, namespace).await?;
            let found = found.iter().filter(|object| of_services(object));
            left.extend(
                found.map(|object| format!("{member}: {} {}", kind.name, object["metadata"])),
            );
        }
        let execution = format!("karmada-es-{member}");
        let works = case.karmada().list(WORK, Some(&execution)).await?;
        let of_ours = |work: &&Value| {
            let manifests = work["spec"]["workload"]["manifests"].as_array();
            let mut manifests = manifests.into_iter().flatten();
            manifests.any(|manifest| {
                let ours = manifest["metadata"]["namespace"] == case.name.as_str();
                ours && of_services(manifest)
            })
        };
        left.extend(
            works
                .iter()
                .filter(of_ours)
                .map(|work| format!("{member}: Work {}", work["metadata"])),
        );
    }
    for kind in [SERVICE, MULTI_CLUSTER_SERVICE, OVERRIDE_POLICY, BINDING] {
        let found = case.karmada().list(kind, namespace).await?;
        let found = found.iter().filter(|object| of_services(object));
        left.extend(found.map(|object| format!("{} {}", kind.name, object["metadata"])));
    }
    Ok(left)
}

/// Waits until no Service, or none of `of`, is left.
pub(crate) async fn nothing_left(
    case: &Case,
    members: [&str; 2],
    of: Option<&str>,
) -> anyhow::Result<()> {
    eventually(SOON, "nothing is left of its Services", async || {
        let left = left(case, members)
            .await
            .map_err(|error| format!("{error:#}"))?;
        let left: Vec<&String> = left
            .iter()
            .filter(|object| of.is_none_or(|of| object.contains(of)))
            .collect();
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:#?}")),
        }
    })
    .await
}

/// Suspends or resumes a PyTorchJob, as its owner would.
async fn suspend(case: &Case, job: &Job, suspend: bool) -> anyhow::Result<()> {
    let patch = json!({"spec": {"runPolicy": {"suspend": suspend}}});
    let namespace = Some(case.name.as_str());
    case.karmada()
        .merge(job.kind, namespace, &job.name, &patch)
        .await?;
    Ok(())
}

/// Checks that the gang meets at the Service of its master, in this attempt.
async fn meets(case: &Case, job: &Job, attempt: u64) -> anyhow::Result<String> {
    // The status is up to one second old, so it may be that of the previous attempt.
    case.pod_group_when(job, &format!("runs in attempt {attempt}"), |group| {
        let ready = condition(group, "Ready")["status"] == "True";
        ready && group["status"]["federation"]["attempt"] == attempt
    })
    .await?;
    let address = first_is_found(case, job, MEMBERS).await?;
    let names = |cluster: &str| match cluster {
        "member1" | "member2" => vec!["tune-master-0".to_owned(), address.clone()],
        _ => Vec::new(),
    };
    all_meet(case, job, 7, &names).await?;
    Ok(address)
}

/// A master and six workers: all find the master by its Service, although a policy of the user
/// selects Services. A new attempt has a new Service.
pub(crate) async fn pytorch(case: &Case) -> anyhow::Result<()> {
    fleet(case).await?;
    case.policy("all-services", SERVICE, "default-scheduler", json!({}))
        .await?;
    let job = training(case, "tune", 6, free_port()?);
    let job = case.submit(&job).await?;
    let address = meets(case, &job, 1).await?;
    let service = service_of(case, &address)?;
    ensure!(service.starts_with("muster-tune-master-0-"), "{service}");
    let binding = format!("{service}-service");
    let binding = case
        .karmada()
        .get(BINDING, Some(&case.name), &binding)
        .await?;
    let binding = binding.context("Karmada has no binding of the Service")?;
    let policy = "propagationpolicy.karmada.io/permanent-id";
    assert_eq!(binding["metadata"]["labels"][policy], Value::Null);
    assert_eq!(binding["spec"]["suspension"], Value::Null, "not gated");

    let held = case.hold_works([&job]).await?;
    suspend(case, &job, true).await?;
    case.amid_evict(None, &[&job]).await?;
    case.lift(&held).await?;
    nothing_left(case, MEMBERS, Some(service)).await?;
    suspend(case, &job, false).await?;
    case.binding_when(&job, "placed again", |binding| {
        record(binding)["parts"] == "Dispatched"
    })
    .await?;
    let next = meets(case, &job, 2).await?;
    ensure!(next != address, "the Service of an attempt that is over");

    case.end(&job).await?;
    case.finished(&job, "Succeeded").await?;
    case.delete(&job).await?;
    case.gone(&job).await?;
    nothing_left(case, MEMBERS, None).await?;
    let report = case.audit(24, [&job])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

/// Every pod of a TFJob has a Service, by which all find each other.
pub(crate) async fn tensorflow(case: &Case) -> anyhow::Result<()> {
    fleet(case).await?;
    let job = case.submit(&crate::cluster_spec::training(case)).await?;
    case.running(&job).await?;
    let pods = pods_of(case, &job).await?;
    let mut names = BTreeMap::new();
    for service in case.karmada().list(SERVICE, Some(&case.name)).await? {
        let service = service["metadata"]["name"].as_str().unwrap_or_default();
        let found = |pod: &&Value| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            service.starts_with(&format!("muster-{name}-"))
        };
        // Both clusters have a worker 0: the provider cluster shows whose Service this is.
        let mcs = case
            .karmada()
            .get(MULTI_CLUSTER_SERVICE, Some(&case.name), service)
            .await?;
        let mcs = mcs.with_context(|| format!("no MultiClusterService {service}"))?;
        let provider = mcs["spec"]["providerClusters"][0]["name"].as_str();
        let provider = provider.unwrap_or_default();
        let pod = pods[provider].iter().find(found);
        let pod = pod.with_context(|| format!("{service} is of no pod in {provider}"))?;
        leads_to(case, MEMBERS, service, pod).await?;
        let uid = pod["metadata"]["uid"].to_string();
        names.insert(uid, format!("{service}.{}.svc", case.name));
    }
    assert_eq!(names.len(), 7, "{names:?}");
    let elsewhere = |_: &str, _: &str, pod: &Value| {
        let uid = pod["metadata"]["uid"].to_string();
        names.get(&uid).cloned().unwrap_or_default()
    };
    crate::cluster_spec::all_meet(case, &job, &elsewhere).await?;
    case.amid_deletion(&job).await?;
    nothing_left(case, MEMBERS, None).await
}

/// Checks that a Service resolves to the first pod of a job, and that it is gone when the job is.
async fn found_and_gone(case: &Case, template: &Value) -> anyhow::Result<()> {
    let job = case.submit(template).await?;
    case.running(&job).await?;
    let address = first_is_found(case, &job, MEMBERS).await?;
    println!("{}: {address}", job.name);
    case.amid_deletion(&job).await?;
    nothing_left(case, MEMBERS, None).await
}

/// Returns a Volcano Job without its plugin svc.
fn volcano_job(case: &Case) -> Value {
    crate::split::training(case, "volcano", 6)
}

/// Returns an indexed Job without a Service of the user.
fn indexed_job(case: &Case) -> Value {
    let mut indexed = case.gang("indexed", 7, 2).batch();
    indexed["spec"]["completionMode"] = json!("Indexed");
    annotated(indexed, "muster.io/split", "Allowed")
}

/// Returns a JobSet with a coordinator.
fn job_set(case: &Case) -> Value {
    crate::job_set::led(case, "set", 6)
}

/// Checks the first pod of each of the other kinds.
async fn other_kinds(case: &Case) -> anyhow::Result<()> {
    fleet(case).await?;
    for template in [volcano_job(case), indexed_job(case), job_set(case)] {
        found_and_gone(case, &template).await?;
    }
    Ok(())
}

/// Checks a Volcano Job alone, as a story with one middle.
pub(crate) async fn volcano(case: &Case) -> anyhow::Result<()> {
    fleet(case).await?;
    found_and_gone(case, &volcano_job(case)).await
}

/// Checks an indexed Job alone.
pub(crate) async fn indexed(case: &Case) -> anyhow::Result<()> {
    fleet(case).await?;
    found_and_gone(case, &indexed_job(case)).await
}

/// Checks a JobSet alone.
pub(crate) async fn set(case: &Case) -> anyhow::Result<()> {
    fleet(case).await?;
    found_and_gone(case, &job_set(case)).await
}

#[test]
fn a_pytorchjob_meets_at_the_service_of_its_master() {
    managed("servetorch", pytorch);
}

#[test]
fn a_tfjob_has_a_service_for_each_of_its_pods() {
    managed("servetf", tensorflow);
}

#[test]
fn the_first_pod_of_other_kinds_is_found_by_a_service() {
    managed("servekinds", other_kinds);
}
