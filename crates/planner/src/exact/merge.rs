//! Replacement of a plan's computed memory terms by the sizes from the engine's own log.

use plimsoll_base::{Bytes, Card, CardKind, Counting, Reason, Source};

use super::transcript::{BufferKind, BufferPlace, CardInterface, EngineBuffer, MARGIN, Transcript};
use crate::{
    HostTerms, Plan, PlanCalculator, PlanError, PlanPrice, PlanRequest, PlanTerm, RequestCost, Terms,
    assemble, calibration, reasons,
};

/// [`MARGIN`] for display.
const OFF: &str = "0.01 MiB";
const WEIGHTS: [BufferKind; 2] = [BufferKind::Weights, BufferKind::Adapter];

/// The plan of a request with the engine's terms. `largest_context` is the answer of
/// [`confirmed_context`](crate::fit::confirmed_context); `program` is the engine's name for display.
pub fn exact(
    request: &PlanRequest<'_>,
    transcript: &Transcript,
    program: &str,
    largest_context: Result<Option<u64>, Option<u64>>,
) -> Result<Plan, PlanError> {
    let calculator = PlanCalculator::new(request)?;
    let cost = merged(request, transcript, &calculator, program)?;
    let mut reasons = reasons::reasons(request, &calculator, &cost);
    reasons.push(provenance(transcript, program));
    reasons.extend(remarks(transcript));
    reasons.extend(beyond(request, transcript));
    if largest_context.is_err() {
        let text = "the engine accepted the largest context shown; a larger one may fit, but the limit on \
            engine runs was reached";
        reasons.push(Reason::new("largest_context_unfinished", text));
    }
    let largest_context = largest_context.unwrap_or_else(|seen| seen);
    Ok(assemble(request, cost, largest_context, reasons))
}

/// The price of a request by the engine's terms.
pub fn priced(
    request: &PlanRequest<'_>,
    transcript: &Transcript,
    program: &str,
) -> Result<PlanPrice, PlanError> {
    Ok(merged(request, transcript, &PlanCalculator::new(request)?, program)?.into())
}

fn merged(
    request: &PlanRequest<'_>,
    transcript: &Transcript,
    calculator: &PlanCalculator<'_>,
    program: &str,
) -> Result<RequestCost, PlanError> {
    let mut cost = calculator.without_graph(u64::from(request.wish.context))?;
    let source = Source::Engine(format!("{}, ± {OFF}", named(program, transcript)).into());
    // The engine may have rounded the context differently from this planner.
    if let Some(context) = transcript.context {
        cost.reserve.context = context;
    }
    let places: Vec<BufferPlace> = places(request.cards).collect();
    for (place, terms) in places.iter().zip(&mut cost.cards) {
        terms.weights = said(transcript, *place, &WEIGHTS, &source);
        terms.kv = said(transcript, *place, &[BufferKind::Cache], &source);
        let computing = [BufferKind::Compute, BufferKind::Output, BufferKind::Other];
        terms.compute = said(transcript, *place, &computing, &source);
    }
    let said = |kinds: &[BufferKind]| said(transcript, BufferPlace::Host, kinds, &source);
    cost.host = HostTerms {
        weights: said(&WEIGHTS),
        kv: said(&[BufferKind::Cache]),
        compute: said(&[BufferKind::Compute, BufferKind::Other]),
        output: said(&[BufferKind::Output]),
    };
    // The engine logs the compute buffer of a projector, but not its weights, which follow from the header. It is loaded
    // beside the model, so they add to the engine's.
    if let Some((card, bytes)) = calculator.projector() {
        *cost.weights(card) += bytes;
    }
    for ((place, card), terms) in places.iter().zip(request.cards).zip(&mut cost.cards) {
        if let BufferPlace::Card(number) = *place {
            let cublas = calibration::cublas(request, card);
            grow(terms, transcript, (number, card, cublas), program);
        }
    }
    Ok(cost)
}

/// The engine's numbers of the cards. It numbers only cards; host memory among the request's cards is none of them.
fn places(cards: &[Card]) -> impl Iterator<Item = BufferPlace> {
    let mut numbers = 0..;
    cards.iter().map(move |card| match card.kind {
        CardKind::Cuda => numbers.next().map_or(BufferPlace::Host, BufferPlace::Card),
        _ => BufferPlace::Host,
    })
}

/// Replaces the pool by what the engine holds after a prompt, besides its buffers. cuBLAS requests memory of its own.
fn grow(
    terms: &mut Terms,
    transcript: &Transcript,
    (number, card, cublas): (usize, &Card, Bytes),
    program: &str,
) {
    let Some(memory) = transcript.card(number).grown else { return };
    let held = match card.counting {
        Counting::Driver => memory.taken,
        Counting::Guard => memory.held,
    };
    let buffers = terms.weights.known() + terms.kv.known() + terms.compute.known();
    let cublas = if transcript.card(number).cublas { cublas } else { Bytes::ZERO };
    let estimated = match transcript.without_code {
        0 => String::new(),
        kernels => format!(
            "; the occupancy of {kernels} kernels is estimated, for lack of machine code for the card"
        ),
    };
    let source =
        format!("{}, after a prompt of {} tokens{estimated}", named(program, transcript), memory.tokens);
    terms.pool = PlanTerm::new(held.saturating_sub(buffers) + cublas, Source::Engine(source.into()));
}

/// The sum of the engine's buffers of these kinds. Unknown buffers count as compute buffers.
fn said(transcript: &Transcript, place: BufferPlace, kinds: &[BufferKind], source: &Source) -> PlanTerm {
    PlanTerm::new(kinds.iter().map(|&kind| transcript.sum(place, kind)).sum(), source.clone())
}

/// `llama-server b10605 with its backend for CUDA 13`.
fn named(program: &str, transcript: &Transcript) -> String {
    let build = transcript.build.map_or(String::new(), |build| format!(" b{build}"));
    let backend =
        transcript.runtime.map_or(String::new(), |runtime| format!(" with its backend for {runtime}"));
    format!("{program}{build}{backend}")
}

fn provenance(transcript: &Transcript, program: &str) -> Reason {
    let foreign = matches!(transcript.runtime, Some(CardInterface::Vulkan | CardInterface::Rocm));
    let unsaid = match (transcript.prompt(), foreign) {
        (None, true) => {
            "the plan uses the pool and context of CUDA, because those of this backend have not been measured"
                .to_owned()
        }
        (None, false) => "the engine does not report the pool and the CUDA context".to_owned(),
        (Some(tokens), _) => format!(
            "the pool is what its backend requested for a prompt of {tokens} tokens; the largest context still counts \
            a computed pool, and the context of the driver was not asked"
        ),
    };
    let text = format!(
        "{} reported the sizes of weights, cache and compute buffers, each exact to {OFF}; {unsaid}",
        named(program, transcript),
    );
    Reason::new("engine_said", text)
        .fact("margin", MARGIN)
        .fact("buffers", u64::try_from(transcript.buffers.len()).unwrap_or(u64::MAX))
}

/// Memory of a card that the engine's backend asked for and its log does not name.
fn beyond(request: &PlanRequest<'_>, transcript: &Transcript) -> Vec<Reason> {
    // A projector's weights are not logged; the plan has them from the file's header.
    let cards = if request.projector.is_none() { request.cards.len() } else { 0 };
    let beyond = |card: usize| {
        let of = |buffer: &&EngineBuffer| buffer.place == BufferPlace::Card(card);
        let logged: Bytes = transcript.buffers.iter().filter(of).map(|buffer| buffer.bytes).sum();
        let asked = transcript.card(card).asked?;
        let more = asked.saturating_sub(logged);
        (more > Bytes::mib(1)).then(|| {
            let text = format!("on card {card} the engine requests {more} more than its log shows");
            Reason::new("engine_asked_more", text).fact("bytes", more)
        })
    };
    (0..cards).filter_map(beyond).collect()
}

fn remarks(transcript: &Transcript) -> Vec<Reason> {
    let mut remarks = Vec::new();
    if transcript.flash_attention_off {
        remarks.push(Reason::new(
            "flash_attention_off",
            "the engine switches flash attention off for this model and cache type",
        ));
    }
    if transcript.copies_dropped {
        remarks.push(Reason::new(
            "copies_dropped",
            "the engine disables pipeline parallelism across the cards, because the extra buffer copies for \
                it do not fit",
        ));
    }
    let others = transcript.buffers.iter();
    let other: Bytes =
        others.filter(|buffer| buffer.kind == BufferKind::Other).map(|buffer| buffer.bytes).sum();
    // Named in the plan, because a new kind of buffer means that this reader is out of date.
    if !other.is_zero() {
        let text = format!("{other} are in buffers with unknown names; they are counted as compute buffers");
        remarks.push(Reason::new("buffer_unknown", text).fact("bytes", other));
    }
    remarks
}
