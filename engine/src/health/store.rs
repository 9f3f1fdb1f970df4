//! The health store: the rules that classify what goes wrong with pods.
//!
//! Rules flow in, and classes of symptoms flow out. It knows no other store.

use crate::api::faults::{FaultClass, FaultRuleSet, Symptom};

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FaultHealth {
    rules: FaultRuleSet,
}

impl FaultHealth {
    /// Replaces the rules.
    pub(crate) fn set_rules(&mut self, rules: FaultRuleSet) {
        self.rules = rules;
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> &FaultRuleSet {
        &self.rules
    }

    /// Whose fault a symptom is.
    pub(crate) fn class_of(&self, symptom: &Symptom) -> FaultClass {
        self.rules.class_of(symptom)
    }
}
