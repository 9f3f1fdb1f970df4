//! Checks of the documents: each `kubectl muster` command is one that this program takes, and each link leads
//! somewhere (`links.rs`).

#![allow(clippy::unwrap_used)]

use crate::args::Cli;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use std::path::{Path, PathBuf};

mod links;

const PLUGIN: &str = "kubectl muster ";

/// Returns the Markdown files below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let pages = paths.flat_map(|path| match path.is_dir() {
        true => pages(&path),
        false => vec![path],
    });
    pages
        .filter(|path| path.extension().is_some_and(|of| of == "md"))
        .collect()
}

/// Returns the folder of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Returns the Markdown files of the repository that people read.
fn documents() -> Vec<PathBuf> {
    let folders = ["docs", "deploy", "examples"].iter();
    let mut files: Vec<PathBuf> = folders
        .flat_map(|folder| pages(&root().join(folder)))
        .collect();
    let entries = std::fs::read_dir(root()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    files.extend(paths.filter(|path| path.extension().is_some_and(|of| of == "md")));
    files
}

/// Returns the command lines in a text: from `kubectl muster` to the end of the code.
fn commands(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let lines = text.lines().flat_map(|line| {
        let starts = line.match_indices(PLUGIN);
        starts.map(|(at, _)| line[at..].to_owned())
    });
    let code = lines.map(|line| {
        let end = line.find(['`', '#', '|', '>', '<', ';', ')', '…']);
        line[..end.unwrap_or(line.len())].trim_end().to_owned()
    });
    code.filter(|line| line.len() > PLUGIN.len()).collect()
}

/// Returns the error of a command line. Help is none, and a text may name a verb without its arguments.
fn refusal(line: &str) -> Option<String> {
    let words = line["kubectl ".len()..].split_whitespace();
    let error = Cli::try_parse_from(words).err()?;
    let named = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    (error.use_stderr() && !named.contains(&error.kind())).then(|| error.to_string())
}

#[test]
fn each_command_in_the_documents_is_taken() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for file in &documents() {
        for line in commands(&std::fs::read_to_string(file).unwrap()) {
            seen += 1;
            let why = refusal(&line);
            wrong.extend(why.map(|why| format!("{}: {line}: {why}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 30, "only {seen} commands were found");
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    assert!(refusal("kubectl muster jobs -A").is_none());
    assert!(refusal("kubectl muster jobs --nothing").is_some());
    assert!(refusal("kubectl muster nothing").is_some());
    let text = "run `kubectl muster jobs` or\n$ kubectl muster hold \\\n  x  # hold it\n";
    assert_eq!(
        commands(text),
        ["kubectl muster jobs", "kubectl muster hold    x"]
    );
    Cli::command().debug_assert();
}
