//! Gangs that shrink: terminating pods stay charged until the member confirms that they are gone.

use crate::elastic::elastic;
use crate::preemption::{add, runs, world};
use crate::world::{World, foreign, gang, key, node, pods, role};
use engine::facts::{Demand, Held, JobFact};
use engine::{Event, PoolClass};
use insta::assert_snapshot;

fn edit(world: &mut World, fact: &JobFact, demand: Demand) {
    let fact = fact.clone();
    world.apply(Event::JobUpserted(JobFact { demand, ..fact }));
}

/// The same gang, found running after a restart: its record has no nodes.
pub(crate) fn restarted(before: &World, mut world: World, fact: JobFact) -> World {
    let view = before.engine.job(&fact.key).unwrap();
    let mut admission = view.admission.unwrap().clone();
    for share in &mut admission.shares {
        share.slots.clear();
    }
    for pod in before.planned_pods(&fact.key) {
        world.apply(Event::PodUpserted(pod));
    }
    world.apply(Event::JobAdmitted {
        key: fact.key.clone(),
        admission,
        progress: engine::Progress::Running,
    });
    world.apply(Event::JobUpserted(fact));
    world
}

fn size(world: &World, name: &str) -> u32 {
    let view = world.engine.job(&key(name)).unwrap();
    let shares = &view.admission.unwrap().shares;
    shares.iter().map(engine::facts::Share::replicas).sum()
}

/// A gang of servers and workers.
fn of_two(servers: u32, workers: u32) -> Demand {
    Demand {
        held: Held::ByReplicas,
        ..gang(vec![
            role("server", servers, "gpu 1"),
            role("worker", workers, "gpu 1"),
        ])
    }
}

#[test]
fn unobserved_pods_stay_assumed_until_the_member_confirms_fewer() {
    let mut world = world(2);
    let fact = add(&mut world, "gang", "normal", of_two(3, 3));
    assert_snapshot!(world.decide(), @"release gang #1 a(n0×3 n0 n1×2)");
    edit(&mut world, &fact, of_two(1, 1));
    assert_snapshot!(world.decide(), @"resize gang #1 a(n0 n0)");
    add(&mut world, "next", "normal", pods(4, "gpu 1"));
    assert_snapshot!(world.decide(), @"");
    // Two are free, and one of the terminating pods is gone.
    world.confirm("gang", "a", 5);
    assert_snapshot!(world.decide(), @"");
    world.confirm("gang", "a", 4);
    assert_snapshot!(world.decide(), @"release next #1 a(n1×4)");
}

#[test]
fn the_charge_of_gone_pods_ends_class_by_class() {
    let mut world = world(0);
    for (name, class) in [("n0", "new"), ("n1", "old")] {
        world.apply(Event::NodeUpserted(engine::facts::NodeFact {
            class: PoolClass::from(class),
            ..node("a", name, "cpu 64, gpu 2")
        }));
    }
    let held = |count| Demand {
        held: Held::ByReplicas,
        ..pods(count, "gpu 1")
    };
    let fact = runs(&mut world, "gang", "normal", held(4));
    let copy = world.engine.clone();
    edit(&mut world, &fact, held(2));
    assert_snapshot!(world.decide(), @"resize gang #1 a(n0×2)");
    world.confirm("gang", "a", 2);
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 2, pods 2");
    world.engine = copy;
    edit(&mut world, &fact, held(1));
    assert_snapshot!(world.decide(), @"resize gang #1 a(n0)");
    let allocated = [4, 3, 2, 1].map(|pods| {
        world.confirm("gang", "a", pods);
        world.allocated("q")
    });
    assert_snapshot!(allocated.join("; "), @"nvidia.com/gpu 4, pods 4; nvidia.com/gpu 3, pods 3; nvidia.com/gpu 2, pods 2; nvidia.com/gpu 1, pods 1");
}

#[test]
fn a_preemptor_waits_for_terminating_pods_only() {
    for read_back in [false, true] {
        let mut world = world(1);
        let fact = runs(&mut world, "gang", "low", elastic(1, 4, "gpu 1"));
        if read_back {
            world = restarted(&world, crate::preemption::world(1), fact.clone());
        }
        edit(&mut world, &fact, elastic(1, 2, "gpu 1"));
        assert!(world.decide().starts_with("resize gang #1"));
        let copy = world.engine.clone();
        if !read_back {
            add(&mut world, "two", "high", pods(1, "gpu 2"));
            assert_eq!(world.decide(), "");
        }
        world.engine = copy;
        add(&mut world, "four", "high", pods(1, "gpu 4"));
        assert!(world.decide().starts_with("evict gang #1 for four"));
    }
}

#[test]
fn pods_that_terminate_for_one_preemptor_do_not_count_for_another() {
    let mut world = world(2);
    for node in ["n0", "n1"] {
        world.apply(foreign("a", node, "gpu 2"));
    }
    runs(&mut world, "gang", "low", elastic(2, 4, "gpu 1"));
    add(&mut world, "first", "high", pods(1, "gpu 2"));
    assert_snapshot!(world.decide(), @"resize gang #1 a(n0×2)");
    // No node has four GPUs for it, even without the gang.
    add(&mut world, "second", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn a_gang_from_a_record_is_not_shrunk_more_than_needed() {
    let mut before = world(4);
    let fact = runs(&mut before, "gang", "low", elastic(1, 4, "gpu 4"));
    let mut world = restarted(&before, world(4), fact);
    add(&mut world, "two", "high", pods(2, "gpu 4"));
    assert!(world.decide().starts_with("resize gang #1"));
    assert_eq!(size(&world, "gang"), 2);
}
