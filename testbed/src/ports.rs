//! Free ports on loopback.
//!
//! Ports come from below the kernel's range for outgoing connections, so that no client's
//! connection can take the port of a server that is stopped for a while. Each port is held open
//! until just before its server starts, so that two testbeds do not choose the same one. Between
//! that moment and the server's listen the port has no owner; testbeds of one process, which may
//! start in parallel, therefore continue the search after the last port found.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use parking_lot::Mutex;

use crate::error::{Error, Result};

const LOWEST: u16 = 15_000;

/// The port at which testbeds of this process continue the search.
static NEXT: Mutex<Option<u16>> = Mutex::new(None);

/// The ports of one testbed.
#[derive(Debug)]
pub(super) struct Ports {
    first: u16,
    end: u16,
    held: HashMap<u16, TcpListener>,
}

impl Ports {
    /// Starts the search at a port that depends on the process, so that testbeds rarely collide.
    pub(super) fn new() -> Self {
        let end = first_ephemeral_port().max(LOWEST + 1000);
        let span = u32::from(end - LOWEST);
        let offset = std::process::id().wrapping_mul(97) % span;
        Self {
            first: LOWEST + u16::try_from(offset).unwrap_or(0),
            end,
            held: HashMap::new(),
        }
    }

    /// Reserves a port until [`Ports::release`].
    pub(super) fn reserve(&mut self) -> Result<u16> {
        let mut next = NEXT.lock();
        for _ in LOWEST..self.end {
            let port = next.unwrap_or(self.first);
            *next = Some(if port + 1 < self.end {
                port + 1
            } else {
                LOWEST
            });
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                self.held.insert(port, listener);
                return Ok(port);
            }
        }
        Err(Error::Io {
            action: "find a free port on",
            path: "127.0.0.1".into(),
            cause: io::Error::from(io::ErrorKind::AddrInUse),
        })
    }

    /// Closes a reserved port, for the server that starts to listen there.
    pub(super) fn release(&mut self, port: u16) {
        self.held.remove(&port);
    }
}

/// Returns a port for a server outside any testbed that starts soon. The port is not held open, but
/// no testbed of this process chooses it, and no client's connection takes it.
///
/// # Errors
/// Returns an error if no port is free.
pub fn free_port() -> Result<u16> {
    Ports::new().reserve()
}

fn first_ephemeral_port() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok());
    first.unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_reserved_port_is_free_only_after_its_release() {
        let (mut ours, mut theirs) = (Ports::new(), Ports::new());
        let port = ours.reserve().unwrap();
        assert_ne!(
            theirs.reserve().unwrap(),
            port,
            "looked in the same place, yet not the same"
        );
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err());
        assert!(port < first_ephemeral_port());
        ours.release(port);
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (ours, theirs) = (ours.reserve().unwrap(), theirs.reserve().unwrap());
        assert!(
            ours != port && theirs != port,
            "no testbed chooses the released port"
        );
        let (one, other) = (free_port().unwrap(), free_port().unwrap());
        assert_ne!(one, other, "neither listens yet");
    }
}
