//! Whether one node has to be avoided, by its conditions and by the jobs that failed there.

use super::{NodeFailure, NodeState};
use crds::node_health::NodeAvoidance;
use engine::Time;
use engine::faults::FaultRuleSet;
use jiff::Timestamp;
use std::collections::BTreeSet;

impl NodeState {
    /// Returns the change that is due at `now`: `Some(None)` if the node is to be avoided no more, and `None` if
    /// it is as it should be. A taint that a person put there stays.
    pub(super) fn change(
        &mut self,
        rules: &FaultRuleSet,
        now: Time,
    ) -> Option<Option<NodeAvoidance>> {
        self.failures.retain(|failure| counts(failure, now));
        let wanted = || {
            self.by_condition(rules, now)
                .or_else(|| self.by_failures(now))
        };
        match &self.health.avoidance {
            None if self.health.is_avoided => None,
            None => wanted().map(Some),
            Some(is) if is.until.is_some() => is.is_over(timestamp(now)).then_some(None),
            // Its condition is over; what fails from now on counts.
            Some(_) => self.by_condition(rules, now).is_none().then_some(None),
        }
    }

    /// Returns why the node is avoided while a condition lasts.
    fn by_condition(&self, rules: &FaultRuleSet, now: Time) -> Option<NodeAvoidance> {
        let mut conditions = self.health.conditions.iter();
        conditions.find_map(|condition| {
            let rule = rules.node_rule_of(condition)?;
            Some(NodeAvoidance {
                class: rule.class.as_str().to_owned(),
                rule: rule.name.clone(),
                message: format!("its condition {condition} is True"),
                since: timestamp(now).to_string(),
                until: None,
            })
        })
    }

    /// Returns why the node is avoided for a while after jobs failed there.
    fn by_failures(&self, now: Time) -> Option<NodeAvoidance> {
        self.failures.iter().rev().find_map(|last| {
            let of_rule = || {
                self.failures
                    .iter()
                    .filter(|failure| failure.rule == last.rule)
            };
            let jobs: BTreeSet<_> = of_rule().map(|failure| &failure.job).collect();
            let namespaces: BTreeSet<_> = jobs.iter().map(|job| &job.namespace).collect();
            let is_enough = jobs.len() >= last.avoid.jobs as usize
                && namespaces.len() >= last.avoid.namespaces as usize;
            is_enough.then(|| NodeAvoidance {
                class: last.class.to_owned(),
                rule: last.rule.clone(),
                message: format!(
                    "{} failed there, the last, {}, with {}",
                    number(jobs.len()),
                    last.job,
                    last.symptom
                ),
                since: timestamp(now).to_string(),
                until: Some(timestamp(last.at.after(last.avoid.for_ms)).to_string()),
            })
        })
    }
}

/// Whether a failure still counts at `now`.
fn counts(failure: &NodeFailure, now: Time) -> bool {
    now.millis_since(failure.at) < failure.avoid.within_ms.min(failure.avoid.for_ms)
}

fn number(jobs: usize) -> String {
    match jobs {
        1 => "1 job".to_owned(),
        jobs => format!("{jobs} jobs"),
    }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_millisecond(time.0).unwrap_or_default()
}
