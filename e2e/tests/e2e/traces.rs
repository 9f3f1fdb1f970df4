//! The traces of jobs, as a real collector of OpenTelemetry receives them by TLS from clients that it knows: one
//! trace for each job from its submission to its end, under the span that its author names, and no span twice although
//! Muster is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use e2e::harness::muster::{self, Muster, ProcessRole};
use e2e::harness::wait::eventually;
use serde_json::json;
use testbed::Testbed;
use testbed::tools::{self, Tool, Toolset};

use crate::case::{Case, SOON};
use crate::job::Job;
use crate::plane::FLAGS;
use crate::story::managed_alone;

/// The trace and the span that the author of a job names.
const PARENT: [&str; 2] = ["4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"];

/// A span, by the names that the collector prints.
type Span = BTreeMap<String, String>;

/// A running collector.
struct Collector {
    port: u16,
    log: PathBuf,
}

impl Collector {
    /// Starts one that accepts TLS only, from clients with a certificate of the testbed.
    fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        let tools = tools::ensure(&[Toolset::Collector], &|line| eprintln!("{line}"))?;
        let (config, pki) = (
            testbed.dir().join("collector.yaml"),
            testbed.dir().join("pki"),
        );
        let mut written = Ok(());
        let program = tools.program(Tool::Collector)?;
        let ports = testbed.start_process("collector", &program, 1, |ports| {
            let settings = json!({
                "receivers": {"otlp": {"protocols": {"grpc": {
                    "endpoint": format!("127.0.0.1:{}", ports[0]),
                    "tls": {
                        "cert_file": pki.join("server.crt"),
                        "key_file": pki.join("server.key"),
                        "client_ca_file": pki.join("ca.crt"),
                    },
                }}}},
                "exporters": {"debug": {"verbosity": "detailed", "use_internal_logger": false}},
                "service": {
                    "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["debug"]}},
                },
            });
            written = std::fs::write(&config, settings.to_string());
            vec![format!("--config={}", config.display())]
        })?;
        written?;
        Ok(Self {
            port: ports[0],
            log: testbed.dir().join("log/collector.log"),
        })
    }

    /// Returns the spans of a job that have arrived.
    fn spans(&self, job: &Job) -> anyhow::Result<Vec<Span>> {
        let text = std::fs::read_to_string(&self.log)?;
        let mut spans: Vec<Span> = Vec::new();
        for line in text.lines() {
            if line.starts_with("Span #") {
                spans.push(Span::new());
            }
            let Some(span) = spans.last_mut() else {
                continue;
            };
            let line = line.trim_start().trim_start_matches("-> ");
            if let Some((name, value)) = line.split_once(':') {
                let value = value.trim();
                let plain = value.strip_prefix("Str(");
                let plain = plain.and_then(|value| value.strip_suffix(')'));
                span.insert(name.trim().to_owned(), plain.unwrap_or(value).to_owned());
            }
        }
        spans.retain(|span| {
            span.get("muster.job") == Some(&job.binding())
                && span.get("k8s.namespace.name") == Some(&job.namespace)
        });
        Ok(spans)
    }

    /// Waits for the span of a whole job, and returns all of its spans by name.
    async fn trace(&self, job: &Job) -> anyhow::Result<BTreeMap<String, Span>> {
        let what = format!("the trace of {} has ended", job.name);
        eventually(SOON, &what, async || {
            let spans = self.spans(job).map_err(|error| error.to_string())?;
            match spans.iter().any(|span| span["Name"] == "job") {
                true => Ok(()),
                false => Err(format!("{} spans", spans.len())),
            }
        })
        .await?;
        let spans = self.spans(job)?;
        let ids: BTreeSet<&String> = spans.iter().map(|span| &span["ID"]).collect();
        ensure!(ids.len() == spans.len(), "a span came twice: {spans:#?}");
        let named = |span: Span| (span["Name"].clone(), span);
        Ok(spans.into_iter().map(named).collect())
    }
}

/// Checks what holds for the trace of every job that succeeded.
fn is_whole(job: &Job, spans: &BTreeMap<String, Span>) -> anyhow::Result<()> {
    for name in ["queued", "dispatch", "start", "run", "job"] {
        ensure!(
            spans.contains_key(name),
            "{}: no {name}: {spans:#?}",
            job.name
        );
    }
    let whole = &spans["job"];
    ensure!(whole["muster.outcome"] == "Succeeded", "{whole:#?}");
    for (name, span) in spans.iter().filter(|(name, _)| *name != "job") {
        ensure!(span["Trace ID"] == whole["Trace ID"], "{name}: {span:#?}");
        ensure!(span["Parent ID"] == whole["ID"], "{name}: {span:#?}");
        // The times have one format and zone, so they compare as text.
        let within =
            whole["Start time"] <= span["Start time"] && span["End time"] <= whole["End time"];
        ensure!(within, "{name} is not within the job: {span:#?}");
    }
    for (before, after) in [
        ("queued", "dispatch"),
        ("dispatch", "start"),
        ("start", "run"),
    ] {
        let meets = spans[before]["End time"] == spans[after]["Start time"];
        ensure!(meets, "{before} does not end with {after}: {spans:#?}");
    }
    Ok(())
}

/// Runs one job while another one waits for it, and kills Muster meanwhile.
async fn traced(case: &Case, muster: &Muster, collector: &Collector) -> anyhow::Result<()> {
    let testbed = &case.plane.testbed;
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    let mut first = case.gang("first", 2, 4).batch();
    let given = format!("00-{}-{}-01", PARENT[0], PARENT[1]);
    first["metadata"]["annotations"]["traceparent"] = json!(given);
    let first = case.submit(&first).await?;
    case.running(&first).await?;
    let second = case.submit(&case.gang("second", 1, 8).volcano()).await?;
    case.waits(&second, &["WaitingForQuota", "NextInLine"])
        .await?;
    // What has ended by now was sent by the process that is killed.
    eventually(SOON, "three phases have arrived", async || {
        let spans = collector.spans(&first).map_err(|error| error.to_string())?;
        match spans.len() {
            3.. => Ok(()),
            less => Err(format!("{less} spans")),
        }
    })
    .await?;
    muster.kill(testbed, ProcessRole::Earlier).await?;
    muster.start(testbed, ProcessRole::Earlier).await?;
    case.end(&first).await?;
    case.running(&second).await?;
    case.end(&second).await?;
    case.finished(&second, "Succeeded").await?;

    let spans = collector.trace(&first).await?;
    is_whole(&first, &spans)?;
    ensure!(spans["job"]["Trace ID"] == PARENT[0], "{spans:#?}");
    ensure!(spans["job"]["Parent ID"] == PARENT[1], "{spans:#?}");
    ensure!(
        spans["run"]["muster.placement"] == "member1:2",
        "{spans:#?}"
    );
    let spans = collector.trace(&second).await?;
    is_whole(&second, &spans)?;
    ensure!(spans["job"]["Trace ID"] != PARENT[0], "{spans:#?}");
    ensure!(spans["job"]["Parent ID"].is_empty(), "{spans:#?}");
    let reason = spans["queued"].get("muster.reason");
    let reason = reason.context("the wait has no reason")?;
    ensure!(
        reason.contains("NextInLine") || reason.contains("Quota"),
        "{reason}"
    );
    Ok(())
}

/// Checks that the collector accepts clients with a certificate only, by the word of another program than Muster.
async fn accepts_known_clients_only(
    collector: &Collector,
    ca: &Path,
    client: [&Path; 2],
) -> anyhow::Result<()> {
    // By TLS 1.3 a client learns of the refusal only when it reads.
    let connected = async |more: &[&OsStr]| {
        let mut openssl = tokio::process::Command::new("openssl");
        openssl
            .args(["s_client", "-tls1_2", "-verify_return_error", "-connect"])
            .arg(format!("127.0.0.1:{}", collector.port))
            .arg("-CAfile")
            .arg(ca)
            .args(more)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = openssl.output().await.context("run openssl")?;
        Ok::<_, anyhow::Error>(output.status.success())
    };
    let [certificate, key] = client.map(Path::as_os_str);
    let known = ["-cert".as_ref(), certificate, "-key".as_ref(), key];
    eventually(SOON, "the collector serves", async || {
        let served = connected(&known).await;
        match served.map_err(|error| error.to_string())? {
            true => Ok(()),
            false => Err("it refuses a client that it knows".to_owned()),
        }
    })
    .await?;
    ensure!(
        !connected(&[]).await?,
        "it accepts a client that it does not know"
    );
    Ok(())
}

#[test]
#[ignore = "soak: builds a collector"]
fn a_job_is_one_trace_from_its_submission_to_its_end() {
    managed_alone("traces", async |case| {
        let (testbed, own) = (&case.plane.testbed, &case.plane.muster);
        let collector = Collector::start(testbed)?;
        let endpoint = format!("--otlp-endpoint=https://127.0.0.1:{}", collector.port);
        let pki = |name: &str| testbed.dir().join("pki").join(name);
        let ca = format!("--otlp-ca={}", pki("ca.crt").display());
        let (certificate, key) = (pki("admin.crt"), pki("admin.key"));
        accepts_known_clients_only(&collector, &pki("ca.crt"), [&certificate, &key]).await?;
        let client = [("certificate", &certificate), ("key", &key)]
            .map(|(flag, file)| format!("--otlp-client-{flag}={}", file.display()));
        let flags = [&FLAGS[..], &[&endpoint, &ca, &client[0], &client[1]]].concat();
        let muster = own.earlier(muster::program()?, &flags);
        own.stop(testbed, ProcessRole::All).await?;
        muster.start(testbed, ProcessRole::Earlier).await?;
        let outcome = traced(case, &muster, &collector).await;
        muster.stop(testbed, ProcessRole::Earlier).await?;
        own.start(testbed, ProcessRole::All).await?;
        testbed.kill("collector")?;
        outcome
    });
}
