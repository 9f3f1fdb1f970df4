//! Checks of the webhook: its registration, its certificate, and whether the API server reaches it.

use crate::{CheckError, CheckFinding, CheckReport, CheckedBy};
use crds::names::{MANAGED_LABEL, WEBHOOK_CONFIGURATION};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::client::Body;
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use runtime::client::{client_of, with_deadline};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
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
    called(client, report).await
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

/// Has the API server call the gate, by the dry run of a binding in a managed namespace.
async fn called(client: &Client, report: &mut CheckReport) -> Result<(), CheckError> {
    let unchecked = "whether the API server reaches the webhook";
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let managed = ListParams::default()
        .labels(&format!("{MANAGED_LABEL}=true"))
        .limit(1);
    #[expect(clippy::disallowed_methods, reason = "of one object")]
    let found = with_deadline(namespaces.list(&managed), LIMIT).await;
    let found = match found.map_err(CheckError::call("the namespaces")) {
        Err(error) => return report.absorb(CHECK, Err(error)),
        Ok(found) => found.items.into_iter().next(),
    };
    let is_managed = |namespace: &Namespace| {
        let labels = namespace.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get(MANAGED_LABEL))
            .map(String::as_str)
            == Some("true")
    };
    let name = found
        .filter(is_managed)
        .and_then(|found| found.metadata.name);
    let Some(namespace) = name else {
        let why = format!("{unchecked}: no namespace has the label {MANAGED_LABEL}");
        report.unchecked(CHECK, why, "check again when there is one");
        return Ok(());
    };
    match dry_run(client, &namespace).await {
        Err(error) if is_unanswered(&error.message()) => {
            report.findings.push(CheckFinding::blocks(
                CHECK,
                format!("the API server cannot call it: {}", error.message()),
                WHY,
                "start the webhook, or register it with a --webhook-url that the API server reaches; the URL must be \
                 right from the API server's machine",
            ));
        }
        Err(error) if error.code() == Some(403) && error.message().contains("cannot create") => {
            let why = format!("{unchecked}: {}", error.message());
            let instead =
                "check with an account that may create bindings: the check creates none (dry run)";
            report.unchecked(CHECK, why, instead);
        }
        // Any other answer came after the gate's.
        _ => {}
    }
    Ok(())
}

/// Returns true if a message of the API server says that Muster's gate did not answer.
fn is_unanswered(message: &str) -> bool {
    message.contains("failed calling webhook") && message.contains("gate.muster.io")
}

async fn dry_run(client: &Client, namespace: &str) -> Result<(), runtime::client::CallError> {
    let gvk = GroupVersionKind::gvk("work.karmada.io", "v1alpha2", "ResourceBinding");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "resourcebindings");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let mut binding = DynamicObject::new("muster-check", &resource).within(namespace);
    binding.data = json!({"spec": {"resource": {
        "apiVersion": "batch/v1", "kind": "Job", "namespace": namespace, "name": "muster-check",
    }}});
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    with_deadline(api.create(&params, &binding), LIMIT)
        .await
        .map(drop)
}

/// Returns host and port of an https URL.
pub(crate) fn address(url: &str) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    let port = url.port_u16().unwrap_or(443);
    Some(format!("{}:{port}", url.host()?))
}
