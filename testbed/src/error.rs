//! The errors of a testbed, each of which names its process, file or field.
//!
//! Each message is complete and includes its cause; there is no chain of sources to print.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::tools::ToolsError;

/// A reason why a testbed could not be started, reached or changed.
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
        /// The attempted action, e.g. `write`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// A key or certificate could not be created.
    #[error("make certificate: {0}")]
    Pki(#[from] rcgen::Error),
    /// A manifest is not YAML, or lacks a field that every Kubernetes object has.
    #[error("manifest {}: {reason}", path.display())]
    Manifest {
        /// The manifest's file.
        path: PathBuf,
        /// The reason why it is invalid.
        reason: String,
    },
    /// An API server refused a request or could not be reached.
    #[error("{action}: {}", describe(cause))]
    Kube {
        /// The attempted action, e.g. `create node n1 in member1`.
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
    /// A component could not be started.
    #[error("start {name} ({}): {cause}", program.display())]
    Spawn {
        /// The name of the process.
        name: String,
        /// Its program.
        program: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// A component exited unexpectedly.
    #[error("{name} ended ({status}); the end of {}:\n{tail}", log.display())]
    Exited {
        /// The name of the process.
        name: String,
        /// Its exit status.
        status: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// A condition was not met within its deadline.
    #[error("waited {:.0} s for {what}: {last}{}", after.as_secs_f64(), log.as_deref().unwrap_or_default())]
    NotReady {
        /// The condition.
        what: String,
        /// The time waited.
        after: Duration,
        /// The last observed state.
        last: String,
        /// The end of the log of the process in question, preceded by its name.
        log: Option<String>,
    },
    /// The testbed has no process of that name.
    #[error("no process {name:?} in the testbed; there are: {known}")]
    UnknownProcess {
        /// The requested name.
        name: String,
        /// The valid names.
        known: String,
    },
    /// The testbed has no cluster of that name.
    #[error("no cluster {name:?} in the testbed; there are: {known}")]
    UnknownCluster {
        /// The requested name.
        name: String,
        /// The valid names.
        known: String,
    },
    /// A testbed is already up in that folder.
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

/// The result of every operation of a testbed.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wraps a file error with the attempted action and its path, for `map_err`.
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

    /// Wraps a client error with the attempted action, for `map_err`.
    pub(crate) fn kube(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
        let action = action.into();
        move |cause| Error::Kube {
            action,
            cause: Box::new(cause),
        }
    }
}

/// Formats a client error for people: the API server's message without the whole status object.
pub(super) fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}
