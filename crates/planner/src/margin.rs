//! Gives the margin that is added to plans for cards of AMD and Intel, because the formulas are those of
//! CUDA.
//!
//! DECISION: a fixed margin for what an engine reserves, and a formula for what Vulkan takes at run time.
//! Both are from engines without a card (`data/drift`, `data/vulkan`), so the plan calls them a margin.

use plimsoll_base::{Bytes, Card, CardKind, Reason, Source};
use plimsoll_flags::device_number;

use crate::drift::SeenError;
use crate::engine_context::EngineContext;
use crate::{PlanRequest, PlanTerm, TensorDevice, kv};

/// Most by which a compute buffer with flash attention was low, over 285 rows each of HIP and Vulkan
/// (llama.cpp b11669): 124 MiB for Kimi K2. Of the one architecture beyond it (Grok) a plan says so itself.
const RESERVED: Bytes = Bytes::mib(128);

const SOURCE: Source = Source::Formula(
    "ggml-vulkan.cpp:ggml_vk_flash_attn, one layer's K and V as f16 in prealloc_x @ b11669 (Mesa's lavapipe)",
);

/// True for a card whose engine may compute with Vulkan: `-dev` says otherwise, or nothing does.
fn may_be_vulkan(request: &PlanRequest<'_>, card: &Card) -> bool {
    let named = request.params.devices.iter().find_map(|name| device_number(name));
    is_of_another_maker(card) && named.is_none_or(|(interface, _)| interface == "Vulkan")
}

fn is_of_another_maker(card: &Card) -> bool {
    card.kind == CardKind::Cuda && !card.maker.is_nvidia()
}

/// True for an error of the formulas for which the plan has this margin: one that is not larger, and without
/// flash attention one that the doubled buffer makes up for.
pub(super) fn covers(request: &PlanRequest<'_>, flash: bool, seen: SeenError<'_>) -> bool {
    let (Some(missing), Some(card)) = (seen.missing(), request.cards.first()) else { return false };
    let is_doubled = || flash || may_be_vulkan(request, card);
    is_of_another_maker(card) && (missing <= RESERVED || seen.without_flash && is_doubled())
}

/// What is added to a planned compute buffer.
pub(super) fn of_compute(request: &PlanRequest<'_>, card: &Card, flash: bool, compute: Bytes) -> Bytes {
    if !is_of_another_maker(card) {
        return Bytes::ZERO;
    }
    // Without flash attention Vulkan took up to 1.95 times the formula: 3172 MiB, not 1628, for GLM 4.5 Air.
    let again = if flash || !may_be_vulkan(request, card) { Bytes::ZERO } else { compute };
    RESERVED + again
}

/// The pool of a device whose engine may be Vulkan's: bytes at `cells` of depth, and for each further one.
pub(super) fn of_pool(
    request: &PlanRequest<'_>,
    (of, device): (&EngineContext<'_>, usize),
    cells: u64,
) -> Option<(PlanTerm, Bytes)> {
    if !may_be_vulkan(request, &request.cards[of.layout.devices[device]]) {
        return None;
    }
    let (hyper, here) = (&of.model.hyper, TensorDevice::card(device));
    let rows = kv::stored_rows(of);
    let copied = |layer: u32| rows(layer)[..2].iter().map(|(_, elements)| Bytes::new(2) * *elements).sum();
    let layers = of.layers.clone().filter(|layer| hyper.caches(*layer) && of.layout.layer(*layer) == here);
    let growth: Bytes = layers.map(copied).max().unwrap_or_default();
    Some((PlanTerm::new(growth * cells, SOURCE), growth))
}

/// Says what was added.
pub(super) fn stated(request: &PlanRequest<'_>, flash: bool) -> Option<Reason> {
    let card = request.cards.iter().find(|card| is_of_another_maker(card))?;
    let doubled = !flash && may_be_vulkan(request, card);
    let what = if doubled { "the compute buffer once more and 128 MiB" } else { "128 MiB" };
    let text = format!(
        "the formulas are CUDA's; for {} the plan adds a margin of {what} for engines with HIP or Vulkan; no \
            card of {} was measured",
        card.name,
        card.maker.name()
    );
    Some(Reason::new("margin", text).fact("margin", RESERVED))
}
