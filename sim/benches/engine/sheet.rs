//! The rows of the benchmark: each result beside its goal.

use comfy_table::{Table, presets};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most milliseconds that one call of the engine may take: it delays every reaction.
const MOST_MILLIS: f64 = 50.0;

/// The nanoseconds of the longest calls of the engine since the last row: to decide, and to take in an event.
static LONGEST_CALLS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// What the engine is called for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    Decide,
    Apply,
}

/// Notes how long one call of the engine took.
pub(crate) fn note_call(call: Call, took: Duration) {
    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    LONGEST_CALLS[call as usize].fetch_max(nanos, Ordering::Relaxed);
}

/// The goal of a number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// No goal: the number is measured for comparison.
    None,
}

/// One result.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    name: String,
    reached: Option<f64>,
    unit: String,
    goal: Goal,
    met: Option<bool>,
    /// The reason why the row was skipped, or a remark.
    note: String,
    details: BTreeMap<String, f64>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Sheet {
    rows: Vec<Row>,
    /// The milliseconds of the longest call of all, and the row that it belongs to.
    longest_call: Option<(f64, String)>,
}

impl Sheet {
    pub(crate) fn add(
        &mut self,
        name: &str,
        reached: f64,
        unit: &str,
        goal: Goal,
        details: &[(&str, f64)],
    ) {
        let met = match goal {
            Goal::AtLeast(least) => Some(reached >= least),
            Goal::AtMost(most) => Some(reached <= most),
            Goal::None => None,
        };
        let details = details
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        let calls = self.take_longest_calls(name).into_iter().flatten();
        let calls = calls.map(|(call, millis)| (call.to_owned(), millis));
        let details = details.chain(calls);
        let row = Row {
            name: name.to_owned(),
            reached: Some(reached),
            unit: unit.to_owned(),
            goal,
            met,
            note: String::new(),
            details: details.collect(),
        };
        eprintln!("{}", row.line().join("  "));
        self.rows.push(row);
    }

    /// The milliseconds of the longest call of each kind since the last row; none where there was no such call.
    fn take_longest_calls(&mut self, row: &str) -> [Option<(&'static str, f64)>; 2] {
        let mut at = 0;
        ["longest decide ms", "longest event ms"].map(|name| {
            let nanos = LONGEST_CALLS[at].swap(0, Ordering::Relaxed);
            at += 1;
            let millis = nanos as f64 / 1e6;
            let before = self
                .longest_call
                .as_ref()
                .map_or(0.0, |(before, _)| *before);
            if millis > before {
                self.longest_call = Some((millis, format!("{row} ({name})")));
            }
            (nanos > 0).then_some((name, millis))
        })
    }

    /// Adds the row of the longest call over all inputs.
    pub(crate) fn add_longest_call(&mut self) {
        if let Some((millis, row)) = self.longest_call.clone() {
            let name = format!("the longest call, in: {row}");
            self.add(&name, millis, "ms", Goal::AtMost(MOST_MILLIS), &[]);
        }
    }

    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        eprintln!("{name}: left out: {why}");
        self.rows.push(Row {
            name: name.to_owned(),
            reached: None,
            unit: String::new(),
            goal: Goal::None,
            met: None,
            note: format!("left out: {why}"),
            details: BTreeMap::new(),
        });
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header(["", "reached", "goal", "", "beside"]);
        for row in &self.rows {
            table.add_row(row.line());
        }
        table.to_string()
    }

    pub(crate) fn json(&self) -> Result<String, String> {
        #[derive(Serialize)]
        struct File<'a> {
            cores: usize,
            rows: &'a [Row],
        }
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let file = File {
            cores,
            rows: &self.rows,
        };
        serde_json::to_string_pretty(&file).map_err(|error| error.to_string())
    }
}

impl Row {
    fn line(&self) -> [String; 5] {
        let reached = self
            .reached
            .map(|value| format!("{} {}", number(value), self.unit));
        let goal = match self.goal {
            Goal::AtLeast(least) => format!("≥ {}", number(least)),
            Goal::AtMost(most) => format!("≤ {}", number(most)),
            Goal::None => String::new(),
        };
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        let details = self.details.iter();
        let beside: Vec<String> = details
            .map(|(name, value)| format!("{name} {}", number(*value)))
            .collect();
        [
            self.name.clone(),
            reached.unwrap_or_else(|| self.note.clone()),
            goal,
            met.to_owned(),
            beside.join(", "),
        ]
    }
}

/// Formats a number: three significant digits if it is small, a whole number otherwise.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 0.01 => format!("{value:.4}"),
        small if small < 10.0 => format!("{value:.2}"),
        small if small < 100.0 => format!("{value:.1}"),
        _ => {
            let digits = format!("{:.0}", value.abs());
            let groups: Vec<&str> = digits
                .as_bytes()
                .rchunks(3)
                .rev()
                .filter_map(|group| std::str::from_utf8(group).ok())
                .collect();
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", groups.join(","))
        }
    }
}
