//! Leader election: a Lease of coordination.k8s.io, held by one replica.
//!
//! ```text
//! follower ── not renewed for its whole duration, by its own clock ──► leader
//! leader ── no renewal confirmed within the deadline ──► follower (at once, before the duration)
//! leader ── shutdown ──► stops claiming, waits for its writes, releases the Lease
//! ```
//!
//! Only monotonic times are compared, never the times in the Lease. The claim counts from *before* the
//! renewal was sent, and ends at the renew deadline, which leaves `duration - renew_deadline` for writes
//! that began in time: every write needs a [`Permit`], and none may take longer than that.
//!
//! The claim also ends when the machine sleeps ([`crate::clock::slept`]), and it is renewed only while the
//! owner task makes progress ([`Heart`]).
//!
//! A Lease is no fence: a process that is paused in the middle of a write can still finish it late.
//! Resource versions and the [`ledger`] guard what must hold even then.

mod leadership;
pub mod ledger;
mod object;
#[cfg(test)]
mod tests;

pub use leadership::{Heart, Leadership, Permit, Term, TermOver};

use crate::client::{CallError, CallFault, with_deadline};
use crate::metrics::Registry;
use crate::{clock, task};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use leadership::Claim;
use object::{Observed, Step};
use prometheus_client::metrics::gauge::Gauge;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Which Lease, and how it is held.
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// The identity of this process: unique, also among processes of one pod.
    pub identity: String,
    /// Time without a renewal after which others may take it.
    pub duration: Duration,
    /// Time without a confirmed renewal after which this process stops claiming; below `duration`.
    pub renew_deadline: Duration,
    /// Time between renewals. A Lease that another process holds is read eight times as often.
    pub retry: Duration,
}

impl LeaseOptions {
    /// Muster's Lease with the usual times: 15 s, 10 s, 2 s.
    #[must_use]
    pub fn new(identity: impl Into<String>) -> Self {
        Self {
            namespace: crds::names::SYSTEM_NAMESPACE.to_owned(),
            name: crds::names::LEASE.to_owned(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Returns a unique identity: `name`, as far as it fits, and a random UUID.
#[must_use]
pub fn identity(name: &str) -> String {
    const LONGEST: usize = 63;
    let mut bytes = [0_u8; 16];
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    if provider.secure_random.fill(&mut bytes).is_err() {
        // Without random numbers there is no TLS either; the process and the time are unique in most cases.
        let nanos = Timestamp::now().as_nanosecond();
        bytes = (nanos ^ (i128::from(std::process::id()) << 96)).to_be_bytes();
    }
    let uuid = uuid::Builder::from_random_bytes(bytes).into_uuid();
    let name: String = name.chars().take(LONGEST).collect();
    format!("{name}_{uuid}")
}

/// Competes for the Lease until `cancel`, then releases it. The task ends after the Lease is released, or
/// that has failed.
#[must_use]
pub fn spawn(
    client: Client,
    options: LeaseOptions,
    registry: &Registry,
    cancel: CancellationToken,
) -> (Leadership, JoinHandle<()>) {
    let (claim, receiver) = watch::channel(None);
    let write_limit = options.duration.saturating_sub(options.renew_deadline);
    let leadership = Leadership::new(receiver, write_limit, None);
    let gauge = registry.register("leading", "1 while this process leads", Gauge::default());
    let candidate = LeaseCandidate {
        api: Api::namespaced(client, &options.namespace),
        options,
        claim,
        gauge,
        writes: leadership.writes.clone(),
        heart: leadership.heart(),
        observed: Observed::default(),
        failing: false,
    };
    (leadership, task::spawn(candidate.run(cancel)))
}

struct LeaseCandidate {
    api: Api<Lease>,
    options: LeaseOptions,
    claim: watch::Sender<Option<Claim>>,
    gauge: Gauge,
    writes: TaskTracker,
    heart: Heart,
    observed: Observed,
    /// True if the failure of the last attempts was logged.
    failing: bool,
}

impl LeaseCandidate {
    async fn run(mut self, cancel: CancellationToken) {
        while !cancel.is_cancelled() {
            let turn = async {
                let pause = match self.turn().await {
                    Ok(()) if self.claim.borrow().is_some() => self.options.retry,
                    // A standby should notice at once that the Lease was released.
                    Ok(()) => self.options.retry / 8,
                    Err(_) => self.options.retry / 4,
                };
                tokio::time::sleep(pause.min(self.remaining())).await;
            };
            let _ = cancel.run_until_cancelled(turn).await;
        }
        self.give_back().await;
    }

    /// Returns how long the claim lasts; the renew deadline if there is none.
    fn remaining(&self) -> Duration {
        let until = self.claim.borrow().and_then(|claim| claim.until);
        until.map_or(self.options.renew_deadline, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }

    /// Makes one attempt to renew or take the Lease.
    async fn turn(&mut self) -> Result<(), CallError> {
        if self.lapsed() {
            self.end_claim("not renewed in time");
        }
        if self.heart.is_stuck(self.options.renew_deadline) {
            // It neither renews nor takes the Lease: a process that makes progress should have it.
            self.end_claim("the owner task makes no progress");
            return Ok(());
        }
        // An attempt is up to two calls: half of the remaining time lets it end before the claim does, and a
        // quarter of the whole leaves time for another.
        let limit = (self.remaining() / 2).min(self.options.renew_deadline / 4);
        let claim = match self.attempt(limit).await {
            Ok(claim) => claim,
            Err(error) => {
                self.observed.unsure();
                if !std::mem::replace(&mut self.failing, true) {
                    let error = error.message();
                    tracing::warn!(error, "the Lease cannot be read or written; trying again");
                }
                return Err(error);
            }
        };
        self.failing = false;
        match claim {
            Some(claim) => self.begin_or_renew(claim),
            None => self.end_claim("held by another"),
        }
        Ok(())
    }

    fn lapsed(&self) -> bool {
        self.claim.borrow().is_some_and(|claim| !claim.holds())
    }

    /// Takes or renews the Lease if allowed, and returns the resulting claim.
    async fn attempt(&mut self, limit: Duration) -> Result<Option<Claim>, CallError> {
        let leading = self.claim.borrow().is_some();
        if !leading || !self.observed.is_sure() {
            let lease = with_deadline(self.api.get_opt(&self.options.name), limit).await?;
            self.observed.see(lease, Instant::now());
        }
        let (sent, slept) = (Instant::now(), clock::slept());
        let step = self.observed.next(&self.options, leading, sent);
        let (written, epoch) = match step {
            Step::Wait => return Ok(None),
            Step::Create(lease, epoch) => {
                let params = object::post_params();
                let call = self.api.create(&params, &lease);
                (with_deadline(call, limit).await, epoch)
            }
            Step::Patch(patch, epoch) => {
                let params = object::patch_params();
                let call = self.api.patch(&self.options.name, &params, &patch);
                (with_deadline(call, limit).await, epoch)
            }
        };
        match written {
            Ok(lease) => {
                self.observed.see(Some(lease), Instant::now());
                Ok(Some(Claim {
                    epoch,
                    until: Some(sent + self.options.renew_deadline),
                    slept,
                }))
            }
            // It was written since it was read: by another process, or by this one without an answer.
            Err(error) if error.fault() == CallFault::Conflict && !leading => {
                self.observed.unsure();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn begin_or_renew(&self, claim: Claim) {
        let begins = self
            .claim
            .borrow()
            .is_none_or(|held| held.epoch != claim.epoch);
        self.claim.send_replace(Some(claim));
        self.gauge.set(1);
        if begins {
            tracing::info!(
                epoch = claim.epoch,
                identity = self.options.identity,
                "leading"
            );
        }
    }

    fn end_claim(&self, why: &str) {
        if let Some(claim) = self.claim.send_replace(None) {
            tracing::warn!(epoch = claim.epoch, why, "no longer leading");
        }
        self.gauge.set(0);
    }

    async fn give_back(mut self) {
        let Some(claim) = self.claim.send_replace(None) else {
            return;
        };
        self.gauge.set(0);
        let limit = self
            .options
            .duration
            .saturating_sub(self.options.renew_deadline);
        self.writes.close();
        if tokio::time::timeout(limit, self.writes.wait())
            .await
            .is_err()
        {
            tracing::warn!("writes did not end in time; the Lease runs out by itself");
            return;
        }
        if let Err(error) = self.release(limit).await {
            tracing::warn!(error = error.message(), "the Lease could not be given back");
            return;
        }
        tracing::info!(epoch = claim.epoch, "gave the Lease back");
    }

    async fn release(&mut self, limit: Duration) -> Result<(), CallError> {
        // The last renewal may have been interrupted.
        let lease = with_deadline(self.api.get_opt(&self.options.name), limit).await?;
        self.observed.see(lease, Instant::now());
        let Some(patch) = self.observed.release(&self.options) else {
            return Ok(());
        };
        let params = object::patch_params();
        let call = self.api.patch(&self.options.name, &params, &patch);
        with_deadline(call, limit).await.map(drop)
    }
}
