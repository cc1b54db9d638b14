//! Writes a plan as an HTML page: memory bars, memory by context length, and a slider for the context.
//!
//! The page is complete without its script, which only shows another planned context in the bars and charts.

use std::fmt::Write;

use plimsoll_base::Bytes;
use plimsoll_planner::fit::ContextPoint;
use plimsoll_planner::{CardPlan, Plan, Terms};
use plimsoll_report::{
    BAR_WIDTH, Chart, ChartSeries, ChartShape, KeyRow, Mark, PLOT_LEFT, PLOT_WIDTH, ReportPage, RoundSteps,
    TERMS, escaped, patterns, round_ticks,
};
use serde_json::json;

use super::bar::{amounts, bar, occupied};

const SCRIPT: &str = include_str!("script.js");

/// Renders the page of a plan with its planned contexts.
pub(crate) fn html(plan: &Plan, points: &[ContextPoint]) -> String {
    let mut page = ReportPage::new(&format!("{}, context {}", plan.model, plan.context));
    page.markup(&patterns());
    let warnings: Vec<String> = plan.warnings.iter().map(|warning| warning.text.clone()).collect();
    page.list("Warnings", &warnings);
    head(plan, &mut page);
    // The slider needs the script, so the script shows it.
    page.markup(
        "<div class=\"slide\" id=\"slide\" hidden><label for=\"context\">Context, in tokens: <output id=\"said\" \
         for=\"context\" aria-live=\"polite\"></output></label><input type=\"range\" id=\"context\" min=\"0\" \
         step=\"1\"></div>\n",
    );
    for (index, card) in plan.cards.iter().enumerate() {
        section(plan, points, index, card, &mut page);
    }
    page.markup(&table(plan, points));
    let texts: Vec<String> = plan.reasons.iter().map(|reason| reason.text.clone()).collect();
    page.list("Reasons", &texts);
    let hints: Vec<String> = plan.hints.iter().map(ToString::to_string).collect();
    page.list("Hints", &hints);
    page.markup(&format!(
        "<script type=\"application/json\" id=\"points\">{}</script>\n<script>{SCRIPT}</script>\n",
        data(plan, points)
    ));
    page.finish()
}

fn peak(terms: &Terms) -> Bytes {
    amounts(terms).into_iter().sum()
}

fn largest(points: &[ContextPoint]) -> u64 {
    points.last().map_or(1, |point| point.context)
}

fn head(plan: &Plan, page: &mut ReportPage) {
    let build = plan.engine.build.map_or(String::new(), |build| format!(" b{build}"));
    page.faint(&format!(
        "{}{build}; the host needs {}; each further token of context costs {}",
        plan.engine.kind.name(),
        plan.host.peak,
        plan.growth.bytes_per_token
    ));
    let verdict = if plan.fits { "fits" } else { "does not fit" };
    page.verdict(verdict, !plan.fits);
    let items = TERMS.map(|style| {
        format!(
            "<li><svg viewBox=\"0 0 16 16\"><rect width=\"16\" height=\"16\" class=\"{0}\"/><rect width=\"16\" \
             height=\"16\" fill=\"url(#p-{0})\"/></svg> {1} {2}</li>",
            style.class, style.letter, style.name
        )
    });
    page.markup(&format!("<ul class=\"legend\">{}</ul>\n", items.concat()));
}

fn section(plan: &Plan, points: &[ContextPoint], index: usize, card: &CardPlan, page: &mut ReportPage) {
    let spare = Bytes::new(card.headroom.unsigned_abs());
    let (class, words) = if card.fits {
        ("yes", format!("fits: peak {}, {spare} to spare", card.peak))
    } else {
        ("no", format!("does not fit: peak {}, {spare} too much", card.peak))
    };
    page.heading(card.id.as_str());
    page.markup(&format!(
        "<p>{} of {} are free; <span id=\"words-{index}\" class=\"{class}\">{words}</span></p>\n",
        card.free, card.total
    ));
    page.markup(&bar(card, full(points, index, card)).svg(&format!("id=\"bar-{index}\"")));
    page.markup(&chart(plan, points, index, card).svg());
}

/// Returns the size that a card's bar is wide: the card, or the largest planned context where it overflows.
fn full(points: &[ContextPoint], index: usize, card: &CardPlan) -> Bytes {
    let planned = points.iter().filter_map(|point| point.cards.get(index)).map(peak);
    let most = planned.max().unwrap_or_default().max(card.peak);
    // One scale for all positions of the slider, so that a longer bar always means more memory.
    (most + occupied(card)).max(card.total)
}

/// Charts the terms as stacked areas over context, under the load line.
fn chart(plan: &Plan, points: &[ContextPoint], index: usize, card: &CardPlan) -> Chart {
    // Height of the top of term number `terms` at each context; term 0 is the memory of other processes.
    let top = |terms: usize| {
        let at = |point: &ContextPoint| {
            let own = point.cards.get(index).map(amounts).unwrap_or_default();
            let sum = occupied(card) + own.into_iter().take(terms).sum();
            (point.context, sum.get())
        };
        points.iter().map(at).collect::<Vec<_>>()
    };
    let series = TERMS.iter().enumerate().map(|(number, style)| ChartSeries {
        name: style.name.to_owned(),
        class: style.class.to_owned(),
        shape: ChartShape::Hatched,
        points: top(number),
        base: number.checked_sub(1).map(top).unwrap_or_default(),
    });
    let key = TERMS.map(|style| KeyRow {
        swatch: Some((style.class.to_owned(), ChartShape::Area)),
        text: format!("{} {}", style.letter, style.name),
    });
    let full = full(points, index, card);
    let most = largest(points);
    let tick = |part: u64| (most * part / 4, (most * part / 4).to_string());
    Chart {
        title: "memory over context".to_owned(),
        height: 200,
        x: (0, most),
        // A twentieth of headroom keeps the label of the load line inside of the plot.
        y: (0, (full + full.scaled(1, 20)).get()),
        x_ticks: (0..=4).map(tick).collect(),
        y_ticks: round_ticks(0, full.get(), RoundSteps::Binary)
            .into_iter()
            .map(|bytes| (bytes, Bytes::new(bytes).to_string()))
            .collect(),
        series: series.collect(),
        limits: vec![(card.total.get(), format!("load line {}", card.total))],
        marks: vec![Mark {
            at: plan.context,
            text: "this context".to_owned(),
            id: Some(format!("mark-{index}")),
        }],
        key: key.to_vec(),
    }
}

fn table(plan: &Plan, points: &[ContextPoint]) -> String {
    let mut out =
        "<details open><summary>Every planned context</summary><table><thead><tr><th>context</th>".to_owned();
    // Writing to a string cannot fail.
    for card in &plan.cards {
        let id = escaped(card.id.as_str());
        let _ = write!(out, "<th>{id}: peak</th><th>to spare</th>");
    }
    out += "<th></th></tr></thead><tbody>\n";
    for (at, point) in points.iter().enumerate() {
        let now = if point.context == plan.context { " class=\"now\"" } else { "" };
        let _ = write!(out, "<tr data-point=\"{at}\"{now}><td>{}</td>", point.context);
        // A context fits only if it fits on every card.
        let mut fits = true;
        for (card, terms) in plan.cards.iter().zip(&point.cards) {
            let peak = peak(terms);
            // Compared with free, not total: memory of other processes is not available to this plan.
            let short = peak.saturating_sub(card.free);
            fits &= short.is_zero();
            let left = if short.is_zero() {
                card.free.saturating_sub(peak).to_string()
            } else {
                format!("−{short}")
            };
            let _ = write!(out, "<td class=\"number\">{peak}</td><td class=\"number\">{left}</td>");
        }
        out += if fits {
            "<td class=\"yes\">fits</td></tr>\n"
        } else {
            "<td class=\"no\">does not fit</td></tr>\n"
        };
    }
    out + "</tbody></table></details>\n"
}

/// Returns the table for the script, as JSON without `<`, which could end the element.
fn data(plan: &Plan, points: &[ContextPoint]) -> String {
    let cards = plan.cards.iter().enumerate().map(|(index, card)| {
        json!({
            "held": occupied(card),
            "free": card.free,
            "full": full(points, index, card),
            "width": BAR_WIDTH,
            // The script moves the mark in the chart, and must use the geometry that drew it.
            "left": PLOT_LEFT,
            "across": PLOT_WIDTH,
        })
    });
    let planned = points.iter().map(|point| {
        let cards: Vec<_> = point.cards.iter().map(amounts).collect();
        json!({ "context": point.context, "cards": cards })
    });
    let requested = points.iter().position(|point| point.context == plan.context);
    json!({
        "cards": cards.collect::<Vec<_>>(),
        "points": planned.collect::<Vec<_>>(),
        "most": largest(points),
        "asked": requested.unwrap_or_default(),
    })
    .to_string()
    .replace('<', "\\u003c")
}
