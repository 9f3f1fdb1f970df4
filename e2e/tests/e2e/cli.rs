//! `kubectl muster`: each command on a real control plane, by the tenant or by the administrator.

use std::process::{Output, Stdio};

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::TestGang;
use e2e::harness::kinds::CAPACITY_POLICY;
use e2e::harness::muster;
use e2e::harness::tenant::Tenant;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::tools::{self, Tool, Toolset};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::case::{Case, SOON};
use crate::job::Job;
use crate::plane::state_dir;
use crate::story::managed;

/// `kubectl-muster` with the connection of a user.
pub(crate) struct MusterCli<'a> {
    case: &'a Case,
    user: Option<String>,
}

/// What a command printed.
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Printed {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

impl<'a> MusterCli<'a> {
    /// Returns it with the connection of the administrator.
    pub(crate) fn of_admin(case: &'a Case) -> Self {
        Self { case, user: None }
    }

    /// Returns it with the connection of a tenant.
    pub(crate) fn of(case: &'a Case, tenant: &Tenant) -> Self {
        Self {
            case,
            user: Some(tenant.user.clone()),
        }
    }

    pub(crate) fn command(&self, line: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(muster::built("kubectl-muster")?);
        command
            .arg("--kubeconfig")
            .arg(self.case.plane.testbed.karmada().kubeconfig)
            .arg(format!("--namespace={}", self.case.name))
            .args(self.user.iter().map(|user| format!("--as={user}")))
            .args(line.split_whitespace())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }

    pub(crate) async fn run(&self, line: &str) -> anyhow::Result<Printed> {
        Ok(Printed::of(&self.command(line)?.output().await?))
    }

    /// Has kubectl complete a command line of the plugin, and returns its answer.
    async fn through_kubectl(&self, line: &str) -> anyhow::Result<Printed> {
        let tools = tools::ensure(&[Toolset::Kubernetes], &|line| eprintln!("{line}"))?;
        let folder = state_dir("plugins");
        std::fs::create_dir_all(&folder)?;
        let program = muster::built("kubectl-muster")?;
        for name in ["kubectl-muster", "kubectl_complete-muster"] {
            let link = folder.join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(&program, link)?;
            }
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new(tools.program(Tool::Kubectl)?)
            .env("PATH", format!("{}:{path}", folder.display()))
            .env("KUBECONFIG", self.case.plane.testbed.karmada().kubeconfig)
            .args(["__complete", "muster", "--namespace", &self.case.name])
            .args(self.user.iter().map(|user| format!("--as={user}")))
            .args(line.split_whitespace())
            .kill_on_drop(true)
            .output()
            .await?;
        Ok(Printed::of(&output))
    }

    /// Runs a command that succeeds, and returns its standard output.
    pub(crate) async fn done(&self, line: &str) -> anyhow::Result<String> {
        let printed = self.run(line).await?;
        let succeeded = printed.code == Some(0);
        ensure!(succeeded, "{line}: {} {}", printed.out, printed.err);
        Ok(printed.out)
    }

    /// Runs a command that fails, and returns its standard error.
    pub(crate) async fn fails(&self, line: &str, code: i32) -> anyhow::Result<String> {
        let printed = self.run(line).await?;
        let failed = printed.code == Some(code);
        ensure!(
            failed,
            "{line}: {:?} {} {}",
            printed.code,
            printed.out,
            printed.err
        );
        Ok(printed.err)
    }
}

async fn labels(case: &Case, job: &Job) -> anyhow::Result<Value> {
    let template = case.template(job).await.map_err(anyhow::Error::msg)?;
    Ok(template.context("its template")?["metadata"]["labels"].clone())
}

/// Lists the jobs in each form, and sees a change as it happens.
async fn listed(case: &Case, tenant: &MusterCli<'_>) -> anyhow::Result<()> {
    let table = tenant.done("jobs").await?;
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    ensure!(lines.len() == 3, "{table}");
    let user = tenant.user.as_deref().context("a tenant")?;
    for (line, job, status) in [(1, "runs", "Running"), (2, "waits", "Queued")] {
        let wanted = [job, case.name.as_str(), user, status];
        ensure!(lines[line][..4] == wanted, "{table}");
        // REASON, POS and then GPUS.
        ensure!(lines[line].get(6) == Some(&"8"), "{table}");
    }
    let mine = tenant.done("jobs --mine -o name").await?;
    ensure!(mine.lines().count() == 2, "{mine}");
    let others = tenant.done("jobs --user-name no-such-user").await?;
    ensure!(others.starts_with("No jobs found"), "{others}");
    let names = tenant.done("jobs -o name --status queued,running").await?;
    ensure!(
        names == "job.batch/runs\njob.batch.volcano.sh/waits\n",
        "{names}"
    );
    let selected = format!("jobs -o name -l muster.io/queue={}", case.name);
    ensure!(tenant.done(&selected).await? == "job.batch/runs\n");
    let objects: Value = serde_json::from_str(&tenant.done("jobs -o json").await?)?;
    ensure!(
        objects["items"].as_array().map(Vec::len) == Some(2),
        "{objects}"
    );
    let refused = tenant.fails("jobs -A", 1).await?;
    ensure!(refused.contains("Forbidden"), "{refused}");

    let mut watch = tenant.command("jobs --watch --queue nowhere -o name")?;
    let mut watch = watch.stdout(Stdio::piped()).spawn()?;
    let mut seen = BufReader::new(watch.stdout.take().context("its output")?).lines();
    let mut all = tenant.command("jobs --watch -o name")?;
    let mut all = all.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(all.stdout.take().context("its output")?).lines();
    for wanted in ["job.batch/runs", "job.batch.volcano.sh/waits"] {
        let line = tokio::time::timeout(SOON, lines.next_line()).await??;
        ensure!(line.as_deref() == Some(wanted), "{line:?}");
    }
    let extra = case.submit(&case.gang("extra", 1, 8).batch()).await?;
    // The others may change meanwhile.
    loop {
        let line = tokio::time::timeout(SOON, lines.next_line()).await??;
        if line.context("the watch ended")? == "job.batch/extra" {
            break;
        }
    }
    let line = tenant.done("cancel extra").await?;
    ensure!(line == "job.batch/extra cancelled\n", "{line}");
    case.gone(&extra).await?;
    watch.kill().await?;
    ensure!(seen.next_line().await?.is_none(), "no job is in that queue");
    Ok(())
}

/// The tenant sees what its namespace uses, may use and waits for, and no queue of others.
async fn own_queues(case: &Case, tenant: &MusterCli<'_>) -> anyhow::Result<()> {
    let refused = tenant.fails("queue list", 1).await?;
    ensure!(
        refused.contains("Forbidden") && refused.contains("--mine"),
        "{refused}"
    );
    let name = case.name.as_str();
    // One job runs with 8 GPUs, which is all that the queue has, and one waits for 8.
    let wanted = [
        name,
        "True",
        "1",
        "1",
        "0",
        "nvidia.com/gpu",
        "8",
        "0",
        "8",
        "8",
    ];
    eventually(SOON, "what the namespace uses", async || {
        let table = tenant.done("queue list --mine").await;
        let table = table.map_err(|error| format!("{error:#}"))?;
        let row = table.lines().find(|line| line.starts_with(name));
        let cells: Vec<&str> = row.unwrap_or_default().split_whitespace().collect();
        match cells.get(..wanted.len()) == Some(&wanted) {
            true => Ok(()),
            false => Err(table),
        }
    })
    .await?;
    let one = format!("queue list --mine -o json -n {name}");
    let list: Value = serde_json::from_str(&tenant.done(&one).await?)?;
    let items = list["items"].as_array().context("items")?;
    let queues: Vec<&str> = items
        .iter()
        .filter_map(|queue| queue["metadata"]["name"].as_str())
        .collect();
    // The other one is the default queue of the namespace.
    ensure!(queues.contains(&name) && queues.len() <= 2, "{queues:?}");
    Ok(())
}

async fn held_and_released(
    case: &Case,
    tenant: &MusterCli<'_>,
    runs: &Job,
    waits: &Job,
) -> anyhow::Result<()> {
    let line = tenant.done("hold waits").await?;
    ensure!(line == "job.batch.volcano.sh/waits held\n", "{line}");
    ensure!(labels(case, waits).await?["muster.io/hold"] == "true");
    let line = tenant.done("hold runs").await?;
    ensure!(line.contains("only once it is queued again"), "{line}");
    // Several jobs need a consent, and a dry run changes none of them.
    let refused = tenant.fails("release runs waits", 1).await?;
    ensure!(
        refused.contains("2 jobs will be released") && refused.contains("--yes"),
        "{refused}"
    );
    let lines = tenant.done("release runs waits --dry-run server").await?;
    ensure!(
        lines.matches("released (server dry run)").count() == 2,
        "{lines}"
    );
    ensure!(labels(case, runs).await?["muster.io/hold"] == "true");
    let selection = format!("release --queue {} --yes -o name", case.name);
    let lines = tenant.done(&selection).await?;
    ensure!(
        lines == "job.batch/runs\njob.batch.volcano.sh/waits\n",
        "{lines}"
    );
    for job in [runs, waits] {
        ensure!(labels(case, job).await?["muster.io/hold"].is_null());
    }
    let line = tenant.done("release job.batch/runs").await?;
    ensure!(
        line == "job.batch/runs unchanged (it is not held)\n",
        "{line}"
    );
    tenant.fails("hold gone", 1).await?;
    tenant.fails("hold", 2).await?;
    Ok(())
}

async fn raised_and_moved(
    case: &Case,
    tenant: &MusterCli<'_>,
    admin: &MusterCli<'_>,
    waits: &Job,
) -> anyhow::Result<()> {
    let high = case.priority_class("high", 100).await?;
    let line = tenant.done(&format!("priority waits {high}")).await?;
    ensure!(
        line.contains(&format!("given the PriorityClass {high}")),
        "{line}"
    );
    ensure!(labels(case, waits).await?["muster.io/priority-class"] == *high);
    let missing = admin.fails("priority waits no-such-class", 1).await?;
    ensure!(missing.contains("does not exist"), "{missing}");

    let night = case
        .queue_of("night", json!({"capability": {"nvidia.com/gpu": 8}}))
        .await?;
    let missing = admin.fails("move waits no-such-queue", 1).await?;
    ensure!(missing.contains("does not exist"), "{missing}");
    let line = tenant.done(&format!("move waits {night}")).await?;
    ensure!(
        line == format!("job.batch.volcano.sh/waits moved to the queue {night}\n"),
        "{line}"
    );
    case.pod_group_when(waits, "in the other queue", |group| {
        group["spec"]["queue"] == *night
    })
    .await?;
    let refused = tenant.fails(&format!("move runs {night}"), 1).await?;
    ensure!(refused.contains("only pending jobs"), "{refused}");
    stopped_and_resumed(case, admin, &night).await
}

async fn stopped_and_resumed(
    case: &Case,
    admin: &MusterCli<'_>,
    queue: &str,
) -> anyhow::Result<()> {
    let policies = case.karmada();
    for (command, policy) in [
        (format!("queue stop {queue}"), "Hold"),
        (format!("queue stop {queue} --drain"), "HoldAndDrain"),
        (format!("queue resume {queue}"), "None"),
    ] {
        let line = admin.done(&command).await?;
        let name = format!("capacitypolicy.muster.io/{queue} ");
        ensure!(line.starts_with(&name), "{line}");
        let stored = policies.get(CAPACITY_POLICY, None, queue).await?;
        let stored = stored.context("its policy")?;
        ensure!(stored["spec"]["stopPolicy"] == policy, "{stored}");
    }
    let line = admin.done(&format!("queue resume {queue}")).await?;
    ensure!(line.contains("unchanged"), "{line}");
    let missing = admin.fails("queue stop no-such-queue", 1).await?;
    ensure!(missing.contains("does not exist"), "{missing}");
    policies.delete(CAPACITY_POLICY, None, queue).await?;
    Ok(())
}

/// Advice is computed for who may read what it takes, and names are completed.
async fn completed(tenant: &MusterCli<'_>, admin: &MusterCli<'_>) -> anyhow::Result<()> {
    let advice = admin.done("explain waits --live").await?;
    ensure!(
        advice.contains("Helps") && !advice.contains("failed"),
        "{advice}"
    );
    let advice = tenant.done("explain waits --live").await?;
    ensure!(advice.contains("cannot be listed"), "{advice}");
    // On a busy machine the server may not answer in the short time that completion waits.
    for (line, candidate) in [("explain wai", "waits\t"), ("queue re", "resume\t")] {
        eventually(SOON, &format!("{line} completed"), async || {
            let printed = tenant.through_kubectl(line).await;
            let printed = printed.map_err(|error| format!("{error:#}"))?;
            match printed.out.starts_with(candidate) && printed.out.ends_with("\n:4\n") {
                true => Ok(()),
                false => Err(format!("{} {}", printed.out, printed.err)),
            }
        })
        .await?;
    }
    let names = admin.done("__complete drain member").await?;
    ensure!(names.contains("member1\n"), "{names}");
    Ok(())
}

/// What only reads, or is a dry run: the other stories use the same control plane and members.
async fn checked_and_drained(
    case: &Case,
    admin: &MusterCli<'_>,
    tenant: &MusterCli<'_>,
) -> anyhow::Result<()> {
    let report = admin.run("check -o json").await?;
    let report: Value = serde_json::from_str(&report.out)?;
    let findings = report["findings"].as_array().context("findings")?;
    // Other stories stop members and drain clusters.
    let others = findings.iter().filter(|finding| {
        let check = finding["check"].as_str().unwrap_or_default();
        !check.starts_with("member-") && !check.starts_with("karmada-services")
    });
    let others: Vec<_> = others.collect();
    ensure!(others.is_empty(), "{others:?}");
    let drained = admin.run("drain member1 --dry-run server").await?;
    ensure!(
        drained.code == Some(0)
            && drained.out.contains("member1 drained")
            && drained.err.contains("runs"),
        "{} {}",
        drained.out,
        drained.err
    );
    let node = format!("member1/member1-{}-n-1", case.name);
    let drained = admin.run(&format!("drain {node} --dry-run client")).await?;
    ensure!(
        drained.code == Some(0) && drained.out.contains("1 pod evicted"),
        "{} {}",
        drained.out,
        drained.err
    );
    let by_server = format!("drain {node} --dry-run server");
    let refused = admin.fails(&by_server, 1).await?;
    ensure!(refused.contains("--dry-run=client"), "{refused}");
    let refused = tenant.fails("undrain member1", 1).await?;
    ensure!(refused.contains("Forbidden"), "{refused}");
    let refused = tenant.fails(&format!("drain {node}"), 1).await?;
    ensure!(refused.contains("kubectl drain"), "{refused}");
    let missing = admin.fails("drain no-such-cluster --yes", 1).await?;
    ensure!(missing.contains("does not exist"), "{missing}");
    Ok(())
}

async fn commands(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    let user = case.tenant().await?;
    let tenant = MusterCli::of(case, &user);
    let admin = MusterCli::of_admin(case);
    let gang = |name: &str| -> TestGang { case.gang(name, 1, 8) };
    let runs = case.submit_by(&user.objects, &gang("runs").batch()).await?;
    case.running(&runs).await?;
    let waits = case
        .submit_by(&user.objects, &gang("waits").volcano())
        .await?;
    case.waits(&waits, &["WaitingForQuota", "NextInLine"])
        .await?;

    listed(case, &tenant).await?;
    own_queues(case, &tenant).await?;
    let explained = tenant.done("explain waits").await?;
    ensure!(explained.contains("State     Queued"), "{explained}");
    completed(&tenant, &admin).await?;
    held_and_released(case, &tenant, &runs, &waits).await?;
    raised_and_moved(case, &tenant, &admin, &waits).await?;

    let queues = admin.done("queue list -o name").await?;
    ensure!(queues.contains(&case.name), "{queues}");
    case.shows_gpus(&case.name, "allocated", 8).await?;
    let queue = admin.done(&format!("queue get {}", case.name)).await?;
    ensure!(queue.contains("1 running"), "{queue}");
    admin.done("nodes").await?;
    checked_and_drained(case, &admin, &tenant).await?;
    let versions = admin.done("version").await?;
    ensure!(versions.contains("Leader"), "{versions}");
    ensure!(
        admin
            .done("completion bash")
            .await?
            .contains("kubectl-muster")
    );

    // The administrator may not create jobs in this story, but may cancel them.
    let lines = admin.done("cancel runs waits --yes").await?;
    ensure!(
        lines == "job.batch/runs cancelled\njob.batch.volcano.sh/waits cancelled\n",
        "{lines}"
    );
    for job in [&runs, &waits] {
        case.gone(job).await?;
    }
    let class = case.product.to_lowercase();
    eventually(SOON, "a pool with room for one pod", async || {
        let pools = admin.done("pools --fits 1x8").await;
        let pools = pools.map_err(|error| format!("{error:#}"))?;
        match pools
            .lines()
            .any(|line| line.contains(&class) && line.ends_with(" 1"))
        {
            true => Ok(()),
            false => Err(pools),
        }
    })
    .await?;
    let none = admin.done("pools --fits 9999x8").await?;
    ensure!(
        none.contains("No pool has room for 9999 pods of 8 devices now"),
        "{none}"
    );
    Ok(())
}

#[test]
fn each_command_of_kubectl_muster_does_what_it_says() {
    managed("cli", commands);
}
