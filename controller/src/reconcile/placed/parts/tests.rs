#![allow(clippy::panic)]

use super::*;

/// Every Work is its part.
fn whole() -> ObservedParts {
    ObservedParts::default()
}

/// The Work in `b` is not its part.
fn astray() -> ObservedParts {
    ObservedParts {
        astray: vec![ClusterName::new("b")],
        ..ObservedParts::default()
    }
}

fn seconds(seconds: i64) -> Time {
    Time(seconds * 1_000)
}

#[test]
fn parts_are_dispatched_once_every_work_shows_its_part() {
    let mut watched = PartsState::default();
    let missing = ObservedParts {
        missing: true,
        ..whole()
    };
    // However long Karmada takes to render it.
    for second in [0, 600] {
        let step = watched.step(Parts::Held, &missing, None, seconds(second));
        assert_eq!(step, PartsStep::Nothing);
    }
    let step = watched.step(Parts::Held, &astray(), None, seconds(601));
    assert_eq!(step, PartsStep::Wait(seconds(602)));
    let step = watched.step(Parts::Held, &whole(), None, seconds(602));
    assert_eq!(step, PartsStep::Dispatch);
    let step = watched.step(Parts::Dispatched, &whole(), None, seconds(603));
    assert_eq!(step, PartsStep::Nothing);
}

#[test]
fn works_that_stay_astray_are_repaired_repeatedly() {
    let mut watched = PartsState::default();
    let mut step = |second| watched.step(Parts::Held, &astray(), None, seconds(second));
    assert_eq!(step(0), PartsStep::Wait(seconds(1)));
    assert_eq!(step(5), PartsStep::Repair);
    // Nothing more is requested until there is an answer.
    assert_eq!(step(20), PartsStep::Wait(seconds(21)));
    watched.repair = OverrideRepair::None;
    let mut step = |second| watched.step(Parts::Held, &astray(), None, seconds(second));
    assert_eq!(step(9), PartsStep::Wait(seconds(10)));
    assert_eq!(step(15), PartsStep::Repair);
}

#[test]
fn a_running_work_that_loses_its_part_is_repaired_at_once() {
    let mut watched = PartsState::default();
    let step = watched.step(Parts::Dispatched, &astray(), None, seconds(0));
    assert_eq!(step, PartsStep::Repair);
    watched.repair = OverrideRepair::Failed("its template changed".to_owned());
    let step = watched.step(Parts::Dispatched, &astray(), None, seconds(1));
    let PartsStep::Evict(trouble) = step else {
        panic!("{step:?}")
    };
    assert_eq!(trouble.reason, Reason::PartsLost);
    assert!(trouble.message.contains("its template changed"));
}

#[test]
fn the_override_follows_a_resize_at_once_and_once() {
    let mut watched = PartsState::default();
    let sized = |worker: u32| ObservedParts {
        resizing: Some(vec![format!("attempt 1, part 1 of 1: worker={worker}")]),
        ..astray()
    };
    let step = |watched: &mut PartsState, worker, second| {
        watched.step(Parts::Dispatched, &sized(worker), None, seconds(second))
    };
    assert_eq!(step(&mut watched, 4, 0), PartsStep::Resize);
    assert_eq!(step(&mut watched, 4, 1), PartsStep::Wait(seconds(2)));
    watched.repair = OverrideRepair::None;
    // It is written; Karmada has not rendered it yet.
    assert_eq!(step(&mut watched, 4, 2), PartsStep::Wait(seconds(3)));
    // The next size does not wait for that.
    assert_eq!(step(&mut watched, 6, 3), PartsStep::Resize);
    watched.repair = OverrideRepair::None;
    // It does not arrive: handled like a lost part.
    assert_eq!(step(&mut watched, 6, 8), PartsStep::Repair);
    watched.repair = OverrideRepair::None;
    let whole = watched.step(Parts::Dispatched, &whole(), None, seconds(9));
    assert_eq!(whole, PartsStep::Nothing);
    assert_eq!(step(&mut watched, 4, 10), PartsStep::Resize);
}

#[test]
fn persistent_trouble_evicts_all_parts() {
    let mut watched = PartsState::default();
    let trouble = EvictionCause::new(Reason::MemberRefused, "b refused its part: exceeded quota")
        .avoiding(ClusterName::new("b"));
    let mut step =
        |trouble, second| watched.step(Parts::Dispatched, &whole(), trouble, seconds(second));
    assert_eq!(step(Some(trouble.clone()), 0), PartsStep::Wait(seconds(3)));
    // A call that only timed out has been repeated.
    assert_eq!(step(None, 1), PartsStep::Nothing);
    assert_eq!(step(Some(trouble.clone()), 2), PartsStep::Wait(seconds(5)));
    assert_eq!(step(Some(trouble.clone()), 5), PartsStep::Evict(trouble));
}

#[test]
fn parts_have_time_to_end_after_the_leading_part() {
    let mut watched = PartsState::default();
    let stop = |reason| EvictionCause::new(reason, "");
    let mut step = |reason: Option<Reason>, second| {
        let stop = reason.map(stop);
        watched.step(Parts::Dispatched, &whole(), stop, seconds(second))
    };
    // A part that failed earlier does not shorten the time of the others.
    assert_eq!(
        step(Some(Reason::PartFailed), 0),
        PartsStep::Wait(seconds(3))
    );
    assert_eq!(
        step(Some(Reason::Succeeded), 2),
        PartsStep::Wait(seconds(12))
    );
    assert_eq!(
        step(Some(Reason::Succeeded), 9),
        PartsStep::Wait(seconds(12))
    );
    let end = step(Some(Reason::Succeeded), 12);
    assert_eq!(end, PartsStep::Evict(stop(Reason::Succeeded)));
}
