//! The flags that say which server, as whom, and in which namespace: those of kubectl.

use super::Span;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// The heading of these flags in the help.
const HEADING: &str = "Connection, as for kubectl";

/// The connection to the server, with kubectl's flags.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct KubectlConnection {
    /// Namespace of the job (queues have none)
    #[arg(long, short, global = true)]
    pub(crate) namespace: Option<String>,
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
    /// Address of the server, in place of the kubeconfig's
    #[arg(long, short = 's', global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Bearer token, in place of the kubeconfig's credentials
    #[arg(long, global = true, value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Path of the certificates of the authority that the server's is checked with
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Do not check the certificate of the server
    #[arg(long, global = true)]
    pub(crate) insecure_skip_tls_verify: bool,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) impersonate: Option<String>,
    /// Group to impersonate with --as; may be repeated
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub(crate) impersonate_groups: Vec<String>,
    /// UID to impersonate with --as
    #[arg(long = "as-uid", global = true, value_name = "UID")]
    pub(crate) impersonate_uid: Option<String>,
    /// How long to wait for the server: 30s, 1m; a bare number is seconds, and 0 no limit
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s")]
    pub(crate) request_timeout: Span,
}

impl KubectlConnection {
    /// Returns how long the server is waited for, if there is a limit.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        Some(self.request_timeout.0).filter(|limit| !limit.is_zero())
    }

    /// Returns the same where something has to be said.
    pub(crate) fn timeout_or_hour(&self) -> Duration {
        self.timeout().unwrap_or(Duration::from_secs(3_600))
    }
}
