#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use clap::CommandFactory;

#[test]
fn the_flags_do_not_contradict_each_other() {
    Cli::command().debug_assert();
}

fn parse(line: &str) -> Result<CliCommand, clap::Error> {
    let words = std::iter::once(PROGRAM).chain(line.split_whitespace());
    Ok(Cli::try_parse_from(words)?.command)
}

#[test]
fn the_last_word_is_the_target_wherever_the_flags_stand() {
    let cases: [(&str, &[&str], &str); 5] = [
        ("move train -n vision night", &["train"], "night"),
        ("move job/a --yes pod/b night", &["job/a", "pod/b"], "night"),
        ("move -l team=a night", &[], "night"),
        ("move night -l team=a", &[], "night"),
        (
            "move --queue day --status queued,running night",
            &[],
            "night",
        ),
    ];
    for (line, jobs, target) in cases {
        let CliCommand::Move(command) = parse(line).unwrap() else {
            panic!("{line}");
        };
        let (named, queue) = command.split();
        assert_eq!(named.jobs, jobs, "{line}");
        assert_eq!(queue, target, "{line}");
        named.check().unwrap();
    }
    for line in ["move night", "move train night --queue day"] {
        let CliCommand::Move(command) = parse(line).unwrap() else {
            panic!("{line}");
        };
        command.split().0.check().unwrap_err();
    }
}

#[test]
fn wrong_values_are_wrong_usage() {
    for line in [
        "move",
        "jobs --status Sleeping",
        "jobs -o html",
        "pools --fits 8",
        "hold train --dry-run=maybe",
        "queue stop",
        "queue stop vision --drain=no",
        "nodes clear m1/n1 --all",
    ] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

/// Returns all commands without commands of their own, by the words that call them.
fn verbs(command: &clap::Command, words: &str) -> Vec<(String, clap::Command)> {
    let inner = command
        .get_subcommands()
        .filter(|inner| inner.get_name() != "help" && !inner.is_hide_set());
    let inner: Vec<_> = inner
        .flat_map(|inner| verbs(inner, &format!("{words} {}", inner.get_name())))
        .collect();
    match inner.is_empty() {
        true => vec![(words.to_owned(), command.clone())],
        false => inner,
    }
}

#[test]
fn the_reference_has_every_command_with_its_flags_and_an_example() {
    let page = include_str!("../../../docs/reference/cli.md");
    for (verb, command) in verbs(&Cli::command(), "kubectl muster") {
        let heading = format!("\n## `{verb}`\n");
        let (_, section) = page
            .split_once(&heading)
            .unwrap_or_else(|| panic!("no section {verb}"));
        let section = section.split("\n## ").next().unwrap_or_default();
        let examples = examples::of(&verb);
        assert!(
            examples.len() >= 3,
            "{verb} needs three examples: {examples:?}"
        );
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            let shared = flag == "help" || flag == "output";
            assert!(
                shared || section.contains(&format!("`--{flag}")),
                "{verb} --{flag} is not described"
            );
        }
    }
    for flag in Cli::command()
        .get_arguments()
        .filter_map(clap::Arg::get_long)
    {
        assert!(
            page.contains(&format!("`--{flag}")),
            "--{flag} is not described"
        );
    }
}

#[test]
fn the_help_has_the_examples_of_the_reference() {
    let mut all = with_examples(Cli::command());
    all.build();
    let queue = all.find_subcommand_mut("queue").unwrap();
    let stop = queue.find_subcommand_mut("stop").unwrap();
    let help = stop.render_help().to_string();
    assert!(
        help.contains("Examples:\n  kubectl muster queue stop vision\n"),
        "{help}"
    );
    let jobs = all
        .find_subcommand_mut("jobs")
        .unwrap()
        .render_help()
        .to_string();
    let connection = jobs.find("Connection, as for kubectl:").unwrap();
    assert!(jobs.find("--mine").unwrap() < connection, "{jobs}");
    assert!(
        jobs.find("--request-timeout").unwrap() > connection,
        "{jobs}"
    );
}
