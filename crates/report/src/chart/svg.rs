//! Writes the charts of reports as SVG.

use std::fmt::{self, Write};

use plimsoll_base::Bytes;

use super::{Chart, ChartSeries, ChartShape, KeyRow, PLOT_LEFT as LEFT, PLOT_WIDTH as WIDTH};
use crate::{escaped, shortened, wrapped, written};

/// Room for the key, at about 7 pixels a letter.
const RIGHT: u64 = 230;
const TOP: u64 = 34;
const BOTTOM: u64 = 30;
pub(super) const OUTER_WIDTH: u64 = LEFT + WIDTH + RIGHT;
/// Distance of two lines of the key, and the characters that fit into one.
const KEY_LINE: u64 = 17;
const KEY_WIDTH: usize = 27;
/// Characters that fit into the title.
const TITLE_WIDTH: usize = 80;
/// Marks at points, around a point.
const MARKS: [&str; 3] =
    ["m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z", "m-3-3h6v6h-6z", "m0-4.5l4.5 4.5-4.5 4.5-4.5-4.5z"];

impl Chart {
    /// Returns the chart as an SVG element, for a page or a document.
    pub fn svg(&self) -> String {
        written(|out| self.write(out))
    }

    pub(super) fn outer_height(&self) -> u64 {
        // A long key makes the picture higher.
        let lines: u64 =
            self.key.iter().map(|row| u64::try_from(key_lines(row).len()).unwrap_or_default()).sum();
        TOP + (self.height + BOTTOM).max(12 + lines * KEY_LINE)
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let (height, title) = (self.outer_height(), escaped(&shortened(&self.title, TITLE_WIDTH)));
        writeln!(
            out,
            r#"<svg role="img" aria-label="{title}" viewBox="0 0 {OUTER_WIDTH} {height}" width="{OUTER_WIDTH}" height="{height}" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12">"#
        )?;
        writeln!(
            out,
            r#"<text class="ink" x="{LEFT}" y="22" font-size="14" font-weight="600">{title}</text>"#
        )?;
        writeln!(
            out,
            r#"<rect class="panel" x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{}"/>"#,
            self.height
        )?;
        // SVG paints in document order: the areas come first, so that limits and marks lie on top.
        for series in &self.series {
            self.write_series(series, out)?;
        }
        self.write_ticks(out)?;
        self.write_limits(out)?;
        let bottom = TOP + self.height;
        for mark in &self.marks {
            let (x, text) = (self.x_at(mark.at), escaped(&mark.text));
            let id = mark.id.as_ref().map_or_else(String::new, |id| format!(r#"id="{}" "#, escaped(id)));
            writeln!(
                out,
                r#"<line {id}class="mark" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"><title>{text}</title></line>"#
            )?;
        }
        let mut baseline = TOP + 12;
        for row in &self.key {
            baseline = write_key(row, baseline, out)?;
        }
        writeln!(out, "</svg>")
    }

    fn write_series(&self, series: &ChartSeries, out: &mut String) -> fmt::Result {
        let (class, name) = (escaped(&series.class), escaped(&series.name));
        let mut path = self.path(series.points.iter(), 'M');
        if matches!(series.shape, ChartShape::Area | ChartShape::Hatched) {
            let (first, last) = match (series.points.first(), series.points.last()) {
                (Some(first), Some(last)) => (self.x_at(first.0), self.x_at(last.0)),
                _ => return Ok(()),
            };
            if series.base.is_empty() {
                write!(path, "L{last} {0}H{first}", TOP + self.height)?;
            } else {
                // Backwards, so that upper and lower edge enclose one area.
                path += &self.path(series.base.iter().rev(), 'L');
            }
            path.push('Z');
        }
        writeln!(out, r#"<path class="{class}" d="{path}"><title>{name}</title></path>"#)?;
        if let ChartShape::Marked(number) = series.shape {
            let at = series.points.iter().map(|&(x, y)| (self.x_at(x), self.y_at(y)));
            write_marks(&class, number, at, out)?;
        }
        // An element has a single fill, so the hatch is a second path over the coloured one.
        if series.shape == ChartShape::Hatched {
            writeln!(out, r##"<path d="{path}" fill="url(#p-{class})"/>"##)?;
        }
        Ok(())
    }

    /// Writes points as path commands; points that share a pixel row or column become one stroke.
    fn path<'a>(&self, points: impl Iterator<Item = &'a (u64, u64)>, lead: char) -> String {
        let mut path = String::new();
        let mut before: Option<(u64, u64)> = None;
        for &(x, y) in points {
            let here = (self.x_at(x), self.y_at(y));
            // A long soak has more samples than the plot has pixels; equal points would only make the file
            // larger.
            let _ = match before {
                None => write!(path, "{lead}{} {}", here.0, here.1),
                Some(last) if last == here => Ok(()),
                Some(last) if last.1 == here.1 => write!(path, "H{}", here.0),
                Some(last) if last.0 == here.0 => write!(path, "V{}", here.1),
                Some(_) => write!(path, "L{} {}", here.0, here.1),
            };
            before = Some(here);
        }
        path
    }

    fn write_ticks(&self, out: &mut String) -> fmt::Result {
        let (x, edge, end) = (LEFT - 8, LEFT - 4, LEFT + WIDTH);
        for (value, text) in &self.y_ticks {
            let (y, text) = (self.y_at(*value), escaped(text));
            let baseline = y + 4;
            writeln!(
                out,
                r#"<path class="tick" d="M{edge} {y}H{LEFT}"/><path class="grid" d="M{LEFT} {y}H{end}"/><text class="faint" x="{x}" y="{baseline}" text-anchor="end">{text}</text>"#
            )?;
        }
        if self.y.0 > 0 {
            // The scale leaves out what is below its lowest value.
            let foot = TOP + self.height - 2;
            writeln!(
                out,
                r#"<path class="break" d="M{} {foot}l4-4 4 4 4-4M{} {}l4-4 4 4 4-4"/>"#,
                LEFT - 6,
                LEFT - 6,
                foot - 4
            )?;
        }
        let baseline = TOP + self.height + 18;
        for (value, text) in &self.x_ticks {
            let (x, text) = (self.x_at(*value), escaped(text));
            // The outer labels stay within the plot, so that the scale and the key are not overprinted.
            let anchor = match x - LEFT {
                ..30 => "start",
                along if along > WIDTH - 30 => "end",
                _ => "middle",
            };
            writeln!(
                out,
                r#"<text class="faint" x="{x}" y="{baseline}" text-anchor="{anchor}">{text}</text>"#
            )?;
        }
        Ok(())
    }

    fn write_limits(&self, out: &mut String) -> fmt::Result {
        let end = LEFT + WIDTH;
        // A limit above the scale would stand outside the plot, over the title.
        for (value, text) in self.limits.iter().filter(|(value, _)| *value <= self.y.1) {
            let (y, text) = (self.y_at(*value), escaped(text));
            let (x, baseline) = (LEFT + 6, y + 13);
            writeln!(
                out,
                r#"<path class="limit" d="M{LEFT} {y}H{end}"/><text class="ink halo" x="{x}" y="{baseline}" font-size="11">{text}</text>"#
            )?;
        }
        Ok(())
    }

    fn x_at(&self, value: u64) -> u64 {
        let range = self.x.1.saturating_sub(self.x.0).max(1);
        let along = Bytes::new(WIDTH).scaled(value.saturating_sub(self.x.0), range);
        LEFT + along.get().min(WIDTH)
    }

    fn y_at(&self, value: u64) -> u64 {
        // A scale that starts at zero stands on the frame; any other keeps its line off it.
        let margin = if self.y.0 == 0 { 0 } else { 14 };
        let up = match self.y.1.saturating_sub(self.y.0) {
            // No range: the line lies in the middle, clear of both labels.
            0 => self.height / 2,
            range => {
                let room = Bytes::new(self.height - 2 * margin);
                room.scaled(value.saturating_sub(self.y.0), range).get() + margin
            }
        };
        TOP + self.height - up.min(self.height)
    }
}

/// Draws the marks of a series as one path.
fn write_marks(
    class: &str,
    number: usize,
    points: impl Iterator<Item = (u64, u64)>,
    out: &mut String,
) -> fmt::Result {
    let mark = MARKS[number % MARKS.len()];
    let path: String = points.map(|(x, y)| format!("M{x} {y}{mark}")).collect();
    writeln!(out, r#"<path class="{}" d="{path}"/>"#, class.replace("line", "dot"))
}

/// A row's text, broken so that it stays inside of the picture.
fn key_lines(row: &KeyRow) -> Vec<String> {
    wrapped(&row.text, KEY_WIDTH, 0).iter().map(|line| shortened(line, KEY_WIDTH)).collect()
}

/// Draws a row and returns the baseline of the next one.
fn write_key(row: &KeyRow, baseline: u64, out: &mut String) -> Result<u64, fmt::Error> {
    let (swatch, x) = (LEFT + WIDTH + 10, LEFT + WIDTH + 32);
    match &row.swatch {
        Some((class, ChartShape::Line | ChartShape::Marked(_))) => {
            let (class, middle) = (escaped(class), baseline - 4);
            write!(out, r#"<path class="{class}" d="M{swatch} {middle}h16"/>"#)?;
            if let Some((_, ChartShape::Marked(number))) = row.swatch {
                write_marks(&class, number, std::iter::once((swatch + 8, middle)), out)?;
            }
        }
        Some((class, _)) => {
            let (class, top) = (escaped(class), baseline - 10);
            write!(out, r#"<rect class="{class}" x="{swatch}" y="{top}" width="16" height="11"/>"#)?;
        }
        None => {}
    }
    let mut y = baseline;
    for line in key_lines(row) {
        writeln!(out, r#"<text class="ink" x="{x}" y="{y}">{}</text>"#, escaped(&line))?;
        y += KEY_LINE;
    }
    Ok(y)
}
