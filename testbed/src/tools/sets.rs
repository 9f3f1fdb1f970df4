//! Which components there are, from which projects, and how they are built together.

use super::{MODULES, module_version};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Components that are built together from one Go module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "names of projects")]
pub enum Toolset {
    Etcd,
    Kwok,
    Kubernetes,
    Karmada,
    Volcano,
    TrainingOperator,
    JobSet,
    MpiOperator,
    KubeRay,
    LeaderWorkerSet,
    /// What packages Muster: helm, the program that assembles its image, and crane, which also serves a registry.
    Packaging,
    /// What reads Muster's metrics and checks its alerts.
    Prometheus,
    /// What receives Muster's traces: a collector of OpenTelemetry.
    Collector,
    /// What makes a machine a real node: the kubelet, and a device plugin.
    Node,
    /// What a kubelet runs containers with, and their images, from Debian's packages.
    Debian,
}

/// A built component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of programs")]
pub enum Tool {
    Etcd,
    Kwok,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubectl,
    KarmadaAgent,
    KarmadaAggregatedApiserver,
    KarmadaControllerManager,
    KarmadaScheduler,
    KarmadaWebhook,
    VolcanoScheduler,
    VolcanoControllerManager,
    VolcanoWebhookManager,
    TrainingOperator,
    JobSet,
    MpiOperator,
    KubeRay,
    LeaderWorkerSet,
    Helm,
    ImageAssembler,
    Crane,
    Prometheus,
    Promtool,
    Collector,
    Kubelet,
    DevicePlugin,
    Containerd,
}

impl Toolset {
    /// The sets of `make tools`, the quickest build first.
    pub const ALL: [Self; 11] = [
        Self::Etcd,
        Self::Kwok,
        Self::Kubernetes,
        Self::Karmada,
        Self::Volcano,
        Self::TrainingOperator,
        Self::JobSet,
        Self::MpiOperator,
        Self::KubeRay,
        Self::LeaderWorkerSet,
        Self::Packaging,
    ];

    /// The sets that only soak tests need, which build them.
    pub const SOAK: [Self; 2] = [Self::Prometheus, Self::Collector];

    /// The sets that only real nodes need ([`super::ensure_real`]).
    pub const REAL: [Self; 2] = [Self::Debian, Self::Node];

    /// Returns the name of the set's folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Kwok => "kwok",
            Self::Kubernetes => "kubernetes",
            Self::Karmada => "karmada",
            Self::Volcano => "volcano",
            Self::TrainingOperator => "training-operator",
            Self::JobSet => "jobset",
            Self::MpiOperator => "mpi-operator",
            Self::KubeRay => "kuberay",
            Self::LeaderWorkerSet => "lws",
            Self::Packaging => "packaging",
            Self::Prometheus => "prometheus",
            Self::Collector => "collector",
            Self::Node => "node",
            Self::Debian => "debian",
        }
    }

    /// Returns the module whose sources include the set's manifests; empty for packages.
    pub(super) fn module(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::Kwok => "sigs.k8s.io/kwok",
            Self::Kubernetes | Self::Node => "k8s.io/kubernetes",
            Self::Karmada => "github.com/karmada-io/karmada",
            Self::Volcano => "volcano.sh/volcano",
            Self::TrainingOperator => "github.com/kubeflow/training-operator",
            Self::JobSet => "sigs.k8s.io/jobset",
            Self::MpiOperator => "github.com/kubeflow/mpi-operator",
            Self::KubeRay => "github.com/ray-project/kuberay/ray-operator",
            Self::LeaderWorkerSet => "sigs.k8s.io/lws",
            Self::Packaging => "helm.sh/helm/v3",
            Self::Prometheus => "github.com/prometheus/prometheus",
            Self::Collector => "go.opentelemetry.io/collector/otelcol",
            Self::Debian => "",
        }
    }

    pub(super) fn source_dir(self) -> PathBuf {
        Path::new(MODULES).join(self.name())
    }

    /// Returns the build tags. Prometheus finds its targets in a file here, and needs the clients of no cloud.
    pub(super) fn tags(self) -> &'static str {
        match self {
            Self::Prometheus => "remove_all_sd",
            _ => "",
        }
    }

    /// Returns the linker flags. Kubernetes' own build sets its version by flags; other programs
    /// cannot parse a version without them.
    pub(super) fn ldflags(self, go_mod: &str) -> String {
        let strip = "-s -w";
        if !matches!(self, Self::Kubernetes | Self::Node) {
            return strip.to_owned();
        }
        let version = module_version(go_mod, self.module()).unwrap_or("v0.0.0");
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
        let package = "k8s.io/component-base/version";
        format!(
            "{strip} -X {package}.gitVersion={version} -X {package}.gitMajor={major} \
             -X {package}.gitMinor={minor}"
        )
    }
}

impl Tool {
    /// Returns the set of the tool, and the tool's name in it.
    pub(super) fn place(self) -> (Toolset, &'static str) {
        match self {
            Self::Etcd => (Toolset::Etcd, "server"),
            Self::Kwok => (Toolset::Kwok, "kwok"),
            Self::KubeApiserver => (Toolset::Kubernetes, "kube-apiserver"),
            Self::KubeControllerManager => (Toolset::Kubernetes, "kube-controller-manager"),
            Self::KubeScheduler => (Toolset::Kubernetes, "kube-scheduler"),
            Self::Kubectl => (Toolset::Kubernetes, "kubectl"),
            Self::KarmadaAgent => (Toolset::Karmada, "agent"),
            Self::KarmadaAggregatedApiserver => (Toolset::Karmada, "aggregated-apiserver"),
            Self::KarmadaControllerManager => (Toolset::Karmada, "controller-manager"),
            Self::KarmadaScheduler => (Toolset::Karmada, "scheduler"),
            Self::KarmadaWebhook => (Toolset::Karmada, "webhook"),
            Self::VolcanoScheduler => (Toolset::Volcano, "scheduler"),
            Self::VolcanoControllerManager => (Toolset::Volcano, "controller-manager"),
            Self::VolcanoWebhookManager => (Toolset::Volcano, "webhook-manager"),
            Self::TrainingOperator => (Toolset::TrainingOperator, "training-operator"),
            Self::JobSet => (Toolset::JobSet, "jobset"),
            Self::MpiOperator => (Toolset::MpiOperator, "mpi-operator"),
            Self::KubeRay => (Toolset::KubeRay, "ray-operator"),
            Self::LeaderWorkerSet => (Toolset::LeaderWorkerSet, "cmd"),
            Self::Helm => (Toolset::Packaging, "helm"),
            Self::ImageAssembler => (Toolset::Packaging, "packaging"),
            Self::Crane => (Toolset::Packaging, "crane"),
            Self::Prometheus => (Toolset::Prometheus, "prometheus"),
            Self::Promtool => (Toolset::Prometheus, "promtool"),
            Self::Collector => (Toolset::Collector, "collector"),
            Self::Kubelet => (Toolset::Node, "kubelet"),
            Self::DevicePlugin => (Toolset::Node, "node"),
            Self::Containerd => (Toolset::Debian, "containerd"),
        }
    }
}
