//! Adds up all memory terms of a plan, for any context length.
//!
//! Terms that do not depend on the context length are computed only once.

use plimsoll_base::{Bytes, Card, CardKind, Source};
use plimsoll_flags::ProgramKind;
use plimsoll_model::{HyperParameters, Model};
use plimsoll_wire::cache::CacheLayout;

use crate::engine_context::{ContextLayers, EngineContext};
use crate::request::{draft_params, prediction_params};
use crate::reserve::{self, speculates};
use crate::{
    DepthGrowth, DeviceBytes, EngineQuirks, Flash, HostTerms, LatentAttention, PlanError, PlanRequest,
    PlanTerm, RepackedBytes, Reserve, Terms, architecture, cache_layout, calibration, compute, kv, margin,
    weights,
};

/// More layers than any model has: the engine's own limit is 512 (`LLAMA_MAX_LAYERS`).
const MOST_LAYERS: u32 = 1024;

const WEIGHTS: Source = Source::Formula("llama-model.cpp:load_tensors @ b10605");
const CACHE: Source = Source::Formula("llama-kv-cache.cpp:llama_kv_cache @ b10605");
const OUTPUT: Source = Source::Formula("llama-context.cpp:output_reserve @ b10605");
/// Zero by definition: the pool is a part of the CUDA backend, so a device without operations of it has none.
const NO_POOL: Source = Source::Formula("ggml-cuda.cu:ggml_cuda_pool_vmm @ b10605");
/// Zero by definition: the engine prepares contexts for its devices only.
const NO_CONTEXT: Source = Source::Formula("llama.cpp:llama_prepare_model_devices @ b10605");

/// Calculator for the cost of a request at any context length.
pub(super) struct PlanCalculator<'a> {
    pub(super) request: &'a PlanRequest<'a>,
    main: EngineContext<'a>,
    draft: Option<EngineContext<'a>>,
}

/// Memory of a request at one context length.
#[derive(Clone, Debug)]
pub(super) struct RequestCost {
    pub(super) reserve: Reserve,
    /// One entry for each card of the request, in its order.
    pub(super) cards: Vec<Terms>,
    pub(super) host: HostTerms,
    pub(super) growth: DepthGrowth,
    /// True if the compute term mirrors the engine's graph; false where it is an estimate.
    pub(super) sure: bool,
}

impl RequestCost {
    /// Counts what the host holds on the card that shares its memory.
    pub(super) fn pool_host(&mut self, cards: &[Card]) {
        let Some(at) = cards.iter().position(|card| card.shares_host) else { return };
        let host = &mut self.host;
        let mut moved = [&mut host.weights, &mut host.kv, &mut host.compute, &mut host.output]
            .map(|term| term.bytes.replace(Bytes::ZERO).unwrap_or_default());
        let terms = &mut self.cards[at];
        moved[2] += moved[3];
        for (term, bytes) in [&mut terms.weights, &mut terms.kv, &mut terms.compute].into_iter().zip(moved) {
            *term += bytes;
        }
    }

    /// The weights on a card, or on the host.
    pub(super) fn weights(&mut self, card: Option<usize>) -> &mut PlanTerm {
        card.map_or(&mut self.host.weights, |card| &mut self.cards[card].weights)
    }
}

impl<'a> PlanCalculator<'a> {
    pub(super) fn new(request: &'a PlanRequest<'a>) -> Result<Self, PlanError> {
        // A header is hostile input: layers are counted before anything is allocated for each of them.
        for model in [Some(request.model), request.draft].into_iter().flatten() {
            if model.hyper.layers > MOST_LAYERS {
                let value = u64::from(model.hyper.layers);
                return Err(PlanError::Header { what: "block_count", value });
            }
        }
        let params = request.params;
        let hyper = &request.model.hyper;
        let together = hyper.nextn_cached && !EngineQuirks::of(request).caches_apart;
        let predicts = speculates(request);
        // Prediction layers are loaded only where they draft (`src/models/qwen35moe.cpp @ b10605`).
        let main = ContextLayers {
            cached: 0..if together { hyper.layers } else { hyper.trunk() },
            computed: 0..hyper.trunk(),
            loads_prediction: Some(predicts),
            rollback: reserve::rollback(request),
        };
        let main = EngineContext::new(request, request.model, main)?;
        let prediction = |of: &HyperParameters, loads_prediction| ContextLayers {
            cached: if together { 0 } else { of.trunk() }..of.layers,
            computed: of.trunk()..of.layers,
            loads_prediction,
            rollback: 0,
        };
        let draft = match request.draft {
            Some(draft) => {
                // The draft model has placement and cache flags of its own.
                let params = draft_params(params);
                let request = PlanRequest { params: &params, ..*request };
                let layers = if reserve::predicts(&request, draft) {
                    prediction(&draft.hyper, Some(true))
                } else {
                    ContextLayers::whole(draft)
                };
                Some(EngineContext::new(&request, draft, layers)?)
            }
            None if predicts => {
                // Its layers lie where the model's flags put them; its cache has the types of a draft's.
                let params = prediction_params(params);
                let own = PlanRequest { params: &params, ..*request };
                Some(EngineContext::new(&own, request.model, prediction(hyper, None))?)
            }
            None => None,
        };
        Ok(Self { request, main, draft })
    }

    /// The model's own context, beside that of a draft.
    pub(super) fn main(&self) -> &EngineContext<'a> {
        &self.main
    }

    pub(super) fn flash(&self) -> Flash {
        self.main.graph.flash
    }

    pub(super) fn latent(&self) -> Option<LatentAttention> {
        self.main.graph.cache.latent
    }

    /// Weights that the CPU backend copies, over all contexts.
    pub(super) fn repacked(&self) -> RepackedBytes {
        let add = |sum: RepackedBytes, of: &EngineContext<'_>| RepackedBytes {
            copies: sum.copies + of.repacked.copies,
            sure: sum.sure + of.repacked.sure,
            locked: sum.locked + of.repacked.locked,
        };
        [Some(&self.main), self.draft.as_ref()].into_iter().flatten().fold(RepackedBytes::default(), add)
    }

    /// True if `card` (a position in the request) holds a part of the model.
    pub(super) fn uses(&self, card: usize) -> bool {
        let mut contexts = [Some(&self.main), self.draft.as_ref()].into_iter().flatten();
        contexts.any(|context| context.layout.devices.contains(&card))
    }

    /// The contexts of the process, each with the sizes that it reserves for.
    fn contexts(&self, reserve: Reserve) -> impl Iterator<Item = (&EngineContext<'a>, Reserve)> {
        let draft = self.draft.iter().map(move |draft| {
            let reserve = Reserve::of_draft(self.request, draft.model, &reserve);
            (draft, reserve)
        });
        [(&self.main, reserve)].into_iter().chain(draft)
    }

    pub(super) fn at(&self, context: u64) -> Result<RequestCost, PlanError> {
        self.terms(context, true)
    }

    /// All terms but the compute buffer, which is zero: the engine itself says its size.
    pub(super) fn without_graph(&self, context: u64) -> Result<RequestCost, PlanError> {
        self.terms(context, false)
    }

    fn terms(&self, context: u64, graph: bool) -> Result<RequestCost, PlanError> {
        let request = self.request;
        let (weights, kv, compute, output) = (none(WEIGHTS), none(CACHE), none(NO_POOL), none(OUTPUT));
        let mut cost = RequestCost {
            reserve: Reserve::of_model(request, context),
            cards: (0..request.cards.len()).map(|card| self.empty(card)).collect(),
            host: HostTerms { weights, kv, compute, output },
            growth: DepthGrowth { bytes_per_token: Bytes::ZERO, pool: Bytes::ZERO },
            sure: true,
        };
        for (context, reserve) in self.contexts(cost.reserve) {
            self.add(context, &reserve, graph, &mut cost)?;
        }
        // Its compute buffer is not known; the reasons of the plan say so.
        if let Some((card, bytes)) = self.projector() {
            *cost.weights(card) += bytes;
        }
        cost.host.compute.source = compute::source(cost.sure);
        for (index, (card, terms)) in request.cards.iter().zip(&mut cost.cards).enumerate() {
            terms.compute.source = compute::source(cost.sure);
            if graph && self.uses(index) {
                let reserved = terms.compute.known();
                terms.compute += margin::of_compute(request, card, self.flash().on, reserved);
            }
            if card.kind == CardKind::Host {
                let host = cost.host.clone();
                (terms.weights, terms.kv, terms.compute) = (host.weights, host.kv, host.compute);
                // An engine without cards has its output buffer in the same memory as the compute buffer.
                terms.compute += host.output.known();
            }
        }
        cost.pool_host(request.cards);
        Ok(cost)
    }

    /// The terms of a card before any context is added.
    fn empty(&self, index: usize) -> Terms {
        let card = &self.request.cards[index];
        Terms {
            weights: none(WEIGHTS),
            kv: none(CACHE),
            compute: none(NO_POOL),
            pool: none(NO_POOL),
            context: match card.kind {
                CardKind::Host => none(NO_CONTEXT),
                _ if self.uses(index) => calibration::context(self.request, card),
                _ if self.opens_context(index) => calibration::opened_context(self.request, card),
                _ => none(NO_CONTEXT),
            },
        }
    }

    /// The cache allocations that can be divided by position, with their cards.
    pub(super) fn caches(&self, reserve: Reserve) -> Vec<(usize, CacheLayout)> {
        self.contexts(reserve)
            .flat_map(|(context, reserve)| cache_layout::layouts(context, &reserve))
            .collect()
    }

    /// The allocations of the model's weights that guard can exchange, with their cards.
    ///
    /// DECISION: only llama-server's, because only it says how deep its conversations are. The weights of a
    /// draft, of prediction layers and of a projector are allocations of their own, and stay.
    pub(super) fn weights_allocations(&self) -> Vec<(usize, Bytes)> {
        let (request, main) = (self.request, &self.main);
        let weights = main.weights.as_ref().filter(|_| request.program == ProgramKind::LlamaServer);
        let placed = weights.into_iter().flat_map(|weights| main.layout.devices.iter().zip(&weights.cards));
        let is_apart = |card: usize| {
            let card = &request.cards[card];
            card.kind == CardKind::Cuda && !card.shares_host
        };
        placed.map(|(card, bytes)| (*card, *bytes)).filter(|(card, _)| is_apart(*card)).collect()
    }

    /// The run-time pool of each card once the run has been so deep.
    pub(super) fn pools(&self, reserve: &Reserve, depth: u64) -> Vec<Bytes> {
        let request = self.request;
        let mut sums = vec![Bytes::ZERO; request.cards.len()];
        for (context, reserve) in self.contexts(*reserve) {
            // A draft context may be shorter than the run is deep.
            let cells = context.deepest(&reserve, request).min(depth);
            for pool in context.pools(request, &reserve, cells) {
                sums[pool.card] += pool.peak.known();
            }
        }
        sums
    }

    fn add(
        &self,
        of: &EngineContext<'_>,
        reserve: &Reserve,
        graph: bool,
        cost: &mut RequestCost,
    ) -> Result<(), PlanError> {
        let request = self.request;
        let cache = kv::cache(of, reserve)?;
        let none = DeviceBytes::none(&of.layout);
        let compute = if graph { compute::compute(request, &of.graph, reserve) } else { none.clone() };
        // Prediction layers have a context of their own over weights that are loaded once.
        let weights = of.weights.as_ref().unwrap_or(&none);
        for (device, &card) in of.layout.devices.iter().enumerate() {
            let terms = &mut cost.cards[card];
            terms.weights += weights.cards[device];
            terms.kv += cache.cards[device];
            terms.compute += compute.cards[device];
        }
        cost.host.weights += weights.host + of.repacked.locked;
        cost.host.kv += cache.host;
        cost.host.compute += compute.host;
        cost.host.output += output(of.model, reserve, request);
        // One estimated graph makes the whole term an estimate.
        cost.sure &= !graph || architecture::is_compared(of, request.engine);
        cost.growth.bytes_per_token += kv::bytes_per_token(of, reserve);
        for pool in of.pools(request, reserve, of.deepest(reserve, request)) {
            cost.growth.pool += pool.growth;
            // The contexts of one process have a pool each, which differ in source only by the attention.
            let before = std::mem::replace(&mut cost.cards[pool.card].pool, pool.peak);
            cost.cards[pool.card].pool += before.known();
        }
        Ok(())
    }

    /// The weights of a projector, and the card that they are on; `None` for the host. Its compute buffer is
    /// not known.
    pub(super) fn projector(&self) -> Option<(Option<usize>, Bytes)> {
        let tensors = &self.request.projector?.tensors;
        // A projector is on one device, the first of the model's.
        let first = self.main.layout.devices.first().copied();
        let card = first.filter(|_| self.request.params.projector_offload);
        let bytes = |tensor| if card.is_some() { weights::on_card(tensor) } else { tensor.bytes };
        Some((card, tensors.iter().map(bytes).sum()))
    }

    /// A process opens a context on all cards it sees; with `-dev`, on those and the first (seen on two
    /// H200).
    fn opens_context(&self, card: usize) -> bool {
        let is_cuda = |card: &Card| card.kind == CardKind::Cuda;
        match self.request.params.devices.as_slice() {
            [] => true,
            [none] if none == "none" => false,
            _ => self.request.cards.iter().position(is_cuda) == Some(card),
        }
    }
}

const fn none(source: Source) -> PlanTerm {
    PlanTerm { bytes: Some(Bytes::ZERO), source }
}

/// Output buffer: for every output a row of logits and, if requested, a row of embeddings.
fn output(model: &Model, reserve: &Reserve, request: &PlanRequest<'_>) -> Bytes {
    let logits = u64::from(model.hyper.vocabulary);
    let (width, rows) = if request.params.embeddings {
        (logits + u64::from(model.hyper.embedding), reserve.tokens)
    } else {
        // Without embeddings the engine starts with one row for each sequence and grows the buffer on demand.
        (logits, reserve.sequences)
    };
    Bytes::new(4) * width * rows
}
