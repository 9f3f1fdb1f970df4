//! Which infeasible shapes may find capacity again, and which jobs that concerns.
//!
//! A shape stays infeasible until a node with freed capacity takes at least one of its pods, or until
//! reservations that withheld its nodes are dropped. A completion costs what it may have made
//! feasible, not what is pending: freed nodes are offered once, and an offer is checked when its shape is asked for.

use crate::amounts::hashed::{Hashed, HashedSet};
use crate::api::job::QueueOrder;
use crate::backfill::{offers, plan, withheld};
use crate::pending::infeasible::Infeasible;
use crate::pending::infeasible_shapes::InfeasibleShapes;
use crate::pending::pending_queue::PendingQueue;
use crate::pending::shapes::ShapeId;
use crate::placement::request::Request;
use crate::quota::QueueId;
use crate::reservation::store::Reservation;
use crate::state::Inputs;
use facts::QueueName;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Which shapes are feasible, and what makes others infeasible.
pub(crate) struct FeasibleShapes<'a> {
    inputs: Inputs<'a>,
    /// Whether freed nodes take the shapes that they were offered to, where that was asked.
    offered: RefCell<Hashed<ShapeId, bool>>,
    /// How many classes were asked whether their first job may be evaluated.
    asked: Cell<usize>,
    /// Those of them that are not asked again before their shapes are feasible.
    fruitless: RefCell<Vec<(QueueId, ShapeId)>>,
    /// The last in order of the reservations that make a shape infeasible, preemptors left out.
    pub(crate) last: Option<&'a Reservation>,
}

impl<'a> FeasibleShapes<'a> {
    fn shapes(&self) -> &'a InfeasibleShapes {
        self.inputs.pending.shapes.infeasible_shapes()
    }

    /// Returns true if a shape is known to be feasible or was offered a freed node.
    fn may_contain(&self, shape: ShapeId) -> bool {
        let shapes = self.shapes();
        shapes.feasible().contains(&shape) || shapes.offers().of(shape).is_some()
    }

    /// The shapes of active classes that may be feasible, each with the queues of these classes: those that were
    /// offered freed nodes are among them, whether these take them now or not.
    pub(crate) fn active(&self) -> impl Iterator<Item = (ShapeId, &'a HashedSet<QueueId>)> {
        let (shapes, queues) = (self.shapes(), &self.inputs.pending.queues);
        let few_active = queues.active().len() < shapes.feasible().len() + shapes.offers().len();
        let active = few_active.then(|| queues.active()).into_iter().flatten();
        let active = active.filter(|shape| self.may_contain(*shape));
        let may_be = (!few_active).then(|| {
            let feasible = shapes.feasible().iter().copied();
            feasible.chain(shapes.offers().shapes())
        });
        let shapes = active.chain(may_be.into_iter().flatten());
        shapes.filter_map(|shape| Some((shape, queues.active_in(shape)?)))
    }

    /// Returns true if an active class of a queue may have a feasible shape: then it is not passed over.
    pub(crate) fn may_be_in(&self, queue: &PendingQueue) -> bool {
        let shapes = self.shapes();
        if queue.asked_len() < shapes.feasible().len() + shapes.offers().len() {
            return queue.asked_shapes().any(|shape| self.may_contain(shape));
        }
        let mut active = self.active();
        active.any(|(_, queues)| queues.contains(&queue.id()))
    }

    /// Returns true if the shape of an active class is feasible.
    pub(crate) fn contains(&self, shape: ShapeId) -> bool {
        self.infeasible(shape).is_none()
    }

    /// Why the shape of an active class is infeasible, if it is.
    fn infeasible(&self, shape: ShapeId) -> Option<&'a Infeasible> {
        let infeasible = self.inputs.pending.shapes.infeasible(shape);
        infeasible.filter(|_| !self.has_offer(shape))
    }

    /// Returns true if a freed node that was offered takes a pod of the shape now.
    fn has_offer(&self, shape: ShapeId) -> bool {
        if self.shapes().offers().of(shape).is_none() {
            return false;
        }
        let mut offered = self.offered.borrow_mut();
        let ask = || offers::offer_now(self.inputs, shape).is_some();
        *offered.entry(shape).or_insert_with(ask)
    }

    /// Notes that a class was asked.
    pub(crate) fn note_asked(&self) {
        self.asked.set(self.asked.get() + 1);
    }

    /// How many classes were asked whether their first job may be evaluated.
    pub(crate) fn asked(&self) -> usize {
        self.asked.get()
    }

    /// Notes that a class of a queue was asked without result, if that is since its shape is infeasible.
    pub(crate) fn note_fruitless(&self, queue: QueueId, shape: ShapeId) {
        if !self.contains(shape) {
            self.fruitless.borrow_mut().push((queue, shape));
        }
    }

    /// Takes the classes that were asked without result.
    pub(crate) fn take_fruitless(&self) -> Vec<(QueueId, ShapeId)> {
        self.fruitless.take()
    }

    /// The shapes of which the freed nodes that they were offered take no pod now, as far as that was asked.
    pub(crate) fn not_taken(self) -> Vec<ShapeId> {
        let asked = self.offered.into_inner().into_iter();
        asked
            .filter(|(_, takes)| !takes)
            .map(|(shape, _)| shape)
            .collect()
    }
}

/// Returns true if less has to become free where nodes were freed than on the nodes that are reserved for a
/// job of a queue and a shape.
pub(crate) fn nodes_are_nearer(inputs: Inputs<'_>, queue: &QueueName, shape: ShapeId) -> bool {
    let owners = inputs.reservations.holders_in(queue);
    let owners = owners.filter(|rank| withheld::shape_of(inputs, &rank.key) == Some(shape));
    let mut reserved = owners.filter_map(|rank| inputs.reservations.of(&rank.key));
    reserved.any(|reserved| {
        let mut clusters = inputs.pending.freed().clusters();
        clusters.any(|cluster| plan::lacks_less(inputs, reserved, cluster))
    })
}

/// Returns which shapes of active classes may fit now. Freed nodes are to be offered before.
pub(crate) fn feasible(inputs: Inputs<'_>) -> FeasibleShapes<'_> {
    let infeasible_shapes = inputs.pending.shapes.infeasible_shapes();
    let holders = inputs.reservations.with_nodes();
    let holders = holders.filter(|reserved| infeasible_shapes.are_stopped_by(&reserved.rank.key));
    FeasibleShapes {
        inputs,
        offered: RefCell::default(),
        asked: Cell::default(),
        fruitless: RefCell::default(),
        last: last_of(inputs, holders),
    }
}

/// For the audit: shapes that count as infeasible although they may fit, or the other way round; none while freed
/// nodes are yet to be offered.
pub(crate) fn wrongly_feasible(inputs: Inputs<'_>, feasible: &FeasibleShapes<'_>) -> Vec<String> {
    if inputs.pending.freed().has_to_offer() {
        return Vec::new();
    }
    let wrong = inputs.pending.queues.active().filter(|shape| {
        let infeasible = inputs.pending.shapes.infeasible(*shape);
        let might = infeasible.is_none() || offers::offer_now(inputs, *shape).is_some();
        might != feasible.contains(*shape)
    });
    wrong
        .map(|shape| {
            format!("shape {shape:?}: feasible and taken for infeasible, or the other way round")
        })
        .collect()
}

/// The infeasible shapes in reservation windows of which a job may obtain a reservation: not all of its slots are
/// taken, and it is not known that none is possible.
pub(crate) fn with_free_slots(
    inputs: Inputs<'_>,
    feasible: &FeasibleShapes<'_>,
) -> BTreeSet<ShapeId> {
    let most = inputs.config.reservations_per_class.max(1);
    let full = |shape: &ShapeId| {
        if inputs.pending.shapes.is_unreservable(*shape) {
            return true;
        }
        let scopes = inputs.pending.shapes.scopes(*shape).into_iter().flatten();
        let mut scopes = scopes.peekable();
        scopes.peek().is_some() && scopes.any(|scope| inputs.reservations.count(scope) >= most)
    };
    let in_window = inputs.pending.queues.in_window();
    let may_reserve = in_window.filter(|shape| {
        let is_active = inputs.pending.queues.active_in(*shape).is_some();
        is_active && !full(shape) && !feasible.contains(*shape)
    });
    may_reserve.collect()
}

/// Returns true if the shape of a pending job is feasible for it.
pub(crate) fn may_find_room(
    inputs: Inputs<'_>,
    feasible: &FeasibleShapes<'_>,
    queue: &QueueName,
    rank: &QueueOrder,
    shape: ShapeId,
) -> bool {
    match feasible.infeasible(shape) {
        None => true,
        Some(Infeasible::NoRoom) => false,
        // The owner of a reservation is never bound by all of them.
        Some(Infeasible::Withheld(_)) if inputs.reservations.of(&rank.key).is_some() => true,
        Some(Infeasible::Withheld(holders)) => {
            !inputs.pending.shapes.get(shape).is_some_and(|shape| {
                let request = Request {
                    queue,
                    rank,
                    shape,
                    verbose: false,
                };
                let mut reserved = holders.iter().filter_map(|key| inputs.reservations.of(key));
                reserved.all(|reserved| withheld::binds(inputs, reserved, request))
            })
        }
    }
}

/// Returns true if the owner of a reservation is before a pending job in order.
pub(crate) fn stands_before(
    inputs: Inputs<'_>,
    holder: &Reservation,
    queue: &QueueName,
    rank: &QueueOrder,
) -> bool {
    inputs
        .quota
        .compare((&holder.queue, &holder.rank), (queue, rank))
        == Ordering::Less
}

/// The last in order of the reservations with nodes, preemptors left out.
pub(crate) fn last_holder<'a>(inputs: Inputs<'a>) -> Option<&'a Reservation> {
    last_of(inputs, inputs.reservations.with_nodes())
}

/// The last in order of these reservations, preemptors left out.
pub(crate) fn last_of<'a>(
    inputs: Inputs<'_>,
    holders: impl Iterator<Item = &'a Reservation>,
) -> Option<&'a Reservation> {
    let holders = holders.filter(|reserved| !reserved.taking());
    holders.max_by(|a, b| {
        inputs
            .quota
            .compare((&a.queue, &a.rank), (&b.queue, &b.rank))
    })
}
