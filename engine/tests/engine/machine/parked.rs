//! Short streams after which a job stays inadmissible that a restored engine admits at once, or
//! decisions do not end.

use super::layout::Layout;
use super::model::Model;
use super::step::{Kind, Step, Submitted};
use super::wide::{Case, Dressed, Size, Wide};

/// This many pods with this many GPUs, in a queue, of a priority class.
pub fn job(
    job: usize,
    queue: usize,
    (count, gpus): (u32, u32),
    kind: Kind,
    class: u8,
) -> Submitted {
    Submitted {
        job,
        queue,
        count,
        gpus,
        kind,
        class,
        user: 0,
        lasts: None,
        preemptible: false,
    }
}

pub fn dressed(told: Submitted, cpus: u32, clusters: &[usize]) -> Wide {
    Wide::Submit(Dressed {
        told,
        cpus,
        node: None,
        tolerates_node: false,
        tolerates_cluster: false,
        clusters: clusters.to_vec(),
        excluded: false,
        max_clusters: None,
        prefers: false,
    })
}

pub fn take(row: u8, size: Size, steps: Vec<Wide>) {
    let case = Case { row, size, steps };
    let mut model = case.world();
    for step in case.steps {
        model.take_wide(step);
    }
    model.decide();
}

#[test]
fn an_elastic_gang_scales_up_as_soon_as_possible() {
    let mut model = Model::new(Layout::small());
    let timed = Submitted {
        lasts: Some(1),
        ..job(0, 3, (3, 2), Kind::Elastic, 2)
    };
    for step in [
        Step::Submit(job(1, 0, (1, 3), Kind::Elastic, 0)),
        Step::Decide,
        Step::Submit(job(2, 3, (1, 8), Kind::Elastic, 0)),
        Step::Shares {
            queue: 0,
            guarantee: Some(4),
            deserved: None,
        },
        Step::Submit(timed),
        Step::Submit(job(3, 0, (3, 1), Kind::Elastic, 0)),
        Step::Submit(job(5, 3, (1, 7), Kind::Elastic, 0)),
        Step::Submit(job(4, 3, (3, 5), Kind::Plain, 3)),
        Step::Class(1, 0, false),
        Step::Class(2, 1, false),
        Step::NodeGone(1, 0),
    ] {
        model.take(step);
    }
    model.decide();
}

#[test]
fn a_foreign_pod_on_a_reserved_node_activates_jobs_behind_the_owner() {
    take(
        3,
        Size::Scarce,
        vec![
            dressed(job(5, 0, (3, 3), Kind::Plain, 0), 4, &[]),
            dressed(job(8, 1, (1, 5), Kind::Elastic, 0), 3, &[]),
            dressed(job(0, 0, (1, 2), Kind::Elastic, 1), 2, &[]),
            Wide::Old(Step::Decide),
            dressed(job(1, 0, (2, 3), Kind::Plain, 1), 1, &[]),
            Wide::Old(Step::Foreign {
                cluster: 0,
                node: 2,
                gpus: 2,
            }),
        ],
    );
}

#[test]
fn a_job_behind_an_owner_starts_as_soon_as_possible() {
    take(
        6,
        Size::Small,
        vec![
            dressed(job(10, 0, (1, 1), Kind::Elastic, 0), 1, &[]),
            Wide::ClusterGone(1),
            dressed(job(8, 1, (2, 3), Kind::Plain, 2), 1, &[]),
            dressed(job(3, 1, (2, 6), Kind::Elastic, 2), 1, &[]),
            dressed(job(11, 1, (1, 4), Kind::Elastic, 1), 1, &[]),
            Wide::Old(Step::Decide),
            Wide::Old(Step::Recreate(3)),
            dressed(job(0, 1, (1, 5), Kind::Elastic, 3), 1, &[]),
            Wide::Old(Step::Wait(1)),
        ],
    );
}

#[test]
fn a_job_preempts_as_soon_as_possible() {
    let victim = Submitted {
        preemptible: true,
        ..job(1, 0, (1, 3), Kind::Plain, 1)
    };
    take(
        11,
        Size::Small,
        vec![
            dressed(job(0, 0, (1, 5), Kind::Elastic, 0), 1, &[]),
            dressed(victim, 1, &[1]),
            Wide::Old(Step::Decide),
            dressed(job(9, 0, (2, 1), Kind::Plain, 0), 1, &[1]),
            Wide::Old(Step::Decide),
            Wide::Old(Step::Obey),
            dressed(job(2, 1, (2, 5), Kind::Plain, 0), 1, &[]),
            Wide::Old(Step::Decide),
            Wide::Old(Step::Wait(30)),
            Wide::Old(Step::Obey),
        ],
    );
}

#[test]
fn no_job_is_evicted_again_and_again() {
    let lent = Submitted {
        preemptible: true,
        ..job(2, 0, (2, 0), Kind::Plain, 1)
    };
    let steps = vec![
        Wide::Old(Step::Node {
            cluster: 0,
            node: 0,
            gpus: 0,
            usable: false,
        }),
        Wide::NodeTaint(1, 0, true),
        dressed(job(10, 0, (1, 0), Kind::Plain, 0), 3, &[]),
        dressed(job(1, 0, (2, 0), Kind::Split, 3), 4, &[]),
        dressed(lent, 1, &[]),
        Wide::Old(Step::Foreign {
            cluster: 1,
            node: 2,
            gpus: 5,
        }),
    ];
    let case = Case {
        row: 8,
        size: Size::Scarce,
        steps,
    };
    super::wide::tell(&case);
}

#[test]
fn a_short_job_goes_before_an_owner_that_lacks_headroom_since_an_admission() {
    take(
        3,
        Size::Large,
        vec![
            Wide::InnerReclaimable(0, false),
            dressed(job(7, 9, (2, 4), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Node {
                cluster: 5,
                node: 0,
                gpus: 0,
                usable: false,
            }),
            Wide::Old(Step::Decide),
            dressed(job(48, 10, (3, 1), Kind::Elastic, 0), 2, &[]),
            dressed(job(0, 2, (2, 2), Kind::Elastic, 2), 1, &[]),
            Wide::Adopt {
                told: job(8, 18, (2, 8), Kind::Plain, 0),
                cluster: 2,
            },
            Wide::Old(Step::Obey),
            Wide::Old(Step::Decide),
            dressed(job(1, 9, (2, 7), Kind::Split, 0), 1, &[]),
            dressed(job(13, 0, (2, 1), Kind::Elastic, 0), 1, &[]),
            dressed(job(9, 10, (2, 7), Kind::Plain, 0), 1, &[]),
            dressed(job(2, 10, (2, 2), Kind::Elastic, 0), 1, &[]),
            Wide::ClusterGone(5),
            Wide::Placed(0),
            dressed(job(14, 6, (3, 4), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Obey),
            Wide::Old(Step::Obey),
            Wide::Old(Step::Decide),
            Wide::Old(Step::Shares {
                queue: 3,
                guarantee: Some(1),
                deserved: None,
            }),
            dressed(
                Submitted {
                    lasts: Some(45),
                    ..job(3, 0, (2, 1), Kind::Plain, 0)
                },
                1,
                &[],
            ),
            dressed(
                Submitted {
                    lasts: Some(1),
                    ..job(15, 0, (3, 2), Kind::Plain, 0)
                },
                1,
                &[],
            ),
            Wide::Old(Step::Obey),
        ],
    );
}
