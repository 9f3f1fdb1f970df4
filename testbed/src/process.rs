//! The processes of a testbed, which never outlive the process that started them.
//!
//! All of them are in one process group, whose leader is a watchdog: a shell that waits for the end
//! of a pipe whose other end only the owner holds. When the owner ends in any way (return, panic,
//! Ctrl-C, SIGKILL), the kernel closes the pipe, and the watchdog kills the whole group, including
//! itself. A process that starts at that moment cannot join the dead group, and fails.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::ports::Ports;
use crate::proc::{ProcessId, RunState, nix_pid};

/// The number of log lines in an error.
const TAIL_LINES: usize = 20;

/// The command line and ports of a component.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    /// The ports on which it listens; the first one shows whether it serves.
    pub(super) ports: Vec<u16>,
}

/// The current status of a process.
#[derive(Debug, Clone)]
pub struct ProcessStatus {
    /// Its name, e.g. `member1-apiserver`.
    pub name: String,
    /// Its pid and start time; those of the last run if it is gone.
    pub id: ProcessId,
    /// What it runs.
    pub program: PathBuf,
    /// Its state.
    pub state: RunState,
    /// The port on which it serves, if any.
    pub port: Option<u16>,
    /// The file of its output.
    pub log: PathBuf,
}

/// Starts, signals and ends the processes.
#[derive(Debug)]
pub(super) struct Supervisor {
    log_dir: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    watchdog: Child,
    ports: Ports,
    processes: BTreeMap<String, Managed>,
}

#[derive(Debug)]
struct Managed {
    launch: Launch,
    child: Child,
    id: ProcessId,
    /// True if it was ended on purpose; then only a restart by name starts it again.
    killed: bool,
}

impl Supervisor {
    /// Starts the watchdog, which creates the group. The processes get their ports from `ports`.
    pub(super) fn new(log_dir: PathBuf, ports: Ports) -> Result<Self> {
        fs::create_dir_all(&log_dir).map_err(Error::io("create", &log_dir))?;
        let watchdog = std::process::Command::new("/bin/sh")
            .args(["-c", "read -r _; kill -KILL 0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(spawn_error("watchdog", Path::new("/bin/sh")))?;
        let inner = Inner {
            watchdog,
            ports,
            processes: BTreeMap::new(),
        };
        Ok(Self {
            log_dir,
            inner: Mutex::new(inner),
        })
    }

    /// Returns the watchdog, whose pid is the group's id.
    pub(super) fn group(&self) -> Option<ProcessId> {
        ProcessId::of(self.inner.lock().watchdog.id())
    }

    pub(super) fn reserve_port(&self) -> Result<u16> {
        self.inner.lock().ports.reserve()
    }

    /// Starts a component in place of one of the same name, and appends its output to `<name>.log`.
    pub(super) fn spawn(&self, launch: Launch) -> Result<()> {
        self.remove(&launch.name);
        let mut inner = self.inner.lock();
        let managed = self.start(&mut inner, launch)?;
        inner.processes.insert(managed.launch.name.clone(), managed);
        Ok(())
    }

    /// Ends a process at once (SIGKILL) and waits until it is gone. A missing process is no error.
    pub(super) fn kill(&self, name: &str) -> Result<()> {
        let mut inner = self.inner.lock();
        let managed = inner.find(name)?;
        end(&mut managed.child);
        managed.killed = true;
        Ok(())
    }

    /// Ends a process at once, if there is one of that name, and forgets it.
    pub(super) fn remove(&self, name: &str) {
        if let Some(mut managed) = self.inner.lock().processes.remove(name) {
            end(&mut managed.child);
        }
    }

    /// Suspends a process (SIGSTOP).
    pub(super) fn pause(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::SIGSTOP)
    }

    /// Resumes a suspended process (SIGCONT).
    pub(super) fn resume(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::SIGCONT)
    }

    /// Restarts a process with the same arguments, after ending it if it runs.
    pub(super) fn restart(&self, name: &str) -> Result<()> {
        let mut inner = self.inner.lock();
        let managed = inner.find(name)?;
        end(&mut managed.child);
        let launch = managed.launch.clone();
        let managed = self.start(&mut inner, launch)?;
        inner.processes.insert(name.to_owned(), managed);
        Ok(())
    }

    /// Restarts the named processes that exited by themselves, as a kubelet would. Returns true if
    /// there were any.
    pub(super) fn revive(&self, names: &[String]) -> Result<bool> {
        let mut any = false;
        for name in names {
            let ended = match self.inner.lock().processes.get_mut(name) {
                Some(managed) => !managed.killed && matches!(managed.child.try_wait(), Ok(Some(_))),
                None => false,
            };
            if ended {
                self.restart(name)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Returns an error with the end of the log if the process has ended.
    pub(super) fn ensure_running(&self, name: &str) -> Result<()> {
        let mut inner = self.inner.lock();
        let managed = inner.find(name)?;
        let Ok(Some(status)) = managed.child.try_wait() else {
            return Ok(());
        };
        let log = self.log_path(name);
        Err(Error::Exited {
            name: name.to_owned(),
            status: status.to_string(),
            tail: tail(&log, TAIL_LINES),
            log,
        })
    }

    /// Returns the end of a process's log, preceded by its name.
    pub(super) fn log_tail(&self, name: &str) -> String {
        let log = self.log_path(name);
        format!(
            "\nthe end of {} ({name}):\n{}",
            log.display(),
            tail(&log, TAIL_LINES)
        )
    }

    /// Returns the first port of a process.
    pub(super) fn port(&self, name: &str) -> Result<Option<u16>> {
        Ok(self.inner.lock().find(name)?.launch.ports.first().copied())
    }

    /// Returns the status of every process that was ever started, by name.
    pub(super) fn status(&self) -> Vec<ProcessStatus> {
        let mut inner = self.inner.lock();
        let processes = inner.processes.values_mut().map(|managed| {
            // This reaps the process if it ended, so that it is not shown as a zombie.
            let ended = matches!(managed.child.try_wait(), Ok(Some(_)));
            ProcessStatus {
                name: managed.launch.name.clone(),
                id: managed.id,
                program: managed.launch.program.clone(),
                state: if ended {
                    RunState::Gone
                } else {
                    managed.id.run_state()
                },
                port: managed.launch.ports.first().copied(),
                log: self.log_path(&managed.launch.name),
            }
        });
        processes.collect()
    }

    /// Ends all processes and waits until they are gone. Idempotent.
    pub(super) fn shutdown(&self) {
        let mut inner = self.inner.lock();
        if let Ok(None) = inner.watchdog.try_wait() {
            // The watchdog is not reaped yet, so no other group can have its id.
            let _ = killpg(nix_pid(inner.watchdog.id()), Signal::SIGKILL);
            let _ = inner.watchdog.wait();
        }
        for managed in inner.processes.values_mut() {
            end(&mut managed.child);
        }
    }

    fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        self.inner.lock().find(name)?.id.signal(signal);
        Ok(())
    }

    fn start(&self, inner: &mut Inner, launch: Launch) -> Result<Managed> {
        for &port in &launch.ports {
            inner.ports.release(port);
        }
        let path = self.log_path(&launch.name);
        let log = File::options().create(true).append(true).open(&path);
        let log = log.map_err(Error::io("open", &path))?;
        let errors = log.try_clone().map_err(Error::io("open", &path))?;
        let child = std::process::Command::new(&launch.program)
            .args(&launch.args)
            .env("GOMAXPROCS", "2")
            // Memory is plentiful and CPU time is not: with this, API servers, which use most of
            // it, collect garbage a third as often.
            .env("GOGC", "300")
            // Some components look for a kubeconfig of the user, or for the cluster that they run in.
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(nix_pid(inner.watchdog.id()).as_raw())
            .spawn()
            .map_err(spawn_error(&launch.name, &launch.program))?;
        // A process without a start time died at once; then no signal must ever be sent to this id.
        let id = ProcessId::of(child.id()).unwrap_or(ProcessId {
            pid: child.id(),
            start_time: 0,
        });
        Ok(Managed {
            launch,
            child,
            id,
            killed: false,
        })
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.log_dir.join(format!("{name}.log"))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Inner {
    fn find(&mut self, name: &str) -> Result<&mut Managed> {
        let known: Vec<_> = self.processes.keys().cloned().collect();
        self.processes
            .get_mut(name)
            .ok_or_else(|| Error::UnknownProcess {
                name: name.to_owned(),
                known: known.join(", "),
            })
    }
}

/// Kills and reaps a process.
fn end(child: &mut Child) {
    // Both fail only if the process is already gone and reaped.
    let _ = child.kill();
    let _ = child.wait();
}

fn spawn_error(name: &str, program: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let (name, program) = (name.to_owned(), program.to_owned());
    move |cause| Error::Spawn {
        name,
        program,
        cause,
    }
}

/// Returns the last `lines` lines of a file, of which it reads only the end.
fn tail(path: &Path, lines: usize) -> String {
    const WINDOW: u64 = 16 * 1024;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(WINDOW)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = match read() {
        Ok(text) => text,
        Err(error) => format!("(no log: {error})"),
    };
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The timeout for processes to disappear after SIGKILL.
pub(super) const GONE_DEADLINE: Duration = Duration::from_secs(10);
