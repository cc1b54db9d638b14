//! Quick estimate of the memory after a change of the request, from which a search starts.
//!
//! Weights and cache are computed anew; all other terms stay.

use plimsoll_base::Bytes;

use super::change::{RequestChange, changed};
use super::price::{PlanPrice, slack_of};
use crate::kv::{self, CacheKind};
use crate::latent::LatentAttention;
use crate::layout::DeviceLayout;
use crate::request::PlanRequest;
use crate::reserve::Reserve;
use crate::weights;

pub(crate) struct QuickEstimate<'a> {
    request: &'a PlanRequest<'a>,
    /// Bytes on each card other than weights and cache.
    rest: Vec<Bytes>,
}

impl<'a> QuickEstimate<'a> {
    /// Prepares an estimate; `None` if the request has no valid device layout.
    pub(crate) fn new(request: &'a PlanRequest<'a>, asked: &PlanPrice) -> Option<Self> {
        let held = held(request)?;
        let rest = |(card, held): (usize, &Bytes)| asked.peak(card).saturating_sub(*held);
        Some(Self { request, rest: held.iter().enumerate().map(rest).collect() })
    }

    pub(crate) fn slack(&self, changes: &[RequestChange]) -> Option<i64> {
        let wish = changed(self.request.wish, changes);
        let held = held(&PlanRequest { wish: &wish, ..*self.request })?;
        let peaks = held.iter().zip(&self.rest).map(|(held, rest)| *held + *rest);
        Some(slack_of(self.request.cards, peaks))
    }
}

/// Weights and cache of the model itself on each card.
fn held(request: &PlanRequest<'_>) -> Option<Vec<Bytes>> {
    let (model, wish) = (request.model, request.wish);
    let layout = DeviceLayout::new(request, model).ok()?;
    // Draft and projector are in `rest`: no change moves them.
    let weights = weights::weights(model, &layout, false);
    let kind = CacheKind {
        key: wish.cache_key,
        value: wish.cache_value,
        // The shape of V hardly matters here, and flash attention is not resolved for an estimate.
        transposed: false,
        offload: wish.cache_offload,
        rollback: 0,
        latent: LatentAttention::of(request, model),
    };
    let reserve = Reserve::of_model(request, u64::from(wish.context));
    let cache = kv::cache(model, 0..model.hyper.layers, &reserve, kind, &layout).ok()?;
    let mut held = vec![Bytes::ZERO; request.cards.len()];
    for (device, &card) in layout.devices.iter().enumerate() {
        held[card] += weights.cards[device] + cache.cards[device];
    }
    Some(held)
}
