//! The forecast store: predicts run times from those of similar jobs.
//!
//! No job is ended, stopped or limited by a prediction.

pub(crate) mod starts;
mod store;

pub(crate) use store::{Forecast, KnownRuns, Prediction, PredictionBasis, Runner, half_again};
