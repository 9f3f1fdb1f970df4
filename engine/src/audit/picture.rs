//! Queues as they should be, built anew from their objects, and how those at hand differ.
//!
//! Two trees may number queues, resources and scopes differently, so they are compared by
//! name. What a queue held in the past is history and cannot be recomputed.

use crate::amounts::resources::Resources;
use crate::amounts::tally::Tally;
use crate::api::ids::QueueName;
use crate::engine::Engine;
use crate::quota::measure::Sums;
use crate::quota::queues::{Census, QueueId, QueueNode, Queues};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A queue by names alone.
#[derive(Debug, PartialEq, Eq)]
struct Picture {
    parent: Option<QueueName>,
    children: Vec<QueueName>,
    problem: Option<String>,
    pools: BTreeMap<String, Tally>,
    census: [CensusPicture; 2],
    users: [BTreeMap<Arc<str>, u32>; 2],
    accounts: BTreeMap<String, AccountPicture>,
}

type CensusPicture = (Tally, crate::quota::queues::Counts, u32);

#[derive(Debug, PartialEq, Eq)]
struct AccountPicture {
    charged: Tally,
    claims_below: [Tally; 2],
    idle: [Tally; 2],
    guarantee: Tally,
    deserved: Resources,
    real: Resources,
    binding: Resources,
}

impl Queues {
    /// A tree of the same objects, with nothing charged and no fleet.
    pub(crate) fn anew(&self) -> Self {
        let mut fresh = Self::default();
        for (name, node) in self.iter() {
            fresh.set_fact(name, node.fact.clone());
            fresh.set_policy(name, node.policy.clone());
        }
        fresh
    }

    /// How the queues differ from those of another tree that should be alike.
    pub(crate) fn differences(&self, should: &Self) -> Vec<String> {
        let pictures = |queues: &Self| -> BTreeMap<QueueName, Picture> {
            let all = queues.iter();
            all.map(|(name, node)| (name.clone(), queues.picture(node)))
                .collect()
        };
        let fleets = self.differences_of_fleets(should);
        let (is, should) = (pictures(self), pictures(should));
        let names: BTreeSet<&QueueName> = is.keys().chain(should.keys()).collect();
        let differ = names
            .into_iter()
            .filter(|name| is.get(*name) != should.get(*name));
        let queues = differ.map(|name| {
            let (is, should) = (is.get(name), should.get(name));
            format!("queue {name}: kept {is:?}, should be {should:?}")
        });
        fleets.into_iter().chain(queues).collect()
    }

    /// What the pools that a bound counts have together, and should. What no bound counts any more
    /// is kept up too, and nobody asks for it.
    fn differences_of_fleets(&self, should: &Self) -> Vec<String> {
        let fleets = |queues: &Self| -> BTreeMap<String, Tally> {
            let all = queues.scopes.iter();
            all.map(|scope| (scope.to_string(), queues.units.tally(&scope.fleet)))
                .collect()
        };
        let is = fleets(self);
        let differ = fleets(should).into_iter();
        let differ = differ.filter(|(scope, should)| is.get(scope) != Some(should));
        differ
            .map(|(scope, should)| {
                let is = is.get(&scope);
                format!("fleet of {scope}: kept {is:?}, should be {should:?}")
            })
            .collect()
    }

    fn picture(&self, node: &QueueNode) -> Picture {
        let tally = |sums: &Sums| self.units.tally(sums);
        let census = |census: &Census| (tally(&census.pending), census.counts, census.held);
        let own = node.own.pools.iter();
        let id = self.id(&node.name).unwrap_or(QueueId::ROOT);
        Picture {
            parent: node.parent.map(|parent| self.node(parent).name.clone()),
            children: node.child_names(self),
            problem: self.problem_of(id).map(|(_, message)| message),
            pools: own
                .map(|(pool, sums)| (format!("{:?}", self.scopes.pool(*pool)), tally(sums)))
                .collect(),
            census: [census(&node.own.census), census(&node.census)],
            users: [node.own.users.clone(), node.users.clone()],
            accounts: self.account_pictures(node),
        }
    }

    /// Of the accounts that matter: those that name, gather or bound anything.
    fn account_pictures(&self, node: &QueueNode) -> BTreeMap<String, AccountPicture> {
        let tally = |sums: &Sums| self.units.tally(sums);
        let accounts = node.accounts.iter();
        let matter = accounts
            .filter(|(_, account)| !account.bounds.binding.is_empty() || !account.is_idle());
        matter
            .map(|(scope, account)| {
                let bounds = &account.bounds;
                let below = &account.below;
                let picture = AccountPicture {
                    charged: tally(&account.charged),
                    claims_below: [tally(&below.guarantee), tally(&below.deserved)],
                    idle: [tally(&account.idle), tally(&account.idle_below)],
                    guarantee: tally(&bounds.guarantee),
                    deserved: self.units.named(&bounds.deserved),
                    real: self.units.named(&bounds.real),
                    binding: self.units.named(&bounds.binding),
                };
                (self.scopes.get(*scope).to_string(), picture)
            })
            .collect()
    }
}

impl Engine {
    /// Queues that do not stand where their standing and their first job put them; none while
    /// places are still to be put right.
    pub(crate) fn misplaced_queues(&self) -> Vec<String> {
        if self.pending.queues.is_dirty() || !self.quota.unranked.is_empty() {
            return Vec::new();
        }
        let wrong = self.quota.iter().filter_map(|(name, node)| {
            let id = self.quota.id(name)?;
            self.quota.misplaced(id, node, &self.front_of(id))
        });
        wrong.collect()
    }
}
