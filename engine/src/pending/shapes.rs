//! The request shapes of pending jobs, each once: a million jobs have a few hundred.

mod slots;
#[cfg(test)]
mod tests;

use crate::amounts::hashed::Hashed;
use crate::api::slot::ReservationSlot;
use crate::pending::infeasible::Infeasible;
use crate::pending::infeasible_shapes::{Feasibility, InfeasibleShapes};
use crate::pending::offers::Offer;
use crate::pending::shapes_by_owner::ShapesByOwner;
use crate::quota::ChargeOwner;
use facts::{ClusterName, Demand, QueueName, Resources};
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
    /// True if its priority class lets it preempt: a job that may not says nothing of the jobs
    /// behind it that may.
    pub(crate) preempts: bool,
}

impl RequestShape {
    /// Returns true if its pods may be in several clusters, or fewer of them may start.
    pub(crate) fn needs_no_single_cluster(&self) -> bool {
        self.demand.is_divisible() || self.demand.elastic
    }

    /// Returns true if its pods have to stand to each other in some way.
    fn is_related(&self) -> bool {
        self.demand.has_rules() || self.demand.topology.is_some()
    }

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

pub(crate) use slots::SlotSetId;

/// Names a shape while a pending job has it. Its order means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShapeId(usize);

/// Shapes that fit on the same nodes.
#[derive(Debug, Clone, Default)]
struct AlikeShapes {
    /// How many there are.
    count: usize,
    /// Those that are feasible.
    feasible: BTreeSet<ShapeId>,
    /// The slots that a reservation for one of them would take in the empty fleet, once that was asked.
    guessed_slots: AtGeneration<Option<SlotSetId>>,
}

/// How often something changed. What was found at a lower generation says nothing any more, so a change costs the same
/// however many shapes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Generation(u64);

impl Generation {
    fn changed(&mut self) {
        self.0 += 1;
    }
}

/// What was found at a generation.
#[derive(Debug, Clone, Default)]
struct AtGeneration<T> {
    at: Generation,
    what: T,
}

impl<T> AtGeneration<T> {
    /// Returns what was found, unless something changed since.
    fn at(&self, now: Generation) -> Option<&T> {
        (self.at == now).then_some(&self.what)
    }
}

#[derive(Debug, Clone)]
struct ShapeSlot {
    shape: Arc<RequestShape>,
    /// How many jobs have it.
    jobs: usize,
    /// Whether it fits the empty fleet, where that was asked.
    fits_empty_fleet: AtGeneration<Option<bool>>,
    /// Why it is infeasible, if that was found.
    infeasible: Option<Infeasible>,
    /// The generation of freed nodes at which that was found.
    infeasible_at: u64,
    /// The slots that a reservation for it takes.
    slots: SlotSetId,
    /// Whether the bounds of a queue ever admit it, at its smallest, where that was asked.
    let_by: AtGeneration<BTreeMap<QueueName, bool>>,
}

/// The shapes in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shapes {
    slots: Vec<Option<ShapeSlot>>,
    free: Vec<usize>,
    ids: BTreeMap<Arc<RequestShape>, ShapeId>,
    /// The shapes that fit on the same nodes.
    alike: Hashed<RoomKey, AlikeShapes>,
    by_owner: ShapesByOwner,
    /// The shapes whose pods have to stand to each other in some way.
    related: BTreeSet<ShapeId>,
    /// That of the fleet.
    fleet: Generation,
    /// That of what is guessed of slots.
    guesses: Generation,
    /// That of the fleet and of the bounds of queues.
    bounds: Generation,
    demands: BTreeSet<Arc<Demand>>,
    infeasible_shapes: InfeasibleShapes,
    /// Those that were infeasible and may be feasible since this was last taken.
    maybe_feasible: BTreeSet<ShapeId>,
    /// The sets of slots that reservations took so far, from number 1. There are few: combinations of classes.
    slot_sets: Vec<BTreeSet<ReservationSlot>>,
    /// True if a reservation for some shape takes slots of more than one class of pools.
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
        let alike = self.alike.entry(RoomKey::of(&shape)).or_default();
        let guessed = alike.guessed_slots.at(self.guesses).copied().flatten();
        let entry = Some(ShapeSlot {
            shape: Arc::clone(&shape),
            jobs: 1,
            fits_empty_fleet: AtGeneration::default(),
            infeasible: None,
            infeasible_at: 0,
            slots: guessed.unwrap_or_default(),
            let_by: AtGeneration::default(),
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
        alike.count += 1;
        alike.feasible.insert(id);
        if shape.is_related() {
            self.related.insert(id);
        }
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
                alike.count -= 1;
                alike.feasible.remove(&id);
                if alike.count == 0 {
                    self.alike.remove(&key);
                }
            }
            self.by_owner.remove(id, &slot.shape);
            let was = Feasibility::of(slot.infeasible.as_ref());
            self.infeasible_shapes
                .note(id, &slot.shape, was, Feasibility::Unused);
            self.slots[id.0] = None;
            self.related.remove(&id);
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

    /// For the audit: whether the shapes are listed as they are feasible or infeasible, by their owners, by what fits
    /// on the same nodes and by whether their pods have to stand to each other in some way.
    pub(super) fn are_listed(&self) -> bool {
        let mut fresh = InfeasibleShapes::default();
        let mut by_owner = ShapesByOwner::default();
        let mut related = BTreeSet::new();
        let mut alike: Hashed<RoomKey, (usize, BTreeSet<ShapeId>)> = Hashed::default();
        for (id, slot) in self.slots.iter().enumerate() {
            if let Some(slot) = slot {
                let now = Feasibility::of(slot.infeasible.as_ref());
                fresh.note(ShapeId(id), &slot.shape, Feasibility::Unused, now);
                let offer = self.infeasible_shapes.offers().of(ShapeId(id));
                if let Some(offer) = offer.filter(|_| slot.infeasible.is_some()) {
                    fresh.offer(ShapeId(id), &slot.shape, offer.clone());
                }
                by_owner.insert(ShapeId(id), &slot.shape);
                let (count, feasible) = alike.entry(RoomKey::of(&slot.shape)).or_default();
                *count += 1;
                feasible.extend(slot.infeasible.is_none().then_some(ShapeId(id)));
                related.extend(slot.shape.is_related().then_some(ShapeId(id)));
            }
        }
        let listed = self.alike.iter();
        let listed = listed.map(|(key, of)| (key.clone(), (of.count, of.feasible.clone())));
        fresh == self.infeasible_shapes
            && by_owner == self.by_owner
            && related == self.related
            && alike == listed.collect()
    }

    /// The shape, while any job has it.
    pub(crate) fn get(&self, id: ShapeId) -> Option<&Arc<RequestShape>> {
        Some(&self.slots.get(id.0)?.as_ref()?.shape)
    }

    /// Returns whether it fits the empty fleet, where that is known.
    pub(crate) fn fits_empty_fleet(&self, shape: &RequestShape) -> Option<bool> {
        let id = self.ids.get(shape)?;
        let slot = self.slots.get(id.0)?.as_ref()?;
        *slot.fits_empty_fleet.at(self.fleet)?
    }

    /// Notes whether it fits the empty fleet.
    pub(crate) fn note_fits_empty_fleet(&mut self, id: ShapeId, could: bool) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0) {
            slot.fits_empty_fleet = AtGeneration {
                at: self.fleet,
                what: Some(could),
            };
        }
    }

    /// The fleet changed: nothing is known of what fits it.
    pub(super) fn forget_fits(&mut self) {
        self.fleet_changed();
        self.guesses.changed();
        for slot in self.slots.iter_mut().flatten() {
            slot.slots = SlotSetId::default();
        }
        self.of_several_classes = false;
        self.make_feasible(|_| true);
    }

    /// Some nodes changed: nothing is known of what fits the empty fleet. `counts_domains` says which shapes, of those
    /// whose pods have to stand to each other in some way, may fit even where a node went.
    pub(super) fn nodes_changed(&mut self, counts_domains: impl Fn(&RequestShape) -> bool) {
        self.fleet_changed();
        for id in std::mem::take(&mut self.related) {
            if self.get(id).is_some_and(|shape| counts_domains(shape)) {
                self.note_feasible(id);
            }
            self.related.insert(id);
        }
    }

    fn fleet_changed(&mut self) {
        self.fleet.changed();
        self.bounds.changed();
    }

    /// Makes the shapes feasible that `which` says.
    fn make_feasible(&mut self, which: impl Fn(&ShapeSlot) -> bool) {
        for id in (0..self.slots.len()).map(ShapeId) {
            let slot = self.slots[id.0].as_ref();
            if slot.is_some_and(|slot| slot.infeasible.is_some() && which(slot)) {
                self.note_feasible(id);
            }
        }
    }

    /// The shapes by what may make them feasible.
    pub(crate) fn infeasible_shapes(&self) -> &InfeasibleShapes {
        &self.infeasible_shapes
    }

    /// Takes those that were infeasible and may be feasible since the last call.
    pub(super) fn take_maybe_feasible(&mut self) -> BTreeSet<ShapeId> {
        std::mem::take(&mut self.maybe_feasible)
    }

    /// Those that [`Self::take_maybe_feasible`] would name.
    pub(crate) fn maybe_feasible(&self) -> &BTreeSet<ShapeId> {
        &self.maybe_feasible
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
            if let Some(alike) = self.alike.get_mut(&RoomKey::of(&slot.shape)) {
                alike.feasible.remove(&id);
            }
        }
    }

    /// A freed node may take a pod of an infeasible shape.
    pub(super) fn offer(&mut self, id: ShapeId, offer: Offer) {
        let slot = self.slots.get(id.0).and_then(Option::as_ref);
        if let Some(slot) = slot.filter(|slot| slot.infeasible.is_some()) {
            self.maybe_feasible.insert(id);
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

    /// The feasible shapes that fit on the same nodes as one, itself among them if it is feasible: they differ in what
    /// does not matter there, such as how long their jobs run.
    pub(super) fn feasible_alike(&self, id: ShapeId) -> impl Iterator<Item = ShapeId> {
        let alike = self
            .get(id)
            .and_then(|shape| self.alike.get(&RoomKey::of(shape)));
        alike.into_iter().flat_map(|alike| &alike.feasible).copied()
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

    /// Returns true if no job behind all owners of reserved nodes can get a reservation for it.
    pub(crate) fn is_unreservable(&self, id: ShapeId) -> bool {
        self.unreservable.contains(&id)
    }

    /// The shapes that no job behind all owners of reserved nodes can get a reservation for.
    pub(crate) fn unreservable(&self) -> impl Iterator<Item = ShapeId> {
        self.unreservable.iter().copied()
    }

    /// Reservations may be possible again for all shapes. Returns those for which none was.
    pub(super) fn take_unreservable(&mut self) -> BTreeSet<ShapeId> {
        std::mem::take(&mut self.unreservable)
    }

    /// Returns whether the bounds of `queue` ever admit it, where that is known.
    pub(crate) fn let_by(&self, shape: &RequestShape, queue: &QueueName) -> Option<bool> {
        let id = self.ids.get(shape)?;
        let slot = self.slots.get(id.0)?.as_ref()?;
        slot.let_by.at(self.bounds)?.get(queue).copied()
    }

    pub(crate) fn note_let_by(&mut self, id: ShapeId, queue: &QueueName, could: bool) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0) {
            if slot.let_by.at(self.bounds).is_none() {
                slot.let_by = AtGeneration {
                    at: self.bounds,
                    what: BTreeMap::new(),
                };
            }
            slot.let_by.what.insert(queue.clone(), could);
        }
    }

    /// It may fit again.
    pub(crate) fn note_feasible(&mut self, id: ShapeId) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0)
            && let Some(why) = slot.infeasible.take()
        {
            let was = Feasibility::Infeasible(&why);
            self.maybe_feasible.insert(id);
            self.infeasible_shapes
                .note(id, &slot.shape, was, Feasibility::Feasible);
            if let Some(alike) = self.alike.get_mut(&RoomKey::of(&slot.shape)) {
                alike.feasible.insert(id);
            }
        }
    }

    /// Bounds of queues changed: nothing is known of what they would ever admit.
    pub(crate) fn forget_lets(&mut self) {
        self.bounds.changed();
    }

    /// Plans are made in another way: all may fit again.
    pub(crate) fn all_feasible(&mut self) {
        self.bounds.changed();
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
