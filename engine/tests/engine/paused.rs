//! Clusters that take no new jobs because many failed there, and the one job that is tried.

use crate::world::{World, cluster, pods, queue};
use engine::Event;
use engine::facts::{ClusterFact, ClusterPause};
use insta::assert_snapshot;

/// Pauses the cluster `a`.
fn pause(world: &mut World, because: &str, trial: bool) {
    world.apply(Event::ClusterUpserted(ClusterFact {
        paused: Some(ClusterPause {
            because: because.to_owned(),
            trial,
        }),
        ..cluster("a")
    }));
}

/// Clusters of two nodes with eight GPUs each.
fn world(clusters: &[&str]) -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    for name in clusters {
        world.cluster(name, 2, "cpu 64, gpu 8");
    }
    world
}

#[test]
fn a_paused_cluster_takes_no_new_job_and_keeps_those_that_it_has() {
    let mut world = world(&["a"]);
    let job = world.job("runs", "q", pods(1, "gpu 8"));
    world.submit(job);
    assert_snapshot!(world.decide(), @"release runs #1 a(n0)");
    pause(
        &mut world,
        "it takes no new jobs until noon: 5 jobs failed there",
        false,
    );
    let job = world.job("waits", "q", pods(1, "gpu 8"));
    world.submit(job);
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("waits"), @"#1 ClusterPaused: has no cluster to go to: a: it takes no new jobs until noon: 5 jobs failed there");
    world.apply(Event::ClusterUpserted(cluster("a")));
    assert_snapshot!(world.decide(), @"release waits #1 a(n1)");
}

#[test]
fn on_trial_a_cluster_takes_one_job() {
    let mut world = world(&["a"]);
    pause(&mut world, "it takes one job, to see whether it runs", true);
    for name in ["first", "second"] {
        let job = world.job(name, "q", pods(1, "gpu 8"));
        world.submit(job);
    }
    assert_snapshot!(world.decide(), @"release first #1 a(n0)");
    assert_snapshot!(world.why("second"), @"#1 ClusterPaused: has no cluster to go to: a: it takes no other job until one that is tried there runs");
    // It did not run, through no fault of the cluster: another one is tried.
    pause(&mut world, "it takes one job, to see whether it runs", true);
    assert_snapshot!(world.decide(), @"release second #1 a(n1)");
}

#[test]
fn a_job_that_fits_only_a_paused_cluster_is_not_called_too_large() {
    let mut world = world(&["a"]);
    world.cluster("b", 1, "cpu 64, gpu 4");
    pause(&mut world, "5 jobs failed there", false);
    let job = world.job("large", "q", pods(2, "gpu 8"));
    world.submit(job);
    let job = world.job("small", "q", pods(1, "gpu 4"));
    world.submit(job);
    assert_snapshot!(world.decide(), @"release small #1 b(n0)");
    assert_snapshot!(world.why("large"), @"#1 ClusterPaused: needs 2 pods × nvidia.com/gpu 8; b has room for 0 of 2; other clusters that it may use are paused");
}
