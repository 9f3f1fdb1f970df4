//! Prints the metrics of a run as plain-text tables.

use crate::fault_metrics::{FaultMetrics, RatioRange};
use crate::metrics::{Distribution, RunMetrics};
use crate::run::RunOutcome;
use comfy_table::{CellAlignment, Table, presets};

/// The most queues in the table; the others are summed in one line.
const QUEUES_SHOWN: usize = 20;
/// The most jobs in the table of faults.
const JOBS_SHOWN: usize = 10;

/// Formats the tables of a run.
#[must_use]
pub fn tables(metrics: &RunMetrics, outcome: &RunOutcome) -> String {
    let mut text = format!("{}\n\n{}\n", summary(metrics), by_size(metrics));
    if metrics.queues.len() > 1 {
        text.push_str(&format!("\n{}\n", by_queue(metrics)));
    }
    if !metrics.starts.is_empty() {
        text.push_str(&format!("\n{}\n", expected_starts(metrics)));
    }
    if let Some(faults) = &metrics.faults {
        text.push_str(&format!("\n{}\n", of_faults(faults, metrics)));
    }
    for (job, why) in &outcome.stuck {
        text.push_str(&format!("\n{job} never started. {why}"));
    }
    if !outcome.stuck.is_empty() {
        text.push('\n');
    }
    text
}

fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(columns);
    for index in 1..columns.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn spread(name: &str, spread: &Distribution, of: fn(f64) -> String) -> Vec<String> {
    let values = [spread.average, spread.p50, spread.p99, spread.max];
    let cells = std::iter::once(name.to_owned()).chain(std::iter::once(spread.count.to_string()));
    cells.chain(values.map(of)).collect()
}

/// Formats a duration: `87 s`, `1 h 12 m`, `3 d 4 h`.
fn duration(seconds: f64) -> String {
    let whole = seconds.round() as i64;
    match whole {
        0..600 => format!("{whole} s"),
        600..7_200 => format!("{} m", whole / 60),
        7_200..172_800 => format!("{} h {:02} m", whole / 3_600, whole / 60 % 60),
        _ => format!("{} d {:02} h", whole / 86_400, whole / 3_600 % 24),
    }
}

fn times(value: f64) -> String {
    format!("{value:.1}×")
}

fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

fn summary(metrics: &RunMetrics) -> String {
    let unit = metrics.measure.word();
    let mut times_table = table(&["", "jobs", "average", "p50", "p99", "longest"]);
    times_table.add_row(spread("completion", &metrics.completion, duration));
    times_table.add_row(spread("wait", &metrics.wait, duration));
    let big = format!("wait of ≥ 8 {unit}s");
    times_table.add_row(spread(&big, &metrics.wait_big, duration));
    times_table.add_row(spread("slowdown", &metrics.slowdown, times));
    let jain = metrics
        .jain
        .map_or("-".to_owned(), |jain| format!("{jain:.3}"));
    let mut rows = table(&["over the arrivals", ""]);
    let lost = metrics.lost_hours;
    for (name, value) in [
        ("in use", percent(metrics.use_in_window)),
        (
            "free but of no use to the mix of jobs",
            percent(metrics.fragmentation),
        ),
        ("Jain's index of fair shares", jain),
        ("apart from fair shares", percent(metrics.unfairness)),
        ("work", format!("{:.1} {unit}-hours", metrics.work_hours)),
        ("lost by being evicted", format!("{lost:.1} {unit}-hours")),
        (
            "evicted, resized",
            format!(
                "{}, {}",
                metrics.decisions.evicted, metrics.decisions.resizes
            ),
        ),
        (
            "over several clusters",
            format!("{} jobs, at most {}", metrics.splits, metrics.most_clusters),
        ),
        ("all done after", duration(metrics.makespan)),
        (
            "done, never started",
            format!("{}, {}", metrics.finished, metrics.never_started),
        ),
    ] {
        rows.add_row([name.to_owned(), value]);
    }
    format!("{times_table}\n\n{rows}")
}

fn by_size(metrics: &RunMetrics) -> String {
    let size = format!("wait by {}s", metrics.measure.word());
    let mut rows = table(&[&size, "jobs", "average", "p50", "p99", "longest"]);
    for group in &metrics.wait_by_size {
        rows.add_row(spread(&group.size, &group.wait, duration));
    }
    rows.to_string()
}

fn by_queue(metrics: &RunMetrics) -> String {
    let in_use = format!("{}s in use", metrics.measure.word());
    let mut rows = table(&["queue", "jobs", "completion", "wait", "wait p99", &in_use]);
    for queue in metrics.queues.iter().take(QUEUES_SHOWN) {
        rows.add_row([
            queue.name.clone(),
            queue.completion.count.to_string(),
            duration(queue.completion.average),
            duration(queue.wait.average),
            duration(queue.wait.p99),
            format!("{:.1}", queue.in_use),
        ]);
    }
    let more = metrics.queues.len().saturating_sub(QUEUES_SHOWN);
    let note = if more > 0 {
        format!("\n{more} more queues: --output json shows all")
    } else {
        String::new()
    };
    format!("{rows}{note}")
}

fn expected_starts(metrics: &RunMetrics) -> String {
    let mut rows = table(&[
        "expected starts after",
        "starts",
        "in range",
        "early",
        "late",
        "no end",
        "width p50",
        "wait left p50",
    ]);
    for stage in &metrics.starts {
        let share = |count: usize| percent(count as f64 / stage.starts.max(1) as f64);
        rows.add_row([
            duration(stage.waited),
            stage.starts.to_string(),
            share(stage.within),
            share(stage.early),
            share(stage.late),
            share(stage.open),
            duration(stage.width.p50),
            duration(stage.left.p50),
        ]);
    }
    rows.to_string()
}

fn ratio(value: f64) -> String {
    format!("{value:.4}")
}

fn of_faults(faults: &FaultMetrics, metrics: &RunMetrics) -> String {
    let unit = metrics.measure.word();
    let hours = |hours: f64| format!("{hours:.1} {unit}-hours");
    let range = |range: &RatioRange| format!("{}, {}", ratio(range.p50), ratio(range.min));
    let hit = faults.jobs_hit_share;
    let (hit_by, all_by) = (faults.added_run_time_of_hit, faults.added_run_time);
    let mut rows = table(&["faults", ""]);
    let mut add = |name: &str, value: String| {
        rows.add_row([name.to_owned(), value]);
    };
    add(
        "nodes lost, devices failed",
        format!("{}, {}", faults.nodes_lost, faults.device_faults),
    );
    add(
        "jobs hit",
        format!("{} ({})", faults.jobs_hit, percent(hit)),
    );
    add(
        "evicted, went on in place",
        format!("{}, {}", faults.evicted, faults.in_place),
    );
    add("work lost", hours(faults.lost_hours));
    add("waiting for recovery", hours(faults.recovering_hours));
    add("starting again", hours(faults.restarting_hours));
    add("ETTR of all jobs: p50, lowest", range(&faults.ettr));
    add("ETTR of jobs hit: p50, lowest", range(&faults.ettr_of_hit));
    if let Some(largest) = &faults.largest {
        let name = format!("ETTR of {} ({} {unit}s)", largest.job, largest.size);
        add(&name, ratio(largest.ettr));
    }
    add(
        "added run time: of all, of jobs hit",
        format!("{}, {}", percent(all_by), percent(hit_by)),
    );
    let misplaced = format!("{} of {}", faults.misplaced, faults.placed);
    add("pods placed on nodes out of service", misplaced);
    let mut times = table(&["recovery", "times", "average", "p50", "p99", "longest"]);
    times.add_row(spread(
        "loss seen → evicted",
        &faults.seen_to_evicted,
        duration,
    ));
    times.add_row(spread("gone → running", &faults.gone_to_running, duration));
    times.add_row(spread(
        "fault → running",
        &faults.fault_to_running,
        duration,
    ));
    format!("{rows}\n\n{times}{}", jobs_hit(faults, unit))
}

/// The jobs that lost most.
fn jobs_hit(faults: &FaultMetrics, unit: &str) -> String {
    if faults.jobs.is_empty() {
        return String::new();
    }
    let sizes = format!("{unit}s");
    let lost = format!("lost {unit}-hours");
    let mut rows = table(&[
        "jobs hit",
        &sizes,
        "attempts",
        "faults",
        &lost,
        "recovering",
        "ETTR",
    ]);
    let mut jobs: Vec<_> = faults.jobs.iter().collect();
    jobs.sort_by(|a, b| b.lost_hours.total_cmp(&a.lost_hours));
    for job in jobs.iter().take(JOBS_SHOWN) {
        rows.add_row([
            job.job.clone(),
            job.size.to_string(),
            job.attempts.to_string(),
            job.faults.to_string(),
            format!("{:.1}", job.lost_hours),
            duration(job.recovering),
            ratio(job.ettr),
        ]);
    }
    let more = jobs.len().saturating_sub(JOBS_SHOWN);
    let note = match more {
        0 => String::new(),
        _ => format!("\n{more} more jobs: --output json shows all"),
    };
    format!("\n\n{rows}{note}")
}
