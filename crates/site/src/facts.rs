//! States the figures of a whole plan in words: the verdict, and a short list of facts.

use plimsoll_planner::{Plan, SpeedRange, TokenRate};

use crate::bar;

/// `fits, 812 MiB to spare on CUDA0`, or what is lacking and where.
pub(crate) fn verdict(plan: &Plan) -> String {
    let tightest = plan.cards.iter().min_by_key(|card| card.headroom);
    let Some(card) = tightest else { return if plan.fits { "fits" } else { "does not fit" }.to_owned() };
    match (plan.fits, card.fits) {
        (false, true) => "does not fit in the host's memory".to_owned(),
        _ => format!("{} on {}", bar::verdict(card), card.id),
    }
}

/// Facts with their names, in the order in which they decide.
pub(crate) fn of(plan: &Plan) -> Vec<(&'static str, String)> {
    let build = plan.engine.build.map_or(String::new(), |build| format!(" b{build}"));
    let mut facts = vec![
        ("Largest context that fits", largest(plan)),
        ("One more token of context", growth(plan)),
        ("Host memory", plan.host.peak.to_string()),
    ];
    facts.extend(speed(plan).map(|text| ("Tokens per second", text)));
    facts.push(("Engine", format!("{}{build}", plan.engine.kind.name())));
    facts
}

fn largest(plan: &Plan) -> String {
    let Some(tokens) = plan.largest_context else { return "none".to_owned() };
    let each = match plan.streams {
        0 | 1 => String::new(),
        streams => format!(", {} for each of {streams} requests", tokens / streams),
    };
    let trained = match plan.trained_context {
        Some(trained) if tokens == trained => ", all that the model was trained for".to_owned(),
        Some(trained) if tokens > trained => format!(", trained for {trained}"),
        _ => String::new(),
    };
    format!("{tokens} tokens{each}{trained}")
}

fn growth(plan: &Plan) -> String {
    let context = plan.growth.bytes_per_token.to_string();
    // The cache is reserved at the start, the pool grows with use, so the two rates stay apart.
    if plan.growth.pool.is_zero() {
        context
    } else {
        format!("{context}, and {} of pool once it is used", plan.growth.pool)
    }
}

/// `None` where nothing is known of an answer's speed.
fn speed(plan: &Plan) -> Option<String> {
    let range = |of: &SpeedRange| {
        let [low, likely, high] = [of.low, of.likely, of.high].map(rounded);
        format!("{likely} ({low} to {high})")
    };
    let (start, deep) = (plan.speed.decode.as_ref()?, plan.speed.decode_at_depth.as_ref()?);
    Some(format!("{}, {} once {} tokens are in use; {}", range(start), range(deep), deep.depth, start.source))
}

/// Three digits, which is more than a prediction has.
fn rounded(rate: TokenRate) -> String {
    match rate.per_second() {
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}
