//! What a pending job shows besides its reason: the evidence, what would help, what is ahead, when it may
//! start. Pure.
//!
//! These values move with the queue, so they are rounded: a status is written when its text changes, not
//! with every change of a number.

use crds::podgroup::{Eviction, ExpectedStart, JobsAhead, shown_count, shown_position};
use crds::record::{self, AdmissionRecord};
use engine::decision::{self, Help, PastRanges, StartRange};
use engine::{Amount, ResourceName, counted};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Most lines of evidence or advice.
const MOST_LINES: usize = 8;
/// A range that moves by less than this part of its distance is not written again.
const LITTLE: i64 = 10;

/// Returns the first lines of `evidence`.
pub(crate) fn evidence(evidence: &[String]) -> Vec<String> {
    evidence.iter().take(MOST_LINES).cloned().collect()
}

/// Returns what would help, as text.
pub(crate) fn helps(helps: &[Help]) -> Vec<String> {
    helps.iter().take(MOST_LINES).map(help).collect()
}

fn help(help: &Help) -> String {
    match help {
        Help::FewerPods { role, count } => {
            format!("{} of {role} instead of all", counted(*count, "pod"))
        }
        Help::OtherQueue(queue) => format!("queue {queue} instead of its own"),
        Help::RaiseCapability {
            queue,
            class,
            resource,
            to,
        } => {
            let amount = ResourceName::new(resource).format(Amount(*to));
            let bound = class.as_ref().map_or_else(
                || format!("the capability of queue {queue}"),
                |class| format!("the bound of capacitypolicy {queue} on pools of class {class}"),
            );
            format!("{bound} raised to {resource} {amount}")
        }
        Help::MoreNodes {
            cluster,
            class,
            count,
        } => {
            let nodes = counted(*count, "more node");
            format!("{nodes} of class {class} in {cluster}")
        }
        Help::NodeLabel { cluster, label } => {
            let cluster = cluster.as_ref().map_or("any cluster", |name| name.as_str());
            format!("another node selector: no node of {cluster} has {label}")
        }
    }
}

/// Returns what is ahead, in coarse numbers.
pub(crate) fn ahead(ahead: decision::Ahead) -> JobsAhead {
    let count = |number: i64| shown_count(u64::try_from(number).unwrap_or_default());
    JobsAhead {
        jobs: shown_position(u64::from(ahead.jobs)),
        devices: count(ahead.devices),
        device_hours: count(ahead.device_seconds / 3_600),
    }
}

/// Returns when it may start, as shown at `now`.
pub(crate) fn start(range: &StartRange, now: Timestamp) -> ExpectedStart {
    let earliest = record::timestamp(range.earliest);
    let latest = range.latest.map(record::timestamp);
    let earliest = match rounded(earliest, now, Rounding::Down) {
        down if down > now => down,
        _ => rounded(earliest, now, Rounding::Up),
    };
    ExpectedStart {
        // Where nothing is known of the end, nothing is known of the beginning.
        earliest: latest.map(|_| Time(earliest)),
        latest: latest.map(|latest| Time(rounded(latest, now, Rounding::Up))),
        basis: range.basis.clone(),
        past: range.past.map(past).unwrap_or_default(),
    }
}

/// Returns what to show of a range: what is shown already if that differs little, so that a job that waits
/// causes few writes.
pub(crate) fn start_or_seen(
    range: &StartRange,
    seen: Option<&ExpectedStart>,
    now: Timestamp,
) -> ExpectedStart {
    let fresh = start(range, now);
    let second = |time: &Option<Time>| time.as_ref().map(|time| time.0.as_second());
    let last = second(&fresh.latest).or_else(|| second(&fresh.earliest));
    let little = last.map_or(0, |last| (last - now.as_second()) / LITTLE);
    let near = |one: &Option<Time>, other: &Option<Time>| match (second(one), second(other)) {
        (Some(one), Some(other)) => one.abs_diff(other) <= little.unsigned_abs(),
        (one, other) => one == other,
    };
    let holds = |seen: &&ExpectedStart| {
        near(&seen.earliest, &fresh.earliest)
            && near(&seen.latest, &fresh.latest)
            && second(&seen.earliest).is_some_and(|earliest| earliest > now.as_second())
    };
    seen.filter(holds).cloned().unwrap_or(fresh)
}

/// Returns how past ranges have fared, as text.
fn past(past: PastRanges) -> String {
    let ranges = counted(past.of, "range");
    format!(
        "{} of the last {ranges} for jobs like it held their starts",
        past.within
    )
}

#[derive(Clone, Copy)]
enum Rounding {
    Down,
    Up,
}

/// Rounds to a minute within the next hour, to ten within half a day, to an hour beyond.
fn rounded(at: Timestamp, now: Timestamp, rounding: Rounding) -> Timestamp {
    let grid = match at.as_second().saturating_sub(now.as_second()) {
        ..=3_600 => 60,
        3_601..=43_200 => 600,
        _ => 3_600,
    };
    let down = at.as_second().div_euclid(grid) * grid;
    let second = match rounding {
        Rounding::Up if down < at.as_second() => down + grid,
        Rounding::Up | Rounding::Down => down,
    };
    Timestamp::from_second(second).unwrap_or(at)
}

/// Returns how the attempt of `record` was evicted; an earlier eviction in `seen` stays otherwise.
pub(crate) fn last_eviction(
    record: Option<&AdmissionRecord>,
    seen: Option<&Eviction>,
) -> Option<Eviction> {
    let of_record = record.and_then(|record| {
        Some(Eviction {
            time: Some(Time(record.evicted_at?)),
            reason: record.reason?.to_string(),
            message: record.message.clone(),
            for_job: record.for_job.as_ref().map(ToString::to_string),
        })
    });
    of_record.or_else(|| seen.cloned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use engine::{ClusterName, PoolClass, QueueName};

    #[test]
    fn advice_is_shown_as_text() {
        let all = [
            Help::FewerPods {
                role: "worker".into(),
                count: 4,
            },
            Help::OtherQueue(QueueName::new("night")),
            Help::RaiseCapability {
                queue: QueueName::new("vision"),
                class: None,
                resource: "cpu".into(),
                to: 2_500,
            },
            Help::RaiseCapability {
                queue: QueueName::new("vision"),
                class: Some(PoolClass::new("h100")),
                resource: "nvidia.com/gpu".into(),
                to: 16,
            },
            Help::MoreNodes {
                cluster: ClusterName::new("gpu-a"),
                class: PoolClass::new("h100"),
                count: 2,
            },
            Help::NodeLabel {
                cluster: Some(ClusterName::new("gpu-a")),
                label: "accelerator=h900".into(),
            },
            Help::NodeLabel {
                cluster: None,
                label: "accelerator=h900".into(),
            },
        ];
        insta::assert_snapshot!(helps(&all).join("\n"), @r"
    4 pods of worker instead of all
    queue night instead of its own
    the capability of queue vision raised to cpu 2500m
    the bound of capacitypolicy vision on pools of class h100 raised to nvidia.com/gpu 16
    2 more nodes of class h100 in gpu-a
    another node selector: no node of gpu-a has accelerator=h900
    another node selector: no node of any cluster has accelerator=h900
    ");
    }

    #[test]
    fn one_is_singular() {
        let pod = Help::FewerPods {
            role: "main".into(),
            count: 1,
        };
        let node = Help::MoreNodes {
            cluster: ClusterName::new("gpu-a"),
            class: PoolClass::new("h100"),
            count: 1,
        };
        let shown = helps(&[pod.clone(), node.clone()]);
        let one = [
            "1 pod of main instead of all",
            "1 more node of class h100 in gpu-a",
        ];
        assert_eq!(shown, one);
        let advice = [
            "ask for 1 main pod",
            "add 1 node of class h100 to cluster gpu-a",
        ];
        assert_eq!([pod, node].map(|help| help.to_string()), advice);
    }

    #[test]
    fn the_position_ahead_is_coarse() {
        let shown = ahead(decision::Ahead {
            jobs: 137,
            devices: 1_096,
            device_seconds: 36_000,
        });
        let shown = (shown.jobs, shown.devices, shown.device_hours);
        assert_eq!(shown, (100, 1_000, 10));
        assert_eq!(ahead(decision::Ahead::default()).jobs, 0);
    }

    #[test]
    fn a_range_that_moves_little_is_not_written_again() {
        let now: Timestamp = "2026-11-21T14:00:00Z".parse().unwrap();
        let range = |earliest: i64, latest: i64, basis: &str| {
            let at = |minutes: i64| engine::Time(now.as_millisecond() + minutes * 60_000);
            StartRange {
                earliest: at(earliest),
                latest: Some(at(latest)),
                basis: basis.to_owned(),
                past: None,
            }
        };
        let seen = start(&range(30, 200, "2 jobs ahead"), now);
        let shown = |range, at| start_or_seen(&range, Some(&seen), at);
        assert_eq!(shown(range(25, 210, "1 job ahead"), now), seen);
        let moved = shown(range(30, 300, "1 job ahead"), now);
        assert_eq!(moved.basis, "1 job ahead");
        // What has passed is not shown, however little it moves.
        let later = Timestamp::from_second(now.as_second() + 1_800).unwrap();
        assert_ne!(shown(range(35, 210, "2 jobs ahead"), later), seen);
        let unknown = StartRange {
            latest: None,
            ..range(1, 1, "no run time is known")
        };
        let shown = start_or_seen(&unknown, None, now);
        assert_eq!((&shown.earliest, &shown.latest), (&None, &None));
        assert_eq!(start_or_seen(&unknown, Some(&shown), later), shown);
        assert_eq!(
            start_or_seen(&range(30, 200, "2 jobs ahead"), None, now),
            seen
        );
    }

    #[test]
    fn an_expected_start_is_rounded_by_its_distance() {
        let now: Timestamp = "2026-11-21T14:00:00Z".parse().unwrap();
        let shown = |earliest: &str, latest: &str| {
            let time = |text: &str| {
                let at: Timestamp = format!("2026-11-{text}Z").parse().unwrap();
                engine::Time(at.as_millisecond())
            };
            let range = StartRange {
                earliest: time(earliest),
                latest: Some(time(latest)),
                basis: String::new(),
                past: Some(PastRanges { within: 17, of: 20 }),
            };
            let start = start(&range, now);
            let past = "17 of the last 20 ranges for jobs like it held their starts";
            assert_eq!(start.past, past);
            format!("{} {}", start.earliest.unwrap().0, start.latest.unwrap().0)
        };
        assert_eq!(
            shown("21T14:07:31", "21T16:32:01"),
            "2026-11-21T14:07:00Z 2026-11-21T16:40:00Z"
        );
        assert_eq!(
            shown("21T14:00:01", "23T08:00:00"),
            "2026-11-21T14:01:00Z 2026-11-23T08:00:00Z"
        );
    }
}
