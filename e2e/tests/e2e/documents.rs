//! The commands in the documents: every one is read by the program that it names, and guides run as they are written.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context as _, ensure};
use e2e::harness::muster;
use testbed::tools::{self, Tool, Toolset};

/// The repository's root.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The programs whose commands are read.
const PROGRAMS: [&str; 4] = ["kubectl", "helm", "muster", "make"];
/// A program that notes its name and its arguments, and reads what is piped into it.
const RECORDER: &str = r#"#!/bin/sh
printf '%s\0' "${0##*/}" "$@" >> "$RECORD"
printf '\n' >> "$RECORD"
"#;

/// A document, with a folder in which its commands run as in the repository.
pub(crate) struct Guide {
    text: String,
    dir: tempfile::TempDir,
    env: Vec<(&'static str, String)>,
}

/// A block of a document between fences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Block {
    /// Commands of a shell.
    Commands(String),
    /// What they print, or a file.
    Output(String),
}

impl Guide {
    /// Returns a document whose commands find `programs` and have the variables `env`.
    pub(crate) fn of(
        document: &str,
        programs: &[(&str, PathBuf)],
        env: impl IntoIterator<Item = (&'static str, String)>,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin)?;
        for (name, program) in programs {
            symlink(program, bin.join(name))?;
        }
        for folder in ["deploy", "examples"] {
            symlink(Path::new(ROOT).join(folder), dir.path().join(folder))?;
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let own = [
            ("PATH", format!("{}:{path}", bin.display())),
            ("HOME", dir.path().display().to_string()),
        ];
        Ok(Self {
            text: std::fs::read_to_string(Path::new(ROOT).join(document))?,
            dir,
            env: own.into_iter().chain(env).collect(),
        })
    }

    /// Returns the folder in which its commands run.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the document with other words in its commands.
    pub(crate) fn with_words_replaced(mut self, words: &str, others: &str) -> Self {
        self.text = self.text.replace(words, others);
        self
    }

    /// Returns the blocks of a section.
    pub(crate) fn blocks(&self, section: &str) -> anyhow::Result<Vec<Block>> {
        let begin = format!("\n## {section}\n");
        let (_, rest) = self
            .text
            .split_once(&begin)
            .with_context(|| format!("no {begin:?}"))?;
        Ok(blocks(rest.split("\n## ").next().unwrap_or_default()))
    }

    /// Runs the commands of a section.
    pub(crate) async fn run(&self, section: &str) -> anyhow::Result<()> {
        for block in self.blocks(section)? {
            let (Block::Commands(script) | Block::Output(script)) = block;
            self.shell(&script).await?;
        }
        Ok(())
    }

    /// Runs a script, and returns what it prints.
    pub(crate) async fn shell(&self, script: &str) -> anyhow::Result<String> {
        let mut bash = tokio::process::Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", script])
            .kill_on_drop(true);
        bash.current_dir(self.folder())
            .env_clear()
            .envs(self.env.iter().cloned());
        let output = bash.output().await.context("run bash")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{script}\n{said}{errors}");
        Ok(said)
    }
}

/// Returns the blocks of a text between fences.
fn blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut open) = (Vec::new(), None::<String>);
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        match (&mut open, fence) {
            (None, true) => open = Some(String::new()),
            (Some(_), true) => blocks.extend(open.take().map(block)),
            (Some(block), false) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, false) => {}
        }
    }
    blocks
}

/// A block that begins with a word of the shell, or a prompt.
fn block(text: String) -> Block {
    let first = text.split_whitespace().next().unwrap_or_default();
    let shell = ["for", "export", "sed", "$", "mkdir", "git", "cargo"];
    match PROGRAMS.contains(&first) || shell.contains(&first) {
        true => Block::Commands(text),
        false => Block::Output(text),
    }
}

/// Returns the lines of a text between fences that run one of the programs.
fn command_lines(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let blocks = blocks(&text).into_iter();
    let lines = blocks.flat_map(|block| {
        let (Block::Commands(text) | Block::Output(text)) = block;
        let lines = text.lines().map(|line| line.trim().to_owned());
        lines.collect::<Vec<_>>()
    });
    let lines = lines.map(|line| line.strip_prefix("$ ").unwrap_or(&line).to_owned());
    let runs = |line: &String| {
        // The plugin's commands are read in cli/src/documented.rs.
        if line.starts_with("kubectl muster") {
            return false;
        }
        let first = line.split_whitespace().next().unwrap_or_default();
        let piped = PROGRAMS
            .iter()
            .any(|program| line.contains(&format!("| {program} ")));
        PROGRAMS.contains(&first) || piped
    };
    lines.filter(runs).collect()
}

/// Returns the Markdown files that have commands for readers.
fn documents() -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => below(&path, found),
                false if path.extension().is_some_and(|of| of == "md") => found.push(path),
                false => {}
            }
        }
    }
    let root = Path::new(ROOT);
    let at_root = [
        "README.md",
        "CONTRIBUTING.md",
        "RELEASING.md",
        "SECURITY.md",
    ];
    let mut found: Vec<PathBuf> = at_root.iter().map(|name| root.join(name)).collect();
    for folder in ["docs", "deploy", "examples"] {
        below(&root.join(folder), &mut found);
    }
    found.sort();
    found
}

/// Runs a line with recorders in place of the programs, and returns what these were asked for.
fn asked_for(line: &str, recorders: &Path) -> anyhow::Result<Vec<Vec<String>>> {
    let dir = tempfile::tempdir()?;
    let record = dir.path().join("record");
    let path = std::env::var("PATH").unwrap_or_default();
    for folder in ["deploy", "examples"] {
        symlink(Path::new(ROOT).join(folder), dir.path().join(folder))?;
    }
    // What comes after the programs in a pipe has nothing to read, and may fail.
    Command::new("bash")
        .args(["-c", line])
        .current_dir(dir.path())
        .env("PATH", format!("{}:{path}", recorders.display()))
        .env("RECORD", &record)
        .env("KARMADA", "karmada.kubeconfig")
        .env("HOME", dir.path())
        .stdin(Stdio::null())
        .output()?;
    let text = std::fs::read_to_string(&record).unwrap_or_default();
    let calls = text.lines().map(|call| {
        let words = call.split_terminator('\0').map(str::to_owned);
        words.collect::<Vec<_>>()
    });
    Ok(calls.collect())
}

/// Returns what is wrong with a command, if anything.
fn refusal(call: &[String], programs: &Programs) -> Option<String> {
    let (name, arguments) = call.split_first()?;
    let files = arguments.iter().filter(|argument| {
        argument.ends_with(".yaml") && argument.contains('/') && !argument.starts_with('/')
    });
    for file in files {
        if !Path::new(ROOT).join(file).exists() {
            return Some(format!("there is no {file}"));
        }
    }
    let program = match name.as_str() {
        "kubectl" => &programs.kubectl,
        "helm" => &programs.helm,
        "muster" => &programs.muster,
        _ => {
            let known = |target: &&String| {
                target.contains('=') || programs.makefile.contains(&format!("\n{target}:"))
            };
            let unknown = arguments.iter().find(|target| !known(target));
            return unknown.map(|target| format!("there is no target {target}"));
        }
    };
    // What follows `--` is another program's. With the flag, the others read all flags and do nothing.
    let own = arguments.iter().position(|argument| argument == "--");
    let (own, others) = arguments.split_at(own.unwrap_or(arguments.len()));
    let help = Command::new(program)
        .args(own)
        .arg("--help")
        .args(others)
        .output();
    match help {
        Err(error) => Some(error.to_string()),
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// What the documents' commands are read by.
struct Programs {
    kubectl: PathBuf,
    helm: PathBuf,
    muster: PathBuf,
    makefile: String,
}

impl Programs {
    fn find() -> anyhow::Result<Self> {
        let sets = [Toolset::Packaging, Toolset::Kubernetes];
        let tools = tools::ensure(&sets, &|line| eprintln!("{line}"))?;
        Ok(Self {
            kubectl: tools.program(Tool::Kubectl)?,
            helm: tools.program(Tool::Helm)?,
            muster: muster::program()?,
            makefile: std::fs::read_to_string(Path::new(ROOT).join("Makefile"))?,
        })
    }
}

#[test]
fn each_command_in_the_documents_is_one_that_its_program_takes() -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let recorders = tempfile::tempdir()?;
    for name in PROGRAMS {
        let path = recorders.path().join(name);
        std::fs::write(&path, RECORDER)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    }
    let mut lines = BTreeSet::new();
    for document in documents() {
        lines.extend(command_lines(&std::fs::read_to_string(document)?));
    }
    ensure!(lines.len() > 60, "only {} commands", lines.len());
    let (left, wrong) = (Mutex::new(lines), Mutex::new(Vec::new()));
    let work = || -> anyhow::Result<()> {
        while let Some(line) = { left.lock().unwrap().pop_first() } {
            let calls = asked_for(&line, recorders.path())?;
            let mut found: Vec<String> = calls
                .iter()
                .filter_map(|call| refusal(call, &programs))
                .collect();
            if calls.is_empty() {
                found.push("it runs nothing".to_owned());
            }
            let found = found.into_iter().map(|why| format!("{line}: {why}"));
            wrong.lock().unwrap().extend(found);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap())
    })?;
    let wrong = wrong.into_inner().unwrap();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_command_that_its_program_refuses_is_found() -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let refused = |line: &str| {
        let call: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        refusal(&call, &programs)
    };
    for line in [
        "kubectl get pods -n team --show-labels",
        "kubectl create job hello --image=busybox -- sleep 60",
        "kubectl apply -f examples/batch-job.yaml",
        "helm install muster deploy/chart/muster --values values.yaml",
        "muster --kubeconfig FILE install --tenancy open",
        "make demo KEEP=1",
    ] {
        ensure!(refused(line).is_none(), "{line}: {:?}", refused(line));
    }
    for line in [
        "kubectl get pods --nothing",
        "kubectl nothing",
        "kubectl apply -f examples/nothing.yaml",
        "helm install muster deploy/chart/muster --nothing",
        "helm nothing",
        "muster install --nothing",
        "muster nothing",
        "make nothing",
    ] {
        ensure!(refused(line).is_some(), "{line} is taken");
    }
    let text = "text\n```\n$ kubectl get \\\n  pods  # all\nNAME\nsed x y | kubectl apply -f -\n```\nkubectl x\n";
    let wanted = ["kubectl get    pods  # all", "sed x y | kubectl apply -f -"];
    ensure!(command_lines(text) == wanted, "{:?}", command_lines(text));
    Ok(())
}

/// The modules whose versions the README names, with their names there, and the set that builds each.
const VERSIONS: [(&str, &str, &str); 8] = [
    ("Karmada", "karmada", "github.com/karmada-io/karmada"),
    ("Kubernetes", "kubernetes", "k8s.io/kubernetes"),
    ("Volcano", "volcano", "volcano.sh/volcano"),
    (
        "training-operator",
        "training-operator",
        "github.com/kubeflow/training-operator",
    ),
    (
        "MPI operator",
        "mpi-operator",
        "github.com/kubeflow/mpi-operator",
    ),
    ("JobSet", "jobset", "sigs.k8s.io/jobset"),
    (
        "KubeRay",
        "kuberay",
        "github.com/ray-project/kuberay/ray-operator",
    ),
    ("LeaderWorkerSet", "lws", "sigs.k8s.io/lws"),
];

#[test]
fn the_readme_names_the_versions_of_the_tests_and_all_kinds() -> anyhow::Result<()> {
    let root = Path::new(ROOT);
    let readme = std::fs::read_to_string(root.join("README.md"))?;
    let words = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, set, module) in VERSIONS {
        let path = root.join(format!("testbed/tools/{set}/go.mod"));
        let text = std::fs::read_to_string(path)?;
        let (_, rest) = text
            .split_once(&format!("{module} v"))
            .with_context(|| format!("no {module}"))?;
        let version: Vec<&str> = rest.split('.').take(2).collect();
        let named = format!("{name} {}", version.join("."));
        ensure!(words.contains(&named), "README.md does not say {named}");
    }
    for entry in std::fs::read_dir(root.join("deploy"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("interpreter-") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let (_, target) = text.split_once("target:").context("no target")?;
        let kind = target
            .lines()
            .find_map(|line| line.trim().strip_prefix("kind: "))
            .context("no kind")?;
        ensure!(words.contains(kind), "README.md does not name {kind}");
    }
    Ok(())
}
