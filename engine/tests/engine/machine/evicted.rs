//! Streams after which a job is evicted for nothing: found at random, made smaller.

use super::parked::{dressed, job, take};
use super::step::{Kind, Step, Submitted};
use super::wide::{Dressed, Size, Wide};

/// What is reserved for one job keeps another from free nodes, so that others are evicted for it. In the same call the
/// reservation gives way to that of a third job, and the nodes are free.
#[test]
fn nobody_is_evicted_for_a_job_that_starts_elsewhere_in_the_same_call() {
    let with = |told: Submitted, cpus, change: &dyn Fn(&mut Dressed)| {
        let mut told = match dressed(told, cpus, &[]) {
            Wide::Submit(told) => told,
            other => return other,
        };
        change(&mut told);
        Wide::Submit(told)
    };
    let plain = |_: &mut Dressed| {};
    let preemptible = |of: &mut Dressed| of.told.preemptible = true;
    let steps = vec![
        with(job(13, 13, (3, 7), Kind::Elastic, 1), 1, &plain),
        with(job(0, 13, (3, 3), Kind::Plain, 1), 1, &|of| {
            (of.clusters, of.excluded) = (vec![0], true);
        }),
        with(job(14, 0, (1, 0), Kind::Plain, 0), 1, &plain),
        with(job(1, 13, (3, 4), Kind::Plain, 2), 3, &|of| {
            preemptible(of);
            (of.told.lasts, of.tolerates_node, of.excluded) = (Some(190), true, true);
        }),
        with(job(42, 6, (2, 1), Kind::Split, 2), 3, &|of| {
            preemptible(of);
            (of.told.user, of.clusters, of.excluded) = (1, vec![10], true);
            (of.tolerates_node, of.tolerates_cluster, of.prefers) = (true, true, true);
        }),
        with(job(46, 16, (1, 3), Kind::Split, 3), 3, &|of| {
            preemptible(of);
            of.tolerates_cluster = true;
        }),
        with(job(12, 16, (3, 3), Kind::Divisible, 3), 1, &|of| {
            preemptible(of);
            (of.told.user, of.told.lasts) = (1, Some(41));
        }),
        with(job(15, 9, (2, 3), Kind::Divisible, 3), 4, &|of| {
            of.told.user = 1
        }),
        with(job(11, 15, (3, 4), Kind::Stretchable, 2), 4, &|of| {
            (of.tolerates_cluster, of.prefers) = (true, true);
        }),
        with(job(38, 12, (1, 6), Kind::Held, 1), 3, &|of| {
            (of.told.user, of.tolerates_node) = (1, true);
        }),
        Wide::Old(Step::Wait(52)),
        with(job(36, 15, (2, 6), Kind::Close, 2), 1, &|of| {
            preemptible(of);
            (of.told.lasts, of.excluded) = (Some(47), true);
        }),
        Wide::Old(Step::Decide),
        with(job(52, 1, (2, 2), Kind::Close, 3), 1, &|of| {
            preemptible(of);
            of.told.user = 1;
        }),
        with(job(51, 7, (1, 7), Kind::Plain, 0), 2, &|of| {
            preemptible(of);
            (of.told.user, of.told.lasts, of.tolerates_cluster) = (1, Some(76), true);
        }),
        Wide::Old(Step::Obey),
        with(job(28, 9, (3, 3), Kind::Plain, 0), 1, &|of| {
            preemptible(of);
            of.excluded = true;
        }),
        Wide::Old(Step::Wait(84)),
        Wide::Restart {
            lost: true,
            jobs_first: false,
        },
        Wide::Old(Step::Decide),
    ];
    take(9, Size::Large, steps);
}
