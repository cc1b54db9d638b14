//! What it will cost: bytes on each card and on the host, term by term.
//!
//! The sum is weights + KV cache + compute buffer + run-time pool + driver context. One file per term; every term
//! says where it comes from, and a term nobody knows is unknown, not zero. [`plan`] is pure: the same request
//! gives the same plan on any machine, with no engine and no GPU.
//!
//! `layout` says which device holds what, `reserve` which sizes the engine settles first, `cost` adds up, `fit`
//! searches in every direction, `depth` says what is taken before the context is full, `reasons` and `hints` explain.
#![forbid(unsafe_code)]

mod calibration;
mod compute;
pub mod contexts;
mod cost;
mod depth;
mod error;
pub mod exact;
pub mod fit;
mod flash;
mod hints;
mod kv;
mod latent;
mod layout;
mod named;
mod outcome;
mod pool;
mod reasons;
mod request;
mod reserve;
mod stays;
mod weights;

use plimsoll_base::{Hint, Reason};

use self::cost::{PlanCalculator, RequestCost};
use self::fit::Formulas;

pub use contexts::MeasuredContext;
pub use depth::curve;
pub use error::PlanError;
pub use named::{NamedCards, named};
pub use outcome::{CardPlan, EngineInfo, Growth, HostPlan, HostTerms, Plan, Term, Terms};
pub use request::{Engine, EngineKind, PlanRequest};
pub use stays::computed_on_host;

/// Plans a model on the cards of a request.
pub fn plan(request: &PlanRequest<'_>) -> Result<Plan, PlanError> {
    let calculator = PlanCalculator::new(request)?;
    let cost = calculator.at(u64::from(request.wish.context))?;
    let largest_context = fit::largest_context(request, &calculator, &cost);
    let reasons = reasons::reasons(request, &calculator, &cost);
    let hints = hints::hints(request, &Formulas(*request), &cost.clone().into());
    Ok(assemble(request, cost, largest_context, reasons, hints))
}

/// Puts together what was worked out.
fn assemble(
    request: &PlanRequest<'_>,
    cost: RequestCost,
    largest_context: Option<u64>,
    reasons: Vec<Reason>,
    hints: Vec<Hint>,
) -> Plan {
    Plan {
        schema: "plimsoll.plan/1",
        model: name(request),
        engine: EngineInfo {
            kind: request.engine.kind.name(),
            build: request.engine.build,
        },
        context: cost.reserve.context,
        cards: cards(request, &cost),
        fits: fit::fits(request, &cost),
        host: HostPlan {
            peak: cost.host_peak(),
            terms: cost.host,
        },
        growth: cost.growth,
        largest_context,
        reasons,
        hints,
    }
}

fn name(request: &PlanRequest<'_>) -> String {
    let named = request.model.name.as_ref().or(request.wish.model.as_ref());
    named.unwrap_or(&request.model.architecture).clone()
}

fn cards(request: &PlanRequest<'_>, cost: &RequestCost) -> Vec<CardPlan> {
    let card = |(card, terms): (&plimsoll_base::Card, &Terms)| {
        let peak = cost::peak(terms);
        CardPlan {
            id: card.id.clone(),
            total: card.total,
            free: card.free,
            loaded: cost::loaded(terms),
            peak,
            headroom: signed_difference(card.free.get(), peak.get()),
            fits: peak <= card.free,
            terms: terms.clone(),
        }
    };
    request.cards.iter().zip(&cost.cards).map(card).collect()
}

/// `a - b`, at the ends of the range rather than beyond them.
fn signed_difference(a: u64, b: u64) -> i64 {
    let magnitude = i64::try_from(a.abs_diff(b)).unwrap_or(i64::MAX);
    if a >= b { magnitude } else { -magnitude }
}
