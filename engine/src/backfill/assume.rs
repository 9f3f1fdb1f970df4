//! What decisions assume beside the facts: every overlay that is not empty is made here.
//!
//! - A request is evaluated beside the reservations ahead of it ([`Overlay::for_request`]).
//! - A reservation is planned beside the nodes of those ahead ([`Overlay::of_reserved_nodes`]).
//! - Bounds on pools leave more for it by the time at which its nodes are free ([`Overlay::after_ends`]).
//! - A preemptor is evaluated as it will be once all evictions are done
//!   ([`Overlay::after_evictions`]), with its victims gone ([`FreedByEnd`]).
//! - Advice raises the bound that is short ([`Overlay::with_more_headroom`]).

use crate::api::charge::Pools;
use crate::backfill::{expected_release, reservation, withheld};
use crate::capacity::Holdings;
use crate::overlay::Overlay;
use crate::placement::request::Request;
use crate::quota::Shortfall;
use crate::reservation::store::Reservation;
use crate::state::Inputs;
use facts::{JobKey, Progress, QueueName, Time};

/// What becomes free when a job ends or shrinks.
pub(crate) struct FreedByEnd<'a> {
    pub(crate) key: &'a JobKey,
    pub(crate) queue: &'a QueueName,
    pub(crate) charge: Pools,
    pub(crate) nodes: Holdings,
}

/// Returns what becomes free once all jobs that are ending or shrinking are gone, or smaller.
pub(crate) fn terminating<'a>(inputs: Inputs<'a>) -> impl Iterator<Item = FreedByEnd<'a>> {
    let jobs = inputs.jobs.preemptible().terminating();
    jobs.filter_map(move |key| leaving(inputs, key))
}

/// Returns what becomes free once a job that is ending is gone, or what leaves it is.
pub(crate) fn leaving<'a>(inputs: Inputs<'a>, key: &'a JobKey) -> Option<FreedByEnd<'a>> {
    let released = inputs.jobs.released(key)?;
    let queue = &released.admission.queue;
    let mut nodes = inputs.capacity.holdings(key);
    if released.progress == Progress::Ending {
        return Some(FreedByEnd {
            key,
            queue,
            charge: released.pools(),
            nodes,
        });
    }
    // The plan of a gang that shrinks says where it stays.
    let basis = released.basis.as_deref()?;
    for share in &released.admission.shares {
        for slot in &share.slots {
            let role = basis.roles.iter().find(|role| role.name == slot.role)?;
            let held = nodes.get_mut(&(share.cluster.clone(), slot.node.clone()));
            if let Some(held) = held {
                let request = role.request_in(&share.cluster);
                let count = held.fits(request, slot.count);
                held.add(request, -i64::from(count));
            }
        }
        if share.slots.is_empty() {
            nodes.retain(|(cluster, _), _| *cluster != share.cluster);
        }
    }
    let mut charge = Pools::new();
    for leaving in &released.leaving {
        for (class, part) in &leaving.charge {
            let pool = (leaving.cluster.clone(), class.clone());
            let sum = charge.entry(pool).or_default();
            *sum = sum.checked_add(part).unwrap_or_else(|| part.clone());
        }
    }
    Some(FreedByEnd {
        key,
        queue,
        charge,
        nodes,
    })
}

impl Overlay {
    /// Beside the reservations of `owners`.
    pub(crate) fn beside(inputs: Inputs<'_>, owners: &[&JobKey]) -> Self {
        Self::default().with_reservations(inputs, owners)
    }

    /// The same, in addition to what is assumed already.
    pub(crate) fn with_reservations(mut self, inputs: Inputs<'_>, owners: &[&JobKey]) -> Self {
        for reserved in owners.iter().filter_map(|key| inputs.reservations.of(key)) {
            self.reserve_nodes(reserved);
            self.reserve_headroom(inputs, reserved);
        }
        self
    }

    /// Beside the nodes that are reserved for `owners`.
    pub(crate) fn of_reserved_nodes(inputs: Inputs<'_>, owners: &[&JobKey]) -> Self {
        let mut overlay = Self::default();
        let reserved = owners.iter().filter_map(|key| inputs.reservations.of(key));
        reserved.for_each(|reserved| overlay.reserve_nodes(reserved));
        overlay
    }

    /// Returns what a request may use beside the reservations of `ahead`.
    ///
    /// Preemptors were evaluated as if all that is terminating were gone. One whose own victims are
    /// gone has to find the same, or the victims of a later preemptor would stop it: they are still
    /// charged, and what they free is reserved already. It may use only what is free now.
    pub(crate) fn for_request(inputs: Inputs<'_>, request: Request<'_>, ahead: &[&JobKey]) -> Self {
        let mut overlay = Self::beside(inputs, ahead);
        let own = inputs.reservations.of(&request.rank.key);
        if own.is_some_and(Reservation::is_served) {
            terminating(inputs).for_each(|leaving| overlay.release(inputs, &leaving));
            overlay.floor();
        }
        overlay.with_spares(inputs, request)
    }

    /// Once all evictions are done: victims are gone, their preemptors are there, and the
    /// reservations ahead of the request stand.
    pub(crate) fn after_evictions(inputs: Inputs<'_>, request: Request<'_>) -> Self {
        let mut overlay = Self::default();
        let others = inputs.reservations.iter();
        let preemptors =
            others.filter(|other| other.taking() && other.rank.key != request.rank.key);
        for preemptor in preemptors {
            let pools = preemptor.pools.iter().cloned();
            let pools = pools.map(|(cluster, class, part)| ((cluster, class), part));
            let charge: Pools = pools.collect();
            inputs
                .quota
                .assume(&mut overlay, &preemptor.queue, &charge, 1);
            overlay.reserve_nodes(preemptor);
        }
        let is_there = |key: &&JobKey| inputs.reservations.of(key).is_some_and(Reservation::taking);
        let mut ahead = withheld::reservations_ahead(inputs, request);
        ahead.retain(|key| !is_there(key));
        let mut overlay = overlay.with_reservations(inputs, &ahead);
        terminating(inputs).for_each(|leaving| overlay.release(inputs, &leaving));
        overlay.with_spares(inputs, request)
    }

    /// Returns what jobs are charged that are expected to have ended by a time at which `has_come` still holds is
    /// charged no more. Their nodes are as they are.
    pub(crate) fn after_ends(inputs: Inputs<'_>, has_come: impl Fn(Time) -> bool) -> Self {
        let mut overlay = Self::default();
        for key in expected_release::ends_until(inputs, has_come) {
            if let Some((queue, pools)) = inputs.jobs.charge_of(key) {
                inputs.quota.assume(&mut overlay, queue, pools, -1);
            }
        }
        overlay
    }

    /// As if the bound that is short allowed `amount` more; `pools` are those that the job would use.
    pub(crate) fn with_more_headroom(
        short: &Shortfall,
        pools: Option<&Pools>,
        amount: i128,
    ) -> Self {
        // Any pool that the bound counts stands for all of it.
        let pool = pools.filter(|_| short.class().is_some()).and_then(|pools| {
            let counts = |pool: &&(_, _)| short.counts(&pool.0, &pool.1);
            pools.keys().rfind(counts).cloned()
        });
        let mut overlay = Self::default();
        overlay.relieve(&short.queue, pool, &short.resource, amount);
        overlay
    }

    /// What leaves is charged no more, and its nodes are free.
    pub(crate) fn release(&mut self, inputs: Inputs<'_>, leaving: &FreedByEnd<'_>) {
        inputs
            .quota
            .assume(self, leaving.queue, &leaving.charge, -1);
        self.free(&leaving.nodes);
    }

    /// What is held of nodes is free.
    pub(crate) fn free(&mut self, nodes: &Holdings) {
        for ((cluster, node), held) in nodes {
            self.node_mut(cluster, node).add_totals(held, -1);
        }
    }

    fn reserve_nodes(&mut self, reserved: &Reservation) {
        for node in &reserved.nodes {
            self.node_mut(&node.cluster, &node.node)
                .add(&node.resources, 1);
        }
    }

    /// Withholds the charge of the owner less what the jobs it waits for release when they end.
    fn reserve_headroom(&mut self, inputs: Inputs<'_>, reserved: &Reservation) {
        for queue in inputs.quota.path(&reserved.queue) {
            let expected = expected_release::expected_on(inputs, reserved, &queue);
            let rest = reservation::not_given_back(&reserved.charge, expected.clone());
            self.withhold(&queue, None, &rest);
            for (cluster, class, resources) in &reserved.pools {
                let here = expected
                    .clone()
                    .filter(|r| r.cluster == *cluster && r.class == *class);
                let pool = Some((cluster.clone(), class.clone()));
                let rest = reservation::not_given_back(resources, here);
                self.withhold(&queue, pool, &rest);
            }
        }
    }
}
