//! The users of a queue come in turn (`fairShare.within: User`): many jobs of one user delay the job of another by one
//! slot, and each of them reads why.

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::CAPACITY_POLICY;
use e2e::harness::tenant::Tenant;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::cli::MusterCli;
use crate::job::{Job, condition};
use crate::story::managed;

/// Why a job waits for a slot that another one has.
const NO_SLOT: &[&str] = &[
    "WaitingForQuota",
    "WaitingForRoom",
    "ReservedForAnother",
    "NextInLine",
];

/// Submits a job with half of the queue, in the name of a user.
async fn submit(case: &Case, user: &Tenant, name: &str) -> anyhow::Result<Job> {
    let mut template = case.gang(name, 1, 4).batch();
    // Whatever it says, its user is the one who submits it.
    template["metadata"]["annotations"] = json!({"muster.io/user": "someone-else"});
    let job = case.submit_by(&user.objects, &template).await?;
    let recorded = &job.template["metadata"]["annotations"]["muster.io/user"];
    ensure!(*recorded == *user.user, "{name} is of {recorded}");
    Ok(job)
}

/// Waits until a job has this place in its queue.
async fn is_at(case: &Case, job: &Job, place: u32) -> anyhow::Result<()> {
    let at = |group: &Value| group["status"]["federation"]["position"] == place;
    let what = format!("at place {place}");
    case.pod_group_when(job, &what, at).await.map(drop)
}

/// Waits until `explain`, called by a user, prints all of these words about a job.
async fn explained(case: &Case, user: &Tenant, job: &Job, words: &[&str]) -> anyhow::Result<()> {
    let cli = MusterCli::of(case, user);
    let what = format!("{} is explained", job.name);
    let explained = eventually(SOON, &what, async || {
        let explained = cli.done(&format!("explain {}", job.name)).await;
        let explained = explained.map_err(|error| format!("{error:#}"))?;
        match words.iter().find(|words| !explained.contains(**words)) {
            None => Ok(explained),
            Some(missing) => Err(format!("no {missing:?} in: {explained}")),
        }
    })
    .await?;
    println!("{explained}");
    Ok(())
}

async fn in_turn(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    let by_users =
        json!({"spec": {"fairShare": {"within": "User", "usageHalfLifeSeconds": 86400}}});
    case.capacity_policy(by_users).await?;
    let many = case.tenant().await?;
    let few = case.tenant_named("few").await?;

    let mut runs = Vec::new();
    for name in ["many-0", "many-1"] {
        let job = submit(case, &many, name).await?;
        case.running(&job).await?;
        runs.push(job);
    }
    let mut crowd = Vec::new();
    for index in 2..10 {
        let job = submit(case, &many, &format!("many-{index}")).await?;
        case.waits(&job, NO_SLOT).await?;
        crowd.push(job);
    }
    let first = submit(case, &few, "few-0").await?;
    case.waits(&first, NO_SLOT).await?;
    let second = submit(case, &few, "few-1").await?;
    for (job, place) in [(&first, 1), (&second, 2), (&crowd[0], 3)] {
        is_at(case, job, place).await?;
    }

    let has = |user: &Tenant, percent: u32| format!("user {} has {percent} % of it", user.user);
    let (none, all) = (has(&few, 0), has(&many, 100));
    let in_turn = format!("users of queue {} come in turn", case.name);
    let before = [&in_turn, &*none, "none has less", "Position  1"];
    explained(case, &few, &first, &before).await?;
    let behind = [&in_turn, &*all, "1 has less", "Position  3; ahead: 2 jobs"];
    explained(case, &many, &crowd[0], &behind).await?;
    let admin = MusterCli::of_admin(case);
    let queue = admin.done(&format!("queue get {}", case.name)).await?;
    println!("{queue}");
    ensure!(queue.contains("users come in turn"), "{queue}");

    case.end(&runs[0]).await?;
    case.running(&first).await?;
    // Now that both have half of the queue, the next slot goes to the user who has nothing when it becomes free.
    is_at(case, &crowd[0], 1).await?;
    for job in crowd.iter().chain([&second]) {
        ensure!(case.placements(job)? == 0, "{} has started", job.name);
    }
    case.end(&runs[1]).await?;
    case.running(&crowd[0]).await?;
    case.stays_unplaced(&second, A_WHILE).await?;
    case.end(&first).await?;
    case.running(&second).await?;
    for job in &crowd[1..] {
        ensure!(case.placements(job)? == 0, "{} has started", job.name);
    }
    of_an_account(case, &few).await
}

/// A service account counts as its namespace: a tenant may create as many as it likes.
async fn of_an_account(case: &Case, reader: &Tenant) -> anyhow::Result<()> {
    let account = format!("system:serviceaccount:{}:any", case.name);
    let account = Tenant::named(&case.plane.testbed, &case.name, account).await?;
    let job = submit(case, &account, "account").await?;
    let has = format!("user {} has 0 % of it", case.name);
    explained(case, reader, &job, &[&has]).await
}

/// No job passes another in a StrictFIFO queue, so that its users cannot come in turn.
async fn not_in_strict_order(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    let both = json!({"spec": {"ordering": "StrictFIFO", "fairShare": {"within": "User"}}});
    case.capacity_policy(both).await?;
    let words =
        "spec.fairShare.within: User lets jobs pass each other, and the ordering is StrictFIFO";
    let policies = case.karmada();
    let valid = eventually(SOON, "the policy is said to be invalid", async || {
        let policy = policies.get(CAPACITY_POLICY, None, &case.name).await;
        let policy = policy.map_err(|error| error.to_string())?;
        let policy = policy.unwrap_or_default();
        let valid = condition(&policy, "Valid");
        match valid["status"] == "False" {
            true => Ok(valid.clone()),
            false => Err(valid.to_string()),
        }
    })
    .await?;
    let message = valid["message"].as_str().context("its message")?;
    ensure!(message.contains(words), "{message}");
    let job = case.short_gang("train", 1, 8, 1).batch();
    let job = case.submit(&job).await?;
    let message = case.waits(&job, &["QueueInvalid"]).await?;
    ensure!(message.contains(words), "{message}");
    println!("{message}");
    let admin = MusterCli::of_admin(case);
    let queue = admin.done(&format!("queue get {}", case.name)).await?;
    ensure!(queue.contains(words), "{queue}");
    let another = json!({"spec": {"ordering": "Backfill"}});
    case.capacity_policy(another).await?;
    case.finished(&job, "Succeeded").await
}

#[test]
fn many_jobs_of_one_user_delay_anothers_by_one_slot() {
    managed("user-turns", in_turn);
}

#[test]
fn users_do_not_come_in_turn_where_the_order_is_strict() {
    managed("user-strict", not_in_strict_order);
}
