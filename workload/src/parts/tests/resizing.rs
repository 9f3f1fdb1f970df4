//! Parts whose size changes while they run.

use super::*;

/// The tasks in the parts of `TRAIN`, if it is resizable: task, replicas, minimum of the part, rank of its
/// first pod.
fn resizable(sizes: &[(&str, &[(&str, u32)])]) -> (Vec<RenderedPart>, Vec<String>) {
    let template = yaml(&TRAIN.replace("minAvailable: 9", "minAvailable: 3"));
    let parts = parts(
        &template,
        Attempt(1),
        &shares(sizes),
        &Reach::default(),
        true,
    )
    .unwrap();
    let said = parts.iter().flat_map(shown_tasks).collect();
    (parts, said)
}

fn shown_tasks(part: &RenderedPart) -> Vec<String> {
    let tasks = field(part, "/spec/tasks").as_array().unwrap().iter();
    let shown = tasks.map(|task| {
        let container = &task["template"]["spec"]["containers"][0];
        format!(
            "{} {}={} of at least {}, ranks from {}, gang of {}",
            part.cluster,
            task["name"].as_str().unwrap(),
            task["replicas"],
            field(part, "/spec/minAvailable"),
            variable(container, "MUSTER_RANK_OFFSET").unwrap(),
            variable(container, "MUSTER_GANG_SIZE").unwrap(),
        )
    });
    shown.collect()
}

#[test]
fn resizable_parts_reserve_ranks_for_every_size() {
    let (_, whole) = resizable(&[("a", &[("master", 1), ("worker", 8)])]);
    assert_eq!(
        whole,
        [
            r#"a master=1 of at least 3, ranks from "0", gang of "9""#,
            r#"a worker=8 of at least 3, ranks from "1", gang of "9""#,
        ]
    );
    let (_, small) = resizable(&[
        ("a", &[("master", 1), ("worker", 2)]),
        ("b", &[("worker", 1)]),
    ]);
    // The workers of `a` may grow to eight: ranks 2 to 9. No task may be added to a part later.
    assert_eq!(
        small,
        [
            r#"a master=1 of at least 2, ranks from "0", gang of "9""#,
            r#"a worker=2 of at least 2, ranks from "2", gang of "9""#,
            r#"b master=0 of at least 1, ranks from "1", gang of "9""#,
            r#"b worker=1 of at least 1, ranks from "10", gang of "9""#,
        ]
    );
}

#[test]
fn a_resized_part_changes_only_its_numbers() {
    let (placed, _) = resizable(&[
        ("a", &[("master", 1), ("worker", 2)]),
        ("b", &[("worker", 1)]),
    ]);
    // Its user has changed the image meanwhile.
    let edited = TRAIN
        .replace("minAvailable: 9", "minAvailable: 3")
        .replace("{name: m}", "{name: m, image: other}");
    let grown = shares(&[
        ("a", &[("master", 1), ("worker", 3)]),
        ("b", &[("worker", 4)]),
    ]);
    let fresh = parts(&yaml(&edited), Attempt(1), &grown, &Reach::default(), true).unwrap();
    for (fresh, placed) in fresh.into_iter().zip(placed) {
        let wanted = fresh.clone();
        let part = resized(fresh, &placed.fields);
        assert_eq!(part.mark, wanted.mark);
        let numbers = |part: &RenderedPart| -> Vec<String> { shown_tasks(part) };
        assert_eq!(numbers(&part), numbers(&wanted));
        let without_numbers = |part: &RenderedPart| {
            let mut tasks = field(part, "/spec/tasks").clone();
            for task in tasks.as_array_mut().unwrap() {
                task["replicas"] = json!(0);
            }
            tasks
        };
        assert_eq!(without_numbers(&part), without_numbers(&placed));
    }
}
