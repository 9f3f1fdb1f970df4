//! The Helm chart and the static manifests: what they render, and which values they refuse.

use std::path::Path;
use std::process::Output;

use anyhow::ensure;
use testbed::tools::{self, Tool, Toolset};

/// The repository's root.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Values that set everything that the default values leave out.
const FULL: &str = r#"{
    "replicas": 3,
    "image": {"repository": "registry.example/x/muster", "digest": "sha256:0123456789012345678901234567890123456789012345678901234567890123",
              "pullSecrets": [{"name": "registry"}]},
    "karmada": {"namespace": "control", "kubeconfig": {"secretName": "other", "key": "config", "context": "karmada",
                "token": {"key": "bearer", "hours": 24}}},
    "webhook": {"url": "https://muster.example:8443", "service": {"type": "NodePort", "nodePort": 30443, "annotations": {"a": "b"}}},
    "metrics": {"compat": "volcano", "readers": [{"name": "prometheus", "namespace": "monitoring"}],
                "serviceMonitor": {"enabled": true, "labels": {"release": "prometheus"}}},
    "monitoring": {"runbooks": "https://wiki.example/muster", "rules": {"enabled": true, "labels": {"release": "prometheus"}},
                   "dashboards": {"enabled": true, "annotations": {"folder": "Muster"}}},
    "networkPolicy": {"webhookFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "metricsFrom": [{"namespaceSelector": {}}],
                      "egress": [{"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}]},
    "podSecurityContext": {"runAsUser": null, "runAsGroup": null, "fsGroup": null},
    "tracing": {"otlpEndpoint": "https://collector:4317", "ca": {"secretName": "collector-ca", "key": "ca.pem"},
                "client": {"secretName": "collector-client", "certificate": "cert.pem", "key": "key.pem"}},
    "requireAdmissionPolicies": false,
    "extraArgs": ["--identity=me"],
    "bindAddress": "::",
    "serviceAccount": {"name": "queue", "annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}, "nodeSelector": {"e": "f"},
    "tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {}}, "priorityClassName": "high"
}"#;

/// Returns helm, to run in the root of the repository.
pub(crate) fn helm() -> anyhow::Result<std::process::Command> {
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

/// Returns what a program printed, or its errors if it failed.
pub(crate) fn text(output: Output) -> anyhow::Result<String> {
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
        "- --renew-token=muster/other/bearer",
        "- --token-hours=24",
        "resourceNames: [other]",
        "helm.sh/hook: test",
        "- --kubeconfig=/etc/muster/karmada/config",
        "policyTypes: [Ingress, Egress]",
        "cidr: 10.1.0.0/16",
    ] {
        assert!(rendered.contains(wanted), "{wanted} in:\n{rendered}");
    }
    // OpenShift chooses them.
    for unwanted in ["runAsUser", "runAsGroup", "fsGroup"] {
        assert!(!rendered.contains(unwanted), "{unwanted} in:\n{rendered}");
    }
    Ok(())
}

#[test]
fn the_manifests_are_the_charts_and_of_this_version() -> anyhow::Result<()> {
    let manifests = std::fs::read_to_string(Path::new(ROOT).join("deploy/manifests/muster.yaml"))?;
    let rendered = text(render(&["--skip-tests"])?)?;
    assert_eq!(manifests, rendered, "run `make manifests`");
    let image = format!("image: \"muster:{}\"", env!("CARGO_PKG_VERSION"));
    assert!(rendered.contains(&image), "appVersion is not {image}");
    Ok(())
}

#[test]
fn open_metrics_need_no_right_in_the_host_cluster() -> anyhow::Result<()> {
    let renew = "--set=karmada.kubeconfig.token.renew=false";
    let rendered = text(render(&["--set=metrics.auth=none", renew])?)?;
    assert!(rendered.contains("- --metrics-auth=none"), "{rendered}");
    for unwanted in [
        "Role",
        "automountServiceAccountToken: true",
        "--renew-token",
    ] {
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
        (
            "karmada.kubeconfig.token.hours=0",
            "/karmada/kubeconfig/token/hours",
        ),
        ("networkPolicy.egress[0].from=x", "/networkPolicy/egress/0"),
    ];
    for (value, wanted) in bad {
        let output = render(&["--set", value])?;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{value} is accepted");
        assert!(error.contains(wanted), "{value}: {error}");
    }
    Ok(())
}
