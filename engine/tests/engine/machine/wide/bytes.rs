//! What is decided in wide streams is the same in every build, as in `machine/bytes.rs`.

use crate::machine::bytes::{Row, runner};
use crate::machine::step::Step;
use crate::machine::wide::{Wide, case};
use proptest::strategy::{Strategy, ValueTree};

/// Streams of each row.
const STREAMS: u8 = 5;

fn row(row: u8) -> String {
    let mut told = Row::new();
    for stream in 0..STREAMS {
        let mut runner = runner(100 + row, stream);
        let case = case(120).new_tree(&mut runner).unwrap().current();
        let mut model = case.world();
        for step in case.steps {
            let decides = matches!(step, Wide::Old(Step::Decide));
            model.take_wide(step);
            if decides {
                told.hear(&model);
            }
        }
        told.count(&model);
    }
    told.line()
}

#[test]
fn wide_streams_give_the_same_bytes_everywhere() {
    let rows: Vec<String> = (0..8).map(row).collect();
    insta::assert_snapshot!(rows.join("\n"), @r"
    21 released, 0 resized, 0 taken back: baded6ef38d9bfd1, told 09bdd02f82eaac0b
    30 released, 0 resized, 0 taken back: edd97b13c16ac5d4, told e484a22d7d292675
    28 released, 1 resized, 2 taken back: 4ace512541888e42, told 40c8bfe9f69d6117
    40 released, 0 resized, 1 taken back: ab7c97762f892696, told 3220b9ffc6d15152
    52 released, 0 resized, 0 taken back: efbd5ced13015c64, told 92b42105f6f173db
    34 released, 1 resized, 4 taken back: 4b4e978a8f97e8cb, told 4a6ddaa751c2de4f
    27 released, 0 resized, 1 taken back: 473a2b8e77d33699, told 13c03d76dd27268d
    29 released, 0 resized, 3 taken back: 10f4438253fb6bad, told 782fb2714f6d583c
    ");
}
