//! A quick guess at what a change does: weights and cache anew, all else as it was.
//!
//! Moving layers or experts makes steps that no straight line follows; a guess that knows the weights of each layer
//! finds the step in microseconds, and the search asks around it. Nothing that is answered rests on it.

use plimsoll_base::Bytes;

use super::super::kv::{self, CacheKind};
use super::super::latent::LatentAttention;
use super::super::layout::DeviceLayout;
use super::super::request::PlanRequest;
use super::super::reserve::Reserve;
use super::super::weights;
use super::change::{Change, changed};
use super::price::{Priced, slack_of};

pub(crate) struct QuickEstimate<'a> {
    request: &'a PlanRequest<'a>,
    /// What is on each card beside weights and cache.
    rest: Vec<Bytes>,
}

impl<'a> QuickEstimate<'a> {
    /// `None` where the request cannot be laid out.
    pub(crate) fn new(request: &'a PlanRequest<'a>, asked: &Priced) -> Option<Self> {
        let held = held(request)?;
        let rest = held.iter().enumerate();
        Some(Self {
            request,
            rest: rest
                .map(|(card, held)| asked.peak(card).saturating_sub(*held))
                .collect(),
        })
    }

    pub(crate) fn slack(&self, changes: &[Change]) -> Option<i64> {
        let wish = changed(self.request.wish, changes);
        let held = held(&PlanRequest {
            wish: &wish,
            ..*self.request
        })?;
        let peaks = held.iter().zip(&self.rest).map(|(held, rest)| *held + *rest);
        Some(slack_of(self.request.cards, peaks))
    }
}

/// Weights and cache of the model itself on each card.
fn held(request: &PlanRequest<'_>) -> Option<Vec<Bytes>> {
    let (model, wish) = (request.model, request.wish);
    let layout = DeviceLayout::new(request, model).ok()?;
    let weights = weights::weights(model, &layout, false);
    let kind = CacheKind {
        key: wish.cache_key,
        value: wish.cache_value,
        transposed: false,
        offload: wish.cache_offload,
        rollback: 0,
        latent: LatentAttention::of(request, model),
    };
    let reserve = Reserve::of_model(request, u64::from(wish.context));
    let cache = kv::cache(model, 0..model.hyper.layers, &reserve, kind, &layout).ok()?;
    let mut held = vec![Bytes::ZERO; request.cards.len()];
    for (device, &card) in layout.devices.iter().enumerate() {
        held[card] += weights.devices[device] + cache.devices[device];
    }
    Some(held)
}
