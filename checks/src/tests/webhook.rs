use super::*;
use crate::webhook::address;
use axum_server::tls_rustls::RustlsConfig;

/// Starts a webhook with this certificate and returns its URL.
async fn serve((certificate, key): &(String, String)) -> String {
    runtime::install_crypto();
    let config = RustlsConfig::from_pem(certificate.clone().into(), key.clone().into());
    let handle = axum_server::Handle::<std::net::SocketAddr>::new();
    let server = axum_server::bind_rustls(
        std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
        config.await.unwrap(),
    );
    let server = server.handle(handle.clone());
    let service = axum::Router::new().into_make_service();
    tokio::spawn(async move { server.serve(service).await });
    format!("https://{}/gate", handle.listening().await.unwrap())
}

#[tokio::test]
async fn a_registration_that_is_missing_or_wrong_is_named() {
    let (api, _) = plane();
    api.remove(WEBHOOK);
    is_named(&api, Severity::Blocks, "webhook", "there is no Mutating").await;

    let (api, _) = plane();
    api.put(WEBHOOK, registration("", &json!({})));
    is_named(&api, Severity::Blocks, "webhook", "caBundle").await;

    let (api, _) = plane();
    let service = json!({"service": {"namespace": "muster-system", "name": "gone"}});
    api.put(WEBHOOK, registration(&certificate().0, &service));
    is_named(
        &api,
        Severity::Blocks,
        "webhook",
        "Service muster-system/gone",
    )
    .await;
}

#[tokio::test]
async fn a_url_that_nothing_listens_at_is_named() {
    let (api, _) = plane();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/gate", free.local_addr().unwrap());
    drop(free);
    api.put(
        WEBHOOK,
        registration(&certificate().0, &json!({"url": url})),
    );
    is_named(&api, Severity::Blocks, "webhook", "no connection from here").await;
    // From a user's machine that says nothing.
    let report = found(&api, CheckedBy::User).await;
    assert_eq!(report.findings, []);
    assert!(
        report.unchecked.iter().any(|it| it.why.contains(&url)),
        "{report:#?}"
    );
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_named() {
    let (api, _) = plane();
    let served = certificate();
    let url = serve(&served).await;
    api.put(WEBHOOK, registration(&served.0, &json!({"url": url})));
    assert_eq!(found(&api, SERVER).await.findings, []);
    api.put(
        WEBHOOK,
        registration(&certificate().0, &json!({"url": url})),
    );
    is_named(
        &api,
        Severity::Blocks,
        "webhook",
        "does not belong to the caBundle",
    )
    .await;
}

#[tokio::test]
async fn an_api_server_that_cannot_call_the_webhook_is_named() {
    let (api, _) = plane();
    let refused =
        "Internal error occurred: failed calling webhook \"probe.muster.io\": dial tcp: refused";
    let is_dry_run =
        |request: &runtime::testing::Recorded| request.verb == "POST" && request.path == LEASES;
    api.fault(1, Fault::Status(500, refused), is_dry_run);
    is_named(&api, Severity::Blocks, "webhook", "dial tcp: refused").await;
    // What another webhook does says nothing of this one, and no other check is left out for it.
    for other in [
        "failed calling webhook \"leases.example.com\": dial tcp: refused",
        "etcdserver: leader changed",
    ] {
        api.fault(1, Fault::Status(500, other), is_dry_run);
        let report = found(&api, SERVER).await;
        assert_eq!(
            (report.findings.len(), report.unchecked[0].check),
            (0, "webhook"),
            "{other}"
        );
    }
    let forbidden = "leases is forbidden: User \"u\" cannot create resource \"leases\"";
    api.fault(1, Fault::Status(403, forbidden), is_dry_run);
    let report = found(&api, SERVER).await;
    assert_eq!(
        (report.findings.len(), report.unchecked[0].check),
        (0, "webhook")
    );
    // What passes without an answer did not reach the webhook.
    api.answers(LEASES, Value::clone);
    is_named(&api, Severity::Warns, "webhook", "probe.muster.io").await;
}

#[test]
fn the_address_of_a_webhook_has_a_port() {
    assert_eq!(address("https://a/gate").as_deref(), Some("a:443"));
    assert_eq!(address("https://a:9443/gate").as_deref(), Some("a:9443"));
    assert_eq!(address("https://[::1]:9443").as_deref(), Some("[::1]:9443"));
    assert_eq!(address("/gate"), None);
}
