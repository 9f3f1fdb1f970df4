//! Names as shared texts, and their order.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Compares two texts. Equal texts are mostly one and the same, which need not be read.
#[inline]
pub(crate) fn order_of_texts(one: &Arc<str>, other: &Arc<str>) -> Ordering {
    if Arc::ptr_eq(one, other) {
        return Ordering::Equal;
    }
    one.cmp(other)
}

/// A count, which may be coarse (`~40`), with its noun: `1 pod`, `2 pods`.
#[must_use]
pub fn counted(count: impl fmt::Display, noun: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// A list of the first `shown` texts, and the number of the others.
#[must_use]
pub fn listed(mut all: Vec<String>, shown: usize) -> String {
    let more = all.len().saturating_sub(shown);
    all.truncate(shown);
    let list = all.join(", ");
    match more {
        0 => list,
        more => format!("{list}, and {more} more"),
    }
}

/// Defines the type of a name: a shared text that serializes as itself.
macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(std::sync::Arc<str>);

        // As derived, but for the pointers: names of one text are mostly one and the same, and
        // `Arc<str>` reads the texts all the same.
        impl PartialEq for $name {
            #[inline]
            fn eq(&self, other: &Self) -> bool {
                std::sync::Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
            }
        }

        impl std::hash::Hash for $name {
            #[inline]
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.0.hash(state);
            }
        }

        impl Ord for $name {
            #[inline]
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                $crate::texts::order_of_texts(&self.0, &other.0)
            }
        }

        impl PartialOrd for $name {
            #[inline]
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl $name {
            /// A name from its text.
            #[must_use]
            pub fn new(name: impl AsRef<str>) -> Self {
                Self(std::sync::Arc::from(name.as_ref()))
            }

            /// A name from a shared text, without a copy.
            #[must_use]
            pub fn shared(text: std::sync::Arc<str>) -> Self {
                Self(text)
            }

            /// The name's text.
            #[inline]
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self::new(name)
            }
        }
    };
}

pub(crate) use name_type;
