//! Who is charged: what the jobs of each user, and those of each namespace, have in a queue.
//!
//! A queue keeps the sums of its own jobs always. The sums with all queues below are kept only where the
//! policy limits them, so that a site without such limits pays nothing on the way up.

use crate::amounts::resource_ids::{ResourceIds, ResourceVec};
use crate::amounts::totals::ResourceTotals;
use facts::Limits;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whose a charge is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChargeOwner<'a> {
    /// The user who submitted the job, or its namespace if that is not known.
    pub(crate) user: &'a Arc<str>,
    /// The namespace of the job.
    pub(crate) namespace: &'a Arc<str>,
}

impl<'a> ChargeOwner<'a> {
    /// The owner of what no known user submitted to a namespace.
    pub(crate) fn of_namespace(namespace: &'a Arc<str>) -> Self {
        Self {
            user: namespace,
            namespace,
        }
    }
}

/// Which sums of owners a policy limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limited {
    /// The number of jobs of each user.
    pub(crate) jobs: bool,
    /// The charge of each user.
    pub(crate) users: bool,
    /// The charge of each namespace.
    pub(crate) namespaces: bool,
}

/// The jobs and the charges of owners. Owners without any are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owners {
    /// The number of charged jobs by user.
    pub(super) jobs: BTreeMap<Arc<str>, u32>,
    /// The charge by user.
    pub(super) users: BTreeMap<Arc<str>, ResourceVec>,
    /// The charge by namespace.
    pub(super) namespaces: BTreeMap<Arc<str>, ResourceVec>,
}

/// [`Owners`] with names instead of numbers of resources, for the audit.
pub(super) type CanonicalOwners = (
    BTreeMap<Arc<str>, u32>,
    [BTreeMap<Arc<str>, ResourceTotals>; 2],
);

impl Limited {
    /// All sums, as a queue keeps them of its own jobs.
    pub(super) const ALL: Self = Self {
        jobs: true,
        users: true,
        namespaces: true,
    };

    /// No sums.
    pub(crate) const NONE: Self = Self {
        jobs: false,
        users: false,
        namespaces: false,
    };

    /// Returns what either limits.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            jobs: self.jobs || other.jobs,
            users: self.users || other.users,
            namespaces: self.namespaces || other.namespaces,
        }
    }

    pub(super) fn by(limits: Option<&Limits>) -> Self {
        Self {
            jobs: limits.is_some_and(|limits| limits.jobs_per_user.is_some()),
            users: limits.is_some_and(|limits| !limits.resources_per_user.is_empty()),
            namespaces: limits.is_some_and(|limits| !limits.resources_per_namespace.is_empty()),
        }
    }

    /// Returns true if it matters whose of several users a job is.
    pub(crate) fn any_of_users(self) -> bool {
        self.jobs || self.users
    }

    /// Returns true if any resources of owners are limited.
    pub(crate) fn resources(self) -> bool {
        self.users || self.namespaces
    }
}

impl Owners {
    /// Adds `count` charged jobs of a user.
    pub(super) fn count_job(&mut self, user: &Arc<str>, count: i32) {
        let known = self.jobs.entry(Arc::clone(user)).or_default();
        *known = known.saturating_add_signed(count);
        if *known == 0 {
            self.jobs.remove(user);
        }
    }

    /// Adds `times` a charge to the sums that are `limited`.
    pub(super) fn charge(
        &mut self,
        owner: ChargeOwner<'_>,
        charge: &ResourceVec,
        times: i64,
        limited: Limited,
    ) {
        if limited.users {
            add(&mut self.users, owner.user, charge, times);
        }
        if limited.namespaces {
            add(&mut self.namespaces, owner.namespace, charge, times);
        }
    }

    /// Adds `times` all of `other` that is `limited`.
    pub(super) fn add_all(&mut self, other: &Self, times: i32, limited: Limited) {
        for (user, count) in other.jobs.iter().filter(|_| limited.jobs) {
            let count = i32::try_from(*count).unwrap_or(i32::MAX);
            self.count_job(user, times * count);
        }
        for (user, sums) in other.users.iter().filter(|_| limited.users) {
            add(&mut self.users, user, sums, i64::from(times));
        }
        for (namespace, sums) in other.namespaces.iter().filter(|_| limited.namespaces) {
            add(&mut self.namespaces, namespace, sums, i64::from(times));
        }
    }

    /// The same by name.
    pub(super) fn canonical(&self, ids: &ResourceIds) -> CanonicalOwners {
        let named = |sums: &BTreeMap<Arc<str>, ResourceVec>| {
            let named = sums.iter();
            named
                .map(|(name, sums)| (Arc::clone(name), ids.totals(sums)))
                .collect()
        };
        (
            self.jobs.clone(),
            [named(&self.users), named(&self.namespaces)],
        )
    }
}

fn add(
    sums: &mut BTreeMap<Arc<str>, ResourceVec>,
    name: &Arc<str>,
    charge: &ResourceVec,
    times: i64,
) {
    let sum = sums.entry(Arc::clone(name)).or_default();
    sum.add_all(charge, times);
    if sum.is_empty() {
        sums.remove(name);
    }
}
