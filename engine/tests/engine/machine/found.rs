//! Short streams of new seeds ([`super::fresh`]) after which a restored engine would decide more, made smaller.

use super::parked::{dressed, job};
use super::step::{Kind, Step, Submitted};
use super::wide::{self, Case, Dressed, Size, Wide};

fn tell(row: u8, size: Size, steps: Vec<Wide>) {
    let case = Case { row, size, steps };
    wide::tell_to(case.world(), &case);
}

/// A job was admitted to the cluster, and took of the node on which it would have been found there.
#[test]
fn an_elastic_owner_moves_where_its_smallest_size_starts_sooner() {
    let on_label = |told: Wide| match told {
        Wide::Submit(told) => Wide::Submit(Dressed {
            node: Some(0),
            ..told
        }),
        other => other,
    };
    tell(
        6,
        Size::Large,
        vec![
            on_label(dressed(job(0, 0, (1, 2), Kind::Elastic, 0), 1, &[])),
            dressed(job(1, 12, (2, 1), Kind::Plain, 0), 1, &[]),
            dressed(job(22, 12, (3, 4), Kind::Elastic, 0), 1, &[]),
            dressed(job(4, 1, (2, 6), Kind::Plain, 0), 1, &[]),
            Wide::Old(Step::Finish(0)),
            Wide::Old(Step::Finish(0)),
            dressed(job(5, 0, (1, 7), Kind::Plain, 0), 4, &[]),
            dressed(job(6, 2, (1, 4), Kind::Elastic, 0), 1, &[]),
            dressed(
                Submitted {
                    lasts: Some(1),
                    ..job(7, 10, (2, 7), Kind::Plain, 0)
                },
                1,
                &[],
            ),
            Wide::Old(Step::Finish(0)),
            dressed(job(10, 10, (1, 1), Kind::Plain, 0), 1, &[]),
            dressed(job(11, 10, (2, 4), Kind::Plain, 0), 1, &[]),
            dressed(job(12, 0, (1, 1), Kind::Plain, 0), 1, &[2]),
            Wide::Old(Step::Decide),
            dressed(job(13, 18, (1, 3), Kind::Elastic, 1), 1, &[4]),
            dressed(job(2, 6, (2, 3), Kind::Elastic, 0), 1, &[0]),
            dressed(job(8, 0, (3, 3), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Finish(13)),
            dressed(job(14, 0, (1, 2), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Finish(13)),
            Wide::Old(Step::Finish(13)),
            dressed(job(15, 0, (2, 1), Kind::Elastic, 0), 1, &[]),
            Wide::Old(Step::Decide),
            dressed(job(16, 4, (3, 6), Kind::Elastic, 0), 1, &[]),
            Wide::Submit(Dressed {
                told: Submitted {
                    user: 1,
                    preemptible: true,
                    ..job(21, 13, (3, 5), Kind::Elastic, 3)
                },
                cpus: 2,
                node: None,
                tolerates_node: true,
                tolerates_cluster: true,
                clusters: vec![],
                excluded: false,
                max_clusters: None,
                prefers: false,
            }),
            Wide::Submit(Dressed {
                told: Submitted {
                    user: 1,
                    preemptible: true,
                    ..job(9, 11, (2, 1), Kind::Held, 3)
                },
                cpus: 2,
                node: None,
                tolerates_node: true,
                tolerates_cluster: false,
                clusters: vec![],
                excluded: false,
                max_clusters: Some(1),
                prefers: false,
            }),
            Wide::Old(Step::Decide),
        ],
    );
}

/// An elastic gang was asked once whether it fits the empty fleet, and once not, since its queue had no quota left.
#[test]
fn an_elastic_gang_that_exceeds_the_fleet_reserves_no_quota() {
    tell(
        5,
        Size::Small,
        vec![
            Wide::InnerReclaimable(0, false),
            dressed(job(44, 0, (1, 0), Kind::Plain, 0), 1, &[]),
            Wide::Submit(Dressed {
                told: job(12, 1, (1, 5), Kind::Elastic, 0),
                cpus: 1,
                node: Some(0),
                tolerates_node: false,
                tolerates_cluster: false,
                clusters: vec![],
                excluded: false,
                max_clusters: None,
                prefers: false,
            }),
            Wide::Old(Step::Finish(0)),
            Wide::Old(Step::Node {
                cluster: 1,
                node: 20,
                gpus: 0,
                usable: false,
            }),
            dressed(
                Submitted {
                    lasts: Some(1),
                    ..job(13, 13, (2, 7), Kind::Plain, 0)
                },
                1,
                &[],
            ),
            dressed(job(0, 0, (1, 0), Kind::Plain, 0), 1, &[]),
            dressed(job(18, 0, (1, 0), Kind::Plain, 0), 1, &[]),
            Wide::Old(Step::Finish(0)),
            Wide::Old(Step::Finish(0)),
            Wide::Old(Step::Obey),
            Wide::Old(Step::Finish(0)),
            Wide::Old(Step::Finish(0)),
            dressed(job(26, 1, (2, 3), Kind::Plain, 0), 1, &[]),
            dressed(job(15, 19, (1, 2), Kind::Plain, 0), 1, &[]),
            Wide::Old(Step::Finish(0)),
        ],
    );
}
