//! The decisions in wide streams are the same in every build, as in `machine/bytes.rs`.

use crate::machine::bytes::{Row, runner};
use crate::machine::step::Step;
use crate::machine::wide::{Wide, case};
use proptest::strategy::{Strategy, ValueTree};

/// The number of streams of each row.
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
    21 released, 0 resized, 0 evicted: 9fc25259d605876d, told ae730f8b49d614cd
    30 released, 0 resized, 0 evicted: edd97b13c16ac5d4, told 0c74b530454c4341
    28 released, 1 resized, 2 evicted: 41b23a80bafd2be5, told 7128a52a71964bd7
    40 released, 0 resized, 1 evicted: 37b981041b4d393e, told db4fdd9d34f8e121
    52 released, 0 resized, 0 evicted: bbcb01b484f49de3, told a78d5360194778fb
    34 released, 1 resized, 4 evicted: c63cec224392fb5e, told 04b5daafb1c828c8
    27 released, 0 resized, 1 evicted: b14eec80ff254e9a, told 5d84b4bcd96ad160
    29 released, 0 resized, 3 evicted: ba7c989d8314fedf, told 4c88abaff8b7d812
    ");
}
