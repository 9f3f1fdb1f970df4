//! The engine's choices against the best there are, found by mixed integer programs.
//!
//! Never worse than infeasible: where a way exists, the engine finds one. On average within two
//! percent of the best, and the worst case is printed. Each suite has a long form for the closing
//! note: `cargo test -p engine --test reference -- --ignored --nocapture optimum`.

mod placement;
mod victims;

/// What a series of cases came to.
#[derive(Default)]
struct Record {
    cases: u32,
    /// Cases in which there was something to choose.
    told: u32,
    /// Sum of engine / best, in thousandths.
    ratios: i64,
    worst: i64,
    worst_case: String,
}

impl Record {
    /// One case: what the engine's choice costs and what the best does; `None` is no way at all.
    fn add(&mut self, engine: Option<i64>, best: Option<i64>, case: &str) {
        self.cases += 1;
        let (engine, best) = match (engine, best) {
            // Where nothing has to be paid there is nothing to choose.
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

    /// Prints what came out and holds it against the goal.
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
