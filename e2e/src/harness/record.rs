//! The record of a run of the end-to-end tests, one JSON object per line: the duration of each
//! story and each wait. [`super::report`] reads it; an interrupted run leaves the lines so far.

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
        /// The time until its turn.
        turn_ms: u64,
        /// The time that it took after that.
        took_ms: u64,
        /// How it ended.
        end: StoryEnd,
    },
    /// A wait that is over.
    #[serde(rename_all = "camelCase")]
    Wait {
        /// The test's name.
        story: String,
        /// What the story waited for.
        what: String,
        /// The time it took.
        took_ms: u64,
        /// True if it happened.
        met: bool,
    },
}

impl RecordLine {
    /// Returns the name of the test that the line is about.
    pub fn story(&self) -> &str {
        match self {
            Self::Story { story, .. } | Self::Wait { story, .. } => story,
        }
    }
}

/// How a story ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoryEnd {
    /// It passed.
    Passed,
    /// It failed with this message.
    Failed(String),
    /// The run's time was over while it ran.
    Cut,
    /// This machine cannot run it, for this reason.
    LeftOut(String),
}

/// Appends lines to a file.
#[derive(Debug)]
pub struct Recorder {
    file: Mutex<File>,
}

impl Recorder {
    /// Starts a record and replaces an older one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        let file = Mutex::new(file);
        Ok(Self { file })
    }

    /// Appends a line. A full disk loses lines, and never fails a story.
    pub fn note(&self, line: &RecordLine) {
        let Ok(mut text) = serde_json::to_string(line) else {
            return;
        };
        text.push('\n');
        let _ = self.file.lock().write_all(text.as_bytes());
    }
}

/// Returns all complete lines of a record.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn read(path: &Path) -> anyhow::Result<Vec<RecordLine>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok(lines.collect())
}

/// Returns whole milliseconds.
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
