//! Which PriorityClasses the jobs of a queue may have.

use super::CapacityPolicy;

/// How many of the listed classes a message names.
const CLASSES_NAMED: usize = 5;
/// Prefix of the classes that every API server creates for its cluster's own pods. Kubernetes allows no others
/// with it.
const SYSTEM_PREFIX: &str = "system-";

/// Returns true for a PriorityClass that every API server creates itself.
#[must_use]
pub fn is_system_class(name: &str) -> bool {
    name.starts_with(SYSTEM_PREFIX)
}

/// A PriorityClass that a queue does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedClass {
    /// Its name.
    pub class: String,
    /// The classes that the queue allows, in words for messages: the first by name, or `none`.
    pub listed: String,
    /// True if the queue lists none, which leaves out those of the system.
    pub unset: bool,
}

impl RefusedClass {
    /// Returns why the class is refused in `queue`, as a clause.
    #[must_use]
    pub fn why(&self, queue: &str) -> String {
        let class = &self.class;
        match self.unset {
            true => format!(
                "spec.priorityClasses of capacitypolicy {queue} is unset, which leaves out PriorityClass {class}: \
                 pods of the system have it, and a member's scheduler would evict others' pods for them"
            ),
            false => format!(
                "spec.priorityClasses of capacitypolicy {queue} does not list PriorityClass {class}"
            ),
        }
    }
}

/// Returns the first of `classes` whose jobs may not be submitted to a queue with `policy`, if there is one. The
/// class of a job that names none is the cluster's default. A queue that lists no classes allows all but those of
/// the system: a member's scheduler would evict others' pods for them.
#[must_use]
pub fn refused_class<'a>(
    policy: Option<&CapacityPolicy>,
    mut classes: impl Iterator<Item = &'a str>,
) -> Option<RefusedClass> {
    let listed = policy.and_then(|policy| policy.spec.priority_classes.as_ref());
    let allows = |class: &str| match listed {
        Some(listed) => listed.iter().any(|one| one == class),
        None => !is_system_class(class),
    };
    let class = classes.find(|class| !allows(class))?;
    Some(RefusedClass {
        class: class.to_owned(),
        listed: listed.map_or_else(
            || format!("all but {SYSTEM_PREFIX}*"),
            |listed| in_words(listed.clone()),
        ),
        unset: listed.is_none(),
    })
}

fn in_words(mut classes: Vec<String>) -> String {
    classes.sort();
    match classes.is_empty() {
        true => "none".to_owned(),
        false => facts::listed(classes, CLASSES_NAMED),
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
        let refused = refused_class(Some(&policy), classes.iter().copied())?;
        Some((refused.class, refused.listed))
    }

    #[test]
    fn classes_of_the_system_are_refused_unless_they_are_listed() {
        let system = "system-node-critical";
        let words = Some((system.to_owned(), "all but system-*".to_owned()));
        assert_eq!(refused(&json!({}), &["high", system]), words);
        assert_eq!(
            refused(&json!({"priorityClasses": ["high", system]}), &[system]),
            None
        );
        let none = refused_class(None, [system].into_iter()).unwrap();
        assert!(none.unset);
        assert!(none.why("q").contains("is unset, which leaves out"));
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
