//! What guard saw at the moment of the refusal: asked, held, free, by the numbers of the driver.

use plimsoll_base::Bytes;
use plimsoll_wire::page::Refusal;

use super::Weight::{Decisive, Strong};
use super::{Finding, Rule};
use crate::cause::Cause;
use crate::evidence::{Evidence, Quote, Source};
use crate::refused::Refused;

const PAGE: &str = "guard's page: the numbers of the moment of the refusal";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "guard_neighbours",
        source: PAGE,
        test: neighbours,
    },
    Rule {
        name: "guard_context",
        source: PAGE,
        test: context,
    },
    Rule {
        name: "guard_room",
        source: PAGE,
        test: room,
    },
];

fn quote(refused: &Refused) -> Vec<Quote> {
    let text = refused.reason().text;
    vec![Quote {
        source: Source::Guard,
        line: 1,
        text,
    }]
}

/// What the neighbours hold would have been enough; beyond doubt where it is more than all that the program held and asked for.
fn neighbours(evidence: &Evidence) -> Option<Finding> {
    let refused = evidence.guard.as_ref()?;
    let held: Bytes = refused.neighbours.iter().map(|(_, held)| *held).sum();
    let enough = refused.asked <= refused.free + held && refused.why == Refusal::Driver;
    let text = format!(
        "others hold {held} of {}, and {} were asked with {} free",
        refused.card, refused.asked, refused.free
    );
    let weight = if held >= refused.allocated + refused.asked {
        Decisive
    } else {
        Strong
    };
    (enough && held >= refused.allocated.scaled(1, 4) && !held.is_zero())
        .then(|| Finding::new(Cause::ForeignProcess, weight, text, quote(refused)))
}

fn context(evidence: &Evidence) -> Option<Finding> {
    let refused = evidence.guard.as_ref()?;
    let text = format!(
        "a context was asked for on {}, which is not its card",
        refused.card
    );
    (refused.why == Refusal::Context)
        .then(|| Finding::new(Cause::WrongDeviceContext, Decisive, text, quote(refused)))
}

/// The driver refused with twice as much free: the card is not what is short.
fn room(evidence: &Evidence) -> Option<Finding> {
    let refused = evidence.guard.as_ref()?;
    let plenty = refused.why == Refusal::Driver && refused.free >= refused.asked * 2 && evidence.is_unified();
    let text = format!("{} were refused with {} free", refused.asked, refused.free);
    plenty.then(|| Finding::new(Cause::UnifiedMemoryRefused, Strong, text, quote(refused)))
}
