//! How much the webhook takes on at a time.
//!
//! A request takes a place and room for its body before any of the body is read, and gives both back
//! with the answer. Where there is none left it is answered at once: 429 with `Retry-After`. The API
//! server then asks again within the registration's `timeoutSeconds`; after that the registration's
//! `failurePolicy` decides. Nothing here waits, so that what cannot be served costs next to nothing.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that are counted as one.
const UNIT: usize = 1024;

/// Bounds on what is served at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Requests, from their first byte until they are answered.
    pub requests: usize,
    /// Bytes of their bodies, together.
    pub bytes: usize,
}

impl Default for RequestLimits {
    /// More requests than an API server has in flight by default (`--max-mutating-requests-inflight`,
    /// 200), and sixteen of the largest bodies.
    fn default() -> Self {
        Self {
            requests: 256,
            bytes: 64 * 1024 * 1024,
        }
    }
}

/// What is free of the limits. Clones share it.
#[derive(Debug, Clone)]
pub struct RequestBudget {
    requests: Arc<Semaphore>,
    units: Arc<Semaphore>,
}

/// The place of a request; given back when it is dropped.
#[derive(Debug)]
pub struct RequestSlot {
    _request: OwnedSemaphorePermit,
    _units: OwnedSemaphorePermit,
}

impl RequestBudget {
    /// Nothing is served yet.
    #[must_use]
    pub fn new(limits: RequestLimits) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(limits.requests)),
            units: Arc::new(Semaphore::new(limits.bytes / UNIT)),
        }
    }

    /// A place for a request whose body has at most `bytes`; `None` where none is free.
    #[must_use]
    pub fn place(&self, bytes: usize) -> Option<RequestSlot> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).ok()?;
        Some(RequestSlot {
            _request: Arc::clone(&self.requests).try_acquire_owned().ok()?,
            _units: Arc::clone(&self.units).try_acquire_many_owned(units).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn requests_and_bytes_are_bounded_and_given_back() {
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
}
