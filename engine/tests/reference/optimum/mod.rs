//! The engine's choices against the optimum, found by mixed integer programs.
//!
//! If there is a solution, the engine finds one. On average it is within two percent of the
//! optimum, and the worst case is printed. Each suite has a long form: `cargo test -p engine --test
//! reference -- --ignored --nocapture optimum`.

mod placement;
mod victims;

/// The result of a series of cases.
#[derive(Default)]
struct Record {
    cases: u32,
    /// The number of cases with a choice.
    told: u32,
    /// The sum of engine / optimum, in thousandths.
    ratios: i64,
    worst: i64,
    worst_case: String,
}

impl Record {
    /// Adds a case: the cost of the engine's choice and of the optimum; `None` is no solution.
    fn add(&mut self, engine: Option<i64>, best: Option<i64>, case: &str) {
        self.cases += 1;
        let (engine, best) = match (engine, best) {
            // Without a cost there is nothing to choose.
            (None, None) | (Some(0), Some(0)) => return,
            (Some(engine), Some(best)) => (engine, best),
            (None, Some(best)) => panic!("the engine found no way, one costs {best}: {case}"),
            (Some(engine), None) => panic!("the engine's way ({engine}) cannot be: {case}"),
        };
        assert!(engine >= best, "{engine} beats the best, {best}: {case}");
        assert!(best > 0, "{engine} where it costs nothing: {case}");
        let ratio = engine * 1000 / best;
        self.told += 1;
        self.ratios += ratio;
        if ratio > self.worst {
            self.worst = ratio;
            self.worst_case = format!("{engine} for {best}: {case}");
        }
    }

    /// Prints the result and compares it with the goal.
    fn close(&self, what: &str) {
        let mean = self.ratios / i64::from(self.told.max(1));
        println!(
            "{what}: {} cases, {} with a price, mean ratio {}.{:03}, worst {}.{:03}: {}",
            self.cases,
            self.told,
            mean / 1000,
            mean % 1000,
            self.worst / 1000,
            self.worst % 1000,
            self.worst_case
        );
        assert!(self.told * 4 > self.cases, "too few cases tell anything");
        assert!(mean <= 1020, "the mean is over 1.02");
    }
}
