//! The arguments of `run`.

use super::{Span, WriteArgs};
use clap::{Args, ValueEnum};
use std::str::FromStr;

#[derive(Debug, Clone, Args)]
pub(crate) struct RunCommand {
    /// Image of the containers
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: String,
    /// GPUs of each pod
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) gpus: u32,
    /// Pods that run together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nodes: u32,
    /// CPUs of each pod: 8, 500m
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpus: Option<String>,
    /// Memory of each pod: 64Gi
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) memory: Option<String>,
    /// The resource of a GPU
    #[arg(long, value_name = "RESOURCE", default_value = "nvidia.com/gpu")]
    pub(crate) device: String,
    /// Only nodes with this label; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) node_selector: Vec<KeyValue>,
    /// The queue; else that of the namespace
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// The PriorityClass
    #[arg(long, value_name = "CLASS")]
    pub(crate) priority: Option<String>,
    /// How long it is expected to run, which may let it start earlier: 2h
    #[arg(long, value_name = "DURATION")]
    pub(crate) time: Option<Span>,
    /// A variable; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) env: Vec<KeyValue>,
    /// A PersistentVolumeClaim and where it is mounted; may be repeated
    #[arg(long, value_name = "CLAIM:PATH")]
    pub(crate) mount: Vec<Mount>,
    /// Name of the job; else the server makes one
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// What is created
    #[arg(long, value_enum, default_value_t)]
    pub(crate) framework: JobFramework,
    /// Wait until the job has ended; the exit code is that of the job, as for `wait`
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
    /// The command, after --; else that of the image
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// What is created for a job.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum JobFramework {
    /// A Job of Kubernetes, indexed: each pod has JOB_COMPLETION_INDEX
    #[default]
    Job,
    /// A PyTorchJob: its operator sets MASTER_ADDR, RANK and WORLD_SIZE
    Pytorch,
    /// A Job of Volcano: each pod has VC_TASK_INDEX, and the names of all
    Volcano,
}

/// `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyValue {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl FromStr for KeyValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(Self {
                key: key.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err("KEY=VALUE is needed".to_owned()),
        }
    }
}

/// A claim, and where it is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) claim: String,
    pub(crate) path: String,
}

impl FromStr for Mount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((claim, path)) if !claim.is_empty() && path.starts_with('/') => Ok(Self {
                claim: claim.to_owned(),
                path: path.to_owned(),
            }),
            _ => Err("CLAIM:PATH is needed, with a PATH from / on: data:/data".to_owned()),
        }
    }
}
