//! What adds up while the contexts of one process are walked through.

use plimsoll_base::Bytes;

use super::super::compute::{self, Compute};
use super::super::kv::Cache;
use super::super::outcome::{Growth, HostTerms, Term};
use super::super::request::Engine;
use super::part::EngineContext;
use super::{CACHE, OUTPUT, WEIGHTS};

/// What adds up while the parts are walked through.
pub(super) struct TermSums {
    pub(super) cards: Vec<CardSum>,
    pub(super) host_weights: Bytes,
    pub(super) host_kv: Bytes,
    pub(super) host_compute: Bytes,
    pub(super) host_output: Bytes,
    pub(super) growth: Growth,
    pub(super) sure: bool,
}

#[derive(Clone, Default)]
pub(super) struct CardSum {
    pub(super) weights: Bytes,
    pub(super) kv: Bytes,
    pub(super) compute: Bytes,
    pub(super) pool: Option<Term>,
}

impl CardSum {
    /// Contexts of one process have a pool each.
    pub(super) fn add_pool(&mut self, more: Term) {
        let before = self.pool.take().map_or(Bytes::ZERO, |pool| pool.known());
        self.pool = Some(Term {
            bytes: more.bytes.map(|bytes| bytes + before),
            source: more.source,
        });
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
            growth: Growth {
                bytes_per_token: Bytes::ZERO,
                pool: Bytes::ZERO,
            },
            sure: true,
        }
    }

    pub(super) fn add_part(
        &mut self,
        part: &EngineContext<'_>,
        cache: &Cache,
        compute: &Compute,
        engine: Engine,
    ) {
        for (device, &card) in part.layout.devices.iter().enumerate() {
            let sum = &mut self.cards[card];
            sum.kv += cache.devices[device];
            sum.compute += compute.devices[device];
            if let Some(weights) = &part.weights {
                sum.weights += weights.devices[device];
            }
        }
        self.host_weights += part.weights.as_ref().map_or(Bytes::ZERO, |weights| weights.host);
        self.host_kv += cache.host;
        self.host_compute += compute.host;
        self.sure &= compute::is_mirrored(part.model, engine, part.cache, part.flash);
    }

    pub(super) fn host_terms(&self) -> HostTerms {
        HostTerms {
            weights: Term::new(self.host_weights, WEIGHTS),
            kv: Term::new(self.host_kv, CACHE),
            compute: Term::new(self.host_compute, compute::source(self.sure)),
            output: Term::new(self.host_output, OUTPUT),
        }
    }
}
