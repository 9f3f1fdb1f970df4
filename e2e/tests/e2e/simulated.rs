//! `kubectl muster simulate` tells what then happens: each change is simulated, then made, and the jobs are compared.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::TestGang;
use e2e::harness::kinds::{CAPACITY_POLICY, CLUSTER, EVENT, NODE, POD};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::NodeGroup;

use crate::case::{Case, SOON};
use crate::cli::MusterCli;
use crate::contest::SHORT;
use crate::job::{Job, is_placed, record};
use crate::plane::{SPARES, state_dir};
use crate::story::{managed, managed_with_spare};

/// The member that is drained.
const DRAINED: &str = SPARES[0];

/// The jobs of the story by the names of their PodGroups, and what has been compared.
struct Compared<'a> {
    case: &'a Case,
    admin: MusterCli<'a>,
    jobs: BTreeMap<String, Job>,
    fates: usize,
}

impl<'a> Compared<'a> {
    fn of(case: &'a Case) -> Self {
        Self {
            case,
            admin: MusterCli::of_admin(case),
            jobs: BTreeMap::new(),
            fates: 0,
        }
    }

    /// Simulates a change.
    async fn simulate(&self, flags: &str) -> anyhow::Result<Value> {
        let line = format!("simulate {flags} -o json");
        Ok(serde_json::from_str(&self.admin.done(&line).await?)?)
    }

    /// Simulates jobs, and submits them.
    async fn submit(&mut self, templates: &[Value]) -> anyhow::Result<Value> {
        let file = self.file(&json!({"items": templates}))?;
        let simulated = self.simulate(&format!("--job {file}")).await?;
        let fates = simulated["jobs"].as_array().context("jobs")?;
        for template in templates {
            let job = self.case.submit(template).await?;
            let name = job.binding();
            let mut fates = fates.iter();
            let fate =
                fates.find(|fate| fate["namespace"] == self.case.name && fate["name"] == name);
            // Karmada makes bindings in no order.
            match fate.context("its fate")?["outcome"] == "Starts" {
                true => drop(self.case.placed(&job).await?),
                false => drop(self.case.gated(&job).await?),
            }
            self.jobs.insert(name, job);
        }
        Ok(simulated)
    }

    /// Writes a manifest and returns its path.
    fn file(&self, object: &Value) -> anyhow::Result<String> {
        let folder = state_dir(&self.case.name);
        std::fs::create_dir_all(&folder)?;
        let path = folder.join("change.json");
        std::fs::write(&path, object.to_string())?;
        Ok(path.display().to_string())
    }

    /// Returns where each job is placed, as text.
    async fn placed(&self) -> Result<BTreeMap<String, String>, String> {
        let mut placed = BTreeMap::new();
        for (name, job) in &self.jobs {
            let binding = self.case.binding(job).await?.unwrap_or_default();
            if is_placed(&binding) {
                placed.insert(name.clone(), shares(&binding));
            }
        }
        Ok(placed)
    }

    /// Waits until all that was simulated has come true, and until no other job is placed otherwise than `before`.
    async fn comes_true(
        &mut self,
        what: &str,
        simulated: &Value,
        before: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        let fates = simulated["jobs"].as_array().context("jobs")?;
        let ours = fates.iter().filter(|fate| {
            let name = fate["name"].as_str().unwrap_or_default();
            fate["namespace"] == self.case.name && self.jobs.contains_key(name)
        });
        let ours: Vec<&Value> = ours.collect();
        let mut expected = before.clone();
        for fate in &ours {
            let name = fate["name"].as_str().unwrap_or_default().to_owned();
            match summary(&fate["after"]) {
                None => _ = expected.remove(&name),
                Some(after) => _ = expected.insert(name, after),
            }
        }
        eventually(SOON, &format!("{what} as simulated"), async || {
            let placed = self.placed().await?;
            if placed != expected {
                return Err(format!("placed {placed:?}, simulated {expected:?}"));
            }
            for fate in &ours {
                self.has_reason(fate).await?;
            }
            Ok(())
        })
        .await?;
        // What makes no difference is a case of its own.
        self.fates += ours.len().max(1);
        Ok(())
    }

    /// Checks that a job which waits or was evicted gives the reason that was simulated.
    async fn has_reason(&self, fate: &Value) -> Result<(), String> {
        let name = fate["name"].as_str().unwrap_or_default();
        let group = self.case.pod_group(&self.jobs[name]).await?;
        let shown = group.unwrap_or_default()["status"]["federation"].clone();
        let (reason, wanted) = match fate["outcome"].as_str() {
            Some("Waits") => (&shown["reason"], &fate["reason"]),
            Some("Evicted") => (&shown["eviction"]["reason"], &fate["reason"]),
            // It may run elsewhere by now, and its status then says nothing of its eviction.
            Some("Moves") => return self.was_told(name, &fate["reason"]).await,
            _ => return Ok(()),
        };
        let short = |reason: &Value| SHORT.iter().any(|short| reason == short);
        match reason == wanted || short(reason) && short(wanted) {
            true => Ok(()),
            false => Err(format!("{name}: reason {reason}, simulated {wanted}")),
        }
    }
}

impl Compared<'_> {
    /// Checks that the user of a job was told of this reason by an event.
    async fn was_told(&self, name: &str, reason: &Value) -> Result<(), String> {
        let job = &self.jobs[name];
        let events = self.case.karmada().list(EVENT, Some(&job.namespace)).await;
        let events = events.map_err(|error| error.to_string())?;
        let of = |event: &&Value| event["involvedObject"]["name"] == job.name.as_str();
        let told: Vec<&Value> = events.iter().filter(of).map(|of| &of["reason"]).collect();
        match told.contains(&reason) {
            true => Ok(()),
            false => Err(format!("{name}: events {told:?}, simulated {reason}")),
        }
    }
}

/// Returns the pods of a placed job by cluster, as text.
fn shares(binding: &Value) -> String {
    let record = record(binding);
    let clusters = record["clusters"].as_array().into_iter().flatten();
    let parts = clusters.map(|share| {
        let pods = share["pods"].as_array().into_iter().flatten();
        let pods: u64 = pods.filter_map(|pods| pods["count"].as_u64()).sum();
        (share["name"].as_str().unwrap_or_default().to_owned(), pods)
    });
    text(parts.collect())
}

/// Returns the pods by cluster of a simulation as text; `None` if there are none.
fn summary(after: &Value) -> Option<String> {
    let parts = after.as_object()?.iter();
    let parts = parts.map(|(name, pods)| (name.clone(), pods.as_u64().unwrap_or_default()));
    Some(text(parts.collect())).filter(|text| !text.is_empty())
}

fn text(parts: BTreeMap<String, u64>) -> String {
    let parts = parts.iter().map(|(name, pods)| format!("{name}:{pods}"));
    parts.collect::<Vec<_>>().join(",")
}

/// Jobs are submitted to a queue of 24 GPUs: some start, others cannot, and one is made room for.
async fn submitted(compared: &mut Compared<'_>) -> anyhow::Result<()> {
    let case = compared.case;
    let mut held = case.gang("held", 1, 4).batch();
    held["metadata"]["labels"]["muster.io/hold"] = json!("true");
    let unknown = TestGang {
        queue: Some("no-such-queue".to_owned()),
        ..case.gang("unknown", 1, 4)
    };
    let classless = TestGang {
        priority_class: Some("no-such-class".to_owned()),
        ..case.gang("classless", 1, 4)
    };
    let templates = [
        case.gang("a", 1, 8).batch(),
        case.gang("b", 2, 4).volcano(),
        case.gang("c", 1, 4).batch(),
        case.gang("d", 1, 8).batch(),
        case.gang("giant", 1, 16).batch(),
        held,
        unknown.batch(),
        classless.batch(),
    ];
    let simulated = compared.submit(&templates).await?;
    let new = simulated["jobs"].as_array().map_or(0, Vec::len);
    ensure!(new >= templates.len(), "{simulated}");
    compared
        .comes_true("jobs", &simulated, &BTreeMap::new())
        .await?;
    for name in ["a-job", "b-job", "c-job"] {
        case.running(&compared.jobs[name]).await?;
    }
    let before = compared.placed().await.map_err(anyhow::Error::msg)?;
    let class = case.preempting_class("urgent", 100).await?;
    let urgent = TestGang {
        priority_class: Some(class),
        ..case.gang("urgent", 1, 8)
    };
    let simulated = compared.submit(&[urgent.batch()]).await?;
    compared.comes_true("preemption", &simulated, &before).await
}

/// The quota is lowered below what runs, and raised again; the policy drains the queue.
async fn edited(compared: &mut Compared<'_>) -> anyhow::Result<()> {
    let case = compared.case;
    for gpus in [8, 24, 28] {
        let before = compared.placed().await.map_err(anyhow::Error::msg)?;
        let flags = format!(
            "--queue {} --set capability.nvidia.com/gpu={gpus}",
            case.name
        );
        let simulated = compared.simulate(&flags).await?;
        let capability = json!({"capability": {"nvidia.com/gpu": gpus}});
        case.change_queue(&case.name, capability).await?;
        let what = format!("a quota of {gpus}");
        compared.comes_true(&what, &simulated, &before).await?;
    }
    Ok(())
}

/// A queue reclaims what it deserves, and loses it when it is stopped.
async fn reclaimed(compared: &mut Compared<'_>) -> anyhow::Result<()> {
    let case = compared.case;
    // A class of nodes of its own keeps the other jobs of the story out of it.
    let product = format!("{}-B", case.product);
    let group = NodeGroup {
        count: 1,
        prefix: Some(format!("{}-b", case.name)),
        product: Some(product.clone()),
        ..NodeGroup::default()
    };
    case.nodes_like("member3", &group).await?;
    let half = json!({"deserved": {"nvidia.com/gpu": 4}, "capability": {"nvidia.com/gpu": 8}});
    let left = case.queue_of("left", half.clone()).await?;
    let right = case.queue_of("right", half).await?;
    let before = compared.placed().await.map_err(anyhow::Error::msg)?;
    let of = |queue: &str, name: &str| {
        let gang = TestGang {
            product: Some(product.clone()),
            ..case.gang_in(queue, name, 1, 4)
        };
        gang.batch()
    };
    let both = [of(&left, "left-a"), of(&left, "left-b")];
    let simulated = compared.submit(&both).await?;
    compared
        .comes_true("borrowing", &simulated, &before)
        .await?;
    for name in ["left-a-job", "left-b-job"] {
        case.running(&compared.jobs[name]).await?;
    }
    let before = compared.placed().await.map_err(anyhow::Error::msg)?;
    let simulated = compared.submit(&[of(&right, "right")]).await?;
    compared.comes_true("reclaim", &simulated, &before).await?;
    case.running(&compared.jobs["right-job"]).await?;

    let before = compared.placed().await.map_err(anyhow::Error::msg)?;
    let policy = json!({
        "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy",
        "metadata": {"name": right}, "spec": {"stopPolicy": "HoldAndDrain"},
    });
    let file = compared.file(&policy)?;
    let simulated = compared.simulate(&format!("-f {file}")).await?;
    let stop = json!({"spec": policy["spec"]});
    case.karmada()
        .merge(CAPACITY_POLICY, None, &right, &stop)
        .await?;
    compared.comes_true("a stop", &simulated, &before).await
}

/// A cluster is drained. What ran there has no room elsewhere.
async fn drained(compared: &mut Compared<'_>) -> anyhow::Result<()> {
    let case = compared.case;
    let urgent = compared.jobs.remove("urgent-job").context("urgent")?;
    case.delete(&urgent).await?;
    case.gone(&urgent).await?;
    case.running(&compared.jobs["c-job"]).await?;
    let before = compared.placed().await.map_err(anyhow::Error::msg)?;
    let there = before.values().any(|shares| shares.contains(DRAINED));
    ensure!(there, "no job runs in {DRAINED}: {before:?}");
    let flags = format!("--without-cluster {DRAINED}");
    let simulated = compared.simulate(&flags).await?;
    let annotate = |on: Value| json!({"metadata": {"annotations": {"muster.io/drain": on}}});
    let drain = annotate(json!("true"));
    case.karmada().merge(CLUSTER, None, DRAINED, &drain).await?;
    let came = compared.comes_true("a drain", &simulated, &before).await;
    let undrain = annotate(Value::Null);
    case.karmada()
        .merge(CLUSTER, None, DRAINED, &undrain)
        .await?;
    came
}

async fn twenty_cases(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    let policy = json!({"spec": {"preemption": {"withinQueue": "LowerPriority"}}});
    case.capacity_policy(policy).await?;
    case.nodes(DRAINED, 1).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let mut compared = Compared::of(case);
    submitted(&mut compared).await?;
    edited(&mut compared).await?;
    reclaimed(&mut compared).await?;
    drained(&mut compared).await?;
    ensure!(compared.fates >= 20, "only {} cases", compared.fates);
    Ok(())
}

/// Returns the nodes of a job's running pods in its cluster, with the pod on each.
async fn nodes_of(case: &Case, job: &Job) -> anyhow::Result<BTreeMap<String, String>> {
    let cluster = case.placed(job).await?.join(" and ");
    let pods = case.pods(&cluster).await?;
    let own = pods.iter().filter(|pod| {
        let there = pod["metadata"]["deletionTimestamp"].is_null();
        job.owns(pod) && there && pod["status"]["phase"] == "Running"
    });
    let nodes = own.filter_map(|pod| {
        let node = pod["spec"]["nodeName"].as_str()?;
        let name = pod["metadata"]["name"].as_str()?;
        Some((node.to_owned(), name.to_owned()))
    });
    Ok(nodes.collect())
}

/// Simulates that a node of a running job is gone, deletes the node and the pod on it, and returns the job's fate and
/// the node.
async fn without_a_node(
    compared: &mut Compared<'_>,
    job: &Job,
    cluster: &str,
) -> anyhow::Result<(Value, String)> {
    let case = compared.case;
    let nodes = nodes_of(case, job).await?;
    let (node, pod) = nodes.into_iter().next().context("no node")?;
    let before = compared.placed().await.map_err(anyhow::Error::msg)?;
    let simulated = compared
        .simulate(&format!("--without-node {cluster}/{node}"))
        .await?;
    let member = case.plane.member(cluster).await?;
    member.delete(NODE, None, &node).await?;
    // A member's controller does so too, after a minute.
    member.delete_at_once(POD, Some(&case.name), &pod).await?;
    let what = format!("no node {node}");
    compared.comes_true(&what, &simulated, &before).await?;
    let mut fates = simulated["jobs"].as_array().into_iter().flatten();
    let fate = fates.find(|fate| fate["name"] == job.binding());
    Ok((fate.context("its fate")?.clone(), node))
}

/// A gang loses a node: it moves where its cluster has no other, and recovers where there is one. What would start
/// on a node waits if that is cordoned.
async fn nodes_lost(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    let policy = json!({"spec": {"placement": {"preferredClusters": ["member1"]}}});
    case.capacity_policy(policy).await?;
    let first = case.nodes("member1", 2).await?;
    case.nodes("member2", 3).await?;
    let mut compared = Compared::of(case);
    let before = BTreeMap::new();
    let mut pair = case.gang("pair", 2, 8).batch();
    // As by default: a Job without retries fails with the first pod that it loses, and recovers nowhere.
    pair["spec"]["backoffLimit"] = json!(6);
    let simulated = compared.submit(&[pair]).await?;
    compared.comes_true("a gang", &simulated, &before).await?;
    let pair = compared.jobs["pair-job"].clone();
    case.running(&pair).await?;
    ensure!(case.placed(&pair).await? == ["member1"], "not in member1");

    let (fate, gone) = without_a_node(&mut compared, &pair, "member1").await?;
    let moves = fate["outcome"] == "Moves" && fate["reason"] == "PodsLost";
    ensure!(moves, "{fate}");
    case.running(&pair).await?;
    let (fate, lost) = without_a_node(&mut compared, &pair, "member2").await?;
    ensure!(fate["outcome"] == "Recovers", "{fate}");
    eventually(SOON, "the pair runs on two other nodes", async || {
        let nodes = nodes_of(case, &pair).await;
        let nodes = nodes.map_err(|error| error.to_string())?;
        match nodes.len() == 2 && !nodes.contains_key(&lost) {
            true => Ok(()),
            false => Err(format!("{nodes:?}, and {lost} is gone")),
        }
    })
    .await?;
    let binding = case.binding(&pair).await.map_err(anyhow::Error::msg)?;
    let record = record(&binding.unwrap_or_default());
    ensure!(record["attempt"] == 2, "not its second attempt: {record}");

    let left = first.iter().find(|node| **node != gone);
    let left = left.context("no node is left")?;
    let single = case.gang("single", 1, 8).batch();
    let file = compared.file(&json!({"items": [single]}))?;
    let flags = format!("--without-node member1/{left} --job {file}");
    let simulated = compared.simulate(&flags).await?;
    let fate = &simulated["jobs"][0];
    ensure!(fate["outcome"] == "Waits", "{simulated}");
    case.plane.testbed.cordon("member1", left, true).await?;
    let before = compared.placed().await.map_err(anyhow::Error::msg)?;
    let single = case.submit(&single).await?;
    case.gated(&single).await?;
    compared.jobs.insert(single.binding(), single.clone());
    compared.comes_true("a cordon", &simulated, &before).await?;
    case.plane.testbed.cordon("member1", left, false).await?;
    case.running(&single).await.map(drop)
}

#[test]
fn what_is_simulated_without_a_node_is_what_then_happens() {
    managed("simulatednode", nodes_lost);
}

#[test]
fn what_is_simulated_is_what_then_happens_in_twenty_cases() {
    managed_with_spare(DRAINED, "simulated", twenty_cases);
}
