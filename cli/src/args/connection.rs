//! The flags that say which server, as whom, and in which namespace: those of kubectl.

use clap::Args;
use std::path::PathBuf;

/// The connection to the server, with kubectl's flags.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct KubectlConnection {
    /// Path of the kubeconfig; else KUBECONFIG, else ~/.kube/config
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) impersonate: Option<String>,
    /// Namespace of the job (queues have none)
    #[arg(long, short, global = true)]
    pub(crate) namespace: Option<String>,
    /// Seconds to wait for the server
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) request_timeout: u32,
}
