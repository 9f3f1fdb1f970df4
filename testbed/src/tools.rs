//! The real components, built from their Go modules into a per-user cache.
//!
//! Each set of components has a Go module in `testbed/tools/<set>` with `tool` lines, since the
//! sets pin different Kubernetes libraries. [`ensure`] builds the missing sets one after another,
//! and finds the folders of the modules whose manifests are needed. The key of the cache is a hash
//! of everything that determines the binaries, so a second checkout builds nothing. A set is moved
//! into its place only when it is complete. A warm start does not run `go`.
//!
//! Real nodes need further sets, and a machine that can have such nodes: [`ensure_real`].

mod debian;
mod images;
mod sets;

pub use images::BUSYBOX_IMAGE;
pub(crate) use images::PAUSE_IMAGE;
pub use sets::{Tool, Toolset};

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The folder of the tool modules in the source tree.
const MODULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tools");

/// The file in a built set that has the paths of its modules.
const MODULE_DIRS: &str = "modules.json";

/// Built sets, with the paths of their binaries and of their modules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tools {
    sets: BTreeMap<Toolset, BuiltSet>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct BuiltSet {
    bin: PathBuf,
    module: PathBuf,
}

/// A reason why tools are not available. Each message is complete and includes its cause.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// `go` cannot be run.
    #[error("the components are built with Go {wanted} or newer, but `go` cannot be run: {cause}")]
    NoGo {
        /// The version that the module requires.
        wanted: String,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// `go` is too old, and must not fetch a newer toolchain.
    #[error(
        "{set} needs Go {wanted} or newer, this is {found} with GOTOOLCHAIN=local; \
         install a newer Go or set GOTOOLCHAIN=auto"
    )]
    OldGo {
        /// The set that needs it.
        set: &'static str,
        /// The version that its module requires.
        wanted: String,
        /// The version found.
        found: String,
    },
    /// A `go` command failed.
    #[error("`{command}` in {} failed:\n{output}", dir.display())]
    Go {
        /// The command line.
        command: String,
        /// The folder in which it ran.
        dir: PathBuf,
        /// The end of its output.
        output: String,
    },
    /// A program of the system failed.
    #[error("`{command}` failed: {}", output.trim_end())]
    Command {
        /// The command line.
        command: String,
        /// Its output, or why it could not be run.
        output: String,
    },
    /// A file or folder could not be read or written.
    #[error("{action} {}: {cause}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set.
    #[error("no folder for built tools: set XDG_CACHE_HOME or HOME")]
    NoCacheDir,
    /// A program is requested whose set is not built.
    #[error("{0:?} is not among the tools that were built; ensure its set first")]
    NotBuilt(Toolset),
}

/// Why this machine has no real nodes: everything that needs them is left out.
#[derive(Debug, thiserror::Error)]
#[error("real nodes are left out, since {why}")]
pub struct RealNodesLeftOut {
    why: String,
}

type ToolsResult<T, E = ToolsError> = std::result::Result<T, E>;

impl Tools {
    /// Returns the path of a program.
    ///
    /// # Errors
    /// Returns [`ToolsError::NotBuilt`] if its set is not built.
    pub fn program(&self, tool: Tool) -> ToolsResult<PathBuf> {
        let (set, name) = tool.place();
        Ok(self.set(set)?.bin.join(name))
    }

    /// Returns the source folder of the set's main module, for its manifests.
    ///
    /// # Errors
    /// Returns [`ToolsError::NotBuilt`] if the set is not built.
    pub fn module_dir(&self, set: Toolset) -> ToolsResult<&Path> {
        Ok(&self.set(set)?.module)
    }

    /// Returns these sets and those of `others`.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.sets.extend(others.sets);
        self
    }

    fn set(&self, set: Toolset) -> ToolsResult<&BuiltSet> {
        self.sets.get(&set).ok_or(ToolsError::NotBuilt(set))
    }
}

/// Builds the sets that are missing and returns the paths of all; `progress` gets a line for each
/// set that is built. A build takes minutes per set, a warm start milliseconds. Processes that
/// build into the same cache wait for each other.
///
/// # Errors
/// Returns an error if Go is missing or too old, a build fails, or the cache cannot be written.
pub fn ensure(sets: &[Toolset], progress: &dyn Fn(&str)) -> ToolsResult<Tools> {
    let cache = cache_dir()?;
    fs::create_dir_all(&cache).map_err(io("create", &cache))?;
    let mut tools = Tools::default();
    for &set in sets {
        let built = match warm(set, &cache)? {
            Some(built) => built,
            None => build(set, &cache, progress)?,
        };
        tools.sets.insert(set, built);
    }
    Ok(tools)
}

/// Does the same for the sets of members with real nodes, which must be run as root: containers need namespaces,
/// mounts and cgroups.
///
/// # Errors
/// Returns an error if this machine cannot have such nodes, or their programs cannot be fetched here.
pub fn ensure_real(progress: &dyn Fn(&str)) -> Result<Tools, RealNodesLeftOut> {
    let left_out = |why| RealNodesLeftOut { why };
    if !nix::unistd::geteuid().is_root() {
        return Err(left_out("only root can make containers here".into()));
    }
    ensure(&Toolset::REAL, progress).map_err(|error| left_out(error.to_string()))
}

/// Returns the folder of built tools in the user's cache, `$XDG_CACHE_HOME` or `~/.cache`.
///
/// # Errors
/// Returns [`ToolsError::NoCacheDir`] if neither is set.
pub fn cache_dir() -> ToolsResult<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Ok(base.ok_or(ToolsError::NoCacheDir)?.join("muster/tools"))
}

/// Returns the set if it is built and its module's sources still exist.
fn warm(set: Toolset, cache: &Path) -> ToolsResult<Option<BuiltSet>> {
    let bin = cache.join(key(set)?);
    let Ok(text) = fs::read(bin.join(MODULE_DIRS)) else {
        return Ok(None);
    };
    let module = serde_json::from_slice::<PathBuf>(&text)
        .ok()
        .filter(|module| module.is_dir());
    Ok(module.map(|module| BuiltSet { bin, module }))
}

fn build(set: Toolset, cache: &Path, progress: &dyn Fn(&str)) -> ToolsResult<BuiltSet> {
    let lock_path = cache.join("lock");
    let lock = File::create(&lock_path).map_err(io("create", &lock_path))?;
    lock.lock().map_err(io("lock", &lock_path))?;
    // Another process may have built the set while this one waited.
    if let Some(built) = warm(set, cache)? {
        return Ok(built);
    }
    let started = Instant::now();
    let bin = cache.join(key(set)?);
    let module = match set {
        Toolset::Debian => {
            progress("fetching packages of Debian …");
            in_place(set, cache, &bin, debian::install)?;
            bin.clone()
        }
        _ => {
            require_go(set)?;
            if !bin.is_dir() {
                progress(&format!(
                    "building {} from its Go module (minutes when cold) …",
                    set.name()
                ));
                in_place(set, cache, &bin, |folder| install(set, folder))?;
            }
            locate_module(set)?
        }
    };
    let record = bin.join(MODULE_DIRS);
    let text = serde_json::json!(module).to_string();
    fs::write(&record, text).map_err(io("write", &record))?;
    progress(&format!(
        "{} ready after {:.0} s",
        set.name(),
        started.elapsed().as_secs_f64()
    ));
    Ok(BuiltSet { bin, module })
}

/// Has a temporary folder filled, and renames it to the final one.
fn in_place(
    set: Toolset,
    cache: &Path,
    bin: &Path,
    fill: impl FnOnce(&Path) -> ToolsResult<()>,
) -> ToolsResult<()> {
    let temporary = tempfile::Builder::new()
        .prefix(&format!(".{}-", set.name()))
        .tempdir_in(cache)
        .map_err(io("create a folder in", cache))?;
    fill(temporary.path())?;
    let temporary = temporary.keep();
    fs::rename(&temporary, bin).map_err(io("rename", &temporary))
}

/// Builds a set from its Go module into `folder`.
fn install(set: Toolset, folder: &Path) -> ToolsResult<()> {
    let ldflags = format!("-ldflags={}", set.ldflags(&go_mod(set)?));
    let tags = format!("-tags={}", set.tags());
    let mut command = go(set, &["install", &ldflags, &tags, "tool"]);
    command.env("GOBIN", folder).env("CGO_ENABLED", "0");
    run(command).map(drop)
}

/// Asks Go for the module's folder; Go fetches the sources again if they were removed.
fn locate_module(set: Toolset) -> ToolsResult<PathBuf> {
    let list = || -> ToolsResult<PathBuf> {
        let output = run(go(set, &["list", "-m", "-f", "{{.Dir}}", set.module()]))?;
        Ok(PathBuf::from(
            String::from_utf8_lossy(&output.stdout).trim(),
        ))
    };
    let dir = list()?;
    if dir.is_dir() {
        return Ok(dir);
    }
    run(go(set, &["mod", "download", set.module()]))?;
    list()
}

fn require_go(set: Toolset) -> ToolsResult<()> {
    let text = go_mod(set)?;
    let wanted = text
        .lines()
        .find_map(|line| line.strip_prefix("go "))
        .unwrap_or("1.25")
        .trim();
    // Within the module, Go would fetch a newer toolchain before it prints anything.
    let output = Command::new("go")
        .args(["env", "GOVERSION", "GOTOOLCHAIN"])
        .current_dir("/")
        .output()
        .map_err(|cause| ToolsError::NoGo {
            wanted: wanted.to_owned(),
            cause,
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let found = lines.next().unwrap_or_default().trim_start_matches("go");
    let local = lines.next() == Some("local");
    if local && version(found) < version(wanted) {
        return Err(ToolsError::OldGo {
            set: set.name(),
            wanted: wanted.to_owned(),
            found: found.to_owned(),
        });
    }
    Ok(())
}

/// Returns the numbers of a version, for comparison: `1.26.8` is [1, 26, 8], `1.27rc1` is [1, 27].
fn version(text: &str) -> Vec<u32> {
    let digits = |part: &str| -> String { part.chars().take_while(char::is_ascii_digit).collect() };
    text.split('.')
        .map_while(|part| digits(part).parse().ok())
        .collect()
}

/// Returns the version in a `require` line of a module.
fn module_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim().trim_start_matches("require ");
        let rest = line.strip_prefix(module)?.strip_prefix(' ')?;
        rest.split_whitespace()
            .next()
            .filter(|version| version.starts_with('v'))
    })
}

/// Returns `<set>-<hash>`, a hash of everything that determines the binaries except Go itself.
fn key(set: Toolset) -> ToolsResult<String> {
    if set == Toolset::Debian {
        return Ok(hashed_name(set, &debian::identity()?, "", ""));
    }
    let module = go_mod(set)?;
    let sum_path = set.source_dir().join("go.sum");
    let sums = fs::read_to_string(&sum_path).map_err(io("read", &sum_path))?;
    Ok(hashed_name(set, &module, &sums, &own_source(set)?))
}

/// Returns the source of the set's own program, which replaces its project's command.
fn own_source(set: Toolset) -> ToolsResult<String> {
    let path = set.source_dir().join("main.go");
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        text => text.map_err(io("read", &path)),
    }
}

fn hashed_name(set: Toolset, go_mod: &str, go_sum: &str, own_source: &str) -> String {
    let mut hash = Sha256::new();
    for part in [go_mod, go_sum, &set.ldflags(go_mod), set.tags(), own_source] {
        hash.update(part);
    }
    let hex: String = hash
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{}-{hex}", set.name())
}

fn go_mod(set: Toolset) -> ToolsResult<String> {
    let path = set.source_dir().join("go.mod");
    fs::read_to_string(&path).map_err(io("read", &path))
}

fn go(set: Toolset, args: &[&str]) -> Command {
    let mut command = Command::new("go");
    command.args(args).current_dir(set.source_dir());
    command
}

fn run(mut command: Command) -> ToolsResult<Output> {
    let describe = |command: &Command| {
        let args = command
            .get_args()
            .map(|arg| arg.to_string_lossy().into_owned());
        format!("go {}", args.collect::<Vec<_>>().join(" "))
    };
    let dir = command
        .get_current_dir()
        .unwrap_or(Path::new("/"))
        .to_owned();
    let output = command.output().map_err(io("run go in", &dir))?;
    if output.status.success() {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    Err(ToolsError::Go {
        command: describe(&command),
        dir,
        output: lines[lines.len().saturating_sub(20)..].join("\n"),
    })
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ToolsError {
    let path = path.to_owned();
    move |cause| ToolsError::Io {
        action,
        path,
        cause,
    }
}

#[cfg(test)]
mod tests;
