//! `kubectl muster run`, `wait`, `resume` and the verbs of queues: a tenant submits without a manifest and waits, and
//! the administrator makes a queue.

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{BATCH_JOB, CAPACITY_POLICY};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{Case, SOON};
use crate::cli::MusterCli;
use crate::job::Job;
use crate::story::managed;

/// Has a tenant run a job that fills the queue, and returns it with what was said.
async fn run(case: &Case, tenant: &MusterCli<'_>, name: &str) -> anyhow::Result<(Job, String)> {
    let line = format!(
        "run --name {name} --image busybox --gpus 8 --time 1h --queue {} --node-selector nvidia.com/gpu.product={} \
         -- sleep 60",
        case.name, case.product
    );
    let printed = tenant.run(&line).await?;
    ensure!(printed.code == Some(0), "{line}: {}", printed.err);
    ensure!(
        printed.out == format!("job.batch/{name} created\n"),
        "{}",
        printed.out
    );
    let template = case
        .karmada()
        .get(BATCH_JOB, Some(&case.name), name)
        .await?;
    let job = Job::of(BATCH_JOB, template.context("the job")?);
    case.submitted(&job);
    Ok((job, printed.err))
}

async fn submitted(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    let user = case.tenant().await?;
    let tenant = MusterCli::of(case, &user);
    let (first, said) = run(case, &tenant, "first").await?;
    ensure!(
        said.contains("1 pod with 8 nvidia.com/gpu, for 60m"),
        "{said}"
    );
    ensure!(said.contains("kubectl muster wait first"), "{said}");
    let waited = tenant.run("wait first --for running --timeout 5m").await?;
    ensure!(waited.code == Some(0), "{}", waited.err);
    ensure!(
        waited.err.contains("job.batch/first Running on member1:1"),
        "{}",
        waited.err
    );

    let (second, said) = run(case, &tenant, "second").await?;
    ensure!(
        said.contains("position 1") && said.contains(&case.name),
        "{said}"
    );
    let late = tenant.fails("wait second --timeout 1s", 124).await?;
    ensure!(late.contains("job.batch/second Queued at 1"), "{late}");
    let wide = tenant.done("jobs -o wide").await?;
    ensure!(wide.contains("/60m"), "{wide}");

    screens(case, &tenant).await?;

    case.end(&first).await?;
    tenant.done("wait job/first --timeout 5m").await?;
    case.running(&second).await?;
    case.fail(&second).await?;
    let failed = tenant.run("wait second --timeout 5m").await?;
    let code = failed.code.unwrap_or_default();
    ensure!(
        (1..=123).contains(&code) || code > 124,
        "{code}: {}",
        failed.err
    );
    ensure!(failed.err.contains("Failed"), "{}", failed.err);
    resumed(case, &tenant).await?;
    let missing = tenant.fails("wait no-such-job --timeout 5m", 1).await?;
    ensure!(missing.contains("not found"), "{missing}");
    queues(case, &MusterCli::of_admin(case)).await
}

/// The tenant sees its own queue and jobs in one screen, and the administrator all of them. Programs get what is
/// computed, and a List also of nothing.
async fn screens(case: &Case, tenant: &MusterCli<'_>) -> anyhow::Result<()> {
    let admin = MusterCli::of_admin(case);
    let own = tenant.done("top --once").await?;
    ensure!(
        own.contains("QUEUE USED") && !own.contains("LARGEST"),
        "{own}"
    );
    let all = admin.done("top --once -A --jobs 1000").await?;
    ensure!(all.contains("LARGEST"), "{all}");
    for screen in [own, all] {
        ensure!(
            screen.contains("first") && screen.contains("second"),
            "{screen}"
        );
    }
    let advice = admin.done("explain second --live -o json").await?;
    let advice: Value = serde_json::from_str(&advice)?;
    let evidence = &advice["status"]["federation"]["evidence"];
    ensure!(
        evidence.as_array().is_some_and(|all| !all.is_empty()),
        "{advice}"
    );
    let held = tenant.done("hold --queue nowhere --yes -o json").await?;
    let held: Value = serde_json::from_str(&held)?;
    ensure!(held["items"] == json!([]), "{held}");
    Ok(())
}

/// A job that its user suspends gives its quota back, and runs again once it is resumed.
async fn resumed(case: &Case, tenant: &MusterCli<'_>) -> anyhow::Result<()> {
    let (third, _) = run(case, tenant, "third").await?;
    case.running(&third).await?;
    let suspend = json!({"spec": {"suspend": true}});
    case.karmada()
        .merge(BATCH_JOB, Some(&case.name), "third", &suspend)
        .await?;
    case.pod_group_when(&third, "suspended", |group| {
        group["status"]["federation"]["reason"] == "Suspended"
    })
    .await?;
    let line = tenant.done("resume third").await?;
    ensure!(line == "job.batch/third resumed\n", "{line}");
    case.running(&third).await?;
    let line = tenant.done("resume third").await?;
    ensure!(line.contains("unchanged (it is not suspended)"), "{line}");
    case.end(&third).await?;
    case.finished(&third, "Succeeded").await
}

async fn queues(case: &Case, admin: &MusterCli<'_>) -> anyhow::Result<()> {
    let name = format!("{}-made", case.name);
    let create = format!("queue create {name} --gpus 4 --max-gpus 8");
    let line = admin.done(&format!("{create} --dry-run server")).await?;
    ensure!(line.contains("created (server dry run)"), "{line}");
    admin.done(&create).await?;
    let shown = async |wanted: [&str; 3]| {
        eventually(SOON, "the queue in the tree", async || {
            let tree = admin.done("queue tree").await;
            let tree = tree.map_err(|error| format!("{error:#}"))?;
            let row = tree
                .lines()
                .find(|line| line.contains(&name))
                .unwrap_or_default();
            let cells: Vec<&str> = row.split_whitespace().collect();
            // After QUEUE and STATE: USED, DESERVED and CAPABILITY.
            match cells.get(2..5) == Some(&wanted) {
                true => Ok(()),
                false => Err(tree),
            }
        })
        .await
    };
    shown(["0", "4", "8"]).await?;
    let again = admin.fails(&create, 1).await?;
    ensure!(again.contains("exists already"), "{again}");
    let line = admin
        .done(&format!("queue set {name} capability.nvidia.com/gpu=6"))
        .await?;
    ensure!(
        line.contains("resources.nvidia.com/gpu.capability: 8 -> 6"),
        "{line}"
    );
    shown(["0", "4", "6"]).await?;
    case.karmada().delete(CAPACITY_POLICY, None, &name).await?;
    Ok(())
}

#[test]
fn a_job_is_run_and_waited_for_without_a_manifest() {
    managed("cli-submit", submitted);
}
