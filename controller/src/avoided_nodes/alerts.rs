//! Alerts about nodes: each is a reason to avoid its node while it fires, by a rule with `node.alerts`.
//!
//! Alertmanager repeats what fires and says what is resolved. An alert that is not repeated in the time of the rule is
//! over. Until then the taint's annotation says until when the node is avoided, so that a restart forgets nothing.

use super::rules::{TaintNeed, timestamp};
use super::{Avoided, AvoidedNodes, NodeState};
use crds::node_alert::NodeAlert;
use crds::node_health::{ALERT, NodeAvoidance};
use engine::Time;
use engine::faults::{FaultRuleSet, NodeFaultRule, Symptom};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The most alerts of one node that are known at a time.
const MOST_OF_NODE: usize = 32;
/// Milliseconds after which an alert that is not repeated is forgotten, whatever the rules say.
const FORGET_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// Milliseconds by which a repetition has to move the end of an avoidance to be written.
const EXTEND_MS: i64 = 60_000;

/// An alert that fires.
#[derive(Debug)]
struct FiringAlert {
    name: String,
    symptom: Symptom,
    since: Timestamp,
    /// When it was last posted.
    seen: Time,
}

/// The alerts of one node.
#[derive(Debug, Default)]
pub(super) struct NodeAlerts {
    firing: BTreeMap<String, FiringAlert>,
    /// Names of alerts that were resolved, as long as the node is avoided.
    resolved: BTreeSet<String>,
}

impl AvoidedNodes {
    /// Applies an alert about a node that exists.
    pub(crate) fn alert(&mut self, alert: NodeAlert, now: Time) {
        self.compared_at = None;
        let state = self.state_of((alert.cluster.clone(), alert.node.clone()));
        let alerts = &mut state.alerts;
        if !alert.firing {
            alerts.firing.remove(&alert.fingerprint);
            let others = alerts.firing.values().any(|other| other.name == alert.name);
            if !others {
                alerts.resolved.insert(alert.name);
            }
            return;
        }
        alerts.resolved.remove(&alert.name);
        let is_known = alerts.firing.contains_key(&alert.fingerprint);
        if alerts.firing.len() >= MOST_OF_NODE && !is_known {
            return;
        }
        let firing = FiringAlert {
            symptom: Symptom {
                reason: format!("{ALERT}{}", alert.name),
                message: alert.message,
                exit_code: None,
            },
            name: alert.name,
            since: alert.since,
            seen: now,
        };
        alerts.firing.insert(alert.fingerprint, firing);
    }
}

impl NodeAlerts {
    /// Returns true if nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        self.firing.is_empty() && self.resolved.is_empty()
    }

    /// Forgets what is old at `now`, and what was resolved if the node is not avoided.
    pub(super) fn forget(&mut self, is_avoided: bool, now: Time) {
        self.firing
            .retain(|_, alert| now.millis_since(alert.seen) < FORGET_MS);
        if !is_avoided {
            self.resolved.clear();
        }
    }
}

impl NodeState {
    /// Returns why the node is avoided because of an alert that fires, and until when it is if that is not repeated.
    pub(super) fn by_alert(&self, rules: &FaultRuleSet, now: Time) -> Option<Avoided> {
        let fire = self.counting().filter_map(|alert| {
            let rule = rules.node_rule_of(&alert.symptom)?;
            while_repeated(alert, rule, now)
        });
        let last = fire.max_by_key(|(until, _)| *until);
        last.map(|(_, avoided)| avoided)
    }

    /// Returns why policies in a dry run would have the node avoided, by policy.
    pub(super) fn would_by_alert(
        &self,
        rules: &FaultRuleSet,
        now: Time,
    ) -> impl Iterator<Item = (String, Avoided)> {
        self.counting().flat_map(move |alert| {
            let rules = rules.node_rules_of(&alert.symptom);
            let dry = rules.filter(|rule| rule.dry_run);
            dry.filter_map(move |rule| {
                let (_, avoided) = while_repeated(alert, rule, now)?;
                Some((rule.policy.clone(), avoided))
            })
        })
    }

    /// Returns the alerts that count: those that began after the node was cleared.
    fn counting(&self) -> impl Iterator<Item = &FiringAlert> {
        let cleared = self.counts_since();
        let firing = self.alerts.firing.values();
        firing.filter(move |alert| cleared.is_none_or(|cleared| cleared < alert.since))
    }

    /// Returns what becomes of a node that is avoided because of the alert `name`.
    pub(super) fn change_of_alert(
        &self,
        (is, name): (&NodeAvoidance, &str),
        rules: &FaultRuleSet,
        now: Time,
    ) -> Option<TaintNeed> {
        let resolved = self.alerts.resolved.contains(name);
        let Some(mut fires) = self.by_alert(rules, now) else {
            if resolved {
                return Some(TaintNeed::Return("its alert is resolved"));
            }
            let over = is.is_over(timestamp(now));
            return over.then_some(TaintNeed::Return("its alert was not repeated"));
        };
        if resolved && fires.avoidance.alert.as_deref() != Some(name) {
            return Some(TaintNeed::Avoid(fires)); // another one fires
        }
        let end = |avoidance: &NodeAvoidance| {
            let until = avoidance.until.as_ref()?;
            until.parse().ok().map(Timestamp::as_millisecond)
        };
        let moves = end(&fires.avoidance)?.saturating_sub(end(is).unwrap_or(0));
        (moves >= EXTEND_MS).then(|| {
            let until = fires.avoidance.until.take();
            // No news: only its end has moved.
            TaintNeed::Avoid(Avoided {
                told: String::new(),
                avoidance: NodeAvoidance {
                    until,
                    ..is.clone()
                },
            })
        })
    }
}

/// Returns until when an alert lasts by a rule, and what is said of it; `None` if it was not repeated.
fn while_repeated(alert: &FiringAlert, rule: &NodeFaultRule, now: Time) -> Option<(Time, Avoided)> {
    let until = alert.seen.after(rule.alerts_for_ms);
    if until <= now {
        return None;
    }
    let text = match alert.symptom.message.as_str() {
        "" => String::new(),
        text => format!(" ({text})"),
    };
    let message = format!("the alert {}{text} fires", alert.name);
    let mut avoided = Avoided::by_rule(rule, message, now);
    avoided.avoidance.until = Some(timestamp(until).to_string());
    avoided.avoidance.alert = Some(alert.name.clone());
    Some((until, avoided))
}

#[cfg(test)]
mod tests;
