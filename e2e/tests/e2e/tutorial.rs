//! The tutorial and the commands of the README, run as they are written on a real control plane: each prints what its
//! document shows. Names of clusters and ages differ.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::TestGang;
use e2e::harness::kinds::{BATCH_JOB, POD_GROUP};
use e2e::harness::muster;
use e2e::harness::wait::eventually;
use testbed::NodeGroup;
use testbed::tools::Tool;

use crate::case::{Case, SOON};
use crate::documents::{Block, Guide};
use crate::job::Job;
use crate::story::managed_alone;

/// The namespace and the queue of the examples.
const TEAM: &str = "vision";
/// The demo's clusters: the member that stands for each, with its nodes, their GPUs and their product.
const FLEET: [(&str, u32, u32, &str); 3] = [
    ("member1", 4, 8, "NVIDIA-H100-80GB"),
    ("member2", 6, 8, "NVIDIA-A100-80GB"),
    ("member3", 4, 4, "NVIDIA-L40S"),
];
/// The sections of the tutorial that have commands.
const SECTIONS: [&str; 5] = [
    "1. Check the namespace",
    "2. Submit a job",
    "3. See why a job waits",
    "4. Use several clusters",
    "5. Clean up",
];
/// The timeout until the jobs of a section have ended.
const ENDED: Duration = Duration::from_secs(120);

/// Returns a document whose commands reach the plane.
fn guide(case: &Case, document: &str) -> anyhow::Result<Guide> {
    let programs = [
        ("kubectl", case.plane.tools.program(Tool::Kubectl)?),
        ("kubectl-muster", muster::built("kubectl-muster")?),
    ];
    let kubeconfig = case.plane.testbed.karmada().kubeconfig;
    let env = [("KUBECONFIG", kubeconfig.display().to_string())];
    Guide::of(document, &programs, env)
}

/// Returns how `printed` differs from what the document shows: rows are compared by their first word, and words that
/// name clusters or ages by their form.
fn difference(shown: &str, printed: &str) -> Option<String> {
    let rows = |text: &str| -> Vec<Vec<String>> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines
            .map(|line| line.split_whitespace().map(form).collect())
            .collect()
    };
    let printed_rows = rows(printed);
    let missing = rows(shown)
        .into_iter()
        .find(|row| !printed_rows.contains(row));
    missing.map(|row| format!("no row {row:?} in:\n{printed}"))
}

/// A word without what differs from run to run: ages, and clusters with their pods.
fn form(word: &str) -> String {
    let pods = |part: &str| {
        part.split_once(':')
            .and_then(|(_, pods)| pods.parse::<u32>().ok())
    };
    let parts: Option<Vec<u32>> = word.split(',').map(pods).collect();
    let age = word.ends_with(['s', 'm'])
        && word.starts_with(|c: char| c.is_ascii_digit())
        && word
            .chars()
            .all(|c| c.is_ascii_digit() || c == 's' || c == 'm');
    match parts {
        Some(parts) => format!("{} pods placed", parts.iter().sum::<u32>()),
        None if age => "AGE".to_owned(),
        None => word.to_owned(),
    }
}

/// Runs the commands of a section. Where the document shows what they print, the last one is repeated until it does.
async fn follow(guide: &Guide, section: &str) -> anyhow::Result<()> {
    let blocks = guide.blocks(section)?;
    let mut commands = String::new();
    for block in &blocks {
        match block {
            Block::Commands(script) => {
                commands.clone_from(script);
                guide.shell(script).await?;
            }
            Block::Output(shown) if shown.starts_with("NAME ") => {
                let last = commands.trim_end().lines().last().context("no command")?;
                eventually(SOON, &format!("{last} prints what is shown"), async || {
                    let printed = guide
                        .shell(last)
                        .await
                        .map_err(|error| format!("{error:#}"))?;
                    difference(shown, &printed).map_or(Ok(()), Err)
                })
                .await?;
            }
            Block::Output(_) => {}
        }
    }
    ensure!(!commands.is_empty(), "{section} has no commands");
    Ok(())
}

/// Registers the jobs of the team, for the audit.
async fn submitted(case: &Case) -> anyhow::Result<()> {
    for template in case.karmada().list(BATCH_JOB, Some(TEAM)).await? {
        case.submitted(&Job::of(BATCH_JOB, template));
    }
    Ok(())
}

/// Waits until every job of the team has ended.
async fn ended(case: &Case) -> anyhow::Result<()> {
    eventually(ENDED, "the jobs have ended", async || {
        let groups = case.karmada().list(POD_GROUP, Some(TEAM)).await;
        let groups = groups.map_err(|error| format!("{error:#}"))?;
        let mut left = groups
            .iter()
            .filter(|group| group["status"]["phase"] != "Completed");
        let name = left
            .next()
            .map(|group| group["metadata"]["name"].to_string());
        name.map_or(Ok(()), |name| Err(format!("{name} has not")))
    })
    .await
}

#[test]
#[ignore = "soak: two minutes alone on the plane"]
fn the_tutorial_and_the_readme_do_what_they_say() {
    managed_alone("tutorial", async |case| {
        for (member, count, gpus, product) in FLEET {
            let group = NodeGroup {
                count,
                gpus,
                prefix: Some("tutorial".into()),
                product: Some(product.into()),
                ..NodeGroup::default()
            };
            case.nodes_like(member, &group).await?;
        }
        let tutorial = guide(case, "docs/tutorial.md")?;
        for file in ["namespace", "queue", "priority-class"] {
            let apply = format!("kubectl apply -f examples/{file}.yaml");
            tutorial.shell(&apply).await?;
        }
        for section in SECTIONS {
            if section.starts_with('4') {
                // As the text says.
                ended(case).await?;
            }
            follow(&tutorial, section).await?;
            submitted(case).await?;
        }
        // Another job waits, as in the README's first screen.
        let readme = guide(case, "README.md")?;
        tutorial
            .shell("kubectl delete jobs --all -n vision --wait")
            .await?;
        let job = case.short_gang("job", 1, 1, 5);
        let job = TestGang {
            namespace: TEAM.into(),
            queue: None,
            product: None,
            ..job
        };
        std::fs::write(readme.folder().join("job.yaml"), job.batch().to_string())?;
        follow(&readme, "Use it").await?;
        first_screen(&readme).await?;
        submitted(case).await?;
        ended(case).await?;
        tutorial
            .shell("kubectl delete jobs --all -n vision --wait")
            .await?;
        Ok(())
    });
}

/// Runs the commands of the README's first screen while other jobs use the quota. Each prints what is shown there, up
/// to its numbers; a command is repeated until it does.
async fn first_screen(readme: &Guide) -> anyhow::Result<()> {
    for number in 1..=8 {
        let name = format!("s/name: render$/name: render-{number}/");
        let make = format!("sed '{name}' examples/batch-job.yaml | kubectl apply -n vision -f -");
        readme.shell(&make).await?;
    }
    let full = "kubectl get capacitypolicies vision";
    eventually(SOON, "the quota is used", async || {
        let printed = readme.shell(full).await;
        let printed = printed.map_err(|error| format!("{error:#}"))?;
        printed.contains("32/32").then_some(()).ok_or(printed)
    })
    .await?;
    let blocks = readme.blocks("A look")?;
    let Some(Block::Commands(transcript)) = blocks.first() else {
        anyhow::bail!("no transcript: {blocks:?}");
    };
    let mut ran = 0;
    for step in transcript.split("$ ").skip(1) {
        let (command, shown) = step.split_once('\n').unwrap_or((step, ""));
        let shown: Vec<String> = shown.lines().map(beginning).collect();
        let what = format!("{command} prints what is shown");
        eventually(ENDED, &what, async || {
            let printed = readme.shell(command).await;
            let printed = printed.map_err(|error| format!("{error:#}"))?;
            let lines: Vec<String> = printed.lines().map(beginning).collect();
            let missing = shown.iter().find(|line| !lines.contains(line));
            missing.map_or(Ok(()), |line| Err(format!("no {line:?} in {printed}")))
        })
        .await?;
        ran += 1;
    }
    ensure!(ran == 3, "{ran} commands");
    Ok(())
}

/// A line up to what differs from run to run: a number of its own with a unit, or a time.
fn beginning(line: &str) -> String {
    let words = line.split_whitespace().map(form);
    let same: Vec<String> = words
        .take_while(|word| *word != "AGE" && *word != "from" && *word != "to")
        .collect();
    same.join(" ")
}
