//! `kubectl muster simulate` tells what then happens: each change is simulated, then made, and the jobs are compared.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::TestGang;
use e2e::harness::kinds::{CAPACITY_POLICY, CLUSTER};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::NodeGroup;

use crate::case::{Case, SOON};
use crate::cli::MusterCli;
use crate::contest::SHORT;
use crate::job::{Job, is_placed, record};
use crate::plane::{SPARES, state_dir};
use crate::story::managed_with_spare;

/// The member that is drained.
const DRAINED: &str = SPARES[0];

/// The jobs of the story by the names of their PodGroups, and what has been compared.
struct Compared<'a> {
    case: &'a Case,
    admin: MusterCli<'a>,
    jobs: BTreeMap<String, Job>,
    fates: usize,
}

impl Compared<'_> {
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
        let folder = state_dir("simulated");
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
            Some("Evicted" | "Moves") => (&shown["eviction"]["reason"], &fate["reason"]),
            _ => return Ok(()),
        };
        let short = |reason: &Value| SHORT.iter().any(|short| reason == short);
        match reason == wanted || short(reason) && short(wanted) {
            true => Ok(()),
            false => Err(format!("{name}: reason {reason}, simulated {wanted}")),
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
        "apiVersion": "muster.io/v1alpha1", "kind": "CapacityPolicy",
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
    let policy = json!({"spec": {"preemption": {"withinQueue": true}}});
    case.capacity_policy(policy).await?;
    case.nodes(DRAINED, 1).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let mut compared = Compared {
        case,
        admin: MusterCli::of_admin(case),
        jobs: BTreeMap::new(),
        fates: 0,
    };
    submitted(&mut compared).await?;
    edited(&mut compared).await?;
    reclaimed(&mut compared).await?;
    drained(&mut compared).await?;
    ensure!(compared.fates >= 20, "only {} cases", compared.fates);
    Ok(())
}

#[test]
fn what_is_simulated_is_what_then_happens_in_twenty_cases() {
    managed_with_spare(DRAINED, "simulated", twenty_cases);
}
