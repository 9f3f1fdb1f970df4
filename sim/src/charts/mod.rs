//! Charts of a run, as SVG: use of pools and queues over time, waits by job size, and fragmentation.
//!
//! The viewer of an SVG file chooses the font, so that drawing needs none of the machine.

mod draw;

use crate::metrics::RunMetrics;
use crate::record::RunRecord;
use draw::{Chart, Series};
use plotters::backend::SVGBackend;
use std::path::{Path, PathBuf};

/// Width and height of a chart in pixels.
const SIZE: (u32, u32) = (1000, 560);
/// The most lines in a chart; the smallest series are merged into one.
const MOST_SERIES: usize = 11;

/// A reason why a chart could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// The folder or file cannot be written.
    #[error("{path}: cannot be written: {reason}")]
    Write {
        /// The file.
        path: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The drawing failed.
    #[error("{path}: cannot be drawn: {reason}")]
    Draw {
        /// The file.
        path: String,
        /// The error of the plotter.
        reason: String,
    },
}

/// Draws all charts of a run into a folder, which it creates if needed, and returns the files.
///
/// # Errors
/// Returns the first file that cannot be written or drawn.
pub fn draw_all(
    folder: &Path,
    record: &RunRecord,
    metrics: &RunMetrics,
    queues: &[String],
) -> Result<Vec<PathBuf>, ChartError> {
    std::fs::create_dir_all(folder).map_err(|error| ChartError::Write {
        path: folder.display().to_string(),
        reason: error.to_string(),
    })?;
    let unit = record.measure.word();
    let pools: Vec<String> = record
        .pools
        .iter()
        .map(|pool| format!("{}/{}", pool.cluster, pool.class))
        .collect();
    let hours = |at: engine::Time| {
        let first = record.samples.first().map_or(at, |sample| sample.at);
        at.millis_since(first) as f64 / 3_600_000.0
    };
    let over_time = |values: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
        let samples = record.samples.iter().enumerate();
        samples
            .map(|(index, sample)| (hours(sample.at), values(index)))
            .collect()
    };
    let share = |used: i64, of: i64| used as f64 * 100.0 / of.max(1) as f64;
    let pool_series = pools.iter().enumerate().map(|(index, name)| Series {
        name: name.clone(),
        points: over_time(&|at| {
            share(
                record.samples[at].pools[index],
                record.pools[index].capacity,
            )
        }),
    });
    // Queues without jobs of their own have no line.
    let used = |index: &usize| {
        record
            .samples
            .iter()
            .any(|sample| sample.queues[*index] > 0)
    };
    let in_use = queues.iter().enumerate().filter(|(index, _)| used(index));
    let queue_series = in_use.map(|(index, name)| Series {
        name: name.clone(),
        points: over_time(&|at| record.samples[at].queues[index] as f64 / 1000.0),
    });
    let waiting = Series {
        name: "waiting".to_owned(),
        points: over_time(&|at| record.samples[at].waiting as f64 / 1000.0),
    };
    let unusable = Series {
        name: "unusable".to_owned(),
        points: over_time(&|at| record.samples[at].unusable * 100.0),
    };
    let (title, y) = (
        format!("{unit}s in use by pool"),
        "% of the pool".to_owned(),
    );
    let charts = [
        (
            "pools",
            Chart::lines(title, y, few(pool_series.collect(), Few::Average)),
        ),
        (
            "queues",
            Chart::lines(
                format!("{unit}s in use by queue, and asked for by jobs that wait"),
                format!("{unit}s"),
                few(queue_series.collect(), Few::Sum)
                    .into_iter()
                    .chain([waiting])
                    .collect(),
            ),
        ),
        (
            "fragmentation",
            Chart::lines(
                format!("Free {unit}s that the mix of jobs cannot use"),
                "% of what is free".to_owned(),
                vec![unusable],
            ),
        ),
        (
            "wait-by-size",
            Chart::bars(
                format!("Wait by {unit}s of a job"),
                metrics
                    .wait_by_size
                    .iter()
                    .map(|group| {
                        (
                            group.size.clone(),
                            [
                                group.wait.p50 / 3600.0,
                                group.wait.average / 3600.0,
                                group.wait.p99 / 3600.0,
                            ],
                        )
                    })
                    .collect(),
            ),
        ),
    ];
    let mut files = Vec::new();
    for (name, chart) in &charts {
        files.push(svg(&folder.join(format!("{name}.svg")), chart)?);
    }
    Ok(files)
}

/// How the surplus series are merged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Few {
    Sum,
    Average,
}

/// Returns the largest series, and one that merges all others.
fn few(mut series: Vec<Series>, how: Few) -> Vec<Series> {
    if series.len() <= MOST_SERIES {
        return series;
    }
    let size = |series: &Series| series.points.iter().map(|(_, value)| value).sum::<f64>();
    series.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let rest = series.split_off(MOST_SERIES - 1);
    let parts = if how == Few::Average {
        rest.len() as f64
    } else {
        1.0
    };
    let points = rest[0].points.iter().enumerate().map(|(index, (hour, _))| {
        let sum: f64 = rest.iter().map(|series| series.points[index].1).sum();
        (*hour, sum / parts)
    });
    series.push(Series {
        name: format!("{} others", rest.len()),
        points: points.collect(),
    });
    series
}

fn svg(path: &Path, chart: &Chart) -> Result<PathBuf, ChartError> {
    let mut text = String::new();
    chart
        .draw(SVGBackend::with_string(&mut text, SIZE))
        .map_err(|reason| failed(path, reason))?;
    write(path, text.as_bytes())
}

fn failed(path: &Path, reason: String) -> ChartError {
    ChartError::Draw {
        path: path.display().to_string(),
        reason,
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<PathBuf, ChartError> {
    std::fs::write(path, bytes).map_err(|error| ChartError::Write {
        path: path.display().to_string(),
        reason: error.to_string(),
    })?;
    Ok(path.to_path_buf())
}
