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
        if text.is_empty() {
            return Err(wrong());
        }
        let mut rest = text;
        let mut millis: u64 = 0;
        while !rest.is_empty() {
            let digits = rest.find(|digit: char| !digit.is_ascii_digit());
            let (number, after) = rest.split_at(digits.unwrap_or(rest.len()));
            let number: u64 = number.parse().map_err(|_| wrong())?;
            let letters = after.find(|letter: char| letter.is_ascii_digit());
            let (unit, next) = after.split_at(letters.unwrap_or(after.len()));
            let each = match unit {
                "" if number == 0 || rest == text => 1_000,
                "ms" => 1,
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(wrong()),
            };
            let more = number.checked_mul(each);
            millis = more
                .and_then(|more| millis.checked_add(more))
                .ok_or_else(wrong)?;
            rest = next;
        }
        Ok(Self(Duration::from_millis(millis)))
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
            ("1.5h", None),
            ("10x", None),
            ("99999999999999999999s", None),
        ] {
            let want = millis.map(|millis| Span(Duration::from_millis(millis)));
            assert_eq!(text.parse().ok(), want, "{text:?}");
        }
    }
}
