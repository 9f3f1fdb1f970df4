//! Checks of the webhook: its registration, its certificate, and whether the API server reaches it.

use crate::{CheckError, CheckFinding, CheckReport, CheckedBy};
use crds::names::{
    SYSTEM_NAMESPACE, WEBHOOK_ANSWER_ANNOTATION, WEBHOOK_CONFIGURATION, WEBHOOK_PROBE,
    WEBHOOK_PROBE_LABEL,
};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::api::{ObjectMeta, PostParams};
use kube::client::Body;
use kube::{Api, Client, Config};
use runtime::client::{CallError, client_of, with_deadline};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::time::Duration;

const CHECK: &str = "webhook";
const WHY: &str =
    "managed namespaces accept no job while their gate does not answer, and gate none without it";
/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// Deadline of a connection.
const CONNECTED: Duration = Duration::from_secs(5);

pub(crate) async fn check(
    client: &Client,
    by: CheckedBy,
    report: &mut CheckReport,
) -> Result<(), CheckError> {
    let config = registration(client).await;
    let config = match config {
        Ok(Some(config)) => config,
        Ok(None) => {
            report.findings.push(CheckFinding::blocks(
                CHECK,
                format!("there is no MutatingWebhookConfiguration {WEBHOOK_CONFIGURATION}"),
                WHY,
                "start `muster all` or `muster webhook` with --register",
            ));
            return Ok(());
        }
        Err(error) => return report.absorb(CHECK, Err(error)),
    };
    let bundle = certificates(&config);
    if bundle.is_empty() {
        report.findings.push(CheckFinding::blocks(
            CHECK,
            "the caBundle of its registration is no certificate",
            WHY,
            "restart the webhook with --register, which writes the bundle of its own CA",
        ));
    }
    if let Some(url) = &config.url {
        of_url(url, bundle, by, report).await;
    }
    let found = of_service(client, &config).await;
    report.absorb(CHECK, found)?;
    called(client, report).await;
    Ok(())
}

/// Returns how the API server calls the gate; nothing if it is not registered.
async fn registration(client: &Client) -> Result<Option<WebhookClientConfig>, CheckError> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let seen = with_deadline(api.get_opt(WEBHOOK_CONFIGURATION), LIMIT).await;
    let seen = seen.map_err(CheckError::call("the registration of the webhook"))?;
    let hooks = seen.and_then(|seen| seen.webhooks).unwrap_or_default();
    Ok(hooks.into_iter().next().map(|hook| hook.client_config))
}

/// Returns the certificates of the bundle; none if one cannot be read.
fn certificates(config: &WebhookClientConfig) -> Vec<Vec<u8>> {
    let bundle = config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice());
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(bundle.unwrap_or_default()).collect();
    let certificates = read.unwrap_or_default().into_iter();
    certificates
        .map(|certificate| certificate.to_vec())
        .collect()
}

/// Connects to the URL as the API server does, and verifies its certificate.
async fn of_url(url: &str, bundle: Vec<Vec<u8>>, by: CheckedBy, report: &mut CheckReport) {
    let Some(address) = address(url) else {
        report.findings.push(CheckFinding::blocks(
            CHECK,
            format!("the URL of its registration, {url:?}, has no host"),
            WHY,
            "start the webhook with --register and a --webhook-url such as https://HOST:9443",
        ));
        return;
    };
    let connected = tokio::net::TcpStream::connect(&address);
    let reached = tokio::time::timeout(CONNECTED, connected).await;
    if !matches!(reached, Ok(Ok(_))) {
        let found = format!("{url} accepts no connection from here");
        match by {
            CheckedBy::Server { .. } => report.findings.push(CheckFinding::blocks(
                CHECK,
                format!("{found}; the API server may see it otherwise"),
                WHY,
                "start the webhook, or register it with a --webhook-url that the API server reaches",
            )),
            CheckedBy::User => report.unchecked(
                CHECK,
                format!("the certificate of the webhook: {found}"),
                "`muster check` where the webhook runs",
            ),
        }
        return;
    }
    if bundle.is_empty() {
        return;
    }
    if let Some(error) = unverified(url, bundle).await {
        report.findings.push(CheckFinding::blocks(
            CHECK,
            format!("the certificate that {url} presents does not belong to the caBundle of its registration: {error}"),
            WHY,
            "restart the webhook with --register, which writes the bundle of its own CA; --webhook-url has to name the \
             host that its certificate is for",
        ));
    }
}

/// Returns why the certificate of a server is refused; any answer of it is good.
async fn unverified(url: &str, bundle: Vec<Vec<u8>>) -> Option<String> {
    let mut config = Config::new(url.parse().ok()?);
    config.root_cert = Some(bundle);
    let client = client_of(config, "muster-check").ok()?;
    let request = http::Request::get("/").body(Body::empty()).ok()?;
    let error = with_deadline(client.send(request), CONNECTED).await.err()?;
    let message = error.message();
    message.contains("certificate").then_some(message)
}

/// Checks that the Service by which it is registered exists.
async fn of_service(
    client: &Client,
    config: &WebhookClientConfig,
) -> Result<Vec<CheckFinding>, CheckError> {
    let Some(service) = &config.service else {
        return Ok(Vec::new());
    };
    let api: Api<Service> = Api::namespaced(client.clone(), &service.namespace);
    let seen = with_deadline(api.get_opt(&service.name), LIMIT).await;
    let seen = seen.map_err(CheckError::call("the Service of the webhook"))?;
    let missing = seen.is_none().then(|| {
        CheckFinding::blocks(
            CHECK,
            format!(
                "it is registered by the Service {}/{}, which the control plane does not have",
                service.namespace, service.name
            ),
            WHY,
            "create that Service on the control plane (type ExternalName to where the webhook runs), or start the \
             webhook with --webhook-url",
        )
    });
    Ok(Vec::from_iter(missing))
}

/// Whether the API server reaches the webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookReach {
    /// The webhook answered.
    Answered,
    /// It did not answer; the message of the API server.
    Unanswered(String),
    /// The API server did not call it: it is not registered for the probe.
    NotCalled,
}

/// Has the API server call the webhook, by the dry run of a Lease that its registration selects.
///
/// # Errors
/// Returns an error if the API server gives no answer, or if something other than the webhook refuses the dry run: that
/// says nothing of the webhook.
pub async fn probe_webhook(client: &Client) -> Result<WebhookReach, CallError> {
    let api: Api<Lease> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let lease = Lease {
        metadata: ObjectMeta {
            generate_name: Some("probe-".to_owned()),
            labels: Some([(WEBHOOK_PROBE_LABEL.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        ..Lease::default()
    };
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match with_deadline(api.create(&params, &lease), LIMIT).await {
        Ok(answer) => {
            let annotations = answer.metadata.annotations.unwrap_or_default();
            match annotations.contains_key(WEBHOOK_ANSWER_ANNOTATION) {
                true => Ok(WebhookReach::Answered),
                false => Ok(WebhookReach::NotCalled),
            }
        }
        Err(error) if is_unanswered(&error.message()) => {
            Ok(WebhookReach::Unanswered(error.message()))
        }
        Err(error) => Err(error),
    }
}

/// Returns true if a message of the API server says that Muster's webhook did not answer, and not another's.
fn is_unanswered(message: &str) -> bool {
    message.contains("failed calling webhook") && message.contains(WEBHOOK_PROBE)
}

/// Reports whether the API server reaches the webhook.
async fn called(client: &Client, report: &mut CheckReport) {
    let finding = match probe_webhook(client).await {
        Ok(WebhookReach::Answered) => return,
        Ok(WebhookReach::Unanswered(message)) => CheckFinding::blocks(
            CHECK,
            format!("the API server cannot call it: {message}"),
            WHY,
            "start the webhook, or register it with a --webhook-url that the API server reaches; the URL must be right \
             from the API server's machine",
        ),
        Ok(WebhookReach::NotCalled) => CheckFinding::warns(
            CHECK,
            format!(
                "its registration lacks the entry {WEBHOOK_PROBE}, so nothing tests whether the API server reaches it"
            ),
            "the webhook that runs is of an earlier version, or its registration was changed",
            "upgrade the webhook, or restart it with --register",
        ),
        Err(error) => {
            let why = format!(
                "whether the API server reaches the webhook: {}",
                error.message()
            );
            let instead = "check with an account that may create Leases in muster-system: the check creates none (dry run)";
            report.unchecked(CHECK, why, instead);
            return;
        }
    };
    report.findings.push(finding);
}

/// Returns host and port of an https URL.
pub(crate) fn address(url: &str) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    let port = url.port_u16().unwrap_or(443);
    Some(format!("{}:{port}", url.host()?))
}
