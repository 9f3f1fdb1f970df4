//! Lines of output with their times, and which of them were seen before.
//!
//! The server puts the time before each line. After a lost connection it is asked for what came after a whole second
//! before the last line, because its `sinceTime` has no fractions; what was seen of that is left out by [`SeenLines`].

use jiff::Timestamp;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Range;

/// By how many seconds what is asked for again overlaps with what was seen. The two streams of a container are written
/// side by side, so that their lines may be out of order for a moment.
const OVERLAP_SECONDS: i64 = 1;

/// A line in a block of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineRange {
    pub(super) time: Timestamp,
    /// The line with its time, without its end.
    whole: Range<usize>,
    /// Where its text starts.
    text: usize,
}

impl LineRange {
    /// Reads the line at `whole` of `block`. A line without a time has that of the line `before` it.
    pub(super) fn read(block: &[u8], whole: Range<usize>, before: Timestamp) -> Self {
        let line = &block[whole.clone()];
        let space = line
            .iter()
            .position(|byte| *byte == b' ')
            .unwrap_or(line.len());
        let stamp = std::str::from_utf8(&line[..space]).ok();
        let time = stamp.and_then(|stamp| stamp.parse::<Timestamp>().ok());
        let text = match time {
            Some(_) => (whole.start + space + 1).min(whole.end),
            None => whole.start,
        };
        Self {
            time: time.unwrap_or(before),
            whole,
            text,
        }
    }

    /// Returns the line, with its time if `timestamps`.
    pub(super) fn bytes<'a>(&self, block: &'a [u8], timestamps: bool) -> &'a [u8] {
        let start = if timestamps {
            self.whole.start
        } else {
            self.text
        };
        &block[start..self.whole.end]
    }
}

/// The last lines of a container that were seen.
#[derive(Debug, Default)]
pub(super) struct SeenLines {
    latest: Option<Timestamp>,
    recent: VecDeque<(Timestamp, u64)>,
    /// What may come again, and how often.
    again: HashMap<(Timestamp, u64), u32>,
}

impl SeenLines {
    /// Returns the time from which on to ask for lines, if any was seen; then [`Self::is_new`] says which are new.
    pub(super) fn resume(&mut self) -> Option<Timestamp> {
        self.again.clear();
        for line in &self.recent {
            *self.again.entry(*line).or_default() += 1;
        }
        self.latest.map(start_of_overlap)
    }

    /// Returns true for a line that was not seen before, and remembers it.
    pub(super) fn is_new(&mut self, time: Timestamp, line: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        let key = (time, hasher.finish());
        if let Some(left) = self.again.get_mut(&key).filter(|left| **left > 0) {
            *left -= 1;
            return false;
        }
        self.recent.push_back(key);
        if self.latest.is_none_or(|latest| latest < time) {
            self.latest = Some(time);
            let oldest = start_of_overlap(time);
            while self.recent.front().is_some_and(|(seen, _)| *seen < oldest) {
                self.recent.pop_front();
            }
        }
        true
    }
}

fn start_of_overlap(latest: Timestamp) -> Timestamp {
    let second = latest.as_second() - OVERLAP_SECONDS;
    Timestamp::from_second(second).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> (Timestamp, String, String) {
        let line = LineRange::read(text.as_bytes(), 0..text.len(), Timestamp::UNIX_EPOCH);
        let shown = |timestamps| {
            String::from_utf8(line.bytes(text.as_bytes(), timestamps).to_vec()).unwrap()
        };
        (line.time, shown(false), shown(true))
    }

    #[test]
    fn the_time_of_a_line_is_its_first_word() {
        let at: Timestamp = "2026-11-30T10:00:00.5Z".parse().unwrap();
        for (line, text) in [
            ("2026-11-30T10:00:00.5Z loss 0.1", "loss 0.1"),
            (
                "2026-11-30T11:00:00.500000000+01:00   indented",
                "  indented",
            ),
            ("2026-11-30T10:00:00.5Z ", ""),
            ("2026-11-30T10:00:00.5Z", ""),
        ] {
            assert_eq!(read(line), (at, text.to_owned(), line.to_owned()), "{line}");
        }
        assert_eq!(
            read("no time"),
            (
                Timestamp::UNIX_EPOCH,
                "no time".to_owned(),
                "no time".to_owned()
            )
        );
    }

    #[test]
    fn what_comes_again_after_a_lost_connection_is_left_out_once() {
        let at = |text: &str| {
            format!("2026-11-30T10:00:0{text}Z")
                .parse::<Timestamp>()
                .unwrap()
        };
        let mut seen = SeenLines::default();
        assert_eq!(seen.resume(), None);
        for (time, line) in [
            ("1.1", "a"),
            ("4.7", "b"),
            ("5.2", "c"),
            ("5.2", "c"),
            ("5.1", "late"),
            ("5.3", "d"),
        ] {
            assert!(seen.is_new(at(time), line.as_bytes()), "{line}");
        }
        assert_eq!(seen.resume(), Some(at("4")));
        // The server has everything from there on again, and two new lines; one is equal to an older one.
        let lines = [
            ("4.7", "b"),
            ("5.2", "c"),
            ("5.2", "c"),
            ("5.1", "late"),
            ("5.3", "d"),
            ("5.3", "d"),
            ("6", "e"),
        ];
        let new: Vec<&str> = lines
            .into_iter()
            .filter(|(time, line)| seen.is_new(at(time), line.as_bytes()))
            .map(|(_, line)| line)
            .collect();
        assert_eq!(new, ["d", "e"]);
    }

    #[test]
    fn only_the_last_seconds_are_remembered() {
        let mut seen = SeenLines::default();
        for second in 0..10_000 {
            seen.is_new(Timestamp::from_second(second).unwrap(), b"x");
        }
        assert!(seen.recent.len() <= 3, "{}", seen.recent.len());
    }
}
