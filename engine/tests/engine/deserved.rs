//! Who is below what it deserves, and by how much: that goes first.

use crate::sharing::{fill, fleet, order, with_fading_past};
use crate::world::{deserving, queue};
use insta::assert_snapshot;

#[test]
fn a_resource_of_which_nothing_is_deserved_is_not_reached_by_holding_none() {
    let mut world = fleet(4);
    world
        .queue(deserving("a", "gpu 4, cpu 0"))
        .queue(deserving("b", "gpu 4"));
    fill(&mut world, "b", 4);
    fill(&mut world, "a", 4);
    assert_snapshot!(order(&mut world), @"b a b a");
}

#[test]
fn a_resource_of_which_nothing_is_deserved_is_reached_by_holding_any() {
    let mut world = fleet(4);
    world
        .queue(deserving("a", "gpu 4, cpu 0"))
        .queue(queue("c"));
    for name in ["c-0", "c-1", "a-0", "a-1", "a-2", "a-3"] {
        world.add(name, &name[..1], 1, "cpu 1, gpu 1");
    }
    // Then it borrows, and who borrows less goes first.
    assert_snapshot!(order(&mut world), @"a c a a");
}

#[test]
fn what_was_held_counts_towards_what_is_deserved_until_it_has_faded() {
    let mut world = with_fading_past();
    world
        .queue(deserving("x", "gpu 4"))
        .queue(deserving("y", "gpu 4"));
    world.runs("x-old", "x", 2, "gpu 1");
    world.wait(3_600).finish("x-old");
    fill(&mut world, "x", 4);
    fill(&mut world, "y", 4);
    // Two GPUs held for a half-life count as one; so much it may hold again before it has more.
    assert_snapshot!(order(&mut world), @"y x x y");
}
