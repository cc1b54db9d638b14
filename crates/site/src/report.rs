//! Renders a plan as HTML: verdict, facts, memory bars with their parts, and memory by context length.
//!
//! The parts are complete without a script. In a page of their own, a script shows another planned context.

use std::fmt::Write;

use plimsoll_base::{Bytes, Hint};
use plimsoll_planner::fit::ContextPoint;
use plimsoll_planner::{CardPlan, Plan, Terms};
use plimsoll_report::{
    BAR_HEIGHT, Chart, ChartSeries, ChartShape, KeyRow, LETTER_ROOM, Mark, PLOT_LEFT, PLOT_WIDTH, ReportPage,
    RoundSteps, TERMS, TermStyle, escaped, patterns, round_ticks,
};
use serde_json::json;

use crate::bar::{amounts, occupied, plan_bar, terms, verdict};
use crate::facts;

const SCRIPT: &str = include_str!("report.js");

/// Renders the page of a plan with its planned contexts, for a file.
pub fn report(plan: &Plan, points: &[ContextPoint]) -> String {
    let mut page = ReportPage::new(&title(plan));
    write_head(plan, &mut page);
    // The slider needs the script, so the script shows it.
    page.markup(
        "<div class=\"slide\" id=\"slide\" hidden><label for=\"context\">Context, in tokens: <output id=\"said\" \
         for=\"context\" aria-live=\"polite\"></output></label><input type=\"range\" id=\"context\" min=\"0\" \
         step=\"1\"></div>\n",
    );
    write_body(plan, points, &mut page);
    page.markup(&format!(
        "<script type=\"application/json\" id=\"points\">{}</script>\n<script>{SCRIPT}</script>\n",
        data(plan, points)
    ));
    page.finish()
}

/// Renders the same parts for a page that has a head and controls of its own.
pub fn answer(plan: &Plan, points: &[ContextPoint]) -> String {
    let mut part = ReportPage::part();
    part.markup(&format!("<h2 id=\"answer-title\">{}</h2>\n", escaped(&title(plan))));
    write_head(plan, &mut part);
    write_body(plan, points, &mut part);
    part.into_markup()
}

fn title(plan: &Plan) -> String {
    format!("{}, context {}", plan.model, plan.context)
}

/// What is read first: the doubts, the verdict and the figures of the whole.
fn write_head(plan: &Plan, page: &mut ReportPage) {
    page.markup(&patterns());
    let warnings: Vec<String> = plan.warnings.iter().map(|warning| warning.text.clone()).collect();
    page.list("Warnings", &warnings);
    page.verdict(&facts::verdict(plan), !plan.fits);
    let facts = facts::of(plan).into_iter().map(|(name, text)| {
        let text = escaped(&text);
        format!("<div><dt>{name}</dt><dd>{text}</dd></div>")
    });
    page.markup(&format!("<dl class=\"facts\">{}</dl>\n", facts.collect::<String>()));
}

fn write_body(plan: &Plan, points: &[ContextPoint], page: &mut ReportPage) {
    for (index, card) in plan.cards.iter().enumerate() {
        section(plan, points, index, card, page);
    }
    page.markup(&hints(&plan.hints));
    page.markup(&table(plan, points));
    let texts: Vec<String> = plan.reasons.iter().map(|reason| reason.text.clone()).collect();
    page.list("Notes", &texts);
}

/// Advice, each with the flags that carry it out, which a script may offer to apply.
fn hints(hints: &[Hint]) -> String {
    if hints.is_empty() {
        return String::new();
    }
    let item = |hint: &Hint| {
        let flags = hint.advice.flags().map(|flags| {
            let flags = escaped(&flags);
            format!("<code data-flags=\"{flags}\">{flags}</code> ")
        });
        let mut words = hint.advice.to_string();
        if let Some(saves) = hint.saves {
            words += &format!("; saves {saves}");
        }
        if hint.enough {
            words += "; then it fits";
        }
        if let Some(costs) = hint.costs {
            words += &format!("; price: {costs}");
        }
        format!("<li>{}{}</li>\n", flags.unwrap_or_default(), escaped(&words))
    };
    let items: String = hints.iter().map(item).collect();
    format!("<h2>Advice</h2>\n<ul class=\"hints\">{items}</ul>\n")
}

fn peak(terms: &Terms) -> Bytes {
    amounts(terms).into_iter().sum()
}

fn largest(points: &[ContextPoint]) -> u64 {
    points.last().map_or(1, |point| point.context)
}

fn section(plan: &Plan, points: &[ContextPoint], index: usize, card: &CardPlan, page: &mut ReportPage) {
    let class = if card.fits { "yes" } else { "no" };
    page.heading(card.id.as_str());
    page.markup(&format!(
        "<p>{} of {} are free; <span id=\"words-{index}\" class=\"{class}\">{}, peak {}</span></p>\n",
        card.free,
        card.total,
        verdict(card),
        card.peak
    ));
    let place = format!("id=\"bar-{index}\" class=\"bar\" width=\"100%\" height=\"{BAR_HEIGHT}\"");
    page.markup(&plan_bar(card, full(points, index, card)).svg(&place));
    page.markup(&parts(card));
    // A picture that is wider than a phone can be moved, by the keyboard too.
    page.markup(&format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"{}: memory over context\">{}</div>\n",
        escaped(card.id.as_str()),
        chart(plan, points, index, card).svg()
    ));
}

/// The parts of a card's memory, each with its source. An unknown part is shown; one of no bytes is not.
fn parts(card: &CardPlan) -> String {
    let others = (Some(occupied(card)), "the system and other processes".to_owned());
    let own = terms(&card.terms).map(|term| (term.bytes, term.source.to_string()));
    let row = |(style, (bytes, source)): (TermStyle, (Option<Bytes>, String))| {
        if bytes.is_some_and(|bytes| bytes.is_zero()) {
            return String::new();
        }
        let size = bytes.map_or_else(|| "not known".to_owned(), |bytes| bytes.to_string());
        format!(
            "<tr><th scope=\"row\"><svg width=\"14\" height=\"14\" aria-hidden=\"true\"><rect width=\"14\" height=\"14\" \
             class=\"{0}\"/><rect width=\"14\" height=\"14\" fill=\"url(#p-{0})\"/></svg> {1} {2}</th><td \
             class=\"number\">{size}</td><td class=\"source\">{3}</td></tr>\n",
            style.class,
            style.letter,
            style.name,
            escaped(&source)
        )
    };
    let rows: String = TERMS.into_iter().zip(std::iter::once(others).chain(own)).map(row).collect();
    format!(
        "<table class=\"parts\"><thead><tr><th>part</th><th class=\"number\">memory</th><th>source of the number</th>\
         </tr></thead><tbody>\n{rows}</tbody></table>\n"
    )
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
        "<details><summary>Every planned context</summary><div class=\"wide\" tabindex=\"0\" role=\"group\" \
        aria-label=\"planned contexts\"><table><thead><tr><th>context</th>"
            .to_owned();
    // Writing to a string cannot fail.
    for card in &plan.cards {
        let id = escaped(card.id.as_str());
        let _ = write!(out, "<th>{id}: peak</th><th>to spare</th>");
    }
    out += "<th>verdict</th></tr></thead><tbody>\n";
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
    out + "</tbody></table></div></details>\n"
}

/// Returns the table for the script, as JSON without `<`, which could end the element.
fn data(plan: &Plan, points: &[ContextPoint]) -> String {
    let cards = plan.cards.iter().enumerate().map(|(index, card)| {
        json!({
            "held": occupied(card),
            "free": card.free,
            "full": full(points, index, card),
            "letter": LETTER_ROOM,
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
