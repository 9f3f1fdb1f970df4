//! The reference: the job that is admitted next, found by looking at everything each time.

use crate::case::{Amounts, CLUSTERS, Case, GPU, Job, PRIORITIES, Role};
use crate::room::{Free, minus, place, plus};
use crate::tree::Tree;
use engine::facts::{Admission, Share};
use std::cmp::Reverse;

/// The state of the reference.
pub struct Model {
    pub queues: Vec<crate::case::Queue>,
    nodes: Vec<Node>,
    pub jobs: Vec<Entry>,
}

struct Node {
    stated: crate::case::Node,
    usable: bool,
    used: Amounts,
}

pub struct Entry {
    pub job: Job,
    pub state: State,
    /// The pods per node of each role, while it runs.
    placed: Vec<(usize, usize, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Waits,
    Runs,
    Ended,
}

/// The order inside a queue without users: priority, time, id.
type Rank = (Reverse<i32>, i64, usize);

/// The first job below a queue, and the best rank of the jobs that may start there.
#[derive(Clone, Copy)]
struct First {
    job: usize,
    best: Rank,
}

impl Model {
    pub fn new(case: &Case) -> Self {
        let node = |stated: &crate::case::Node| Node {
            stated: stated.clone(),
            usable: true,
            used: [0, 0],
        };
        Self {
            queues: case.queues.clone(),
            nodes: case.nodes.iter().map(node).collect(),
            jobs: Vec::new(),
        }
    }

    pub fn submit(&mut self, job: Job) {
        self.jobs.push(Entry {
            job,
            state: State::Waits,
            placed: Vec::new(),
        });
    }

    pub fn set_usable(&mut self, node: usize, usable: bool) {
        self.nodes[node].usable = usable;
    }

    /// Takes over the engine's placement of a job, after checking that it is allowed.
    pub fn release(&mut self, job: usize, admission: &Admission) -> Result<(), String> {
        let [share] = admission.shares.as_slice() else {
            return Err(format!("j{job:02} is spread over clusters"));
        };
        self.jobs[job].state = State::Runs;
        let stated = self.jobs[job].job.clone();
        for (index, role) in stated.roles.iter().enumerate() {
            let name = format!("r{index}");
            let mut assumed = 0;
            for slot in share.slots.iter().filter(|slot| slot.role == name) {
                let node = self.node(share, slot.node.as_str())?;
                self.nodes[node].used = plus(self.nodes[node].used, role.each, slot.count);
                self.jobs[job].placed.push((node, index, slot.count));
                assumed += slot.count;
            }
            if assumed != role.count {
                return Err(format!(
                    "j{job:02} has {assumed} placed for {} pods",
                    role.count
                ));
            }
        }
        let over = self.nodes.iter().position(|node| {
            let free = node.free();
            node.usable && free.iter().any(|left| *left < 0)
        });
        over.map_or(Ok(()), |node| Err(format!("n{node} is over")))
    }

    fn node(&self, share: &Share, name: &str) -> Result<usize, String> {
        let index: usize = name[1..].parse().unwrap();
        let node = &self.nodes[index];
        let there = CLUSTERS[node.stated.cluster] == share.cluster.as_str();
        if there && node.usable {
            Ok(index)
        } else {
            Err(format!("{name} is no usable node of {}", share.cluster))
        }
    }

    pub fn finish(&mut self, job: usize) {
        let entry = &mut self.jobs[job];
        entry.state = State::Ended;
        for (node, role, count) in entry.placed.drain(..) {
            let each = entry.job.roles[role].each;
            self.nodes[node].used = minus(self.nodes[node].used, each, count);
        }
    }

    /// The node and the role of each pod of a running job.
    pub fn assumed(&self, job: usize) -> Vec<(usize, Role)> {
        let entry = &self.jobs[job];
        let each = |(node, role, count): &(usize, usize, u32)| {
            vec![(*node, entry.job.roles[*role]); *count as usize]
        };
        entry.placed.iter().flat_map(each).collect()
    }

    pub fn running(&self) -> Vec<usize> {
        let all = 0..self.jobs.len();
        all.filter(|job| self.jobs[*job].state == State::Runs)
            .collect()
    }

    /// The requests of the jobs of a queue and of those below it in this state.
    pub fn sum(&self, queue: usize, state: State) -> Amounts {
        let jobs = self.jobs.iter().filter(|entry| entry.state == state);
        let below = jobs.filter(|entry| self.path(entry.job.queue).contains(&queue));
        below.fold([0, 0], |sum, entry| plus(sum, entry.job.request(), 1))
    }

    fn path(&self, queue: usize) -> Vec<usize> {
        std::iter::successors(Some(queue), |at| self.queues[*at].parent).collect()
    }

    pub fn with_tree<T>(&self, ask: impl FnOnce(&Tree<'_>) -> T) -> T {
        let all = 0..self.queues.len();
        let allocated: Vec<Amounts> = all.clone().map(|at| self.sum(at, State::Runs)).collect();
        let of_class: Vec<i64> = all.map(|at| self.of_class(at)).collect();
        let usable = self.nodes.iter().filter(|node| node.usable);
        ask(&Tree {
            queues: &self.queues,
            allocated: &allocated,
            of_class: &of_class,
            fleet: usable.fold([0, 0], |sum, node| plus(sum, node.stated.has, 1)),
        })
    }

    /// The job that is admitted next, if there is one.
    pub fn next(&self) -> Option<usize> {
        self.with_tree(|tree| Some(self.first_below(tree, None)?.job))
    }

    /// The first job among the children of a queue with a job that may start: on each level the
    /// queues decide and, if they are equal, the best rank of all jobs that may start below each.
    fn first_below(&self, tree: &Tree<'_>, parent: Option<usize>) -> Option<First> {
        let ready = tree.children(parent).into_iter().filter_map(|queue| {
            if !tree.children(Some(queue)).is_empty() {
                return Some((queue, self.first_below(tree, Some(queue))?));
            }
            let job = self.first_of(tree, queue)?;
            let best = self.rank(job);
            Some((queue, First { job, best }))
        });
        let ready: Vec<(usize, First)> = ready.collect();
        let best = ready.iter().map(|(_, first)| first.best).min()?;
        let first = ready.iter().min_by(|(a, first_a), (b, first_b)| {
            tree.order(*a, *b).then(first_a.best.cmp(&first_b.best))
        });
        first.map(|(_, first)| First {
            job: first.job,
            best,
        })
    }

    /// The first job of a leaf that may start: in a strict queue only the head, which is the first
    /// job that could ever start and whose user has not reached the limit.
    fn first_of(&self, tree: &Tree<'_>, queue: usize) -> Option<usize> {
        let mut competing = self.competing(tree, queue).into_iter();
        if self.queues[queue].strict {
            let head = competing
                .find(|job| self.could_go(tree, *job) && self.within_limits(tree, *job))?;
            return Some(head).filter(|job| self.may_go(tree, *job));
        }
        competing.find(|job| self.may_go(tree, *job))
    }

    /// The pending jobs of the queue in order, by the shares of their users if it goes by users, as many as may
    /// compete.
    fn competing(&self, tree: &Tree<'_>, queue: usize) -> Vec<usize> {
        let all = 0..self.jobs.len();
        let waits = |job: &usize| {
            let entry = &self.jobs[*job];
            entry.state == State::Waits && entry.job.queue == queue
        };
        let mut waiting: Vec<usize> = all.filter(waits).collect();
        waiting.sort_by_key(|job| self.rank(*job));
        if self.queues[queue].by_user {
            let share = |job: &usize| tree.part(queue, self.of_user(queue, *job), 1);
            waiting.sort_by_key(|job| (self.rank(*job).0, share(job)));
        }
        let most = self.queues[queue]
            .pending
            .map_or(usize::MAX, |most| most as usize);
        waiting.truncate(most);
        waiting
    }

    /// Returns what the user of a job uses in a queue.
    fn of_user(&self, queue: usize, job: usize) -> Amounts {
        let user = self.jobs[job].job.user;
        let running = self.running().into_iter().map(|job| &self.jobs[job].job);
        let own = running.filter(|job| job.queue == queue && job.user == user);
        own.fold([0, 0], |sum, job| plus(sum, job.request(), 1))
    }

    fn rank(&self, job: usize) -> Rank {
        let stated = &self.jobs[job].job;
        (Reverse(PRIORITIES[stated.class]), stated.queued_at, job)
    }

    fn may_go(&self, tree: &Tree<'_>, job: usize) -> bool {
        tree.fits_quota(
            self.jobs[job].job.queue,
            self.jobs[job].job.request(),
            tree.allocated,
        ) && self.within_limits(tree, job)
            && self.has_room(tree, job, true)
    }

    /// Returns true if it could start if nothing else ran.
    fn could_go(&self, tree: &Tree<'_>, job: usize) -> bool {
        let idle = vec![[0, 0]; tree.queues.len()];
        let stated = &self.jobs[job].job;
        tree.fits_quota(stated.queue, stated.request(), &idle) && self.has_room(tree, job, false)
    }

    /// Returns true if no queue of the path has reached its limit of jobs, nor of what the job's user and its namespace
    /// have.
    fn within_limits(&self, tree: &Tree<'_>, job: usize) -> bool {
        let stated = &self.jobs[job].job;
        tree.path(stated.queue).into_iter().all(|queue| {
            let running = self
                .running()
                .into_iter()
                .map(|other| &self.jobs[other].job);
            let below: Vec<_> = running
                .filter(|other| tree.path(other.queue).contains(&queue))
                .collect();
            let of_user = || below.iter().filter(|other| other.user == stated.user);
            let limit = &self.queues[queue];
            let gpus = |job: &Job| job.request()[GPU];
            let of_user_gpus = of_user().map(|other| gpus(other)).sum();
            let of_all_gpus = below.iter().map(|other| gpus(other)).sum();
            under(limit.jobs, below.len())
                && under(limit.jobs_per_user, of_user().count())
                && within(limit.gpus_per_user, of_user_gpus, gpus(stated))
                && within(limit.gpus_per_namespace, of_all_gpus, gpus(stated))
        })
    }

    /// Returns true if the whole gang fits into a cluster, within the bounds of the path on the class: now,
    /// or without `used` if nothing ran.
    fn has_room(&self, tree: &Tree<'_>, job: usize, used: bool) -> bool {
        let stated = &self.jobs[job].job;
        let path = tree.path(stated.queue);
        (0..CLUSTERS.len()).any(|cluster| {
            let nodes: Vec<Free> = self.free_in(cluster, used);
            let within = |placed: &[Vec<u32>]| {
                let added = self.of_class_in(stated, &nodes, placed);
                path.iter().all(|queue| {
                    let has = if used { self.of_class(*queue) } else { 0 };
                    let most = self.queues[*queue].of_class;
                    added == 0 || most.is_none_or(|most| has + added <= most)
                })
            };
            place(&stated.roles, &nodes, &within).is_some()
        })
    }

    fn free_in(&self, cluster: usize, used: bool) -> Vec<Free> {
        let there = self.nodes.iter().enumerate();
        let there = there.filter(|(_, node)| node.usable && node.stated.cluster == cluster);
        there
            .map(|(index, node)| Free {
                node: index,
                amounts: if used { node.free() } else { node.stated.has },
            })
            .collect()
    }

    /// GPUs of the class `gpu` that the job would use in this placement.
    fn of_class_in(&self, job: &Job, nodes: &[Free], placed: &[Vec<u32>]) -> i64 {
        let mut added = 0;
        for (role, counts) in job.roles.iter().zip(placed) {
            for (node, count) in nodes.iter().zip(counts) {
                if !self.nodes[node.node].stated.big {
                    added += role.each[GPU] * i64::from(*count);
                }
            }
        }
        added
    }

    /// GPUs of the class `gpu` that the jobs of the queue and of those below it use.
    fn of_class(&self, queue: usize) -> i64 {
        let below = self.jobs.iter();
        let below = below.filter(|entry| self.path(entry.job.queue).contains(&queue));
        let assumed = below.flat_map(|entry| {
            entry
                .placed
                .iter()
                .map(move |assumed_pod| (entry, assumed_pod))
        });
        let of_class = assumed.filter(|(_, (node, _, _))| !self.nodes[*node].stated.big);
        of_class
            .map(|(entry, (_, role, count))| entry.job.roles[*role].each[GPU] * i64::from(*count))
            .sum()
    }
}

impl Node {
    fn free(&self) -> Amounts {
        minus(self.stated.has, self.used, 1)
    }
}

/// Returns true if so many more GPUs keep a limit; a job without any is not stopped by it.
fn within(limit: Option<i64>, has: i64, needs: i64) -> bool {
    needs == 0 || limit.is_none_or(|limit| has + needs <= limit)
}

fn under(limit: Option<u32>, count: usize) -> bool {
    limit.is_none_or(|limit| count < limit as usize)
}
