//! The names of the processes, by which they are killed, paused and restarted.

/// The process name of etcd.
pub const ETCD: &str = "etcd";
/// The process name of Karmada's API server.
pub const KARMADA_APISERVER: &str = "karmada-apiserver";
/// The process name of the control plane's kube-controller-manager.
pub const KARMADA_KUBE_CONTROLLER_MANAGER: &str = "karmada-kube-controller-manager";
/// The process name of karmada-aggregated-apiserver.
pub const KARMADA_AGGREGATED_APISERVER: &str = "karmada-aggregated-apiserver";
/// The process name of karmada-webhook.
pub const KARMADA_WEBHOOK: &str = "karmada-webhook";
/// The process name of karmada-controller-manager.
pub const KARMADA_CONTROLLER_MANAGER: &str = "karmada-controller-manager";
/// The process name of karmada-scheduler.
pub const KARMADA_SCHEDULER: &str = "karmada-scheduler";

/// The processes that use Karmada's API server besides Kubernetes' own controllers.
pub(super) const KARMADA_PROCESSES: [&str; 4] = [
    KARMADA_AGGREGATED_APISERVER,
    KARMADA_WEBHOOK,
    KARMADA_CONTROLLER_MANAGER,
    KARMADA_SCHEDULER,
];

/// A process of a member; some exist only with Volcano or in pull mode. Its name is
/// `<member>-<suffix>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of components")]
pub enum MemberProcess {
    Apiserver,
    KubeControllerManager,
    KubeScheduler,
    Kwok,
    VolcanoScheduler,
    VolcanoControllers,
    VolcanoWebhook,
    KarmadaAgent,
}

impl MemberProcess {
    /// All processes, in their start order.
    pub const ALL: [Self; 8] = [
        Self::Apiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kwok,
        Self::VolcanoWebhook,
        Self::VolcanoControllers,
        Self::VolcanoScheduler,
        Self::KarmadaAgent,
    ];

    /// Returns the name of this process of `member`.
    pub fn of(self, member: &str) -> String {
        let suffix = match self {
            Self::Apiserver => "apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::VolcanoScheduler => "volcano-scheduler",
            Self::VolcanoControllers => "volcano-controllers",
            Self::VolcanoWebhook => "volcano-webhook",
            Self::KarmadaAgent => "karmada-agent",
        };
        format!("{member}-{suffix}")
    }
}

/// A process of a real node. Its name is `<member>-<suffix>-<number>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeProcess {
    /// The container runtime, with which all containers of the node end, as if the machine lost power.
    Containerd,
    /// The kubelet; containers run on without it.
    Kubelet,
    /// The device plugin; a node without it keeps its devices, as unhealthy ones.
    DevicePlugin,
}

impl NodeProcess {
    /// All processes, in their start order.
    pub(super) const ALL: [Self; 3] = [Self::Containerd, Self::Kubelet, Self::DevicePlugin];

    /// Returns the name of this process of the node with this number, from 1, in `member`.
    pub fn of(self, member: &str, number: u8) -> String {
        let suffix = match self {
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::DevicePlugin => "device-plugin",
        };
        format!("{member}-{suffix}-{number}")
    }
}
