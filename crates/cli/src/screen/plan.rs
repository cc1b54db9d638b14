//! Prints a plan: warnings, then for each card the verdict, a bar and its parts, then notes and advice.

use std::fmt::{self, Write};

use plimsoll_base::{Hint, Reason, one_line};
use plimsoll_planner::{CardPlan, Plan, PlannedSpeed, SpeedRange, TokenRate};
use plimsoll_report::{TERMS, written};
use plimsoll_site::{occupied, plan_bar, terms, verdict};

use super::paper::{Paper, bad, good};

/// Cells of a bar, where the paper is wide enough.
const WIDTH: usize = 64;

/// Renders the whole text, with a final line feed.
pub(crate) fn plan(plan: &Plan, paper: Paper) -> String {
    written(|out| write(plan, paper, out))
}

fn write(plan: &Plan, paper: Paper, out: &mut String) -> fmt::Result {
    let build = plan.engine.build.map_or(String::new(), |build| format!(" b{build}"));
    let own = if plan.default_context.is_some() { ", the model's own (-c sets another)" } else { "" };
    let model = one_line(&plan.model);
    writeln!(out, "{model}, {}{build}, context {}{own}", plan.engine.kind.name(), plan.context)?;
    // A verdict that is in doubt must not be read before its doubt.
    for warning in &plan.warnings {
        paper.warning(&warning.text, out)?;
    }
    for card in &plan.cards {
        write_card(card, paper, out)?;
    }
    writeln!(out)?;
    // On a board that shares its memory, the card has the host's part.
    if !plan.host.peak.is_zero() {
        paper.line(&host(plan), 2, out)?;
    }
    paper.line(&growth(plan), 2, out)?;
    paper.line(&largest(plan), 2, out)?;
    if let Some(line) = speed(&plan.speed) {
        paper.line(&line, 2, out)?;
    }
    // The verdicts on the cards stand above them.
    let is_stated = |reason: &&Reason| !matches!(reason.code, "fits" | "does_not_fit");
    for note in plan.reasons.iter().filter(is_stated) {
        paper.line(&format!("note: {}", note.text), 6, out)?;
    }
    for line in hints(&plan.hints) {
        paper.line(&line, 8, out)?;
    }
    Ok(())
}

fn write_card(card: &CardPlan, paper: Paper, out: &mut String) -> fmt::Result {
    let verdict = verdict(card);
    let coloured = if card.fits { good(&verdict) } else { bad(&verdict) };
    writeln!(out, "\n{}: {coloured}", card.id)?;
    let cells = WIDTH.min(paper.width().saturating_sub(4));
    let cells = u64::try_from(cells).unwrap_or_default();
    writeln!(out, "  {}", plan_bar(card, card.total).text(cells))?;
    let others = (Some(occupied(card)), "held by the system and other processes".to_owned());
    let own = terms(&card.terms).map(|term| (term.bytes, term.source.to_string()));
    for (style, (bytes, source)) in TERMS.iter().zip(std::iter::once(others).chain(own)) {
        // An unknown term is shown; a term of zero bytes would only be noise.
        if bytes.is_none_or(|bytes| !bytes.is_zero()) {
            let size = bytes.map_or("not known".to_owned(), |bytes| bytes.to_string());
            let line = format!("  {} {:<9}{size:>12}  {source}", style.glyph, style.name);
            paper.line(&line, 27, out)?;
        }
    }
    let CardPlan { loaded, peak, free, total, .. } = card;
    let line = format!("  loaded {loaded}, peak {peak}; {free} of {total} are free");
    paper.line(&line, 4, out)
}

fn host(plan: &Plan) -> String {
    let terms = &plan.host.terms;
    let named = [
        ("weights", &terms.weights),
        ("KV cache", &terms.kv),
        ("compute", &terms.compute),
        ("output", &terms.output),
    ];
    let parts: Vec<String> = named
        .into_iter()
        .filter_map(|(name, term)| term.bytes.map(|bytes| (name, bytes)))
        .filter(|(_, bytes)| !bytes.is_zero())
        .map(|(name, bytes)| format!("{name} {bytes}"))
        .collect();
    // The verdict of the whole, where every card has room.
    let verdict = if !plan.fits && plan.cards.iter().all(|card| card.fits) { "does not fit, " } else { "" };
    format!("host memory: {verdict}{} ({})", plan.host.peak, parts.join(", "))
}

fn growth(plan: &Plan) -> String {
    let context = format!("one more token of context: {}", plan.growth.bytes_per_token);
    // The cache is reserved at the start, the pool grows with use, so the two rates stay apart.
    if plan.growth.pool.is_zero() {
        context
    } else {
        format!("{context}; each token in use adds {pool} of pool", pool = plan.growth.pool)
    }
}

fn largest(plan: &Plan) -> String {
    let Some(tokens) = plan.largest_context else {
        return "no context fits".to_owned();
    };
    let each = match plan.streams {
        0 | 1 => String::new(),
        streams => format!(" ({} for each of {streams} requests)", tokens / streams),
    };
    let trained = match plan.trained_context {
        Some(trained) if tokens == trained => format!("{each}, the longest that the model was trained for"),
        Some(trained) if tokens > trained && tokens == plan.context => {
            return format!(
                "largest context that was tried: {tokens}, beyond the trained context of {trained} tokens"
            );
        }
        Some(trained) if tokens > trained => {
            format!("{each} (the model was trained with a context of {trained} tokens)")
        }
        _ => each,
    };
    format!("largest context that fits: {tokens}{trained}")
}

/// One line; `None` where nothing is known of an answer's speed.
fn speed(speed: &PlannedSpeed) -> Option<String> {
    let range = |of: &SpeedRange| {
        let [low, likely, high] = [of.low, of.likely, of.high].map(rounded);
        format!("{likely} ({low} to {high})")
    };
    let (start, deep) = (speed.decode.as_ref()?, speed.decode_at_depth.as_ref()?);
    let prompt = speed.prefill_at_depth.as_ref().map_or(String::new(), |prompt| {
        format!("; a prompt of {} tokens at {}", prompt.depth, range(prompt))
    });
    let (depth, source) = (deep.depth, &start.source);
    Some(format!(
        "tokens per second: {}, {} at a depth of {depth}{prompt}; {source}",
        range(start),
        range(deep)
    ))
}

/// Three digits, which is more than a prediction has.
fn rounded(rate: TokenRate) -> String {
    match rate.per_second() {
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

/// The widest column of flags; longer ones stick out, as do words where no flag does it.
const FLAGS: usize = 28;

/// Hints in columns: the flags, or words where no flag does it, then what they save and the price.
pub(super) fn hints(hints: &[Hint]) -> Vec<String> {
    let rows = hints.iter().map(|hint| {
        let what = hint.advice.flags().unwrap_or_else(|| hint.advice.to_string());
        let effect = match (hint.saves, hint.enough) {
            (Some(saves), true) => format!("saves {saves}, fits"),
            (Some(saves), false) => format!("saves {saves}"),
            (None, true) => "fits".to_owned(),
            (None, false) => String::new(),
        };
        [what, effect, hint.costs.unwrap_or_default().to_owned()]
    });
    let rows: Vec<[String; 3]> = rows.collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.filter(|&cell| cell <= FLAGS).max().unwrap_or_default()
    };
    let (flags, effects) = (width(0), width(1));
    let line = |[what, effect, costs]: &[String; 3]| {
        let line = format!("hint: {what:<flags$}  {effect:<effects$}  {costs}");
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
