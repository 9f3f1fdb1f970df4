//! The flags that choose pods of a job, and the commands about them.

use clap::Args;

/// Which pods of a job.
#[derive(Debug, Default, Clone, Args)]
#[group(multiple = false)]
pub(crate) struct PodChoice {
    /// Only the pod of this rank; ranks count through the whole job, from 0
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u64>,
    /// Only the pods of this task, such as worker
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// Only this pod, as POD or CLUSTER/POD
    #[arg(long, value_name = "POD")]
    pub(crate) pod: Option<String>,
}
