//! More steps, and how often they occur.

use crate::machine::layout::Span;
use crate::machine::step::{self, Kind, Step, Submitted};
use proptest::option::of;
use proptest::prelude::*;

/// One step. Numbers are indices as in [`Step`].
#[derive(Debug, Clone)]
pub enum Wide {
    Old(Step),
    Submit(Dressed),
    /// A running job that Muster did not place.
    Adopt {
        told: Submitted,
        cluster: usize,
    },
    /// The watch shows the placement.
    Placed(usize),
    /// Pods of an admitted job exist and are not bound.
    Unbound(usize, usize),
    /// A pod of a job has ended; whether it is gone, too.
    PodEnds(usize, bool),
    QueueGone(usize),
    QueueBack(usize),
    /// A queue gets another parent, or none.
    Parent(usize, Option<usize>),
    PolicyGone(usize),
    /// Whether an inner queue is reclaimable.
    InnerReclaimable(usize, bool),
    Pools(usize, Vec<Bound>),
    ClassGone(u8),
    ClusterGone(usize),
    ClusterBack(usize),
    ClusterTaint(usize, Option<Taints>),
    NodeTaint(usize, usize, bool),
    NodeLabel(usize, usize, u8),
    /// The clock is this many seconds behind its latest time.
    Back(u16),
    /// Another process leads.
    Restart {
        /// True if the last decisions were not written.
        lost: bool,
        /// True if jobs are reported before queues and clusters.
        jobs_first: bool,
    },
}

/// A job with more constraints than pods with devices.
#[derive(Debug, Clone)]
pub struct Dressed {
    pub told: Submitted,
    pub cpus: u32,
    /// The label that its nodes must have, if any.
    pub node: Option<u8>,
    pub tolerates_node: bool,
    pub tolerates_cluster: bool,
    /// The clusters it may be placed in; none for all.
    pub clusters: Vec<usize>,
    /// True if the clusters are included, or excluded.
    pub excluded: bool,
    pub max_clusters: Option<u32>,
    /// True if a gang prefers to be split.
    pub prefers: bool,
}

/// A bound on pools, in GPUs, with a capability in CPUs.
#[derive(Debug, Clone)]
pub struct Bound {
    pub big: bool,
    pub clusters: Vec<usize>,
    pub guarantee: Option<u32>,
    pub deserved: Option<u32>,
    pub most: Option<u32>,
    pub cpus: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taints {
    NoSchedule,
    NoExecute,
    /// It is being removed from the federation.
    Leaving,
}

const SPAN: Span = Span::LARGE;

pub fn wide() -> impl Strategy<Value = Wide> {
    let old = prop_oneof![
        8 => job().prop_map(Step::Finish),
        8 => job().prop_map(Step::Gone),
        8 => Just(Step::Obey),
        6 => (1..100_u16).prop_map(Step::Wait),
        16 => Just(Step::Decide),
        3 => step::of_jobs(SPAN),
        4 => step::of_members(SPAN),
        1 => step::of_queues(SPAN),
        1 => step::of_fleet(SPAN),
    ];
    prop_oneof![
        60 => old.prop_map(Wide::Old),
        36 => dressed().prop_map(Wide::Submit),
        5 => of_pods(),
        5 => of_queues(),
        3 => of_fleet(),
        1 => (0..100_u16).prop_map(Wide::Back),
        1 => (step::submitted(SPAN), 0..SPAN.clusters)
            .prop_map(|(told, cluster)| Wide::Adopt { told, cluster }),
        1 => (any::<bool>(), any::<bool>())
            .prop_map(|(lost, jobs_first)| Wide::Restart { lost, jobs_first }),
    ]
}

fn job() -> std::ops::Range<usize> {
    0..SPAN.jobs
}

fn queue() -> std::ops::Range<usize> {
    0..SPAN.queues
}

fn dressed() -> impl Strategy<Value = Dressed> {
    let tolerates = (any::<bool>(), any::<bool>());
    let clusters = prop_oneof![
        3 => Just(Vec::new()),
        1 => proptest::collection::vec(0..SPAN.clusters, 1..3),
    ];
    let node = prop_oneof![4 => Just(None), 1 => (0..2_u8).prop_map(Some)];
    let most = prop_oneof![4 => Just(None), 1 => (1..3_u32).prop_map(Some)];
    let placed = (clusters, any::<bool>(), most, any::<bool>());
    (step::submitted(SPAN), 1..5_u32, node, tolerates, placed).prop_map(
        |(told, cpus, node, tolerates, (clusters, excluded, max_clusters, prefers))| Dressed {
            told,
            cpus,
            node,
            tolerates_node: tolerates.0,
            tolerates_cluster: tolerates.1,
            clusters,
            excluded,
            max_clusters,
            prefers: prefers && matches!(told.kind, Kind::Split | Kind::Stretchable),
        },
    )
}

fn of_pods() -> impl Strategy<Value = Wide> {
    prop_oneof![
        job().prop_map(Wide::Placed),
        (job(), 1..4_usize).prop_map(|(job, most)| Wide::Unbound(job, most)),
        (job(), any::<bool>()).prop_map(|(job, gone)| Wide::PodEnds(job, gone)),
    ]
}

fn of_queues() -> impl Strategy<Value = Wide> {
    prop_oneof![
        1 => queue().prop_map(Wide::QueueGone),
        3 => queue().prop_map(Wide::QueueBack),
        2 => (queue(), of(queue())).prop_map(|(queue, parent)| Wide::Parent(queue, parent)),
        1 => queue().prop_map(Wide::PolicyGone),
        4 => (queue(), proptest::collection::vec(bound(), 0..3))
            .prop_map(|(queue, bounds)| Wide::Pools(queue, bounds)),
        1 => (0..3_u8).prop_map(Wide::ClassGone),
    ]
}

fn bound() -> impl Strategy<Value = Bound> {
    let clusters = prop_oneof![
        Just(Vec::new()),
        proptest::collection::vec(0..SPAN.clusters, 1..3),
    ];
    let gpus = (of(0..4_u32), of(2..12_u32), of(8..24_u32));
    (any::<bool>(), clusters, gpus, of(0..24_u32)).prop_map(
        |(big, clusters, (guarantee, deserved, most), cpus)| Bound {
            big,
            clusters,
            guarantee,
            deserved,
            most,
            cpus,
        },
    )
}

fn of_fleet() -> impl Strategy<Value = Wide> {
    let node = || (0..SPAN.clusters, 0..SPAN.nodes);
    let taint = prop_oneof![
        Just(Taints::NoSchedule),
        Just(Taints::NoExecute),
        Just(Taints::Leaving)
    ];
    prop_oneof![
        1 => (0..SPAN.clusters).prop_map(Wide::ClusterGone),
        3 => (0..SPAN.clusters).prop_map(Wide::ClusterBack),
        2 => (0..SPAN.clusters, of(taint))
            .prop_map(|(cluster, taint)| Wide::ClusterTaint(cluster, taint)),
        2 => (node(), any::<bool>())
            .prop_map(|((cluster, node), yes)| Wide::NodeTaint(cluster, node, yes)),
        3 => (node(), 0..2_u8)
            .prop_map(|((cluster, node), label)| Wide::NodeLabel(cluster, node, label)),
    ]
}
