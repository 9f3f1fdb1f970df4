//! The live table of queues, pools and jobs. Without a terminal, it prints a line at intervals.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::world::{Stage, World};

/// The interval of lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The objects that Muster publishes.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// CapacityPolicies.
    pub(super) policies: Vec<Value>,
    /// GpuPools.
    pub(super) pools: Vec<Value>,
}

/// The output of progress.
pub(super) struct Screen {
    bar: ProgressBar,
    started: Instant,
    last_line: Option<Instant>,
}

impl Screen {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            started: Instant::now(),
            last_line: None,
        }
    }

    /// Shows the current state, of `total` jobs to be submitted.
    pub(super) fn show(&mut self, world: &World, published: &Published, total: usize) {
        let line = line(world, self.started.elapsed(), total);
        if !self.bar.is_hidden() {
            self.bar.set_message(format!(
                "\n{line}\n\n{}\n{}",
                queues(world, published),
                pools(world, published)
            ));
            self.bar.tick();
        } else if self
            .last_line
            .is_none_or(|last| last.elapsed() >= LINE_EVERY)
        {
            self.last_line = Some(Instant::now());
            println!("{line}");
        }
    }

    /// Leaves the last screen visible.
    pub(super) fn end(self) {
        self.bar.abandon();
    }
}

/// Formats the number of jobs by state in one line.
fn line(world: &World, elapsed: Duration, total: usize) -> String {
    let mut stages: BTreeMap<Stage, usize> = BTreeMap::new();
    for (_, job) in world.jobs() {
        *stages.entry(job.stage()).or_default() += 1;
    }
    let count = |stage| stages.get(&stage).copied().unwrap_or(0);
    let failed = match count(Stage::Failed) {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    format!(
        "{:>4} s  {} of {total} jobs submitted: {} queued, {} admitted, {} running, {} done{failed}",
        elapsed.as_secs(),
        world.jobs().count(),
        count(Stage::Queued),
        count(Stage::Admitted),
        count(Stage::Running),
        count(Stage::Succeeded),
    )
}

/// Formats the usage of each queue and its quota, by the pods in the members, and the reason why
/// its next job is pending, as `kubectl get cap` has it.
fn queues(world: &World, published: &Published) -> String {
    let held = world.held(|_, queue| queue.to_owned());
    let mut jobs: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (_, job) in world.jobs() {
        let (waiting, going) = jobs.entry(&job.queue).or_default();
        match job.stage() {
            Stage::Queued => *waiting += 1,
            Stage::Admitted | Stage::Running => *going += 1,
            Stage::Succeeded | Stage::Failed => (),
        }
    }
    let mut table = plain(&[
        "QUEUE",
        "RUNNING GPUS",
        "CHARGED",
        "JOBS",
        "NEXT JOB WAITS FOR",
    ]);
    for policy in &published.policies {
        let name = text(&policy["metadata"]["name"]);
        let Some((waiting, going)) = jobs.get(name) else {
            continue;
        };
        let status = &policy["status"];
        table.add_row([
            name.to_owned(),
            held.get(name).copied().unwrap_or(0).to_string(),
            text(&status["summary"]["gpus"]).to_owned(),
            format!("{going} in, {waiting} queued"),
            text(&status["head"]["reason"]).to_owned(),
        ]);
    }
    table.to_string()
}

fn pools(world: &World, published: &Published) -> String {
    let held = world.held(|cluster, _| cluster.to_owned());
    let mut table = plain(&["POOL", "GPUS", "FREE", "RUNNING"]);
    for pool in &published.pools {
        let cluster = text(&pool["spec"]["cluster"]);
        let number = |field: &str| pool["status"][field].as_u64().unwrap_or(0);
        let running = held.get(cluster).copied().unwrap_or(0);
        table.add_row([
            text(&pool["metadata"]["name"]).to_owned(),
            number("total").to_string(),
            number("free").to_string(),
            gauge(running, number("total")),
        ]);
    }
    table.to_string()
}

/// Formats a bar of twenty cells and the number.
fn gauge(used: u64, total: u64) -> String {
    let cells = 20;
    let full = (used * cells).checked_div(total).unwrap_or(0).min(cells);
    let bar: String = (0..cells)
        .map(|cell| if cell < full { '█' } else { '░' })
        .collect();
    format!("{bar} {used}")
}

pub(super) fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    table
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::world::tests::job;
    use super::*;
    use serde_json::json;

    #[test]
    fn queues_and_pools_are_shown_beside_what_the_product_says() {
        let mut world = World::default();
        world.submit(("vc-a".into(), "x".into()), job("vc-a", 1, 8));
        let published = Published {
            policies: vec![json!({
                "metadata": {"name": "vc-a"},
                "status": {"summary": {"gpus": "0/16"}, "head": {"reason": "WaitingForRoom"}},
            })],
            pools: vec![json!({
                "metadata": {"name": "gpu-a.h100"},
                "spec": {"cluster": "gpu-a"},
                "status": {"total": 32, "free": 20},
            })],
        };
        let trimmed = |table: String| {
            table
                .lines()
                .map(|line| line.trim_end().to_owned() + "\n")
                .collect::<String>()
        };
        insta::assert_snapshot!(line(&world, Duration::from_secs(7), 150), @"   7 s  1 of 150 jobs submitted: 1 queued, 0 admitted, 0 running, 0 done");
        insta::assert_snapshot!(trimmed(queues(&world, &published)), @r"
        QUEUE  RUNNING GPUS  CHARGED  JOBS            NEXT JOB WAITS FOR
        vc-a   0             0/16     0 in, 1 queued  WaitingForRoom
        ");
        insta::assert_snapshot!(trimmed(pools(&world, &published)), @r"
        POOL        GPUS  FREE  RUNNING
        gpu-a.h100  32    20    ░░░░░░░░░░░░░░░░░░░░ 0
        ");
        assert!(gauge(16, 32).starts_with("██████████░"));
        assert_eq!(gauge(0, 0).chars().filter(|&cell| cell == '█').count(), 0);
    }
}
