//! A plan as one page: bars, growth against context, and a slider over contexts that were all planned.
//!
//! DECISION: the page is whole without a script and without a network: bars, charts and the table of every point are
//! in it as they are. The script only moves what is there to another row of the same table; it computes no memory.
//! Terms are told apart by letter and by pattern as well as by colour.

mod chart;

use std::fmt::{self, Write};

use plimsoll_base::Bytes;
use plimsoll_planner::fit::Point;
use plimsoll_planner::{CardPlan, Plan, Terms};
use serde_json::json;

use self::chart::{Chart, LEFT, WIDTH};
use super::svg::escaped;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");

/// The terms of a bar, in the order in which they are taken: what they are called, their letter and their class.
const TERMS: [(&str, &str, &str); 6] = [
    ("others", "O", "others"),
    ("weights", "W", "weights"),
    ("KV cache", "K", "kv"),
    ("compute", "C", "compute"),
    ("context", "X", "context"),
    ("pool", "P", "pool"),
];

/// Width of a bar.
const BAR: f64 = 1000.0;

/// The page.
pub(crate) fn html(plan: &Plan, points: &[Point]) -> String {
    let page = Page { plan, points };
    let mut text = String::new();
    // writing to a string cannot fail
    let _ = page.write(&mut text);
    text
}

struct Page<'a> {
    plan: &'a Plan,
    points: &'a [Point],
}

/// A card's terms in the order of the bar, what others hold left out.
fn amounts(terms: &Terms) -> [Bytes; 5] {
    [
        &terms.weights,
        &terms.kv,
        &terms.compute,
        &terms.context,
        &terms.pool,
    ]
    .map(|term| term.known())
}

fn peak(terms: &Terms) -> Bytes {
    amounts(terms).into_iter().sum()
}

/// For pixels only; sizes of memory stay whole numbers.
pub(super) fn ratio(part: Bytes, whole: Bytes) -> f64 {
    let parts = part.scaled(1 << 20, whole.get().max(1)).get();
    f64::from(u32::try_from(parts).unwrap_or(u32::MAX)) / f64::from(1_u32 << 20)
}

impl Page<'_> {
    fn write(&self, out: &mut String) -> fmt::Result {
        let title = format!("{}, context {}", escaped(&self.plan.model), self.plan.context);
        writeln!(
            out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style></head>\n<body>\n{}",
            patterns()
        )?;
        self.write_head(out)?;
        writeln!(
            out,
            "<div class=\"slide\" id=\"slide\" hidden><label for=\"context\">Context, in tokens: <output id=\"said\" for=\"context\" aria-live=\"polite\"></output></label><input type=\"range\" id=\"context\" min=\"0\" step=\"1\"></div>"
        )?;
        for (index, card) in self.plan.cards.iter().enumerate() {
            self.write_card(index, card, out)?;
        }
        self.write_table(out)?;
        self.write_reasons(out)?;
        writeln!(
            out,
            "<script type=\"application/json\" id=\"points\">{}</script>\n<script>{SCRIPT}</script>\n</body></html>",
            self.data()
        )
    }

    fn write_head(&self, out: &mut String) -> fmt::Result {
        let plan = self.plan;
        let build = plan
            .engine
            .build
            .map_or(String::new(), |build| format!(" b{build}"));
        let verdict = if plan.fits {
            ("yes", "fits")
        } else {
            ("no", "does not fit")
        };
        writeln!(
            out,
            "<h1>{}</h1>\n<p class=\"faint\">{}{build}, context {}; host memory {}; one more token of context costs {}</p>\n<p class=\"{}\">{}</p>",
            escaped(&plan.model),
            plan.engine.kind,
            plan.context,
            plan.host.peak,
            plan.growth.bytes_per_token,
            verdict.0,
            verdict.1
        )?;
        let legend = TERMS.map(|(name, letter, class)| {
            format!("<li><svg viewBox=\"0 0 16 16\"><rect width=\"16\" height=\"16\" class=\"{class}\"/><rect width=\"16\" height=\"16\" fill=\"url(#p-{class})\"/></svg> {letter} {name}</li>")
        });
        writeln!(out, "<ul class=\"legend\">{}</ul>", legend.concat())
    }

    fn write_card(&self, index: usize, card: &CardPlan, out: &mut String) -> fmt::Result {
        let words = match card.fits {
            true => (
                "yes",
                format!(
                    "fits: peak {}, {} to spare",
                    card.peak,
                    Bytes::new(card.headroom.unsigned_abs())
                ),
            ),
            false => (
                "no",
                format!(
                    "does not fit: peak {}, {} too much",
                    card.peak,
                    Bytes::new(card.headroom.unsigned_abs())
                ),
            ),
        };
        writeln!(
            out,
            "<section><h2>{}</h2>\n<p>{} of {} are free; <span id=\"words-{index}\" class=\"{}\">{}</span></p>",
            escaped(card.id.as_str()),
            card.free,
            card.total,
            words.0,
            words.1
        )?;
        self.write_bar(index, card, out)?;
        Chart::new(self.points, index, card, self.plan.context).write(out)?;
        writeln!(out, "</section>")
    }

    /// What the whole width of a card's bar stands for: the card, or more where something goes beyond it.
    fn full(&self, index: usize, card: &CardPlan) -> Bytes {
        let held = card.total.saturating_sub(card.free);
        let peaks = self
            .points
            .iter()
            .filter_map(|point| point.cards.get(index))
            .map(peak);
        let most = peaks.max().unwrap_or_default().max(card.peak) + held;
        most.max(card.total)
    }

    fn write_bar(&self, index: usize, card: &CardPlan, out: &mut String) -> fmt::Result {
        let full = self.full(index, card);
        let held = card.total.saturating_sub(card.free);
        writeln!(
            out,
            "<svg id=\"bar-{index}\" viewBox=\"0 -8 {BAR} 56\" role=\"img\" aria-label=\"{} by terms\"><rect class=\"hull\" width=\"{:.1}\" height=\"40\"/>",
            escaped(card.id.as_str()),
            ratio(card.total, full) * BAR
        )?;
        let mut end = Bytes::ZERO;
        let stretches = std::iter::once(held).chain(amounts(&card.terms));
        for (at, (bytes, (name, letter, class))) in stretches.zip(TERMS).enumerate() {
            let from = ratio(end, full) * BAR;
            end += bytes;
            let wide = ratio(end, full) * BAR - from;
            let middle = from + wide / 2.0;
            let hidden = if wide < 16.0 {
                " style=\"display:none\""
            } else {
                ""
            };
            writeln!(
                out,
                "<rect data-term=\"{at}\" class=\"{class}\" x=\"{from:.1}\" width=\"{wide:.1}\" height=\"40\"><title>{name} {bytes}</title></rect><text data-letter=\"{at}\" class=\"letter\" x=\"{middle:.1}\" y=\"25\"{hidden}>{letter}</text>"
            )?;
        }
        let line = ratio(card.total, full) * BAR;
        writeln!(
            out,
            "<line class=\"limit\" x1=\"{line:.1}\" x2=\"{line:.1}\" y1=\"-8\" y2=\"48\"><title>load line</title></line></svg>"
        )
    }

    fn write_table(&self, out: &mut String) -> fmt::Result {
        write!(
            out,
            "<details open><summary>Every context that was planned</summary><table><thead><tr><th>context</th>"
        )?;
        for card in &self.plan.cards {
            let id = escaped(card.id.as_str());
            write!(out, "<th>{id}: peak</th><th>to spare</th>")?;
        }
        writeln!(out, "<th></th></tr></thead><tbody>")?;
        for (at, point) in self.points.iter().enumerate() {
            let now = if point.context == self.plan.context {
                " class=\"now\""
            } else {
                ""
            };
            write!(out, "<tr data-point=\"{at}\"{now}><td>{}</td>", point.context)?;
            let mut fits = true;
            for (card, terms) in self.plan.cards.iter().zip(&point.cards) {
                let peak = peak(terms);
                let spare = card.free.saturating_sub(peak);
                let short = peak.saturating_sub(card.free);
                fits &= short.is_zero();
                let left = if short.is_zero() {
                    spare.to_string()
                } else {
                    format!("−{short}")
                };
                write!(out, "<td>{peak}</td><td>{left}</td>")?;
            }
            let verdict = if fits {
                "<td class=\"yes\">fits</td>"
            } else {
                "<td class=\"no\">does not fit</td>"
            };
            writeln!(out, "{verdict}</tr>")?;
        }
        writeln!(out, "</tbody></table></details>")
    }

    fn write_reasons(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "<h2>Why</h2><ul>")?;
        for reason in &self.plan.reasons {
            writeln!(out, "<li>{}</li>", escaped(&reason.text))?;
        }
        writeln!(out, "</ul>")?;
        if !self.plan.hints.is_empty() {
            writeln!(out, "<h2>What would help</h2><ul>")?;
            for hint in &self.plan.hints {
                writeln!(out, "<li>{}</li>", escaped(&hint.to_string()))?;
            }
            writeln!(out, "</ul>")?;
        }
        Ok(())
    }

    /// The table for the script; `<` never stands in it as it is.
    fn data(&self) -> String {
        let cards = self.plan.cards.iter().enumerate().map(|(index, card)| {
            json!({
                "held": card.total.saturating_sub(card.free),
                "free": card.free,
                "full": self.full(index, card),
                "width": BAR,
                "left": LEFT,
                "across": WIDTH,
            })
        });
        let points = self.points.iter().map(|point| {
            let cards: Vec<_> = point.cards.iter().map(amounts).collect();
            json!({ "context": point.context, "cards": cards })
        });
        let asked = self
            .points
            .iter()
            .position(|point| point.context == self.plan.context);
        json!({
            "cards": cards.collect::<Vec<_>>(),
            "points": points.collect::<Vec<_>>(),
            "most": chart::most(self.points),
            "asked": asked.unwrap_or_default(),
        })
        .to_string()
        .replace('<', "\\u003c")
    }
}

/// Hatches over the colours, one for each term.
fn patterns() -> String {
    let strokes = [
        ("others", "M0 0h8"),
        ("weights", ""),
        ("kv", "M0 8L8 0"),
        ("compute", "M0 0L8 8"),
        ("context", "M0 8L8 0M0 0L8 8"),
        ("pool", "M4 0v8"),
    ];
    let pattern = |(class, path): (&str, &str)| {
        format!(
            "<pattern id=\"p-{class}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><path d=\"{path}\" stroke=\"#ffffff\" stroke-opacity=\".45\" fill=\"none\"/></pattern>"
        )
    };
    format!(
        "<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><defs>{}</defs></svg>",
        strokes.map(pattern).concat()
    )
}
