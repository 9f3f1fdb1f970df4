//! Which shapes are shut, by what may open them: so that a node on which more has become free
//! names those that it might take, and nobody goes through all that is shut.

use crate::amounts::resources::ResourceName;
use crate::api::ids::JobKey;
use crate::capacity::leading;
use crate::pending::infeasible::Infeasible;
use crate::pending::shapes::{RequestShape, ShapeId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The shapes in use, told apart.
#[derive(Debug, Clone, Default)]
pub(crate) struct InfeasibleShapes {
    /// Not shut.
    open: BTreeSet<ShapeId>,
    /// Shut, by what a pod of one of its roles asks for of what that is best known by.
    head_selector: BTreeMap<ResourceName, BTreeMap<i64, BTreeSet<ShapeId>>>,
    /// Shut, with a role that asks for nothing.
    undemanding: BTreeSet<ShapeId>,
    /// How many of those that fit only where nodes are reserved are stopped by a job's reservation.
    stopped_by: HashMap<JobKey, usize>,
}

impl InfeasibleShapes {
    /// What a shape was, and is from now on.
    pub(crate) fn note(
        &mut self,
        id: ShapeId,
        shape: &RequestShape,
        before: Was<'_>,
        now: Was<'_>,
    ) {
        match before {
            Was::Unused => {}
            Was::Open => {
                self.open.remove(&id);
            }
            Was::Infeasible(why) => self.unlist(id, shape, why),
        }
        match now {
            Was::Unused => {}
            Was::Open => {
                self.open.insert(id);
            }
            Was::Infeasible(why) => self.list(id, shape, why),
        }
    }

    fn list(&mut self, id: ShapeId, shape: &RequestShape, why: &Infeasible) {
        for ask in asks(shape) {
            let listed = match ask {
                Some((name, each)) => {
                    let head_selector = self.head_selector.entry(name.clone()).or_default();
                    head_selector.entry(each).or_default()
                }
                None => &mut self.undemanding,
            };
            listed.insert(id);
        }
        if let Infeasible::Withheld(holders) = why {
            for holder in holders.iter() {
                *self.stopped_by.entry(holder.clone()).or_default() += 1;
            }
        }
    }

    fn unlist(&mut self, id: ShapeId, shape: &RequestShape, why: &Infeasible) {
        for ask in asks(shape) {
            let Some((name, each)) = ask else {
                self.undemanding.remove(&id);
                continue;
            };
            let Some(head_selector) = self.head_selector.get_mut(name) else {
                continue;
            };
            if let Some(listed) = head_selector.get_mut(&each) {
                listed.remove(&id);
                if listed.is_empty() {
                    head_selector.remove(&each);
                }
            }
        }
        if let Infeasible::Withheld(holders) = why {
            for holder in holders.iter() {
                if let Some(count) = self.stopped_by.get_mut(holder) {
                    *count -= 1;
                    if *count == 0 {
                        self.stopped_by.remove(holder);
                    }
                }
            }
        }
    }

    /// Those that are not shut.
    pub(crate) fn open(&self) -> impl Iterator<Item = ShapeId> {
        self.open.iter().copied()
    }

    /// Whether what is kept for a job stops any want.
    pub(crate) fn are_stopped_by(&self, holder: &JobKey) -> bool {
        self.stopped_by.contains_key(holder)
    }

    /// Those of the shut ones of which a pod could be on a node with so much free of each
    /// resource, as far as one resource tells.
    pub(crate) fn might_be_on(
        &self,
        free: impl Fn(&ResourceName) -> i128,
    ) -> impl Iterator<Item = ShapeId> {
        let head_selector = self
            .head_selector
            .iter()
            .flat_map(move |(name, by_amount)| {
                let free = i64::try_from(free(name).max(0)).unwrap_or(i64::MAX);
                by_amount.range(..=free).flat_map(|(_, shapes)| shapes)
            });
        head_selector.chain(&self.undemanding).copied()
    }
}

/// What a shape was or is.
#[derive(Clone, Copy)]
pub(crate) enum Was<'a> {
    Unused,
    Open,
    Infeasible(&'a Infeasible),
}

impl<'a> Was<'a> {
    pub(crate) fn of(infeasible: Option<&'a Infeasible>) -> Self {
        infeasible.map_or(Self::Open, Self::Infeasible)
    }
}

/// What a pod of each role asks for, of what the role is best known by; `None` for nothing. A
/// want of no pods asks for nothing.
fn asks(shape: &RequestShape) -> impl Iterator<Item = Option<(&ResourceName, i64)>> {
    let roles = shape.demand.roles.iter().filter(|role| role.count > 0);
    let none = roles.clone().next().is_none();
    let asks = roles.map(|role| {
        let name = leading(&role.request)?;
        let each = role.request.amount_of(name).0;
        (each > 0).then_some((name, each))
    });
    asks.chain(none.then_some(None))
}
