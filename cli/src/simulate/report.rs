//! What a simulation shows: each job for which the change makes a difference.

use crate::age::human;
use crate::output::{self, columns};
use controller::live::{Fate, LiveAnswer, PodsByCluster};
use engine::{JobKey, Reason, Time, counted};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What becomes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum SimulatedOutcome {
    /// It is admitted.
    Starts,
    /// It goes on waiting.
    Waits,
    /// It goes on as it does now.
    Stays,
    /// It is evicted, and waits.
    Evicted,
    /// It is evicted, and starts again elsewhere.
    Moves,
    /// It is evicted, and starts again in the same clusters.
    Restarts,
    /// It has lost pods, and its own controller replaces them where it runs.
    Recovers,
    /// It runs on with another number of pods.
    Resized,
}

impl SimulatedOutcome {
    fn of(fate: &Fate) -> Self {
        let clusters = |pods: &PodsByCluster| pods.keys().cloned().collect::<Vec<_>>();
        match (&fate.before, &fate.after) {
            (None, None) => Self::Waits,
            (None, Some(_)) => Self::Starts,
            (Some(_), None) => Self::Evicted,
            (Some(before), Some(after)) if fate.evicted.is_some() => {
                match clusters(before) == clusters(after) {
                    true => Self::Restarts,
                    false => Self::Moves,
                }
            }
            (Some(_), Some(_)) if fate.recovers => Self::Recovers,
            (Some(before), Some(after)) if before != after => Self::Resized,
            (Some(_), Some(_)) => Self::Stays,
        }
    }
}

/// A job for which the change makes a difference.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SimulatedJob {
    namespace: String,
    /// The name of its PodGroup.
    name: String,
    queue: String,
    /// True for a job of `--job`.
    pub(super) submitted: bool,
    outcome: SimulatedOutcome,
    /// What becomes of it without the change; `None` for a job that is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    otherwise: Option<SimulatedOutcome>,
    /// Pods by cluster now.
    before: BTreeMap<String, u32>,
    /// Pods by cluster then.
    after: BTreeMap<String, u32>,
    reason: String,
    message: String,
    /// The job that it is evicted for.
    #[serde(skip_serializing_if = "Option::is_none")]
    for_job: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    evidence: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    helps: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    /// In how many seconds it may start, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    starts_in_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_basis: Option<String>,
}

impl SimulatedJob {
    /// Returns the job if it is new, or if its fate is another one `without` the change. `answer` returns what it
    /// shows then, with advice if asked to.
    pub(super) fn of(
        key: &JobKey,
        fate: &Fate,
        without: Option<&Fate>,
        submitted: bool,
        answer: impl FnOnce(bool) -> Option<LiveAnswer>,
    ) -> Option<Self> {
        let same = without.is_some_and(|without| {
            without.after == fate.after
                && without.recovers == fate.recovers
                && without.evicted.is_some() == fate.evicted.is_some()
        });
        if same && !submitted {
            return None;
        }
        let outcome = SimulatedOutcome::of(fate);
        let waits = outcome == SimulatedOutcome::Waits && submitted;
        let answer = answer(waits)?;
        let explained = &answer.explanation;
        let (reason, message) = match (&fate.started, &fate.evicted) {
            (Some(started), None) => (Reason::Admitted, started),
            (_, Some(evicted)) => (evicted.reason, &evicted.message),
            (None, None) => (explained.reason, &explained.message),
        };
        let explained = Some(explained).filter(|_| waits);
        let start = explained.and_then(|explained| explained.start.as_ref());
        let evicted_for = fate.evicted.as_ref();
        Some(Self {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            queue: fate.queue.to_string(),
            submitted,
            outcome,
            otherwise: without.map(SimulatedOutcome::of),
            before: by_name(fate.before.as_ref()),
            after: by_name(fate.after.as_ref()),
            reason: reason.to_string(),
            message: message.clone(),
            for_job: evicted_for.and_then(|evicted| Some(evicted.for_job.as_ref()?.to_string())),
            evidence: explained.map_or_else(Vec::new, |explained| explained.evidence.clone()),
            helps: answer.helps.clone(),
            position: explained.and_then(|explained| explained.position),
            starts_in_seconds: start.and_then(|start| Some(start.wait_ms? / 1_000)),
            start_basis: start.map(|start| start.basis.clone()),
        })
    }

    fn cells(&self) -> [String; 7] {
        [
            self.namespace.clone(),
            self.name.clone(),
            self.queue.clone(),
            format!("{:?}", self.outcome),
            summary(&self.before),
            summary(&self.after),
            self.reason.clone(),
        ]
    }

    /// Returns what a job that waits needs to know, in lines.
    fn details(&self, now: Time) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<10}{value}");
        };
        line("Job", &format!("{}/{}", self.namespace, self.name));
        line("State", &format!("{:?}: {}", self.outcome, self.reason));
        line("", &self.message);
        for (index, fact) in self.evidence.iter().enumerate() {
            line(if index == 0 { "Because" } else { "" }, fact);
        }
        for (index, help) in self.helps.iter().enumerate() {
            line(if index == 0 { "Helps" } else { "" }, help);
        }
        if !self.after.is_empty() {
            line("Placed", &summary(&self.after));
        }
        if let Some(position) = self.position {
            line("Position", &position.to_string());
        }
        if let Some(basis) = &self.start_basis {
            let known = self.starts_in_seconds.map(|seconds| {
                let at = Timestamp::from_millisecond(now.0 + seconds * 1_000);
                let at = at.map_or_else(|_| String::new(), |at| format!(" ({at:.0})"));
                format!("in {}{at}", human(seconds))
            });
            let known = known.unwrap_or_else(|| "not known".to_owned());
            line("Start", &format!("{known}: {basis}"));
        }
        text
    }
}

fn by_name(pods: Option<&PodsByCluster>) -> BTreeMap<String, u32> {
    let pods = pods.into_iter().flatten();
    pods.map(|(cluster, count)| (cluster.to_string(), *count))
        .collect()
}

/// Formats `gpu-a:8,gpu-b:8`.
fn summary(pods: &BTreeMap<String, u32>) -> String {
    let parts = pods
        .iter()
        .map(|(cluster, count)| format!("{cluster}:{count}"));
    parts.collect::<Vec<_>>().join(",")
}

/// The answer of a simulation.
#[derive(Debug, Serialize)]
pub(super) struct Simulation {
    pub(super) jobs: Vec<SimulatedJob>,
    pub(super) notes: Vec<String>,
    #[serde(skip)]
    pub(super) now: Time,
}

impl Simulation {
    /// Formats names as kubectl does.
    pub(super) fn names(&self) -> String {
        let jobs = self.jobs.iter();
        jobs.map(|job| format!("podgroup.scheduling.volcano.sh/{}\n", job.name))
            .collect()
    }

    /// Formats what becomes of jobs that are submitted, and a table of the others.
    pub(super) fn table(&self, wide: bool, header: bool) -> String {
        let (new, others): (Vec<_>, Vec<_>) = self.jobs.iter().partition(|job| job.submitted);
        let mut text: String = new.iter().map(|job| job.details(self.now) + "\n").collect();
        if others.is_empty() {
            text += match new.is_empty() {
                true => "No job is affected\n",
                false => "No other job is affected\n",
            };
            return text;
        }
        if !new.is_empty() {
            let _ = writeln!(text, "{}:", counted(others.len(), "other job"));
        }
        let names = [
            "NAMESPACE",
            "NAME",
            "QUEUE",
            "OUTCOME",
            "BEFORE",
            "AFTER",
            "REASON",
        ];
        text + &match wide {
            false => columns(
                header.then_some(names),
                others.iter().map(|job| job.cells()),
            ),
            true => {
                let names = names.into_iter().chain(["MESSAGE"]).collect();
                let rows = others.iter().map(|job| {
                    let cells = job.cells().into_iter();
                    cells.chain([job.message.clone()]).collect()
                });
                output::table(header.then_some(names), rows)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use controller::live::FollowedEviction;
    use engine::{ClusterName, Explanation, QueueName};

    fn pods(cluster: &str) -> Option<PodsByCluster> {
        Some([(ClusterName::new(cluster), 2)].into())
    }

    fn fate(before: Option<PodsByCluster>, after: Option<PodsByCluster>) -> Fate {
        Fate {
            queue: QueueName::new("vision"),
            before,
            after,
            evicted: None,
            recovers: false,
            started: None,
        }
    }

    fn evicted(fate: Fate) -> Fate {
        Fate {
            evicted: Some(FollowedEviction {
                reason: Reason::Reclaimed,
                message: "queue nlp deserves it".to_owned(),
                for_job: Some(JobKey::new("nlp", "llm-job")),
            }),
            ..fate
        }
    }

    #[test]
    fn an_outcome_follows_from_where_a_job_was_and_is() {
        use SimulatedOutcome::{Evicted, Moves, Recovers, Resized, Restarts, Starts, Stays, Waits};
        let grown = Some([(ClusterName::new("a"), 3)].into());
        let lost = Fate {
            recovers: true,
            ..fate(pods("a"), pods("a"))
        };
        for (fate, want) in [
            (fate(None, None), Waits),
            (fate(None, pods("a")), Starts),
            (fate(pods("a"), pods("a")), Stays),
            (evicted(fate(pods("a"), None)), Evicted),
            (evicted(fate(pods("a"), pods("b"))), Moves),
            (evicted(fate(pods("a"), pods("a"))), Restarts),
            (fate(pods("a"), grown), Resized),
            (lost, Recovers),
        ] {
            assert_eq!(SimulatedOutcome::of(&fate), want);
        }
    }

    #[test]
    fn only_what_the_change_makes_a_difference_for_is_shown() {
        let key = |name: &str| JobKey::new("vision", name);
        let of = |name: &str, with: &Fate, without: Option<&Fate>, new: bool| {
            let waits = Explanation::of(Reason::WaitingForQuota, "short by 8".to_owned());
            SimulatedJob::of(&key(name), with, without, new, |_| Some(waits.into()))
        };
        let waits = fate(None, None);
        let runs = fate(pods("a"), pods("a"));
        let starts = fate(None, pods("b"));
        assert!(of("same", &waits, Some(&waits), false).is_none());
        let mut new = of("new", &waits, None, true).unwrap();
        new.helps = vec!["queue night instead of its own".to_owned()];
        new.position = Some(3);
        new.starts_in_seconds = Some(600);
        new.start_basis = Some("2 jobs ahead".to_owned());
        let jobs = vec![
            new,
            of(
                "victim",
                &evicted(fate(pods("a"), None)),
                Some(&runs),
                false,
            )
            .unwrap(),
            of("later", &waits, Some(&starts), false).unwrap(),
        ];
        let now = Time(
            "2026-11-25T10:00:00Z"
                .parse::<Timestamp>()
                .unwrap()
                .as_millisecond(),
        );
        let mut simulation = Simulation {
            jobs,
            notes: Vec::new(),
            now,
        };
        insta::assert_snapshot!(simulation.table(false, true), @r"
        Job       vision/new
        State     Waits: WaitingForQuota
                  short by 8
        Helps     queue night instead of its own
        Position  3
        Start     in 10m (2026-11-25T10:10:00Z): 2 jobs ahead

        2 other jobs:
        NAMESPACE   NAME     QUEUE    OUTCOME   BEFORE   AFTER    REASON
        vision      victim   vision   Evicted   a:2      <none>   Reclaimed
        vision      later    vision   Waits     <none>   <none>   WaitingForQuota
        ");
        let value = serde_json::to_value(&simulation).unwrap();
        assert_eq!(value["jobs"][1]["forJob"], "nlp/llm-job");
        assert_eq!(value["jobs"][2]["otherwise"], "Starts");
        simulation.jobs.clear();
        assert_eq!(simulation.table(true, true), "No job is affected\n");
    }
}
