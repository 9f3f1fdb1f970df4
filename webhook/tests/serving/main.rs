//! The whole webhook against an API server in the process, over real TLS: certificates, registrations, the
//! index of admitted jobs, and rotation while requests run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod certificates;
mod load;
mod warnings;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, StatusCode};
use kube::client::Body;
use kube::{Client, Config};
use runtime::testing::FakeApi;
use runtime::{Health, Registry};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use webhook::certs::Lifetimes;
use webhook::load::RequestLimits;
use webhook::{WebhookOptions, WebhookTarget};

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster";
const SECRET: &str = "/api/v1/namespaces/muster-system/secrets/muster-webhook-tls";

/// A running webhook and its registration.
struct Running {
    api: FakeApi,
    health: Health,
    registry: Registry,
    address: SocketAddr,
    cancel: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    async fn start(api: FakeApi, lifetimes: Lifetimes) -> Self {
        let socket = webhook::server::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        let (health, registry) = (Health::new(), Registry::new());
        let cancel = CancellationToken::new();
        let options = WebhookOptions {
            bind: address,
            target: WebhookTarget::Url(format!("https://{address}")),
            register: true,
            limits: RequestLimits::default(),
        };
        let (client, token) = (api.client(), cancel.clone());
        let (checks, numbers) = (health.clone(), registry.clone());
        let task = tokio::spawn(async move {
            webhook::run_on(socket, client, options, lifetimes, &numbers, &checks, token).await
        });
        let mut running = Self {
            api,
            health,
            registry,
            address,
            cancel,
            task,
        };
        running.ready().await;
        running
    }

    async fn ready(&mut self) {
        let wait = async {
            while !(self.health.not_ready().is_empty() && self.api.get(MUTATING).is_some()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let why = tokio::select! {
            () = wait => return,
            () = tokio::time::sleep(Duration::from_secs(30)) => "took too long".to_owned(),
            ended = &mut self.task => format!("ended: {ended:?}"),
        };
        panic!(
            "not ready: {why}: {:?}; requests: {:#?}",
            self.health.not_ready(),
            self.api.requests()
        );
    }

    /// A client that trusts the registered CA, as an API server does.
    fn api_server(&self) -> Client {
        let registered = self.api.get(MUTATING).unwrap();
        let bundle = registered["webhooks"][0]["clientConfig"]["caBundle"]
            .as_str()
            .unwrap();
        let pem = String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap();
        let mut config = Config::new(format!("https://{}", self.address).parse().unwrap());
        config.root_cert = Some(certificates(&pem));
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// Returns the DER of each certificate in a PEM bundle.
fn certificates(pem: &str) -> Vec<Vec<u8>> {
    pem.split("-----END CERTIFICATE-----")
        .filter_map(|part| part.split_once("-----BEGIN CERTIFICATE-----"))
        .map(|(_, body)| STANDARD.decode(body.replace(['\n', '\r'], "")).unwrap())
        .collect()
}

async fn post(client: &Client, path: &str, body: Vec<u8>) -> (StatusCode, String) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body))
        .unwrap();
    let response = client.send(request).await.expect("the webhook answers");
    let status = response.status();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn review(client: &Client, path: &str, request: Value) -> Value {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
    });
    let (status, body) = post(client, path, serde_json::to_vec(&review).unwrap()).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// The creation of a binding, as an API server sends it.
fn creation() -> Value {
    json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "work.karmada.io", "version": "v1alpha2", "kind": "ResourceBinding"},
        "resource": {"group": "work.karmada.io", "version": "v1alpha2", "resource": "resourcebindings"},
        "requestKind": {"group": "work.karmada.io", "version": "v1alpha2", "kind": "ResourceBinding"},
        "name": "train-job", "namespace": "team-a", "operation": "CREATE",
        "userInfo": {"username": "system:admin", "groups": ["system:masters"]},
        "object": {
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "name": "train-job", "namespace": "team-a",
                "labels": {"propagationpolicy.karmada.io/permanent-id": "p-1"},
                "managedFields": [{"manager": "karmada-controller-manager", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": {
                "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train"},
                "schedulerName": "muster", "placement": {},
            },
        },
        "oldObject": null, "dryRun": false,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    })
}

fn patch(response: &Value) -> Value {
    assert_eq!(response["response"]["allowed"], true, "{response}");
    let patch = response["response"]["patch"].as_str().expect("a patch");
    serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_is_gated_over_tls() {
    let webhook = Running::start(FakeApi::new(), Lifetimes::default()).await;
    let client = webhook.api_server();

    let response = review(&client, "/gate/scheduler", creation()).await;
    assert_eq!(response["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(
        response["response"]["uid"],
        "705ab4f5-6393-11e8-b7cc-42010a800002"
    );
    assert_eq!(response["response"]["patchType"], "JSONPatch");
    assert_eq!(patch(&response)[0]["path"], "/spec/suspension");

    let mut other = creation();
    other["object"]["spec"]["schedulerName"] = json!("default-scheduler");
    let response = review(&client, "/gate/scheduler", other).await;
    assert_eq!(
        response["response"],
        json!({"uid": response["response"]["uid"], "allowed": true})
    );

    let metrics = webhook.registry.encode().unwrap();
    assert!(
        metrics.contains(
            r#"muster_webhook_requests_total{path="/gate/scheduler",outcome="Patched"} 1"#
        ),
        "{metrics}"
    );
    webhook.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_reported_before_anything_is_written() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bind = taken.local_addr().unwrap();
    let options = WebhookOptions {
        bind,
        target: WebhookTarget::Url(format!("https://{bind}")),
        register: true,
        limits: RequestLimits::default(),
    };
    let api = FakeApi::new();
    let (health, registry) = (Health::new(), Registry::new());
    let cancel = CancellationToken::new();
    let error = webhook::run(api.client(), options, &registry, &health, cancel)
        .await
        .unwrap_err();
    let told = format!("{error:#}");
    assert!(
        told.starts_with(&format!("the webhook cannot listen on {bind}: ")),
        "{told}"
    );
    assert_eq!(api.get(SECRET), None);
    assert_eq!(api.get(MUTATING), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_request_is_an_http_error() {
    let webhook = Running::start(FakeApi::new(), Lifetimes::default()).await;
    let client = webhook.api_server();
    for (body, code, words) in [
        (
            b"not json".to_vec(),
            StatusCode::BAD_REQUEST,
            "not an AdmissionReview",
        ),
        (b"{}".to_vec(), StatusCode::BAD_REQUEST, "no request"),
        (
            vec![b' '; 24 * 1024 * 1024],
            StatusCode::PAYLOAD_TOO_LARGE,
            "larger than 20971520 bytes",
        ),
    ] {
        let (status, message) = post(&client, "/gate/namespace", body).await;
        assert_eq!(status, code);
        assert!(message.contains(words), "{message}");
    }

    // The largest objects that etcd takes, both of an update.
    let mut large = creation();
    large["object"]["metadata"]["annotations"] = json!({"a": "x".repeat(1_400_000)});
    large["oldObject"] = large["object"].clone();
    patch(&review(&client, "/gate/namespace", large).await);
    webhook.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admitted_job_cannot_grow() {
    let api = FakeApi::new();
    let record = json!({
        "templateUID": "t-1", "attempt": 1, "state": "Admitted", "queue": "team-a",
        "clusters": [], "time": "2026-11-21T04:00:00Z",
    });
    api.put(
        "/apis/work.karmada.io/v1alpha2/namespaces/team-a/resourcebindings/train-job",
        json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "name": "train-job", "namespace": "team-a",
                "annotations": {"muster.io/admission": record.to_string()},
            },
        }),
    );
    let webhook = Running::start(api, Lifetimes::default()).await;
    let client = webhook.api_server();
    let job = |replicas: u32| {
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"name": "train", "namespace": "team-a", "uid": "t-1"},
            "spec": {"tasks": [{
                "name": "worker", "replicas": replicas,
                "template": {"spec": {"containers": [{"name": "c"}]}},
            }]},
        })
    };
    let edit = json!({
        "uid": "u", "operation": "UPDATE", "name": "train", "namespace": "team-a",
        "kind": {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"},
        "object": job(8), "oldObject": job(4),
    });
    let refused = async {
        loop {
            let response = review(&client, "/validate/templates", edit.clone()).await;
            // Until bindings are listed nothing is known, and edits pass.
            if response["response"]["allowed"] == false {
                return response;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let response = tokio::time::timeout(Duration::from_secs(10), refused)
        .await
        .unwrap();
    assert_eq!(response["response"]["status"]["code"], 403);
    let message = response["response"]["status"]["message"].as_str().unwrap();
    assert!(message.contains("pods of worker: 4 -> 8"), "{message}");
    webhook.stop().await;
}

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// An API server with queue `gold`, which only `alice` may use.
fn with_closed_queue() -> FakeApi {
    let api = FakeApi::new();
    api.put(
        "/apis/muster.io/v1alpha2/capacitypolicies/gold",
        json!({
            "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy",
            "metadata": {"name": "gold"}, "spec": {"tenancy": "Closed"},
        }),
    );
    api.answers(REVIEWS, |review| {
        let allowed = review["spec"]["user"] == "alice";
        json!({"spec": review["spec"], "status": {"allowed": allowed}})
    });
    api
}

/// The creation of a Job of queue `gold` by this user.
fn submission(user: &str) -> Value {
    let mut pod = json!({"containers": [{
        "name": "train", "image": "registry.example.com/train:1.2",
        "resources": {"requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}},
    }]});
    let env =
        (0..40).map(|index| json!({"name": format!("SETTING_{index}"), "value": "x".repeat(40)}));
    pod["containers"][0]["env"] = env.collect();
    json!({
        "uid": "u", "operation": "CREATE", "namespace": "team-a", "name": "train",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "train", "namespace": "team-a", "labels": {"muster.io/queue": "gold"}},
            "spec": {"parallelism": 4, "template": {"spec": pod}},
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_queue_is_asked_for() {
    let webhook = Running::start(with_closed_queue(), Lifetimes::default()).await;
    let client = webhook.api_server();
    let validate = "/validate/templates/managed";
    let refused = async {
        loop {
            let response = review(&client, validate, submission("bob")).await;
            // Until policies are listed nothing is refused.
            if response["response"]["allowed"] == false {
                return response;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let response = tokio::time::timeout(Duration::from_secs(10), refused)
        .await
        .unwrap();
    assert_eq!(response["response"]["status"]["code"], 403);
    let message = response["response"]["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("bob may not submit to queue gold"),
        "{message}"
    );
    let written = patch(&review(&client, "/mutate/templates", submission("alice")).await);
    assert_eq!(
        written[0]["value"]["muster.io/permitted-queue"], "gold",
        "{written}"
    );
    assert_eq!(written[0]["value"]["muster.io/user"], "alice");
    let mut stamped = submission("alice");
    stamped["object"]["metadata"]["annotations"] = written[0]["value"].clone();
    let response = review(&client, validate, stamped).await;
    assert_eq!(response["response"]["allowed"], true, "{response}");

    // If the API server does not answer the question, the reply asks to retry.
    let asks = |request: &runtime::testing::Recorded| request.path == REVIEWS;
    webhook
        .api
        .fault(9, runtime::testing::Fault::Status(500, "away"), asks);
    let body = serde_json::to_vec(&json!({"request": submission("carol")})).unwrap();
    let (status, message) = post(&client, "/mutate/templates", body).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        message.contains("cannot check whether carol may use queue gold"),
        "{message}"
    );
    webhook.stop().await;
}
