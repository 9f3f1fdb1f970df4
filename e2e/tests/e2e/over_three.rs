//! Every kind that may be split, over three clusters, with parts of different size: each pod of the
//! gang has a unique rank. For Volcano Jobs a third member with Volcano joins.

use std::collections::BTreeMap;

use anyhow::Context as _;
use e2e::harness::jobs::annotated;
use serde_json::{Value, json};
use testbed::{SyncMode, free_port};

use crate::case::Case;
use crate::job::Job;
use crate::plane::MEMBERS;
use crate::split::{environment, pods_in, pods_of, rank, training};
use crate::story::managed;

/// Pods with two GPUs each; a member has capacity for four.
const PODS: u32 = 10;

/// Checks that each rank from 0 to `size` belongs to one pod, and that the variables of every pod
/// have its cluster, three clusters and the size of the gang. Placeholders for pods of another
/// cluster and submitters of RayJobs do not count.
async fn ranks_are_whole(case: &Case, job: &Job, size: u32) -> anyhow::Result<()> {
    let mut pods: BTreeMap<String, Vec<Value>> = pods_of(case, job).await?;
    for pods in pods.values_mut() {
        pods.retain(|pod| pod["spec"]["schedulingGates"].is_null());
        pods.retain(|pod| environment(pod, "MUSTER_CLUSTER").is_some());
    }
    let members: Vec<&str> = pods.keys().map(String::as_str).collect();
    assert_eq!(members, MEMBERS, "{}", job.name);
    let mut ranks = Vec::new();
    for (cluster, pods) in &pods {
        for pod in pods {
            ranks.push(rank(pod).with_context(|| format!("{} in {cluster}", job.name))?);
            let told = |name| environment(pod, name).unwrap_or_default();
            assert_eq!(told("MUSTER_CLUSTER"), cluster);
            assert_eq!(told("MUSTER_CLUSTERS").split(',').count(), 3);
            assert_eq!(told("MUSTER_GANG_SIZE"), size.to_string(), "{}", job.name);
        }
    }
    ranks.sort_unstable();
    assert_eq!(
        ranks,
        (0..u64::from(size)).collect::<Vec<_>>(),
        "{}",
        job.name
    );
    Ok(())
}

async fn each_kind(case: &Case) -> anyhow::Result<()> {
    case.queue(2 * PODS).await?;
    for member in MEMBERS {
        case.nodes(member, 1).await?;
    }
    let address = "{host}.{namespace}.svc.{cluster}.fleet.example";
    let addresses = json!({"spec": {"placement": {"addresses": {"*": address}}}});
    case.capacity_policy(addresses).await?;

    let gang = |name: &str| case.gang(name, PODS, 2);
    let asks = |template: Value| annotated(template, "muster.io/split", "Allowed");
    let mut tensorflow = crate::cluster_spec::training(case);
    tensorflow["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = json!(PODS - 2);
    let mpi = annotated(gang("mpi").mpi(), "muster.io/ssh-auth-secret", "keys");
    for (template, size) in [
        (
            crate::rendezvous::training(case, "torch", PODS - 1, free_port()?),
            PODS,
        ),
        (tensorflow, PODS),
        (crate::job_set::led(case, "set", PODS - 1), PODS),
        (asks(mpi), PODS + 1),
        (asks(gang("nodes").ray_cluster()), PODS),
        (asks(gang("search").ray_job()), PODS),
    ] {
        let job = case.submit(&template).await?;
        case.running(&job).await?;
        ranks_are_whole(case, &job, size).await?;
        case.delete(&job).await?;
        case.gone(&job).await?;
    }
    Ok(())
}

/// Returns a Volcano Job of a master and nine workers over these members.
async fn volcano(case: &Case, members: [&str; 3]) -> anyhow::Result<()> {
    for member in &members[..2] {
        case.nodes(member, 1).await?;
    }
    let job = case.submit(&training(case, "train", PODS - 1)).await?;
    case.running(&job).await?;
    let pods = pods_in(case, &job, &members).await?;
    let sizes: Vec<usize> = members.iter().map(|member| pods[*member].len()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), PODS as usize, "{sizes:?}");
    let ranks = pods.values().flatten().map(rank);
    let mut ranks = ranks.collect::<anyhow::Result<Vec<_>>>()?;
    ranks.sort_unstable();
    assert_eq!(ranks, (0..u64::from(PODS)).collect::<Vec<_>>());
    case.delete(&job).await?;
    case.gone(&job).await
}

#[test]
#[ignore = "soak"]
fn a_volcano_job_has_its_ranks_over_three_clusters() {
    managed("threevolcano", async |case| {
        case.queue(2 * PODS).await?;
        let testbed = &case.plane.testbed;
        let third = case.own_member("third", SyncMode::Push);
        testbed.add_member(&third).await?;
        let outcome = volcano(case, [MEMBERS[0], MEMBERS[1], "third"]).await;
        let removed = testbed.remove_member("third").await;
        outcome?;
        Ok(removed?)
    });
}

#[test]
fn every_kind_that_may_be_split_has_its_ranks_over_three_clusters() {
    managed("three", each_kind);
}
