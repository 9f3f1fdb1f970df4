//! The metrics of the processes, and what refers to them: alerts, runbooks, dashboards and documents.
//!
//! The names come from processes that run here against an API server in the process, so that a metric that
//! is renamed or removed makes these tests fail.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::args::{MusterArgs, MusterCommand};
use clap::Parser as _;
use runtime::metrics::MetricDescription;
use runtime::testing::FakeApi;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The repository's root.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Time after which a metric counts as never registered.
const LONGEST: Duration = Duration::from_secs(20);
/// A metric of each part that registers its metrics last.
const LAST: [&str; 4] = [
    "muster_pool_nodes",
    "muster_status_writes_total",
    "muster_webhook_requests_total",
    "muster_bindings_unadmitted_total",
];

type Described = BTreeMap<String, MetricDescription>;

fn path(inside: &str) -> PathBuf {
    Path::new(ROOT).join(inside)
}

fn read(inside: &str) -> String {
    std::fs::read_to_string(path(inside)).unwrap()
}

/// Returns the names of the files in a folder with this ending, without it.
fn files(folder: &str, ending: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(path(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter_map(|name| name.strip_suffix(ending).map(str::to_owned))
        .collect()
}

/// An API server with the CRDs, which the controller reads first.
fn with_crds() -> FakeApi {
    let api = FakeApi::new();
    for (name, yaml) in crds::yaml::manifests() {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        api.put(&path, serde_saphyr::from_str(yaml).unwrap());
    }
    api
}

/// Starts every part of Muster and returns the metrics that they export.
async fn exported() -> Described {
    let cancel = CancellationToken::new();
    let _guard = cancel.clone().drop_guard();
    let args = MusterArgs::parse_from(["muster", "--kubeconfig=/nowhere", "all"]);
    let MusterCommand::All(process) = args.command else {
        panic!("these are the flags of `muster all`");
    };
    let api = with_crds();
    let mut tasks = JoinSet::new();
    // The scheduler alone has metrics of its own.
    let registries = [ProcessParts::ALL, ProcessParts::SCHEDULER].map(|parts| {
        let registry = Registry::new();
        describe_process(&args.connection, &registry, &cancel);
        let shared = ProcessShared {
            client: api.client(),
            renewal: None,
            registry: registry.clone(),
            health: Health::new(),
            traces: TraceSink::default(),
            alerts: AlertIntake::default(),
        };
        spawn_leader(&mut tasks, parts, &process, shared, &cancel);
        registry
    });
    let options = webhook::WebhookOptions {
        bind: "127.0.0.1:0".parse().unwrap(),
        ..webhook_options(&process).unwrap()
    };
    let (client, registry) = (api.client(), registries[0].clone());
    let ends = cancel.clone();
    tasks.spawn(async move {
        webhook::run(client, options, &registry, &Health::new(), ends).await?;
        Ok("webhook")
    });
    let started = Instant::now();
    loop {
        let mut described = Described::new();
        for registry in &registries {
            described.extend(registry.described().unwrap());
        }
        let missing = LAST.iter().find(|name| !described.contains_key(**name));
        match missing {
            None => return described,
            Some(name) if started.elapsed() > LONGEST => panic!("{name} is never registered"),
            Some(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// An alert of the chart's rules.
struct AlertRule {
    name: String,
    expr: String,
    fields: Value,
}

fn alerts() -> Vec<AlertRule> {
    let rules: Value =
        serde_saphyr::from_str(&read("deploy/chart/muster/files/alerts.yaml")).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap());
    let alerts = rules.map(|rule| AlertRule {
        name: rule["alert"].as_str().unwrap().to_owned(),
        expr: rule["expr"].as_str().unwrap().to_owned(),
        fields: rule.clone(),
    });
    alerts.collect()
}

/// Returns the queries of a dashboard: of its panels and of its variables.
fn queries(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let own = fields
                .iter()
                .filter(|(name, _)| ["expr", "query"].contains(&name.as_str()));
            let own = own.filter_map(|(_, query)| query.as_str().map(str::to_owned));
            let own = own.filter(|query| query != "prometheus");
            own.chain(fields.values().flat_map(queries)).collect()
        }
        Value::Array(items) => items.iter().flat_map(queries).collect(),
        _ => Vec::new(),
    }
}

fn dashboards() -> BTreeMap<String, Value> {
    let folder = "deploy/chart/muster/files/dashboards";
    let names = files(folder, ".json").into_iter();
    names
        .map(|name| {
            let text = read(&format!("{folder}/{name}.json"));
            let board =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, board)
        })
        .collect()
}

/// Returns the names of metrics of Muster's processes in `text`.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let ours = |word: &&str| word.starts_with("muster_") || word.starts_with("process_");
    words.filter(ours).collect()
}

fn unknown<'a>(text: &'a str, series: &BTreeSet<String>) -> Vec<&'a str> {
    let names = names(text).into_iter();
    names.filter(|name| !series.contains(*name)).collect()
}

/// The text of docs/reference/metrics.md.
fn reference(described: &Described) -> String {
    let rows = described.values().map(|metric| {
        let MetricDescription { name, kind, help } = metric;
        format!("| `{name}` | {kind} | {help} |\n")
    });
    format!(
        "# Metrics\n\nWhat Muster's processes export at `/metrics`. [Metrics, alerts and \
         traces](../operators/monitoring.md)\nsays which to watch.\nA histogram has the series \
         `_bucket`, `_sum` and `_count`. A test compares this page with the code, and writes it:\n\
         `UPDATE_METRICS=1 cargo test --workspace --bin muster metrics`.\n\n\
         | metric | type | what it is |\n|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_dashboards_and_documents_name_metrics_that_are_exported() {
    let described = exported().await;
    let series: BTreeSet<String> = described
        .values()
        .flat_map(MetricDescription::series)
        .collect();
    for alert in alerts() {
        assert!(
            !names(&alert.expr).is_empty(),
            "{} asks for nothing",
            alert.name
        );
        assert_eq!(unknown(&alert.expr, &series), [""; 0], "{}", alert.name);
    }
    for (name, board) in dashboards() {
        for query in queries(&board) {
            assert!(!names(&query).is_empty(), "{name}: {query}");
            assert_eq!(unknown(&query, &series), [""; 0], "{name}: {query}");
        }
    }
    let documents = ["docs/runbooks", "docs/operators"].into_iter();
    let documents = documents.flat_map(|folder| {
        let names = files(folder, ".md").into_iter();
        names.map(move |name| format!("{folder}/{name}.md"))
    });
    let known = described.keys().cloned().chain(series).collect();
    for document in documents {
        assert_eq!(unknown(&read(&document), &known), [""; 0], "{document}");
    }
    let reference = reference(&described);
    if std::env::var_os("UPDATE_METRICS").is_some() {
        std::fs::write(path("docs/reference/metrics.md"), &reference).unwrap();
    }
    let hint = "UPDATE_METRICS=1 cargo test --workspace --bin muster metrics";
    assert_eq!(read("docs/reference/metrics.md"), reference, "{hint}");
}

#[test]
fn every_alert_has_a_page_and_every_page_an_alert() {
    let mut pages = files("docs/runbooks", ".md");
    assert!(pages.remove("README"));
    let names: BTreeSet<String> = alerts().into_iter().map(|alert| alert.name).collect();
    assert_eq!(pages, names);
    let index = read("docs/runbooks/README.md");
    for name in &names {
        assert!(
            index.contains(&format!("({name}.md)")),
            "README.md names no {name}"
        );
        let page = read(&format!("docs/runbooks/{name}.md"));
        assert!(page.starts_with(&format!("# {name}\n")), "{name}");
        for part in [
            "## What it means",
            "## What to look at",
            "## What to do",
            "## When to ignore it",
        ] {
            assert!(page.contains(part), "{name} has no {part:?}");
        }
    }
}

#[test]
fn every_alert_says_how_bad_it_is_and_where_to_read_on() {
    for AlertRule { name, fields, .. } in alerts() {
        let severity = fields["labels"]["severity"].as_str();
        let known = ["critical", "warning", "info"];
        assert!(severity.is_some_and(|word| known.contains(&word)), "{name}");
        let annotation = |key: &str| fields["annotations"][key].as_str().unwrap_or_default();
        assert!(!annotation("summary").is_empty(), "{name}");
        assert!(!annotation("description").is_empty(), "{name}");
        // The page itself is compared above; the chart's value replaces the folder.
        assert_eq!(
            annotation("runbook_url"),
            format!("docs/runbooks/{name}.md")
        );
    }
}

#[test]
fn promtool_tests_that_each_alert_fires_and_when_it_does_not() {
    let tests: Value = serde_saphyr::from_str(&read("e2e/tests/e2e/alerts/test.yaml")).unwrap();
    let mut counts: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    for test in tests["tests"].as_array().unwrap() {
        for asked in test["promql_expr_test"].as_array().into_iter().flatten() {
            let expr = asked["expr"].as_str().unwrap();
            let name = expr.split('"').nth(1).unwrap().to_owned();
            let count = asked["exp_samples"][0]["value"].as_u64().unwrap();
            counts.entry(name).or_default().insert(count > 0);
        }
    }
    for AlertRule { name, .. } in alerts() {
        let tested = counts.remove(&name).unwrap_or_default();
        assert_eq!(tested, [false, true].into(), "{name}");
    }
    assert!(counts.is_empty(), "{counts:?}");
}

#[test]
fn dashboards_have_distinct_ids_and_no_panel_without_a_query() {
    let boards = dashboards();
    let names: Vec<&str> = boards.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "muster-clusters",
            "muster-health",
            "muster-overview",
            "muster-queue"
        ]
    );
    for (name, board) in &boards {
        assert_eq!(board["uid"], **name);
        for panel in board["panels"].as_array().unwrap() {
            let row = panel["type"] == "row";
            let title = panel["title"].as_str().unwrap();
            assert!(
                row || !queries(&panel["targets"]).is_empty(),
                "{name}: {title}"
            );
            assert!(
                row || panel["datasource"]["uid"] == "${datasource}",
                "{name}: {title}"
            );
        }
    }
}

#[test]
fn a_name_is_found_in_a_query_wherever_it_stands() {
    let query = r#"sum by (queue) (rate(muster_x_total{queue=~"$queue"}[5m])) / process_open_fds"#;
    assert_eq!(names(query), ["muster_x_total", "process_open_fds"].into());
}
