//! Programs of nodes that no Go module serves, from packages of the machine's own Debian release.
//!
//! apt-get fetches them with lists and a cache of its own in a temporary folder, and verifies them by the
//! release's signature. Nothing is installed: the packages are unpacked, and the programs copied into the cache.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{ToolsError, ToolsResult, images, io};

/// The file that names the release of this machine.
const RELEASE: &str = "/etc/os-release";

/// A package with the version that is asked for first. A release serves only its last versions, so another one of
/// the same release does too.
struct DebianPackage {
    name: &'static str,
    version: &'static str,
}

const PACKAGES: [DebianPackage; 4] = [
    package("containerd", "1.6.20~ds1-1+deb12u3"),
    package("runc", "1.1.5+ds1-1+deb12u1"),
    package("containernetworking-plugins", "1.1.1+ds1-3+b5"),
    package("busybox-static", "1:1.35.0-4+deb12u1+b1"),
];

/// The programs in use, by their paths in the packages.
const PROGRAMS: [&str; 7] = [
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/sbin/runc",
    "usr/lib/cni/bridge",
    "usr/lib/cni/host-local",
    "usr/lib/cni/loopback",
];

/// The only program of the images.
const BUSYBOX: &str = "bin/busybox";

const fn package(name: &'static str, version: &'static str) -> DebianPackage {
    DebianPackage { name, version }
}

/// Returns what determines the programs: the packages, the images and the release.
pub(super) fn identity() -> ToolsResult<String> {
    let release = fs::read_to_string(RELEASE).map_err(io("read", Path::new(RELEASE)))?;
    let field = |name: &str| release.lines().find_map(|line| line.strip_prefix(name));
    let mut identity = format!(
        "{} {} {}",
        field("ID=").unwrap_or_default(),
        field("VERSION_ID=").unwrap_or_default(),
        images::RECIPE
    );
    for DebianPackage { name, version } in PACKAGES {
        identity += &format!(" {name}={version}");
    }
    Ok(identity)
}

/// Fetches the packages and fills `bin` with their programs and the images of nodes.
pub(super) fn install(bin: &Path) -> ToolsResult<()> {
    let folder = tempfile::tempdir().map_err(io("create a folder in", &std::env::temp_dir()))?;
    let folder = folder.path();
    let [debs, root] = ["debs", "root"].map(|name| folder.join(name));
    for path in [
        &debs,
        &root,
        &folder.join("lists/partial"),
        &folder.join("cache"),
    ] {
        fs::create_dir_all(path).map_err(io("create", path))?;
    }
    run(&mut apt_get(folder, &["update"]))?;
    for DebianPackage { name, version } in PACKAGES {
        let pinned = format!("{name}={version}");
        run(apt_get(folder, &["download", &pinned]).current_dir(&debs))
            .or_else(|_| run(apt_get(folder, &["download", name]).current_dir(&debs)))?;
    }
    for entry in fs::read_dir(&debs).map_err(io("read", &debs))? {
        let deb = entry.map_err(io("read", &debs))?.path();
        run(Command::new("dpkg-deb").arg("-x").arg(deb).arg(&root))?;
    }
    for program in PROGRAMS {
        let from = root.join(program);
        let to = bin.join(from.file_name().unwrap_or_default());
        fs::copy(&from, &to).map_err(io("copy", &from))?;
    }
    images::build(&root.join(BUSYBOX), folder, bin)
}

/// Returns an apt-get that neither reads nor changes the machine's own lists and cache.
fn apt_get(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    for (option, name) in [("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")] {
        let path = folder.join(name);
        command.args(["-o", &format!("{option}={}", path.display())]);
    }
    // Its own user may not write in these folders.
    command.args(["-o", "APT::Sandbox::User=root", "--quiet", "--yes"]);
    command.args(args);
    command
}

/// Runs a program of the system; its output is shown only if it fails.
pub(super) fn run(command: &mut Command) -> ToolsResult<()> {
    let line = format!("{command:?}").replace('"', "");
    let failed = |output: String| ToolsError::Command {
        command: line.clone(),
        output,
    };
    let output = command
        .output()
        .map_err(|cause| failed(cause.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}
