//! Logs to stdout, and the traces of jobs by OTLP if an endpoint is configured.
//!
//! The filter comes from `RUST_LOG`, default `info`. With any filter, kube's client is kept quiet: on a
//! decode error it logs the whole body, which may contain Secrets, and Muster reports every failed call
//! itself, with its purpose.

use crate::traces::TraceSink;
use anyhow::Context as _;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig, Identity};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use std::fmt;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::str::FromStr;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Standard variable with the OTLP endpoint.
const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Standard variable with the file of the certificates that the collector's certificate is checked by.
const CERTIFICATE_VARIABLE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
/// Standard variables with the files of the certificate that the collector is shown, and of its key.
const CLIENT_VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
];
/// The flags with the files of [`OtlpOptions`].
const FLAGS: [&str; 3] = [
    "--otlp-ca",
    "--otlp-client-certificate",
    "--otlp-client-key",
];
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
    /// File with the certificate (PEM) by which the collector knows this process (mutual TLS); else
    /// `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE`; else none. It needs the key.
    pub client_certificate: Option<PathBuf>,
    /// File with the key (PEM) of that certificate; else `OTEL_EXPORTER_OTLP_CLIENT_KEY`; else none.
    pub client_key: Option<PathBuf>,
}

/// The PEM files of a connection with TLS.
#[derive(Debug, Clone, Default)]
struct TlsFiles {
    ca: Option<PathBuf>,
    /// The certificate of this process, and its key.
    client: Option<[PathBuf; 2]>,
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
    let given = [otlp.ca, otlp.client_certificate, otlp.client_key];
    let files = match endpoint.starts_with("https://") {
        true => tls_files(given, |name| variable(name).map(PathBuf::from))?,
        false => {
            let useless = FLAGS.iter().zip(&given).find(|(_, file)| file.is_some());
            if let Some((flag, _)) = useless {
                anyhow::bail!(
                    "{flag} is for an endpoint that begins with https://, and it is {endpoint}"
                );
            }
            TlsFiles::default()
        }
    };
    let exporter =
        exporter(&endpoint, &files).with_context(|| format!("cannot send traces to {endpoint}"))?;
    let resource = Resource::builder()
        .with_service_name(service_name.to_owned())
        .build();
    Ok(TraceSink::to(exporter, &resource))
}

/// Returns the files that flags name, in the order of [`FLAGS`], or else variables.
fn tls_files(
    given: [Option<PathBuf>; 3],
    variable: impl Fn(&'static str) -> Option<PathBuf>,
) -> anyhow::Result<TlsFiles> {
    let [of_certificate, of_key] = CLIENT_VARIABLES;
    let [ca, certificate, key] = given;
    let ca = ca.or_else(|| variable(CERTIFICATE_VARIABLE));
    let client = [(certificate, of_certificate), (key, of_key)]
        .map(|(given, name)| given.or_else(|| variable(name)));
    let client = match client {
        [Some(certificate), Some(key)] => Some([certificate, key]),
        [None, None] => None,
        [Some(_), None] => anyhow::bail!(
            "the client certificate for the collector needs its key: --otlp-client-key or {of_key}"
        ),
        [None, Some(_)] => anyhow::bail!(
            "the client key for the collector needs its certificate: --otlp-client-certificate or {of_certificate}"
        ),
    };
    Ok(TlsFiles { ca, client })
}

fn exporter(endpoint: &str, files: &TlsFiles) -> anyhow::Result<SpanExporter> {
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
    if !endpoint.starts_with("https://") {
        return Ok(exporter.build()?);
    }
    crate::install_crypto();
    let read = |path: &PathBuf| std::fs::read(path).with_context(|| path.display().to_string());
    let mut tls = ClientTlsConfig::new();
    tls = match &files.ca {
        Some(path) => tls.ca_certificate(Certificate::from_pem(read(path)?)),
        None => tls.with_native_roots(),
    };
    if let Some([certificate, key]) = &files.client {
        tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
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
                ..OtlpOptions::default()
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

    #[tokio::test]
    async fn a_client_certificate_that_cannot_be_used_is_refused() {
        let no_pem = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let sent = |endpoint: &str, certificate: Option<&PathBuf>, key: Option<&PathBuf>| {
            let otlp = OtlpOptions {
                endpoint: Some(endpoint.to_owned()),
                client_certificate: certificate.cloned(),
                client_key: key.cloned(),
                ..OtlpOptions::default()
            };
            let sink = sink(otlp, "muster").map(|sink| sink.is_open());
            format!("{:#}", sink.unwrap_err())
        };
        let (file, missing) = (Some(&no_pem), PathBuf::from("/nowhere.key"));
        let (plain, tls) = ("http://collector:4317", "https://collector:4317");
        for (error, words) in [
            (
                sent(plain, file, file),
                "--otlp-client-certificate is for an endpoint that begins with https://",
            ),
            (
                sent(plain, None, file),
                "--otlp-client-key is for an endpoint that begins with https://",
            ),
            (
                sent(tls, file, None),
                "needs its key: --otlp-client-key or OTEL_EXPORTER_OTLP_CLIENT_KEY",
            ),
            (
                sent(tls, None, file),
                "needs its certificate: --otlp-client-certificate or OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
            ),
            (sent(tls, file, Some(&missing)), "/nowhere.key"),
            (
                sent(tls, file, file),
                "cannot send traces to https://collector:4317",
            ),
        ] {
            assert!(error.contains(words), "{words:?} is not in {error:?}");
        }
    }

    #[test]
    fn flags_come_before_the_standard_variables() {
        let variable = |name: &'static str| Some(PathBuf::from(name));
        let flag = || Some(PathBuf::from("flag"));
        let all = tls_files([flag(), flag(), flag()], variable).unwrap();
        assert_eq!(all.ca, flag());
        assert_eq!(all.client, Some(["flag", "flag"].map(PathBuf::from)));
        let mixed = tls_files([None, flag(), None], variable).unwrap();
        assert_eq!(mixed.ca, Some("OTEL_EXPORTER_OTLP_CERTIFICATE".into()));
        let [_, of_key] = CLIENT_VARIABLES;
        assert_eq!(mixed.client, Some(["flag", of_key].map(PathBuf::from)));
        let none = tls_files([None, None, None], |_| None).unwrap();
        assert_eq!((none.ca, none.client), (None, None));
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
