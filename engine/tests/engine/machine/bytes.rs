//! The same events give the same bytes on every machine and in every build, and nothing that
//! is decided or told changes unnoticed.
//!
//! What was decided is counted for the reader and hashed for the rest. A change that is meant to
//! decide as before leaves all of it as it is; one that is meant to change decisions or words
//! writes it anew, and says in its commit what changed.

use super::QUEUES;
use super::layout::{Layout, Span};
use super::model::Model;
use super::step::{PolicyStep, Step, lively};
use engine::QueueName;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::fmt::Debug;

/// Streams of each row.
const STREAMS: u8 = 10;

/// FNV-1a, 64 bits: the same everywhere.
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, what: &impl Debug) {
        for byte in format!("{what:?}").bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// A fleet that is whole and queues that share it by what they deserve, each row otherwise.
fn shared(row: u8) -> Model {
    let mut model = Model::new(Layout::small());
    for class in 0..3_u8 {
        model.take(Step::Class(class, i32::from(class) * 5, class != 1));
    }
    for (queue, deserved) in [10, 6, 4, 8].into_iter().enumerate() {
        let guarantee = (row % 2 == 1 && queue != 3).then_some(2);
        model.take(Step::Shares {
            queue,
            guarantee,
            deserved: Some(deserved),
        });
    }
    for queue in 0..QUEUES.len() {
        let preemption = PolicyStep::Preemption {
            within: !row.is_multiple_of(3),
            reclaim: row % 4 != 3,
            min_runtime: u16::from(row % 2) * 30,
        };
        let fair = PolicyStep::FairShare {
            weight: None,
            half_life: (row % 3 == 2).then_some(300),
        };
        let ordering = PolicyStep::Ordering((row + queue as u8) % 4);
        let backfill = PolicyStep::Backfill {
            conservative: row % 5 == 4,
            reservations: (row % 4 == 2).then_some(2),
        };
        for change in [preemption, fair, ordering, backfill] {
            model.take(Step::Policy(queue, change));
        }
    }
    model
}

/// The same numbers in every run.
pub fn runner(row: u8, stream: u8) -> TestRunner {
    let mut seed = [0; 32];
    seed[..2].copy_from_slice(&[row, stream]);
    let chance = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    TestRunner::new_with_rng(Config::default(), chance)
}

/// Steps that are the same in every run.
fn steps(row: u8, stream: u8) -> Vec<Step> {
    let mut runner = runner(row, stream);
    let steps = proptest::collection::vec(lively(Span::SMALL), 80..160);
    steps.new_tree(&mut runner).unwrap().current()
}

/// What is said of all jobs and queues.
fn hear(model: &Model, words: &mut Hash) {
    for key in model.jobs.keys() {
        words.add(&model.engine.explain(key));
        words.add(&model.engine.advise(key, &|_| true));
    }
    let inner = ["root"].into_iter().chain(model.inner());
    for name in inner.chain(model.layout.leaves.iter().copied()) {
        let queue = QueueName::from(name);
        words.add(&model.engine.queue_usage(&queue));
        words.add(&model.engine.reserved(&queue));
    }
}

/// What was decided and told in the streams of a row.
pub struct Row {
    decisions: Hash,
    words: Hash,
    released: usize,
    resized: usize,
    taken: usize,
}

impl Row {
    pub fn new() -> Self {
        Self {
            decisions: Hash::new(),
            words: Hash::new(),
            released: 0,
            resized: 0,
            taken: 0,
        }
    }

    /// What is said of all jobs and queues now.
    pub fn hear(&mut self, model: &Model) {
        hear(model, &mut self.words);
    }

    /// All that was decided in a stream.
    pub fn count(&mut self, model: &Model) {
        for (_, _, decided) in &model.decided {
            self.decisions.add(decided);
            self.released += decided.matches("Release {").count();
            self.resized += decided.matches("Resize {").count();
            self.taken += decided.matches("TakeBack {").count();
        }
    }

    pub fn line(&self) -> String {
        let (decisions, words) = (self.decisions.0, self.words.0);
        let (released, resized, taken) = (self.released, self.resized, self.taken);
        format!(
            "{released} released, {resized} resized, {taken} taken back: {decisions:016x}, told {words:016x}"
        )
    }
}

fn row(row: u8) -> String {
    let mut told = Row::new();
    for stream in 0..STREAMS {
        let mut model = shared(row);
        for step in steps(row, stream) {
            let decides = matches!(step, Step::Decide);
            model.take(step);
            if decides {
                told.hear(&model);
            }
        }
        model.come_to_rest();
        told.hear(&model);
        told.count(&model);
    }
    told.line()
}

#[test]
fn the_same_events_give_the_same_bytes_everywhere() {
    let rows: Vec<String> = (0..12).map(row).collect();
    insta::assert_snapshot!(rows.join("\n"), @r"
    98 released, 2 resized, 2 taken back: 5a30baaa9b4f73b8, told 2d30a07edc028564
    70 released, 1 resized, 3 taken back: 759f0b96bfa2e7de, told 4c337e7e4fb8d29f
    112 released, 2 resized, 9 taken back: a6a3d7799346f4ad, told 0ae29af182564805
    63 released, 0 resized, 1 taken back: a337cacfddf35d05, told 8472ee25b9bce20e
    122 released, 4 resized, 7 taken back: 9a9502d684ff1134, told 42ba5e4ed02266ad
    57 released, 0 resized, 2 taken back: db4b0164379b7ec0, told cd30bd1b28c696bb
    107 released, 1 resized, 6 taken back: a72274aee24a7142, told d9cd9f058c6b2334
    54 released, 1 resized, 0 taken back: d8f4da4e2cbbf1c9, told baf88cb023703f11
    114 released, 1 resized, 4 taken back: 525449481a6a778a, told fb3f89832841e735
    85 released, 1 resized, 2 taken back: 11a61f1588137106, told c9f3a42b7babfff7
    94 released, 3 resized, 3 taken back: a6fc553a60d854b0, told 2190190d5d4735eb
    53 released, 1 resized, 1 taken back: 36c2d4112e6a338b, told 3dcf092d94c6214c
    ");
}
