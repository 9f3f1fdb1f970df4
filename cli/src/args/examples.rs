//! The examples of the help: those of the reference, so that each is in one place and tested there.

use clap::Command;

/// The page that has a section for each command.
const PAGE: &str = include_str!("../../../docs/reference/cli.md");

/// Returns the command with examples in the help of each command below it.
pub(crate) fn with_examples(command: Command) -> Command {
    let name = command
        .get_bin_name()
        .unwrap_or(command.get_name())
        .to_owned();
    add(command, &name)
}

fn add(command: Command, verb: &str) -> Command {
    let examples = of(verb);
    let command = match examples.is_empty() {
        true => command,
        false => command.after_help(format!("Examples:\n  {}", examples.join("\n  "))),
    };
    command.mut_subcommands(|inner| {
        let verb = format!("{verb} {}", inner.get_name());
        add(inner, &verb)
    })
}

/// Returns the command lines of a command in its section of the page.
pub(crate) fn of(verb: &str) -> Vec<&'static str> {
    let heading = format!("\n## `{verb}`\n");
    let section = PAGE.split_once(&heading).map_or("", |(_, section)| section);
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter_map(|line| line.strip_prefix("$ "));
    lines.filter(|line| line.starts_with(verb)).collect()
}
