//! The sum: every term of one request, at any context.
//!
//! What does not depend on the context (layout, weights, driver context) is worked out once; searching for the
//! largest context and weighing advice re-plan the rest, and never interpolate.

mod part;
mod pools;
mod sum;

use self::part::EngineContext;
pub(super) use self::part::draft_wish;
use plimsoll_base::{Bytes, Source};
use plimsoll_model::Model;

use self::pools::{cells, pools};
use self::sum::TermSums;
use super::error::PlanError;
use super::flash::Flash;
use super::latent::LatentAttention;
use super::outcome::{Growth, HostTerms, Term, Terms};
use super::request::PlanRequest;
use super::reserve::{Reserve, speculates};
use super::{calibration, compute, kv, weights};

/// More layers than any model has: the engine's own limit is 512 (`LLAMA_MAX_LAYERS`).
const MOST_LAYERS: u32 = 1024;

const WEIGHTS: Source = Source::Formula("llama-model.cpp:load_tensors @ b10605");
const CACHE: Source = Source::Formula("llama-kv-cache.cpp:llama_kv_cache @ b10605");
const OUTPUT: Source = Source::Formula("llama-context.cpp:output_reserve @ b10605");

/// Works out the cost of a request at any context.
pub(super) struct PlanCalculator<'a> {
    request: &'a PlanRequest<'a>,
    main: EngineContext<'a>,
    draft: Option<EngineContext<'a>>,
}

/// The cost of a request at one context.
#[derive(Clone, Debug)]
pub(super) struct RequestCost {
    pub(super) reserve: Reserve,
    /// One entry for each card of the request, in its order.
    pub(super) cards: Vec<Terms>,
    pub(super) host: HostTerms,
    pub(super) growth: Growth,
    /// True where the compute term mirrors the engine's graph; false where it is an estimate.
    pub(super) sure: bool,
}

impl RequestCost {
    pub(super) fn host_peak(&self) -> Bytes {
        let host = &self.host;
        host.weights.known() + host.kv.known() + host.compute.known() + host.output.known()
    }
}

/// The sum of a card's terms once loaded, before the first request.
pub(super) fn loaded(terms: &Terms) -> Bytes {
    terms.weights.known() + terms.kv.known() + terms.compute.known() + terms.context.known()
}

/// The sum of a card's terms at full depth.
pub(super) fn peak(terms: &Terms) -> Bytes {
    loaded(terms) + terms.pool.known()
}

impl<'a> PlanCalculator<'a> {
    pub(super) fn new(request: &'a PlanRequest<'a>) -> Result<Self, PlanError> {
        for model in [Some(request.model), request.draft].into_iter().flatten() {
            check(model)?;
        }
        let wish = request.wish;
        let hyper = &request.model.hyper;
        let trunk = hyper.layers.saturating_sub(hyper.nextn_layers);
        let predicts = speculates(request);
        let main_layers = 0..if hyper.nextn_cached { hyper.layers } else { trunk };
        let drafts = predicts || request.draft.is_some();
        let rollback = if drafts { u64::from(wish.draft_tokens) } else { 0 };
        let main = EngineContext::new(request, request.model, main_layers, Some(predicts), rollback)?;
        let draft_wish = draft_wish(wish);
        let draft_request = PlanRequest {
            wish: &draft_wish,
            ..*request
        };
        let draft = match request.draft {
            Some(draft) => {
                let layers = 0..draft.hyper.layers;
                Some(EngineContext::new(&draft_request, draft, layers, Some(true), 0)?)
            }
            None if predicts => {
                let part = EngineContext::new(request, request.model, trunk..hyper.layers, None, 0)?;
                // it computes its own layers alone, and keeps a cache for as many as the model's context does
                let layers = if hyper.nextn_cached { 0 } else { trunk }..hyper.layers;
                Some(EngineContext { layers, ..part })
            }
            None => None,
        };
        Ok(Self { request, main, draft })
    }

    pub(super) fn flash(&self) -> Flash {
        self.main.flash
    }

    pub(super) fn latent(&self) -> Option<LatentAttention> {
        self.main.cache.latent
    }

    /// True where `card` (a position in the request) holds a part of the model.
    pub(super) fn uses(&self, card: usize) -> bool {
        let parts = [Some(&self.main), self.draft.as_ref()];
        parts
            .into_iter()
            .flatten()
            .any(|part| part.layout.devices.contains(&card))
    }

    pub(super) fn at(&self, context: u64) -> Result<RequestCost, PlanError> {
        let request = self.request;
        let reserve = Reserve::of_model(request, context);
        let mut sum = TermSums::new(request.cards.len());
        self.add(&self.main, &reserve, &mut sum)?;
        if let Some(draft) = &self.draft {
            let reserve = Reserve::of_draft(request, draft.model, &reserve);
            self.add(draft, &reserve, &mut sum)?;
        }
        self.add_projector(&mut sum);
        let cards = (0..request.cards.len())
            .map(|card| self.terms(card, &sum))
            .collect();
        Ok(RequestCost {
            reserve,
            cards,
            host: sum.host_terms(),
            growth: sum.growth,
            sure: sum.sure,
        })
    }

    /// The run-time pool of each card once the run has been so deep.
    pub(super) fn pools(&self, reserve: &Reserve, depth: u64) -> Vec<Bytes> {
        let request = self.request;
        let mut sums = vec![Bytes::ZERO; request.cards.len()];
        let mut add = |part: &EngineContext<'_>, reserve: &Reserve| {
            let cells = cells(part, reserve, request).min(depth);
            for ((_, card), pool) in pools(request, part, reserve, cells) {
                sums[card] += pool.peak.known();
            }
        };
        add(&self.main, reserve);
        if let Some(draft) = &self.draft {
            add(draft, &Reserve::of_draft(request, draft.model, reserve));
        }
        let host = |(card, sum): (&plimsoll_base::Card, Bytes)| match card.kind {
            plimsoll_base::CardKind::Host => Bytes::ZERO,
            plimsoll_base::CardKind::Cuda => sum,
        };
        request.cards.iter().zip(sums).map(host).collect()
    }

    fn add(&self, part: &EngineContext<'_>, reserve: &Reserve, sum: &mut TermSums) -> Result<(), PlanError> {
        let request = self.request;
        let kind = part.cache;
        let cache = kv::cache(part.model, part.layers.clone(), reserve, kind, &part.layout)?;
        let compute = compute::compute(request, &part.sketch, reserve, kind, part.flash);
        sum.add_part(part, &cache, &compute, request.engine);
        sum.growth.bytes_per_token +=
            kv::bytes_per_token(&part.model.hyper, part.layers.clone(), reserve, kind);
        for ((_, card), pool) in pools(request, part, reserve, cells(part, reserve, request)) {
            sum.growth.pool += pool.growth;
            sum.cards[card].add_pool(pool.peak);
        }
        sum.host_output += output(part.model, reserve, request);
        Ok(())
    }

    /// A projector's weights, on a card or on the host; what it computes with is not known here.
    pub(super) fn projector(&self) -> Option<(Option<usize>, Bytes)> {
        let tensors = &self.request.projector?.tensors;
        let first = self.main.layout.devices.first().copied();
        let card = first.filter(|_| self.request.wish.projector_offload);
        let bytes = match card {
            Some(_) => tensors.iter().map(weights::on_card).sum(),
            None => tensors.iter().map(|tensor| tensor.bytes).sum(),
        };
        Some((card, bytes))
    }

    fn add_projector(&self, sum: &mut TermSums) {
        match self.projector() {
            Some((Some(card), bytes)) => sum.cards[card].weights += bytes,
            Some((None, bytes)) => sum.host_weights += bytes,
            None => {}
        }
    }

    fn terms(&self, index: usize, sum: &TermSums) -> Terms {
        let card = &self.request.cards[index];
        let on_card = &sum.cards[index];
        let compute_source = compute::source(sum.sure);
        if card.kind == plimsoll_base::CardKind::Host {
            return Terms {
                weights: Term::new(sum.host_weights, WEIGHTS),
                kv: Term::new(sum.host_kv, CACHE),
                compute: Term::new(sum.host_compute + sum.host_output, compute_source),
                pool: Term::new(Bytes::ZERO, OUTPUT),
                context: Term::new(Bytes::ZERO, OUTPUT),
            };
        }
        let context = if self.uses(index) {
            calibration::context(self.request, card)
        } else if self.opens_context(index) {
            calibration::opened_context(self.request, card)
        } else {
            Term::new(
                Bytes::ZERO,
                Source::Formula("llama.cpp:llama_prepare_model_devices @ b10605"),
            )
        };
        Terms {
            weights: Term::new(on_card.weights, WEIGHTS),
            kv: Term::new(on_card.kv, CACHE),
            compute: Term::new(on_card.compute, compute_source),
            pool: on_card
                .pool
                .clone()
                .unwrap_or_else(|| Term::new(Bytes::ZERO, OUTPUT)),
            context,
        }
    }

    /// A process opens a context on every card it sees, unless `-dev` names others; even then on the first one
    /// (measured on two H200).
    fn opens_context(&self, card: usize) -> bool {
        let first = self
            .request
            .cards
            .iter()
            .position(|card| card.kind == plimsoll_base::CardKind::Cuda);
        match self.request.wish.devices.as_slice() {
            [] => true,
            [none] if none == "none" => false,
            _ => first == Some(card),
        }
    }
}

fn check(model: &Model) -> Result<(), PlanError> {
    if model.hyper.layers > MOST_LAYERS {
        return Err(PlanError::Header {
            what: "block_count",
            value: u64::from(model.hyper.layers),
        });
    }
    Ok(())
}

/// The output buffer: a row of logits, and of embeddings where asked for, for every output.
fn output(model: &Model, reserve: &Reserve, request: &PlanRequest<'_>) -> Bytes {
    let embeds = request.wish.embeddings;
    let width = u64::from(model.hyper.vocabulary)
        + if embeds {
            u64::from(model.hyper.embedding)
        } else {
            0
        };
    let rows = if embeds { reserve.tokens } else { reserve.sequences };
    Bytes::new(4) * width * rows
}
