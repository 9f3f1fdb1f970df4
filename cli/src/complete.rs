//! Completion of `kubectl muster`: kubectl runs `kubectl_complete-muster` with the words of the command line, the last
//! one as far as it is typed. It expects cobra's protocol: one candidate in each line, a description after a tab, and
//! in the last line a colon and a number that says what the shell is to do.
//!
//! What the command line takes is read from clap's commands. Names come from the server, within a short time: without
//! an answer there are no candidates, and never an error between the user's words.

mod names;

use crate::args::{Cli, CliCommand, KubectlConnection};
use anyhow::Result;
use clap::{Arg, ArgAction, Command, CommandFactory, Parser};
use names::NamesOf;
use std::fmt::Write as _;
use std::path::Path;

/// The program that kubectl looks for on the PATH.
const NAME: &str = "kubectl_complete-muster";

/// A script that is this program.
pub(crate) const PROGRAM: &str = "\
#!/bin/sh
# kubectl runs this to complete `kubectl muster`, if it is on the PATH as kubectl_complete-muster.
exec kubectl-muster __complete \"$@\"
";

/// The shell completes names of files.
const FILES: u8 = 0;
/// The shell adds nothing to the candidates.
const NO_FILES: u8 = 4;

/// Returns the command if this program was called by the name that kubectl looks for.
pub(crate) fn asked() -> Option<Cli> {
    let mut words = std::env::args();
    let program = words.next()?;
    let is_asked = Path::new(&program).file_stem()? == NAME;
    is_asked.then(|| Cli {
        connection: connection(&[]),
        command: CliCommand::Complete {
            words: words.collect(),
        },
    })
}

/// Returns the answer to kubectl. `unless` is the connection if the words name none.
pub(crate) async fn run(words: &[String], unless: &KubectlConnection) -> Result<String> {
    let cursor = Cursor::of(words);
    let connection = match cursor.flags.is_empty() {
        true => unless.clone(),
        false => connection(&cursor.flags),
    };
    let names = async |wanted| names::of(wanted, &connection).await;
    Ok(cursor.answer(names).await)
}

/// A candidate, and what it means.
type Completion = (String, String);

/// Where the cursor is.
struct Cursor {
    command: Command,
    /// The word as far as it is typed.
    word: String,
    /// What comes before the value in the same word: `--queue=`.
    before: String,
    /// The option whose value is typed.
    option: Option<Arg>,
    /// How many positional words are before it.
    position: usize,
    /// True after `--`.
    only_positional: bool,
    /// The flags of the connection, as words.
    flags: Vec<String>,
}

impl Cursor {
    fn of(words: &[String]) -> Self {
        let mut command = Cli::command();
        command.build();
        let (word, done) = words
            .split_last()
            .map_or(("", words), |(word, done)| (word.as_str(), done));
        let mut cursor = Self {
            command,
            word: word.to_owned(),
            before: String::new(),
            option: None,
            position: 0,
            only_positional: false,
            flags: Vec::new(),
        };
        for word in done {
            cursor.pass(word);
        }
        let typed = cursor.word.split_once('=');
        if let Some((flag, value)) =
            typed.filter(|_| cursor.option.is_none() && word.starts_with("--"))
        {
            cursor.option = option(&cursor.command, flag);
            cursor.before = format!("{flag}=");
            cursor.word = value.to_owned();
        }
        cursor
    }

    /// Goes past a word.
    fn pass(&mut self, word: &str) {
        if let Some(option) = self.option.take() {
            return self.note(&option, word);
        }
        if self.only_positional || !word.starts_with('-') || word == "-" {
            let inner = self
                .command
                .find_subcommand(word)
                .filter(|_| self.position == 0);
            match inner.cloned() {
                Some(inner) => self.command = inner,
                None => self.position += 1,
            }
        } else if word == "--" {
            self.only_positional = true;
        } else if let Some((flag, value)) = word.split_once('=') {
            if let Some(option) = option(&self.command, flag) {
                self.note(&option, value);
            }
        } else {
            self.option = option(&self.command, word);
            let long = word.strip_prefix("--");
            let mut arguments = self.command.get_arguments();
            let is_switch = |arg: &Arg| arg.is_global_set() && arg.get_long() == long;
            if long.is_some() && self.option.is_none() && arguments.any(is_switch) {
                self.flags.push(word.to_owned());
            }
        }
    }

    /// Remembers a flag of the connection.
    fn note(&mut self, option: &Arg, value: &str) {
        if let Some(name) = option.get_long().filter(|_| option.is_global_set()) {
            self.flags.push(format!("--{name}={value}"));
        }
    }

    /// Returns the lines for kubectl; `names` returns the names of objects.
    async fn answer(&self, names: impl AsyncFn(NamesOf) -> Vec<Completion>) -> String {
        let mut shell = NO_FILES;
        let mut candidates = Vec::new();
        if let Some(option) = &self.option {
            candidates = self.values(option, &mut shell, &names).await;
        } else if self.word.starts_with('-') && !self.only_positional {
            candidates = flags(&self.command);
        } else {
            if self.position == 0 {
                candidates = inner(&self.command);
            }
            if let Some(argument) = self.argument() {
                candidates.extend(self.values(argument, &mut shell, &names).await);
            }
        }
        let mut text = String::new();
        for (value, about) in candidates {
            if !value.starts_with(&self.word) {
                continue;
            }
            // Writing to a string cannot fail.
            let _ = match about.is_empty() {
                true => writeln!(text, "{}{value}", self.before),
                false => writeln!(text, "{}{value}\t{about}", self.before),
            };
        }
        let _ = writeln!(text, ":{shell}");
        text
    }

    /// Returns the positional argument under the cursor; the last one may be repeated.
    fn argument(&self) -> Option<&Arg> {
        let arguments: Vec<&Arg> = self.command.get_positionals().collect();
        let repeats = |arg: &&&Arg| {
            let most = arg.get_num_args().map_or(1, |range| range.max_values());
            most > 1 || matches!(arg.get_action(), ArgAction::Append)
        };
        let here = arguments.get(self.position);
        here.or_else(|| arguments.last().filter(repeats)).copied()
    }

    /// Returns a value that may be typed in any case as it was begun: shells compare candidates with that.
    fn in_case(&self, argument: &Arg, name: String) -> String {
        let begun = name.get(..self.word.len());
        let is_begun = begun.is_some_and(|begun| begun.eq_ignore_ascii_case(&self.word));
        match argument.is_ignore_case_set() && is_begun {
            true => self.word.clone() + &name[self.word.len()..],
            false => name,
        }
    }

    /// Returns the values that an argument can have.
    async fn values(
        &self,
        argument: &Arg,
        shell: &mut u8,
        names: &impl AsyncFn(NamesOf) -> Vec<Completion>,
    ) -> Vec<Completion> {
        let possible = argument.get_possible_values();
        if !possible.is_empty() {
            let shown = possible.iter().filter(|value| !value.is_hide_set());
            let named = shown.map(|value| {
                let name = value.get_name().to_owned();
                (self.in_case(argument, name), first_line(value.get_help()))
            });
            return named.collect();
        }
        let mut candidates = Vec::new();
        for kind in argument.get_value_names().unwrap_or_default() {
            if matches!(kind.as_str(), "FILE" | "PATH") {
                *shell = FILES;
            }
            let avoided = self.command.get_name() == "clear";
            if let Some(wanted) = NamesOf::of(kind, &self.word, avoided) {
                candidates.extend(names(wanted).await);
            }
        }
        candidates
    }
}

/// Returns the option of a word that takes a value.
fn option(command: &Command, word: &str) -> Option<Arg> {
    let is_it = |arg: &&Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg
            .get_short()
            .is_some_and(|short| word == format!("-{short}")),
    };
    let mut options = command.get_opts();
    options
        .find(|arg| is_it(arg) && arg.get_action().takes_values())
        .cloned()
}

fn inner(command: &Command) -> Vec<Completion> {
    let inner = command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set());
    inner
        .map(|inner| (inner.get_name().to_owned(), first_line(inner.get_about())))
        .collect()
}

fn flags(command: &Command) -> Vec<Completion> {
    let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let named = flags
        .filter_map(|arg| Some((format!("--{}", arg.get_long()?), first_line(arg.get_help()))));
    named.collect()
}

fn first_line(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// Returns the connection that flags ask for; what is wrong in them is said when the command runs.
fn connection(flags: &[String]) -> KubectlConnection {
    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        connection: KubectlConnection,
    }
    let words = |flags: &[String]| {
        let program = std::iter::once(NAME.to_owned());
        Only::try_parse_from(program.chain(flags.iter().cloned()))
    };
    let parsed = words(flags).or_else(|_| words(&[]));
    parsed.map_or_else(|_| KubectlConnection::default(), |only| only.connection)
}

#[cfg(test)]
mod tests;
