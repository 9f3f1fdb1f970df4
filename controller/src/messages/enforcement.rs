//! The state of the admission policies, as jobs depend on it.

use engine::Reason;
use engine::decision::Explanation;

/// Whether the admission policies keep tenants from writing objects of Karmada and Muster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Enforcement {
    /// Not required (`--without-admission-policies`).
    NotRequired,
    /// Not checked yet.
    Unknown,
    /// A tenant is refused, and Muster is not.
    InForce,
    /// The policies do not refuse a tenant, or they refuse Muster; the text says why and what to do.
    Broken(String),
}

impl Enforcement {
    /// The state before the first check.
    pub(crate) fn at_start(required: bool) -> Self {
        match required {
            true => Self::Unknown,
            false => Self::NotRequired,
        }
    }

    /// Makes a pending job say that Muster decides nothing. The cause is for operators: it is in the log and
    /// in an event on the Lease.
    pub(crate) fn show_in(&self, explanation: &mut Explanation) {
        let waits = explanation.ahead.is_some() || explanation.reason == Reason::NotEvaluated;
        if matches!(self, Self::Broken(_)) && waits {
            explanation.reason = Reason::NotEvaluated;
            explanation.message = "no job is started until the admission policies of the control \
                plane are in force again; its operator finds the cause in the events of muster-system"
                .to_owned();
            explanation.blocker = None;
            explanation.evidence.clear();
            explanation.start = None;
        }
    }

    /// Returns true if jobs may be admitted, resized and evicted.
    pub(crate) fn allows_decisions(&self) -> bool {
        matches!(self, Self::NotRequired | Self::InForce)
    }
}
