//! Rotation while requests run, and replicas that rotate at the same time.

use super::{Running, SECRET, creation, patch, review};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use runtime::testing::FakeApi;
use serde_json::Value;
use std::time::Duration;
use webhook::certs::{CertKeeper, Lifetimes};

/// The CA changes while requests run. None fails, neither on an open connection nor on new ones that trust
/// the bundle registered at that moment.
#[tokio::test(flavor = "multi_thread")]
async fn clients_do_not_notice_a_rotation() {
    let lifetimes = Lifetimes {
        authority: SignedDuration::from_secs(8),
        serving: SignedDuration::from_secs(4),
        overlap: SignedDuration::from_secs(1),
    };
    let webhook = Running::start(FakeApi::new(), lifetimes).await;
    let issuer = || {
        let secret = webhook.api.get(SECRET).unwrap();
        let text = STANDARD
            .decode(secret["data"]["keyring.json"].as_str().unwrap())
            .unwrap();
        let keyring: Value = serde_json::from_slice(&text).unwrap();
        keyring["serving"]["issuer"].as_str().unwrap().to_owned()
    };
    let first = issuer();
    let kept = webhook.api_server();
    let mut requests = 0;
    let rotate = async {
        while issuer() == first {
            patch(&review(&webhook.api_server(), "/gate/namespace", creation()).await);
            patch(&review(&kept, "/gate/namespace", creation()).await);
            requests += 2;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), rotate)
        .await
        .expect("no rotation");
    assert!(requests > 20, "{requests}");
    // Also after the change.
    tokio::time::sleep(Duration::from_millis(200)).await;
    patch(&review(&webhook.api_server(), "/gate/namespace", creation()).await);
    webhook.stop().await;
}

/// Replicas that start or rotate at the same moment end with the same certificates.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_agree() {
    let api = FakeApi::new();
    let replica = || {
        let names = ["muster-webhook.muster-system.svc".to_owned()].into();
        CertKeeper::new(api.client(), names, Lifetimes::default())
    };
    let (a, b, c) = (replica(), replica(), replica());
    let mut issuers = Vec::new();
    for days in [0, 61, 250, 251] {
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * days);
        let (a, b, c) = tokio::join!(a.reconcile(now), b.reconcile(now), c.reconcile(now));
        let keyrings = [a.unwrap(), b.unwrap(), c.unwrap()];
        assert!(
            keyrings.iter().all(|keyring| *keyring == keyrings[0]),
            "day {days}"
        );
        issuers.push(keyrings[0].0.serving.issuer.clone());
    }
    assert_eq!(issuers[0], issuers[2]);
    assert_ne!(issuers[2], issuers[3]);
}
