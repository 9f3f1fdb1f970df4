//! What the rest of the process sees of the Lease: whether it leads, and leave to write.

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
    /// The Lease's `leaseTransitions`: higher for every later leader.
    pub(super) epoch: u64,
    /// Until when we may begin writes; none where nobody competes.
    pub(super) until: Option<Instant>,
    /// How long the machine had slept when the claim was made ([`crate::clock::slept`]).
    pub(super) slept: Duration,
}

impl Claim {
    pub(super) fn holds(&self) -> bool {
        self.holds_at(Instant::now(), crate::clock::slept())
    }

    /// Instants stand still while the machine sleeps, and the Lease of others does not.
    fn holds_at(&self, now: Instant, slept: Duration) -> bool {
        let suspended = slept.saturating_sub(self.slept);
        self.until.is_none_or(|until| now + suspended < until)
    }
}

/// The term of one handle: it begins once, and is over once.
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

    /// Returns when it begins or is over.
    async fn moved(&mut self) {
        if self.over.is_cancelled() {
            return std::future::pending().await;
        }
        tokio::select! {
            // The sender lives as long as we do.
            _ = self.epoch.changed() => {}
            () = self.over.cancelled() => {}
        }
    }
}

/// Whether the owner task of a process makes progress. Clones are the same heart.
#[derive(Debug, Clone)]
pub struct Heart {
    start: Instant,
    /// Milliseconds from `start` to the last beat, and one; 0 while nothing has to beat.
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
    /// The owner task is at work. Cheap.
    pub fn beat(&self) {
        self.beat.store(self.millis() + 1, Ordering::Relaxed);
    }

    /// No owner task is at work.
    pub fn rest(&self) {
        self.beat.store(0, Ordering::Relaxed);
    }

    /// Whether the owner task is at work and has not beaten for `limit`.
    pub(super) fn is_stuck(&self, limit: Duration) -> bool {
        let beat = self.beat.load(Ordering::Relaxed);
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        beat > 0 && self.millis().saturating_sub(beat - 1) > limit
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Whether this process leads. Clones are cheap and tell the same.
#[derive(Debug, Clone)]
pub struct Leadership {
    pub(super) claim: watch::Receiver<Option<Claim>>,
    /// The epoch that [`Leadership::changed`] last told this clone.
    pub(super) told: Option<u64>,
    pub(super) writes: TaskTracker,
    pub(super) write_limit: Duration,
    pub(super) heart: Heart,
    /// The term that the handle is of, if it is of one.
    within: Option<Within>,
}

/// Leave to begin one write; held until the write has ended. The Lease is not given back
/// while any is held.
#[derive(Debug)]
pub struct Permit {
    epoch: u64,
    limit: Duration,
    _writing: Option<TaskTrackerToken>,
}

impl Permit {
    /// The epoch under which the write is made.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How long the write may take at most.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }
}

/// The term is over: nothing may be written any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this process does not lead any more")]
pub struct TermOver;

impl Leadership {
    pub(super) fn new(
        claim: watch::Receiver<Option<Claim>>,
        write_limit: Duration,
        told: Option<u64>,
    ) -> Self {
        Self {
            claim,
            told,
            writes: TaskTracker::new(),
            write_limit,
            heart: Heart::default(),
            within: None,
        }
    }

    /// Leads always: for a process that nobody competes with, and for tests.
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

    /// A handle of one term, which has yet to begin ([`Self::begin`]), and which `over` ends. It
    /// leads in the epoch that it began in, and in no other.
    #[must_use]
    pub fn term(&self, over: CancellationToken) -> Self {
        let (begin, epoch) = watch::channel(None);
        Self {
            told: None,
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

    /// The end of this handle's term; never, for one that is of none.
    #[must_use]
    pub fn over(&self) -> CancellationToken {
        let within = self.within.as_ref();
        within.map_or_else(CancellationToken::new, |within| within.over.clone())
    }

    /// What the owner task beats while it makes progress: the Lease is renewed only then.
    #[must_use]
    pub fn heart(&self) -> Heart {
        self.heart.clone()
    }

    /// Whether we may begin writes now.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.epoch().is_some()
    }

    /// The epoch that we lead in: the Lease's `leaseTransitions`, higher for every later
    /// leader. `None` while we do not lead.
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        let claim = self.claimed();
        claim.filter(Claim::holds).map(|claim| claim.epoch)
    }

    /// The claim, where it is of our term.
    fn claimed(&self) -> Option<Claim> {
        let claim = (*self.claim.borrow())?;
        let ours = self.within.as_ref().is_none_or(|w| w.covers(claim.epoch));
        ours.then_some(claim)
    }

    /// Leave for one write, if we lead.
    #[must_use]
    pub fn permit(&self) -> Option<Permit> {
        // Registered before the claim is looked at: a shutdown that ends the claim in between
        // waits for us, and we see that it has ended.
        let writing = self.writes.token();
        let epoch = self.epoch()?;
        Some(Permit {
            epoch,
            limit: self.write_limit,
            _writing: Some(writing),
        })
    }

    /// Returns when leading has begun or ended since this clone was last told, at once if that
    /// happened before the call. A new handle knows of no leading. Renewals do not count.
    pub async fn changed(&mut self) {
        loop {
            self.claim.borrow_and_update();
            let epoch = self.claimed().map(|claim| claim.epoch);
            if epoch != self.told {
                self.told = epoch;
                return;
            }
            let claim = async {
                if self.claim.changed().await.is_err() {
                    // Nothing is left that could change it.
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
    }

    /// Returns once we lead; [`Self::changed`] then tells when that has ended.
    pub async fn leading(&mut self) {
        loop {
            self.claim.borrow_and_update();
            let claim = self.claimed();
            self.told = claim.map(|claim| claim.epoch);
            if claim.is_some_and(|claim| claim.holds()) {
                return;
            }
            self.changed().await;
        }
    }
}

/// One term of leading: what is made for it writes while it lasts, and never after.
///
/// It is made before it begins, so that a replica that stands by has all in place: until
/// [`Leadership::begin`] every write is refused.
#[derive(Debug, Clone)]
pub struct Term {
    /// Whether it has begun, and is not over.
    pub leadership: Leadership,
    /// Where writes of bindings are opened first; none where nobody competes.
    pub ledger: Option<Ledger>,
}

impl Term {
    /// Without end: for a process that nobody competes with, and for tests.
    #[must_use]
    pub fn always() -> Self {
        Self {
            leadership: Leadership::always(),
            ledger: None,
        }
    }

    /// `client`, through which nothing is written but while the term lasts.
    #[must_use]
    pub fn client(&self, client: &Client) -> Client {
        client::while_leading(client, &self.leadership)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut told = term.clone();
        term.begin(4);
        told.leading().await;
        assert!(term.permit().is_some());
        sender.send_replace(claim(5));
        told.changed().await;
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
