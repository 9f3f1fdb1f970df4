#![allow(clippy::unwrap_used)]
use super::*;

/// Returns the answer for a command line whose last word ends at `|`, with names of each kind that say which they are.
async fn answer(line: &str) -> String {
    let line = line.strip_suffix('|').unwrap();
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let cursor = Cursor::of(&words);
    let names = async |wanted: NamesOf| {
        let (names, about): (&[&str], &str) = match &wanted {
            NamesOf::Jobs => (&["train", "tune", "job.batch/train"], "Queued"),
            NamesOf::Queues => (&["vision", "night"], ""),
            NamesOf::PriorityClasses => (&["high"], ""),
            NamesOf::Namespaces => (&["team-a"], ""),
            NamesOf::Clusters => (&["gpu-a", "gpu-b"], ""),
            NamesOf::Nodes(cluster) if cluster == "gpu-a" => (&["gpu-a/n1", "gpu-a/n2"], ""),
            NamesOf::Nodes(_) => (&[], ""),
            NamesOf::AvoidedNodes => (&["gpu-b/n7"], "3 jobs failed there"),
        };
        let named = names
            .iter()
            .map(|name| ((*name).to_owned(), about.to_owned()));
        named.collect()
    };
    cursor.answer(names).await
}

#[tokio::test]
async fn commands_and_flags_are_completed_with_what_they_do() {
    insta::assert_snapshot!(answer("expl|").await, @r"
    explain	Show why a job waits, what would help, and when it may start
    :4
    ");
    insta::assert_snapshot!(answer("queue re|").await, @r"
    resume	Resume a queue that was stopped
    :4
    ");
    insta::assert_snapshot!(answer("pools --f|").await, @r"
    --fits	Only pools with room now for so many pods of so many devices each: 2x8
    :4
    ");
    let all = answer("|").await;
    assert!(all.starts_with("run\t") && all.ends_with("\n:4\n"), "{all}");
    assert!(!all.contains("__complete"), "{all}");
    // Flags of the connection are taken everywhere.
    assert!(answer("queue list --kube|").await.contains("--kubeconfig"));
}

#[tokio::test]
async fn names_are_those_of_the_server() {
    for (line, wanted) in [
        ("explain tr|", "train\tQueued\n:4\n"),
        ("explain job|", "job.batch/train\tQueued\n:4\n"),
        ("hold train tu|", "tune\tQueued\n:4\n"),
        ("queue get |", "vision\nnight\n:4\n"),
        ("move train n|", "night\n:4\n"),
        ("priority train h|", "high\n:4\n"),
        ("jobs --queue v|", "vision\n:4\n"),
        ("jobs --queue=v|", "--queue=vision\n:4\n"),
        ("jobs -n |", "team-a\n:4\n"),
        ("drain g|", "gpu-a\ngpu-b\n:4\n"),
        ("drain gpu-a/|", "gpu-a/n1\ngpu-a/n2\n:4\n"),
        ("nodes clear |", "gpu-b/n7\t3 jobs failed there\n:4\n"),
        ("simulate --without-node gpu-a/n1|", "gpu-a/n1\n:4\n"),
        ("--context there explain tr|", "train\tQueued\n:4\n"),
        ("explain -- tr|", "train\tQueued\n:4\n"),
        // One job is named at most.
        ("explain train |", ":4\n"),
        ("pools --fits |", ":4\n"),
        ("nothing of this |", ":4\n"),
        // The shell knows the files.
        ("simulate --job |", ":0\n"),
        ("--kubeconfig |", ":0\n"),
    ] {
        assert_eq!(answer(line).await, wanted, "{line}");
    }
    let states = answer("jobs --status ru|").await;
    assert!(
        states.starts_with("running\t") && states.ends_with("\n:4\n"),
        "{states}"
    );
    let formats = answer("jobs -o w|").await;
    assert_eq!(formats, "wide\tA table with more columns\n:4\n");
}

#[tokio::test]
async fn the_connection_of_the_command_line_is_used() {
    let words = [
        "-n",
        "team-a",
        "--as=user",
        "--context",
        "there",
        "--insecure-skip-tls-verify",
        "explain",
        "",
    ];
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let cursor = Cursor::of(&words);
    let connection = connection(&cursor.flags);
    assert_eq!(connection.namespace.as_deref(), Some("team-a"));
    assert_eq!(connection.impersonate.as_deref(), Some("user"));
    assert_eq!(connection.context.as_deref(), Some("there"));
    assert!(connection.insecure_skip_tls_verify);
    // A server that does not answer has no names, and there is no error.
    let words = ["--kubeconfig", "/nowhere", "explain", ""].map(str::to_owned);
    let unless = KubectlConnection::default();
    assert_eq!(run(&words, &unless).await.unwrap(), ":4\n");
    assert!(PROGRAM.contains("exec kubectl-muster __complete \"$@\"\n"));
}
