#![allow(clippy::unwrap_used)]
use super::super::tests::{client, job, plane};
use super::*;
use crate::args::{JobFilter, ListArgs, OutputArgs};
use kube::api::ObjectList;
use serde_json::json;
use std::io;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

fn watched(command: &JobsCommand) -> Watched<'_> {
    let none = serde_json::from_str::<ObjectList<DynamicObject>>(
        r#"{"apiVersion": "v1", "kind": "List", "items": []}"#,
    );
    let listed = JobList {
        jobs: Vec::new(),
        head: none.unwrap(),
    };
    Watched::new(command, None, &listed)
}

fn queued(status: &str) -> ListedJob {
    job(
        "train",
        "batch/v1",
        "Job",
        "{queue: vision, minMember: 4}",
        status,
    )
}

#[tokio::test]
async fn a_line_is_printed_only_if_the_job_looks_different() {
    let command = JobsCommand {
        filter: JobFilter {
            queue: Some("vision".to_owned()),
            ..JobFilter::default()
        },
        list: ListArgs {
            watch: true,
            ..ListArgs::default()
        },
        ..JobsCommand::default()
    };
    let mut watched = watched(&command);
    let waits =
        queued("{phase: Pending, federation: {reason: BehindHead, position: 2, message: a}}");
    let same =
        queued("{phase: Pending, federation: {reason: BehindHead, position: 2, message: b}}");
    let next = queued("{phase: Pending, federation: {reason: NextInLine, position: 1}}");
    let moved = job(
        "train",
        "batch/v1",
        "Job",
        "{queue: night, minMember: 4}",
        "{phase: Pending}",
    );
    let other = job(
        "other",
        "batch/v1",
        "Job",
        "{queue: night}",
        "{phase: Pending}",
    );
    assert!(!watched.concerns(&other).await.unwrap());
    assert!(!watched.concerns(&moved).await.unwrap());
    assert!(watched.concerns(&waits).await.unwrap());
    let mut lines = watched.header();
    for (job, deleted) in [
        (&waits, false),
        (&same, false),
        (&next, false),
        (&moved, false),
        (&moved, true),
    ] {
        lines += &watched.change(job, deleted).unwrap();
        // A job that leaves the filter is shown as it leaves.
        assert!(watched.concerns(job).await.unwrap() != deleted);
    }
    // The age changes by itself.
    let lines: Vec<&str> = lines
        .lines()
        .map(|line| line.rsplit_once("  ").unwrap().0.trim_end())
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    NAME   QUEUE   USER   STATUS   REASON   POS   GPUS   PODS   CLUSTERS   RUNTIME
    train   vision   <none>   Queued   BehindHead   2     <none>   0/4    <none>     <none>
    train   vision   <none>   Queued   NextInLine   1     <none>   0/4    <none>     <none>
    train   night    <none>   Queued   <none>       <none>   <none>   0/4    <none>     <none>
    train   night    <none>   Deleted   <none>       <none>   <none>   0/4    <none>     <none>
    ");
}

/// Returns the next text that is not empty.
async fn next(texts: &mut UnboundedReceiver<String>) -> String {
    loop {
        let text = texts.recv().await.unwrap();
        if !text.is_empty() {
            return text;
        }
    }
}

#[tokio::test]
async fn changes_are_printed_also_if_the_server_forgets_its_history() {
    let api = plane();
    let client = client(&api);
    let command = JobsCommand {
        filter: JobFilter::default(),
        list: ListArgs {
            output: OutputArgs {
                format: Format::Name,
            },
            watch: true,
            no_headers: false,
        },
        ..JobsCommand::default()
    };
    let listed = list(&command.filter, &mut None, &client).await.unwrap();
    let (sender, mut texts) = unbounded_channel();
    let mut print = move |text: &str| {
        let sent = sender.send(text.to_owned());
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    };
    let change = |name: &str, reason: &str| {
        let path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups";
        let status = json!({"status": {"federation": {"reason": reason}}});
        api.merge(&format!("{path}/{name}"), &status);
    };
    let user = async {
        assert_eq!(
            next(&mut texts).await.lines().count(),
            6,
            "all of them first"
        );
        change("next-job", "NextInLine");
        assert_eq!(next(&mut texts).await, "job.batch/next\n");
        // A watch from a version that is forgotten is refused; the list has what was missed.
        api.cut_watches();
        change("tenth-job", "NextInLine");
        api.compact();
        assert_eq!(next(&mut texts).await, "job.batch/tenth\n");
        drop(texts);
        change("last-job", "NextInLine");
    };
    let (ended, ()) = tokio::join!(run(&command, listed, None, &client, &mut print), user);
    assert!(output::is_reader_gone(&ended.unwrap_err()));
}
