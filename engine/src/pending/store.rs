//! The pending store: pending jobs, in order, and what each waits for.

use super::deferred::DeferredPreemption;
use super::fruitless::Fruitless;
use super::head_selector::HeadSelector;
use super::inadmissible::RequeueCondition;
use super::infeasible::{FreedNode, FreedNodes, Infeasible, Nodes};
use super::offers::Offer;
use super::queues::PendingQueues;
use super::shapes::{RequestShape, Shapes};
use crate::api::slot::ReservationSlot;
use crate::pending::backoff::PreemptionBackoff;
use crate::pending::shapes::{ShapeId, SlotSetId};
use facts::{ClusterName, JobKey, NodeName, QueueName, ResourceName};
use std::collections::BTreeSet;

/// With one infeasible shape, so many others are noted that would fit on the same nodes. The rest is evaluated, so that
/// no evaluation is longer the more users or declared run times there are.
const ALIKE_AT_ONCE: usize = 1_024;

/// Pending jobs, and what is known of their request shapes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    /// The pending jobs of each queue.
    pub(crate) queues: PendingQueues,
    /// Their request shapes.
    pub(crate) shapes: Shapes,
    /// Nodes with capacity that was freed since all feasible shapes were evaluated.
    freed: FreedNodes,
    /// Which queue's head is evaluated next.
    pub(crate) heads: HeadSelector,
    /// Jobs that found no victims, and when they search again.
    pub(crate) backoff: PreemptionBackoff,
    /// Jobs for which no reservation is possible until a node is freed or unreserved.
    unreservable: BTreeSet<JobKey>,
    /// Jobs for which one may have become possible: they are in the windows of their queues again, which these
    /// have yet to learn.
    reservable: BTreeSet<JobKey>,
    /// Slots of classes of pools that parked jobs may have a claim to since they were last asked.
    contested: BTreeSet<ReservationSlot>,
    /// Classes whose jobs have others evicted last.
    pub(crate) deferred: DeferredPreemption,
    /// Evaluations without result.
    pub(crate) fruitless: Fruitless,
    /// Clusters in which jobs or reservations took of nodes, and of which owners of reservations were not asked since
    /// whether they start sooner there.
    taken_in: BTreeSet<ClusterName>,
}

impl Pending {
    /// Notes the slots that a reservation for a shape takes. Returns how many classes are listed by other slots.
    pub(crate) fn note_scopes(
        &mut self,
        shape: ShapeId,
        scopes: &BTreeSet<ReservationSlot>,
    ) -> usize {
        let slots = self.shapes.set_of(scopes);
        self.note_slot_set(shape, slots)
    }

    /// Notes the set of slots that a reservation for a shape takes. Returns how many classes are listed by other slots.
    pub(crate) fn note_slot_set(&mut self, shape: ShapeId, slots: SlotSetId) -> usize {
        match self.shapes.note_slot_set(shape, slots) {
            true => self.queues.note_slots(shape, slots),
            false => 0,
        }
    }

    /// A job or a reservation took of nodes of these clusters.
    pub(crate) fn note_taken_in<'a>(
        &mut self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
    ) {
        self.taken_in.extend(clusters.into_iter().cloned());
    }

    /// The next of these clusters, to be asked of now.
    pub(crate) fn next_taken_in(&mut self) -> Option<ClusterName> {
        self.taken_in.pop_first()
    }

    /// The fleet changed: nothing is known of what fits it.
    pub(crate) fn forget_fits(&mut self) {
        self.shapes.forget_fits();
        self.queues.forget_slots();
    }

    /// Some nodes changed, whose capacity is noted as freed where they may run more. Nothing is known of what fits the
    /// empty fleet, and these shapes may not fit it any more.
    ///
    /// Pods that have to stand to each other in some way may fit even where a node went: their rules count the domains
    /// that there are. So do constraints of topology, if a cluster has other domains (`regrouped`).
    pub(crate) fn nodes_changed(&mut self, may_exceed: BTreeSet<ShapeId>, regrouped: bool) {
        let counts_domains = |shape: &RequestShape| {
            shape.demand.has_rules() || (regrouped && shape.demand.topology.is_some())
        };
        self.shapes.nodes_changed(counts_domains);
        let shapes = &self.shapes;
        let counts_domains = |id| shapes.get(id).is_some_and(|shape| counts_domains(shape));
        let fleet = RequeueCondition::Fleet;
        self.queues.wake_shapes(&fleet, counts_domains);
        for shape in may_exceed {
            self.shapes.note_feasible(shape);
        }
    }

    /// No reservation is possible for a job, nor for another job of this shape behind all owners of
    /// reserved nodes, until a node is freed or unreserved.
    pub(crate) fn note_unreservable(&mut self, key: &JobKey, shape: Option<ShapeId>) {
        self.unreservable.insert(key.clone());
        if let Some(shape) = shape {
            self.shapes.note_unreservable(shape);
        }
    }

    /// Returns true if no reservation is possible for a job until a node is freed or unreserved.
    pub(crate) fn is_unreservable(&self, key: &JobKey) -> bool {
        self.unreservable.contains(key)
    }

    /// The jobs for which no reservation was possible.
    pub(crate) fn unreservable(&self) -> &BTreeSet<JobKey> {
        &self.unreservable
    }

    /// A reservation may be possible now for these jobs.
    pub(crate) fn retry_reservations(&mut self, mut jobs: BTreeSet<JobKey>) {
        jobs.retain(|key| self.unreservable.remove(key));
        self.reservable.append(&mut jobs);
    }

    /// A reservation may be possible now for a job, which is being evaluated. Returns true if it was not before.
    pub(crate) fn retry_reservation(&mut self, key: &JobKey) -> bool {
        self.unreservable.remove(key)
    }

    /// The fleet or the rules changed.
    pub(crate) fn retry_all_reservations(&mut self) {
        // Of the jobs in windows with such a shape it may not be noted. They may have a claim to slots that are taken.
        for shape in self.shapes.take_unreservable() {
            self.queues.note_window_changed(shape);
        }
        self.reservable.append(&mut self.unreservable);
    }

    /// Pods left these nodes.
    pub(crate) fn note_freed(&mut self, nodes: &Nodes) {
        self.freed.note_freed(nodes);
        self.retry_all_reservations();
    }

    /// Less of these nodes is reserved.
    pub(crate) fn note_unreserved<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = (&'a ClusterName, &'a NodeName)>,
    ) {
        self.freed.note_unreserved(nodes);
        self.retry_all_reservations();
    }

    /// Takes one of the jobs for which a reservation may have become possible.
    pub(crate) fn take_reservable(&mut self) -> Option<JobKey> {
        self.reservable.pop_first()
    }

    /// Returns true if classes are to be woken, or windows to be told of their jobs.
    pub(crate) fn has_to_wake(&self) -> bool {
        !self.reservable.is_empty() || self.queues.has_to_wake()
    }

    /// A slot of a class of pools is free, or its holder has less of a claim to it.
    pub(crate) fn note_contested(&mut self, slot: ReservationSlot) {
        self.contested.insert(slot);
    }

    /// Returns true if any were noted since the last call of [`Self::take_contested`].
    pub(crate) fn has_contested(&self) -> bool {
        !self.contested.is_empty()
    }

    /// The slots that were noted since the last call.
    pub(crate) fn take_contested(&mut self) -> BTreeSet<ReservationSlot> {
        std::mem::take(&mut self.contested)
    }

    /// Nodes with capacity that was freed since all feasible shapes were evaluated.
    pub(crate) fn freed(&self) -> &FreedNodes {
        &self.freed
    }

    /// A freed node that is yet to be offered to infeasible shapes; each is named once.
    pub(crate) fn take_to_offer(&mut self) -> Option<FreedNode> {
        self.freed.take_to_offer()
    }

    /// A freed node with so much free of each resource is offered to these shapes.
    pub(crate) fn note_offered(
        &mut self,
        node: &FreedNode,
        free: Vec<(ResourceName, i128)>,
        offers: Vec<(ShapeId, Offer)>,
    ) {
        self.freed.note_offered(node, free);
        for (shape, offer) in offers {
            self.offer(shape, offer);
        }
    }

    /// A freed node may take a pod of an infeasible shape.
    pub(crate) fn offer(&mut self, shape: ShapeId, offer: Offer) {
        self.shapes.offer(shape, offer);
    }

    /// No freed node takes a pod of an infeasible shape.
    pub(crate) fn withdraw(&mut self, shape: ShapeId) {
        self.shapes.withdraw(shape, self.freed.generation());
    }

    /// The shapes that are offered nodes for a pod which requests more of a resource than any of these has left.
    pub(crate) fn offered_too_little(
        &mut self,
        free: impl Fn(&ResourceName, &FreedNode) -> i128,
    ) -> Vec<ShapeId> {
        let offers = self.shapes.infeasible_shapes().offers();
        let short = offers.leading().flat_map(|name| {
            let most = self.freed.most_offered(name, |node| free(name, node));
            offers.above(name, most)
        });
        short.collect()
    }

    /// All feasible shapes were evaluated. These may fit on nodes that were freed since they were
    /// evaluated themselves, and are feasible from now on; the others that were offered nodes are not.
    pub(crate) fn settle_freed(&mut self, feasible: &BTreeSet<ShapeId>) {
        let offered = self.shapes.infeasible_shapes().offers().shapes();
        for shape in offered.collect::<Vec<_>>() {
            match feasible.contains(&shape) {
                true => self.shapes.note_feasible(shape),
                false => self.withdraw(shape),
            }
        }
        self.freed.settle();
    }

    /// Has the classes asked again that are passed over and whose shapes may be feasible.
    pub(crate) fn ask_again(&mut self) {
        let shapes = self.shapes.take_maybe_feasible();
        self.queues.ask_again(&shapes);
    }

    /// Notes that a shape is infeasible for all queues, and with it some of the feasible ones that would fit on the
    /// same nodes. Returns all of these. The class that was evaluated waits until its shape is feasible; so do the
    /// others, which are not evaluated.
    pub(crate) fn note_infeasible(
        &mut self,
        queue: &QueueName,
        shape: ShapeId,
        why: &Infeasible,
    ) -> Vec<ShapeId> {
        let generation = self.freed.generation();
        // A job that runs for a shorter time may be gone before the owners of what is reserved start.
        let lasts = |id: ShapeId| {
            let duration = self.shapes.get(id).and_then(|shape| shape.duration);
            duration.unwrap_or(i64::MAX)
        };
        let withheld = matches!(why, Infeasible::Withheld(_));
        let as_long = |other: &ShapeId| !withheld || lasts(shape) <= lasts(*other);
        let others = self.shapes.feasible_alike(shape);
        let others = others.filter(|other| *other != shape);
        let others = others.filter(as_long).take(ALIKE_AT_ONCE);
        let mut alike: Vec<ShapeId> = others.chain([shape]).collect();
        alike.sort_unstable();
        for id in &alike {
            self.shapes.note_infeasible(*id, why.clone(), generation);
        }
        self.queues.wait_for_shape(queue, shape);
        alike
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::testing::demand;
    use crate::pending::testing::shape;

    #[test]
    fn an_unreservable_job_is_retried_once() {
        let key = JobKey::new("ns", "one");
        let mut pending = Pending::default();
        assert!(!pending.is_unreservable(&key));
        pending.note_unreservable(&key, None);
        assert!(pending.is_unreservable(&key));
        pending.note_unreserved([]);
        assert!(!pending.is_unreservable(&key));
        pending.note_freed(&Nodes::new());
        assert_eq!(pending.take_reservable(), Some(key));
        assert_eq!(pending.take_reservable(), None);
    }

    #[test]
    fn what_is_noted_of_the_shape_of_an_unreservable_job_is_forgotten_with_it() {
        let mut pending = Pending::default();
        let shape = pending.shapes.acquire(shape(demand(1, "cpu 1")));
        pending.note_unreservable(&JobKey::new("ns", "one"), Some(shape));
        assert!(pending.shapes.is_unreservable(shape));
        pending.note_unreserved([]);
        assert!(!pending.shapes.is_unreservable(shape));
    }

    #[test]
    fn one_infeasible_shape_says_so_of_a_limited_number_of_others() {
        let mut pending = Pending::default();
        let demand = pending.shapes.intern_demand(&demand(1, "cpu 1"));
        let users = 0..2 * ALIKE_AT_ONCE;
        let shapes = users.map(|user| RequestShape {
            demand: demand.clone(),
            user: Some(format!("user-{user}").into()),
            ..shape(demand.as_ref().clone())
        });
        let shapes: Vec<ShapeId> = shapes.map(|shape| pending.shapes.acquire(shape)).collect();
        let queue = QueueName::from("q");
        let mut noted = |shape: ShapeId| {
            let noted = pending.note_infeasible(&queue, shape, &Infeasible::NoRoom);
            noted.len()
        };
        assert_eq!(noted(shapes[0]), ALIKE_AT_ONCE + 1);
        // What is infeasible already is noted no more, except the shape that was evaluated.
        assert_eq!(noted(shapes[1]), ALIKE_AT_ONCE);
        assert_eq!(noted(shapes[2]), 1);
    }

    #[test]
    fn shapes_that_freed_nodes_may_take_are_feasible_when_all_others_were_evaluated() {
        let mut pending = Pending::default();
        let shape = pending.shapes.acquire(shape(demand(1, "cpu 1")));
        let queue = QueueName::from("q");
        pending.note_infeasible(&queue, shape, &Infeasible::NoRoom);
        let freed = [(ClusterName::from("a"), NodeName::from("n0"))];
        pending.note_unreserved(freed.iter().map(|(cluster, node)| (cluster, node)));
        assert!(pending.freed().is_any());
        let node = pending.take_to_offer();
        assert_eq!(node.as_ref(), Some(&freed[0]));
        assert_eq!(pending.take_to_offer(), None);
        let node = node.unwrap_or_else(|| freed[0].clone());
        let offer = Offer {
            cluster: node.0.clone(),
            node: node.1.clone(),
            leading: Some((ResourceName::new("cpu"), 1_000)),
        };
        let free = vec![(ResourceName::new("cpu"), 2_000)];
        pending.note_offered(&node, free, vec![(shape, offer)]);
        assert_eq!(pending.offered_too_little(|_, _| 1_000), []);
        assert_eq!(pending.offered_too_little(|_, _| 999), [shape]);
        pending.settle_freed(&BTreeSet::from([shape]));
        assert_eq!(pending.shapes.infeasible(shape), None);
        assert!(!pending.freed().is_any());
    }
}
