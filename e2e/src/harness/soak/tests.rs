#![allow(clippy::unwrap_used)]
use super::*;

fn stories(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn ledger(lines: &[&str]) -> SoakLedger {
    lines.join("\n").parse().unwrap()
}

const OLD: &str = "2026-11-01T10:00:00Z";
const NEW: &str = "2026-11-02T10:00:00Z";

#[test]
fn a_ledger_is_read_as_it_is_written_and_keeps_two_lines_of_a_story() {
    let mut ledger = ledger(&[
        "# a comment",
        "",
        &format!("b::one 0123abcd {NEW} failed 30"),
        &format!("b::one 0123abcd {OLD} passed 20"),
        &format!("a::two 0123abcd+ {OLD} cut 900"),
    ]);
    let again: SoakLedger = ledger.to_string().parse().unwrap();
    assert_eq!(again, ledger);
    ledger.merge(&again);
    assert_eq!(again, ledger, "no line is there twice");
    ledger.add(
        "b::one 4567 2026-11-03T10:00:00Z passed 10"
            .parse()
            .unwrap(),
    );
    let text = ledger.to_string();
    assert!(
        !text.contains("passed 20") && text.contains("failed 30"),
        "{text}"
    );
    ledger.retain(&stories(&["a::two"]));
    assert!(!ledger.to_string().contains("b::one"));
}

#[test]
fn a_line_that_cannot_be_read_says_what_is_wrong_with_it() {
    for (line, wrong) in [
        (
            "a 0123 2026-11-01T10:00:00Z passed",
            "is not STORY COMMIT DATE",
        ),
        ("a 0123 yesterday passed 3", "the date \"yesterday\""),
        ("a 0123 2026-11-01T10:00:00Z well 3", "the result \"well\""),
        ("a 0123 2026-11-01T10:00:00Z passed x", "the seconds"),
    ] {
        let error = line.parse::<SoakLine>().unwrap_err();
        assert!(format!("{error:#}").contains(wrong), "{error:#}");
    }
}

#[test]
fn the_oldest_run_first_as_many_as_fit() {
    let all = stories(&["a", "b", "c", "d", "e"]);
    let never = SoakLedger::default();
    assert_eq!(never.choose(&all, 300).chosen, ["a", "b"]);
    let some = ledger(&[
        &format!("a 0123 {NEW} passed 100"),
        &format!("b 0123 {OLD} failed 50"),
        &format!("c 0123 {OLD} passed 1000"),
    ]);
    let choice = some.choose(&all, 300);
    assert_eq!(
        choice.chosen,
        ["d", "e", "b"],
        "those that never ran are the oldest"
    );
    assert_eq!(choice.too_long, ["c"], "it is known to take longer");
    assert!(some.choose(&all, 5_000).too_long.is_empty());
    assert_eq!(some.choose(&all, 5_000).chosen, ["d", "e", "b", "c", "a"]);
}

#[test]
fn a_story_that_was_cut_has_the_next_run_to_itself_and_is_red_if_it_is_cut_again() {
    let all = stories(&["a", "b"]);
    let mut ledger = ledger(&[&format!("a 0123 {OLD} cut 900")]);
    assert_eq!(ledger.choose(&all, 900).chosen, ["a"]);
    assert!(ledger.cut_twice().is_empty());
    ledger.add(format!("a 0123 {NEW} cut 900").parse().unwrap());
    assert_eq!(ledger.cut_twice(), ["a"]);
    ledger.add("a 0123 2026-11-03T10:00:00Z passed 1200".parse().unwrap());
    assert!(ledger.cut_twice().is_empty());
    assert_eq!(ledger.choose(&all, 900).chosen, ["b"]);
}

/// What the tests' program prints of four stories with four ends.
const OUTPUT: &str = "
running 4 tests
test soak::cut ... FAILED
test soak::failed ... FAILED
test soak::late ... FAILED
test soak::passed ... ok

failures:

---- soak::cut stdout ----

thread 'soak::cut' (7) panicked at e2e/tests/e2e/run.rs:157:26:
the time of the run was over while it ran

---- soak::failed stdout ----

thread 'soak::failed' (8) panicked at e2e/tests/e2e/run.rs:160:13:
a pod does not run

---- soak::late stdout ----

thread 'soak::late' (9) panicked at e2e/tests/e2e/run.rs:146:17:
not run: the time of the run was over

failures:
    soak::cut
    soak::failed
    soak::late

test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 271 filtered out; finished in 900.00s
";

#[test]
fn how_a_story_ended_is_what_the_tests_say_and_one_that_did_not_begin_did_not_end() {
    let chosen = ["soak::cut", "soak::failed", "soak::late", "soak::passed"];
    let results = results(&chosen, OUTPUT).unwrap();
    let told: Vec<_> = results
        .iter()
        .map(|(story, &end)| (story.as_str(), end))
        .collect();
    assert_eq!(
        told,
        [
            ("soak::cut", SoakResult::Cut),
            ("soak::failed", SoakResult::Failed),
            ("soak::passed", SoakResult::Passed),
        ]
    );
}

#[test]
fn an_output_that_does_not_tell_of_all_stories_is_an_error() {
    let chosen = ["soak::cut", "soak::failed", "soak::late", "soak::passed"];
    let without_end = OUTPUT.replace("test result", "result");
    let without_reason = OUTPUT.replace("---- soak::failed stdout", "---- soak::other stdout");
    for output in [&without_end, &without_reason, ""] {
        assert!(results(&chosen, output).is_err());
    }
    assert!(results(&chosen[..3], OUTPUT).is_err(), "a story too many");
}
