//! What pods write, read by `kubectl muster` through Karmada's cluster proxy with the rights of its user.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, POD_GROUP, ROLE_BINDING};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use super::{AMPLE, REAL, SIMULATED};
use crate::case::{Case, SOON};
use crate::cli::{MusterCli, Printed};
use crate::job::Job;

/// The page with the rights that a team needs.
const PAGE: &str = include_str!("../../../../docs/how-to/logs.md");

/// Writes three lines in each pod, a moment apart.
const THREE_LINES: &str =
    "for i in 1 2 3; do echo rank $JOB_COMPLETION_INDEX line $i; sleep 0.3; done";

/// Two pods write; each is read by its rank, and both in the order of time.
pub(super) async fn by_rank_and_merged(case: &Case) -> anyhow::Result<()> {
    case.real_queue(AMPLE).await?;
    let job = case.submit(&case.script("writes", 2, THREE_LINES)).await?;
    case.finished(&job, "Succeeded").await?;
    let cli = MusterCli::of_admin(case);
    let second = cli.done("logs writes --rank 1").await?;
    ensure!(second == lines(1), "{second}");
    let named = cli.done("logs writes --pod real/no-such-pod").await;
    ensure!(named.is_err_and(|error| format!("{error}").contains("has no such pod; it has real/")));
    let merged = cli.done("logs writes").await?;
    for rank in 0..2 {
        let prefix = format!("[{rank}/{REAL}] ");
        let own: Vec<&str> = merged
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect();
        ensure!(own.join("\n") + "\n" == lines(rank), "{merged}");
    }
    let stamped = cli.done("logs writes --timestamps --prefix=false").await?;
    let times: Vec<&str> = stamped
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    ensure!(times.len() == 6 && times.is_sorted(), "{stamped}");
    let last = cli.done("logs writes --tail 1 --prefix=false").await?;
    ensure!(last.lines().all(|line| line.ends_with("line 3")), "{last}");
    let pods = cli.done("pods writes --no-headers").await?;
    let rows: Vec<Vec<&str>> = pods
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for (rank, row) in rows.iter().enumerate() {
        let [shown, task, _, cluster, _, status, ..] = row[..] else {
            anyhow::bail!("{pods}");
        };
        let is_right =
            (shown, task, cluster, status) == (&rank.to_string(), "main", REAL, "Completed");
        ensure!(is_right, "{pods}");
    }
    let events = cli.done("events writes").await?;
    for word in ["<control plane>", "job/writes", "pod/writes-0-", "Started"] {
        ensure!(events.contains(word), "{word}: {events}");
    }
    without_output(case).await
}

fn lines(rank: usize) -> String {
    (1..=3)
        .map(|line| format!("rank {rank} line {line}\n"))
        .collect()
}

/// A cluster whose nodes are simulated has no output: that is said, and the command fails.
async fn without_output(case: &Case) -> anyhow::Result<()> {
    let policy = json!({"spec": {"placement": {"preferredClusters": [SIMULATED]}}});
    case.capacity_policy(policy).await?;
    let job = case
        .submit(&case.script("silent", 1, "sleep 1000000"))
        .await?;
    case.running(&job).await?;
    let cli = MusterCli::of_admin(case);
    let placed = case.placed(&job).await?;
    ensure!(placed == [SIMULATED], "{placed:?}");
    let why = cli.fails("logs silent", 1).await?;
    ensure!(
        why.contains("warning: ") && why.contains(SIMULATED),
        "{why}"
    );
    let pods = cli.done("pods silent -o name").await?;
    ensure!(pods.starts_with("simulated/silent-0-"), "{pods}");
    Ok(())
}

/// A user without rights in members is refused with the name of the right; the rights of the page suffice.
pub(super) async fn with_the_rights_of_the_user(case: &Case) -> anyhow::Result<()> {
    case.real_queue(AMPLE).await?;
    let tenant = case.tenant().await?;
    let job = case
        .submit_by(&tenant.objects, &case.script("own", 1, THREE_LINES))
        .await?;
    case.finished(&job, "Succeeded").await?;
    let cli = MusterCli::of(case, &tenant);
    let refused = cli.fails("logs own", 1).await?;
    let right = "on the control plane you may not use clusters/proxy of real";
    ensure!(
        refused.contains(right) && refused.contains("docs/how-to/logs.md"),
        "{refused}"
    );
    let [plane, member] = &granted(case, &tenant.user)[..] else {
        anyhow::bail!("the page has not two lists of rights");
    };
    for object in plane {
        let kind = if object["kind"] == "ClusterRole" {
            CLUSTER_ROLE
        } else {
            CLUSTER_ROLE_BINDING
        };
        case.cluster_object(kind, object).await?;
    }
    let in_member = format!(
        "in real you may not list pods in namespace \"{}\"",
        case.name
    );
    eventually(SOON, "refused by the member", async || {
        let refused = cli
            .fails("pods own", 1)
            .await
            .map_err(|error| error.to_string())?;
        match refused.contains(&in_member) {
            true => Ok(()),
            false => Err(refused),
        }
    })
    .await?;
    let objects = case.plane.member(REAL).await?;
    for object in member {
        let kind = if object["kind"] == "ClusterRole" {
            CLUSTER_ROLE
        } else {
            ROLE_BINDING
        };
        objects.create(kind, object).await?;
    }
    for (line, word) in [
        ("pods own", "Completed"),
        ("logs own", "rank 0 line 3"),
        ("logs own -f --exit-code", "rank 0 line 3"),
        ("events own", "Started"),
    ] {
        eventually(SOON, line, async || {
            let shown = cli.done(line).await.map_err(|error| error.to_string())?;
            match shown.contains(word) {
                true => Ok(()),
                false => Err(shown),
            }
        })
        .await?;
    }
    Ok(())
}

/// Returns the objects of each list of rights on the page, for this user in the namespace of the story.
fn granted(case: &Case, user: &str) -> Vec<Vec<Value>> {
    let blocks = PAGE.split("```yaml\n").skip(1);
    let texts = blocks.filter_map(|block| block.split("```").next());
    let lists = texts.map(|text| {
        let text = text
            .replace("[gpu-a, gpu-b]", &format!("[{REAL}]"))
            .replace("team-a", &case.name)
            .replace("muster-job-pods", &format!("muster-job-pods-{}", case.name))
            .replace("alice", user);
        let objects = text.split("---\n").map(serde_saphyr::from_str);
        objects.filter_map(Result::ok).collect()
    });
    lists.collect()
}

/// A container fails and is started again, twice. Each line that it writes comes once.
pub(super) async fn followed_over_restarts(case: &Case) -> anyhow::Result<()> {
    case.real_queue(AMPLE).await?;
    let script = "n=$(cat /data/n || echo 0)
        for i in $(seq 20); do n=$((n + 1)); echo line $n; echo $n > /data/n; sleep 0.05; done
        [ $n -ge 60 ] || exit 3";
    let mut template = case.script("restarts", 1, script);
    template["spec"]["backoffLimit"] = json!(6);
    let pods = &mut template["spec"]["template"]["spec"];
    pods["restartPolicy"] = json!("OnFailure");
    pods["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    pods["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let job = case.submit(&template).await?;
    let cli = MusterCli::of_admin(case);
    let before = async {
        // A kubelet keeps one run that has ended, so that the run before is there while the container is not over.
        eventually(SOON, "the run before", async || {
            let before = cli.done("logs restarts --previous").await;
            let before = before.map_err(|error| error.to_string())?;
            match ["line 20\n", "line 40\n"]
                .iter()
                .any(|end| before.ends_with(end))
            {
                true => Ok(()),
                false => Err(before),
            }
        })
        .await
    };
    let (followed, before) = tokio::join!(cli.run("logs restarts -f --exit-code"), before);
    before?;
    let followed = followed?;
    ensure!(
        followed.code == Some(0),
        "{} {}",
        followed.out,
        followed.err
    );
    let all: String = (1..=60).map(|line| format!("line {line}\n")).collect();
    let own = followed.out.lines().filter(|line| line.starts_with("line"));
    let own: String = own.map(|line| format!("{line}\n")).collect();
    ensure!(own == all, "{} {}", followed.out, followed.err);
    let restarts = followed
        .err
        .matches("was started again (the run before: Error, exit code 3")
        .count();
    ensure!(restarts == 2, "{}", followed.err);
    case.finished(&job, "Succeeded").await.map(drop)
}

/// A job that is followed is evicted, and admitted again. The lines of both attempts come, each once.
pub(super) async fn followed_over_an_eviction(case: &Case) -> anyhow::Result<()> {
    case.real_queue(AMPLE).await?;
    let script =
        "i=0; until [ -f /tmp/end ]; do i=$((i + 1)); echo line $i; sleep 0.1; done; exit 9";
    let job = case.submit(&case.script("moves", 1, script)).await?;
    let cli = MusterCli::of_admin(case);
    let mut command = cli.command("logs moves -f --exit-code")?;
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let followed = async { anyhow::Ok(Printed::of(&child.wait_with_output().await?)) };
    let (followed, acted) = tokio::join!(followed, evicted_and_ended(case, &cli, &job));
    acted?;
    let followed = followed?;
    ensure!(
        followed.code == Some(9),
        "{:?} {} {}",
        followed.code,
        followed.out,
        followed.err
    );
    ensure!(followed.err.contains("was evicted"), "{}", followed.err);
    ensure!(followed.err.contains("(attempt 2)"), "{}", followed.err);
    let numbers = followed
        .out
        .lines()
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u32>().ok());
    let numbers: Vec<u32> = numbers.collect();
    let second = numbers
        .iter()
        .rposition(|number| *number == 1)
        .context("no line")?;
    let attempts = [&numbers[..second], &numbers[second..]];
    for attempt in attempts {
        let length = u32::try_from(attempt.len())?;
        ensure!(
            length > 5 && attempt.iter().copied().eq(1..=length),
            "{}",
            followed.out
        );
    }
    Ok(())
}

async fn evicted_and_ended(case: &Case, cli: &MusterCli<'_>, job: &Job) -> anyhow::Result<()> {
    case.running(job).await?;
    case.real_pods(job, 1).await?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    cli.done(&format!("queue stop {} --drain", case.name))
        .await?;
    case.pod_group_when(job, "queued again", |group| {
        group["status"]["federation"]["status"] == "Queued"
    })
    .await?;
    cli.done(&format!("queue resume {}", case.name)).await?;
    case.running(job).await?;
    let pod = case.real_pods(job, 1).await?.remove(0);
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    case.through_proxy(&["exec", &pod, "--", "touch", "/tmp/end"])
        .await?;
    case.finished(job, "Failed").await.map(drop)?;
    let groups = case
        .karmada()
        .get(POD_GROUP, Some(&case.name), "moves-job")
        .await?;
    ensure!(groups.context("its PodGroup")?["status"]["federation"]["attempt"] == 2);
    Ok(())
}
