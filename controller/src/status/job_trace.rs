//! The trace of a job, from its submission to its end: a span for each phase that has ended.
//!
//! ```text
//! job ─────────────────────────────────────────────────────────┐
//!  ├ held ─ eligible ─ queued ─ admitted ─ dispatch ─ placed ─ start ─ running ─ run ─ ended
//!  └ the same for each further attempt, from the eviction on
//! ```
//!
//! The times are those that the job's PodGroup shows. A span is sent when its end is about to be published. What the
//! PodGroup shows already, an earlier leader has sent; a leader that ends between sending and publishing leaves
//! spans that are sent again, with the same ids.

use crds::podgroup::{Eviction, FederationStatus, StatusWord};
use engine::JobKey;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use runtime::traces::{EndedSpan, ObjectTrace, TraceSink};
use std::collections::HashMap;

/// The outcome of a job whose object is deleted before it ends.
const DELETED: &str = "Deleted";

/// Sends the traces of jobs.
#[derive(Debug, Default)]
pub(crate) struct JobTraces {
    sink: TraceSink,
    jobs: HashMap<JobKey, TracedJob>,
}

/// What a job's spans say of it.
#[derive(Debug, Clone)]
pub(crate) struct TracedObject<'a> {
    pub(crate) uid: &'a str,
    /// The annotation of its template.
    pub(crate) traceparent: Option<&'a str>,
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) queue: &'a str,
}

#[derive(Debug)]
struct TracedJob {
    trace: ObjectTrace,
    attributes: Vec<(&'static str, String)>,
    /// What was sent last.
    status: FederationStatus,
    /// True if the span of the whole job was sent: the job may be deleted, or resumed, after that.
    over: bool,
}

/// A phase of one attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EndedPhase {
    name: &'static str,
    start: Timestamp,
    end: Timestamp,
    /// The reason of the eviction that ended it.
    evicted: Option<String>,
}

impl JobTraces {
    pub(crate) fn new(sink: TraceSink) -> Self {
        Self {
            sink,
            jobs: HashMap::new(),
        }
    }

    /// Sends the phases of a job that have ended by `status`. `published` is what its PodGroup shows.
    pub(crate) fn observe(
        &mut self,
        key: &JobKey,
        object: &TracedObject<'_>,
        published: Option<&FederationStatus>,
        status: &FederationStatus,
    ) {
        if !self.sink.is_open() {
            return;
        }
        let trace = ObjectTrace::new(object.uid, object.traceparent);
        let (before, over) = match self.jobs.get(key) {
            Some(known) if known.trace == trace => (known.status.clone(), known.over),
            _ => {
                let before = published_of(status, published);
                let over = before.timeline.finished.is_some() || ended(&before).is_some();
                (before, over)
            }
        };
        let mut job = TracedJob {
            attributes: vec![
                ("k8s.namespace.name", key.namespace.to_string()),
                ("muster.job", key.name.to_string()),
                (
                    "muster.kind",
                    format!("{}/{}", object.api_version, object.kind),
                ),
                ("muster.queue", object.queue.to_owned()),
            ],
            trace,
            status: status.clone(),
            over,
        };
        for span in job.spans(&before) {
            job.over |= span.key.is_none();
            self.sink.send(&job.trace, span);
        }
        self.jobs.insert(key.clone(), job);
    }

    /// Handles a job whose object is deleted: its trace ends with that, if it has not ended before.
    pub(crate) fn forget(&mut self, key: &JobKey, now: Timestamp) {
        let Some(job) = self.jobs.remove(key) else {
            return;
        };
        for span in job.gone(now) {
            self.sink.send(&job.trace, span);
        }
    }

    /// Forgets all jobs: another replica sends their traces.
    pub(crate) fn clear(&mut self) {
        self.jobs.clear();
    }
}

impl TracedJob {
    /// Returns the spans that have ended since `before`.
    fn spans(&self, before: &FederationStatus) -> Vec<EndedSpan> {
        let known = phases(before, before);
        let attempt = attempt(&self.status);
        let same = attempt == self::attempt(before);
        let phases = phases(before, &self.status).into_iter();
        let new = phases.filter(|phase| !(same && known.contains(phase)));
        let mut spans: Vec<EndedSpan> = new.map(|phase| self.part(phase, before)).collect();
        let whole = ended(&self.status).filter(|_| !self.over);
        if let (Some((end, outcome)), Some(start)) = (whole, time(&self.status.timeline.queued)) {
            let failed = outcome == StatusWord::Failed.to_string();
            let error = self.status.message.clone().filter(|_| failed);
            spans.push(self.whole(start, end, &outcome, error));
        }
        spans
    }

    /// Returns what ends with the deletion of the job, if it has not ended before.
    fn gone(&self, now: Timestamp) -> Vec<EndedSpan> {
        if self.over {
            return Vec::new();
        }
        let deleted = Eviction {
            time: Some(ApiTime(now)),
            reason: DELETED.to_owned(),
            ..Eviction::default()
        };
        let status = FederationStatus {
            status: Some(StatusWord::Evicting.to_string()),
            eviction: Some(deleted),
            ..self.status.clone()
        };
        let gone = Self {
            status,
            attributes: self.attributes.clone(),
            trace: self.trace.clone(),
            over: true,
        };
        let mut spans = gone.spans(&self.status);
        let queued = time(&self.status.timeline.queued);
        spans.extend(queued.map(|queued| self.whole(queued, now, DELETED, None)));
        spans
    }

    fn part(&self, phase: EndedPhase, before: &FederationStatus) -> EndedSpan {
        let attempt = attempt(&self.status);
        let mut attributes = self.attributes.clone();
        attributes.push(("muster.attempt", attempt.to_string()));
        let waited = ["held", "queued"].contains(&phase.name);
        let last = match waited {
            // What kept it waiting to the last.
            true => ("muster.reason", before.reason.clone()),
            false => ("muster.placement", placement(before, &self.status)),
        };
        attributes.extend(last.1.map(|value| (last.0, value)));
        attributes.extend(
            phase
                .evicted
                .clone()
                .map(|reason| ("muster.eviction", reason)),
        );
        EndedSpan {
            name: phase.name,
            key: Some(format!("{attempt}/{}", phase.name)),
            start: phase.start,
            end: phase.end,
            attributes,
            error: phase.evicted.map(|reason| format!("evicted: {reason}")),
        }
    }

    /// The span of the whole job.
    fn whole(
        &self,
        start: Timestamp,
        end: Timestamp,
        outcome: &str,
        error: Option<String>,
    ) -> EndedSpan {
        let mut attributes = self.attributes.clone();
        attributes.push(("muster.attempts", attempt(&self.status).to_string()));
        attributes.push(("muster.outcome", outcome.to_owned()));
        EndedSpan {
            name: "job",
            key: None,
            start,
            end,
            attributes,
            error,
        }
    }
}

/// Returns what an earlier leader has published of the job of `status`, and not of another with its name.
fn published_of(
    status: &FederationStatus,
    published: Option<&FederationStatus>,
) -> FederationStatus {
    let same = |shown: &&FederationStatus| shown.timeline.queued == status.timeline.queued;
    published.filter(same).cloned().unwrap_or_default()
}

/// Returns the phases of the attempt of `now` that have ended. `before` is what was known earlier: the admission of
/// an attempt that is over may be gone.
fn phases(before: &FederationStatus, now: &FederationStatus) -> Vec<EndedPhase> {
    let times = &now.timeline;
    let same = attempt(before) == attempt(now);
    let earlier = before.timeline.admitted.clone().filter(|_| same);
    let Some(admitted) = time(&times.admitted.clone().or(earlier)) else {
        return Vec::new();
    };
    let evicted = now.eviction.as_ref().filter(|eviction| {
        let at = time(&eviction.time);
        at.is_some_and(|at| at >= admitted) && !is_charged(now)
    });
    let evicted = evicted.and_then(|evicted| Some((time(&evicted.time)?, evicted.reason.clone())));
    let over = evicted.clone().map(|(at, reason)| (at, Some(reason)));
    let over = match time(&times.finished) {
        Some(at) => Some((at, None)),
        None => over,
    };
    let mut phases = Vec::new();
    let mut add = |name, start, end, evicted| {
        phases.push(EndedPhase {
            name,
            start,
            end,
            evicted,
        });
    };
    // A later attempt waits from the eviction of the one before it.
    let waits = match attempt(now) {
        0 | 1 => time(&times.queued),
        _ => now.eviction.as_ref().and_then(|last| time(&last.time)),
    };
    let waits = waits.filter(|waits| *waits <= admitted);
    let eligible = time(&times.eligible).filter(|eligible| *eligible <= admitted);
    if times.admitted.is_some() {
        if let (Some(waits), Some(eligible)) = (waits, eligible)
            && waits < eligible
        {
            add("held", waits, eligible, None);
        }
        if let Some(start) = eligible.or(waits) {
            add("queued", start, admitted, None);
        }
    }
    let steps = [
        ("dispatch", Some(admitted), time(&times.placed)),
        ("start", time(&times.placed), time(&times.running)),
    ];
    let mut open = ("dispatch", Some(admitted));
    for (name, start, end) in steps {
        if let (Some(start), Some(end)) = (start, end) {
            add(name, start, end, None);
            open = match name {
                "dispatch" => ("start", Some(end)),
                _ => ("run", Some(end)),
            };
        }
    }
    if let (Some((end, evicted)), (name, Some(start))) = (over, open) {
        // A job that ends at once is never seen to run.
        let name = match evicted {
            None => "run",
            Some(_) => name,
        };
        add(name, start, end, evicted);
    }
    phases
}

/// Returns when the job ended for good, and how.
fn ended(status: &FederationStatus) -> Option<(Timestamp, String)> {
    let word = status.status_word()?;
    let over = matches!(
        word,
        StatusWord::Succeeded | StatusWord::Failed | StatusWord::Finished
    );
    let evicted = || status.eviction.as_ref().and_then(|last| time(&last.time));
    // Where its parts were stopped because it had ended, only the eviction has the time.
    let at = time(&status.timeline.finished).or_else(evicted)?;
    over.then(|| (at, word.to_string()))
}

/// Returns true if its attempt goes on: an eviction that it shows is of an earlier one.
fn is_charged(status: &FederationStatus) -> bool {
    use StatusWord::{Admitted, Running, Starting};
    matches!(status.status_word(), Some(Admitted | Running | Starting))
}

fn attempt(status: &FederationStatus) -> i32 {
    status.attempt.unwrap_or_default()
}

/// Where it is placed, or was until it ended.
fn placement(before: &FederationStatus, now: &FederationStatus) -> Option<String> {
    let placed = now.placement_summary.clone();
    placed.or_else(|| before.placement_summary.clone())
}

fn time(time: &Option<ApiTime>) -> Option<Timestamp> {
    time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests;
