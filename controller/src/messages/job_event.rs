//! What happened to a job, as an event on its user's object.

use engine::Reason;

/// Kubernetes' limit of an event's note, in bytes.
pub(crate) const LONGEST_NOTE: usize = 1_024;
/// The action of events that say what a job waits for.
pub(crate) const WAIT: &str = "Wait";
/// The action of events that repeat those of Karmada's scheduler. All others go before them.
pub(crate) const PLACE: &str = "Schedule";
/// The action of events about values of a template. They are due again with each change of the template.
pub(crate) const VALIDATE: &str = "Validate";

/// An event on a user's object: a reason, an action and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobEvent {
    pub(crate) reason: Reason,
    pub(crate) action: &'static str,
    pub(crate) message: String,
    /// True if it is of type Warning.
    pub(crate) warning: bool,
}

impl JobEvent {
    pub(crate) fn normal(reason: Reason, action: &'static str, message: String) -> Self {
        Self {
            reason,
            action,
            message,
            warning: false,
        }
    }

    pub(crate) fn warning(reason: Reason, action: &'static str, message: String) -> Self {
        Self {
            reason,
            action,
            message,
            warning: true,
        }
    }
}

/// Shortens a text to at most `most` bytes.
pub(crate) fn truncated(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = text.floor_char_boundary(most.saturating_sub(3));
        text.truncate(end);
        text.push_str("...");
    }
    text
}
