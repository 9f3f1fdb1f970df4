//! Muster as it was at an earlier commit, for stories of upgrades and roll-backs.
//!
//! It is built once, from the repository's history, into the cache of tools. Dependencies that the
//! workspace has already compiled come from its target folder. This takes one minute on two cores
//! instead of ten, and 300 MB until the build ends instead of gigabytes. The workspace's target
//! folder is only read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use testbed::tools::cache_dir;

/// The commit whose records later ones must be able to read: the first whose binary is kept for
/// that. It knows neither versions of records nor unknown fields in them.
pub const FIRST: &str = "c2f12396d19800064e98a8d0c4fe022136affd5d";

/// Names another binary than that of [`FIRST`].
const BIN_OF_FIRST: &str = "MUSTER_EARLIER_BIN";

/// Flags that a binary of [`FIRST`] knows, which set the same back-off as in all stories.
pub const FIRST_FLAGS: [&str; 1] = ["--backoff-seconds=1"];

/// Flags that a binary of [`PREVIOUS`] knows, which set the same times as in all stories.
pub const PREVIOUS_FLAGS: [&str; 2] = ["--backoff-seconds=1", "--override-grace-seconds=10"];

/// The commit that stands for the version before this one (N−1), until there are releases: the first with
/// `muster.io/v1alpha2`, to which roll-backs are possible.
pub const PREVIOUS: &str = "51078b665780e012ef471285a75c19ead55da770";

/// Returns the binary `muster` of [`FIRST`]: `MUSTER_EARLIER_BIN`, or the one in the cache of
/// tools, which is built if it is missing. Processes that build it at the same time wait for each
/// other.
///
/// # Errors
/// Returns an error if the history does not reach that far back, or the build fails.
pub fn first() -> anyhow::Result<PathBuf> {
    program_at(FIRST, BIN_OF_FIRST)
}

/// Returns the binary `muster` of [`PREVIOUS`] in the same way; `MUSTER_PREVIOUS_BIN` names another one.
///
/// # Errors
/// Returns an error if the history does not reach that far back, or the build fails.
pub fn previous() -> anyhow::Result<PathBuf> {
    program_at(PREVIOUS, "MUSTER_PREVIOUS_BIN")
}

fn program_at(commit: &str, variable: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let dir = cache_dir()?.join(format!("muster-{}", &commit[..12]));
    let program = dir.join("muster");
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let lock = File::create(dir.join("lock")).context("create the lock of the build")?;
    lock.lock().context("wait for another build")?;
    if !program.is_file() {
        build(&program, commit).with_context(|| format!("build muster at {commit}"))?;
    }
    Ok(program)
}

fn build(program: &Path, commit: &str) -> anyhow::Result<()> {
    eprintln!("building muster at {commit}");
    // This program is target/debug/deps/e2e-…, and target/earlier is beside debug: on one file
    // system, so that files can be linked.
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let debug = own.ancestors().find(|path| path.ends_with("debug"));
    let debug = debug.with_context(|| format!("{} is not in target/debug", own.display()))?;
    let work = debug.with_file_name("earlier");
    // An interrupted build may have left this folder.
    remove(&work)?;
    let (source, target) = (work.join("source"), work.join("target"));
    fs::create_dir_all(&source).with_context(|| format!("create {}", source.display()))?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The archive is complete wherever in the repository this runs.
    unpack(commit, repository.parent().unwrap_or(repository), &source)?;
    lend(debug, &target.join("debug"))?;
    compile(&source, &target)?;
    // The final name appears only when the file is complete: another process may look for it
    // meanwhile.
    let partial = program.with_extension("partial");
    fs::copy(target.join("debug/muster"), &partial).context("save the program")?;
    fs::rename(&partial, program).context("save the program")?;
    remove(&work)
}

fn compile(source: &Path, target: &Path) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        // The build is for the whole workspace, so that dependencies have the same features as
        // here.
        .args([
            "build",
            "--locked",
            "--quiet",
            "--workspace",
            "--bin=muster",
        ])
        .current_dir(source)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_INCREMENTAL", "0")
        .status()
        .context("run cargo")?;
    ensure!(built.success(), "cargo build: {built}");
    Ok(())
}

/// Extracts the sources of a commit into `source`.
fn unpack(commit: &str, repository: &Path, source: &Path) -> anyhow::Result<()> {
    let git = || {
        let mut command = Command::new("git");
        command.current_dir(repository);
        command
    };
    let known = git()
        .args(["cat-file", "-e", &format!("{commit}^{{commit}}")])
        .output()
        .context("run git")?;
    ensure!(
        known.status.success(),
        "the commit is not in the history of {}: in a shallow clone run `git fetch --unshallow`, \
         elsewhere name a binary of it in {BIN_OF_FIRST} or MUSTER_PREVIOUS_BIN",
        repository.display()
    );
    let mut archive = git()
        .args(["archive", "--format=tar", commit])
        .stdout(Stdio::piped())
        .spawn()
        .context("run git")?;
    let tar = archive.stdout.take().context("git has no output")?;
    let unpacked = Command::new("tar")
        .args(["-x", "-C"])
        .arg(source)
        .stdin(tar)
        .status()
        .context("run tar")?;
    let archived = archive.wait()?;
    ensure!(
        archived.success() && unpacked.success(),
        "git archive: {archived}, tar: {unpacked}"
    );
    Ok(())
}

/// Gives the target folder `to` the compiled dependencies in `from`. Libraries are linked, since
/// compilers replace and never change them; files that cargo changes in place are copied.
fn lend(from: &Path, to: &Path) -> anyhow::Result<()> {
    let deps = to.join("deps");
    fs::create_dir_all(&deps).with_context(|| format!("create {}", deps.display()))?;
    for entry in fs::read_dir(from.join("deps")).context("read target/debug/deps")? {
        let entry = entry?;
        let is_library = |kind: &str| matches!(kind, "rlib" | "rmeta" | "so");
        let extension = entry.path().extension().map(ToOwned::to_owned);
        if extension.is_some_and(|kind| kind.to_str().is_some_and(is_library)) {
            let linked = fs::hard_link(entry.path(), deps.join(entry.file_name()));
            linked.with_context(|| format!("link {}", entry.path().display()))?;
        }
    }
    // The copies keep their times, by which cargo determines what is fresh.
    let copied = Command::new("cp")
        .arg("--archive")
        .args([from.join(".fingerprint"), from.join("build")])
        .arg(to)
        .status()
        .context("run cp")?;
    ensure!(copied.success(), "cp: {copied}");
    Ok(())
}

fn remove(dir: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn git(dir: &Path, args: &[&str]) {
        let done = Command::new("git").args(args).current_dir(dir).output();
        assert!(done.unwrap().status.success(), "git {args:?}");
    }

    #[test]
    fn a_clone_without_the_commit_says_how_to_get_it() {
        let dir = tempfile::tempdir().unwrap();
        git(dir.path(), &["init", "--quiet"]);
        let error = unpack(FIRST, dir.path(), &dir.path().join("source")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("`git fetch --unshallow`"), "{text}");
        assert!(text.contains("MUSTER_EARLIER_BIN"), "{text}");
    }

    #[test]
    fn what_is_lent_is_linked_with_its_times_and_programs_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        for folder in ["deps", ".fingerprint/serde-1", "build"] {
            fs::create_dir_all(from.join(folder)).unwrap();
        }
        let mark = ".fingerprint/serde-1/dep-lib-serde";
        for file in ["deps/libserde-1.rlib", "deps/e2e-1", "deps/serde-1.d", mark] {
            fs::write(from.join(file), file).unwrap();
        }
        let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
        let file = File::options().write(true).open(from.join(mark)).unwrap();
        file.set_modified(long_ago).unwrap();
        lend(&from, &to).unwrap();
        let modified = fs::metadata(to.join(mark)).unwrap().modified().unwrap();
        assert_eq!(modified, long_ago);
        let lent = fs::read_dir(to.join("deps")).unwrap();
        let lent: Vec<_> = lent.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(lent, ["libserde-1.rlib"]);
    }
}
