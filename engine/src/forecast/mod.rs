//! The forecast store: run times, predicted from those of like jobs.
//!
//! Ended runs come in, predictions go out. A prediction is only ever expected: it must never end,
//! stop or shorten a job.

mod store;

pub(crate) use store::{Forecast, KnownRuns, Prediction, PredictionBasis, Runner};
