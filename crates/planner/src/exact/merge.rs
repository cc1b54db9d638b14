//! Replaces computed sizes in a plan by the sizes from the engine's own log.

use plimsoll_base::{Bytes, Card, CardKind, Counting, Reason, Source, counted};

use super::transcript::{BufferKind, BufferPlace, CardInterface, EngineBuffer, MARGIN, Transcript};
use crate::{
    HostTerms, Plan, PlanCalculator, PlanError, PlanPrice, PlanRequest, PlanTerm, RequestCost, Terms,
    assemble, calibration, reasons,
};

/// [`MARGIN`] for display.
const OFF: &str = "0.01 MiB";
const WEIGHTS: [BufferKind; 2] = [BufferKind::Weights, BufferKind::Adapter];

/// An engine's log for a request; `program` is the engine's name for display.
#[derive(Clone, Copy, Debug)]
pub struct EngineSizes<'a> {
    pub request: &'a PlanRequest<'a>,
    pub transcript: &'a Transcript,
    pub program: &'a str,
}

impl EngineSizes<'_> {
    /// The plan with the engine's terms. `largest_context` is what
    /// [`confirmed_context`](crate::fit::confirmed_context) found.
    pub fn plan(&self, largest_context: Result<Option<u64>, Option<u64>>) -> Result<Plan, PlanError> {
        let calculator = PlanCalculator::new(self.request)?;
        let cost = self.cost(&calculator)?;
        let mut reasons = reasons::reasons(&calculator, &cost);
        reasons.push(self.provenance());
        reasons.extend(remarks(self.transcript));
        reasons.extend(self.beyond());
        if largest_context.is_err() {
            let text = "the engine accepted the largest context shown; a larger one may fit, but the limit on \
                engine runs was reached";
            reasons.push(Reason::new("largest_context_unfinished", text));
        }
        Ok(assemble(&calculator, cost, largest_context.unwrap_or_else(|seen| seen), reasons))
    }

    /// The price of the request by the engine's terms.
    pub fn price(&self) -> Result<PlanPrice, PlanError> {
        Ok(self.cost(&PlanCalculator::new(self.request)?)?.into())
    }

    fn cost(&self, calculator: &PlanCalculator<'_>) -> Result<RequestCost, PlanError> {
        use BufferKind::{Cache, Compute, Other, Output};
        let (request, transcript) = (self.request, self.transcript);
        let mut cost = calculator.without_graph(u64::from(request.params.context))?;
        let source = Source::Engine(format!("{}, ± {OFF}", self.named()).into());
        // The engine may have rounded the context differently from this planner.
        cost.reserve.context = transcript.context.unwrap_or(cost.reserve.context);
        // Unknown buffers count as compute buffers.
        let stated = |place, kinds: &[BufferKind]| {
            PlanTerm::new(kinds.iter().map(|&kind| transcript.sum(place, kind)).sum(), source.clone())
        };
        let cache = |cost: &RequestCost| -> Bytes {
            cost.cards.iter().map(|terms| terms.kv.known()).sum::<Bytes>() + cost.host.kv.known()
        };
        let by_formula = cache(&cost);
        let places: Vec<BufferPlace> = places(request.cards).collect();
        for (&place, terms) in places.iter().zip(&mut cost.cards) {
            terms.weights = stated(place, &WEIGHTS);
            terms.kv = stated(place, &[Cache]);
            terms.compute = stated(place, &[Compute, Output, Other]);
        }
        cost.host = HostTerms {
            weights: stated(BufferPlace::Host, &WEIGHTS),
            kv: stated(BufferPlace::Host, &[Cache]),
            compute: stated(BufferPlace::Host, &[Compute, Other]),
            output: stated(BufferPlace::Host, &[Output]),
        };
        // An engine may keep a cache for fewer layers than the formulas count.
        if !by_formula.is_zero() {
            let of_engine = cache(&cost).get();
            let growth = &mut cost.growth.bytes_per_token;
            *growth = growth.scaled(of_engine, by_formula.get());
        }
        // The engine logs the compute buffer of a projector, but not its weights, which follow from the
        // header. It is loaded beside the model, so they add to the engine's.
        if let Some((card, bytes)) = calculator.projector() {
            *cost.weights(card) += bytes;
        }
        for ((place, card), terms) in places.iter().zip(request.cards).zip(&mut cost.cards) {
            if let BufferPlace::Card(number) = *place {
                self.grow(terms, number, card);
            }
        }
        cost.pool_host(request.cards);
        Ok(cost)
    }

    /// Replaces the pool by the engine's memory after a prompt, besides its buffers. cuBLAS requests memory
    /// of its own.
    fn grow(&self, terms: &mut Terms, number: usize, card: &Card) {
        let stated = self.transcript.card(number);
        let Some(memory) = stated.grown else { return };
        let occupied = match card.counting {
            Counting::Driver => memory.taken,
            Counting::Guard => memory.occupied,
        };
        let buffers = terms.weights.known() + terms.kv.known() + terms.compute.known();
        let cublas = if stated.cublas { calibration::cublas(self.request, card) } else { Bytes::ZERO };
        let mut source = format!("{}, after a prompt of {} tokens", self.named(), memory.tokens);
        if self.transcript.seen.without_code > 0 {
            source += &format!(
                "; the occupancy of {} is estimated, for lack of machine code for the card",
                counted(self.transcript.seen.without_code, "kernel")
            );
        }
        terms.pool = PlanTerm::new(occupied.saturating_sub(buffers) + cublas, Source::Engine(source.into()));
    }

    /// `llama-server b10605 with its backend for CUDA 13`.
    fn named(&self) -> String {
        let Transcript { build, runtime, .. } = self.transcript;
        let build = build.map_or(String::new(), |build| format!(" b{build}"));
        let backend = runtime.map_or(String::new(), |runtime| format!(" with its backend for {runtime}"));
        format!("{}{build}{backend}", self.program)
    }

    fn provenance(&self) -> Reason {
        let foreign = matches!(self.transcript.runtime, Some(CardInterface::Vulkan | CardInterface::Rocm));
        let unsaid = match (self.transcript.prompt(), foreign) {
            (None, true) => {
                "the plan uses the pool and context of CUDA, because those of this backend have not been measured"
                    .to_owned()
            }
            (None, false) => "the engine does not report the pool and the CUDA context".to_owned(),
            (Some(tokens), _) => format!(
                "the pool's size is that of the backend's requests for a prompt of {tokens} tokens; the \
                    largest context still includes a computed pool, and the size of the driver's context \
                    was not queried"
            ),
        };
        let text = format!(
            "{} reported the sizes of weights, cache and compute buffers, each exact to {OFF}; {unsaid}",
            self.named(),
        );
        let buffers = u64::try_from(self.transcript.buffers.len()).unwrap_or(u64::MAX);
        Reason::new("engine_said", text).fact("margin", MARGIN).fact("buffers", buffers)
    }

    /// Memory of a card that the engine's backend asked for and its log does not name.
    fn beyond(&self) -> impl Iterator<Item = Reason> {
        // A projector's weights are not logged; the plan has them from the file's header.
        let cards = if self.request.projector.is_none() { self.request.cards.len() } else { 0 };
        (0..cards).filter_map(|card| {
            let of = |buffer: &&EngineBuffer| buffer.place == BufferPlace::Card(card);
            let logged: Bytes = self.transcript.buffers.iter().filter(of).map(|buffer| buffer.bytes).sum();
            let more = self.transcript.card(card).requested?.saturating_sub(logged);
            let text = format!("on card {card} the engine requests {more} more than its log shows");
            (more > Bytes::mib(1)).then(|| Reason::new("engine_asked_more", text).fact("bytes", more))
        })
    }
}

/// The engine's numbers of the cards. It numbers only cards, so it never names host memory.
fn places(cards: &[Card]) -> impl Iterator<Item = BufferPlace> {
    let mut numbers = 0..;
    cards.iter().map(move |card| match card.kind {
        CardKind::Cuda => numbers.next().map_or(BufferPlace::Host, BufferPlace::Card),
        _ => BufferPlace::Host,
    })
}

fn remarks(transcript: &Transcript) -> impl Iterator<Item = Reason> {
    let others = transcript.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Other);
    let other: Bytes = others.map(|buffer| buffer.bytes).sum();
    let flash = "the engine switches flash attention off for this model and cache type";
    let copies = "the engine disables pipeline parallelism across the cards, because the extra buffer copies for it do \
        not fit";
    // Named in the plan, because a new kind of buffer means that this reader is out of date.
    let unknown = format!("{other} are in buffers with unknown names; they are counted as compute buffers");
    let remarks = [
        transcript.flash_attention_off.then(|| Reason::new("flash_attention_off", flash)),
        transcript.copies_dropped.then(|| Reason::new("copies_dropped", copies)),
        (!other.is_zero()).then(|| Reason::new("buffer_unknown", unknown).fact("bytes", other)),
    ];
    remarks.into_iter().flatten()
}
