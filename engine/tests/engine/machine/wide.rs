//! The random machine with all events of a live controller: deleted queues, policies, classes and
//! clusters, other parents, taints, labels and affinity, bounds on pools with guarantees, pods that
//! are unbound or have ended, restarts, and a clock that stops or goes back.
//!
//! Some cases have ten queues on three levels, forty nodes and sixty jobs; others have few CPUs.
//! Steps of the smaller machine are used as they are.

use super::layout::Layout;
use super::model::Model;
use super::step::{PolicyStep, Step};
use proptest::prelude::*;

mod bytes;
mod checks;
mod fleet;
mod jobs;
mod pods;
mod queues;
mod restart;
mod steps;

pub use steps::{Bound, Dressed, Wide};

/// A world and its steps.
#[derive(Debug, Clone)]
pub struct Case {
    /// The deserved amounts of queues, and their rules of preemption.
    pub row: u8,
    pub size: Size,
    pub steps: Vec<Wide>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Small,
    Scarce,
    Large,
}

pub fn case(most: usize) -> impl Strategy<Value = Case> {
    let size = prop_oneof![Just(Size::Small), Just(Size::Scarce), Just(Size::Large)];
    let steps = proptest::collection::vec(steps::wide(), 1..most);
    (0..12_u8, size, steps).prop_map(|(row, size, steps)| Case { row, size, steps })
}

/// A shared fleet with inner queues that may not be reclaimable.
pub fn protected(most: usize) -> impl Strategy<Value = Case> {
    let change = (0..most, 0..5_usize, proptest::bool::weighted(0.2));
    let changes = proptest::collection::vec(change, 1..6);
    (case(most), changes).prop_map(|(mut case, changes)| {
        for (at, queue, yes) in changes {
            let at = at % (case.steps.len() + 1);
            let change = Wide::InnerReclaimable(queue, yes);
            case.steps.insert(at, change);
        }
        case
    })
}

impl Case {
    /// A fleet that stays whole and queues that share it by deserved amounts.
    pub fn world(&self) -> Model {
        let layout = match self.size {
            Size::Small => Layout::small(),
            Size::Scarce => Layout::scarce(),
            Size::Large => Layout::large(),
        };
        let leaves = layout.leaves.len();
        let promised = layout.promised.len();
        let mut model = Model::new(layout);
        for class in 0..3_u8 {
            model.take(Step::Class(class, i32::from(class) * 5, class != 1));
        }
        let deserved = [16, 6, 4, 8, 2].into_iter().cycle();
        for (queue, deserved) in (0..promised).zip(deserved) {
            if queue % 3 != usize::from(self.row % 3) {
                model.take(Step::Shares {
                    queue,
                    guarantee: (self.row % 4 == 1 && deserved > 4).then_some(1),
                    deserved: Some(deserved),
                });
            }
        }
        for queue in 0..leaves {
            let row = self.row.wrapping_add(queue as u8);
            let preemption = PolicyStep::Preemption {
                within: !self.row.is_multiple_of(3),
                reclaim: self.row % 4 != 3,
                min_runtime: u16::from(row % 2) * 30,
            };
            for change in [preemption, PolicyStep::Ordering(row % 4)] {
                model.take(Step::Policy(queue, change));
            }
        }
        model
    }
}

/// Runs all steps, and then until nothing happens any more.
pub fn tell(case: &Case) {
    tell_to(case.world(), case);
}

pub fn tell_to(mut model: Model, case: &Case) {
    for step in &case.steps {
        model.take_wide(step.clone());
    }
    model.take_wide(Wide::Back(0));
    model.decide();
    model.come_to_rest();
    model.settle();
    model.replay();
}

proptest! {
    // Few by default, since each is long.
    #![proptest_config(ProptestConfig { cases: crate::random::cases(16), max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_invariants_hold_for_all_events_of_a_controller(case in case(200)) {
        tell(&case);
    }

    #[test]
    fn the_invariants_hold_with_inner_queues_that_are_not_reclaimable(case in protected(200)) {
        tell(&case);
    }
}

impl Model {
    pub fn take_wide(&mut self, step: Wide) {
        match step {
            Wide::Old(step) => self.take(step),
            Wide::Submit(told) => self.submit_dressed(&told),
            Wide::Adopt { told, cluster } => self.adopt(told, cluster),
            Wide::Placed(job) => self.placed(&self.named(job)),
            Wide::Unbound(job, most) => self.unbound(&self.named(job), most),
            Wide::PodEnds(job, gone) => self.pod_ends(&self.named(job), gone),
            Wide::QueueGone(queue) => self.queue_gone(queue),
            Wide::QueueBack(queue) => self.queue_back(queue),
            Wide::Parent(queue, parent) => self.parent(queue, parent),
            Wide::PolicyGone(queue) => self.policy_gone(queue),
            Wide::InnerReclaimable(queue, yes) => self.inner_reclaimable(queue, yes),
            Wide::Pools(queue, bounds) => self.pools(queue, &bounds),
            Wide::ClassGone(class) => self.class_gone(class),
            Wide::ClusterGone(cluster) => self.cluster_gone(cluster),
            Wide::ClusterBack(cluster) => self.cluster_back(cluster),
            Wide::ClusterTaint(cluster, taint) => self.cluster_taint(cluster, taint),
            Wide::NodeTaint(cluster, node, yes) => self.node_taint(cluster, node, yes),
            Wide::NodeLabel(cluster, node, label) => self.node_label(cluster, node, label),
            Wide::Back(seconds) => self.behind = i64::from(seconds) * 1000,
            Wide::Restart { lost, jobs_first } => self.restart(lost, jobs_first),
        }
    }
}
