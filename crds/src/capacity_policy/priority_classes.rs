//! Which PriorityClasses the jobs of a queue may have.

use super::CapacityPolicy;

/// How many of the listed classes a message names.
const CLASSES_NAMED: usize = 5;

/// A PriorityClass that a queue does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedClass {
    /// Its name.
    pub class: String,
    /// The classes that the queue allows, in words for messages: the first by name, or `none`.
    pub listed: String,
}

impl CapacityPolicy {
    /// Returns the first of `classes` whose jobs may not be submitted, if there is one. The class of a job that
    /// names none is the cluster's default.
    #[must_use]
    pub fn refused_class<'a>(
        &self,
        mut classes: impl Iterator<Item = &'a str>,
    ) -> Option<RefusedClass> {
        let listed = self.spec.priority_classes.as_ref()?;
        let class = classes.find(|class| !listed.iter().any(|one| one == class))?;
        Some(RefusedClass {
            class: class.to_owned(),
            listed: in_words(listed.clone()),
        })
    }
}

fn in_words(mut classes: Vec<String>) -> String {
    classes.sort();
    match classes.is_empty() {
        true => "none".to_owned(),
        false => engine::listed(classes, CLASSES_NAMED),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn refused(spec: &Value, classes: &[&str]) -> Option<(String, String)> {
        let object = json!({"metadata": {"name": "q"}, "spec": spec});
        let policy: CapacityPolicy = serde_json::from_value(object).unwrap();
        let refused = policy.refused_class(classes.iter().copied())?;
        Some((refused.class, refused.listed))
    }

    #[test]
    fn a_class_that_is_not_listed_is_refused_with_those_that_are() {
        let words = |class: &str, listed: &str| Some((class.to_owned(), listed.to_owned()));
        assert_eq!(refused(&json!({}), &["any"]), None);
        let two = json!({"priorityClasses": ["low", "high"]});
        assert_eq!(refused(&two, &["low", "high"]), None);
        assert_eq!(refused(&two, &[]), None);
        assert_eq!(refused(&two, &["low", "top"]), words("top", "high, low"));
        let none = json!({"priorityClasses": []});
        assert_eq!(refused(&none, &["low"]), words("low", "none"));
        let many = json!({"priorityClasses": ["g", "f", "e", "d", "c", "b", "a"]});
        assert_eq!(
            refused(&many, &["h"]),
            words("h", "a, b, c, d, e, and 2 more")
        );
    }
}
