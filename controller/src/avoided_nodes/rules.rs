//! Whether one node has to be avoided, by its conditions and by the jobs that failed there.

use super::{Avoided, NodeFailure, NodeState};
use crate::ending_nodes::MOVE_BEFORE_MS;
use crds::node_health::{NodeAvoidance, NodeCondition};
use engine::faults::{FaultClass, FaultRuleSet, NodeFaultRule};
use engine::{Time, counted};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// What is to be done with the taint of a node.
#[derive(Debug, Clone)]
pub(super) enum TaintNeed {
    Avoid(Avoided),
    /// It is avoided no more, for this reason.
    Return(&'static str),
}

impl NodeState {
    /// Returns the change that is due at `now`, or `None` if the node is as it should be. A taint that a person
    /// put there stays.
    pub(super) fn change(&mut self, rules: &FaultRuleSet, now: Time) -> Option<TaintNeed> {
        self.failures.retain(|failure| counts(failure, now));
        let wanted = || {
            self.by_end(now)
                .or_else(|| self.by_condition(rules, now))
                .or_else(|| self.by_alert(rules, now))
                .or_else(|| self.by_failures(None, now))
        };
        let ended_by = |at: Option<Timestamp>, is: &NodeAvoidance| {
            at.is_some_and(|at| is.is_cleared(at)) && !is.is_end()
        };
        let cleared = |is: &NodeAvoidance| self.cleared.is_some_and(|at| is.is_cleared(at));
        match &self.health.avoidance {
            None if self.health.is_avoided => None,
            None => wanted().map(TaintNeed::Avoid),
            Some(is) if cleared(is) => Some(TaintNeed::Return("a person has cleared it")),
            Some(is) if ended_by(self.remediated, is) => {
                Some(TaintNeed::Return("its remediation has succeeded"))
            }
            Some(
                is @ NodeAvoidance {
                    alert: Some(name), ..
                },
            ) => self.change_of_alert((is, name), rules, now),
            Some(is) if is.until.is_some() => is
                .is_over(timestamp(now))
                .then_some(TaintNeed::Return("its time is over")),
            // Its condition is over; what fails from now on counts.
            Some(_) => self
                .by_condition(rules, now)
                .is_none()
                .then_some(TaintNeed::Return("its condition is over")),
        }
    }

    /// Returns why policies in a dry run would have the node avoided, by policy.
    pub(super) fn would(&self, rules: &FaultRuleSet, now: Time) -> BTreeMap<String, Avoided> {
        let mut found = BTreeMap::new();
        for condition in self.conditions() {
            let rules = rules.node_rules_of(&condition.symptom);
            for rule in rules.filter(|rule| rule.dry_run) {
                let avoided = || Avoided::by_rule(rule, condition.words(), now);
                found.entry(rule.policy.clone()).or_insert_with(avoided);
            }
        }
        for (policy, avoided) in self.would_by_alert(rules, now) {
            found.entry(policy).or_insert(avoided);
        }
        let policies = self
            .failures
            .iter()
            .filter_map(|failure| failure.dry_run.clone());
        for policy in policies.collect::<BTreeSet<_>>() {
            if let Some(avoided) = self.by_failures(Some(&policy), now) {
                found.entry(policy).or_insert(avoided);
            }
        }
        found
    }

    /// Returns the conditions that count: those that began after a person cleared the node. Kubernetes writes
    /// their times in whole seconds, so that one of the same second may have begun after it, and counts.
    fn conditions(&self) -> impl Iterator<Item = &NodeCondition> {
        let cleared = self.counts_since().map(Timestamp::as_second);
        let counts = move |condition: &&NodeCondition| {
            let since = condition.since.map(Timestamp::as_second);
            cleared.is_none_or(|cleared| since.is_some_and(|since| cleared <= since))
        };
        self.health.conditions.iter().filter(counts)
    }

    /// Returns why the node is avoided shortly before it ends: jobs leave it, and others must not come.
    fn by_end(&self, now: Time) -> Option<Avoided> {
        let at = Time(self.health.ends_at?.as_millisecond());
        let left = at.millis_since(now);
        let from = timestamp(Time(at.0.saturating_sub(MOVE_BEFORE_MS)));
        let cleared = self.cleared.is_some_and(|cleared| from <= cleared);
        let is_soon = (1..=MOVE_BEFORE_MS).contains(&left) && !cleared;
        is_soon.then(|| {
            let message = format!("it ends at {}", timestamp(at));
            Avoided {
                told: message.clone(),
                avoidance: NodeAvoidance {
                    class: FaultClass::Node.as_str().to_owned(),
                    rule: NodeAvoidance::ENDS.to_owned(),
                    policy: String::new(),
                    message,
                    since: timestamp(now).to_string(),
                    until: Some(timestamp(at).to_string()),
                    alert: None,
                },
            }
        })
    }

    /// Returns why the node is avoided while a condition lasts.
    fn by_condition(&self, rules: &FaultRuleSet, now: Time) -> Option<Avoided> {
        let mut conditions = self.conditions();
        conditions.find_map(|condition| {
            let rule = rules.node_rule_of(&condition.symptom)?;
            Some(Avoided::by_rule(rule, condition.words(), now))
        })
    }

    /// Returns why the node is avoided for a while after jobs failed there: by the rules in force, or by those
    /// of the policy `dry_run`.
    fn by_failures(&self, dry_run: Option<&str>, now: Time) -> Option<Avoided> {
        let of_kind = |failure: &&NodeFailure| failure.dry_run.as_deref() == dry_run;
        self.failures.iter().rev().filter(of_kind).find_map(|last| {
            let of_rule = |failure: &&NodeFailure| {
                (&failure.policy, &failure.rule) == (&last.policy, &last.rule)
            };
            let failures = self.failures.iter().filter(of_kind).filter(of_rule);
            let jobs: BTreeSet<_> = failures.map(|failure| &failure.job).collect();
            let namespaces: BTreeSet<_> = jobs.iter().map(|job| &job.namespace).collect();
            let is_enough = jobs.len() >= last.avoid.jobs as usize
                && namespaces.len() >= last.avoid.namespaces as usize;
            is_enough.then(|| after_failures(last, jobs.len(), namespaces.len(), now))
        })
    }
}

impl Avoided {
    /// The node is avoided by a rule, for as long as what it says lasts.
    pub(super) fn by_rule(rule: &NodeFaultRule, message: String, now: Time) -> Self {
        Self {
            told: message.clone(),
            avoidance: NodeAvoidance {
                class: rule.class.as_str().to_owned(),
                rule: rule.name.clone(),
                policy: rule.policy.clone(),
                message,
                since: timestamp(now).to_string(),
                until: None,
                alert: None,
            },
        }
    }
}

/// An event is read by more people than the status of a pool: it has no names of jobs and no text of theirs.
fn after_failures(last: &NodeFailure, jobs: usize, namespaces: usize, now: Time) -> Avoided {
    let (jobs, namespaces) = (counted(jobs, "job"), counted(namespaces, "namespace"));
    let code = last.symptom.exit_code;
    let code = code.map_or_else(String::new, |code| format!(", exit code {code}"));
    Avoided {
        told: format!(
            "{jobs} of {namespaces} failed there, the last with {}{code}",
            last.symptom.reason
        ),
        avoidance: NodeAvoidance {
            class: last.class.to_owned(),
            rule: last.rule.clone(),
            policy: last.policy.clone(),
            message: format!(
                "{jobs} failed there, the last, {}, with {}",
                last.job, last.symptom
            ),
            since: timestamp(now).to_string(),
            until: Some(timestamp(last.at.after(last.avoid.for_ms)).to_string()),
            alert: None,
        },
    }
}

/// Returns true if a failure still counts at `now`.
fn counts(failure: &NodeFailure, now: Time) -> bool {
    now.millis_since(failure.at) < failure.avoid.within_ms.min(failure.avoid.for_ms)
}

pub(super) fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_millisecond(time.0).unwrap_or_default()
}
