//! The same events give the same bytes on every machine and in every build, and no decision or text
//! changes unnoticed.
//!
//! Decisions are counted for the reader, and their bytes are hashed. A change that does not mean to
//! change decisions leaves the numbers as they are; one that changes decisions or texts writes them
//! again, and its commit says what changed.

use super::QUEUES;
use super::layout::{Layout, Span};
use super::model::Model;
use super::step::{PolicyStep, Step, lively};
use engine::QueueName;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The number of streams of each row.
const STREAMS: u8 = 10;

/// FNV-1a, 64 bits: the same on every machine.
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

/// A fleet that stays whole and queues that share it by deserved amounts, other ones in each row.
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

/// Random numbers that are the same in every run.
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

/// The hash of the explanations of all jobs and queues. Jobs of one class get the same advice.
fn hear(model: &Model, words: &mut Hash) {
    let mut by_class = BTreeMap::new();
    for key in model.jobs.keys() {
        words.add(&model.engine.explain(key));
        let helps = model.engine.advise(key, &|_| true);
        words.add(&helps);
        if let Some(class) = model.engine.advice_class(key) {
            let known = by_class.entry(class).or_insert_with(|| helps.clone());
            assert_eq!(*known, helps, "{key}");
        }
    }
    let inner = ["root"].into_iter().chain(model.inner());
    for name in inner.chain(model.layout.leaves.iter().copied()) {
        let queue = QueueName::from(name);
        words.add(&model.engine.queue_usage(&queue));
        words.add(&model.engine.reserved(&queue));
    }
}

/// The decisions and texts in the streams of a row.
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

    /// The explanations of all jobs and the usage of all queues now.
    pub fn hear(&mut self, model: &Model) {
        hear(model, &mut self.words);
    }

    /// All decisions of a stream.
    pub fn count(&mut self, model: &Model) {
        // A call that only brings jobs in step with new rules decides nothing.
        let only_resyncs =
            |decided: &str| decided.starts_with("Decisions { decisions: [], more: true");
        let calls = model.decided.iter().map(|(_, _, decided)| decided);
        for decided in calls.filter(|decided| !only_resyncs(decided)) {
            // An empty list adds nothing, as before it was there.
            let decided = &decided.replace(", fruitless_reservations: []", "");
            self.decisions.add(decided);
            self.released += decided.matches("Release {").count();
            self.resized += decided.matches("Resize {").count();
            self.taken += decided.matches("Evict {").count();
        }
    }

    pub fn line(&self) -> String {
        let (decisions, words) = (self.decisions.0, self.words.0);
        let (released, resized, taken) = (self.released, self.resized, self.taken);
        format!(
            "{released} released, {resized} resized, {taken} evicted: {decisions:016x}, told {words:016x}"
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
    97 released, 2 resized, 2 evicted: 110dab7ba20ae42c, told 0c3e343e248bcbc7
    70 released, 1 resized, 3 evicted: 3abea4bb7a94c92b, told 8d4c79edd58e51e7
    113 released, 2 resized, 8 evicted: 2ae3d562aef88d6d, told 5d18bff3f1641d6f
    63 released, 0 resized, 1 evicted: c960b3acfd0af526, told 69f546635cd2d43b
    123 released, 5 resized, 7 evicted: 03581164666f8518, told d9b821ca91fce253
    57 released, 0 resized, 2 evicted: 1e6171fa58783e51, told d918d71465de6cc1
    107 released, 1 resized, 6 evicted: b703aa6c468d21c2, told 56e3037f271cfa23
    54 released, 1 resized, 0 evicted: 599b6635cff4b9b9, told 19816c6f7fcb134b
    114 released, 1 resized, 4 evicted: 8447e713015391ed, told 913d49880a5768ff
    85 released, 1 resized, 2 evicted: dad0bbfe475256aa, told 956ef4bf7b69185e
    95 released, 3 resized, 3 evicted: 0488ceefe71aa5da, told 2dd48ccd730041f5
    53 released, 1 resized, 1 evicted: 0303056511623d42, told faf7c9af71a53332
    ");
}
