use super::*;
use crate::capacity::testing::demand;
use crate::pending::testing;

fn shape(count: u32, duration: Option<i64>) -> RequestShape {
    RequestShape {
        duration,
        ..testing::shape(demand(count, "cpu 1"))
    }
}

#[test]
fn a_shape_is_known_while_a_job_has_it() {
    let mut shapes = Shapes::default();
    let first = shapes.acquire(shape(1, None));
    assert_eq!(shapes.acquire(shape(1, None)), first);
    shapes.release(first);
    assert!(shapes.get(first).is_some());
    shapes.release(first);
    assert!(shapes.get(first).is_none());
    // Nothing of it is left to the next that gets its number.
    assert_eq!(shapes.acquire(shape(2, None)), first);
    assert_ne!(shapes.acquire(shape(1, None)), first);
}

#[test]
fn nothing_can_be_reserved_for_a_shape_until_it_is_retried_or_unused() {
    let mut shapes = Shapes::default();
    let id = shapes.acquire(shape(1, None));
    assert!(!shapes.is_unreservable(id));
    shapes.note_unreservable(id);
    assert!(shapes.is_unreservable(id));
    assert_eq!(shapes.take_unreservable(), [id].into());
    assert!(!shapes.is_unreservable(id));
    shapes.note_unreservable(id);
    shapes.release(id);
    assert_eq!(shapes.acquire(shape(2, None)), id);
    assert!(!shapes.is_unreservable(id));
}

#[test]
fn what_the_starts_of_others_make_infeasible_is_retried_if_it_says_how_long_it_runs() {
    let mut shapes = Shapes::default();
    let timed = shapes.acquire(shape(1, Some(1)));
    let endless = shapes.acquire(shape(1, None));
    let full = shapes.acquire(shape(2, Some(1)));
    shapes.note_infeasible(timed, Infeasible::Withheld(Arc::new([])), 1);
    shapes.note_infeasible(endless, Infeasible::Withheld(Arc::new([])), 1);
    shapes.note_infeasible(full, Infeasible::NoRoom, 1);
    let infeasible =
        |shapes: &Shapes| [timed, endless, full].map(|id| shapes.infeasible(id).is_some());
    shapes.timed_feasible();
    assert_eq!(infeasible(&shapes), [false, true, true]);
    shapes.all_feasible();
    assert_eq!(infeasible(&shapes), [false, false, false]);
}

#[test]
fn copies_of_demands_that_no_job_uses_are_dropped_now_and_then() {
    let mut shapes = Shapes::default();
    let used = shapes.intern_demand(&demand(1, "cpu 1"));
    for count in 2..=1024 {
        shapes.intern_demand(&demand(count, "cpu 1"));
    }
    assert_eq!(shapes.demands.len(), 1024);
    shapes.intern_demand(&demand(1025, "cpu 1"));
    assert_eq!(shapes.demands.len(), 2);
    let again = shapes.intern_demand(&demand(1, "cpu 1"));
    assert!(Arc::ptr_eq(&used, &again));
}

/// Shapes of one demand, of so many users.
fn of_users(shapes: &mut Shapes, count: usize) -> Vec<ShapeId> {
    let demand = shapes.intern_demand(&demand(1, "cpu 1"));
    let users = 0..count;
    let of_user = users.map(|user| RequestShape {
        demand: Arc::clone(&demand),
        user: Some(Arc::from(format!("user-{user}"))),
        ..shape(1, None)
    });
    of_user.map(|shape| shapes.acquire(shape)).collect()
}

#[test]
fn a_shape_takes_the_slots_that_were_guessed_for_one_alike() {
    let mut shapes = Shapes::default();
    let first = of_users(&mut shapes, 1)[0];
    let slots = shapes.set_of(&BTreeSet::from([ReservationSlot::Headroom("a".into())]));
    shapes.note_slot_set(first, slots);
    let before = of_users(&mut shapes, 2)[1];
    assert_eq!(shapes.slot_set(before), SlotSetId::default());
    shapes.note_guessed(first);
    assert_eq!(shapes.guessed_slots(before), Some(slots));
    let after = of_users(&mut shapes, 3)[2];
    assert_eq!(shapes.slot_set(after), slots);
    // A reservation for a job of another demand may take other slots.
    let other = shapes.acquire(shape(2, None));
    assert_eq!(shapes.slot_set(other), SlotSetId::default());
    // So that all alike take the same, whenever they come, they stay until clusters change.
    shapes.nodes_changed(|_| false);
    assert_eq!(shapes.guessed_slots(after), Some(slots));
    shapes.forget_fits();
    assert_eq!(shapes.guessed_slots(after), None);
}

#[test]
fn shapes_are_alike_while_they_are_feasible() {
    let mut shapes = Shapes::default();
    let ids = of_users(&mut shapes, 3);
    shapes.note_infeasible(ids[1], Infeasible::NoRoom, 1);
    let alike = |shapes: &Shapes| shapes.feasible_alike(ids[1]).collect::<Vec<_>>();
    assert_eq!(alike(&shapes), [ids[0], ids[2]]);
    assert!(shapes.are_listed());
    shapes.note_feasible(ids[1]);
    shapes.release(ids[0]);
    assert_eq!(alike(&shapes), [ids[1], ids[2]]);
    assert!(shapes.are_listed());
}

#[test]
fn nothing_is_known_of_a_shape_in_another_fleet() {
    let mut shapes = Shapes::default();
    let id = shapes.acquire(shape(1, None));
    let queue = QueueName::from("q");
    let slots = |names: &[&str]| -> BTreeSet<ReservationSlot> {
        let queues = names.iter().copied().map(QueueName::from);
        queues.map(ReservationSlot::Headroom).collect()
    };
    let one = shapes.set_of(&slots(&["a"]));
    shapes.note_slot_set(id, one);
    assert!(!shapes.are_of_several_classes());
    let two = shapes.set_of(&slots(&["a", "b"]));
    shapes.note_slot_set(id, two);
    assert!(shapes.are_of_several_classes());
    shapes.note_fits_empty_fleet(id, true);
    shapes.note_let_by(id, &queue, true);
    shapes.note_infeasible(id, Infeasible::NoRoom, 1);
    shapes.forget_fits();
    let known = shape(1, None);
    assert_eq!(shapes.fits_empty_fleet(&known), None);
    assert_eq!(shapes.let_by(&known, &queue), None);
    assert_eq!(shapes.scopes(id), None);
    assert_eq!(shapes.infeasible(id), None);
    assert!(!shapes.are_of_several_classes());
}
