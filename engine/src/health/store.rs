//! The health store: the rules that classify what goes wrong with pods.
//!
//! Rules flow in, and classes of symptoms flow out. It knows no other store.

use crate::api::faults::{FaultClass, FaultRules, Symptom};

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Health {
    rules: FaultRules,
}

impl Health {
    /// Replaces the rules.
    pub(crate) fn set_rules(&mut self, rules: FaultRules) {
        self.rules = rules;
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> &FaultRules {
        &self.rules
    }

    /// Whose fault a symptom is.
    pub(crate) fn class_of(&self, symptom: &Symptom) -> FaultClass {
        self.rules.class_of(symptom)
    }
}
