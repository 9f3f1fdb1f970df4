//! Muster as it was at an earlier commit, for stories of upgrades and roll-backs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::tools::cache_dir;

/// The commit whose records later ones have to read: the first whose binary is kept for that. It
/// knows neither versions of records nor unknown fields in them.
pub const FIRST: &str = "c2f12396d19800064e98a8d0c4fe022136affd5d";

/// Flags that a binary of [`FIRST`] knows, for the same back-off as in all stories.
pub const FIRST_FLAGS: [&str; 1] = ["--backoff-seconds=1"];

/// The binary `muster` of [`FIRST`]: `MUSTER_EARLIER_BIN`, else one that is built from the
/// repository's history into the cache of tools; a few minutes when cold.
///
/// # Errors
/// If the history does not reach that far back, or it does not build.
pub fn first() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("MUSTER_EARLIER_BIN") {
        return Ok(path.into());
    }
    let dir = cache_dir()?.join(format!("muster-{}", &FIRST[..12]));
    let program = dir.join("muster");
    if !program.is_file() {
        build(&dir, &program).with_context(|| format!("build muster at {FIRST}"))?;
    }
    Ok(program)
}

fn build(dir: &Path, program: &Path) -> anyhow::Result<()> {
    eprintln!("building muster at {FIRST}");
    let (source, target) = (dir.join("source"), dir.join("target"));
    std::fs::create_dir_all(&source)?;
    unpack(&source)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args([
            "build",
            "--locked",
            "--quiet",
            "--package=muster",
            "--bin=muster",
        ])
        .current_dir(&source)
        .env("CARGO_TARGET_DIR", &target)
        .status()
        .context("run cargo")?;
    ensure!(built.success(), "cargo build: {built}");
    // Under its last name only when it is whole: another process may look for it meanwhile.
    std::fs::rename(target.join("debug/muster"), program)?;
    std::fs::remove_dir_all(&source)?;
    std::fs::remove_dir_all(&target)?;
    Ok(())
}

/// Puts the sources of [`FIRST`] into `source`.
fn unpack(source: &Path) -> anyhow::Result<()> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut archive = Command::new("git")
        .args(["archive", "--format=tar", FIRST])
        // Whole, wherever in the repository it is run.
        .current_dir(repository.parent().unwrap_or(repository))
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
        "git archive: {archived}, tar: {unpacked}; a shallow clone needs `git fetch --unshallow`"
    );
    Ok(())
}
