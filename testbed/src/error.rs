//! What can go wrong with a testbed, each error naming the process, file or field that it is about.
//!
//! Each message is whole in itself, with its cause; there is no chain of sources to print besides.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::tools::ToolsError;

/// Why a testbed could not be started, reached or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The description of the testbed contradicts itself.
    #[error("testbed spec: {0}")]
    Spec(String),
    /// The components could not be built or found.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// A file or folder could not be read or written.
    #[error("{action} {}: {cause}", path.display())]
    Io {
        /// What was being done, e.g. `write`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A key or certificate could not be made.
    #[error("make certificate: {0}")]
    Pki(#[from] rcgen::Error),
    /// A manifest is no YAML, or lacks what every Kubernetes object has.
    #[error("manifest {}: {reason}", path.display())]
    Manifest {
        /// The manifest's file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An API server refused a request or could not be reached.
    #[error("{action}: {}", describe(cause))]
    Kube {
        /// What was being done, e.g. `create node n1 in member1`.
        action: String,
        /// The client's error.
        cause: Box<kube::Error>,
    },
    /// A kubeconfig of the testbed could not be used.
    #[error("kubeconfig {}: {cause}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The client's error.
        cause: Box<kube::config::KubeconfigError>,
    },
    /// A component could not be started at all.
    #[error("start {name} ({}): {cause}", program.display())]
    Spawn {
        /// Name of the process.
        name: String,
        /// Its program.
        program: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A component ended by itself.
    #[error("{name} ended ({status}); the end of {}:\n{tail}", log.display())]
    Exited {
        /// Name of the process.
        name: String,
        /// Its exit status.
        status: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// Something was not ready within its deadline.
    #[error("waited {:.0} s for {what}: {last}{}", after.as_secs_f64(), log.as_deref().unwrap_or_default())]
    NotReady {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
        /// What the last look saw.
        last: String,
        /// The end of the log of the process in question, introduced by its name.
        log: Option<String>,
    },
    /// No process of that name belongs to the testbed.
    #[error("no process {name:?} in the testbed; there are: {known}")]
    UnknownProcess {
        /// The name asked for.
        name: String,
        /// The names that would have been right.
        known: String,
    },
    /// No cluster of that name belongs to the testbed.
    #[error("no cluster {name:?} in the testbed; there are: {known}")]
    UnknownCluster {
        /// The name asked for.
        name: String,
        /// The names that would have been right.
        known: String,
    },
    /// A testbed is up in that folder already.
    #[error(
        "a testbed is up in {} (pid {pid}); take it down first or choose another folder",
        dir.display()
    )]
    AlreadyUp {
        /// Its state folder.
        dir: PathBuf,
        /// Its owner.
        pid: u32,
    },
    /// No testbed was ever started in that folder.
    #[error("no testbed in {}; start one with: testbed up", dir.display())]
    NoTestbed {
        /// The state folder.
        dir: PathBuf,
    },
}

/// The result of everything a testbed does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// For `map_err`: wraps a file error with what was being done to which path.
    pub(crate) fn io(
        action: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.as_ref().to_owned();
        move |cause| Error::Io {
            action,
            path,
            cause,
        }
    }

    /// For `map_err`: wraps a client error with what was being done.
    pub(crate) fn kube(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
        let action = action.into();
        move |cause| Error::Kube {
            action,
            cause: Box::new(cause),
        }
    }
}

/// A client error for people: what the API server said, without the whole status object.
pub(super) fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}
