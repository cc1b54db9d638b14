//! Running sums of memory terms (weights, cache, buffers, pool) over the model and its draft model.

use plimsoll_base::{Bytes, Source};

use super::engine_context::EngineContext;
use super::{CACHE, OUTPUT, WEIGHTS};
use crate::layout::DeviceBytes;
use crate::outcome::{DepthGrowth, HostTerms, PlanTerm};
use crate::request::EngineBuild;
use crate::{architecture, compute};

/// Bytes of all contexts added so far.
pub(super) struct TermSums {
    pub(super) cards: Vec<CardSum>,
    pub(super) host_weights: Bytes,
    host_kv: Bytes,
    host_compute: Bytes,
    pub(super) host_output: Bytes,
    pub(super) growth: DepthGrowth,
    pub(super) sure: bool,
}

#[derive(Clone, Default)]
pub(super) struct CardSum {
    pub(super) weights: Bytes,
    pub(super) kv: Bytes,
    pub(super) compute: Bytes,
    pub(super) pool: Option<PlanTerm>,
}

impl CardSum {
    /// Adds the pool of one more context: the contexts of one process have a pool each.
    pub(super) fn add_pool(&mut self, more: PlanTerm) {
        // The latest source stands for all: they differ only in the model's attention.
        let before = self.pool.take().map_or(Bytes::ZERO, |pool| pool.known());
        self.pool = Some(PlanTerm { bytes: more.bytes.map(|bytes| bytes + before), source: more.source });
    }
}

impl TermSums {
    pub(super) fn new(cards: usize) -> Self {
        Self {
            cards: vec![CardSum::default(); cards],
            host_weights: Bytes::ZERO,
            host_kv: Bytes::ZERO,
            host_compute: Bytes::ZERO,
            host_output: Bytes::ZERO,
            growth: DepthGrowth { bytes_per_token: Bytes::ZERO, pool: Bytes::ZERO },
            sure: true,
        }
    }

    pub(super) fn add_context(
        &mut self,
        context: &EngineContext<'_>,
        cache: &DeviceBytes,
        compute: &DeviceBytes,
        engine: EngineBuild,
    ) {
        // Prediction layers have a context of their own over weights that are loaded once.
        let none = DeviceBytes::none(&context.layout);
        let weights = context.weights.as_ref().unwrap_or(&none);
        for (device, &card) in context.layout.devices.iter().enumerate() {
            let sum = &mut self.cards[card];
            sum.weights += weights.cards[device];
            sum.kv += cache.cards[device];
            sum.compute += compute.cards[device];
        }
        self.host_weights += weights.host;
        self.host_kv += cache.host;
        self.host_compute += compute.host;
        // One estimated graph makes the whole term an estimate.
        let (cache, on_host) = (context.graph.cache, context.graph.flash.is_on_host());
        self.sure &= architecture::is_compared(context.model, engine, cache.key, cache.rollback > 0, on_host);
    }

    pub(super) fn compute_source(&self) -> Source {
        compute::source(self.sure)
    }

    pub(super) fn host_terms(&self) -> HostTerms {
        HostTerms {
            weights: PlanTerm::new(self.host_weights, WEIGHTS),
            kv: PlanTerm::new(self.host_kv, CACHE),
            compute: PlanTerm::new(self.host_compute, self.compute_source()),
            output: PlanTerm::new(self.host_output, OUTPUT),
        }
    }
}
