//! What elastic gangs have beyond their least is evicted first, and grows again.

use crate::elastic::elastic;
use crate::reclaim::halves;
use crate::world::{World, key};
use engine::Event;
use engine::facts::PodFact;
use insta::assert_snapshot;

#[test]
fn which_pods_leave_is_the_members_choice_and_nothing_grows_into_their_room() {
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
    // The member spreads what stays over the nodes, as a ReplicaSet does.
    leaves(&mut world, "n0");
    assert_snapshot!(world.decide(), @"");
    leaves(&mut world, "n1");
    assert_snapshot!(world.decide(), @"release b1 #1 x(n0 n1)");
    world.confirm("gang", "x", 2);
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn surplus_is_taken_of_a_gang_that_was_found_running_too() {
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
fn surplus_of_an_elastic_gang_first_and_it_grows_again() {
    let mut world = halves(2);
    let job = world.job("gang", "a", elastic(2, 8, "gpu 1"));
    world.submit(job);
    world.decide();
    world.run("gang");
    world.add("b1", "b", 1, "gpu 3");
    assert_snapshot!(world.decide(), @"resize gang #1 x(n0×4 n1)");
    // Charged until the member confirms.
    assert_snapshot!(world.allocated("a"), @"nvidia.com/gpu 8, pods 8");
    assert_snapshot!(world.decide(), @"");
    world.resized("gang");
    assert_snapshot!(world.decide(), @"release b1 #1 x(n1)");
    world.run("b1");
    world.finish("b1");
    assert_snapshot!(world.decide(), @"resize gang #1 x(n0×4 n1 n1×3)");
    assert_snapshot!(world.allocated("a"), @"nvidia.com/gpu 8, pods 8");
}
