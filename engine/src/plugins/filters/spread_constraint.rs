//! `SpreadConstraint`: the cluster has what the job's spread constraints group clusters by (as Karmada's plugin of
//! that name).

use crate::plugins::filter::{Filter, Question};

/// See the module.
pub(crate) struct SpreadConstraint;

impl Filter for SpreadConstraint {
    fn refuses(&self, question: &Question<'_>) -> Option<String> {
        let mut rules = question.placement.spread.iter();
        rules.find_map(|rule| {
            let groups = rule.by.groups(question.cluster).len();
            match rule.max {
                _ if groups == 0 => Some(format!("it has no {} to spread by", rule.by)),
                Some(max) if groups > max as usize => Some(format!(
                    "it is in {groups} groups by {}, and the job may be in {max}",
                    rule.by
                )),
                _ => None,
            }
        })
    }
}
