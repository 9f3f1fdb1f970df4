//! A field that is empty in most values of a type.
//!
//! Of a million pending jobs, few were ever evicted and none is charged. [`Rare`] costs the others
//! a pointer: it allocates only if the value is not empty. It reads as the value itself;
//! [`Rare::change`] changes it, and frees it when it becomes empty.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::Deref;

/// A type with an empty value.
pub(crate) trait Nothing: PartialEq + Clone + 'static {
    /// The empty value.
    const NOTHING: &'static Self;
}

/// A `T` that is allocated only if it is not empty.
#[derive(Clone)]
pub(crate) struct Rare<T>(Option<Box<T>>);

impl<T: Nothing> Rare<T> {
    pub(crate) fn new(value: T) -> Self {
        Self((value != *T::NOTHING).then(|| Box::new(value)))
    }

    /// Calls `change` with the value, and returns its result.
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        if let Some(known) = &mut self.0 {
            let result = change(known);
            if **known == *T::NOTHING {
                self.0 = None;
            }
            return result;
        }
        // Most changes leave an empty value empty, which needs no allocation.
        let mut value = T::NOTHING.clone();
        let result = change(&mut value);
        *self = Self::new(value);
        result
    }
}

impl<T: Nothing> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::NOTHING)
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Nothing> PartialEq for Rare<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Nothing + Eq> Eq for Rare<T> {}

impl<T: Nothing + fmt::Debug> fmt::Debug for Rare<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Nothing + Serialize> Serialize for Rare<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: Nothing + Deserialize<'de>> Deserialize<'de> for Rare<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Nothing for i64 {
        const NOTHING: &'static Self = &0;
    }

    #[test]
    fn allocates_only_while_it_is_not_empty() {
        let mut rare = Rare::new(0);
        assert!(rare.0.is_none());
        rare.change(|value| *value += 7);
        assert_eq!((*rare, rare.0.is_some()), (7, true));
        assert_eq!(format!("{rare:?}"), "7");
        rare.change(|value| *value -= 7);
        assert_eq!((*rare, rare.0.is_none()), (0, true));
        assert_eq!(rare, Rare::new(0));
        assert_ne!(rare, Rare::new(1));
        assert_eq!(
            std::mem::size_of::<Rare<i64>>(),
            std::mem::size_of::<usize>()
        );
    }
}
