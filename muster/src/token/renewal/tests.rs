#![allow(clippy::unwrap_used)]
use super::*;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use runtime::testing::{FakeApi, Fault};
use serde_json::Value;
use tempfile::TempDir;

const SECRET: &str = "/api/v1/namespaces/muster/secrets/muster-karmada";
const TOKENS: &str = "/api/v1/namespaces/muster-system/serviceaccounts/muster/token";
const DAY: i64 = 24 * 3600;
const YEAR: i64 = 365 * DAY;

/// A token that was issued `age` seconds ago for `lifetime` seconds.
fn token(lifetime: i64, age: i64) -> String {
    let issued = Timestamp::now().as_second() - age;
    let claims = json!({
        "iat": issued, "exp": issued + lifetime,
        "sub": "system:serviceaccount:muster-system:muster",
    });
    format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// A pod with the files of the Secret, and both clusters.
struct Stage {
    dir: TempDir,
    control_plane: FakeApi,
    host: FakeApi,
}

impl Stage {
    /// The file and the Secret have `token`; the control plane issues tokens for `issues` seconds.
    fn new(token: &str, issues: i64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "karmada",
            "clusters": [{"name": "karmada", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "muster", "user": {"tokenFile": "token"}}],
            "contexts": [{"name": "karmada", "context": {"cluster": "karmada", "user": "muster"}}],
        });
        std::fs::write(dir.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let (control_plane, host) = (FakeApi::new(), FakeApi::new());
        control_plane.answers(TOKENS, move |request| {
            assert_eq!(request["spec"]["expirationSeconds"], json!(YEAR));
            let issued = self::token(issues, 0);
            json!({"spec": {"audiences": []}, "status": {"token": issued, "expirationTimestamp": Timestamp::now()}})
        });
        let data = json!({"token": STANDARD.encode(token), "kubeconfig": ""});
        host.put(
            SECRET,
            json!({"metadata": {"name": "muster-karmada"}, "data": data}),
        );
        let stage = Self {
            dir,
            control_plane,
            host,
        };
        stage.kubelet();
        stage
    }

    /// Writes the token of the Secret into its file.
    fn kubelet(&self) {
        std::fs::write(self.dir.path().join("token"), self.stored()).unwrap();
    }

    fn stored(&self) -> String {
        let secret = self.host.get(SECRET).unwrap();
        let text = secret["data"]["token"].as_str().unwrap();
        String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
    }

    /// The number of tokens that were requested.
    fn requested(&self) -> usize {
        let requests = self.control_plane.requests();
        requests.iter().filter(|it| it.path == TOKENS).count()
    }

    fn renewal(&self) -> TokenRenewal {
        TokenRenewal {
            connection: ConnectionArgs {
                kubeconfig: Some(self.dir.path().join("kubeconfig")),
                context: None,
            },
            control_plane: self.control_plane.client(),
            host: self.host.client(),
            secret: "muster/muster-karmada/token".parse().unwrap(),
            seconds: YEAR,
        }
    }
}

#[tokio::test]
async fn a_token_is_renewed_after_a_third_of_its_time_and_once() {
    let stage = Stage::new(&token(YEAR, YEAR / 3 - DAY), YEAR);
    let renewal = stage.renewal();
    renewal.check(false).await.unwrap();
    assert_eq!(stage.requested(), 0, "it lasts for long enough");

    let old = token(YEAR, YEAR / 3 + DAY);
    let stage = Stage::new(&old, YEAR);
    let renewal = stage.renewal();
    renewal.check(false).await.unwrap();
    assert_ne!(stage.stored(), old);
    assert_eq!(stage.host.get(SECRET).unwrap()["data"]["kubeconfig"], "");
    // Until the kubelet has written it, the file has the old one.
    renewal.check(true).await.unwrap();
    stage.kubelet();
    renewal.check(true).await.unwrap();
    assert_eq!(stage.requested(), 1);
}

#[tokio::test]
async fn a_token_for_a_short_time_is_replaced_at_once_and_what_is_issued_for_less_is_kept() {
    let stage = Stage::new(&token(600, 1), DAY);
    let renewal = stage.renewal();
    renewal.check(false).await.unwrap();
    assert_eq!(TokenLifetime::of(&stage.stored()).unwrap().seconds(), DAY);
    stage.kubelet();
    renewal.check(true).await.unwrap();
    assert_eq!(stage.requested(), 1);
}

#[tokio::test]
async fn what_keeps_a_token_from_being_renewed_is_named() {
    let stage = Stage::new(&token(600, 1), YEAR);
    let renewal = stage.renewal();
    let error = async || format!("{:#}", renewal.check(false).await.unwrap_err());
    let of_secret = |verb: &'static str| {
        move |request: &runtime::testing::Recorded| request.verb == verb && request.path == SECRET
    };
    stage
        .host
        .fault(1, Fault::Status(403, "may not read"), of_secret("GET"));
    assert!(error().await.contains("may not read"));
    stage
        .host
        .fault(1, Fault::Status(409, "it was changed"), of_secret("PATCH"));
    assert!(error().await.contains("it was changed"));
    let of_tokens = |request: &runtime::testing::Recorded| request.path == TOKENS;
    stage
        .control_plane
        .fault(1, Fault::Status(403, "may not issue"), of_tokens);
    assert!(error().await.contains("may not issue"));
    stage
        .host
        .merge(SECRET, &json!({"data": {"token": Value::Null}}));
    assert!(error().await.contains("no key token"));
}

#[tokio::test]
async fn a_token_that_does_not_expire_is_left_alone() {
    let stage = Stage::new("opaque", YEAR);
    stage.renewal().check(false).await.unwrap();
    assert_eq!((stage.requested(), stage.host.requests().len()), (0, 0));
}

#[test]
fn a_key_of_a_secret_has_three_parts() {
    let read = |text: &str| text.parse::<TokenSecret>();
    assert_eq!(read("a/b/c").unwrap().key, "c");
    for wrong in ["", "a", "a/b", "a//c", "a/b/", "a/b/c/d"] {
        let error = read(wrong).unwrap_err().to_string();
        assert!(error.contains("NAMESPACE/SECRET/KEY"), "{error}");
    }
}
