//! The container image: what the assembler makes of a binary, and the image of `make image`.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use e2e::harness::muster;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use testbed::tools::{self, Tool, Toolset};

/// The repository's root.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// An image is as large as its binaries, compressed.
const MOST_BYTES: u64 = 128 << 20;
/// The architectures of the image, with the machine in the ELF header of each.
const MACHINES: [(&str, usize); 2] = [("amd64", 62), ("arm64", 183)];

/// An unpacked OCI image layout.
struct Layout {
    dir: tempfile::TempDir,
}

impl Layout {
    fn unpack(archive: &Path) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        untar(archive, dir.path())?;
        let version: Value = read_json(&dir.path().join("oci-layout"))?;
        ensure!(version["imageLayoutVersion"] == "1.0.0", "{version}");
        Ok(Self { dir })
    }

    /// Returns the path of a descriptor's blob, whose digest is right.
    fn blob(&self, descriptor: &Value) -> anyhow::Result<PathBuf> {
        let digest = descriptor["digest"].as_str().context("no digest")?;
        let hex = digest.strip_prefix("sha256:").context("no SHA-256")?;
        let path = self.dir.path().join("blobs/sha256").join(hex);
        let content = std::fs::read(&path)?;
        let found: String = Sha256::digest(&content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        ensure!(found == hex, "{} has the digest {found}", path.display());
        Ok(path)
    }

    /// Returns the manifests of its one image, by architecture, and the name of the image.
    fn manifests(&self) -> anyhow::Result<(String, BTreeMap<String, Value>)> {
        let top = read_json(&self.dir.path().join("index.json"))?;
        let image = &top["manifests"][0];
        let name = &image["annotations"]["io.containerd.image.name"];
        let index = read_json(&self.blob(image)?)?;
        let mut manifests = BTreeMap::new();
        for manifest in index["manifests"].as_array().context("no manifests")? {
            let arch = manifest["platform"]["architecture"].as_str();
            let arch = arch.context("no architecture")?.to_owned();
            manifests.insert(arch, read_json(&self.blob(manifest)?)?);
        }
        Ok((name.as_str().unwrap_or_default().to_owned(), manifests))
    }

    /// Checks one image, and returns the binary in it, unpacked.
    fn binary(&self, arch: &str, manifest: &Value) -> anyhow::Result<PathBuf> {
        let config = read_json(&self.blob(&manifest["config"])?)?;
        ensure!(config["architecture"] == arch, "{config}");
        ensure!(config["os"] == "linux", "{config}");
        ensure!(config["config"]["User"] == "65532:65532", "{config}");
        ensure!(
            config["config"]["Entrypoint"] == serde_json::json!(["/muster"]),
            "{config}"
        );
        let layers = manifest["layers"].as_array().context("no layers")?;
        ensure!(layers.len() == 1, "{manifest}");
        let root = self.dir.path().join(arch);
        std::fs::create_dir(&root)?;
        untar(&self.blob(&layers[0])?, &root)?;
        let files: Vec<_> = std::fs::read_dir(&root)?.collect::<Result<_, _>>()?;
        ensure!(files.len() == 1, "{files:?}");
        let binary = root.join("muster");
        let mode = std::fs::metadata(&binary)?.permissions().mode();
        ensure!(mode & 0o777 == 0o555, "{mode:o}");
        Ok(binary)
    }
}

fn untar(archive: &Path, dir: &Path) -> anyhow::Result<()> {
    let mut tar = Command::new("tar");
    let status = tar.arg("-xf").arg(archive).arg("-C").arg(dir).status()?;
    ensure!(status.success(), "tar: {status}");
    Ok(())
}

fn read_json(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_slice(&text)?)
}

/// Runs the unpacked program, which has nothing beside it.
fn says_its_version(binary: &Path) -> anyhow::Result<()> {
    let output = Command::new(binary).arg("--version").env_clear().output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let wanted = format!("muster {}", env!("CARGO_PKG_VERSION"));
    ensure!(said.trim() == wanted, "{said:?}, not {wanted:?}");
    Ok(())
}

/// Returns true if an ELF program of 64 bits for this machine names no interpreter: it is static.
fn is_static(binary: &Path, machine: usize) -> anyhow::Result<bool> {
    const INTERPRETER: u32 = 3;
    let bytes = std::fs::read(binary)?;
    ensure!(bytes.starts_with(b"\x7fELF\x02\x01"), "no ELF of 64 bits");
    let short = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let found = short(0x12);
    ensure!(found == machine, "for machine {found}, not {machine}");
    let headers = usize::try_from(u64::from_le_bytes(bytes[0x20..0x28].try_into()?))?;
    let (size, count) = (short(0x36), short(0x38));
    for index in 0..count {
        let at = headers + index * size;
        let field = bytes.get(at..at + 4).context("a short file")?;
        if u32::from_le_bytes(field.try_into()?) == INTERPRETER {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares the instructions of `deploy/Dockerfile` with the configuration of the image that was made without it.
/// There is no container engine here that could run them, so it has no others than those that are compared.
fn dockerfile_makes_the_same(config: &Value) -> anyhow::Result<()> {
    let read = |name: &str| std::fs::read_to_string(Path::new(ROOT).join(name));
    let text = read("deploy/Dockerfile")?;
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let instructions = lines.map(|line| line.split_once(' ').unwrap_or((line, "")));
    let instructions: Vec<_> = instructions.collect();
    let [
        ("FROM", "scratch"),
        ("ARG", "TARGETARCH"),
        ("COPY", copied),
        ("USER", user),
        ("WORKDIR", folder),
        ("ENTRYPOINT", entrypoint),
    ] = instructions[..]
    else {
        anyhow::bail!("{instructions:?}");
    };
    let entrypoint: Value = serde_json::from_str(entrypoint)?;
    let path = entrypoint[0]
        .as_str()
        .context("an entrypoint without a program")?;
    let source = "target/image/${TARGETARCH}/muster";
    ensure!(copied == format!("{source} {path}"), "COPY {copied}");
    ensure!(
        config["User"] == user && config["Entrypoint"] == entrypoint,
        "{config}"
    );
    let runs_in = config["WorkingDir"]
        .as_str()
        .filter(|folder| !folder.is_empty());
    ensure!(runs_in.unwrap_or("/") == folder, "{config}");
    // The context has the binary where the script puts it.
    let ignored = read("deploy/Dockerfile.dockerignore")?;
    let wanted = format!("*\n!{}\n", source.replace("${TARGETARCH}", "*"));
    ensure!(ignored == wanted, "{ignored}");
    let script = read("deploy/build-image")?;
    let puts = ["out=target/image\n", "\"$out/$arch/muster\""];
    ensure!(
        puts.iter().all(|part| script.contains(part)),
        "deploy/build-image"
    );
    Ok(())
}

#[test]
fn the_assembler_makes_an_image_of_a_binary_and_nothing_else() -> anyhow::Result<()> {
    let tools = tools::ensure(&[Toolset::Packaging], &|line| eprintln!("{line}"))?;
    let dir = tempfile::tempdir()?;
    let assemble = |out: &str| -> anyhow::Result<Vec<u8>> {
        let out = dir.path().join(out);
        let output = Command::new(tools.program(Tool::ImageAssembler)?)
            .arg(format!("--binary=amd64={}", muster::program()?.display()))
            .arg("--name=registry.example:5000/team/muster:v1")
            .arg(format!("--out={}", out.display()))
            .output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{error}");
        Ok(std::fs::read(out)?)
    };
    let first = assemble("first.tar")?;
    ensure!(
        first == assemble("second.tar")?,
        "the same binary makes two images"
    );
    let layout = Layout::unpack(&dir.path().join("first.tar"))?;
    let (name, manifests) = layout.manifests()?;
    ensure!(name == "registry.example:5000/team/muster:v1", "{name}");
    ensure!(manifests.len() == 1, "{:?}", manifests.keys());
    says_its_version(&layout.binary("amd64", &manifests["amd64"])?)?;
    let config = read_json(&layout.blob(&manifests["amd64"]["config"])?)?;
    dockerfile_makes_the_same(&config["config"])
}

#[test]
#[ignore = "soak: two release builds"]
fn make_image_makes_a_static_binary() -> anyhow::Result<()> {
    let made = Command::new("make")
        .args(["image", "ARCHS=amd64 arm64"])
        .current_dir(ROOT)
        .status()?;
    ensure!(made.success(), "make image: {made}");
    let archive = Path::new(ROOT).join("target/image/muster.tar");
    let size = std::fs::metadata(&archive)?.len();
    ensure!(size < MOST_BYTES, "the image has {size} bytes");
    let layout = Layout::unpack(&archive)?;
    let (name, manifests) = layout.manifests()?;
    ensure!(
        name == format!("muster:{}", env!("CARGO_PKG_VERSION")),
        "{name}"
    );
    let archs = MACHINES.map(|(arch, _)| arch);
    ensure!(manifests.keys().eq(archs), "{:?}", manifests.keys());
    for (arch, machine) in MACHINES {
        let binary = layout.binary(arch, &manifests[arch])?;
        ensure!(is_static(&binary, machine)?, "{arch} is not static");
    }
    // Only this host's runs here.
    says_its_version(&layout.dir.path().join("amd64/muster"))
}
