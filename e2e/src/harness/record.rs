//! What a run of the end-to-end tests writes down as it goes, a JSON object per line: how long each
//! story and each wait took. [`super::report`] reads it; a run that is cut off leaves what it had.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// One line of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum RecordLine {
    /// A story that is over.
    #[serde(rename_all = "camelCase")]
    Story {
        /// The test's name.
        story: String,
        /// How long it waited for its turn.
        turn_ms: u64,
        /// How long it took then.
        took_ms: u64,
        /// How it ended.
        end: StoryEnd,
    },
    /// A wait that is over.
    #[serde(rename_all = "camelCase")]
    Wait {
        /// The test's name.
        story: String,
        /// What was waited for.
        what: String,
        /// How long.
        took_ms: u64,
        /// Whether it happened.
        met: bool,
    },
}

/// How a story ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoryEnd {
    /// As it should.
    Passed,
    /// With this failure.
    Failed(String),
    /// The time of the run was over while it ran.
    Cut,
}

/// Appends lines to a file.
#[derive(Debug)]
pub struct Recorder {
    file: Mutex<File>,
}

impl Recorder {
    /// Begins a record, in place of an older one.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        let file = Mutex::new(file);
        Ok(Self { file })
    }

    /// Appends a line. A disk that is full loses lines, and never fails a story.
    pub fn note(&self, line: &RecordLine) {
        let Ok(mut text) = serde_json::to_string(line) else {
            return;
        };
        text.push('\n');
        let _ = self.file.lock().write_all(text.as_bytes());
    }
}

/// All lines of a record; one that was cut off is left out.
///
/// # Errors
/// If the file cannot be read.
pub fn read(path: &Path) -> anyhow::Result<Vec<RecordLine>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok(lines.collect())
}

/// Whole milliseconds.
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_noted_is_read_again_and_a_line_that_was_cut_off_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/record.jsonl");
        let recorder = Recorder::create(&path).unwrap();
        let wait = RecordLine::Wait {
            story: "a".into(),
            what: "b placed".into(),
            took_ms: 7,
            met: true,
        };
        recorder.note(&wait);
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"kind\":\"story\",\"sto").unwrap();
        assert_eq!(read(&path).unwrap(), [wait]);
    }
}
