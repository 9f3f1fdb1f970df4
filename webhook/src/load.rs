//! Limits on what the webhook serves at a time.
//!
//! A request takes a slot and space for its body before any of the body is read, and releases both with the
//! answer. If none is free, it is answered at once: 429 with `Retry-After`. The API server retries within
//! the registration's `timeoutSeconds`; after that the registration's `failurePolicy` decides. Nothing
//! waits here, so that a refused request costs almost nothing. Large requests get only half of the bytes, so
//! that they do not keep others out.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests of more bytes are large.
pub(crate) const LARGE: usize = 4 * 1024 * 1024;
/// Number of bytes that count as one unit.
const UNIT: usize = 1024;

/// Limits on what is served at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Requests, from their first byte until they are answered.
    pub requests: usize,
    /// Total bytes of their bodies.
    pub bytes: usize,
}

impl Default for RequestLimits {
    /// More requests than an API server has in flight by default (`--max-mutating-requests-inflight`, 200),
    /// and sixteen bodies of 4 MiB.
    fn default() -> Self {
        Self {
            requests: 256,
            bytes: 64 * 1024 * 1024,
        }
    }
}

/// The free part of the limits. Clones share it.
#[derive(Debug, Clone)]
pub struct RequestBudget {
    requests: Arc<Semaphore>,
    units: Arc<Semaphore>,
    /// The part of `units` that large requests may have.
    large: Arc<Semaphore>,
}

/// The slot of a request; dropping it releases the slot.
#[derive(Debug)]
pub struct RequestSlot {
    _request: OwnedSemaphorePermit,
    _units: OwnedSemaphorePermit,
    _large: Option<OwnedSemaphorePermit>,
}

impl RequestBudget {
    /// Creates the limits with everything free.
    #[must_use]
    pub fn new(limits: RequestLimits) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(limits.requests)),
            units: Arc::new(Semaphore::new(limits.bytes / UNIT)),
            large: Arc::new(Semaphore::new(limits.bytes / UNIT / 2)),
        }
    }

    /// Returns a slot for a request whose body has at most `bytes`, or `None` if none is free.
    #[must_use]
    pub fn place(&self, bytes: usize) -> Option<RequestSlot> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).ok()?;
        let of = |units_left: &Arc<Semaphore>| {
            let taken = Arc::clone(units_left).try_acquire_many_owned(units);
            taken.ok()
        };
        Some(RequestSlot {
            _request: Arc::clone(&self.requests).try_acquire_owned().ok()?,
            _large: match bytes > LARGE {
                true => Some(of(&self.large)?),
                false => None,
            },
            _units: of(&self.units)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn requests_and_bytes_are_limited_and_released() {
        let load = RequestBudget::new(RequestLimits {
            requests: 2,
            bytes: 8 * UNIT,
        });
        let first = load.place(4 * UNIT).unwrap();
        assert!(load.place(5 * UNIT).is_none(), "bytes");
        let second = load.place(1).unwrap();
        assert!(load.place(0).is_none(), "requests");
        drop(first);
        assert!(load.place(8 * UNIT).is_none(), "one unit is taken");
        let third = load.place(7 * UNIT).unwrap();
        drop((second, third));
        assert!(load.place(8 * UNIT).is_some());
    }

    #[test]
    fn large_requests_get_half_of_the_bytes() {
        let load = RequestBudget::new(RequestLimits {
            requests: 8,
            bytes: 4 * LARGE,
        });
        let first = load.place(LARGE + UNIT).unwrap();
        assert!(load.place(LARGE + UNIT).is_none());
        let others = (load.place(LARGE).unwrap(), load.place(LARGE).unwrap());
        drop(first);
        assert!(load.place(LARGE + UNIT).is_some());
        drop(others);
    }
}
