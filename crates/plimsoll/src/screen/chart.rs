//! A figure's course as a picture: a band from the lowest to the highest of each stretch, and a line through the last.
//!
//! DECISION: every chart has its own scale from its lowest to its highest value, because 2 MiB more on 140 GiB are what is looked
//! for; both ends are labelled. Lines are told apart by their name at the right besides their colour, marks have their text as
//! a tooltip and are listed in the report too, and a viewer in dark mode gets colours of its own. No script, no network.

use std::fmt::{self, Write};

use plimsoll_base::Bytes;
use plimsoll_telemetry::trend::Course;

use super::svg::escaped;

const LEFT: u64 = 124;
const WIDTH: u64 = 620;
const HEIGHT: u64 = 150;
const RIGHT: u64 = 230;
const TOP: u64 = 34;
const BOTTOM: u64 = 30;
/// Lines in one chart; more cannot be told apart.
pub(crate) const MOST_LINES: usize = 8;

/// Colours that stay apart for those who see few of them (Okabe and Ito), on white and on black.
pub(crate) const STYLE: &str = ".panel{fill:#f6f7f8;stroke:#9aa0a6}.ink{fill:#202124}.faint{fill:#5f6368}.tick{stroke:#9aa0a6}\
.mark{stroke:#b3261e;stroke-dasharray:4 3}.line{fill:none;stroke-width:1.6}.band{stroke:none;fill-opacity:.25}\
.c0{stroke:#0072b2;fill:#0072b2}.c1{stroke:#d55e00;fill:#d55e00}.c2{stroke:#009e73;fill:#009e73}.c3{stroke:#cc79a7;fill:#cc79a7}\
.c4{stroke:#b8860b;fill:#b8860b}.c5{stroke:#56b4e9;fill:#56b4e9}.c6{stroke:#555555;fill:#555555}.c7{stroke:#7b5ea7;fill:#7b5ea7}\
@media (prefers-color-scheme:dark){.panel{fill:#202327;stroke:#7d838a}.ink{fill:#e8eaed}.faint{fill:#aab0b6}\
.c0{stroke:#6cb4ee;fill:#6cb4ee}.c1{stroke:#ff9e4a;fill:#ff9e4a}.c6{stroke:#cccccc;fill:#cccccc}.mark{stroke:#f28b82}}\
.line{fill:none!important}.band{stroke:none!important}";

/// One line of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) name: String,
    pub(crate) course: &'a Course,
}

/// A chart; where it lies across is in the unit of its courses.
pub(crate) struct Chart<'a> {
    pub(crate) title: String,
    pub(crate) lines: Vec<Line<'a>>,
    /// How far it goes at least, with the words for its beginning and its end.
    pub(crate) until: u64,
    pub(crate) ends: (String, String),
    pub(crate) marks: Vec<(u64, String)>,
    /// A value in words.
    pub(crate) text: &'a dyn Fn(u64) -> String,
}

/// Charts under each other, as a file of its own.
pub(crate) fn stacked(charts: &[String]) -> String {
    let (width, each) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
    let drawn: Vec<&String> = charts.iter().filter(|chart| !chart.is_empty()).collect();
    let height = u64::try_from(drawn.len()).unwrap_or(1).max(1) * each;
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"><style>.paper{{fill:#fff}}{STYLE}@media (prefers-color-scheme:dark){{.paper{{fill:#16181b}}}}</style><rect class="paper" width="{width}" height="{height}"/>"#
    );
    for (chart, top) in drawn
        .into_iter()
        .zip((0..).step_by(usize::try_from(each).unwrap_or(1)))
    {
        out += &chart.replacen("<svg ", &format!("<svg y=\"{top}\" "), 1);
    }
    out + "</svg>\n"
}

/// The scale of a chart.
struct Scale {
    from: u64,
    until: u64,
    lowest: u64,
    highest: u64,
}

impl Chart<'_> {
    /// The chart as an SVG element; nothing if there is nothing to draw.
    pub(crate) fn svg(&self) -> String {
        let mut out = String::new();
        if let Some(scale) = self.scale() {
            // writing to a string cannot fail
            let _ = self.write(&scale, &mut out);
        }
        out
    }

    fn scale(&self) -> Option<Scale> {
        let courses = || self.lines.iter().map(|line| line.course);
        let from = courses()
            .filter_map(|course| Some(course.buckets().first()?.from))
            .min()?;
        let until = courses()
            .filter_map(|course| Some(course.buckets().last()?.until))
            .max()?;
        Some(Scale {
            from,
            until: until.max(self.until).max(from + 1),
            lowest: courses().filter_map(Course::lowest).min()?,
            highest: courses().filter_map(Course::highest).max()?,
        })
    }

    fn write(&self, scale: &Scale, out: &mut String) -> fmt::Result {
        let (width, height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
        let title = escaped(&self.title);
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12">"#
        )?;
        writeln!(
            out,
            r#"<text class="ink" x="{LEFT}" y="20" font-size="14" font-weight="600">{title}</text>"#
        )?;
        writeln!(
            out,
            r#"<rect class="panel" x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"/>"#
        )?;
        self.write_axes(scale, out)?;
        for (line, colour) in self.lines.iter().take(MOST_LINES).zip(0..) {
            self.write_line(line, colour, scale, out)?;
        }
        for (at, text) in &self.marks {
            let (x, end, text) = (scale.x(*at), TOP + HEIGHT, escaped(text));
            writeln!(
                out,
                r#"<path class="mark" d="M{x} {TOP}V{end}"><title>{text}</title></path>"#
            )?;
        }
        writeln!(out, "</svg>")
    }

    fn write_axes(&self, scale: &Scale, out: &mut String) -> fmt::Result {
        let (x, edge) = (LEFT - 8, LEFT - 4);
        let ends = match scale.highest > scale.lowest {
            true => vec![scale.highest, scale.lowest],
            false => vec![scale.lowest],
        };
        for value in ends {
            let y = scale.y(value);
            let (baseline, text) = (y + 4, escaped(&(self.text)(value)));
            writeln!(
                out,
                r#"<path class="tick" d="M{edge} {y}H{LEFT}"/><text class="faint" x="{x}" y="{baseline}" text-anchor="end">{text}</text>"#
            )?;
        }
        let (end, baseline) = (LEFT + WIDTH, TOP + HEIGHT + 18);
        let (first, last) = (escaped(&self.ends.0), escaped(&self.ends.1));
        writeln!(
            out,
            r#"<text class="faint" x="{LEFT}" y="{baseline}">{first}</text><text class="faint" x="{end}" y="{baseline}" text-anchor="end">{last}</text>"#
        )
    }

    fn write_line(&self, line: &Line<'_>, colour: u64, scale: &Scale, out: &mut String) -> fmt::Result {
        let Some((path, band, end)) = scale.trace(line.course) else {
            return Ok(());
        };
        let name = escaped(&line.name);
        writeln!(
            out,
            r#"<path class="band c{colour}" d="{band}"/><path class="line c{colour}" d="{path}"><title>{name}</title></path>"#
        )?;
        let (x, swatch, y) = (LEFT + WIDTH + 30, LEFT + WIDTH + 10, TOP + 12 + colour * 17);
        let (middle, value) = (y - 4, escaped(&(self.text)(end)));
        writeln!(
            out,
            r#"<path class="line c{colour}" d="M{swatch} {middle}h14"/><text class="ink" x="{x}" y="{y}">{name}: {value}</text>"#
        )
    }
}

impl Scale {
    /// The line in steps, the band around it, and the last value.
    fn trace(&self, course: &Course) -> Option<(String, String, u64)> {
        let buckets = course.buckets();
        let (first, last) = (buckets.first()?, buckets.last()?);
        let mut path = format!("M{} {}", self.x(first.from), self.y(first.last));
        let (mut upper, mut lower) = (String::new(), Vec::new());
        // writing to a string cannot fail
        for bucket in buckets {
            let (from, until) = (self.x(bucket.from), self.x(bucket.until));
            let _ = write!(path, "H{from}V{}H{until}", self.y(bucket.last));
            let (high, low) = (self.y(bucket.highest), self.y(bucket.lowest));
            let lead = if upper.is_empty() { 'M' } else { 'L' };
            let _ = write!(upper, "{lead}{from} {high}H{until}");
            lower.push(format!("L{until} {low}H{from}"));
        }
        // What does not change is not written down again.
        let _ = write!(path, "H{}", self.x(self.until));
        let band = lower.into_iter().rev().fold(upper, |band, part| band + &part) + "Z";
        Some((path, band, last.last))
    }

    fn x(&self, at: u64) -> u64 {
        let along = Bytes::new(WIDTH).scaled(at.saturating_sub(self.from), self.until - self.from);
        LEFT + along.get().min(WIDTH)
    }

    fn y(&self, value: u64) -> u64 {
        let range = self.highest - self.lowest;
        let up = match range {
            0 => HEIGHT / 2,
            range => {
                Bytes::new(HEIGHT - 12)
                    .scaled(value.saturating_sub(self.lowest), range)
                    .get()
                    + 6
            }
        };
        TOP + HEIGHT - up.min(HEIGHT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart<'a>(lines: Vec<Line<'a>>, text: &'a dyn Fn(u64) -> String) -> Chart<'a> {
        Chart {
            title: "memory <host>".to_owned(),
            lines,
            until: 0,
            ends: ("0".to_owned(), "9".to_owned()),
            marks: vec![(5, "killed & gone".to_owned())],
            text,
        }
    }

    #[test]
    fn a_chart_labels_both_ends_and_names_its_lines_whatever_they_are_called() {
        let mut course = Course::default();
        for at in 0..10 {
            course.push(at, 100 + at);
        }
        let line = Line {
            name: "a<b>".to_owned(),
            course: &course,
        };
        let svg = chart(vec![line], &|value| format!("{value} B")).svg();
        for part in [
            "100 B",
            "109 B",
            "a&lt;b&gt;: 109 B",
            "memory &lt;host&gt;",
            "killed &amp; gone",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }

    #[test]
    fn nothing_is_no_picture_and_one_value_is_a_flat_line() {
        let text = |value: u64| value.to_string();
        assert_eq!(chart(Vec::new(), &text).svg(), "");
        let mut course = Course::default();
        course.push(7, u64::MAX);
        assert!(
            chart(
                vec![Line {
                    name: String::new(),
                    course: &course
                }],
                &text
            )
            .svg()
            .contains(&u64::MAX.to_string())
        );
    }
}
