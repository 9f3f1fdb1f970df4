//! `explain`: shows why a job waits or what it does, from the status of its PodGroup.
//!
//! Muster gives advice by turns: a job far behind may have none yet. Then, or on demand, it is computed here, by the
//! same functions, if the user may read what the leader reads.

use crate::age;
use crate::args::{Format, JobFilter, KubectlConnection, OutputArgs};
use crate::jobs::{self, ListedJob, WaitParts};
use crate::output::{count_text, position_text};
use crate::{connect, live, output};
use anyhow::{Context, Result};
use controller::live::LiveState;
use crds::podgroup::{FederationStatus, StatusWord};
use engine::{Actor, JobKey, Reason, counted};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt};
use serde_json::json;
use std::fmt::Write;

/// The advice for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ShownAdvice {
    /// Its PodGroup has what there is.
    Published,
    /// It was computed now.
    Computed {
        evidence: Vec<String>,
        helps: Vec<String>,
    },
    /// There is none yet, and it could not be computed.
    Missing(String),
}

/// Runs the command and returns its output. `job` is the name of the workload, `KIND/NAME` if two kinds
/// have the same name, or the name of its PodGroup. `live` has advice computed even if there is some.
pub(crate) async fn run(
    job: &str,
    live: bool,
    output: &OutputArgs,
    connection: &KubectlConnection,
) -> Result<String> {
    let client = connect::connect(connection).await?;
    let listed = jobs::list(&JobFilter::default(), &mut None, &client).await?;
    let place = format!("namespace {:?}", client.default_namespace());
    let (mut chosen, errors) = jobs::choose(&listed.jobs, &[job.to_owned()], &place);
    if let Some(error) = errors.into_iter().next() {
        return Err(error);
    }
    let job = chosen.pop().context("no job is named")?;
    match output.format {
        Format::Name => Ok(format!(
            "podgroup.scheduling.volcano.sh/{}\n",
            job.object.name_any()
        )),
        Format::Json | Format::Yaml => {
            let advice = match job.status() == StatusWord::Queued && live {
                true => advice(job, &client, connection).await,
                false => ShownAdvice::Published,
            };
            output::machine(&with_advice(&job.object, advice), output.format)
        }
        Format::Table | Format::Wide => {
            let advice = match job.status() == StatusWord::Queued && (live || lacks_advice(job)) {
                true => advice(job, &client, connection).await,
                false => ShownAdvice::Published,
            };
            Ok(render(job, &advice, Timestamp::now()))
        }
    }
}

/// Returns the PodGroup with the advice that was computed, in the fields of what is published.
fn with_advice(object: &DynamicObject, advice: ShownAdvice) -> DynamicObject {
    let mut object = object.clone();
    match advice {
        ShownAdvice::Published => {}
        ShownAdvice::Computed { evidence, helps } => {
            let computed = json!({"federation": {"evidence": evidence, "helps": helps}});
            json_patch::merge(&mut object.data["status"], &computed);
        }
        ShownAdvice::Missing(why) => eprintln!("note: what would help is not known: {why}"),
    }
    object
}

/// Returns true if a job has not had its turn. The first of a queue has its advice at once.
fn lacks_advice(job: &ListedJob) -> bool {
    let federation = job.federation();
    federation.is_some_and(|federation| {
        let behind = federation.position.filter(|at| *at != 1);
        behind.is_some() && federation.helps.is_empty()
    })
}

/// Computes what would help a job.
async fn advice(job: &ListedJob, client: &Client, connection: &KubectlConnection) -> ShownAdvice {
    let timeout = connection.timeout_or_hour();
    let namespace = job.object.namespace().unwrap_or_default();
    let key = JobKey::new(&namespace, &job.object.name_any());
    let observed = live::read(client, timeout, &[]).await;
    match observed.map(|(observed, now)| LiveState::new(&observed, now).explain(&key)) {
        Ok(Some(answer)) => ShownAdvice::Computed {
            evidence: answer.explanation.evidence,
            helps: answer.helps,
        },
        // It has started or ended meanwhile.
        Ok(None) => ShownAdvice::Published,
        Err(error) => ShownAdvice::Missing(format!("{error:#}")),
    }
}

/// Returns the owner as `Job/train`.
fn workload(job: &ListedJob) -> String {
    match job.template() {
        Some(owner) => format!("{}/{}", owner.kind, owner.name),
        None => job.name(),
    }
}

fn render(job: &ListedJob, advice: &ShownAdvice, now: Timestamp) -> String {
    let mut federation = job.federation().cloned().unwrap_or_default();
    if let ShownAdvice::Computed { evidence, helps } = advice {
        federation.evidence.clone_from(evidence);
        federation.helps.clone_from(helps);
    }
    let (queue, status) = (&job.group.spec.queue, job.status());
    let reason = match job.reason() {
        // `Running: Running` says no more than its first word.
        word if word.is_empty() || word == status.to_string() => String::new(),
        word => format!(": {word}"),
    };
    let mut text = format!("Job       {}  (queue {queue})\n", workload(job));
    line(&mut text, "State", &format!("{status}{reason}"));
    line(&mut text, "", job.message());
    for (index, fact) in federation.evidence.iter().enumerate() {
        line(&mut text, if index == 0 { "Because" } else { "" }, fact);
    }
    for (index, help) in federation.helps.iter().enumerate() {
        line(&mut text, if index == 0 { "Helps" } else { "" }, help);
    }
    match advice {
        ShownAdvice::Computed { helps, .. } if helps.is_empty() => {
            line(
                &mut text,
                "Helps",
                "none of the changes that were tried just now",
            );
        }
        ShownAdvice::Missing(why) => {
            let later = "not known yet: Muster gives advice by turns, and to compute it now";
            line(&mut text, "Helps", &format!("{later} failed: {why}"));
        }
        _ => {}
    }
    next_step(&mut text, job);
    let wait = WaitParts::of(&federation.timeline, status);
    line(&mut text, "Wait", &wait.sentence(now));
    outlook(&mut text, &federation, now);
    history(&mut text, &federation, now);
    text
}

/// Adds who can end the state that its reason names, and how.
fn next_step(text: &mut String, job: &ListedJob) {
    let mut reasons = Reason::ALL.iter().map(|(reason, _)| *reason);
    let reason = reasons.find(|reason| reason.as_str() == job.reason());
    let Some(step) = reason.and_then(Reason::next_step) else {
        return;
    };
    let what = without_links(step.what);
    match step.who {
        Actor::NoOne => line(text, "Next", &what),
        who => line(text, "Next", &format!("{who}: {what}")),
    }
}

/// Returns Markdown with the text of each link in its place, and without sentences that are only a link.
fn without_links(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((label, after)) = link.split_once("](") else {
            break;
        };
        let after = after.split_once(')').map_or("", |(_, after)| after);
        text += before;
        match after.strip_prefix('.') {
            Some(after) if before.ends_with(". ") => rest = after,
            _ => {
                text += label;
                rest = after;
            }
        }
    }
    (text + rest).trim_end().to_owned()
}

/// Adds the jobs ahead of it, and when it may start.
fn outlook(text: &mut String, federation: &FederationStatus, now: Timestamp) {
    if let Some(position) = federation.position {
        let ahead = federation.ahead.as_ref().map(|ahead| {
            format!(
                "; ahead: {}, {}, {}",
                counted(position_text(ahead.jobs), "job"),
                counted(count_text(ahead.devices), "device"),
                counted(count_text(ahead.device_hours), "device-hour")
            )
        });
        let position = position_text(position);
        line(
            text,
            "Position",
            &format!("{position}{}", ahead.unwrap_or_default()),
        );
    }
    if let Some(start) = &federation.start {
        let time = |time: &Time| with_distance(time, now);
        let past = match start.past.as_str() {
            "" => String::new(),
            past => format!("; {past}"),
        };
        let basis = &start.basis;
        let range = match (&start.earliest, &start.latest) {
            (Some(earliest), Some(latest)) => {
                format!("from {} to {}", time(earliest), time(latest))
            }
            (Some(earliest), None) => format!("not before {}", time(earliest)),
            (None, _) => "not known".to_owned(),
        };
        let range = format!("{range} ({basis}{past})");
        line(text, "Start", &range);
    }
}

/// Adds where it runs, and its last eviction.
fn history(text: &mut String, federation: &FederationStatus, now: Timestamp) {
    if let Some(placement) = &federation.placement_summary {
        line(text, "Placed", placement);
    }
    if let Some(back) = &federation.eviction {
        let time = back.time.as_ref();
        let time = time.map(|time| format!(" at {}", with_distance(time, now)));
        let preemptor = back.for_job.as_ref().map(|job| format!(", for {job}"));
        let (time, preemptor) = (time.unwrap_or_default(), preemptor.unwrap_or_default());
        let how = format!("{}{time}{preemptor}: {}", back.reason, back.message);
        line(text, "Before", &how);
    }
}

/// Returns a time with its distance from now: `2026-11-21T14:10:00Z (in 10m)`.
fn with_distance(time: &Time, now: Timestamp) -> String {
    let at = time.0;
    let distance = match at.as_second() - now.as_second() {
        0 => "now".to_owned(),
        ahead @ 1.. => format!("in {}", age::human(ahead)),
        since => format!("{} ago", age::human(-since)),
    };
    format!("{at} ({distance})")
}

fn line(text: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<10}{value}");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::jobs::tests::job;

    fn shown(status: &str) -> String {
        let job = job(
            "train",
            "batch/v1",
            "Job",
            "{queue: vision, minMember: 8}",
            status,
        );
        let now = "2026-11-21T14:00:00Z".parse().unwrap();
        render(&job, &ShownAdvice::Published, now)
    }

    #[test]
    fn advice_that_is_missing_is_computed_or_said_to_be_missing() {
        let of = |position: &str, helps: &str| {
            let status = format!(
                "{{phase: Pending, federation: {{reason: WaitingForQuota, position: {position}, helps: {helps}}}}}"
            );
            job(
                "train",
                "batch/v1",
                "Job",
                "{queue: vision, minMember: 8}",
                &status,
            )
        };
        assert!(lacks_advice(&of("2", "[]")));
        assert!(lacks_advice(&of("100", "[]")));
        assert!(!lacks_advice(&of("1", "[]")), "the leader has answered");
        assert!(!lacks_advice(&of("2", "[queue night]")));
        let now = "2026-11-21T14:00:00Z".parse().unwrap();
        let shown = |advice| render(&of("20", "[]"), &advice, now);
        let computed = |helps: &[&str]| ShownAdvice::Computed {
            evidence: vec!["queue vision has 8 of 8 charged".to_owned()],
            helps: helps.iter().map(ToString::to_string).collect(),
        };
        insta::assert_snapshot!(shown(computed(&["queue night instead of its own"])), @r"
        Job       Job/train  (queue vision)
        State     Queued: WaitingForQuota
        Because   queue vision has 8 of 8 charged
        Helps     queue night instead of its own
        Next      It starts when quota becomes free.
        Position  20+
        ");
        assert!(
            shown(computed(&[]))
                .contains("Helps     none of the changes that were tried just now\n")
        );
        let missing = shown(ShownAdvice::Missing("Works cannot be listed".to_owned()));
        assert!(missing.contains("Helps     not known yet"), "{missing}");
    }

    #[test]
    fn programs_get_the_advice_that_was_computed() {
        let job = jobs::tests::jobs().remove(1);
        let computed = ShownAdvice::Computed {
            evidence: vec!["e".to_owned()],
            helps: vec!["h".to_owned()],
        };
        let object = with_advice(&job.object, computed);
        let federation = &object.data["status"]["federation"];
        assert_eq!(
            (&federation["helps"], &federation["evidence"]),
            (&json!(["h"]), &json!(["e"]))
        );
        assert_eq!(federation["position"], 1, "{federation}");
        assert_eq!(with_advice(&job.object, ShownAdvice::Published), job.object);
    }

    #[test]
    fn links_are_shown_by_their_text() {
        for (markdown, text) in [
            ("none", "none"),
            (
                "state it as [described](jobs.md); then [wait](a.md#b).",
                "state it as described; then wait.",
            ),
            ("It ends. [More](more.md).", "It ends."),
            ("a list [0] is no link", "a list [0] is no link"),
        ] {
            assert_eq!(without_links(markdown), text);
        }
        // What the texts of all reasons have.
        for step in Reason::ALL
            .iter()
            .filter_map(|(reason, _)| reason.next_step())
        {
            assert!(!without_links(step.what).contains("]("), "{}", step.what);
        }
    }

    #[test]
    fn a_waiting_job_says_why_and_what_would_help() {
        insta::assert_snapshot!(shown("
  phase: Pending
  federation:
    position: 3
    reason: WaitingForQuota
    message: 'needs nvidia.com/gpu 16; queue vision may use 32 and has 24 charged: short by 8'
    evidence: [queue research has 64 of 64 charged, the next to end is vision/resnet-job]
    helps: [4 pods of main instead of all, queue night instead of its own]
    ahead: {jobs: 2, devices: 40, deviceHours: 12}
    start: {earliest: '2026-11-21T14:10:00Z', latest: null, basis: ends that jobs declare}
    eviction: {time: '2026-11-21T13:00:00Z', reason: Reclaimed, message: queue nlp deserves it, forJob: nlp/llm-job}
"), @r"
        Job       Job/train  (queue vision)
        State     Queued: WaitingForQuota
                  needs nvidia.com/gpu 16; queue vision may use 32 and has 24 charged: short by 8
        Because   queue research has 64 of 64 charged
                  the next to end is vision/resnet-job
        Helps     4 pods of main instead of all
                  queue night instead of its own
        Next      It starts when quota becomes free.
        Position  3; ahead: 2 jobs, ~40 devices, 12 device-hours
        Start     not before 2026-11-21T14:10:00Z (in 10m) (ends that jobs declare)
        Before    Reclaimed at 2026-11-21T13:00:00Z (60m ago), for nlp/llm-job: queue nlp deserves it
        ");
    }

    #[test]
    fn a_job_behind_one_other_says_so_in_the_singular() {
        insta::assert_snapshot!(shown("
  phase: Pending
  federation:
    position: 2
    ahead: {jobs: 1, devices: 1, deviceHours: 1}
    start: {earliest: '2026-11-21T14:00:00Z', latest: '2026-11-21T15:30:00Z', basis: 1 job ahead,
            past: 17 of the last 20 ranges for jobs like it held their starts}
"), @r"
        Job       Job/train  (queue vision)
        State     Queued
        Position  2; ahead: 1 job, 1 device, 1 device-hour
        Start     from 2026-11-21T14:00:00Z (now) to 2026-11-21T15:30:00Z (in 90m) (1 job ahead; 17 of the last 20 ranges for jobs like it held their starts)
        ");
    }

    #[test]
    fn a_running_job_says_where() {
        insta::assert_snapshot!(
            shown("{phase: Running, federation: {reason: Running, message: 8 pods run, placementSummary: 'gpu-a:8'}}"),
            @r"
        Job       Job/train  (queue vision)
        State     Running
                  8 pods run
        Placed    gpu-a:8
        "
        );
        insta::assert_snapshot!(shown("null"), @r"
        Job       Job/train  (queue vision)
        State     Queued
        ");
    }
}
