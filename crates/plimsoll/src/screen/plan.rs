//! Text output of `plimsoll plan`: for each card a bar, the memory terms and their sources, then reasons and
//! hints.

use std::fmt::{self, Write};

use plimsoll_base::{Bytes, Reason};
use plimsoll_planner::{CardPlan, Plan};
use plimsoll_report::{TERMS, written};

use super::bar::{bar, held, terms};

/// Cells of a bar up to the card's end.
const WIDTH: u64 = 64;

/// Renders the whole text, with a final line feed.
pub(crate) fn plan(plan: &Plan) -> String {
    written(|out| write(plan, out))
}

fn write(plan: &Plan, out: &mut String) -> fmt::Result {
    let build = plan
        .engine
        .build
        .map_or(String::new(), |build| format!(" b{build}"));
    writeln!(
        out,
        "{}, {}{build}, context {}",
        plan.model, plan.engine.kind, plan.context
    )?;
    for card in &plan.cards {
        write_card(card, out)?;
    }
    write_host(plan, out)?;
    write_growth(plan, out)?;
    // The verdicts on the cards come first; caveats of the formulas would bury them.
    let (cards, caveats): (Vec<&Reason>, Vec<&Reason>) = plan
        .reasons
        .iter()
        .partition(|reason| matches!(reason.code, "fits" | "does_not_fit" | "not_used"));
    writeln!(out)?;
    for reason in cards.into_iter().chain(caveats) {
        writeln!(out, "{}", reason.text)?;
    }
    for hint in &plan.hints {
        writeln!(out, "hint: {hint}")?;
    }
    Ok(())
}

fn write_card(card: &CardPlan, out: &mut String) -> fmt::Result {
    let verdict = if card.fits { "fits" } else { "does not fit" };
    writeln!(out, "\n{}: {verdict}", card.id)?;
    writeln!(out, "  {}", bar(card, card.total).text(WIDTH))?;
    let others = (Some(held(card)), "held by other processes".to_owned());
    let own = terms(&card.terms).map(|term| (term.bytes, term.source.to_string()));
    for (style, (bytes, source)) in TERMS.iter().zip(std::iter::once(others).chain(own)) {
        // An unknown term is shown; a term of zero bytes would only be noise.
        if bytes.is_none_or(|bytes| !bytes.is_zero()) {
            let size = bytes.map_or("not known".to_owned(), |bytes| bytes.to_string());
            writeln!(out, "  {} {:<9}{size:>12}  {source}", style.glyph, style.name)?;
        }
    }
    writeln!(
        out,
        "  · {:<9}{:>12}  of {} are free",
        "free",
        card.free.to_string(),
        card.total
    )?;
    writeln!(
        out,
        "  loaded {}, peak {}, {}",
        card.loaded,
        card.peak,
        headroom(card)
    )
}

fn headroom(card: &CardPlan) -> String {
    let size = Bytes::new(card.headroom.unsigned_abs());
    if card.headroom < 0 {
        format!("{size} too much")
    } else {
        format!("{size} to spare")
    }
}

fn write_host(plan: &Plan, out: &mut String) -> fmt::Result {
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
    writeln!(out, "\nhost memory: {} ({})", plan.host.peak, parts.join(", "))
}

fn write_growth(plan: &Plan, out: &mut String) -> fmt::Result {
    write!(out, "one more token of context: {}", plan.growth.bytes_per_token)?;
    // The cache is reserved at the start, the pool grows with use, so the two rates stay apart.
    if !plan.growth.pool.is_zero() {
        write!(out, ", and {} of pool for each token in use", plan.growth.pool)?;
    }
    match plan.largest_context {
        Some(tokens) => writeln!(out, "\nlargest context that fits: {tokens}"),
        None => writeln!(out, "\nno context fits"),
    }
}
