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
    21 released, 0 resized, 0 evicted: 9fc25259d605876d, told 1fb33da24060cd0d
    30 released, 0 resized, 0 evicted: edd97b13c16ac5d4, told 0c74b530454c4341
    28 released, 1 resized, 2 evicted: 41b23a80bafd2be5, told d91ccca33022dd4b
    40 released, 0 resized, 1 evicted: 37b981041b4d393e, told 2e99ce76e22bc20d
    52 released, 0 resized, 0 evicted: bbcb01b484f49de3, told 4ceeefb0c8edd0dd
    34 released, 1 resized, 4 evicted: 7e3c3fd38b5482c3, told 42a313f01cd60d05
    27 released, 0 resized, 1 evicted: b14eec80ff254e9a, told 3ced39bc11c682e2
    29 released, 0 resized, 3 evicted: ba7c989d8314fedf, told 325d4f4f83fbd21e
    ");
}
