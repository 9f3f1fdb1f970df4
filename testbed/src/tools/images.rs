//! The images of real nodes, made without a registry and without a container engine: one archive in the format of
//! `docker save`, which containerd imports.
//!
//! All images share one layer, which has busybox and its commands.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::debian::run;
use super::{ToolsResult, io};

/// The image with a shell and the usual commands.
pub const BUSYBOX_IMAGE: &str = "muster.local/busybox:1";
/// The image that holds the namespaces of a pod.
pub(crate) const PAUSE_IMAGE: &str = "muster.local/pause:1";
/// The archive in the folder of the programs.
const ARCHIVE: &str = "images.tar";

/// Changes with the content of the archive.
pub(super) const RECIPE: &str = "images-1";

/// What busybox does as which command. Links to all of its commands would be three hundred files.
const COMMANDS: &str = "sh cat date dd df echo env expr false grep head hostname httpd id kill ls mkdir nc ps rm sed \
    seq sleep sync tail tee test touch tr true uname wc wget yes";

/// Builds the archive in `bin`; `scratch` is a folder for parts of it.
pub(super) fn build(busybox: &Path, scratch: &Path, bin: &Path) -> ToolsResult<()> {
    let [root, parts] = ["image-root", "image"].map(|name| scratch.join(name));
    let commands = root.join("bin");
    for folder in [
        &commands,
        &root.join("etc"),
        &root.join("tmp"),
        &root.join("data"),
        &parts,
    ] {
        fs::create_dir_all(folder).map_err(io("create", folder))?;
    }
    let program = commands.join("busybox");
    fs::copy(busybox, &program).map_err(io("copy", busybox))?;
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&program, executable).map_err(io("change", &program))?;
    for command in COMMANDS.split_whitespace() {
        let link = commands.join(command);
        symlink("busybox", &link).map_err(io("create", &link))?;
    }
    let passwd = root.join("etc/passwd");
    fs::write(&passwd, "root:x:0:0:root:/:/bin/sh\n").map_err(io("write", &passwd))?;
    archive(&root, &parts.join("layer.tar"))?;
    describe(&parts)?;
    archive(&parts, &bin.join(ARCHIVE))
}

/// Writes the configuration of each image, and the index of the archive.
fn describe(parts: &Path) -> ToolsResult<()> {
    let layer = parts.join("layer.tar");
    let bytes = fs::read(&layer).map_err(io("read", &layer))?;
    let digest: String = Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let images = [
        (BUSYBOX_IMAGE, "busybox.json", json!(["/bin/sh"])),
        (
            PAUSE_IMAGE,
            "pause.json",
            json!(["/bin/sleep", "2147483647"]),
        ),
    ];
    let mut index = Vec::new();
    for (name, file, command) in images {
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": command},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        });
        write(&parts.join(file), &config.to_string())?;
        index.push(json!({"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]}));
    }
    write(&parts.join("manifest.json"), &json!(index).to_string())
}

/// Returns the name of this machine's processor in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Archives what is in a folder, as files of root without the time at which they were made.
fn archive(folder: &Path, to: &Path) -> ToolsResult<()> {
    let entries = fs::read_dir(folder).map_err(io("read", folder))?;
    // Names in the index have no leading "./", so each entry is named.
    let names = entries.map(|entry| Ok(entry.map_err(io("read", folder))?.file_name()));
    let mut names = names.collect::<ToolsResult<Vec<_>>>()?;
    names.sort();
    let options = [
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
        "--sort=name",
    ];
    let mut tar = Command::new("tar");
    tar.args(options).arg("-C").arg(folder).arg("-cf").arg(to);
    run(tar.args(names))
}

fn write(path: &Path, text: &str) -> ToolsResult<()> {
    fs::write(path, text).map_err(io("write", path))
}
