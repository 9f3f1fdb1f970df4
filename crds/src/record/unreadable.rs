//! Records that this version must not act on, and their readable fields.

use super::{RecordState, RecordedShare, VERSION};
use crate::names::ADMISSION_ANNOTATION;
use facts::{Attempt, QueueName, Uid};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// An existing record that cannot be acted on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {ADMISSION_ANNOTATION} {why}")]
pub struct RecordError {
    /// The reason.
    pub why: Unreadable,
    /// The readable fields.
    pub readable: Box<Readable>,
}

/// Why a record cannot be acted on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A later version of Muster has written it.
    #[error(
        "was written by a later version of Muster ({0}); that version, or a later one, acts on it"
    )]
    Later(String),
    /// No version of Muster has written it.
    #[error("is not an admission record: {0}")]
    Garbage(String),
}

/// The readable fields of a record that cannot be acted on: enough to charge it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readable {
    /// UID of the template that was admitted.
    pub template_uid: Option<Uid>,
    /// The number of the attempt.
    pub attempt: Option<Attempt>,
    /// Its progress, if this version knows the state.
    pub state: Option<RecordState>,
    /// The queue that is charged.
    pub queue: Option<QueueName>,
    /// The readable shares.
    pub clusters: Vec<RecordedShare>,
}

impl RecordError {
    /// Reads `text`, which is of a later version, or was refused with `error`.
    pub(super) fn of(text: &str, error: Option<&serde_json::Error>) -> Self {
        let object: Option<Map<String, Value>> = serde_json::from_str(text).ok();
        let readable = object.as_ref().map(Readable::of).unwrap_or_default();
        let version = object.as_ref().and_then(|o| o.get("version"));
        let version = version.and_then(Value::as_u64).unwrap_or(1);
        let because = error.map_or_else(String::new, ToString::to_string);
        // A record has all fields that every version has, and a state as text.
        let is_record = readable.template_uid.is_some()
            && readable.attempt.is_some()
            && readable.queue.is_some()
            && object
                .as_ref()
                .is_some_and(|object| object["state"].is_string());
        let why = if version > u64::from(VERSION) {
            Unreadable::Later(format!(
                "its version is {version}, and this one reads {VERSION}"
            ))
        } else if is_record {
            Unreadable::Later(because)
        } else {
            Unreadable::Garbage(because)
        };
        Self {
            why,
            readable: Box::new(readable),
        }
    }

    /// Returns true if no version of Muster has written it.
    #[must_use]
    pub fn is_garbage(&self) -> bool {
        matches!(self.why, Unreadable::Garbage(_))
    }
}

impl Readable {
    fn of(object: &Map<String, Value>) -> Self {
        let shares = object.get("clusters").and_then(Value::as_array);
        Self {
            template_uid: read(object.get("templateUID")),
            attempt: read(object.get("attempt")),
            state: read(object.get("state")),
            queue: read(object.get("queue")),
            clusters: shares
                .into_iter()
                .flatten()
                .filter_map(|share| read(Some(share)))
                .collect(),
        }
    }
}

fn read<T: DeserializeOwned>(value: Option<&Value>) -> Option<T> {
    serde_json::from_value(value?.clone()).ok()
}
