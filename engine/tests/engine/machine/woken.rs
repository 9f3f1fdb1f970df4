//! More short streams after which a restored engine would decide more, or decisions do not end: each is one that was
//! found at random, made smaller.

use super::parked::{dressed, job, take};
use super::step::{Kind, PolicyStep, Step, Submitted};
use super::wide::{Bound, Dressed, Size, Wide};

/// A job that needs nodes with the second label.
fn labelled(told: Submitted, cpus: u32, clusters: &[usize]) -> Wide {
    match dressed(told, cpus, clusters) {
        Wide::Submit(told) => Wide::Submit(Dressed {
            node: Some(1),
            ..told
        }),
        other => other,
    }
}

/// It rested, and the admission of another job is news after its back-off.
#[test]
fn a_preemptor_whose_back_off_ends_by_an_admission_searches_in_the_same_call() {
    take(
        1,
        Size::Small,
        vec![
            Wide::Adopt {
                told: Submitted {
                    preemptible: true,
                    ..job(23, 0, (2, 8), Kind::Plain, 0)
                },
                cluster: 0,
            },
            Wide::Old(Step::Obey),
            dressed(job(12, 14, (1, 5), Kind::Plain, 0), 1, &[]),
            Wide::Old(Step::Decide),
            dressed(
                Submitted {
                    preemptible: true,
                    ..job(1, 4, (1, 1), Kind::Elastic, 0)
                },
                1,
                &[],
            ),
            Wide::Old(Step::Wait(30)),
            Wide::Old(Step::Gone(14)),
            Wide::Old(Step::Finish(0)),
            Wide::Old(Step::Finish(0)),
            Wide::Old(Step::Finish(0)),
            Wide::Old(Step::Decide),
        ],
    );
}

/// Three runs end while it has a reservation, which is displaced in the next call.
#[test]
fn the_run_time_of_a_job_is_known_once_it_has_lost_its_reservation() {
    take(
        9,
        Size::Small,
        vec![
            Wide::InnerReclaimable(0, false),
            dressed(job(39, 0, (1, 0), Kind::Plain, 0), 1, &[]),
            dressed(job(41, 0, (1, 0), Kind::Plain, 0), 1, &[]),
            Wide::Old(Step::Decide),
            Wide::Old(Step::Finish(17)),
            Wide::Old(Step::Finish(51)),
            Wide::NodeLabel(9, 3, 1),
            dressed(job(55, 4, (1, 7), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Finish(0)),
            labelled(job(37, 14, (1, 2), Kind::Elastic, 1), 1, &[]),
            dressed(job(36, 12, (1, 2), Kind::Elastic, 1), 1, &[]),
            labelled(job(54, 6, (2, 5), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Finish(0)),
            Wide::Old(Step::Finish(0)),
            Wide::NodeLabel(3, 8, 1),
            Wide::NodeLabel(0, 4, 1),
            Wide::Old(Step::Gone(55)),
            Wide::Old(Step::Grow {
                job: 25,
                count: 1,
                gpus: 4,
            }),
            dressed(job(8, 2, (1, 4), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Decide),
            dressed(job(50, 2, (2, 4), Kind::Split, 1), 1, &[]),
            Wide::Old(Step::Finish(36)),
            Wide::Old(Step::Finish(0)),
        ],
    );
}

/// The owner of the reservation that kept it from growing was admitted elsewhere in the same call.
#[test]
fn a_job_that_is_not_elastic_grows_when_what_is_reserved_is_not_any_more() {
    take(
        3,
        Size::Large,
        vec![
            dressed(job(33, 9, (2, 5), Kind::Elastic, 0), 1, &[]),
            dressed(job(0, 2, (2, 8), Kind::Plain, 0), 1, &[]),
            dressed(job(1, 0, (2, 4), Kind::Plain, 0), 1, &[]),
            dressed(job(21, 0, (2, 2), Kind::Elastic, 0), 1, &[]),
            dressed(
                Submitted {
                    lasts: Some(1),
                    ..job(2, 0, (3, 1), Kind::Plain, 0)
                },
                1,
                &[],
            ),
            dressed(job(4, 10, (3, 4), Kind::Held, 0), 1, &[]),
            dressed(job(5, 0, (3, 6), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Decide),
            dressed(job(20, 0, (2, 6), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Decide),
            dressed(job(6, 3, (2, 3), Kind::Plain, 0), 1, &[]),
            Wide::Old(Step::Obey),
            Wide::PodEnds(20, false),
            dressed(job(7, 6, (2, 3), Kind::Split, 0), 1, &[]),
            Wide::Old(Step::Decide),
            Wide::Old(Step::Grow {
                job: 4,
                count: 5,
                gpus: 1,
            }),
            Wide::Old(Step::Wait(5)),
        ],
    );
}

/// With a guarantee its queue goes before the owner that stopped it.
#[test]
fn a_reservation_is_possible_again_once_queues_are_in_another_order() {
    take(
        9,
        Size::Scarce,
        vec![
            Wide::InnerReclaimable(0, false),
            dressed(job(20, 0, (2, 0), Kind::Plain, 0), 2, &[]),
            Wide::Old(Step::Decide),
            Wide::Pools(
                4,
                vec![Bound {
                    big: false,
                    clusters: Vec::new(),
                    guarantee: Some(1),
                    deserved: None,
                    most: None,
                    cpus: None,
                }],
            ),
            dressed(job(9, 0, (2, 8), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Obey),
            Wide::Old(Step::Bind {
                job: 0,
                most: 1,
                elsewhere: false,
            }),
            Wide::Old(Step::Finish(0)),
            Wide::Old(Step::Decide),
            Wide::Pools(
                4,
                vec![
                    Bound {
                        big: false,
                        clusters: Vec::new(),
                        guarantee: None,
                        deserved: None,
                        most: None,
                        cpus: Some(6),
                    },
                    Bound {
                        big: true,
                        clusters: Vec::new(),
                        guarantee: None,
                        deserved: Some(2),
                        most: None,
                        cpus: None,
                    },
                ],
            ),
            Wide::Old(Step::Finish(22)),
            dressed(job(30, 0, (1, 5), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Gone(0)),
            Wide::Old(Step::Obey),
            labelled(job(22, 2, (2, 0), Kind::Plain, 0), 2, &[]),
            Wide::Old(Step::Finish(0)),
            dressed(job(5, 0, (1, 0), Kind::Plain, 0), 1, &[]),
            Wide::NodeLabel(0, 17, 1),
            Wide::Old(Step::Finish(10)),
            dressed(job(0, 3, (3, 1), Kind::Plain, 1), 3, &[]),
            Wide::Old(Step::Finish(0)),
            Wide::Old(Step::Decide),
            Wide::Pools(
                13,
                vec![Bound {
                    big: false,
                    clusters: Vec::new(),
                    guarantee: Some(1),
                    deserved: None,
                    most: None,
                    cpus: None,
                }],
            ),
        ],
    );
}

/// Its class is parked: bounds on pools do not hold for every queue, so its shape is not infeasible.
#[test]
fn a_job_beside_bounds_on_pools_gets_the_slot_of_a_reservation_that_is_dropped() {
    take(
        4,
        Size::Large,
        vec![
            dressed(job(21, 0, (1, 3), Kind::Elastic, 0), 1, &[]),
            Wide::Adopt {
                told: Submitted {
                    lasts: Some(1),
                    ..job(1, 5, (2, 3), Kind::Elastic, 0)
                },
                cluster: 1,
            },
            Wide::Old(Step::Decide),
            dressed(job(29, 16, (2, 3), Kind::Elastic, 0), 1, &[]),
            Wide::Adopt {
                told: job(22, 0, (3, 6), Kind::Plain, 0),
                cluster: 4,
            },
            dressed(job(4, 2, (2, 6), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Obey),
            dressed(job(5, 8, (2, 6), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Decide),
            dressed(job(3, 2, (1, 6), Kind::Elastic, 0), 1, &[]),
            dressed(job(6, 0, (1, 6), Kind::Plain, 0), 1, &[]),
            dressed(job(7, 6, (2, 5), Kind::Plain, 0), 1, &[]),
            dressed(job(0, 0, (2, 3), Kind::Plain, 0), 1, &[]),
            Wide::Old(Step::Gone(8)),
            Wide::Pools(
                0,
                vec![Bound {
                    big: false,
                    clusters: Vec::new(),
                    guarantee: None,
                    deserved: None,
                    most: None,
                    cpus: None,
                }],
            ),
            Wide::Old(Step::Decide),
            dressed(job(8, 2, (3, 3), Kind::Plain, 0), 1, &[]),
            Wide::Old(Step::Hold(3, true)),
            dressed(job(9, 10, (1, 3), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Decide),
        ],
    );
}

/// Of its shape no slots are known in a restored engine; the first job of the queue needs other nodes.
#[test]
fn an_owner_of_headroom_stays_in_the_window_when_the_fleet_changes() {
    take(
        9,
        Size::Scarce,
        vec![
            dressed(
                Submitted {
                    lasts: Some(1),
                    ..job(12, 0, (1, 0), Kind::Plain, 0)
                },
                1,
                &[],
            ),
            Wide::Old(Step::Decide),
            dressed(job(6, 3, (1, 3), Kind::Elastic, 0), 1, &[]),
            dressed(job(19, 4, (1, 2), Kind::Elastic, 0), 1, &[]),
            Wide::Adopt {
                told: job(33, 11, (1, 1), Kind::Elastic, 0),
                cluster: 0,
            },
            dressed(job(34, 6, (2, 8), Kind::Plain, 0), 1, &[]),
            Wide::Old(Step::End(9)),
            Wide::Old(Step::Wait(1)),
            dressed(job(1, 3, (2, 2), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Decide),
            dressed(
                Submitted {
                    lasts: Some(1),
                    ..job(2, 14, (1, 1), Kind::Plain, 3)
                },
                1,
                &[10],
            ),
            Wide::Old(Step::Finish(2)),
            Wide::Old(Step::AllGone),
            Wide::Old(Step::Wait(61)),
            Wide::Old(Step::Finish(8)),
        ],
    );
}

/// For a job ahead of an owner in its queue no reservation is possible: the owner does not lose its own to it.
#[test]
fn jobs_do_not_take_the_slot_of_a_reservation_from_each_other_in_a_circle() {
    take(
        10,
        Size::Small,
        vec![
            Wide::InnerReclaimable(0, false),
            dressed(job(2, 13, (3, 3), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Finish(0)),
            Wide::ClusterGone(1),
            Wide::Old(Step::Finish(0)),
            dressed(job(15, 1, (2, 2), Kind::Split, 0), 1, &[]),
            Wide::Old(Step::Node {
                cluster: 3,
                node: 11,
                gpus: 0,
                usable: false,
            }),
            dressed(job(4, 12, (1, 5), Kind::Plain, 0), 1, &[]),
            dressed(job(5, 11, (3, 4), Kind::Plain, 2), 1, &[]),
            dressed(job(1, 4, (1, 4), Kind::Elastic, 0), 1, &[]),
            Wide::PolicyGone(4),
            dressed(job(6, 3, (1, 3), Kind::Elastic, 1), 1, &[]),
            Wide::Old(Step::Finish(0)),
        ],
    );
}

/// Its queue has no window any more, and the job is above what the guarantees of others leave.
#[test]
fn a_job_that_can_never_start_keeps_nothing_from_others() {
    super::tell(vec![
        Step::Submit(job(4, 0, (1, 0), Kind::Plain, 0)),
        Step::Submit(job(0, 1, (1, 1), Kind::Elastic, 0)),
        Step::Decide,
        Step::Wait(134),
        Step::Node {
            cluster: 0,
            node: 0,
            gpus: 0,
            usable: false,
        },
        Step::Submit(job(0, 0, (1, 0), Kind::Plain, 0)),
        Step::Wait(332),
        Step::Wait(133),
        Step::Decide,
        Step::Submit(job(0, 0, (1, 0), Kind::Plain, 0)),
        Step::NodeGone(0, 2),
        Step::Node {
            cluster: 1,
            node: 2,
            gpus: 1,
            usable: true,
        },
        Step::Shares {
            queue: 3,
            guarantee: Some(7),
            deserved: None,
        },
        Step::Shares {
            queue: 1,
            guarantee: None,
            deserved: Some(1),
        },
        Step::Submit(job(1, 0, (2, 1), Kind::Plain, 0)),
        Step::Submit(job(0, 0, (1, 0), Kind::Plain, 0)),
        Step::Decide,
        Step::Policy(0, PolicyStep::Ordering(1)),
        Step::NodeGone(1, 2),
    ]);
}

/// A bound on pools that came later leaves less of the nodes than is reserved there.
#[test]
fn what_is_reserved_already_is_kept_within_the_bounds_on_pools() {
    take(
        6,
        Size::Large,
        vec![
            Wide::Pools(
                5,
                vec![Bound {
                    big: true,
                    clusters: Vec::new(),
                    guarantee: Some(1),
                    deserved: None,
                    most: None,
                    cpus: None,
                }],
            ),
            dressed(job(2, 0, (2, 5), Kind::Elastic, 0), 1, &[]),
            dressed(job(3, 0, (1, 5), Kind::Plain, 0), 1, &[]),
            dressed(job(4, 0, (2, 2), Kind::Plain, 0), 1, &[]),
            Wide::Old(Step::Decide),
            dressed(job(0, 12, (2, 5), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Decide),
            Wide::Pools(
                16,
                vec![Bound {
                    big: false,
                    clusters: Vec::new(),
                    guarantee: None,
                    deserved: None,
                    most: Some(8),
                    cpus: None,
                }],
            ),
            dressed(
                Submitted {
                    lasts: Some(160),
                    ..job(43, 0, (2, 2), Kind::Elastic, 0)
                },
                1,
                &[],
            ),
            Wide::ClusterGone(5),
            dressed(job(39, 0, (3, 4), Kind::Elastic, 3), 1, &[]),
            Wide::Old(Step::Decide),
            Wide::Old(Step::Gone(39)),
            dressed(job(5, 14, (2, 5), Kind::Split, 0), 1, &[]),
            dressed(
                Submitted {
                    lasts: Some(1),
                    ..job(6, 0, (1, 5), Kind::Elastic, 0)
                },
                1,
                &[],
            ),
            Wide::Old(Step::Decide),
            Wide::Old(Step::Finish(43)),
            Wide::Old(Step::Finish(1)),
        ],
    );
}

/// The adopted job takes headroom that the owner of a reservation had, though nothing was admitted.
#[test]
fn a_short_job_goes_before_an_owner_that_lacks_headroom_since_a_job_was_adopted() {
    let elastic = |number, queue, size, class| job(number, queue, size, Kind::Elastic, class);
    take(
        5,
        Size::Small,
        vec![
            dressed(elastic(12, 0, (3, 2), 1), 1, &[]),
            dressed(job(1, 6, (1, 7), Kind::Plain, 0), 1, &[1]),
            dressed(job(5, 1, (3, 3), Kind::Plain, 1), 1, &[]),
            dressed(job(2, 8, (2, 1), Kind::Plain, 2), 1, &[]),
            Wide::Old(Step::Decide),
            Wide::Adopt {
                told: Submitted {
                    lasts: Some(1),
                    ..elastic(27, 2, (2, 4), 0)
                },
                cluster: 0,
            },
            dressed(elastic(16, 2, (1, 1), 0), 1, &[]),
            Wide::Old(Step::Decide),
        ],
    );
}
