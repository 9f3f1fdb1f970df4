//! When faults come, and to which nodes.
//!
//! Random faults are a Poisson process over all nodes. The injector drops those that come to a node that
//! is out of service, so that the rate is that of nodes in service. What is drawn does not depend on
//! the jobs: two runs with one seed have the same faults, whatever the policy.

use super::{FaultKind, FaultPlan, PlannedFault, RepairTime};
use crate::random::RandomSequence;
use engine::Time;
use std::collections::VecDeque;

const DAY_MS: u128 = 86_400_000;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeFault {
    /// When it happens.
    pub(super) at: Time,
    /// The node's index in the fleet.
    pub(super) node: usize,
    /// What it does.
    pub(super) class: FaultKind,
    /// How long the node is out of service, in milliseconds.
    pub(super) for_ms: i64,
    /// Which device of the node fails, if one does: a fraction of 2³² of its devices.
    pub(super) device: u64,
}

/// All faults of a run that are not bound to jobs, in order of time.
#[derive(Debug, Clone)]
pub(super) struct FaultGenerator {
    plan: FaultPlan,
    start: Time,
    nodes: u64,
    planned: VecDeque<PlannedFault>,
    times: RandomSequence,
    details: RandomSequence,
    /// Of faults that come to chosen jobs, whose order depends on the policy.
    of_jobs: RandomSequence,
    /// The time of the next random fault.
    next: Option<Time>,
}

impl FaultGenerator {
    pub(super) fn new(plan: &FaultPlan, nodes: usize, start: Time) -> Self {
        let mut planned = plan.planned.clone();
        planned.sort_by_key(|fault| (fault.at_ms, fault.node));
        let mut generator = Self {
            plan: plan.clone(),
            start,
            nodes: nodes as u64,
            planned: planned.into(),
            times: RandomSequence::new(plan.seed, 0),
            details: RandomSequence::new(plan.seed, 1),
            of_jobs: RandomSequence::new(plan.seed, 3),
            next: None,
        };
        generator.next = generator.after(start);
        generator
    }

    /// The time of the next random fault after this one.
    fn after(&mut self, time: Time) -> Option<Time> {
        let per_day = u128::from(self.plan.rate_milli) * u128::from(self.nodes);
        // The rate is in thousandths of faults per 1,000 nodes.
        let mean = (DAY_MS * 1_000_000).checked_div(per_day)?;
        let mean = u64::try_from(mean).ok()?;
        let pause = i64::try_from(self.times.exponential(mean)).ok()?;
        let at = time.0.checked_add(pause)?;
        (at <= self.start.after(self.plan.until_ms).0).then_some(Time(at))
    }

    /// Returns when the next fault happens.
    pub(super) fn next_at(&self) -> Option<Time> {
        let planned = self.planned.front();
        let planned = planned.map(|fault| self.start.after(fault.at_ms));
        planned.into_iter().chain(self.next).min()
    }

    /// Removes and returns the next fault that has happened by `now`.
    pub(super) fn take(&mut self, now: Time) -> Option<NodeFault> {
        let at = self.next_at().filter(|at| *at <= now)?;
        if self.next != Some(at) {
            let planned = self.planned.pop_front()?;
            return Some(NodeFault {
                at,
                node: planned.node,
                class: planned.class,
                for_ms: planned.for_ms,
                device: 0,
            });
        }
        self.next = self.after(at);
        let node = usize::try_from(self.details.below(self.nodes)).ok()?;
        Some(random_fault(&self.plan, &mut self.details, at, node))
    }

    /// A random fault of a node of a job that is to be hit.
    pub(super) fn of_job(&mut self, at: Time, node: usize) -> NodeFault {
        random_fault(&self.plan, &mut self.of_jobs, at, node)
    }
}

fn random_fault(plan: &FaultPlan, random: &mut RandomSequence, at: Time, node: usize) -> NodeFault {
    let weights = [plan.node_lost.weight, plan.device_fault.weight].map(u64::from);
    let class = match random.below(weights[0] + weights[1]) < weights[0] {
        true => FaultKind::NodeLost,
        false => FaultKind::DeviceFault,
    };
    let device = random.below(1 << 32);
    let for_ms = match plan.class(class).repair {
        RepairTime::Fixed(millis) => millis,
        RepairTime::Uniform(least, most) => least + random.below(most - least + 1),
        RepairTime::Exponential(mean) => random.exponential(mean),
    };
    NodeFault {
        at,
        node,
        class,
        for_ms: i64::try_from(for_ms).unwrap_or(i64::MAX),
        device,
    }
}

/// For each job, when in its first attempt a fault hits it: in millionths of its run time. `None` for
/// those that are not hit.
pub(super) fn hits_of_jobs(plan: &FaultPlan, jobs: usize) -> Vec<Option<u64>> {
    let mut random = RandomSequence::new(plan.seed, 2);
    let hits = (0..jobs).map(|_| {
        let (draw, moment) = (random.below(1_000_000), random.below(1_000_000));
        (draw < plan.jobs_hit_ppm).then_some(moment)
    });
    hits.collect()
}

#[cfg(test)]
mod tests {
    use super::{FaultGenerator, hits_of_jobs};
    use crate::faults::{FaultClassPlan, FaultKind, FaultPlan, PlannedFault, RepairTime};
    use engine::Time;

    const DAY_MS: i64 = 86_400_000;

    fn plan(rate_milli: u64, seed: u64) -> FaultPlan {
        FaultPlan {
            rate_milli,
            seed,
            device_fault: FaultClassPlan {
                weight: 60,
                detection_ms: 0,
                repair: RepairTime::Uniform(60_000, 120_000),
            },
            until_ms: 1_000 * DAY_MS,
            ..FaultPlan::default()
        }
    }

    fn all(plan: &FaultPlan, nodes: usize) -> Vec<super::NodeFault> {
        let mut generator = FaultGenerator::new(plan, nodes, Time(0));
        std::iter::from_fn(|| generator.take(Time(i64::MAX / 8))).collect()
    }

    #[test]
    fn faults_come_at_their_rate_to_all_nodes_in_their_mix() {
        // 512 nodes for 1,000 days at 19 per 1,000 node-days: 9,728, with a standard deviation of 99.
        let faults = all(&plan(19_000, 1), 512);
        assert!((9_400..10_050).contains(&faults.len()), "{}", faults.len());
        assert!(faults.is_sorted_by_key(|fault| fault.at));
        let lost = faults
            .iter()
            .filter(|fault| fault.class == FaultKind::NodeLost);
        let lost = lost.count() * 100 / faults.len();
        assert!((38..=42).contains(&lost), "{lost} %");
        let mut by_node = vec![0; 512];
        faults.iter().for_each(|fault| by_node[fault.node] += 1);
        // 19 each, with a standard deviation of 4.4.
        assert!(by_node.iter().all(|count| (2..45).contains(count)));
        for fault in &faults {
            let expected = match fault.class {
                FaultKind::NodeLost => 3_600_000..=3_600_000,
                FaultKind::DeviceFault => 60_000..=120_000,
            };
            assert!(expected.contains(&fault.for_ms), "{fault:?}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_faults_again_and_another_seed_others() {
        let one = all(&plan(19_000, 1), 512);
        assert_eq!(one, all(&plan(19_000, 1), 512));
        assert_ne!(one, all(&plan(19_000, 2), 512));
        assert_eq!(all(&plan(0, 1), 512), []);
        assert_eq!(all(&plan(19_000, 1), 0), []);
    }

    #[test]
    fn planned_faults_come_in_order_between_random_ones() {
        let mut plan = plan(1_000, 1);
        let planned = |at_ms, node| PlannedFault {
            at_ms,
            node,
            for_ms: 5,
            class: FaultKind::NodeLost,
        };
        plan.planned = vec![planned(DAY_MS, 3), planned(0, 4)];
        let faults = all(&plan, 10);
        assert!(faults.len() > 4 && faults.is_sorted_by_key(|fault| fault.at));
        assert_eq!((faults[0].node, faults[0].at), (4, Time(0)));
        assert!(
            faults
                .iter()
                .any(|fault| fault.at == Time(DAY_MS) && fault.node == 3)
        );
    }

    #[test]
    fn the_share_of_jobs_that_are_hit_is_as_given() {
        let mut plan = plan(0, 1);
        plan.jobs_hit_ppm = 50_000;
        let hits = hits_of_jobs(&plan, 100_000);
        let count = hits.iter().flatten().count();
        // 5,000, with a standard deviation of 69.
        assert!((4_700..5_300).contains(&count), "{count}");
        assert!(hits.iter().flatten().all(|moment| *moment < 1_000_000));
    }
}
