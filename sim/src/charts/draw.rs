//! Draws a chart on any plotting backend.

use plotters::coord::Shift;
use plotters::prelude::*;

/// One line over time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    /// Points of hours since the start and the value at that time.
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Chart {
    /// Lines over the hours of the run.
    Lines {
        title: String,
        unit: String,
        series: Vec<Series>,
    },
    /// Three bars for each group: median, average and 99th percentile, in hours.
    Bars {
        title: String,
        groups: Vec<(String, [f64; 3])>,
    },
}

/// Colours that remain distinct with impaired colour vision.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0xe3, 0x77, 0xc2),
    RGBColor(0xbc, 0xbd, 0x22),
    RGBColor(0x17, 0xbe, 0xcf),
    RGBColor(0x00, 0x3f, 0x5c),
    RGBColor(0xff, 0xa6, 0x00),
    RGBColor(0x7f, 0x7f, 0x7f),
];
const BAR_NAMES: [&str; 3] = ["median", "average", "99th percentile"];
const FONT: &str = "sans-serif";

type Area<B> = DrawingArea<B, Shift>;

impl Chart {
    pub(super) fn lines(title: String, unit: String, series: Vec<Series>) -> Self {
        Self::Lines {
            title,
            unit,
            series,
        }
    }

    pub(super) fn bars(title: String, groups: Vec<(String, [f64; 3])>) -> Self {
        Self::Bars { title, groups }
    }

    /// Draws the chart.
    pub(super) fn draw<B: DrawingBackend>(&self, backend: B) -> Result<(), String> {
        let root = backend.into_drawing_area();
        let drawn = match self {
            Self::Lines {
                title,
                unit,
                series,
            } => lines(&root, title, unit, series),
            Self::Bars { title, groups } => bars(&root, title, groups),
        };
        drawn
            .and_then(|()| root.present())
            .map_err(|error| error.to_string())
    }
}

fn lines<B: DrawingBackend>(
    root: &Area<B>,
    title: &str,
    unit: &str,
    series: &[Series],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    root.fill(&WHITE)?;
    let points = || series.iter().flat_map(|series| &series.points);
    let end = points().map(|(hour, _)| *hour).fold(0.001, f64::max);
    let top = points().map(|(_, value)| *value).fold(0.001, f64::max) * 1.05;
    let mut chart = ChartBuilder::on(root)
        .caption(title, (FONT, 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc("hours")
        .y_desc(unit)
        .label_style((FONT, 14))
        .x_label_formatter(&|hours| short(*hours))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for (index, series) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(series.points.iter().copied(), style))?
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    if series.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, 13))
            .draw()?;
    }
    Ok(())
}

fn bars<B: DrawingBackend>(
    root: &Area<B>,
    title: &str,
    groups: &[(String, [f64; 3])],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    root.fill(&WHITE)?;
    let values = groups.iter().flat_map(|(_, values)| values);
    let top = values.copied().fold(0.001, f64::max) * 1.05;
    let end = groups.len().max(1) as f64;
    let mut chart = ChartBuilder::on(root)
        .caption(title, (FONT, 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    let name = |at: f64| {
        let group = groups.get(at.floor() as usize);
        // The label stands at the middle of its group only.
        let middle = (at.fract() - 0.5).abs() < 1e-6;
        group
            .filter(|_| middle)
            .map_or_else(String::new, |(name, _)| name.clone())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(WHITE)
        .y_desc("hours")
        .label_style((FONT, 14))
        .x_labels(0)
        .x_label_formatter(&|at| name(*at))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for (kind, bar_name) in BAR_NAMES.iter().enumerate() {
        let colour = COLOURS[kind];
        let bar = |(place, (_, values)): (usize, &(String, [f64; 3]))| {
            let left = place as f64 + 0.14 + 0.24 * kind as f64;
            Rectangle::new([(left, 0.0), (left + 0.22, values[kind])], colour.filled())
        };
        chart
            .draw_series(groups.iter().enumerate().map(bar))?
            .label(*bar_name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 13))
        .draw()?;
    let plot = chart.plotting_area();
    for (place, (name, _)) in groups.iter().enumerate() {
        let (x, y) = plot.map_coordinate(&(place as f64 + 0.5, 0.0));
        let middle = i32::try_from(name.chars().count()).unwrap_or(0) * 4;
        root.draw(&Text::new(name.clone(), (x - middle, y + 8), (FONT, 14)))?;
    }
    Ok(())
}

/// Formats a label with as few digits as keep labels distinct: `0`, `0.25`, `12`, `3400`.
fn short(value: f64) -> String {
    let text = if value.abs() < 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
