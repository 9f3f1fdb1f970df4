//! A federation small enough to read: queues, nodes, and jobs that are submitted and end in rounds.
//!
//! Amounts are plain numbers in two dimensions. A case prints as a story, which a failing case is
//! shrunk to, and it becomes the facts for the engine.

use crate::world;
use engine::facts::{Backfill, FairShare, FairShareWithin, Limits, Preemption, QueueOrdering};
use engine::facts::{ClusterPlacement, Demand, JobFact, NodeFact, PolicyFact, PoolBound};
use engine::facts::{PriorityClassFact, QueueFact, Split};
use engine::{Engine, Event, PoolClass, Progress, QueueName, ResourceName, Resources, Time, Uid};
use std::fmt;

/// GPUs and whole cores of CPU.
pub type Amounts = [i64; 2];
/// The same, with optional dimensions.
pub type Bounds = [Option<i64>; 2];

pub const GPU: usize = 0;
pub const CPU: usize = 1;
pub const CLUSTERS: [&str; 3] = ["x", "y", "z"];
/// The priority of a job by its class; the class is named `p<index>`.
pub const PRIORITIES: [i32; 3] = [0, 10, -10];

/// The priority classes `p0`, `p1` and so on, which preempt nobody.
pub fn priority_classes() -> impl Iterator<Item = Event> {
    let classes = PRIORITIES.into_iter().enumerate();
    classes.map(|(index, value)| {
        Event::PriorityClassUpserted(PriorityClassFact {
            name: format!("p{index}"),
            value,
            global_default: false,
            preempts: false,
        })
    })
}

#[derive(Clone, Default)]
pub struct Case {
    pub queues: Vec<Queue>,
    pub nodes: Vec<Node>,
    pub rounds: Vec<Round>,
}

/// A queue; its name is `q<index>`, and its parent comes before it.
#[derive(Clone, Default)]
pub struct Queue {
    pub parent: Option<usize>,
    pub priority: i32,
    pub weight: u32,
    pub guarantee: Bounds,
    pub deserved: Bounds,
    pub capability: Bounds,
    /// The most GPUs of the class `gpu`, in all clusters together.
    pub of_class: Option<i64>,
    /// What it deserves of them, in GPUs.
    pub deserved_of_class: Option<i64>,
    pub strict: bool,
    pub jobs: Option<u32>,
    pub jobs_per_user: Option<u32>,
    /// The most GPUs of one user.
    pub gpus_per_user: Option<i64>,
    /// The most GPUs of the one namespace in which all jobs are.
    pub gpus_per_namespace: Option<i64>,
    pub pending: Option<u32>,
    /// True if its jobs go by users; not if it is strict.
    pub by_user: bool,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub cluster: usize,
    pub big: bool,
    pub has: Amounts,
}

/// The events before the next decision.
#[derive(Debug, Clone, Default)]
pub struct Round {
    pub submit: Vec<Job>,
    /// The running jobs that end, as indices modulo their number.
    pub finish: Vec<usize>,
    /// A node that becomes unusable, or usable again.
    pub node: Option<(usize, bool)>,
    /// A queue and its new capability in GPUs.
    pub capability: Option<(usize, Option<i64>)>,
}

#[derive(Clone)]
pub struct Job {
    pub queue: usize,
    pub class: usize,
    pub queued_at: i64,
    pub user: u8,
    pub roles: Vec<Role>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    pub count: u32,
    pub each: Amounts,
}

impl Job {
    pub fn request(&self) -> Amounts {
        let add = |sum, role: &Role| crate::room::plus(sum, role.each, role.count);
        self.roles.iter().fold([0, 0], add)
    }

    pub fn fact(&self, name: &str) -> JobFact {
        JobFact {
            key: world::key(name),
            uid: Uid::from(name),
            queue: QueueName::from(queue_name(self.queue).as_str()),
            priority_class: Some(format!("p{}", self.class)),
            queued_at: Time(self.queued_at * 1000),
            demand: demand(&self.roles),
            hold: None,
            expected_duration_ms: None,
            user: format!("u{}", self.user),
            preemptible: true,
            checkpointed_at: None,
            images: Vec::new(),
        }
    }
}

pub fn demand(roles: &[Role]) -> Demand {
    let roles = roles.iter().enumerate().map(|(index, role)| {
        world::role(&format!("r{index}"), role.count, &amounts_text(role.each))
    });
    Demand {
        split: Split::Never,
        placement: ClusterPlacement::default(),
        ..world::gang(roles.collect())
    }
}

impl Queue {
    pub fn fact(&self, index: usize) -> QueueFact {
        QueueFact {
            parent: self.parent.map(|parent| queue_name(parent).as_str().into()),
            priority: self.priority,
            weight: self.weight,
            guarantee: resources(self.guarantee),
            deserved: resources(self.deserved),
            capability: resources(self.capability),
            ..world::queue(&queue_name(index))
        }
    }

    /// Its policy, without reservations and reclaim.
    pub fn policy(&self, index: usize) -> PolicyFact {
        let of_class = PoolBound {
            deserved: resources([self.deserved_of_class, None]),
            ..world::bound("gpu", None, &text([self.of_class, None]))
        };
        let names = self.of_class.or(self.deserved_of_class).is_some();
        PolicyFact {
            ordering: if self.strict {
                QueueOrdering::StrictFifo
            } else {
                QueueOrdering::BestEffort
            },
            limits: Limits {
                jobs: self.jobs,
                jobs_per_user: self.jobs_per_user,
                pending: self.pending,
                runtime_ms: None,
                resources_per_user: resources([self.gpus_per_user, None]),
                resources_per_namespace: resources([self.gpus_per_namespace, None]),
            },
            pools: names.then_some(of_class).into_iter().collect(),
            fair_share: FairShare {
                within: self.by_user.then_some(FairShareWithin::User),
                ..FairShare::default()
            },
            ..first_that_fits(index)
        }
    }
}

impl Node {
    pub fn fact(&self, index: usize, usable: bool) -> NodeFact {
        let has = amounts_text(self.has);
        NodeFact {
            class: PoolClass::from(if self.big { "big" } else { "gpu" }),
            usable,
            ..world::node(CLUSTERS[self.cluster], &format!("n{index}"), &has)
        }
    }
}

/// The policy of a queue without reclaim and reservations: a job that fits starts.
pub fn first_that_fits(queue: usize) -> PolicyFact {
    PolicyFact {
        ordering: QueueOrdering::BestEffort,
        backfill: Backfill {
            conservative: false,
            reservations: Some(0),
        },
        preemption: Preemption {
            reclaim: false,
            ..Preemption::default()
        },
        ..world::policy(&queue_name(queue))
    }
}

pub fn job_name(job: usize) -> String {
    format!("j{job:02}")
}

/// The job of that name.
pub fn job_number(name: &str) -> usize {
    name[1..].parse().unwrap()
}

/// Reports the progress of a job's latest attempt to the engine.
pub fn progress(engine: &mut Engine, job: usize, progress: Progress, at: Time) {
    let key = world::key(&job_name(job));
    let attempt = engine.job(&key).unwrap().attempts;
    engine.apply(Event::JobProgressed {
        key,
        attempt,
        progress,
        at,
    });
}

pub fn queue_name(index: usize) -> String {
    format!("q{index}")
}

pub fn amounts_text([gpu, cpu]: Amounts) -> String {
    format!("gpu {gpu}, cpu {cpu}")
}

pub fn gpu() -> ResourceName {
    ResourceName::new("nvidia.com/gpu")
}

/// Amounts of the engine, in whole units of both dimensions.
pub fn amounts(resources: &Resources) -> Amounts {
    let cpu = resources.amount_of(&ResourceName::new("cpu")).0;
    assert_eq!(cpu % 1000, 0);
    [resources.amount_of(&gpu()).0, cpu / 1000]
}

/// The same, with `None` for what is not named.
pub fn bounds(resources: &Resources) -> Bounds {
    let cpu = resources.get(&ResourceName::new("cpu"));
    [
        resources.get(&gpu()).map(|amount| amount.0),
        cpu.map(|amount| amount.0 / 1000),
    ]
}

fn resources(bounds: Bounds) -> Resources {
    world::res(&text(bounds))
}

fn text(bounds: Bounds) -> String {
    let named = ["gpu", "cpu"].into_iter().zip(bounds);
    let parts = named.filter_map(|(name, bound)| Some(format!("{name} {}", bound?)));
    parts.collect::<Vec<_>>().join(", ")
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, queue) in self.queues.iter().enumerate() {
            writeln!(f, "\nqueue q{index} {queue:?}")?;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let class = if node.big { "big" } else { "gpu" };
            let has = amounts_text(node.has);
            writeln!(
                f,
                "node n{index} of {} ({class}): {has}",
                CLUSTERS[node.cluster]
            )?;
        }
        let mut serial = 0;
        for round in &self.rounds {
            writeln!(f, "round")?;
            for job in &round.submit {
                writeln!(f, "  submit j{serial:02} {job:?}")?;
                serial += 1;
            }
            if !round.finish.is_empty() {
                writeln!(f, "  finish {:?}", round.finish)?;
            }
            if let Some((node, usable)) = round.node {
                writeln!(f, "  node n{node} usable: {usable}")?;
            }
            if let Some((queue, gpus)) = round.capability {
                writeln!(f, "  queue q{queue} capability in gpu: {gpus:?}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "below q{parent} ")?;
        }
        write!(f, "priority {} weight {}", self.priority, self.weight)?;
        for (name, bounds) in [
            ("guarantee", self.guarantee),
            ("deserved", self.deserved),
            ("capability", self.capability),
            ("of class gpu", [self.of_class, None]),
            ("deserved of class gpu", [self.deserved_of_class, None]),
        ] {
            if bounds != [None, None] {
                write!(f, " {name} ({})", text(bounds))?;
            }
        }
        if self.strict {
            write!(f, " strict")?;
        }
        if self.by_user {
            write!(f, " by user")?;
        }
        for (name, limit) in [
            ("jobs", self.jobs),
            ("per user", self.jobs_per_user),
            ("pending", self.pending),
        ] {
            if let Some(limit) = limit {
                write!(f, " {name} {limit}")?;
            }
        }
        for (name, limit) in [
            ("GPUs per user", self.gpus_per_user),
            ("GPUs per namespace", self.gpus_per_namespace),
        ] {
            if let Some(limit) = limit {
                write!(f, " {name} {limit}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "to q{} of u{} priority {} at {} s:",
            self.queue, self.user, PRIORITIES[self.class], self.queued_at
        )?;
        for role in &self.roles {
            write!(f, " {} × ({})", role.count, amounts_text(role.each))?;
        }
        Ok(())
    }
}
