//! Formats ages like kubectl.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Returns the age of an object created at `since`, or `<unknown>`.
pub(crate) fn age(since: Option<&Time>, now: Timestamp) -> String {
    since.map_or_else(
        || "<unknown>".to_owned(),
        |since| human(now.as_second() - since.0.as_second()),
    )
}

/// Formats two units while the first is small, then one: kubectl's `HumanDuration`.
pub(crate) fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    match seconds.max(0) {
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s, (MINUTE, "m"), (1, "s")),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s, (HOUR, "h"), (MINUTE, "m")),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s, (DAY, "d"), (HOUR, "h")),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s, (YEAR, "y"), (DAY, "d")),
        s => format!("{}y", s / YEAR),
    }
}

fn two(seconds: i64, (large, large_name): (i64, &str), (small, small_name): (i64, &str)) -> String {
    match seconds % large / small {
        0 => format!("{}{large_name}", seconds / large),
        rest => format!("{}{large_name}{rest}{small_name}", seconds / large),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        let cases = [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3_600, "60m"),
            (3 * 3_600 + 60, "3h1m"),
            (8 * 3_600, "8h"),
            (3 * 86_400 + 7_200, "3d2h"),
            (41 * 86_400, "41d"),
            (3 * 365 * 86_400, "3y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human(seconds), expected, "{seconds} s");
        }
    }
}
