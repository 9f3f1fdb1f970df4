//! The surplus of elastic gangs is evicted first, and scales up again.

use crate::elastic::elastic;
use crate::reclaim::halves;
use crate::world::{World, key};
use engine::Event;
use engine::facts::PodFact;
use insta::assert_snapshot;

#[test]
fn a_shrinking_gang_does_not_scale_up_into_freed_capacity() {
    let mut world = halves(2);
    let job = world.job("gang", "a", elastic(1, 4, "gpu 2"));
    world.submit(job);
    world.decide();
    world.run("gang");
    let held = world.planned_pods(&key("gang"));
    world.add("b1", "b", 2, "gpu 2");
    assert_snapshot!(world.decide(), @"resize gang #1 x(n0×2)");
    let leaves = |world: &mut World, node: &str| {
        let on_it = |pod: &&PodFact| pod.node.as_ref().is_some_and(|at| at.as_str() == node);
        let pod = held.iter().find(on_it).unwrap();
        world.apply(Event::PodGone(pod.cluster.clone(), pod.uid.clone()));
    };
    // The member spreads the remaining pods over the nodes, as a ReplicaSet does.
    leaves(&mut world, "n0");
    assert_snapshot!(world.decide(), @"");
    leaves(&mut world, "n1");
    assert_snapshot!(world.decide(), @"release b1 #1 x(n0 n1)");
    world.confirm("gang", "x", 2);
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn the_surplus_of_a_gang_from_a_record_is_evicted_too() {
    let mut before = halves(2);
    let job = before.job("gang", "a", elastic(1, 4, "gpu 2"));
    let fact = before.submit(job);
    before.decide();
    before.run("gang");
    let mut admission = before
        .engine
        .job(&key("gang"))
        .unwrap()
        .admission
        .unwrap()
        .clone();
    for share in &mut admission.shares {
        share.slots.clear();
    }
    let pods = before.planned_pods(&key("gang"));
    // After a restart its record comes first, then its template.
    let mut world = halves(2);
    world.wait(60);
    for pod in pods {
        world.apply(Event::PodUpserted(pod));
    }
    world.apply(Event::JobAdmitted {
        key: key("gang"),
        admission,
        progress: engine::Progress::Running,
    });
    world.apply(Event::JobUpserted(fact));
    world.add("b1", "b", 2, "gpu 2");
    assert!(
        world.decide().starts_with("resize gang"),
        "{}",
        world.why("b1")
    );
}

#[test]
fn the_surplus_of_an_elastic_gang_is_evicted_first_and_scales_up_again() {
    let mut world = halves(2);
    let job = world.job("gang", "a", elastic(2, 8, "gpu 1"));
    world.submit(job);
    world.decide();
    world.run("gang");
    world.add("b1", "b", 1, "gpu 3");
    assert_snapshot!(world.decide(), @"resize gang #1 x(n0×4 n1)");
    // It stays charged until the member confirms.
    assert_snapshot!(world.allocated("a"), @"nvidia.com/gpu 8, pods 8");
    assert_snapshot!(world.decide(), @"");
    world.resized("gang");
    assert_snapshot!(world.decide(), @"release b1 #1 x(n1)");
    world.run("b1");
    world.finish("b1");
    assert_snapshot!(world.decide(), @"resize gang #1 x(n0×4 n1 n1×3)");
    assert_snapshot!(world.allocated("a"), @"nvidia.com/gpu 8, pods 8");
}
