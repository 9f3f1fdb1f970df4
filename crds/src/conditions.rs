//! Conditions as in Kubernetes: one for each type, and the transition time changes only with the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The content of a condition, without its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement<'a> {
    /// Its type.
    pub type_: &'a str,
    /// The status; `None` is Unknown.
    pub holds: Option<bool>,
    /// A CamelCase word.
    pub reason: &'a str,
    /// A sentence with numbers and units.
    pub message: &'a str,
}

impl Statement<'_> {
    /// Returns `True`, `False` or `Unknown`.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match self.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }
}

/// Sets `statement` in `conditions`; the transition time becomes `now` only if the status changes. Returns
/// true if anything changed.
pub fn set(
    conditions: &mut Vec<Condition>,
    statement: &Statement<'_>,
    generation: Option<i64>,
    now: jiff::Timestamp,
) -> bool {
    let old = conditions
        .iter()
        .position(|condition| condition.type_ == statement.type_);
    let since = old
        .map(|index| &conditions[index])
        .filter(|condition| condition.status == statement.status())
        .map_or(Time(now), |condition| {
            condition.last_transition_time.clone()
        });
    let new = Condition {
        type_: statement.type_.to_owned(),
        status: statement.status().to_owned(),
        reason: statement.reason.to_owned(),
        message: statement.message.to_owned(),
        observed_generation: generation,
        last_transition_time: since,
    };
    match old {
        Some(index) if conditions[index] == new => false,
        Some(index) => {
            conditions[index] = new;
            true
        }
        None => {
            conditions.push(new);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_moves_only_with_the_status() {
        let at = |seconds| jiff::Timestamp::from_second(seconds).unwrap_or_default();
        let say = |holds, message| Statement {
            type_: "Valid",
            holds: Some(holds),
            reason: "Checked",
            message,
        };
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, &say(true, "a"), Some(1), at(1)));
        assert!(!set(&mut conditions, &say(true, "a"), Some(1), at(2)));
        assert!(set(&mut conditions, &say(true, "b"), Some(2), at(3)));
        assert_eq!(conditions[0].last_transition_time.0, at(1));
        assert!(set(&mut conditions, &say(false, "b"), Some(2), at(4)));
        assert_eq!(conditions[0].last_transition_time.0, at(4));
        assert_eq!(conditions.len(), 1);
    }
}
