//! The request shapes of pending jobs, each once: a million jobs have a few hundred.

#[cfg(test)]
mod tests;

use crate::amounts::hashed::Hashed;
use crate::amounts::resources::Resources;
use crate::api::demand::Demand;
use crate::api::ids::{ClusterName, QueueName};
use crate::api::slot::ReservationSlot;
use crate::pending::infeasible::Infeasible;
use crate::pending::infeasible_shapes::{Feasibility, InfeasibleShapes};
use crate::pending::offers::Offer;
use crate::pending::shapes_by_owner::ShapesByOwner;
use crate::quota::ChargeOwner;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All that a verdict on a pending job depends on, besides its queue and its place in order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestShape {
    /// What it is made of.
    pub(crate) demand: Arc<Demand>,
    /// What all its pods request.
    pub(crate) total: Resources,
    /// Declared run time in milliseconds, rounded up.
    pub(crate) duration: Option<i64>,
    /// The user, if its queue limits what one user has: jobs of others are evaluated apart.
    pub(crate) user: Option<Arc<str>>,
    /// The namespace, if its queue limits what one namespace has.
    pub(crate) namespace: Option<Arc<str>>,
    /// Over how many clusters its queue lets it be spread.
    pub(crate) max_clusters: Option<u32>,
    /// Clusters left out while others could take it.
    pub(crate) avoid: BTreeSet<ClusterName>,
    /// Whether its priority class lets it preempt: a job that may not says nothing of the jobs
    /// behind it that may.
    pub(crate) preempts: bool,
}

impl RequestShape {
    /// The same for another demand; `None` where that cannot be counted.
    pub(crate) fn resized(&self, demand: Demand) -> Option<Self> {
        Some(Self {
            total: demand.total()?,
            demand: Arc::new(demand),
            duration: self.duration,
            avoid: self.avoid.clone(),
            max_clusters: self.max_clusters,
            user: self.user.clone(),
            namespace: self.namespace.clone(),
            preempts: self.preempts,
        })
    }
}

/// What decides on which nodes a shape fits, with the address of the one copy of its demand. Nothing depends on the
/// order of these.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RoomKey {
    demand: usize,
    max_clusters: Option<u32>,
    avoid: BTreeSet<ClusterName>,
}

impl RoomKey {
    fn of(shape: &RequestShape) -> Self {
        Self {
            demand: Arc::as_ptr(&shape.demand).addr(),
            max_clusters: shape.max_clusters,
            avoid: shape.avoid.clone(),
        }
    }
}

/// Names a set of slots that reservations take. The default is that of shapes for which it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct SlotSetId(usize);

/// Names a shape while a pending job has it. Its order means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShapeId(usize);

#[derive(Debug, Clone)]
struct ShapeSlot {
    shape: Arc<RequestShape>,
    /// How many jobs have it.
    jobs: usize,
    /// Whether it fits the empty fleet, once that was asked.
    fits_empty_fleet: Option<bool>,
    /// Why it is infeasible, if that was found.
    infeasible: Option<Infeasible>,
    /// The generation of freed nodes at which that was found.
    infeasible_at: u64,
    /// The slots that a reservation for it takes.
    slots: SlotSetId,
    /// Whether the bounds of a queue ever admit it, at its smallest, where that was asked.
    let_by: BTreeMap<QueueName, bool>,
}

/// The shapes in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shapes {
    slots: Vec<Option<ShapeSlot>>,
    free: Vec<usize>,
    ids: BTreeMap<Arc<RequestShape>, ShapeId>,
    /// The shapes that fit on the same nodes.
    alike: Hashed<RoomKey, BTreeSet<ShapeId>>,
    by_owner: ShapesByOwner,
    demands: BTreeSet<Arc<Demand>>,
    infeasible_shapes: InfeasibleShapes,
    /// The sets of slots that reservations took so far, from number 1. There are few: combinations of classes.
    slot_sets: Vec<BTreeSet<ReservationSlot>>,
    /// Whether a reservation for some shape takes slots of more than one class of pools.
    of_several_classes: bool,
    /// Shapes that no job behind all owners of reserved nodes can get a reservation for.
    unreservable: BTreeSet<ShapeId>,
}

impl Shapes {
    /// The one copy of `demand`. Copies that no job uses are dropped now and then.
    pub(crate) fn intern_demand(&mut self, demand: &Demand) -> Arc<Demand> {
        if let Some(known) = self.demands.get(demand) {
            return Arc::clone(known);
        }
        if self.demands.len() >= 1024 && self.demands.len().is_power_of_two() {
            self.demands.retain(|demand| Arc::strong_count(demand) > 1);
        }
        let demand = Arc::new(demand.clone());
        self.demands.insert(Arc::clone(&demand));
        demand
    }

    /// The id of `shape`, which one job more has.
    pub(crate) fn acquire(&mut self, shape: RequestShape) -> ShapeId {
        if let Some(id) = self.ids.get(&shape) {
            if let Some(slot) = &mut self.slots[id.0] {
                slot.jobs += 1;
            }
            return *id;
        }
        let shape = Arc::new(shape);
        let entry = Some(ShapeSlot {
            shape: Arc::clone(&shape),
            jobs: 1,
            fits_empty_fleet: None,
            infeasible: None,
            infeasible_at: 0,
            slots: SlotSetId::default(),
            let_by: BTreeMap::new(),
        });
        let id = if let Some(slot) = self.free.pop() {
            self.slots[slot] = entry;
            ShapeId(slot)
        } else {
            self.slots.push(entry);
            ShapeId(self.slots.len() - 1)
        };
        self.infeasible_shapes
            .note(id, &shape, Feasibility::Unused, Feasibility::Feasible);
        let alike = self.alike.entry(RoomKey::of(&shape)).or_default();
        alike.insert(id);
        self.by_owner.insert(id, &shape);
        self.ids.insert(shape, id);
        id
    }

    /// One job less has it.
    pub(crate) fn release(&mut self, id: ShapeId) {
        let Some(slot) = &mut self.slots[id.0] else {
            return;
        };
        slot.jobs -= 1;
        if slot.jobs == 0 {
            self.ids.remove(&slot.shape);
            let key = RoomKey::of(&slot.shape);
            if let Some(alike) = self.alike.get_mut(&key) {
                alike.remove(&id);
                if alike.is_empty() {
                    self.alike.remove(&key);
                }
            }
            self.by_owner.remove(id, &slot.shape);
            let was = Feasibility::of(slot.infeasible.as_ref());
            self.infeasible_shapes
                .note(id, &slot.shape, was, Feasibility::Unused);
            self.slots[id.0] = None;
            self.unreservable.remove(&id);
            self.free.push(id.0);
        }
    }

    /// The shapes of jobs which a limit on this owner concerns.
    pub(crate) fn of_owner(&self, owner: ChargeOwner<'_>) -> BTreeSet<ShapeId> {
        self.by_owner.of(owner).collect()
    }

    /// For the audit: how many jobs have each shape.
    pub(super) fn counted(&self) -> BTreeMap<ShapeId, usize> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter_map(|(id, slot)| Some((ShapeId(id), slot.as_ref()?.jobs)))
            .collect()
    }

    /// For the audit: whether the shapes are listed as they are feasible or infeasible, and by their owners.
    pub(super) fn are_listed(&self) -> bool {
        let mut fresh = InfeasibleShapes::default();
        let mut by_owner = ShapesByOwner::default();
        for (id, slot) in self.slots.iter().enumerate() {
            if let Some(slot) = slot {
                let now = Feasibility::of(slot.infeasible.as_ref());
                fresh.note(ShapeId(id), &slot.shape, Feasibility::Unused, now);
                let offer = self.infeasible_shapes.offers().of(ShapeId(id));
                if let Some(offer) = offer.filter(|_| slot.infeasible.is_some()) {
                    fresh.offer(ShapeId(id), &slot.shape, offer.clone());
                }
                by_owner.insert(ShapeId(id), &slot.shape);
            }
        }
        fresh == self.infeasible_shapes && by_owner == self.by_owner
    }

    /// The shape, while any job has it.
    pub(crate) fn get(&self, id: ShapeId) -> Option<&Arc<RequestShape>> {
        Some(&self.slots.get(id.0)?.as_ref()?.shape)
    }

    /// Whether it fits the empty fleet, where that is known.
    pub(crate) fn fits_empty_fleet(&self, shape: &RequestShape) -> Option<bool> {
        let id = self.ids.get(shape)?;
        self.slots.get(id.0)?.as_ref()?.fits_empty_fleet
    }

    /// Notes whether it fits the empty fleet.
    pub(crate) fn note_fits_empty_fleet(&mut self, id: ShapeId, could: bool) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0) {
            slot.fits_empty_fleet = Some(could);
        }
    }

    /// The fleet changed: nothing is known of what fits it.
    pub(super) fn forget_fits(&mut self) {
        for slot in self.slots.iter_mut().flatten() {
            slot.fits_empty_fleet = None;
            slot.let_by.clear();
            slot.slots = SlotSetId::default();
        }
        self.of_several_classes = false;
        self.make_feasible(|_| true);
    }

    /// Some nodes changed: nothing is known of what fits the empty fleet. `counts_domains` says which shapes may fit
    /// even where a node went.
    pub(super) fn nodes_changed(&mut self, counts_domains: impl Fn(&RequestShape) -> bool) {
        for slot in self.slots.iter_mut().flatten() {
            slot.fits_empty_fleet = None;
            slot.let_by.clear();
        }
        self.make_feasible(|slot| counts_domains(&slot.shape));
    }

    /// The infeasible shapes.
    pub(crate) fn all_infeasible(&self) -> impl Iterator<Item = (ShapeId, &RequestShape)> {
        let slots = self.slots.iter().enumerate();
        let slots = slots.filter_map(|(id, slot)| Some((ShapeId(id), slot.as_ref()?)));
        let infeasible = slots.filter(|(_, slot)| slot.infeasible.is_some());
        infeasible.map(|(id, slot)| (id, &*slot.shape))
    }

    /// Makes the shapes feasible that `which` says.
    fn make_feasible(&mut self, which: impl Fn(&ShapeSlot) -> bool) {
        for (id, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot.as_mut().filter(|slot| which(slot)) else {
                continue;
            };
            if let Some(why) = slot.infeasible.take() {
                let was = Feasibility::Infeasible(&why);
                self.infeasible_shapes
                    .note(ShapeId(id), &slot.shape, was, Feasibility::Feasible);
            }
        }
    }

    /// The shapes by what may make them feasible.
    pub(crate) fn infeasible_shapes(&self) -> &InfeasibleShapes {
        &self.infeasible_shapes
    }

    /// Why it is infeasible, if it is.
    pub(crate) fn infeasible(&self, id: ShapeId) -> Option<&Infeasible> {
        self.slots.get(id.0)?.as_ref()?.infeasible.as_ref()
    }

    /// Notes that it is infeasible, at a generation of freed nodes.
    pub(crate) fn note_infeasible(&mut self, id: ShapeId, why: Infeasible, generation: u64) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0) {
            let was = Feasibility::of(slot.infeasible.as_ref());
            self.infeasible_shapes
                .note(id, &slot.shape, was, Feasibility::Infeasible(&why));
            slot.infeasible = Some(why);
            slot.infeasible_at = generation;
        }
    }

    /// A freed node may take a pod of an infeasible shape.
    pub(super) fn offer(&mut self, id: ShapeId, offer: Offer) {
        let slot = self.slots.get(id.0).and_then(Option::as_ref);
        if let Some(slot) = slot.filter(|slot| slot.infeasible.is_some()) {
            self.infeasible_shapes.offer(id, &slot.shape, offer);
        }
    }

    /// No node that was freed up to a generation takes a pod of an infeasible shape.
    pub(super) fn withdraw(&mut self, id: ShapeId, generation: u64) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0) {
            self.infeasible_shapes.withdraw(id, &slot.shape);
            slot.infeasible_at = generation;
        }
    }

    /// The shapes that fit on the same nodes as one, itself among them: they differ in what does not matter there, such
    /// as how long their jobs run.
    pub(super) fn alike(&self, id: ShapeId) -> impl Iterator<Item = ShapeId> {
        let alike = self
            .get(id)
            .and_then(|shape| self.alike.get(&RoomKey::of(shape)));
        alike.into_iter().flatten().copied()
    }

    /// The generation of freed nodes at which it was found infeasible.
    pub(crate) fn infeasible_at(&self, id: ShapeId) -> u64 {
        let slot = self.slots.get(id.0).and_then(Option::as_ref);
        slot.map_or(0, |slot| slot.infeasible_at)
    }

    /// No job behind all owners of reserved nodes can get a reservation for it.
    pub(super) fn note_unreservable(&mut self, id: ShapeId) {
        self.unreservable.insert(id);
    }

    /// Whether no job behind all owners of reserved nodes can get a reservation for it.
    pub(crate) fn is_unreservable(&self, id: ShapeId) -> bool {
        self.unreservable.contains(&id)
    }

    /// Reservations may be possible again for all shapes.
    pub(super) fn retry_unreservable(&mut self) {
        self.unreservable.clear();
    }

    /// Whether the bounds of `queue` ever admit it, where that is known.
    pub(crate) fn let_by(&self, shape: &RequestShape, queue: &QueueName) -> Option<bool> {
        let id = self.ids.get(shape)?;
        let slot = self.slots.get(id.0)?.as_ref()?;
        slot.let_by.get(queue).copied()
    }

    pub(crate) fn note_let_by(&mut self, id: ShapeId, queue: &QueueName, could: bool) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0) {
            slot.let_by.insert(queue.clone(), could);
        }
    }

    /// The slots that a reservation for it takes, where that is known.
    pub(crate) fn scopes(&self, id: ShapeId) -> Option<&BTreeSet<ReservationSlot>> {
        self.slots_of(self.slot_set(id))
    }

    /// The set of slots that a reservation for it takes.
    pub(crate) fn slot_set(&self, id: ShapeId) -> SlotSetId {
        let slot = self.slots.get(id.0).and_then(Option::as_ref);
        slot.map_or(SlotSetId::default(), |slot| slot.slots)
    }

    /// The slots of a set, if it is known.
    pub(crate) fn slots_of(&self, set: SlotSetId) -> Option<&BTreeSet<ReservationSlot>> {
        self.slot_sets.get(set.0.checked_sub(1)?)
    }

    /// Whether a reservation for some shape may take slots of more than one class of pools.
    pub(crate) fn are_of_several_classes(&self) -> bool {
        self.of_several_classes
    }

    /// Notes the slots that a reservation for a shape takes. Whether the set has changed.
    pub(super) fn note_scopes(&mut self, id: ShapeId, scopes: &BTreeSet<ReservationSlot>) -> bool {
        let known = self.slot_sets.iter().position(|known| known == scopes);
        let index = known.unwrap_or(self.slot_sets.len());
        if known.is_none() {
            self.slot_sets.push(scopes.clone());
        }
        let Some(Some(slot)) = self.slots.get_mut(id.0) else {
            return false;
        };
        self.of_several_classes |= scopes.len() > 1;
        let set = SlotSetId(index + 1);
        std::mem::replace(&mut slot.slots, set) != set
    }

    /// It may fit again.
    pub(crate) fn note_feasible(&mut self, id: ShapeId) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0)
            && let Some(why) = slot.infeasible.take()
        {
            let was = Feasibility::Infeasible(&why);
            self.infeasible_shapes
                .note(id, &slot.shape, was, Feasibility::Feasible);
        }
    }

    /// Bounds of queues changed: nothing is known of what they would ever admit.
    pub(crate) fn forget_lets(&mut self) {
        for slot in self.slots.iter_mut().flatten() {
            slot.let_by.clear();
        }
    }

    /// Plans are made in another way: all may fit again.
    pub(crate) fn all_feasible(&mut self) {
        for slot in self.slots.iter_mut().flatten() {
            slot.let_by.clear();
        }
        self.make_feasible(|_| true);
    }

    /// Expected starts of reservations changed: a job that ends before may be admitted.
    pub(crate) fn timed_feasible(&mut self) {
        self.make_feasible(|slot| {
            matches!(slot.infeasible, Some(Infeasible::Withheld(_)))
                && slot.shape.duration.is_some()
        });
    }
}
