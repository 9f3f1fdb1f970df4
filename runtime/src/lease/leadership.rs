//! Leadership as the rest of the process sees it: whether it leads, and permits to write.

use super::ledger::Ledger;
use crate::client;
use kube::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A claim to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    /// The Lease's `leaseTransitions`: it grows with every leader.
    pub(super) epoch: u64,
    /// Until when writes may begin; `None` if no other process competes.
    pub(super) until: Option<Instant>,
    /// How long the machine had slept when the claim was made ([`crate::clock::slept`]).
    pub(super) slept: Duration,
}

impl Claim {
    pub(super) fn holds(&self) -> bool {
        self.holds_at(Instant::now(), crate::clock::slept())
    }

    /// Instants stand still while the machine sleeps, but the Lease expires for other processes.
    fn holds_at(&self, now: Instant, slept: Duration) -> bool {
        let suspended = slept.saturating_sub(self.slept);
        self.until.is_none_or(|until| now + suspended < until)
    }
}

/// The term of one handle: it begins once and ends once.
#[derive(Debug, Clone)]
struct Within {
    begin: Arc<watch::Sender<Option<u64>>>,
    epoch: watch::Receiver<Option<u64>>,
    over: CancellationToken,
}

impl Within {
    fn covers(&self, epoch: u64) -> bool {
        !self.over.is_cancelled() && *self.epoch.borrow() == Some(epoch)
    }

    /// Returns when it begins or ends.
    async fn moved(&mut self) {
        if self.over.is_cancelled() {
            return std::future::pending().await;
        }
        tokio::select! {
            // The sender lives as long as this value.
            _ = self.epoch.changed() => {}
            () = self.over.cancelled() => {}
        }
    }
}

/// Whether the owner task of a process makes progress. Clones share it.
#[derive(Debug, Clone)]
pub struct Heart {
    start: Instant,
    /// Milliseconds from `start` to the last beat, plus one; 0 while no task has to beat.
    beat: Arc<AtomicU64>,
}

impl Default for Heart {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            beat: Arc::default(),
        }
    }
}

impl Heart {
    /// Records that the owner task is working. Cheap.
    pub fn beat(&self) {
        self.beat.store(self.millis() + 1, Ordering::Relaxed);
    }

    /// Records that no owner task is working.
    pub fn rest(&self) {
        self.beat.store(0, Ordering::Relaxed);
    }

    /// Returns true if the owner task is working and has not beaten for `limit`.
    pub(super) fn is_stuck(&self, limit: Duration) -> bool {
        let beat = self.beat.load(Ordering::Relaxed);
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        beat > 0 && self.millis().saturating_sub(beat - 1) > limit
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Whether this process leads. Clones are cheap and share the state.
#[derive(Debug, Clone)]
pub struct Leadership {
    pub(super) claim: watch::Receiver<Option<Claim>>,
    /// The epoch that [`Leadership::changed`] last reported to this clone.
    pub(super) reported: Option<u64>,
    pub(super) writes: TaskTracker,
    pub(super) write_limit: Duration,
    pub(super) heart: Heart,
    /// The term that the handle belongs to, if any.
    within: Option<Within>,
}

/// The permission to begin one write; held until the write has ended. The Lease is not released while a
/// permit is held.
#[derive(Debug)]
pub struct Permit {
    epoch: u64,
    limit: Duration,
    _writing: Option<TaskTrackerToken>,
}

impl Permit {
    /// Returns the epoch of the write.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns how long the write may take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }
}

/// The term is over: no more writes are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this process does not lead any more")]
pub struct TermOver;

impl Leadership {
    pub(super) fn new(
        claim: watch::Receiver<Option<Claim>>,
        write_limit: Duration,
        reported: Option<u64>,
    ) -> Self {
        Self {
            claim,
            reported,
            writes: TaskTracker::new(),
            write_limit,
            heart: Heart::default(),
            within: None,
        }
    }

    /// Always leads: for a process without competitors, and for tests.
    #[must_use]
    pub fn always() -> Self {
        let (sender, claim) = watch::channel(Some(Claim {
            epoch: 0,
            until: None,
            slept: Duration::ZERO,
        }));
        // The claim stays readable without its sender; nothing will change it.
        drop(sender);
        Self::new(claim, Duration::from_secs(30), Some(0))
    }

    /// Creates the handle of one term, which has yet to begin ([`Self::begin`]), and which `over` ends. It
    /// leads only in the epoch in which it began.
    #[must_use]
    pub fn term(&self, over: CancellationToken) -> Self {
        let (begin, epoch) = watch::channel(None);
        Self {
            reported: None,
            within: Some(Within {
                begin: Arc::new(begin),
                epoch,
                over,
            }),
            ..self.clone()
        }
    }

    /// Begins the term of this handle in `epoch`. A term begins once.
    pub fn begin(&self, epoch: u64) {
        if let Some(within) = &self.within {
            within.begin.send_if_modified(|begun| {
                let first = begun.is_none();
                *begun = Some(begun.unwrap_or(epoch));
                first
            });
        }
    }

    /// Returns the token that ends this handle's term; without a term it is never cancelled.
    #[must_use]
    pub fn over(&self) -> CancellationToken {
        let within = self.within.as_ref();
        within.map_or_else(CancellationToken::new, |within| within.over.clone())
    }

    /// Returns the heart that the owner task beats while it makes progress: the Lease is renewed only then.
    #[must_use]
    pub fn heart(&self) -> Heart {
        self.heart.clone()
    }

    /// Returns true if writes may begin now.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.epoch().is_some()
    }

    /// Returns the epoch of the present leadership: the Lease's `leaseTransitions`, which grows with every
    /// leader. `None` if this process does not lead.
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        let claim = self.claimed();
        claim.filter(Claim::holds).map(|claim| claim.epoch)
    }

    /// Returns the claim, if it belongs to the handle's term.
    fn claimed(&self) -> Option<Claim> {
        let claim = (*self.claim.borrow())?;
        let ours = self.within.as_ref().is_none_or(|w| w.covers(claim.epoch));
        ours.then_some(claim)
    }

    /// Returns a permit for one write, if this process leads.
    #[must_use]
    pub fn permit(&self) -> Option<Permit> {
        // Registered before the claim is read: a shutdown that ends the claim in between waits for this write,
        // and the write sees the end.
        let writing = self.writes.token();
        let epoch = self.epoch()?;
        Some(Permit {
            epoch,
            limit: self.write_limit,
            _writing: Some(writing),
        })
    }

    /// Returns when leadership has begun or ended since this clone was last told; at once if that happened
    /// before the call. A new handle knows of no leadership. Renewals do not count.
    pub async fn changed(&mut self) {
        loop {
            self.claim.borrow_and_update();
            let epoch = self.claimed().map(|claim| claim.epoch);
            if epoch != self.reported {
                self.reported = epoch;
                return;
            }
            self.next_claim().await;
        }
    }

    /// Returns as [`Self::changed`] does, or after `time`: the pause between two rounds of what a leader repeats.
    pub async fn changed_within(&mut self, time: Duration) {
        // Both are the end of the pause.
        let _ = tokio::time::timeout(time, self.changed()).await;
    }

    /// Returns when the claim has been renewed, has begun or has ended.
    async fn next_claim(&mut self) {
        let claim = async {
            if self.claim.changed().await.is_err() {
                // No sender is left that could change it.
                std::future::pending::<()>().await;
            }
        };
        match &mut self.within {
            None => claim.await,
            Some(within) => tokio::select! {
                () = claim => {}
                () = within.moved() => {}
            },
        }
    }

    /// Returns once this process leads; [`Self::changed`] then reports the end.
    pub async fn leading(&mut self) {
        loop {
            self.claim.borrow_and_update();
            let claim = self.claimed();
            self.reported = claim.map(|claim| claim.epoch);
            if claim.is_some_and(|claim| claim.holds()) {
                return;
            }
            // A claim that has lapsed may be renewed late: then the same term goes on.
            self.next_claim().await;
        }
    }
}

/// One term of leading: components created for it write only while it lasts.
///
/// It is created before it begins, so that a standby has everything in place: until [`Leadership::begin`]
/// every write is refused.
#[derive(Debug, Clone)]
pub struct Term {
    /// Whether it has begun, and is not over.
    pub leadership: Leadership,
    /// Where writes of bindings are opened first; `None` if no other process competes.
    pub ledger: Option<Ledger>,
}

impl Term {
    /// Creates a term without end: for a process without competitors, and for tests.
    #[must_use]
    pub fn always() -> Self {
        Self {
            leadership: Leadership::always(),
            ledger: None,
        }
    }

    /// Returns `client` limited to writes during the term.
    #[must_use]
    pub fn client(&self, client: &Client) -> Client {
        client::while_leading(client, &self.leadership)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A starved process renews after its claim has lapsed: who waits to lead goes on.
    #[tokio::test(start_paused = true)]
    async fn a_late_renewal_of_the_same_term_is_noticed() {
        let until = |seconds: u64| {
            Some(Claim {
                epoch: 1,
                until: Some(Instant::now() + Duration::from_secs(seconds)),
                slept: crate::clock::slept(),
            })
        };
        let (sender, receiver) = watch::channel(until(1));
        let mut handle = Leadership::new(receiver, Duration::from_secs(30), None);
        handle.leading().await;
        tokio::time::advance(Duration::from_secs(5)).await;
        let waits = tokio::time::timeout(Duration::from_secs(1), handle.leading()).await;
        assert!(waits.is_err(), "its claim has lapsed");
        sender.send_replace(until(10));
        let leads = tokio::time::timeout(Duration::from_secs(1), handle.leading()).await;
        assert!(leads.is_ok(), "the renewal is not seen");
        // The renewal comes while it waits.
        tokio::time::advance(Duration::from_secs(20)).await;
        let renewed = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            sender.send_replace(until(10));
        };
        let both = async { tokio::join!(handle.leading(), renewed) };
        let leads = tokio::time::timeout(Duration::from_secs(1), both).await;
        assert!(leads.is_ok(), "the renewal does not wake it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_sleeps_loses_its_claim() {
        let now = Instant::now();
        let claim = Claim {
            epoch: 1,
            until: Some(now + Duration::from_secs(10)),
            slept: Duration::from_secs(100),
        };
        assert!(claim.holds_at(now, Duration::from_secs(109)));
        assert!(!claim.holds_at(now, Duration::from_secs(110)));
        assert!(!claim.holds_at(now + Duration::from_secs(6), Duration::from_secs(104)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_writes_in_its_own_epoch_only() {
        let claim = |epoch| {
            Some(Claim {
                epoch,
                until: None,
                slept: Duration::ZERO,
            })
        };
        let (sender, receiver) = watch::channel(claim(4));
        let leadership = Leadership::new(receiver, Duration::from_secs(5), None);
        let over = CancellationToken::new();
        let term = leadership.term(over.clone());
        assert!(leadership.permit().is_some() && term.permit().is_none());
        let mut reported = term.clone();
        term.begin(4);
        reported.leading().await;
        assert!(term.permit().is_some());
        sender.send_replace(claim(5));
        reported.changed().await;
        assert!(leadership.permit().is_some() && term.permit().is_none());
        term.begin(5);
        assert!(term.permit().is_none(), "a term begins once");
        let next = leadership.term(over.clone());
        next.begin(5);
        assert!(next.permit().is_some());
        over.cancel();
        assert!(next.permit().is_none());
    }
}
