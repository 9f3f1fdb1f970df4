//! Logs to stdout, and the traces of jobs by OTLP if an endpoint is configured.
//!
//! The filter comes from `RUST_LOG`, default `info`. With any filter, kube's client is kept quiet: on a
//! decode error it logs the whole body, which may contain Secrets, and Muster reports every failed call
//! itself, with its purpose.

use crate::traces::TraceSink;
use anyhow::Context as _;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use std::fmt;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Standard variable with the OTLP endpoint.
const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Standard variable with the file of the certificates that the collector's certificate is checked by.
const CERTIFICATE_VARIABLE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
/// Directives that are added to every filter.
const QUIET: [&str; 2] = [
    "kube_client::client=error",
    "kube_client::client::builder=off",
];

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// One JSON object per line, for machines.
    #[default]
    Json,
    /// Text, for people.
    Text,
}

/// An invalid log format.
#[derive(Debug, thiserror::Error)]
#[error("log format {0:?} is not one of json, text")]
pub struct LogFormatError(String);

impl FromStr for LogFormat {
    type Err = LogFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            other => Err(LogFormatError(other.to_owned())),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "json",
            Self::Text => "text",
        })
    }
}

/// Where traces are sent.
#[derive(Debug, Clone, Default)]
pub struct OtlpOptions {
    /// The gRPC endpoint; else `OTEL_EXPORTER_OTLP_ENDPOINT`; else no traces.
    pub endpoint: Option<String>,
    /// File with the certificates (PEM) of the authorities that may have signed the collector's; else
    /// `OTEL_EXPORTER_OTLP_CERTIFICATE`; else those of the system. For an endpoint with `https`.
    pub ca: Option<PathBuf>,
}

/// Sends the remaining traces when it is dropped; keep it until the end of `main`.
#[must_use = "traces are flushed when the guard is dropped"]
#[derive(Debug)]
pub struct Guard(TraceSink);

impl Guard {
    /// Returns where the traces of jobs are sent.
    pub fn traces(&self) -> TraceSink {
        self.0.clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Starts logging, and sending traces if an endpoint is configured. Call it once in a process, within the tokio
/// runtime.
///
/// # Errors
/// Returns an error if `RUST_LOG`, the endpoint or its certificates are invalid, or logging was started before.
pub fn init(format: LogFormat, otlp: OtlpOptions, service_name: &str) -> anyhow::Result<Guard> {
    // Colours are for people; a file or a pipe gets plain text.
    let lines = tracing_subscriber::fmt::layer().with_ansi(std::io::stdout().is_terminal());
    let lines = match format {
        // Log lines name their subject themselves.
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
        LogFormat::Text => lines.boxed(),
    };
    tracing_subscriber::registry()
        .with(filter()?)
        .with(lines)
        .try_init()
        .context("logging was started before")?;
    Ok(Guard(sink(otlp, service_name)?))
}

fn filter() -> anyhow::Result<EnvFilter> {
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    filter_of(&asked)
}

fn filter_of(asked: &str) -> anyhow::Result<EnvFilter> {
    let asked = if asked.trim().is_empty() {
        "info"
    } else {
        asked
    };
    let filter = EnvFilter::builder()
        .parse(asked)
        .with_context(|| format!("RUST_LOG={asked:?} is not a list of target=level"))?;
    QUIET.iter().try_fold(filter, |filter, quiet| {
        Ok(filter.add_directive(Directive::from_str(quiet)?))
    })
}

/// Returns where traces are sent by `otlp` and the standard variables.
fn sink(otlp: OtlpOptions, service_name: &str) -> anyhow::Result<TraceSink> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let given = otlp.endpoint.filter(|endpoint| !endpoint.is_empty());
    let Some(endpoint) = given.or_else(|| variable(ENDPOINT_VARIABLE)) else {
        return Ok(TraceSink::default());
    };
    anyhow::ensure!(
        otlp.ca.is_none() || endpoint.starts_with("https://"),
        "--otlp-ca is for an endpoint that begins with https://, and it is {endpoint}"
    );
    let ca = otlp
        .ca
        .or_else(|| variable(CERTIFICATE_VARIABLE).map(PathBuf::from));
    let exporter = exporter(&endpoint, ca.as_deref())
        .with_context(|| format!("cannot send traces to {endpoint}"))?;
    let resource = Resource::builder()
        .with_service_name(service_name.to_owned())
        .build();
    Ok(TraceSink::to(exporter, &resource))
}

fn exporter(endpoint: &str, ca: Option<&Path>) -> anyhow::Result<SpanExporter> {
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
    if !endpoint.starts_with("https://") {
        return Ok(exporter.build()?);
    }
    crate::install_crypto();
    let tls = ClientTlsConfig::new();
    let tls = match ca {
        Some(path) => {
            let pem = std::fs::read(path).with_context(|| path.display().to_string())?;
            tls.ca_certificate(Certificate::from_pem(pem))
        }
        None => tls.with_native_roots(),
    };
    Ok(exporter.with_tls_config(tls).build()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_certificate_that_cannot_be_used_is_refused() {
        let sent = |endpoint: &str, ca: &str| {
            let otlp = OtlpOptions {
                endpoint: Some(endpoint.to_owned()),
                ca: Some(ca.into()),
            };
            sink(otlp, "muster").map(|sink| sink.is_open())
        };
        let error = sent("http://collector:4317", "/ca.pem").unwrap_err();
        assert!(
            format!("{error:#}").contains("--otlp-ca is for"),
            "{error:#}"
        );
        let error = sent("https://collector:4317", "/nowhere.pem").unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere.pem"), "{error:#}");
    }

    #[test]
    fn bodies_of_answers_never_reach_the_log() {
        for asked in ["", "debug", "kube_client=trace,info"] {
            let filter = filter_of(asked).unwrap().to_string();
            assert!(filter.contains("kube_client::client=error"), "{filter}");
        }
        assert!(filter_of("a=b=c").is_err());
    }
}
