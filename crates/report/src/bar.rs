//! Draws a card's planned memory as a bar: its parts in order of allocation, up to the card's limit and
//! beyond.
//!
//! Each term is marked by letter and hatch, or by a character in text, in addition to colour.

use std::fmt::{self, Write};

use plimsoll_base::Bytes;

use crate::{escaped, shortened, wrapped, written};

// DECISION: a bar is placed in percent of its room and in pixels of its height, so that its texts keep their
// size on a phone, where a picture that is scaled as a whole would have letters of 5 pixels.
/// Width of a bar, in percent of its room.
pub const BAR_WIDTH: f64 = 100.0;
/// Height of a bar with its load line and label, in pixels.
pub const BAR_HEIGHT: u64 = 72;
/// Width of a bar in a document, and the margin around it.
const HULL: u64 = 960;
const MARGIN: u64 = 24;
/// Height of one card in a document, with its legend.
const ROW: u64 = 126;
/// Height of a line of text, and characters that fit into one.
const LINE: u64 = 20;
const LINE_WIDTH: usize = 125;
const TITLE_WIDTH: usize = 95;
/// Distance of two entries of a legend: six of them fill a bar, and `W weights 143771 MiB` fits into one.
const LEGEND_COLUMN: u64 = 160;
/// Minimum width of a segment that shows its letter, in percent.
pub const LETTER_ROOM: f64 = 3.0;

/// Name and appearance of a memory term: letter, colour class, character and hatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermStyle {
    pub name: &'static str,
    pub letter: char,
    pub class: &'static str,
    pub glyph: char,
    /// SVG path of its hatch.
    hatch: &'static str,
}

/// The terms of a card in order of allocation; the first is memory that other processes hold.
pub const TERMS: [TermStyle; 6] = [
    term("others", 'O', "others", '#', "M0 0h8"),
    term("weights", 'W', "weights", '█', ""),
    term("KV cache", 'K', "kv", '▓', "M0 8L8 0"),
    term("compute", 'C', "compute", '▒', "M0 0L8 8"),
    term("driver", 'X', "context", '╳', "M0 8L8 0M0 0L8 8"),
    term("pool", 'P', "pool", '░', "M4 0v8"),
];

const fn term(
    name: &'static str,
    letter: char,
    class: &'static str,
    glyph: char,
    hatch: &'static str,
) -> TermStyle {
    TermStyle { name, letter, class, glyph, hatch }
}

/// One memory term with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub style: TermStyle,
    pub bytes: Bytes,
}

/// Memory bar of one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Name for screen readers.
    pub label: String,
    pub segments: Vec<Segment>,
    /// Size of the card, which is the position of the load line.
    pub total: Bytes,
    /// Size that the whole width stands for; at least `total`.
    pub full: Bytes,
}

/// Returns a fraction for pixels; sizes of memory stay integers.
pub fn ratio(part: Bytes, whole: Bytes) -> f64 {
    // 2^20 steps are finer than a pixel, and `u32` converts to `f64` without loss, which `u64` does not.
    let parts = part.scaled(1 << 20, whole.get().max(1)).get();
    f64::from(u32::try_from(parts).unwrap_or(u32::MAX)) / f64::from(1_u32 << 20)
}

impl Bar {
    /// Draws the bar in `width` cells and the load line between two of them. The scale is that of the larger
    /// of card and need, so that nothing is cut.
    pub fn text(&self, width: u64) -> String {
        let end: Bytes = self.segments.iter().map(|segment| segment.bytes).sum();
        let full = self.total.max(end);
        // An overflow has a cell of its own, however small it is.
        let line = if end > self.total {
            self.total.scaled(width, full.get()).get().min(width.saturating_sub(1))
        } else {
            width
        };
        let (mut text, mut end, mut drawn) = (String::new(), Bytes::ZERO, 0);
        for segment in &self.segments {
            end += segment.bytes;
            while drawn < cells(end, full, width) {
                if drawn == line {
                    text.push('┃');
                }
                text.push(segment.style.glyph);
                drawn += 1;
            }
        }
        let free = usize::try_from(width.saturating_sub(drawn)).unwrap_or_default();
        text.extend(std::iter::repeat_n('·', free));
        if line == width {
            text.push('┃');
        }
        text
    }

    /// Returns the bar as an SVG element with attributes for its place and size, e.g. `id="bar-0"`.
    pub fn svg(&self, attributes: &str) -> String {
        written(|out| self.write(attributes, out))
    }

    fn write(&self, attributes: &str, out: &mut String) -> fmt::Result {
        let line = ratio(self.total, self.full) * BAR_WIDTH;
        writeln!(
            out,
            r#"<svg {attributes} overflow="visible" role="img" aria-label="{} by terms"><rect class="panel" y="8" width="{line:.3}%" height="40"/>"#,
            escaped(&self.label)
        )?;
        let mut end = Bytes::ZERO;
        for (Segment { style, bytes }, at) in self.segments.iter().zip(0..) {
            let from = ratio(end, self.full) * BAR_WIDTH;
            end += *bytes;
            // The difference of two ends, so that rounding leaves no gap between neighbours.
            let wide = ratio(end, self.full) * BAR_WIDTH - from;
            let middle = from + wide / 2.0;
            // Hidden and not left out: a script that resizes the segments needs every letter in its place.
            let hidden = if wide < LETTER_ROOM { r#" visibility="hidden""# } else { "" };
            let TermStyle { name, letter, class, .. } = style;
            writeln!(
                out,
                r#"<rect data-term="{at}" class="{class}" x="{from:.3}%" y="8" width="{wide:.3}%" height="40"><title>{name} {bytes}</title></rect><text data-letter="{at}" class="letter" x="{middle:.3}%" y="33"{hidden}>{letter}</text>"#
            )?;
        }
        writeln!(out, r#"<line class="edge" x1="{line:.3}%" x2="{line:.3}%" y1="0" y2="56"/>"#)?;
        // The label stays inside of the picture, wherever the line is.
        let anchor = if line > BAR_WIDTH / 2.0 { "end" } else { "start" };
        writeln!(
            out,
            r#"<text class="ink" x="{line:.3}%" y="69" font-size="13" text-anchor="{anchor}">load line: card {}</text></svg>"#,
            self.total
        )
    }
}

/// Returns the cell in which `bytes` end, rounded up: an overflow is visible however small it is.
fn cells(bytes: Bytes, total: Bytes, width: u64) -> u64 {
    let whole = bytes.scaled(width, total.get()).get();
    whole + u64::from(bytes > total.scaled(whole, width))
}

/// Returns the hatches of all terms, to be placed once in a page or document.
pub fn patterns() -> String {
    let pattern = |style: TermStyle| {
        format!(
            r##"<pattern id="p-{}" width="8" height="8" patternUnits="userSpaceOnUse"><path d="{}" stroke="#ffffff" stroke-opacity=".45" fill="none"/></pattern>"##,
            style.class, style.hatch
        )
    };
    format!(
        r#"<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>{}</defs></svg>"#,
        TERMS.map(pattern).concat()
    )
}

/// Draws bars with a title and a legend each as a standalone SVG document; the warnings stand above them.
pub fn bars(title: &str, warnings: &[String], bars: &[(String, Bar)]) -> String {
    let mut body = String::new();
    let mut top = 52;
    let lines = warnings.iter().flat_map(|warning| wrapped(&format!("warning: {warning}"), LINE_WIDTH, 0));
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(
            body,
            r#"<text class="ink" x="{MARGIN}" y="{top}" font-weight="600">{}</text>"#,
            escaped(&line)
        );
        top += LINE;
    }
    for (heading, bar) in bars {
        let lines = wrapped(heading, LINE_WIDTH, 0);
        for line in &lines {
            let (baseline, line) = (top + 16, escaped(&shortened(line, LINE_WIDTH)));
            // Writing to a string cannot fail.
            let _ = writeln!(body, r#"<text class="ink" x="{MARGIN}" y="{baseline}">{line}</text>"#);
            top += LINE;
        }
        let place = top + 6;
        body += &bar.svg(&format!(r#"x="{MARGIN}" y="{place}" width="{HULL}" height="{BAR_HEIGHT}""#));
        body += &legend(bar, place + 76);
        top += ROW;
    }
    crate::document(HULL + 2 * MARGIN, top + 4, &shortened(title, TITLE_WIDTH), &body)
}

fn legend(bar: &Bar, y: u64) -> String {
    let mut out = String::new();
    let mut x = MARGIN;
    for Segment { style, bytes } in bar.segments.iter().filter(|segment| !segment.bytes.is_zero()) {
        let text = format!("{} {} {bytes}", style.letter, style.name);
        let (label, baseline) = (x + 16, y + 10);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            r#"<rect class="{}" x="{x}" y="{y}" width="11" height="11"/><text class="ink" x="{label}" y="{baseline}" font-size="11">{}</text>"#,
            style.class,
            escaped(&text)
        );
        x += LEGEND_COLUMN;
    }
    out
}
