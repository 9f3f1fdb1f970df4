//! The order of shared texts.

use std::cmp::Ordering;
use std::sync::Arc;

/// Compares two texts. Equal texts are mostly one and the same, which need not be read.
pub(crate) fn order_of_texts(one: &Arc<str>, other: &Arc<str>) -> Ordering {
    if Arc::ptr_eq(one, other) {
        return Ordering::Equal;
    }
    one.cmp(other)
}
