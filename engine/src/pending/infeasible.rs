//! What no room can be found for is judged once, whoever asks for it.
//!
//! Room does not know queues: a shape that finds none for one queue finds none for any, until
//! somewhere more of it becomes free. So the shape is shut, all groups of it at once, and stays
//! so until a node on which more has become free could take at least one of its pods. The same
//! holds for what is only kept for others: then those are stopped whom the same reservations
//! bind. A completion costs what it may have opened, not what waits.
//!
//! A shape that is shut must find no plan: whatever else might open it (another fleet, another
//! queue policy) opens it by name.

use crate::amounts::hashed::HashedSet;
use crate::api::facts::{Role, Split};
use crate::api::ids::{ClusterName, JobKey, NodeName, QueueName};
use crate::api::job::QueueOrder;
use crate::cycle::evaluate::Request;
use crate::pending::shapes::{RequestShape, ShapeId, Shapes};
use crate::quota::QueueId;
use crate::reservation::plan;
use crate::reservation::reserve;
use crate::reservation::store::Reservation;
use crate::state::{Engine, Inputs};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a shape is shut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Infeasible {
    /// It fits nowhere.
    NoRoom,
    /// It fits only where nodes are kept for these jobs: that stops whoever has to leave alone
    /// what is kept for all of them. Of one that keeps nothing any more the nodes have grown.
    Withheld(Arc<[JobKey]>),
}

/// Nodes of which more has become free, by cluster.
pub(crate) type Nodes = BTreeMap<ClusterName, BTreeSet<NodeName>>;

/// Nodes of which more has become free since all that is open was judged, and when each last
/// grew, counted in growths: a shape that was shut later was judged with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreedNodes {
    nodes: BTreeMap<ClusterName, BTreeMap<NodeName, At>>,
    count: u64,
}

/// When a node grew last.
#[derive(Debug, Clone, Copy, Default)]
struct At {
    /// More of it became free.
    free: u64,
    /// That, or less of it is kept.
    open: u64,
}

impl FreedNodes {
    /// Whether any has grown since all that is open was judged.
    pub(crate) fn is_any(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Growths so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    fn add(&mut self, cluster: &ClusterName, node: &NodeName, free: bool) {
        let nodes = self.nodes.entry(cluster.clone()).or_default();
        let at = nodes.entry(node.clone()).or_default();
        at.open = self.count;
        if free {
            at.free = self.count;
        }
    }

    /// Those that grew after so many growths, as far as it matters to what is shut so.
    fn since(
        &self,
        count: u64,
        why: &Infeasible,
    ) -> impl Iterator<Item = (&ClusterName, &NodeName)> {
        let nodes = self.nodes.iter();
        let nodes = nodes.flat_map(|(cluster, nodes)| nodes.iter().map(move |n| (cluster, n)));
        let kept = matches!(why, Infeasible::Withheld(_));
        let grew = move |at: &At| count < if kept { at.open } else { at.free };
        nodes
            .filter(move |(_, (_, at))| grew(at))
            .map(|(cluster, (node, _))| (cluster, node))
    }
}

/// Which shapes find no room as things are.
pub(crate) struct FeasibleShapes<'a> {
    shapes: &'a Shapes,
    /// The queues in which somebody awake has a shape that might find room, by want.
    pub(crate) open: BTreeMap<ShapeId, &'a HashedSet<QueueId>>,
    /// The last in order of those for whom what a shape needs is kept that is shut, those aside
    /// for whom jobs are evicted.
    pub(crate) last: Option<&'a Reservation>,
}

impl<'a> FeasibleShapes<'a> {
    /// Whether somebody awake in a queue has a shape that might find room.
    pub(crate) fn are_open_in(&self, queue: QueueId) -> bool {
        self.open.values().any(|queues| queues.contains(&queue))
    }

    /// Whether something that somebody awake wants might find room, whoever asks.
    pub(crate) fn is_open(&self, shape: ShapeId) -> bool {
        self.infeasible(shape).is_none()
    }

    /// Why no room can be found for something that somebody awake wants, if so.
    fn infeasible(&self, shape: ShapeId) -> Option<&'a Infeasible> {
        let infeasible = self.shapes.infeasible(shape);
        infeasible.filter(|_| !self.open.contains_key(&shape))
    }
}

/// Notes nodes of which more has become free, and wakes those who sleep for want of that.
pub(crate) fn note_grown(engine: &mut Engine, freed: Nodes) {
    let mut known: BTreeMap<ShapeId, bool> = BTreeMap::new();
    for (_, shape) in engine.pending.queues.sleepers_for_room() {
        if let std::collections::btree_map::Entry::Vacant(entry) = known.entry(shape) {
            let may = engine.pending.shapes.get(shape).is_some_and(|shape| {
                let mut nodes = listed(&freed);
                nodes.any(|(cluster, node)| {
                    takes_one(engine.inputs(), shape, cluster, node, &Infeasible::NoRoom)
                })
            });
            entry.insert(may);
        }
    }
    engine.pending.freed.count += 1;
    for (cluster, node) in listed(&freed) {
        engine.pending.freed.add(cluster, node, true);
    }
    // What frees on its nodes changes what a holder has to keep besides; what frees elsewhere
    // may be nearer to what it needs, if those who go before it leave it.
    let on_them = |kept: &Reservation| {
        let mut nodes = kept.nodes.iter();
        nodes.any(|node| {
            let nodes = freed.get(&node.cluster);
            nodes.is_some_and(|nodes| nodes.contains(&node.node))
        })
    };
    let nearer = |kept: &Reservation| {
        let mut clusters = freed.keys();
        clusters.any(|cluster| plan::might_lack_less(engine.inputs(), kept, cluster))
    };
    let holders = engine.reservations.with_nodes();
    let met = holders.filter_map(|kept| {
        let here = on_them(kept);
        (here || nearer(kept)).then(|| (kept.rank.key.clone(), here))
    });
    for (holder, here) in met.collect::<Vec<_>>() {
        if here {
            reserve::rouse_job(engine, &holder);
        } else if let Some(line) = reserve::line_now(engine.inputs(), &holder) {
            engine.pending.queues.remind(&line.queue, line.shape);
        }
    }
    engine
        .pending
        .queues
        .wake_for_room(|shape| known.get(&shape).copied().unwrap_or(true));
}

/// What was kept on nodes is kept no more: that is as good as free.
pub(crate) fn note_unkept(engine: &mut Engine, kept: &Reservation) {
    engine.pending.freed.count += 1;
    for node in &kept.nodes {
        engine.pending.freed.add(&node.cluster, &node.node, false);
    }
}

/// Wants that could be opened by what has become free, and were not judged since, are
/// open from now on. To be called when all that is open was judged.
pub(crate) fn settle_grown(engine: &mut Engine) {
    if !engine.pending.freed.is_any() {
        return;
    }
    let open = opened(engine.inputs());
    for id in open {
        engine.pending.shapes.open(id);
    }
    engine.pending.freed.nodes.clear();
}

/// Whether less has to become free where nodes have grown than on the nodes kept for one of a
/// queue who wants this.
pub(crate) fn nodes_are_nearer(inputs: Inputs<'_>, queue: &QueueName, shape: ShapeId) -> bool {
    let holders = inputs.reservations.holders_in(queue);
    let holders = holders.filter(|rank| reserve::shape_of(inputs, &rank.key) == Some(shape));
    let mut kept = holders.filter_map(|rank| inputs.reservations.of(&rank.key));
    kept.any(|kept| {
        let mut clusters = inputs.pending.freed.nodes.keys();
        clusters.any(|cluster| plan::lacks_less(inputs, kept, cluster))
    })
}

/// Wants that are shut, and might find room on nodes that have grown since.
fn opened(inputs: Inputs<'_>) -> BTreeSet<ShapeId> {
    let infeasible_shapes = inputs.pending.shapes.infeasible_shapes();
    let mut might = BTreeSet::new();
    for (cluster, nodes) in &inputs.pending.freed.nodes {
        let room = inputs.capacity.room.cluster(cluster);
        let nodes = nodes.keys();
        for node in nodes.filter_map(|node| room?.nodes().get(node)) {
            might.extend(
                infeasible_shapes.might_be_on(|name| inputs.capacity.room.free_of(node, name)),
            );
        }
    }
    might.retain(|id| {
        inputs
            .pending
            .shapes
            .infeasible(*id)
            .is_some_and(|why| grew_for(inputs, *id, why))
    });
    might
}

/// Which shapes might find room now, of those that anybody awake has.
pub(crate) fn feasible<'a>(inputs: Inputs<'a>) -> FeasibleShapes<'a> {
    let infeasible_shapes = inputs.pending.shapes.infeasible_shapes();
    let might = infeasible_shapes.open().chain(opened(inputs));
    let open = might.filter_map(|shape| Some((shape, inputs.pending.queues.ready_in(shape)?)));
    let holders = inputs.reservations.with_nodes();
    let holders = holders.filter(|kept| infeasible_shapes.are_stopped_by(&kept.rank.key));
    FeasibleShapes {
        shapes: &inputs.pending.shapes,
        open: open.collect(),
        last: last_of(inputs, holders),
    }
}

/// Wants of which nobody looks whether they might find room although they might, or the
/// other way round.
pub(crate) fn wrong_doors(inputs: Inputs<'_>, feasible: &FeasibleShapes<'_>) -> Vec<String> {
    let wrong = inputs.pending.queues.ready().filter(|(shape, _)| {
        let infeasible = inputs.pending.shapes.infeasible(*shape);
        let might = infeasible.is_none_or(|why| grew_for(inputs, *shape, why));
        might != feasible.open.contains_key(shape)
    });
    wrong
        .map(|(shape, _)| format!("want {shape:?}: open and taken for shut, or shut"))
        .collect()
}

/// Whether nobody whose shape is shut may keep anything, as far as claims are not others: of
/// what each would keep as much is kept already as may be, or nothing can be.
pub(crate) fn is_settled(inputs: Inputs<'_>, feasible: &FeasibleShapes<'_>) -> bool {
    let most = inputs.config.reservations_per_class.max(1);
    let growths = inputs.pending.freed.count();
    let full = |shape: &ShapeId| {
        if inputs.pending.shapes.is_hopeless(*shape, growths) {
            return true;
        }
        let scopes = inputs.pending.shapes.scopes(*shape).into_iter().flatten();
        let mut scopes = scopes.peekable();
        scopes.peek().is_some() && scopes.any(|scope| inputs.reservations.count(scope) >= most)
    };
    let mut fronted = inputs.pending.queues.fronted();
    fronted.all(|shape| {
        inputs.pending.queues.ready_in(shape).is_none() || feasible.is_open(shape) || full(&shape)
    })
}

/// Whether a waiting job might find room.
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
        // Who keeps nodes itself is never stopped by all that do.
        Some(Infeasible::Withheld(_)) if inputs.reservations.of(&rank.key).is_some() => true,
        Some(Infeasible::Withheld(holders)) => {
            !inputs.pending.shapes.get(shape).is_some_and(|shape| {
                let request = Request {
                    queue,
                    rank,
                    shape,
                    tells: false,
                };
                let mut kept = holders.iter().filter_map(|key| inputs.reservations.of(key));
                kept.all(|kept| reserve::binds(inputs, kept, request))
            })
        }
    }
}

/// Whether a holder stands ahead of a waiting job.
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

/// The last in order of those who keep nodes, those aside for whom jobs are evicted.
pub(crate) fn last_holder<'a>(inputs: Inputs<'a>) -> Option<&'a Reservation> {
    last_of(inputs, inputs.reservations.with_nodes())
}

fn last_of<'a>(
    inputs: Inputs<'_>,
    holders: impl Iterator<Item = &'a Reservation>,
) -> Option<&'a Reservation> {
    let holders = holders.filter(|kept| !kept.taking());
    holders.max_by(|a, b| {
        inputs
            .quota
            .compare((&a.queue, &a.rank), (&b.queue, &b.rank))
    })
}

fn grew_for(inputs: Inputs<'_>, id: ShapeId, why: &Infeasible) -> bool {
    let Some(shape) = inputs.pending.shapes.get(id) else {
        return true;
    };
    let mut freed = inputs
        .pending
        .freed
        .since(inputs.pending.shapes.infeasible_at(id), why);
    freed.any(|(cluster, node)| {
        might_hold(inputs, shape, cluster) && takes_one(inputs, shape, cluster, node, why)
    })
}

/// Whether a cluster might hold what cannot be divided, as far as is known without looking
/// at its nodes.
fn might_hold(inputs: Inputs<'_>, shape: &RequestShape, cluster: &ClusterName) -> bool {
    let demand = &shape.demand;
    let divisible = demand.natively_divisible || demand.elastic || demand.split != Split::Never;
    let mut roles = demand.roles.iter();
    divisible || roles.all(|role| inputs.capacity.room.might_hold(cluster, role))
}

/// Whether a node could take one pod of the shape now.
fn takes_one(
    inputs: Inputs<'_>,
    shape: &RequestShape,
    cluster: &ClusterName,
    name: &NodeName,
    why: &Infeasible,
) -> bool {
    let room = inputs.capacity.room.cluster(cluster);
    let Some(node) = room.and_then(|room| room.nodes().get(name)) else {
        return false;
    };
    let kept = match why {
        Infeasible::NoRoom => None,
        Infeasible::Withheld(holders) => inputs.reservations.kept_for(holders, cluster, name),
    };
    let mut roles = shape.demand.roles.iter().filter(|role| role.count > 0);
    let takes = |role: &Role| inputs.capacity.room.takes_one(node, role, kept.as_ref());
    // What asks for nothing is never stopped by room.
    roles.clone().next().is_none() || roles.any(takes)
}

fn listed(freed: &Nodes) -> impl Iterator<Item = (&ClusterName, &NodeName)> {
    freed
        .iter()
        .flat_map(|(cluster, nodes)| nodes.iter().map(move |node| (cluster, node)))
}
