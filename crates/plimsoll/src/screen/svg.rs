//! A plan as a picture: one hull for each card, loaded with its terms up to the load line.

use std::fmt::{self, Write};

use plimsoll_base::Bytes;
use plimsoll_planner::{CardPlan, Plan};

use super::bar::stretches;

/// Pixels from a card's first byte to its last.
const HULL: u64 = 640;
/// Room for what does not fit, beyond the line.
const BEYOND: u64 = 200;
const MARGIN: u64 = 24;
const HEIGHT: u64 = 34;
/// Height of one card with its title and legend.
const ROW: u64 = 118;

pub(crate) fn svg(plan: &Plan) -> String {
    let mut text = String::new();
    // writing to a string cannot fail
    let _ = write(plan, &mut text);
    text
}

fn write(plan: &Plan, out: &mut String) -> fmt::Result {
    let rows = u64::try_from(plan.cards.len()).unwrap_or(u64::MAX);
    let height = rows.saturating_mul(ROW) + 64;
    let width = HULL + BEYOND + 2 * MARGIN;
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, sans-serif" font-size="13">"#
    )?;
    writeln!(
        out,
        r##"<rect width="{width}" height="{height}" fill="#ffffff"/>"##
    )?;
    let title = format!("{}, context {}", plan.model, plan.context);
    writeln!(
        out,
        r##"<text x="{MARGIN}" y="32" font-size="16" font-weight="600" fill="#202124">{}</text>"##,
        escaped(&title)
    )?;
    for (card, row) in plan.cards.iter().zip(0_u64..) {
        write_card(card, 52 + row * ROW, out)?;
    }
    writeln!(out, "</svg>")
}

fn write_card(card: &CardPlan, top: u64, out: &mut String) -> fmt::Result {
    let verdict = if card.fits { "fits" } else { "does not fit" };
    let title = format!(
        "{}: {} of {} free, peak {}, {verdict}",
        card.id, card.free, card.total, card.peak
    );
    let (baseline, bar) = (top + 16, top + 26);
    writeln!(
        out,
        r##"<text x="{MARGIN}" y="{baseline}" fill="#202124">{}</text>"##,
        escaped(&title)
    )?;
    writeln!(
        out,
        r##"<rect x="{MARGIN}" y="{bar}" width="{HULL}" height="{HEIGHT}" fill="#f1f3f4" stroke="#5f6368"/>"##
    )?;
    let mut end = Bytes::ZERO;
    let mut legend = MARGIN;
    for stretch in stretches(card) {
        let bytes = stretch.bytes.unwrap_or_default();
        let from = pixels(end, card.total);
        end += bytes;
        let until = pixels(end, card.total);
        if bytes.is_zero() {
            continue;
        }
        let (x, width) = (MARGIN + from, until - from);
        writeln!(
            out,
            r##"<rect x="{x}" y="{bar}" width="{width}" height="{HEIGHT}" fill="{}"><title>{} {bytes}</title></rect>"##,
            stretch.colour, stretch.name
        )?;
        legend = write_legend(
            stretch.colour,
            &format!("{} {bytes}", stretch.name),
            legend,
            bar + HEIGHT + 12,
            out,
        )?;
    }
    let line = MARGIN + HULL;
    let (above, below) = (bar - 6, bar + HEIGHT + 6);
    writeln!(
        out,
        r##"<line x1="{line}" y1="{above}" x2="{line}" y2="{below}" stroke="#b3261e" stroke-width="3"><title>load line</title></line>"##
    )
}

/// One entry of the legend; gives where the next begins.
fn write_legend(colour: &str, text: &str, x: u64, y: u64, out: &mut String) -> Result<u64, fmt::Error> {
    let (label, baseline) = (x + 16, y + 10);
    writeln!(
        out,
        r##"<rect x="{x}" y="{y}" width="11" height="11" fill="{colour}"/>"##
    )?;
    writeln!(
        out,
        r##"<text x="{label}" y="{baseline}" font-size="12" fill="#3c4043">{}</text>"##,
        escaped(text)
    )?;
    let letters = u64::try_from(text.chars().count()).unwrap_or_default();
    Ok(label + letters * 7 + 14)
}

fn pixels(bytes: Bytes, total: Bytes) -> u64 {
    bytes.scaled(HULL, total.get()).get().min(HULL + BEYOND)
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
