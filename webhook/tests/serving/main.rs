//! The whole webhook against an API server in the process, over real TLS: certificates,
//! registrations, the index of released jobs, and rotation while requests run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, StatusCode};
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use kube::{Client, Config};
use runtime::testing::FakeApi;
use runtime::{Health, Registry, Rights};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::Service as _;
use webhook::certs::{CertKeeper, Lifetimes};
use webhook::load::{Limits, Load};
use webhook::metrics::Metrics;
use webhook::permits::Permits;
use webhook::queues::Queues;
use webhook::released::Released;
use webhook::server::Handlers;
use webhook::{Options, Target};

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster";
const SECRET: &str = "/api/v1/namespaces/muster-system/secrets/muster-webhook-tls";

/// A webhook that runs, and what it is registered with.
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
        let options = Options {
            bind: address,
            target: Target::Url(format!("https://{address}")),
            register: true,
            limits: Limits::default(),
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

    /// A client that trusts whom the registration says, as an API server does.
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

/// The DER of each certificate in a PEM bundle.
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
async fn an_address_that_another_has_is_told_before_anything_is_written() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bind = taken.local_addr().unwrap();
    let options = Options {
        bind,
        target: Target::Url(format!("https://{bind}")),
        register: true,
        limits: Limits::default(),
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
async fn what_cannot_be_read_is_an_http_error() {
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
            vec![b' '; 15 * 1024 * 1024],
            StatusCode::PAYLOAD_TOO_LARGE,
            "larger than 4194304 bytes",
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

/// A path of JSON arrays, this many deep.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_nesting_costs_an_error_and_no_stack() {
    let webhook = Running::start(FakeApi::new(), Lifetimes::default()).await;
    let client = webhook.api_server();
    let template = |levels: usize| {
        let job = r#""apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"}"#;
        let request = r#""uid":"u","operation":"CREATE","namespace":"team","kind":{"group":"batch","version":"v1","kind":"Job"}"#;
        let object = format!(r#"{{{job},"spec":{}}}"#, nested(levels));
        format!(r#"{{"request":{{{request},"object":{object}}}}}"#).into_bytes()
    };
    let path = "/validate/templates/managed";
    let (status, message) = post(&client, path, template(100)).await;
    assert_eq!(status, StatusCode::OK, "{message}");
    for levels in [130, 1_900_000] {
        let (status, message) = post(&client, path, template(levels)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{levels}");
        assert!(message.contains("recursion limit exceeded"), "{message}");
    }
    // What the gate does not look at is skipped, however deep it is.
    let mut binding = serde_json::to_string(&json!({"request": creation()})).unwrap();
    let deep = format!(r#""placement":{}"#, nested(1_000_000));
    binding = binding.replace(r#""placement":{}"#, &deep);
    assert!(binding.len() > 2_000_000);
    let (status, message) = post(&client, "/gate/namespace", binding.into_bytes()).await;
    assert_eq!(status, StatusCode::OK, "{message}");
    webhook.stop().await;
}

/// A review whose body does not end, as a client that stalls sends it.
fn stalled() -> http::Request<axum::body::Body> {
    let pending = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let body = axum::body::Body::from_stream(pending);
    Request::post("/gate/namespace").body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn too_many_at_a_time_are_told_so_at_once() {
    let registry = Registry::new();
    let mut router = webhook::server::router(Handlers {
        released: Released::default(),
        metrics: Metrics::new(&registry),
        load: Load::new(Limits {
            requests: 2,
            ..Limits::default()
        }),
        permits: Permits {
            queues: Queues::default(),
            rights: Rights::new(FakeApi::new().client()),
        },
    });
    let whole = || {
        let body = serde_json::to_vec(&json!({"request": creation()})).unwrap();
        let body = axum::body::Body::from(body);
        Request::post("/gate/namespace").body(body).unwrap()
    };
    let first = tokio::spawn(router.call(stalled()));
    let second = tokio::spawn(router.call(stalled()));
    tokio::task::yield_now().await;

    let started = tokio::time::Instant::now();
    let refused = router.call(whole()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    let text = axum::body::to_bytes(refused.into_body(), 1024)
        .await
        .unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(text.contains("as many requests as it may"), "{text}");
    assert!(started.elapsed().is_zero(), "{:?}", started.elapsed());

    // Who stalls is given up before the API server's time is over, and its place is free.
    for stalled in [first, second] {
        let status = stalled.await.unwrap().unwrap().status();
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    }
    assert_eq!(started.elapsed(), Duration::from_millis(2500));
    let answered = router.call(whole()).await.unwrap();
    assert_eq!(answered.status(), StatusCode::OK);
    let metrics = registry.encode().unwrap();
    let busy = r#"muster_webhook_requests_total{path="/gate/namespace",outcome="Busy"} 1"#;
    assert!(metrics.contains(busy), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_job_cannot_grow() {
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
        "/apis/muster.io/v1alpha1/capacitypolicies/gold",
        json!({
            "apiVersion": "muster.io/v1alpha1", "kind": "CapacityPolicy",
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
    let response = review(&client, validate, submission("alice")).await;
    assert_eq!(response["response"]["allowed"], true, "{response}");
    let written = patch(&review(&client, "/mutate/templates", submission("alice")).await);
    assert_eq!(
        written[0]["value"]["muster.io/permitted-queue"], "gold",
        "{written}"
    );
    assert_eq!(written[0]["value"]["muster.io/user"], "alice");

    // Where the API server does not say who may, it is told to ask again.
    let asks = |request: &runtime::testing::Recorded| request.path == REVIEWS;
    webhook
        .api
        .fault(9, runtime::testing::Fault::Status(500, "away"), asks);
    let body = serde_json::to_vec(&json!({"request": submission("carol")})).unwrap();
    let (status, message) = post(&client, "/mutate/templates", body).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        message.contains("carol may use queue gold is not known"),
        "{message}"
    );
    webhook.stop().await;
}

/// What a client waits for an answer over TLS, at 200 reviews a second, a third of each path. Run it with
/// `cargo test --release -p webhook --test serving -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn two_hundred_reviews_a_second() {
    let webhook = Running::start(with_closed_queue(), Lifetimes::default()).await;
    let client = webhook.api_server();
    let paths = [
        "/mutate/templates",
        "/validate/templates/managed",
        "/gate/namespace",
    ];
    let mut every = tokio::time::interval(Duration::from_millis(5));
    let mut waits = tokio::task::JoinSet::new();
    for index in 0..4_000 {
        every.tick().await;
        let path = paths[index % paths.len()];
        let request = match path {
            "/gate/namespace" => creation(),
            _ => submission("alice"),
        };
        let body = serde_json::to_vec(&json!({"request": request})).unwrap();
        let client = client.clone();
        waits.spawn(async move {
            let started = std::time::Instant::now();
            let (status, message) = post(&client, path, body).await;
            (started.elapsed(), status, message)
        });
    }
    let mut took = Vec::new();
    while let Some(answer) = waits.join_next().await {
        let (wait, status, message) = answer.unwrap();
        assert_eq!(status, StatusCode::OK, "{message}");
        took.push(wait);
    }
    took.sort();
    let of = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    println!("p50 {:?}, p99 {:?}, most {:?}", of(50), of(99), of(100));
    webhook.stop().await;
}

/// The CA changes while requests run: none fails, neither on a connection that stays nor on new
/// ones that trust what is registered at that moment.
#[tokio::test(flavor = "multi_thread")]
async fn rotation_is_not_noticed() {
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
    // After the change, too.
    tokio::time::sleep(Duration::from_millis(200)).await;
    patch(&review(&webhook.api_server(), "/gate/namespace", creation()).await);
    webhook.stop().await;
}

/// Replicas that start, or rotate, at the same moment end with the same certificates.
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
