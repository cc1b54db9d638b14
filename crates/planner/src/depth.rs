//! Computes a plan's memory as a curve over the number of tokens in use.
//!
//! Only the run-time pool depends on depth; the rest is reserved at load for the whole context.

use plimsoll_base::{Bytes, CardId, Curve, Slots};

use crate::{CELLS, EngineQuirks, PlanCalculator, PlanError, PlanRequest, Reserve};

/// Steps of a curve; more would be finer than the pool's own granules on most models.
const STEPS: u64 = 64;

/// Returns the memory of the model on each card at each depth. `answer` is the engine's own limit for one
/// answer.
pub fn curve(request: &PlanRequest<'_>, answer: Option<u64>) -> Result<Curve, PlanError> {
    let calculator = PlanCalculator::new(request)?;
    let cost = calculator.at(u64::from(request.params.context))?;
    let slots = slots(request, &cost.reserve, answer);
    let deepest = calculator.pools(&cost.reserve, slots.full);
    let base = cost.cards.iter().zip(deepest);
    let base: Vec<Bytes> = base.map(|(terms, pool)| terms.peak().saturating_sub(pool)).collect();
    // Whole steps of cells: the engine attends to no fewer.
    let step = slots.full.div_ceil(STEPS).next_multiple_of(CELLS);
    let at = |depth: u64| {
        let pools = calculator.pools(&cost.reserve, depth);
        let bytes = base.iter().zip(pools).map(|(base, pool)| *base + pool);
        (depth, bytes.collect())
    };
    let depths = (0..STEPS).map(|n| n * step).filter(|depth| *depth < slots.full);
    let steps = depths.chain([slots.full]).map(at).collect();
    let cards: Vec<CardId> = request.cards.iter().map(|card| card.id.clone()).collect();
    let curve = Curve::new(slots, cards, steps);
    // The last step is at `full`, so there is at least one.
    Ok(curve.expect("there is a step, and each has every card"))
}

fn slots(request: &PlanRequest<'_>, reserve: &Reserve, answer: Option<u64>) -> Slots {
    let unified = reserve.streams == 1;
    let scatters = unified && reserve.sequences > 1;
    Slots {
        count: reserve.sequences,
        each: reserve.per_sequence,
        full: reserve.context,
        unified,
        keeps: EngineQuirks::of(request).keeps_idle_slots,
        // Cells that scattered sequences leave unused: `llama-kv-cache.cpp: find_slot @ b10605` goes back to
        // the first cell only when more than two batches would fit there.
        scatter: if scatters { 3 * reserve.micro_batch } else { 0 },
        answer,
    }
}
