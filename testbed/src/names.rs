//! The names of the processes, by which they are killed, paused and restarted.

/// Name of etcd among the processes.
pub const ETCD: &str = "etcd";
/// Name of Karmada's API server among the processes.
pub const KARMADA_APISERVER: &str = "karmada-apiserver";
/// Name of the control plane's kube-controller-manager among the processes.
pub const KARMADA_KUBE_CONTROLLER_MANAGER: &str = "karmada-kube-controller-manager";
/// Name of karmada-aggregated-apiserver among the processes.
pub const KARMADA_AGGREGATED_APISERVER: &str = "karmada-aggregated-apiserver";
/// Name of karmada-webhook among the processes.
pub const KARMADA_WEBHOOK: &str = "karmada-webhook";
/// Name of karmada-controller-manager among the processes.
pub const KARMADA_CONTROLLER_MANAGER: &str = "karmada-controller-manager";
/// Name of karmada-scheduler among the processes.
pub const KARMADA_SCHEDULER: &str = "karmada-scheduler";

/// What works on Karmada's API server besides Kubernetes' own controllers.
pub(super) const KARMADA_PROCESSES: [&str; 4] = [
    KARMADA_AGGREGATED_APISERVER,
    KARMADA_WEBHOOK,
    KARMADA_CONTROLLER_MANAGER,
    KARMADA_SCHEDULER,
];

/// A process that every member has, or every one with Volcano or in pull mode; its name is `<member>-<suffix>`.
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
    /// All of them, in the order in which they start.
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

    /// The name of this process of `member`.
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
