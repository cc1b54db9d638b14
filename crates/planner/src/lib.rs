//! Plans the memory of a model: bytes on each card and on the host, with a source for each number.
//!
//! A plan is the sum of weights, KV cache, compute buffer, run-time pool and driver context. The planner
//! queries no GPU.
//!
//! To add a model, add a row to `architecture`. To add an engine build, add a row to `quirks`.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod architecture;
mod cache_layout;
mod calibration;
mod compute;
pub mod contexts;
mod cost;
mod depth;
mod drift;
mod engine_context;
pub mod exact;
pub mod fit;
mod flash;
mod hints;
mod host_room;
mod kv;
mod latent;
mod layout;
mod margin;
mod named;
mod outcome;
mod pool;
mod quirks;
mod reasons;
mod repack;
mod request;
mod reserve;
mod speed;
mod spill;
mod weights;

use plimsoll_base::{Card, Reason};

// Types that most files of this crate use, by their names alone.
use self::architecture::{GraphVariant, WantedRows};
use self::compute::ModelLayers;
use self::cost::{PlanCalculator, RequestCost};
use self::fit::{ClosedForms, FitQuestion, PlanPrice};
use self::flash::Flash;
use self::kv::CacheKind;
use self::latent::{LatentAttention, LatentCache};
use self::layout::{DeviceBytes, DeviceLayout, TensorDevice};
use self::quirks::EngineQuirks;
use self::repack::{RepackedBytes, Repacking};
use self::reserve::{CELLS, Reserve};
use self::weights::{CARD_ALIGNMENT, HOST_ALIGNMENT};

pub use contexts::MeasuredContext;
pub use depth::curve;
pub use host_room::HostRoom;
pub use named::{NamedCards, interface, named};
pub use outcome::{CardPlan, DepthGrowth, HostPlan, HostTerms, Plan, PlanTerm, Terms};
pub use plimsoll_flags::{EngineBuild, EngineKind};
pub use repack::Processor;
pub use request::{PlanError, PlanRequest};
pub use speed::{
    AttentionRates, HostRates, PlannedSpeed, PrefillRates, SpeedRange, SpeedRates, TokenRate, speed,
};
pub use spill::{DividedCard, guard_budget};
pub use weights::computed_on_host;

/// Plans a model on the cards of a request.
pub fn plan(request: &PlanRequest<'_>) -> Result<Plan, PlanError> {
    // The calculator keeps all that does not depend on the context, which the search then varies.
    let calculator = PlanCalculator::new(request)?;
    let cost = calculator.at(u64::from(request.params.context))?;
    let largest = fit::largest_context(&calculator, &cost);
    let mut reasons = reasons::reasons(&calculator, &cost);
    reasons.extend(drift::stated(request, calculator.flash().on));
    Ok(assemble(&calculator, cost, largest, reasons))
}

fn assemble(of: &PlanCalculator<'_>, cost: RequestCost, largest: Option<u64>, reasons: Vec<Reason>) -> Plan {
    let request = of.request;
    let question = FitQuestion { request, price: &ClosedForms(*request), requested: cost.clone().into() };
    let (warnings, reasons) = reasons.into_iter().partition(|reason| reasons::DOUBTS.contains(&reason.code));
    let mut cards = cards(request, &cost);
    for (card, layout) in of.caches(cost.reserve) {
        cards[card].caches.push(layout);
    }
    for (card, weights) in of.weights_allocations() {
        cards[card].weights_allocation = Some(weights);
    }
    let mut hints = hints::hints(&question);
    hints.extend(spill::hint(request, &cards));
    let fits = question.requested.fits(request.cards);
    Plan {
        schema: "plimsoll.plan/1",
        model: model_name(request),
        engine: request.engine,
        // The rounded context, because that is what the engine reserves.
        context: cost.reserve.context,
        default_context: default_context(request),
        cards,
        fits,
        speed: speed::planned(of, &cost.reserve, fits),
        hints,
        host: HostPlan { peak: cost.host.peak(), terms: cost.host },
        growth: cost.growth,
        largest_context: largest,
        trained_context: Some(fit::trained_context(request, cost.reserve.streams))
            .filter(|&tokens| tokens > 0),
        streams: cost.reserve.streams,
        warnings,
        reasons,
    }
}

/// The context that the engine takes from the model's header, where the flags give none.
pub(crate) fn default_context(request: &PlanRequest<'_>) -> Option<u64> {
    (request.params.context == 0).then(|| Reserve::of_model(request, 0).context)
}

/// Name in the header, else the file name given, else the architecture.
fn model_name(request: &PlanRequest<'_>) -> String {
    let named = request.model.name.as_ref().or(request.params.model.as_ref());
    named.unwrap_or(&request.model.architecture).clone()
}

fn cards(request: &PlanRequest<'_>, cost: &RequestCost) -> Vec<CardPlan> {
    let card = |(card, terms): (&Card, &Terms)| CardPlan {
        id: card.id.clone(),
        total: card.total,
        free: card.free,
        loaded: terms.loaded(),
        peak: terms.peak(),
        headroom: terms.headroom(card.free),
        fits: terms.peak() <= card.free,
        terms: terms.clone(),
        caches: Vec::new(),
        weights_allocation: None,
    };
    request.cards.iter().zip(&cost.cards).map(card).collect()
}

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_planner;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
