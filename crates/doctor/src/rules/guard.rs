//! Diagnoses allocations that guard (the preloaded library) recorded as refused.

use plimsoll_base::Bytes;
use plimsoll_wire::page::Refusal;

use super::EvidenceWeight::{Decisive, Strong};
use super::RuleFinding;
use crate::cause::Cause;
use crate::facts::{Facts, LineOrigin, LineSource, Quote};
use crate::refused::RefusedAllocation;

const PAGE: &str = "guard's shared-memory file records the sizes at the moment of the refusal";

rules! {
    guard_neighbours: PAGE;
    guard_context: PAGE;
    guard_room: PAGE;
}

fn quote(refused: &RefusedAllocation) -> [Quote; 1] {
    let origin = LineOrigin { source: LineSource::Guard, file: None };
    [Quote { origin, line: 1, text: refused.reason().text }]
}

/// Without the neighbours the request would have fitted.
fn guard_neighbours(facts: &Facts) -> Option<RuleFinding> {
    let refused = facts.guard.as_ref()?;
    let occupied: Bytes = refused.neighbours.iter().map(|(_, occupied)| *occupied).sum();
    // A refusal by the budget or by spilling is Plimsoll's own, whatever the neighbours hold.
    let enough = refused.requested <= refused.free + occupied && refused.why == Refusal::Driver;
    let text = format!(
        "other programs hold {occupied} of card {}; the program requested {} while {} were free",
        refused.card, refused.requested, refused.free
    );
    // Beyond doubt where the others hold more than this program held and requested together.
    let weight = if occupied >= refused.allocated + refused.requested { Decisive } else { Strong };
    (enough && occupied >= refused.allocated.scaled(1, 4) && !occupied.is_zero())
        .then(|| RuleFinding::new(Cause::ForeignProcess, weight, text, quote(refused)))
}

fn guard_context(facts: &Facts) -> Option<RuleFinding> {
    let refused = facts.guard.as_ref()?;
    let text = format!("the program requested a CUDA context on {}, which it may not use", refused.card);
    (refused.why == Refusal::Context)
        .then(|| RuleFinding::new(Cause::WrongDeviceContext, Decisive, text, quote(refused)))
}

/// On shared memory the driver refuses for other reasons than the free size.
fn guard_room(facts: &Facts) -> Option<RuleFinding> {
    let refused = facts.guard.as_ref()?;
    // Twice the request leaves no room for rounding or a race with another process.
    let plenty =
        refused.why == Refusal::Driver && refused.free >= refused.requested * 2 && facts.is_unified();
    let text = format!("a request for {} was refused while {} were free", refused.requested, refused.free);
    plenty.then(|| RuleFinding::new(Cause::UnifiedMemoryRefused, Strong, text, quote(refused)))
}
