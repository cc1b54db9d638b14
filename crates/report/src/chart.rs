//! Draws series over a common axis, as SVG.
//!
//! Series differ by name and shape in addition to colour.

mod course;
mod scale;
mod svg;

pub use self::course::{Bucket, TrendCourse};
pub use self::scale::{RoundSteps, round_ticks};
use self::scale::{round_scale, y_range};

/// Left edge of the plot, in pixels: room for the labels of the scale.
pub const PLOT_LEFT: u64 = 124;
/// Width of the plot, in pixels.
pub const PLOT_WIDTH: u64 = 620;
/// Maximum number of lines in one chart; more could not be distinguished.
pub const MOST_LINES: usize = 8;

// DECISION: the vertical scale starts at zero, or at the lowest value where the course is nearly flat,
// because a soak test looks for growth of 2 MiB on 140 GiB. The axis is then drawn broken.
/// One chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    pub title: String,
    /// Height of the plot in pixels.
    pub height: u64,
    /// Lowest and highest value of each axis.
    pub x: (u64, u64),
    pub y: (u64, u64),
    pub x_ticks: Vec<(u64, String)>,
    pub y_ticks: Vec<(u64, String)>,
    pub series: Vec<ChartSeries>,
    /// Horizontal limits with their labels: a budget, a load line.
    pub limits: Vec<(u64, String)>,
    pub marks: Vec<Mark>,
    pub key: Vec<KeyRow>,
}

/// A series of points, in ascending order of x.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartSeries {
    pub name: String,
    /// Class of its colour in the style sheet.
    pub class: String,
    pub shape: ChartShape,
    pub points: Vec<(u64, u64)>,
    /// Lower edge of an area; empty for the bottom of the plot.
    pub base: Vec<(u64, u64)>,
}

/// Drawing style of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartShape {
    Line,
    /// A line with a mark at each point: circle, square or diamond by number.
    Marked(usize),
    Area,
    /// An area with the hatch of its class over it.
    Hatched,
}

/// Vertical line with a tooltip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub at: u64,
    pub text: String,
    /// Element id for a script that moves it.
    pub id: Option<String>,
}

/// One row of the legend at the right of the plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Class and shape of the swatch; none for a row of text alone.
    pub swatch: Option<(String, ChartShape)>,
    pub text: String,
}

impl Chart {
    /// Charts downsampled figures: a band from lowest to highest and a line through the last values.
    ///
    /// `until` is the least right end of the axis. Returns `None` if no course holds a value.
    pub fn of_courses(
        title: &str,
        courses: &[(String, &TrendCourse)],
        until: u64,
        ends: (&str, &str),
        text: &dyn Fn(u64) -> String,
        steps: RoundSteps,
    ) -> Option<Self> {
        let drawn = || courses.iter().map(|(_, course)| *course);
        let from = drawn().filter_map(|course| Some(course.buckets().first()?.from)).min()?;
        let last = drawn().filter_map(|course| Some(course.buckets().last()?.until)).max()?;
        // At least one unit wide: a course of a single moment has no range to scale by.
        let x = (from, last.max(until).max(from + 1));
        let lowest = drawn().filter_map(TrendCourse::lowest).min()?;
        let highest = drawn().filter_map(TrendCourse::highest).max()?;
        let (y, y_ticks) = round_scale(y_range(lowest, highest), text, steps);
        let mut chart = Self {
            title: title.to_owned(),
            height: 150,
            x,
            y,
            x_ticks: vec![(x.0, ends.0.to_owned()), (x.1, ends.1.to_owned())],
            y_ticks,
            ..Self::default()
        };
        for ((name, course), colour) in courses.iter().take(MOST_LINES).zip(0..) {
            chart.push_course(name, course, &format!("c{colour}"), text);
        }
        Some(chart)
    }

    /// Charts lines through measured points, over an axis from zero with a label at each round step.
    ///
    /// Returns `None` if no line has a point.
    pub fn of_points(
        title: &str,
        lines: &[(String, Vec<(u64, u64)>)],
        text: &dyn Fn(u64) -> String,
        steps: RoundSteps,
    ) -> Option<Self> {
        let points = || lines.iter().flat_map(|(_, points)| points);
        let last = points().map(|point| point.0).max()?.max(1);
        let (lowest, highest) = (points().map(|point| point.1).min()?, points().map(|point| point.1).max()?);
        let (y, y_ticks) = round_scale(y_range(lowest, highest), text, steps);
        // Depths of prompts are powers of two where they are long.
        let across = if last >= 1024 { RoundSteps::Binary } else { RoundSteps::Decimal };
        let x_ticks = round_ticks(0, last, across).into_iter().map(|at| (at, at.to_string())).collect();
        let mut chart = Self {
            title: title.to_owned(),
            height: 150,
            x: (0, last),
            y,
            x_ticks,
            y_ticks,
            ..Self::default()
        };
        for ((name, points), number) in lines.iter().take(MOST_LINES).zip(0..) {
            let (class, shape) = (format!("line c{number}"), ChartShape::Marked(number));
            let end = points.last().map_or_else(String::new, |last| format!(": {}", text(last.1)));
            chart.key.push(KeyRow { swatch: Some((class.clone(), shape)), text: format!("{name}{end}") });
            let points = points.clone();
            chart.series.push(ChartSeries { name: name.clone(), class, shape, points, base: Vec::new() });
        }
        Some(chart)
    }

    fn push_course(&mut self, name: &str, course: &TrendCourse, class: &str, text: &dyn Fn(u64) -> String) {
        let buckets = course.buckets();
        let Some(last) = buckets.last() else { return };
        let stepped = |of: fn(&Bucket) -> u64| {
            // Both ends of a bucket, so that the band is as wide as the time it stands for.
            let ends = |bucket| [(bucket, true), (bucket, false)];
            let points = buckets
                .iter()
                .flat_map(ends)
                .map(|(bucket, is_start)| (if is_start { bucket.from } else { bucket.until }, of(bucket)));
            points.collect::<Vec<_>>()
        };
        self.series.push(ChartSeries {
            name: name.to_owned(),
            class: format!("band {class}"),
            shape: ChartShape::Area,
            points: stepped(|bucket| bucket.highest),
            base: stepped(|bucket| bucket.lowest),
        });
        // A recording stores changes only, so the last value holds to the right end of the axis.
        let mut line = steps(buckets.iter().map(|bucket| (bucket.from, bucket.last)));
        line.push((self.x.1, last.last));
        let class = format!("line {class}");
        self.key.push(KeyRow {
            swatch: Some((class.clone(), ChartShape::Line)),
            text: format!("{name}: {}", text(last.last)),
        });
        self.series.push(ChartSeries {
            name: name.to_owned(),
            class,
            shape: ChartShape::Line,
            points: line,
            base: Vec::new(),
        });
    }
}

/// Turns samples into the corners of a step line: each value holds until the next sample.
fn steps(samples: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut points: Vec<(u64, u64)> = Vec::new();
    for (x, y) in samples {
        // The old value is repeated at the new time; without it the line would slope.
        if let Some(&(_, before)) = points.last().filter(|(_, before)| *before != y) {
            points.push((x, before));
        }
        points.push((x, y));
    }
    points
}

/// Draws charts under each other as a standalone SVG document.
pub fn charts(title: &str, charts: &[Chart]) -> String {
    let (mut top, mut body) = (44, String::new());
    for chart in charts {
        // The place is an attribute of the inner `<svg>`, so a chart alone in a page carries none.
        body += &chart.svg().replacen("<svg ", &format!("<svg y=\"{top}\" "), 1);
        top += chart.outer_height();
    }
    crate::document(svg::OUTER_WIDTH, top + 8, &crate::shortened(title, 80), &body)
}
