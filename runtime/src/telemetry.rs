//! Logs to stdout, and traces by OTLP if an endpoint is configured.
//!
//! The filter comes from `RUST_LOG`, default `info`. With any filter, kube's client is kept quiet: on a
//! decode error it logs the whole body, which may contain Secrets, and Muster reports every failed call
//! itself, with its purpose.

use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::fmt;
use std::io::IsTerminal;
use std::str::FromStr;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Standard variable with the OTLP endpoint.
const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
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

/// Sends the remaining traces when it is dropped; keep it until the end of `main`.
#[must_use = "traces are flushed when the guard is dropped"]
#[derive(Debug)]
pub struct Guard(Option<SdkTracerProvider>);

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(provider) = self.0.take() else {
            return;
        };
        if let Err(error) = provider.shutdown() {
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }
}

/// Starts logging, and tracing if `otlp_endpoint` or `OTEL_EXPORTER_OTLP_ENDPOINT` has a gRPC endpoint.
/// Call it once in a process, within the tokio runtime.
///
/// # Errors
/// Returns an error if `RUST_LOG` or the endpoint is invalid, or logging was started before.
pub fn init(
    format: LogFormat,
    otlp_endpoint: Option<String>,
    service_name: &str,
) -> anyhow::Result<Guard> {
    let endpoint = otlp_endpoint
        .or_else(|| std::env::var(ENDPOINT_VARIABLE).ok())
        .filter(|endpoint| !endpoint.is_empty());
    let provider = endpoint
        .map(|endpoint| provider(&endpoint, service_name))
        .transpose()?;
    let traces = provider
        .as_ref()
        .map(|provider| provider.tracer(service_name.to_owned()))
        .map(|tracer| tracing_opentelemetry::layer().with_tracer(tracer));
    // Colours are for people; a file or a pipe gets plain text.
    let lines = tracing_subscriber::fmt::layer().with_ansi(std::io::stdout().is_terminal());
    let lines = match format {
        // Log lines name their subject themselves; spans are for traces.
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
        .with(traces)
        .try_init()
        .context("logging was started before")?;
    Ok(Guard(provider))
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

fn provider(endpoint: &str, service_name: &str) -> anyhow::Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .with_context(|| format!("cannot send traces to {endpoint}"))?;
    let resource = Resource::builder()
        .with_service_name(service_name.to_owned())
        .build();
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .build())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bodies_of_answers_never_reach_the_log() {
        for asked in ["", "debug", "kube_client=trace,info"] {
            let filter = filter_of(asked).unwrap().to_string();
            assert!(filter.contains("kube_client::client=error"), "{filter}");
        }
        assert!(filter_of("a=b=c").is_err());
    }
}
