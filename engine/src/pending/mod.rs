//! Pending jobs: in order, in classes of one shape, parked until what they wait for changes.
//!
//! When a class is evaluated again:
//! - The state of the class ([`pending_queue`]): it was woken, is rechecked in any case, waits until its
//!   shape is feasible, or is parked until one of its conditions ([`inadmissible`]) has changed.
//! - The shape of a class that waits for it is feasible again once a freed node could take one of its
//!   pods ([`infeasible`]). Each freed node is offered to the shapes once ([`offers`]), and an offer is checked
//!   when a head is searched, so that a freed node costs one evaluation however many classes have the shape.
//! - A job of an infeasible shape is evaluated for a reservation, while it is in the window of its queue
//!   and a slot is not taken by reservations of higher priority (`backfill::window`), and for
//!   preemption, while it has no back-off ([`backoff`]).
//!
//! A verdict names what it waits for as [`inadmissible::RequeueCondition`]s, for a class as for the search for
//! victims of one job, and one index ([`waiting_list`]) finds who waits for what. `cycle::react` says what
//! each change wakes. These are not ways to sleep:
//! - [`deferred`] holds the classes whose jobs have others evicted last.
//! - [`head_selector`] is a cache of which queues have to be asked, without which each search asks all. So is a class
//!   that is passed over in its queue: it has a shape that is infeasible, and is active.
//! - An infeasible shape is a fact about the fleet, and costs its classes nothing until a node is freed.
//! - An unreservable job ([`store`]) and a class that may move are notes of what a plan would say, so that
//!   it is not made again before a node is freed. Their classes are active.

mod audit;
pub(crate) mod backoff;
pub(crate) mod deferred;
pub(crate) mod fruitless;
pub(crate) mod head_selector;
pub(crate) mod inadmissible;
pub(crate) mod infeasible;
pub(crate) mod infeasible_shapes;
pub(crate) mod offers;
pub(crate) mod pending_queue;
pub(crate) mod position_index;
pub(crate) mod queues;
pub(crate) mod ranks;
pub(crate) mod shapes;
mod shapes_by_owner;
pub(crate) mod store;
#[cfg(test)]
mod testing;
mod waiting_list;
