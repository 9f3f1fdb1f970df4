//! A real Prometheus reads a real Muster with the chart's rules: every query of the dashboards has an answer, every
//! rule is evaluated, and every metric of the rules has a value. What stays empty is listed with the reason.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{CAPACITY_POLICY, QUEUE};
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::tools::{self, Tool, Toolset};

use crate::alerts::{ALERTS, ROOT, all_queries, promtool};
use crate::case::{Case, SOON};
use crate::story::managed_alone;

/// The parts of queries that have no answer here, and why.
const EMPTY: [(&str, &str); 3] = [
    (
        "muster_plans_refused_total",
        "the members have what the plans need",
    ),
    (
        "muster_preemptions_total",
        "no job is evicted for another one",
    ),
    (
        r#"kind="Lent""#,
        "a queue without deserved amounts lends none",
    ),
];

/// The value of Grafana's variable `job`: the job of Prometheus that reads Muster.
const JOB: &str = "muster";

/// A running Prometheus.
struct Prometheus {
    url: String,
}

impl Prometheus {
    /// Starts one that reads the plane's Muster, and itself, each second.
    async fn start(case: &Case) -> anyhow::Result<Self> {
        let testbed = &case.plane.testbed;
        let tools = tools::ensure(&[Toolset::Prometheus], &|line| eprintln!("{line}"))?;
        let status = testbed.status();
        let name = ProcessRole::All.process();
        let muster = status.iter().find(|process| process.name == name);
        let muster = muster
            .and_then(|process| process.port)
            .context("Muster has no port")?;
        let dir = testbed.dir().join("prometheus");
        std::fs::create_dir_all(&dir)?;
        let config = dir.join("prometheus.yml");
        let rules = Path::new(ROOT).join(ALERTS).canonicalize()?;
        let mut written = Ok(());
        let program = tools.program(Tool::Prometheus)?;
        let ports = testbed.start_process("prometheus", &program, 1, |ports| {
            let settings = settings(&rules, muster, ports[0]);
            written = std::fs::write(&config, settings.to_string());
            vec![
                format!("--config.file={}", config.display()),
                format!("--storage.tsdb.path={}", dir.join("data").display()),
                format!("--web.listen-address=127.0.0.1:{}", ports[0]),
            ]
        })?;
        written?;
        let prometheus = Self {
            url: format!("http://127.0.0.1:{}", ports[0]),
        };
        eventually(
            SOON,
            "Prometheus has read Muster",
            async || match prometheus.answers("muster_leading") {
                Ok(answers) if !answers.is_empty() => Ok(()),
                Ok(_) => Err("nothing yet".to_owned()),
                Err(error) => Err(format!("{error:#}")),
            },
        )
        .await?;
        Ok(prometheus)
    }

    /// Returns the samples of a query now.
    fn answers(&self, query: &str) -> anyhow::Result<Vec<Value>> {
        let said = promtool(&["query", "--format=json", "instant", &self.url, query])?;
        let answer: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
        let samples = answer.as_array().context("no list of samples")?;
        Ok(samples.clone())
    }

    /// Returns the value of the only sample of a query.
    fn number(&self, query: &str) -> anyhow::Result<f64> {
        let answers = self.answers(query)?;
        let value = answers
            .first()
            .and_then(|sample| sample["value"][1].as_str());
        Ok(value
            .with_context(|| format!("{query}: {answers:?}"))?
            .parse()?)
    }

    /// Returns which of `queries` have no answer, except those that are listed.
    fn unanswered(&self, queries: &BTreeSet<String>) -> anyhow::Result<Vec<String>> {
        let mut empty = Vec::new();
        for query in queries
            .iter()
            .filter(|query| reason_to_be_empty(query).is_none())
        {
            if self.answers(query)?.is_empty() {
                empty.push(query.clone());
            }
        }
        Ok(empty)
    }
}

/// Returns the configuration: to read Muster, and itself.
fn settings(rules: &Path, muster: u16, own: u16) -> Value {
    let target = |job: &str, port: u16| {
        let targets = [format!("127.0.0.1:{port}")];
        json!({"job_name": job, "static_configs": [{"targets": targets}]})
    };
    json!({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [rules],
        "scrape_configs": [target(JOB, muster), target("prometheus", own)],
    })
}

fn reason_to_be_empty(query: &str) -> Option<&'static str> {
    let mut listed = EMPTY.iter();
    let listed = listed.find(|(part, _)| query.contains(part));
    listed.map(|(_, reason)| *reason)
}

/// Returns the queries of the dashboards with values for their variables, and one for each metric of the rules.
fn queries() -> anyhow::Result<BTreeSet<String>> {
    let mut all: BTreeSet<String> = all_queries()?
        .iter()
        .map(|query| {
            let query = query.replace("$job", JOB);
            ["$cluster", "$pool", "$queue", "$resource"]
                .iter()
                .fold(query, |query, variable| query.replace(variable, ".+"))
        })
        .collect();
    let left: Vec<&String> = all.iter().filter(|query| query.contains('$')).collect();
    ensure!(left.is_empty(), "unknown variables: {left:?}");
    let rules = std::fs::read_to_string(Path::new(ROOT).join(ALERTS))?;
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics = words.filter(|word| word.starts_with("muster_"));
    all.extend(metrics.map(|name| format!("count({name})")));
    Ok(all)
}

/// Sets the quota of the queue.
async fn may_have(case: &Case, gpus: u32) -> anyhow::Result<()> {
    let quota = json!({"spec": {"capability": {"nvidia.com/gpu": gpus.to_string()}}});
    case.karmada()
        .merge(QUEUE, None, &case.name, &quota)
        .await?;
    Ok(())
}

/// Makes jobs that run, wait and were evicted, and a queue with more than it may have.
async fn busy(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    let runs = case.submit(&case.gang("runs", 2, 4).volcano()).await?;
    case.running(&runs).await?;
    for policy in ["HoldAndDrain", "None"] {
        case.capacity_policy(json!({"spec": {"stopPolicy": policy}}))
            .await?;
        if policy != "None" {
            case.waits(&runs, &["QueueStopped"]).await?;
        }
    }
    case.running(&runs).await?;
    let waits = case.submit(&case.gang("waits", 1, 4).batch()).await?;
    case.waits(&waits, &["WaitingForQuota", "NextInLine"])
        .await?;
    may_have(case, 4).await?;
    eventually(SOON, "the queue has more than it may have", async || {
        let policy = case.karmada().get(CAPACITY_POLICY, None, &case.name).await;
        let status = policy
            .map_err(|error| error.to_string())?
            .unwrap_or_default();
        match status["status"]["summary"].to_string() {
            summary if summary.contains("8/4") => Ok(()),
            summary => Err(summary),
        }
    })
    .await
}

#[test]
#[ignore = "soak: builds Prometheus"]
fn every_query_has_an_answer_in_a_real_prometheus() {
    managed_alone("prometheus", async |case| {
        let prometheus = Prometheus::start(case).await?;
        busy(case).await?;
        let queries = queries()?;
        eventually(
            SOON,
            "every query has an answer",
            async || match prometheus.unanswered(&queries) {
                Ok(empty) if empty.is_empty() => Ok(()),
                Ok(empty) => Err(empty.join("\n")),
                Err(error) => Err(format!("{error:#}")),
            },
        )
        .await?;
        for query in &queries {
            if let Some(reason) = reason_to_be_empty(query) {
                let answers = prometheus.answers(query)?;
                ensure!(answers.is_empty(), "{query}: not empty, although {reason}");
            }
        }
        ensure!(prometheus.number("sum(prometheus_rule_group_rules)")? > 17.0);
        let failed = prometheus.number("sum(prometheus_rule_evaluation_failures_total)")?;
        ensure!(failed < 1.0, "{failed} evaluations of rules failed");
        let pending = r#"ALERTS{alertname="MusterQueueOverCapability",alertstate="pending"}"#;
        ensure!(!prometheus.answers(pending)?.is_empty(), "{pending}");
        println!("MEASURED {} queries", queries.len());
        case.plane.testbed.kill("prometheus")?;
        may_have(case, 8).await
    });
}
