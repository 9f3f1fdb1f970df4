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
    21 released, 0 resized, 0 evicted: baded6ef38d9bfd1, told 3e5542cb36c37ab8
    30 released, 0 resized, 0 evicted: edd97b13c16ac5d4, told 8f8b7d14bba8413e
    28 released, 1 resized, 2 evicted: 91083b7e43b571de, told 950bb12365358294
    40 released, 0 resized, 1 evicted: 6fa84a58200764e9, told 1ef4177fa4b64250
    52 released, 0 resized, 0 evicted: efbd5ced13015c64, told d84c3226817c41e9
    34 released, 1 resized, 4 evicted: 6715f5c3c7ddc785, told b9dfe8b61f6ace98
    27 released, 0 resized, 1 evicted: b14eec80ff254e9a, told 1907cfa5797ded54
    29 released, 0 resized, 3 evicted: 1394ca486dcd653c, told ad1ca5d1fc82c82c
    ");
}
