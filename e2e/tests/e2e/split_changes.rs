//! Changes under gangs over several clusters: drained clusters, cordoned nodes, a template that
//! grows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::annotated;
use e2e::harness::kinds::{BATCH_JOB, CLUSTER, PROPAGATION_POLICY};
use e2e::harness::wait::never_within;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case};
use crate::job::{Job, clusters, record};
use crate::plane::{MEMBERS, SPARES};
use crate::split::{environment, pods_of, ranks_are_whole};
use crate::story::{managed, managed_with_spare};

const DRAINED: &str = SPARES[0];

/// A cluster is drained: the whole gang leaves it, and runs where no cluster is drained.
async fn drained(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    for member in [MEMBERS[0], DRAINED, MEMBERS[2]] {
        case.nodes(member, 1).await?;
    }
    let first = json!({"spec": {"placement": {"preferredClusters": [DRAINED]}}});
    case.capacity_policy(first).await?;
    let mut template = annotated(case.gang("array", 6, 2).batch(), "muster.io/split", "2");
    template["spec"]["completionMode"] = json!("Indexed");
    let job = case.submit(&template).await?;
    case.running(&job).await?;
    let before = case.placed(&job).await?;
    ensure!(
        before.iter().any(|cluster| cluster == DRAINED),
        "{before:?}"
    );
    let drain = |on: Value| {
        let patch = json!({"metadata": {"annotations": {"muster.io/drain": on}}});
        let clusters = case.karmada();
        async move { clusters.merge(CLUSTER, None, DRAINED, &patch).await }
    };
    drain(json!("true")).await?;
    let elsewhere = |binding: &Value| {
        let clusters = clusters(binding);
        !clusters.is_empty() && clusters.iter().all(|cluster| cluster != DRAINED)
    };
    let moved = case.binding_when(&job, "elsewhere", elsewhere).await;
    let moved = match moved {
        Ok(binding) => case.running(&job).await.map(|_| binding),
        Err(error) => Err(error),
    };
    drain(Value::Null).await?;
    let attempt = record(&moved?)["attempt"].as_u64().unwrap_or_default();
    assert!(attempt > 1, "attempt {attempt}");
    let attempt = attempt.to_string();
    ranks_are_whole(case, &job, 6).await?;
    for pods in pods_of(case, &job).await?.values() {
        for pod in pods {
            assert_eq!(environment(pod, "MUSTER_ATTEMPT"), Some(&*attempt));
        }
    }
    Ok(())
}

/// The nodes of a part are cordoned between the decision and the dispatch: at the deadline all
/// parts are evicted, and the gang goes where capacity is left.
async fn cordoned(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    let deadline = json!({"spec": {"placement": {"startDeadlineSeconds": 20}}});
    case.capacity_policy(deadline).await?;
    case.nodes("member1", 1).await?;
    let cordoned = case.nodes("member2", 1).await?;
    // The policy suspends the dispatch of what is placed.
    let held = json!({"suspension": {"dispatching": true}, "placement": {}});
    case.policy("held", BATCH_JOB, "muster", held).await?;
    let gang = case.gang("array", 6, 2).batch();
    let job = case
        .submit(&annotated(gang, "muster.io/split", "Allowed"))
        .await?;
    assert_eq!(case.placed(&job).await?, ["member1", "member2"]);
    let testbed = &case.plane.testbed;
    testbed.cordon("member2", &cordoned[0], true).await?;
    case.nodes("member3", 1).await?;
    let open = json!({"spec": {"suspension": null}});
    let namespace = Some(case.name.as_str());
    case.karmada()
        .merge(PROPAGATION_POLICY, namespace, "held", &open)
        .await?;
    let elsewhere = |binding: &Value| clusters(binding) == ["member1", "member3"];
    case.binding_when(&job, "elsewhere", elsewhere).await?;
    case.running(&job).await?;
    let pods = pods_of(case, &job).await?;
    assert_eq!(pods.keys().collect::<Vec<_>>(), ["member1", "member3"]);
    Ok(())
}

/// A job in parts cannot grow after its admission, whatever its kind.
async fn grown(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 2).await?;
    let mut gang = case.gang("array", 6, 2).batch();
    gang["spec"]["completions"] = json!(12);
    let job = case
        .submit(&annotated(gang, "muster.io/split", "2"))
        .await?;
    case.running(&job).await?;
    let before = pods_by_cluster(case, &job).await?;
    assert_eq!(before.values().map(BTreeSet::len).sum::<usize>(), 6);
    let more = json!({"spec": {"parallelism": 8}});
    let namespace = Some(case.name.as_str());
    let refused = case
        .karmada()
        .merge(job.kind, namespace, &job.name, &more)
        .await;
    let message = refused.err().context("the job grew")?.to_string();
    for word in ["cannot grow", "6 -> 8", "parts", "submit it again"] {
        ensure!(message.contains(word), "{word}: {message}");
    }
    // A smaller size is always allowed.
    let less = json!({"spec": {"parallelism": 5}});
    case.karmada()
        .merge(job.kind, namespace, &job.name, &less)
        .await?;
    never_within(A_WHILE, "a change of its pods", async || {
        let now = pods_by_cluster(case, &job).await;
        let now = now.map_err(|error| error.to_string())?;
        match now == before {
            true => Ok(()),
            false => Err(format!("{now:?}, not {before:?}")),
        }
    })
    .await
}

/// Returns the UIDs of a job's pods in each cluster, including those that are being deleted.
async fn pods_by_cluster(
    case: &Case,
    job: &Job,
) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let uid = |pod: Value| pod["metadata"]["uid"].to_string();
    let pods = pods_of(case, job).await?.into_iter();
    let uids = pods.map(|(cluster, pods)| (cluster, pods.into_iter().map(uid).collect()));
    Ok(uids.collect())
}

#[test]
fn a_gang_whose_nodes_are_cordoned_before_it_is_dispatched_goes_elsewhere() {
    managed("splitcordon", cordoned);
}

#[test]
fn a_gang_in_parts_does_not_grow() {
    managed("splitgrow", grown);
}

#[test]
fn a_gang_leaves_a_cluster_that_is_drained() {
    managed_with_spare(DRAINED, "splitdrain", drained);
}
