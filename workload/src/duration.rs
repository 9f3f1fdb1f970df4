//! Parses durations of users: Go's format (`2h30m`, `1.5h`, `90s`), or plain seconds.

use crate::error::SpecError;
use crate::field::Field;

/// The expected format, for errors.
const WANT: &str = "a duration such as 2h30m, 90s or a whole number of seconds";

/// Reads `field` as a duration in milliseconds, rounded up.
pub(crate) fn millis(field: &Field<'_>) -> Result<Option<i64>, SpecError> {
    field
        .text()?
        .map(|text| parse_millis(text).ok_or_else(|| field.invalid(WANT)))
        .transpose()
}

/// Parses `text` (`2h30m`, `1.5h`, `90s`, or plain seconds) into milliseconds, rounded up; `None` if it is
/// no duration or overflows.
#[must_use]
pub fn parse_millis(text: &str) -> Option<i64> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse::<i64>().ok()?.checked_mul(1000);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    let mut nanos: i128 = 0;
    loop {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        nanos = nanos.checked_add(part(number, unit)?)?;
        if after.is_empty() {
            break;
        }
        rest = after;
    }
    i64::try_from(nanos.checked_add(999_999)? / 1_000_000).ok()
}

/// Returns `number` of `unit` in nanoseconds, rounded down.
fn part(number: &str, unit: &str) -> Option<i128> {
    let unit: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    // Digits beyond the 18th are below a nanosecond even for hours.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let digits = |text: &str| {
        if text.is_empty() {
            Some(0)
        } else {
            text.parse::<i64>().ok()
        }
    };
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let whole = i128::from(digits(whole)?).checked_mul(unit)?;
    whole.checked_add(i128::from(digits(fraction)?) * unit / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads_and_plain_seconds() {
        for (text, want) in [
            ("90", Some(90_000)),
            ("0", Some(0)),
            ("90s", Some(90_000)),
            ("2h30m", Some(9_000_000)),
            ("1.5h", Some(5_400_000)),
            (".5s", Some(500)),
            ("1m.5s", Some(60_500)),
            ("+1m", Some(60_000)),
            ("250ms", Some(250)),
            ("1ns", Some(1)),
            ("1500us", Some(2)),
            ("1500µs", Some(2)),
            ("", None),
            ("h", None),
            ("1", Some(1000)),
            ("1d", None),
            ("-1s", None),
            ("1.2.3s", None),
            ("1h 30m", None),
            ("1h30", None),
            (".s", None),
            ("9223372036854775807", None),
            ("9223372036854775807h", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(parse_millis(text), want, "{text}");
        }
    }
}
