//! Parses durations in Go's format: `90s`, `10m`, `1h30m`, `1.5h`.

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration; digits with units h, m, s or ms are needed, like 90s or 1h30m")]
pub struct DurationError(String);

/// Parses a Go duration into milliseconds, rounded up, by the same rules as durations of templates.
///
/// # Errors
/// [`DurationError`] for any other text, and if the number of milliseconds overflows.
pub fn parse_millis(text: &str) -> Result<i64, DurationError> {
    workload::duration_millis(text).ok_or_else(|| DurationError(text.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, want) in [
            ("0s", 0),
            ("250ms", 250),
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("0.0015s", 2),
            ("2540400h", 9_145_440_000_000),
        ] {
            assert_eq!(parse_millis(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            "m",
            "1d",
            "-1s",
            "1 h",
            "1..5h",
            "99999999999999999h",
            "1h30",
        ] {
            assert!(parse_millis(text).is_err(), "{text}");
        }
    }
}
