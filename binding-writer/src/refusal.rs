//! What it means for a job that its placement, or an object that its placement needs, was not written. Pure.
//!
//! A job that is admitted again has others evicted for it again. So a refusal that depends on the job is noted in
//! its record, and the job waits until its template or its placement changes.

use crate::WriteFailure;
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, RecordState};
use facts::Reason;
use jiff::{SignedDuration, Timestamp};
use std::fmt;

/// After which time a placement is tried again that was forbidden: a quota may be free by then, or a webhook may have
/// other rules.
const FORBIDDEN_FOR: SignedDuration = SignedDuration::from_mins(60);
/// What a refusal of the write to the binding is about.
const PLACEMENT: &str = "the placement";
/// Most bytes of the server's message that are kept: it may quote what it refused.
const MESSAGE_BYTES: usize = 1_024;

/// What the API server refused of a job, and would refuse again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRefusal {
    what: &'static str,
    code: u16,
    message: String,
}

impl ServerRefusal {
    /// Returns the refusal of `what` ("its OverridePolicy") with an HTTP status and the server's message; `None` if it
    /// does not depend on the job.
    #[must_use]
    pub fn of(what: &'static str, code: u16, message: &str) -> Option<Self> {
        let of_job = code != 403 || !is_own_right(message);
        of_job.then(|| Self {
            what,
            code,
            message: message.to_owned(),
        })
    }

    /// Returns the refusal of a placement; `None` if `failure` does not depend on the job.
    #[must_use]
    pub fn of_placement(failure: &WriteFailure) -> Option<Self> {
        match failure {
            WriteFailure::Refused { code, message } => Self::of(PLACEMENT, *code, message),
            _ => None,
        }
    }
}

impl fmt::Display for ServerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&refused(self.what, self.code, &self.message))
    }
}

fn refused(what: &str, code: u16, message: &str) -> String {
    let message = shortened(message);
    format!("the API server refused {what} ({code}): {message}")
}

/// Returns the message about a placement that was not written.
#[must_use]
pub fn message(failure: &WriteFailure) -> String {
    match failure {
        WriteFailure::Conflict => {
            "the binding changed while it was being placed; it is decided again".to_owned()
        }
        WriteFailure::Gone => "the binding is gone".to_owned(),
        WriteFailure::NotLeading => "another replica leads now".to_owned(),
        WriteFailure::Refused { code, message } => refused(PLACEMENT, *code, message),
        WriteFailure::Unavailable { message } => {
            format!(
                "the API server did not take the placement: {}",
                shortened(message)
            )
        }
    }
}

/// Returns `record`, of the attempt that was to place `binding`, in `state` with the note that the API server has
/// refused it and would again.
#[must_use]
pub fn noted(
    record: &AdmissionRecord,
    state: RecordState,
    binding: &ResourceBinding,
    refusal: &ServerRefusal,
    now: Timestamp,
) -> AdmissionRecord {
    let reason = Some(Reason::PlanRefused);
    let mut record = record
        .in_state(state, reason, &refusal.to_string())
        .with_refused_placement(binding);
    let until = now.checked_add(FORBIDDEN_FOR).ok();
    record.not_before = until.filter(|_| refusal.code == 403);
    record
}

/// Returns true if the server says that Muster's own account may not write such objects: that concerns all jobs, and
/// an administrator mends it. The text is that of Kubernetes' authorizers: `User "a" cannot patch resource "b"`.
fn is_own_right(message: &str) -> bool {
    let denied = message.split_once("\" cannot ");
    denied.is_some_and(|(_, what)| what.contains(" resource \""))
}

fn shortened(message: &str) -> String {
    if message.len() <= MESSAGE_BYTES {
        return message.to_owned();
    }
    let ends = message.char_indices().map(|(at, _)| at);
    let end = ends.take_while(|at| *at <= MESSAGE_BYTES).last();
    format!("{}…", &message[..end.unwrap_or_default()])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn refused(code: u16, message: &str) -> WriteFailure {
        WriteFailure::Refused {
            code,
            message: message.to_owned(),
        }
    }

    #[test]
    fn a_refusal_that_depends_on_the_job_is_noted() {
        let record: AdmissionRecord = serde_json::from_value(json!({
            "templateUID": "u", "attempt": 2, "state": "Planned", "queue": "q",
            "time": "2026-11-26T00:00:00Z",
        }))
        .unwrap();
        let binding = ResourceBinding::default();
        let now: Timestamp = "2026-11-26T00:00:00Z".parse().unwrap();
        let rights = r#"resourcebindings.work.karmada.io "a" is forbidden: User "muster" cannot patch resource "resourcebindings" in API group "work.karmada.io""#;
        let creating = r#"overridepolicies.policy.karmada.io is forbidden: User "muster" cannot create resource "overridepolicies" in API group "policy.karmada.io" in the namespace "team""#;
        let unavailable = WriteFailure::Unavailable {
            message: "no".to_owned(),
        };
        for (failure, until) in [
            (refused(422, "metadata.annotations: Too long"), Some(None)),
            (refused(413, "x"), Some(None)),
            (
                refused(403, "exceeded quota: small"),
                Some(Some("2026-11-26T01:00:00Z")),
            ),
            (
                refused(403, "admission webhook \"x\" denied the request: no"),
                Some(Some("2026-11-26T01:00:00Z")),
            ),
            (refused(403, rights), None),
            (refused(403, creating), None),
            (WriteFailure::Conflict, None),
            (WriteFailure::Gone, None),
            (unavailable, None),
        ] {
            let refusal = ServerRefusal::of_placement(&failure);
            let noted = refusal.map(|of| noted(&record, RecordState::Requeued, &binding, &of, now));
            let seen = noted.as_ref().map(|noted| noted.not_before);
            let wanted = until.map(|until| until.map(|at| at.parse().unwrap()));
            assert_eq!(seen, wanted, "{failure}");
            if let Some(noted) = noted {
                assert!(noted.refuses_placement_of(&binding));
                assert_eq!(noted.state, RecordState::Requeued);
                assert!(
                    noted
                        .message
                        .starts_with("the API server refused the placement (")
                );
            }
        }
    }

    #[test]
    fn a_message_that_quotes_the_object_is_shortened() {
        let long = format!("Invalid value: {}", "ü".repeat(100_000));
        let said = message(&refused(422, &long));
        assert!(said.len() < 1_200 && said.ends_with('…'), "{}", said.len());
    }
}
