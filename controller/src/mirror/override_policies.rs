//! Which generation each override policy of other managers has.

use crds::karmada::AppliedOverride;
use runtime::watch::ObjectKey;
use std::collections::HashMap;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct OverridePolicies {
    /// By namespace and name; a policy without a namespace applies to all of them.
    generations: HashMap<ObjectKey, i64>,
}

impl OverridePolicies {
    /// Records the generation of an override policy, or its end; returns true if it changed.
    pub(crate) fn note(&mut self, policy: ObjectKey, generation: Option<i64>) -> bool {
        match generation {
            Some(generation) => {
                let before = self.generations.insert(policy, generation);
                before != Some(generation)
            }
            None => self.generations.remove(&policy).is_some(),
        }
    }

    /// Returns the generation of a policy that can override a job of `namespace`, if it exists.
    pub(crate) fn generation(&self, policy: &AppliedOverride, namespace: &str) -> Option<i64> {
        let key = ObjectKey {
            namespace: (!policy.cluster_wide).then(|| namespace.to_owned()),
            name: policy.name.clone(),
        };
        self.generations.get(&key).copied()
    }
}
