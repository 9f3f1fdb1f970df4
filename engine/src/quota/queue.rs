//! A queue: its objects, its position in the tree, its charges and counts.

use crate::amounts::resource_ids::ResourceVec;
use crate::api::job::JobState;
use crate::quota::accounts::Account;
use crate::quota::decay::DecayedUsage;
use crate::quota::owners::Owners;
use crate::quota::scopes::{OVERALL, PoolId, ScopeId};
use crate::quota::sibling_order::SiblingOrder;
use crate::quota::users::QueueUsers;
use facts::{PolicyFact, QueueFact, QueueName, QueueOrdering, Reason, StopPolicy};
use std::collections::BTreeMap;

/// The index of a queue in the store. It does not appear in any output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueId(pub(super) u32);

impl QueueId {
    pub(crate) const ROOT: Self = Self(0);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Jobs by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StateCounts([u32; 6]);

impl StateCounts {
    pub(super) fn get(self, state: JobState) -> u32 {
        self.0[state as usize]
    }

    pub(super) fn one(state: JobState) -> Self {
        let mut counts = Self::default();
        counts.0[state as usize] = 1;
        counts
    }

    fn add(&mut self, other: Self, sign: i32) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            let more = i32::try_from(more).unwrap_or(i32::MAX);
            *count = count.saturating_add_signed(more * sign);
        }
    }
}

/// Counts and requests of jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// The requests of pending jobs.
    pub(super) pending: ResourceVec,
    pub(super) by_state: StateCounts,
    /// The number of charged jobs.
    pub(super) charged: u32,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self, sign: i32) {
        self.pending.add_all(&other.pending, i64::from(sign));
        self.by_state.add(other.by_state, sign);
        let charged = i32::try_from(other.charged).unwrap_or(i32::MAX);
        self.charged = self.charged.saturating_add_signed(charged * sign);
    }
}

/// Charges and counts of a queue's own jobs, without those of queues below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnJobs {
    /// The charge by pool.
    pub(super) pools: BTreeMap<PoolId, ResourceVec>,
    pub(super) counts: Counts,
    /// What each user and each namespace is charged.
    pub(super) owners: Owners,
}

/// One queue.
#[derive(Debug, Clone)]
pub(super) struct QueueNode {
    pub(super) name: QueueName,
    pub(super) fact: Option<QueueFact>,
    pub(super) policy: Option<PolicyFact>,
    /// `None` for the root.
    pub(super) parent: Option<QueueId>,
    /// Sorted by id.
    pub(super) children: Vec<QueueId>,
    /// Why the parent that it names cannot be its parent, if so.
    pub(super) broken: Option<String>,
    /// The problem with the queue itself, if it has one.
    pub(super) wrong: Option<(Reason, String)>,
    pub(super) own: OwnJobs,
    /// The counts of its own jobs and of all queues below.
    pub(super) counts: Counts,
    /// What each user and each namespace is charged in it and in all queues below, of what its policy
    /// limits.
    pub(super) owners: Owners,
    /// In order of scope; the overall account is the first.
    pub(super) accounts: Vec<(ScopeId, Account)>,
    /// Decayed usage, if its policy counts past usage.
    pub(super) decayed: Option<DecayedUsage>,
    /// The order of its users, if its policy asks for one.
    pub(super) users: QueueUsers,
    pub(super) siblings: SiblingOrder,
}

impl QueueNode {
    pub(super) fn new(name: QueueName) -> Self {
        Self {
            name,
            fact: None,
            policy: None,
            parent: None,
            children: Vec::new(),
            broken: None,
            wrong: None,
            own: OwnJobs::default(),
            counts: Counts::default(),
            owners: Owners::default(),
            accounts: vec![(OVERALL, Account::default())],
            decayed: None,
            users: QueueUsers::default(),
            siblings: SiblingOrder::default(),
        }
    }

    pub(super) fn account(&self, scope: ScopeId) -> Option<&Account> {
        let at = self.accounts.binary_search_by_key(&scope, |(id, _)| *id);
        Some(&self.accounts.get(at.ok()?)?.1)
    }

    pub(super) fn account_mut(&mut self, scope: ScopeId) -> Option<&mut Account> {
        let at = self.accounts.binary_search_by_key(&scope, |(id, _)| *id);
        Some(&mut self.accounts.get_mut(at.ok()?)?.1)
    }

    /// The overall account, which every queue has.
    pub(super) fn overall(&self) -> &Account {
        &self.accounts[0].1
    }

    /// The order of its jobs.
    pub(super) fn ordering(&self) -> QueueOrdering {
        let policy = self.policy.as_ref();
        policy.map(|policy| policy.ordering).unwrap_or_default()
    }

    /// How far its policy stops it, if it does.
    pub(super) fn stop(&self) -> Option<StopPolicy> {
        self.policy.as_ref()?.stop
    }

    /// The priority of its object.
    pub(super) fn priority(&self) -> i32 {
        self.fact.as_ref().map_or(0, |fact| fact.priority)
    }

    /// True if it does not exist or is invalid: then it has no quota.
    pub(super) fn is_inactive(&self) -> bool {
        let invalid = |(reason, _): &(Reason, String)| *reason == Reason::QueueInvalid;
        self.fact.is_none() || self.broken.is_some() || self.wrong.as_ref().is_some_and(invalid)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fact.is_none() && self.policy.is_none() && self.own == OwnJobs::default()
    }
}
