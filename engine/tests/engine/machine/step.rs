//! The steps of the machine, and how often they occur.

use super::layout::Span;
use proptest::option::of;
use proptest::prelude::*;

/// An event outside the engine, or a call of `decide`. Numbers are indices into the lists of
/// queues, clusters, jobs and classes; amounts are GPUs, times seconds.
#[derive(Debug, Clone)]
pub enum Step {
    Submit(Submitted),
    Recreate(usize),
    Grow {
        job: usize,
        count: u32,
        gpus: u32,
    },
    Hold(usize, bool),
    Checkpoint(usize),
    Gone(usize),
    Bind {
        job: usize,
        most: usize,
        elsewhere: bool,
    },
    Run(usize),
    Finish(usize),
    Revive(usize),
    Refuse(usize),
    End(usize),
    /// The pods of a job beyond its admission are gone.
    Shed(usize),
    WorksGone(usize),
    /// All jobs that are being evicted are gone.
    AllGone,
    /// Members carry out all decisions.
    Obey,
    Capability {
        queue: usize,
        gpus: Option<u32>,
    },
    Shares {
        queue: usize,
        guarantee: Option<u32>,
        deserved: Option<u32>,
    },
    Reclaimable(usize, bool),
    State(usize, bool),
    Policy(usize, PolicyStep),
    /// The most GPUs of one user and of one namespace, in any queue of the tree, and whether its jobs go by users.
    Owners {
        queue: usize,
        per_user: Option<u32>,
        per_namespace: Option<u32>,
        by_user: bool,
    },
    Node {
        cluster: usize,
        node: usize,
        gpus: u32,
        usable: bool,
    },
    NodeGone(usize, usize),
    Usable(usize, bool),
    Foreign {
        cluster: usize,
        node: usize,
        gpus: u32,
    },
    ForeignGone(usize, usize),
    Class(u8, i32, bool),
    Wait(u16),
    Decide,
}

/// A submitted job.
#[derive(Debug, Clone, Copy)]
pub struct Submitted {
    pub job: usize,
    pub queue: usize,
    pub count: u32,
    pub gpus: u32,
    pub kind: Kind,
    pub class: u8,
    pub user: u8,
    pub lasts: Option<u16>,
    pub preemptible: bool,
}

/// The kind of a demand, besides its number of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A kind whose size nothing enforces.
    Plain,
    Held,
    /// Karmada itself divides it over clusters.
    Divisible,
    WithoutDevices,
    /// Between one pod and its full size.
    Elastic,
    /// Elastic over several clusters, with the parts enforced by overrides.
    Stretchable,
    /// Two roles, split over several clusters if needed.
    Split,
    /// Within one rack of a cluster.
    Close,
}

/// A change of a queue's policy.
#[derive(Debug, Clone, Copy)]
pub enum PolicyStep {
    Ordering(u8),
    PoolBound(Option<u32>),
    Preemption {
        within: bool,
        reclaim: bool,
        min_runtime: u16,
    },
    Jobs(Option<u32>),
    JobsPerUser(Option<u32>),
    Pending(Option<u32>),
    Runtime(Option<u16>),
    FairShare {
        weight: Option<u32>,
        half_life: Option<u16>,
    },
    Backfill {
        conservative: bool,
        reservations: Option<u32>,
    },
    MaxClusters(Option<u32>),
}

pub fn step(span: Span) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => submitted(span).prop_map(Step::Submit),
        6 => of_jobs(span),
        6 => of_members(span),
        6 => of_queues(span),
        5 => of_fleet(span),
        2 => (1..400_u16).prop_map(Step::Wait),
        8 => Just(Step::Decide),
    ]
}

/// Steps with many running jobs: jobs are submitted and end, and other events are rare.
pub fn lively(span: Span) -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => submitted(span).prop_map(Step::Submit),
        6 => job(span).prop_map(Step::Finish),
        8 => job(span).prop_map(Step::Gone),
        6 => Just(Step::Obey),
        4 => (1..100_u16).prop_map(Step::Wait),
        16 => Just(Step::Decide),
        2 => of_jobs(span),
        2 => of_members(span),
        1 => (queue(span), policy_step()).prop_map(|(queue, change)| Step::Policy(queue, change)),
        1 => of_queues(span),
        1 => of_fleet(span),
    ]
}

/// Limits on owners, in one of three steps of queues. Streams that are pinned do not have them.
pub fn of_owners() -> impl Strategy<Value = Step> {
    (0..16_usize, of(0..17_u32), of(0..25_u32), any::<bool>()).prop_map(
        |(queue, per_user, per_namespace, by_user)| Step::Owners {
            queue,
            per_user,
            per_namespace,
            by_user,
        },
    )
}

/// The steps of `step` and of `lively`, with limits on owners.
pub fn owned(span: Span) -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => step(span),
        10 => lively(span),
        2 => of_owners(),
    ]
}

fn job(span: Span) -> std::ops::Range<usize> {
    0..span.jobs
}

fn queue(span: Span) -> std::ops::Range<usize> {
    0..span.queues
}

pub fn submitted(span: Span) -> impl Strategy<Value = Submitted> {
    let kind = prop_oneof![
        Just(Kind::Plain),
        Just(Kind::Held),
        Just(Kind::Divisible),
        Just(Kind::WithoutDevices),
        Just(Kind::Elastic),
        Just(Kind::Stretchable),
        Just(Kind::Split),
        Just(Kind::Close),
    ];
    let who = (0..4_u8, 0..2_u8, proptest::bool::weighted(0.8));
    (
        job(span),
        queue(span),
        1..4_u32,
        0..9_u32,
        kind,
        who,
        of(1..200_u16),
    )
        .prop_map(
            |(job, queue, count, gpus, kind, (class, user, preemptible), lasts)| Submitted {
                job,
                queue,
                count,
                gpus,
                kind,
                class,
                user,
                lasts,
                preemptible,
            },
        )
}

/// Steps of users and the controller on jobs.
pub fn of_jobs(span: Span) -> impl Strategy<Value = Step> {
    prop_oneof![
        job(span).prop_map(Step::Recreate),
        (job(span), 1..6_u32, 0..9_u32).prop_map(|(job, count, gpus)| Step::Grow {
            job,
            count,
            gpus
        }),
        (job(span), any::<bool>()).prop_map(|(job, held)| Step::Hold(job, held)),
        job(span).prop_map(Step::Checkpoint),
        job(span).prop_map(Step::Gone),
        job(span).prop_map(Step::Refuse),
        job(span).prop_map(Step::End),
    ]
}

/// Reports of members on admitted jobs.
pub fn of_members(span: Span) -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (job(span), 1..4_usize, any::<bool>())
            .prop_map(|(job, most, elsewhere)| Step::Bind { job, most, elsewhere }),
        3 => job(span).prop_map(Step::Run),
        3 => job(span).prop_map(Step::Finish),
        1 => job(span).prop_map(Step::Revive),
        2 => job(span).prop_map(Step::Shed),
        2 => job(span).prop_map(Step::WorksGone),
        2 => Just(Step::AllGone),
    ]
}

pub fn of_queues(span: Span) -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (queue(span), of(0..24_u32)).prop_map(|(queue, gpus)| Step::Capability { queue, gpus }),
        3 => (queue(span), of(0..9_u32), of(0..17_u32))
            .prop_map(|(queue, guarantee, deserved)| Step::Shares { queue, guarantee, deserved }),
        1 => (queue(span), any::<bool>()).prop_map(|(queue, yes)| Step::Reclaimable(queue, yes)),
        1 => (queue(span), any::<bool>()).prop_map(|(queue, open)| Step::State(queue, open)),
        5 => (queue(span), policy_step()).prop_map(|(queue, change)| Step::Policy(queue, change)),
    ]
}

pub fn policy_step() -> impl Strategy<Value = PolicyStep> {
    prop_oneof![
        3 => (0..4_u8).prop_map(PolicyStep::Ordering),
        1 => of(0..24_u32).prop_map(PolicyStep::PoolBound),
        3 => (any::<bool>(), any::<bool>(), 0..100_u16).prop_map(|(within, reclaim, min_runtime)| {
            PolicyStep::Preemption { within, reclaim, min_runtime }
        }),
        1 => of(0..4_u32).prop_map(PolicyStep::Jobs),
        1 => of(0..4_u32).prop_map(PolicyStep::JobsPerUser),
        1 => of(0..4_u32).prop_map(PolicyStep::Pending),
        1 => of(1..400_u16).prop_map(PolicyStep::Runtime),
        1 => (of(1..5_u32), of(1..400_u16))
            .prop_map(|(weight, half_life)| PolicyStep::FairShare { weight, half_life }),
        1 => (any::<bool>(), of(0..4_u32)).prop_map(|(conservative, reservations)| {
            PolicyStep::Backfill { conservative, reservations }
        }),
        1 => of(1..3_u32).prop_map(PolicyStep::MaxClusters),
    ]
}

pub fn of_fleet(span: Span) -> impl Strategy<Value = Step> {
    let place = move || (0..span.clusters, 0..span.nodes);
    prop_oneof![
        2 => (place(), 0..9_u32, any::<bool>()).prop_map(|((cluster, node), gpus, usable)| Step::Node {
            cluster, node, gpus, usable,
        }),
        1 => place().prop_map(|(cluster, node)| Step::NodeGone(cluster, node)),
        1 => (0..span.clusters, any::<bool>()).prop_map(|(cluster, usable)| Step::Usable(cluster, usable)),
        1 => (place(), 1..9_u32).prop_map(|((cluster, node), gpus)| Step::Foreign { cluster, node, gpus }),
        1 => place().prop_map(|(cluster, node)| Step::ForeignGone(cluster, node)),
        1 => (0..3_u8, -10..10, any::<bool>())
            .prop_map(|(class, value, preempts)| Step::Class(class, value, preempts)),
    ]
}
