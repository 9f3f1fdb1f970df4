//! The Helm chart and the static manifests: what they render and refuse, and that Muster runs as the
//! Deployment says.
//!
//! The story follows docs/how-to/install.md: it runs its commands. `member3` is the host cluster.
//! There the Deployment's pods pass the admission of a restricted namespace, and are only simulated;
//! so the story also starts Muster as a kubelet would, from the Deployment that the API server has.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::harness::kinds::{DEPLOYMENT, NAMESPACE, POD, SECRET};
use e2e::harness::muster::{self, ProcessRole, http_get};
use e2e::harness::objects::Objects;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::free_port;
use testbed::tools::{self, Tool, Tools, Toolset};
use tokio::process::{Child, Command};

use crate::case::{Case, SOON};
use crate::documents::Guide;
use crate::story::managed_alone;

/// The repository's root.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The member that is the host cluster.
const HOST: &str = "member3";
/// The namespace of the release.
const RELEASE: &str = "muster";
/// The timeout until the process of the Deployment is ready.
const READY: Duration = Duration::from_secs(60);

/// Values that set everything that the default values leave out.
const FULL: &str = r#"{
    "replicas": 3,
    "image": {"repository": "registry.example/x/muster", "digest": "sha256:0123456789012345678901234567890123456789012345678901234567890123",
              "pullSecrets": [{"name": "registry"}]},
    "karmada": {"namespace": "control", "kubeconfig": {"secretName": "other", "key": "config", "context": "karmada"}},
    "webhook": {"url": "https://muster.example:8443", "service": {"type": "NodePort", "nodePort": 30443, "annotations": {"a": "b"}}},
    "metrics": {"compat": "volcano", "readers": [{"name": "prometheus", "namespace": "monitoring"}],
                "serviceMonitor": {"enabled": true, "labels": {"release": "prometheus"}}},
    "monitoring": {"runbooks": "https://wiki.example/muster", "rules": {"enabled": true, "labels": {"release": "prometheus"}},
                   "dashboards": {"enabled": true, "annotations": {"folder": "Muster"}}},
    "networkPolicy": {"webhookFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "metricsFrom": [{"namespaceSelector": {}}]},
    "tracing": {"otlpEndpoint": "https://collector:4317", "ca": {"secretName": "collector-ca", "key": "ca.pem"},
                "client": {"secretName": "collector-client", "certificate": "cert.pem", "key": "key.pem"}},
    "requireAdmissionPolicies": false,
    "extraArgs": ["--identity=me"],
    "bindAddress": "::",
    "serviceAccount": {"name": "queue", "annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}, "nodeSelector": {"e": "f"},
    "tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {}}, "priorityClassName": "high"
}"#;

fn helm() -> anyhow::Result<std::process::Command> {
    let tools = tools::ensure(&[Toolset::Packaging], &|line| eprintln!("{line}"))?;
    let mut helm = std::process::Command::new(tools.program(Tool::Helm)?);
    helm.current_dir(ROOT);
    Ok(helm)
}

/// Renders the chart as `make manifests` does, with more flags.
fn render(flags: &[&str]) -> anyhow::Result<Output> {
    let mut helm = helm()?;
    helm.args(["template", "muster", "deploy/chart/muster"]);
    helm.args(["--namespace=muster", "--kube-version=1.30"]);
    Ok(helm.args(flags).output()?)
}

fn text(output: Output) -> anyhow::Result<String> {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{error}");
    Ok(String::from_utf8(output.stdout)?)
}

fn full_values() -> anyhow::Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::with_suffix(".yaml")?;
    std::fs::write(file.path(), FULL)?;
    Ok(file)
}

#[test]
fn the_chart_has_no_findings_and_renders_with_all_values() -> anyhow::Result<()> {
    let values = full_values()?;
    let values = format!("--values={}", values.path().display());
    for flags in [&["--strict"][..], &["--strict", &values]] {
        let mut lint = helm()?;
        lint.arg("lint").arg("deploy/chart/muster").args(flags);
        text(lint.output()?)?;
    }
    let rendered = text(render(&[&values])?)?;
    for wanted in [
        "kind: ServiceMonitor",
        "bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
        "- --metrics-auth=token",
        "automountServiceAccountToken: true",
        "nonResourceURLs: [/metrics]",
        "namespace: monitoring",
        "kind: PrometheusRule",
        "runbook_url: https://wiki.example/muster/MusterNoLeader.md",
        "grafana_dashboard: \"1\"",
        "muster-overview.json: |",
        "cidr: 10.0.0.0/8",
        "- --context=karmada",
        "- --metrics-bind=[::]:8080",
        "- --webhook-url=https://muster.example:8443",
        "- --otlp-endpoint=https://collector:4317",
        "- --otlp-ca=/etc/muster/collector/ca.pem",
        "secretName: collector-ca",
        "- --otlp-client-certificate=/etc/muster/collector-client/cert.pem",
        "- --otlp-client-key=/etc/muster/collector-client/key.pem",
        "secretName: collector-client",
        "- --compat-metrics=volcano",
        "- --without-admission-policies",
        "- \"--identity=me\"",
        "serviceAccountName: queue",
        "nodePort: 30443",
        "image: \"registry.example/x/muster@sha256:",
    ] {
        assert!(rendered.contains(wanted), "{wanted} in:\n{rendered}");
    }
    Ok(())
}

#[test]
fn the_manifests_are_the_charts_and_of_this_version() -> anyhow::Result<()> {
    let manifests = std::fs::read_to_string(Path::new(ROOT).join("deploy/manifests/muster.yaml"))?;
    let rendered = text(render(&[])?)?;
    assert_eq!(manifests, rendered, "run `make manifests`");
    let image = format!("image: \"muster:{}\"", env!("CARGO_PKG_VERSION"));
    assert!(rendered.contains(&image), "appVersion is not {image}");
    Ok(())
}

#[test]
fn open_metrics_need_no_right_in_the_host_cluster() -> anyhow::Result<()> {
    let rendered = text(render(&["--set=metrics.auth=none"])?)?;
    assert!(rendered.contains("- --metrics-auth=none"), "{rendered}");
    for unwanted in ["ClusterRole", "automountServiceAccountToken: true"] {
        assert!(!rendered.contains(unwanted), "{unwanted} in:\n{rendered}");
    }
    Ok(())
}

#[test]
fn a_bad_value_is_refused() -> anyhow::Result<()> {
    let bad = [
        ("replicas=0", "/replicas"),
        ("replica=2", "replica"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("webhook.url=http://muster.example", "/webhook/url"),
        ("webhook.url=https://muster.example/path", "/webhook/url"),
        ("webhook.port=443", "/webhook/port"),
        ("webhook.service.type=ExternalName", "/webhook/service/type"),
        (
            "karmada.kubeconfig.secretName=",
            "/karmada/kubeconfig/secretName",
        ),
        ("logging.format=xml", "/logging/format"),
        ("tuning.backoffSeconds=soon", "/tuning/backoffSeconds"),
        (
            "podDisruptionBudget.maxUnavailable=0",
            "/podDisruptionBudget",
        ),
        ("extraArgs={all}", "/extraArgs/0"),
        ("metrics.serviceMonitor.enabled=true", "metricsFrom"),
        ("metrics.auth=basic", "/metrics/auth"),
        ("metrics.readers[0].name=prometheus", "/metrics/readers/0"),
        ("monitoring.runbooks=docs/", "/monitoring/runbooks"),
        ("metrics.compat=kueue", "/metrics/compat"),
        ("tracing.ca.key=a/b", "/tracing/ca/key"),
        ("tracing.client.key=a/b", "/tracing/client/key"),
    ];
    for (value, wanted) in bad {
        let output = render(&["--set", value])?;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{value} is accepted");
        assert!(error.contains(wanted), "{value}: {error}");
    }
    Ok(())
}

#[test]
fn muster_runs_as_the_chart_says_where_the_guide_installed_it() {
    managed_alone("chart", async |case| {
        let guide = prepare(case)?;
        let installed = async {
            guide.run("The control plane").await?;
            guide.run("The account").await?;
            guide.run("Without helm").await?;
            guide
                .shell("kubectl delete -f deploy/manifests/muster.yaml")
                .await?;
            guide.run("The chart").await?;
            pods_are_restricted(case).await
        };
        let outcome = match installed.await {
            Ok(()) => runs_as_rendered(case, &guide).await,
            Err(error) => Err(error),
        };
        guide
            .shell("helm uninstall muster --namespace muster")
            .await
            .ok();
        case.plane
            .member(HOST)
            .await?
            .delete(NAMESPACE, None, RELEASE)
            .await?;
        outcome
    });
}

/// Runs a job under a process that is started as the Deployment says, in place of the plane's own.
async fn runs_as_rendered(case: &Case, guide: &Guide) -> anyhow::Result<()> {
    let (muster, testbed) = (&case.plane.muster, &case.plane.testbed);
    let host = case.plane.member(HOST).await?;
    let deployment = host.get(DEPLOYMENT, Some(RELEASE), "muster").await?;
    let pod = deployment.context("no Deployment")?["spec"]["template"]["spec"].take();
    muster.stop(testbed, ProcessRole::All).await?;
    let outcome = async {
        let mut process = start(&pod, &host, guide.folder()).await?;
        let outcome = async {
            for probe in ["livenessProbe", "readinessProbe"] {
                probed(&pod["containers"][0], probe).await?;
            }
            // The webhook gates its binding, so it is reached at the port that the Deployment names.
            case.queue(8).await?;
            case.nodes("member1", 1).await?;
            let job = case.submit(&case.gang("train", 2, 2).batch()).await?;
            case.running(&job).await?;
            case.end(&job).await?;
            case.finished(&job, "Succeeded").await?;
            case.delete(&job).await?;
            case.gone(&job).await
        };
        let outcome = outcome.await;
        stop(&mut process).await?;
        outcome
    };
    let outcome = outcome.await;
    if outcome.is_err() {
        let log = std::fs::read_to_string(guide.folder().join("muster.log"));
        println!("{}", log.unwrap_or_default());
    }
    muster.start(testbed, ProcessRole::All).await?;
    outcome
}

/// Starts the first container of a pod as a kubelet would: with its arguments and environment only,
/// and with its Secrets as files. `dir` takes the place of the pod's root.
async fn start(pod: &Value, host: &Objects, dir: &Path) -> anyhow::Result<Child> {
    let container = &pod["containers"][0];
    let mut mounts = BTreeMap::new();
    for mount in list(&container["volumeMounts"]) {
        let named = |volume: &&Value| volume["name"] == mount["name"];
        let volumes = list(&pod["volumes"]);
        let volume = volumes.iter().find(named).context("no such volume")?;
        let name = text_of(&volume["secret"]["secretName"])?;
        let secret = host.get(SECRET, Some(RELEASE), name).await?;
        let at = text_of(&mount["mountPath"])?;
        let files = dir.join(at.trim_start_matches('/'));
        write_secret(
            &secret.with_context(|| format!("no Secret {name}"))?,
            &files,
        )?;
        mounts.insert(at.to_owned(), files.display().to_string());
    }
    let mapped = |argument: &str| {
        let mounts = mounts.iter();
        mounts.fold(argument.to_owned(), |argument, (at, files)| {
            argument.replace(at, files)
        })
    };
    let mut command = Command::new(muster::program()?);
    command.env_clear().current_dir("/").kill_on_drop(true);
    for argument in list(&container["args"]) {
        command.arg(mapped(text_of(argument)?));
    }
    for variable in list(&container["env"]) {
        command.env(text_of(&variable["name"])?, text_of(&variable["value"])?);
    }
    let log = std::fs::File::create(dir.join("muster.log"))?;
    command.stdout(log.try_clone()?).stderr(log);
    command.spawn().context("start muster")
}

fn write_secret(secret: &Value, dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    let data = secret["data"].as_object().context("the Secret is empty")?;
    for (key, value) in data {
        std::fs::write(dir.join(key), STANDARD.decode(text_of(value)?)?)?;
    }
    Ok(())
}

async fn stop(process: &mut Child) -> anyhow::Result<()> {
    let id = process.id().context("muster ended by itself")?;
    let id = nix::unistd::Pid::from_raw(id.try_into()?);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM)?;
    let ended = tokio::time::timeout(Duration::from_secs(30), process.wait()).await;
    let status = ended.context("muster does not end on SIGTERM")??;
    ensure!(status.success(), "muster ended with {status}");
    Ok(())
}

/// Waits until a probe of the container succeeds.
async fn probed(container: &Value, probe: &str) -> anyhow::Result<()> {
    let get = &container[probe]["httpGet"];
    let ports = list(&container["ports"]);
    let port = ports.iter().find(|port| port["name"] == get["port"]);
    let port = port.with_context(|| format!("{probe} names no port: {get}"))?;
    let port = u16::try_from(port["containerPort"].as_u64().context("no port")?)?;
    let path = text_of(&get["path"])?;
    eventually(READY, probe, async || {
        let answer = http_get(port, path).await?;
        match answer.starts_with("HTTP/1.1 200") {
            true => Ok(()),
            false => Err(answer),
        }
    })
    .await
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value) -> anyhow::Result<&str> {
    value
        .as_str()
        .with_context(|| format!("{value} is no text"))
}

/// Returns the guide docs/how-to/install.md on this plane.
fn prepare(case: &Case) -> anyhow::Result<Guide> {
    let testbed = &case.plane.testbed;
    let sets = [Toolset::Packaging, Toolset::Kubernetes];
    let tools: Tools = tools::ensure(&sets, &|line| eprintln!("{line}"))?;
    let (webhook, metrics) = (free_port()?, free_port()?);
    // On one host, the Deployment's ports must be free, and nothing but loopback is used.
    let values = json!({
        "bindAddress": "127.0.0.1",
        "webhook": {"url": format!("https://127.0.0.1:{webhook}"), "port": webhook},
        "metrics": {"port": metrics},
        "tuning": {"backoffSeconds": 1, "overrideGraceSeconds": 10},
    });
    let karmada = testbed.karmada();
    let host = testbed.cluster(HOST)?.kubeconfig.display().to_string();
    let env = [
        ("KARMADA", karmada.kubeconfig.display().to_string()),
        ("KUBECONFIG", host),
        ("SERVER", karmada.server),
        ("REGISTRY", "registry.example".into()),
    ];
    let programs = [
        ("helm", tools.program(Tool::Helm)?),
        ("kubectl", tools.program(Tool::Kubectl)?),
        ("muster", muster::program()?),
    ];
    // The values of this host come after those of the guide.
    let own = "--values muster-values.yaml";
    let guide = Guide::of("docs/how-to/install.md", &programs, env)?
        .with_words_replaced(own, &format!("{own} --values of-this-host.yaml"));
    std::fs::write(guide.folder().join("of-this-host.yaml"), values.to_string())?;
    Ok(guide)
}

/// Fails unless the pods of the Deployment passed the admission of a restricted namespace.
async fn pods_are_restricted(case: &Case) -> anyhow::Result<()> {
    let host = case.plane.member(HOST).await?;
    let namespace = host
        .get(NAMESPACE, None, RELEASE)
        .await?
        .context("no namespace")?;
    let label = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    ensure!(
        label == "restricted",
        "the namespace is not restricted: {namespace}"
    );
    eventually(SOON, "two pods of the Deployment run", async || {
        let pods = host
            .list(POD, Some(RELEASE))
            .await
            .map_err(|error| error.to_string())?;
        let run = pods
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running");
        match run.count() {
            2 => Ok(()),
            other => Err(format!("{other} run")),
        }
    })
    .await
}
