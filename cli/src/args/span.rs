//! A span of time, as kubectl's flags take it.

use std::str::FromStr;
use std::time::Duration;

/// A span: `90`, `30s`, `10m`, `2h`, `3d`, or several of these: `1h30m`. A bare number is seconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    /// Returns its seconds.
    pub(crate) fn seconds(self) -> i64 {
        i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a duration is needed, such as 30s, 10m, 2h, 3d or 1h30m".to_owned();
        // Days are what Go's durations, and so those of workloads, do not have.
        let (days, rest) = text.split_once('d').unwrap_or(("0", text));
        let days: u64 = days.parse().map_err(|_| wrong())?;
        let rest = match rest.is_empty() && text.ends_with('d') {
            true => Some(0),
            false => workload::duration_millis(rest).and_then(|millis| u64::try_from(millis).ok()),
        };
        let millis = days.checked_mul(86_400_000).zip(rest);
        let millis = millis.and_then(|(days, rest)| days.checked_add(rest));
        millis
            .map(Duration::from_millis)
            .map(Self)
            .ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::Span;
    use std::time::Duration;

    #[test]
    fn spans_are_read_as_kubectl_reads_them() {
        for (text, millis) in [
            ("0", Some(0)),
            ("30", Some(30_000)),
            ("30s", Some(30_000)),
            ("1h30m", Some(5_400_000)),
            ("500ms", Some(500)),
            ("2d", Some(172_800_000)),
            ("", None),
            ("s", None),
            ("-5s", None),
            ("1h30", None),
            ("1.5h", Some(5_400_000)),
            ("1d12h", Some(129_600_000)),
            ("d", None),
            ("10x", None),
            ("99999999999999999999s", None),
        ] {
            let want = millis.map(|millis| Span(Duration::from_millis(millis)));
            assert_eq!(text.parse().ok(), want, "{text:?}");
        }
    }
}
