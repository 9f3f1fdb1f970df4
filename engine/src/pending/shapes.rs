//! What waiting jobs want, each kept once: a million jobs want a few hundred things.

use crate::amounts::resources::Resources;
use crate::api::demand::Demand;
use crate::api::ids::{ClusterName, JobKey, QueueName};
use crate::api::slot::ReservationSlot;
use crate::pending::infeasible::Infeasible;
use crate::pending::infeasible_shapes::{InfeasibleShapes, Was};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All that a verdict on a waiting job depends on, beside its queue and place in line.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestShape {
    /// What it is made of.
    pub(crate) demand: Arc<Demand>,
    /// What all its pods request.
    pub(crate) total: Resources,
    /// Declared run time in milliseconds.
    pub(crate) duration: Option<i64>,
    /// Who submitted it, where its queue limits the jobs of one user: those of another are
    /// evaluated apart.
    pub(crate) user: Option<Arc<str>>,
    /// Over how many clusters its queue lets it be spread.
    pub(crate) max_clusters: Option<u32>,
    /// Clusters left out while others could take it.
    pub(crate) avoid: BTreeSet<ClusterName>,
    /// Whether its class lets it have others evicted: what is not taken for one that may not
    /// says nothing of those behind it that may.
    pub(crate) preempts: bool,
}

impl RequestShape {
    /// Whose job it is, for limits by user.
    pub(crate) fn user_of<'a>(&'a self, key: &'a JobKey) -> &'a str {
        match &self.user {
            Some(user) => user,
            None => &key.namespace,
        }
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
            preempts: self.preempts,
        })
    }
}

/// Names a shape while jobs stand in line for it. Its order means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShapeId(usize);

#[derive(Debug, Clone)]
struct ShapeSlot {
    shape: Arc<RequestShape>,
    /// Jobs that shape it.
    users: usize,
    /// Whether the empty fleet could take it, once that was asked.
    fits_empty_fleet: Option<bool>,
    /// Why no room can be found for it, if that was found.
    infeasible: Option<Infeasible>,
    /// After how many growths of nodes that was found.
    infeasible_at: u64,
    /// The classes of pools whose reservations it would count as, once that was found out.
    scopes: Option<BTreeSet<ReservationSlot>>,
    /// That nothing can be kept for it behind all who keep nodes, and after how many growths
    /// of nodes that was found.
    unreservable: Option<u64>,
    /// Whether the bounds of a queue would ever let it go, at its smallest, where that was asked.
    let_by: BTreeMap<QueueName, bool>,
}

/// The shapes in use, with how many jobs want each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shapes {
    slots: Vec<Option<ShapeSlot>>,
    free: Vec<usize>,
    ids: BTreeMap<Arc<RequestShape>, ShapeId>,
    /// How often room was said to be there for what found none, or was not asked for before.
    reopened: u64,
    demands: BTreeSet<Arc<Demand>>,
    infeasible_shapes: InfeasibleShapes,
    /// Whether some shape was found to be of more than one class since classes were last others.
    of_several_classes: bool,
}

impl Shapes {
    /// The one copy of `demand`. Copies that nobody uses are dropped now and then.
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

    /// The id of `shape`, which one job more shapes.
    pub(crate) fn acquire(&mut self, shape: RequestShape) -> ShapeId {
        if let Some(id) = self.ids.get(&shape) {
            if let Some(slot) = &mut self.slots[id.0] {
                slot.users += 1;
            }
            return *id;
        }
        self.reopened += 1;
        let shape = Arc::new(shape);
        let entry = Some(ShapeSlot {
            shape: Arc::clone(&shape),
            users: 1,
            fits_empty_fleet: None,
            infeasible: None,
            infeasible_at: 0,
            scopes: None,
            unreservable: None,
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
            .note(id, &shape, Was::Unused, Was::Open);
        self.ids.insert(shape, id);
        id
    }

    /// One job less wants it.
    pub(crate) fn release(&mut self, id: ShapeId) {
        let Some(slot) = &mut self.slots[id.0] else {
            return;
        };
        slot.users -= 1;
        if slot.users == 0 {
            self.ids.remove(&slot.shape);
            let was = Was::of(slot.infeasible.as_ref());
            self.infeasible_shapes
                .note(id, &slot.shape, was, Was::Unused);
            self.slots[id.0] = None;
            self.free.push(id.0);
        }
    }

    /// The shape, while any job wants it.
    pub(crate) fn get(&self, id: ShapeId) -> Option<&Arc<RequestShape>> {
        Some(&self.slots.get(id.0)?.as_ref()?.shape)
    }

    /// How often wants were opened so far.
    pub(crate) fn reopened(&self) -> u64 {
        self.reopened
    }

    /// What was noted of whether the empty fleet could take it.
    pub(crate) fn fits_empty_fleet(&self, shape: &RequestShape) -> Option<bool> {
        let id = self.ids.get(shape)?;
        self.slots.get(id.0)?.as_ref()?.fits_empty_fleet
    }

    /// Notes whether the empty fleet could take it.
    pub(crate) fn note_fits_empty_fleet(&mut self, id: ShapeId, could: bool) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0) {
            slot.fits_empty_fleet = Some(could);
        }
    }

    /// The fleet is another: nothing is known of what it could take.
    pub(crate) fn forget_fits(&mut self) {
        self.reopened += 1;
        for slot in self.slots.iter_mut().flatten() {
            slot.fits_empty_fleet = None;
            slot.let_by.clear();
            slot.scopes = None;
        }
        self.of_several_classes = false;
        self.unshut(|_| true);
    }

    /// Opens those that `which` says, without counting it.
    fn unshut(&mut self, which: impl Fn(&ShapeSlot) -> bool) {
        for (id, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot.as_mut().filter(|slot| which(slot)) else {
                continue;
            };
            if let Some(why) = slot.infeasible.take() {
                let was = Was::Infeasible(&why);
                self.infeasible_shapes
                    .note(ShapeId(id), &slot.shape, was, Was::Open);
            }
        }
    }

    /// The shapes told apart by what may open them.
    pub(crate) fn infeasible_shapes(&self) -> &InfeasibleShapes {
        &self.infeasible_shapes
    }

    /// Why no room can be found for it, if so.
    pub(crate) fn infeasible(&self, id: ShapeId) -> Option<&Infeasible> {
        self.slots.get(id.0)?.as_ref()?.infeasible.as_ref()
    }

    /// No room was found for it.
    pub(crate) fn note_shut(&mut self, id: ShapeId, why: Infeasible, growths: u64) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0) {
            let was = Was::of(slot.infeasible.as_ref());
            self.infeasible_shapes
                .note(id, &slot.shape, was, Was::Infeasible(&why));
            slot.infeasible = Some(why);
            slot.infeasible_at = growths;
        }
    }

    /// After how many growths of nodes it was shut.
    pub(crate) fn infeasible_at(&self, id: ShapeId) -> u64 {
        let slot = self.slots.get(id.0).and_then(Option::as_ref);
        slot.map_or(0, |slot| slot.infeasible_at)
    }

    /// Nothing can be kept for it behind all who keep nodes.
    pub(crate) fn note_unreservable(&mut self, id: ShapeId, growths: u64) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0) {
            slot.unreservable = Some(growths);
        }
    }

    /// Whether that was found since nodes last grew.
    pub(crate) fn is_unreservable(&self, id: ShapeId, growths: u64) -> bool {
        let slot = self.slots.get(id.0).and_then(Option::as_ref);
        slot.is_some_and(|slot| slot.unreservable == Some(growths))
    }

    /// Whether the bounds of `queue` would ever let it go, where that is known.
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

    /// What its reservations count as, where that is known.
    pub(crate) fn scopes(&self, id: ShapeId) -> Option<&BTreeSet<ReservationSlot>> {
        self.slots.get(id.0)?.as_ref()?.scopes.as_ref()
    }

    /// Whether some shape may be of more than one class of pools.
    pub(crate) fn are_of_several_classes(&self) -> bool {
        self.of_several_classes
    }

    pub(crate) fn note_scopes(&mut self, id: ShapeId, scopes: &BTreeSet<ReservationSlot>) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0) {
            slot.scopes = Some(scopes.clone());
            self.of_several_classes |= scopes.len() > 1;
        }
    }

    /// Room may be found for it again.
    pub(crate) fn open(&mut self, id: ShapeId) {
        if let Some(Some(slot)) = self.slots.get_mut(id.0)
            && let Some(why) = slot.infeasible.take()
        {
            self.reopened += 1;
            let was = Was::Infeasible(&why);
            self.infeasible_shapes.note(id, &slot.shape, was, Was::Open);
        }
    }

    /// Bounds of queues changed: nothing is known of what they would ever admit.
    pub(crate) fn forget_lets(&mut self) {
        self.reopened += 1;
        for slot in self.slots.iter_mut().flatten() {
            slot.let_by.clear();
        }
    }

    /// How plans are made is another: room may be found for any.
    pub(crate) fn open_all(&mut self) {
        self.reopened += 1;
        for slot in self.slots.iter_mut().flatten() {
            slot.let_by.clear();
        }
        self.unshut(|_| true);
    }

    /// Expected starts of reservations changed: a job that ends before may pass.
    pub(crate) fn open_timed(&mut self) {
        self.reopened += 1;
        self.unshut(|slot| {
            matches!(slot.infeasible, Some(Infeasible::Withheld(_)))
                && slot.shape.duration.is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::testing::{demand, resources};

    fn shape(count: u32, duration: Option<i64>) -> RequestShape {
        RequestShape {
            demand: Arc::new(demand(count, "cpu 1")),
            total: resources(&format!("cpu {count}")),
            duration,
            user: None,
            max_clusters: None,
            avoid: BTreeSet::new(),
            preempts: true,
        }
    }

    #[test]
    fn a_shape_is_known_while_a_job_has_it() {
        let mut shapes = Shapes::default();
        let first = shapes.acquire(shape(1, None));
        assert_eq!(shapes.acquire(shape(1, None)), first);
        shapes.release(first);
        assert!(shapes.get(first).is_some());
        shapes.release(first);
        assert!(shapes.get(first).is_none());
        // Nothing of it is left to the next that gets its number.
        assert_eq!(shapes.acquire(shape(2, None)), first);
        assert_ne!(shapes.acquire(shape(1, None)), first);
    }

    #[test]
    fn nothing_can_be_reserved_for_a_shape_until_nodes_grow() {
        let mut shapes = Shapes::default();
        let id = shapes.acquire(shape(1, None));
        assert!(!shapes.is_unreservable(id, 1));
        shapes.note_unreservable(id, 1);
        assert!(shapes.is_unreservable(id, 1));
        assert!(!shapes.is_unreservable(id, 2));
    }

    #[test]
    fn what_is_shut_by_others_starts_opens_if_it_says_how_long_it_runs() {
        let mut shapes = Shapes::default();
        let timed = shapes.acquire(shape(1, Some(1)));
        let endless = shapes.acquire(shape(1, None));
        let full = shapes.acquire(shape(2, Some(1)));
        shapes.note_shut(timed, Infeasible::Withheld(Arc::new([])), 1);
        shapes.note_shut(endless, Infeasible::Withheld(Arc::new([])), 1);
        shapes.note_shut(full, Infeasible::NoRoom, 1);
        let infeasible =
            |shapes: &Shapes| [timed, endless, full].map(|id| shapes.infeasible(id).is_some());
        let before = shapes.reopened();
        shapes.open_timed();
        assert_eq!(infeasible(&shapes), [false, true, true]);
        assert_eq!(shapes.reopened(), before + 1);
        shapes.open_all();
        assert_eq!(infeasible(&shapes), [false, false, false]);
        assert_eq!(shapes.reopened(), before + 2);
    }
}
