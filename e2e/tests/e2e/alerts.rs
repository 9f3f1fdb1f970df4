//! Muster's alerts and dashboards, checked by promtool: that Prometheus accepts them, and that each alert fires
//! when it should. That the metrics exist is checked in `muster/src/serve/tests.rs`, that they have values in
//! `prometheus.rs`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testbed::tools::{self, Tool, Toolset};

/// The repository's root.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
pub(crate) const ALERTS: &str = "deploy/chart/muster/files/alerts.yaml";
const DASHBOARDS: &str = "deploy/chart/muster/files/dashboards";
const TESTS: &str = "e2e/tests/e2e/alerts/test.yaml";

/// Runs promtool and returns what it prints.
pub(crate) fn promtool(arguments: &[&str]) -> anyhow::Result<String> {
    let tools = tools::ensure(&[Toolset::Prometheus], &|line| eprintln!("{line}"))?;
    let mut command = Command::new(tools.program(Tool::Promtool)?);
    let output = command.args(arguments).current_dir(ROOT).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}\n{said}{errors}");
    Ok(said)
}

/// Returns the queries of all dashboards.
pub(crate) fn all_queries() -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(Path::new(ROOT).join(DASHBOARDS))? {
        let board: Value = serde_json::from_str(&std::fs::read_to_string(entry?.path())?)?;
        all.extend(queries(&board)?);
    }
    ensure!(all.len() > 50, "only {} queries", all.len());
    Ok(all)
}

/// Returns the queries of a dashboard's panels, with values for Grafana's variables.
fn queries(board: &Value) -> anyhow::Result<Vec<String>> {
    let panels = board["panels"].as_array().context("no panels")?;
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let queries = targets
        .flatten()
        .filter_map(|target| target["expr"].as_str());
    let queries = queries.map(|query| query.replace("$__rate_interval", "5m"));
    Ok(queries.collect())
}

#[test]
#[ignore = "soak: builds promtool"]
fn prometheus_accepts_the_alerts_and_each_fires_when_it_should() -> anyhow::Result<()> {
    let said = promtool(&["check", "rules", "--lint=all", "--lint-fatal", ALERTS])?;
    ensure!(said.contains("23 rules found"), "{said}");
    let said = promtool(&["test", "rules", TESTS])?;
    ensure!(said.contains("SUCCESS"), "{said}");
    Ok(())
}

#[test]
#[ignore = "soak: builds promtool"]
fn prometheus_can_parse_the_queries_of_the_dashboards() -> anyhow::Result<()> {
    for query in all_queries()? {
        promtool(&["--experimental", "promql", "format", &query])?;
    }
    Ok(())
}
