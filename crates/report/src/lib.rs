//! Renders tables, charts, memory bars and pages as text, SVG and HTML.
//!
//! A page or a picture is one file that loads nothing else. This crate escapes all text; other crates do not.
#![forbid(unsafe_code)]

use std::fmt;

mod bar;
mod chart;
mod page;
mod table;
mod wrap;

pub use self::bar::{
    BAR_HEIGHT, BAR_WIDTH, Bar, LETTER_ROOM, Segment, TERMS, TermStyle, bars, patterns, ratio,
};
pub use self::chart::{
    Bucket, Chart, ChartSeries, ChartShape, KeyRow, MOST_LINES, Mark, PLOT_LEFT, PLOT_WIDTH, RoundSteps,
    TrendCourse, charts, round_ticks,
};
pub use self::page::ReportPage;
pub use self::table::aligned;
pub use self::wrap::{shortened, wrapped};

/// Style of charts and bars, in pages and in standalone pictures.
const CHART_STYLE: &str = include_str!("chart.css");

/// Style of a whole page: its charts, bars, tables and texts.
pub fn page_style() -> String {
    format!("{CHART_STYLE}{}", page::STYLE)
}

/// Escapes text for element content and for attributes in double quotes.
pub fn escaped(text: &str) -> String {
    // `&` comes first, because the other replacements write it.
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Text that is written piece by piece.
pub fn written(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text);
    text
}

/// Wraps drawn elements into a standalone SVG document with a title.
fn document(width: u64, height: u64, title: &str, body: &str) -> String {
    let title = escaped(title);
    // The sizes stand twice: browsers scale by viewBox, README renderers take width and height.
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"13\">\n<style>{CHART_STYLE}</style>\n\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"ink\" x=\"24\" y=\"34\" font-size=\"16\" font-weight=\"600\">{title}</text>\n{body}</svg>\n"
    )
}
