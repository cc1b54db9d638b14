//! Compute buffers: for now an upper bound by logits alone; the mirror of the engine's graph follows.
use super::layout::Layout;
use super::request::PlanRequest;
use super::reserve::Reserve;
use crate::bytes::Bytes;
use crate::explain::Source;
use crate::model::Model;
#[derive(Clone, Debug)]
pub(super) struct Compute {
    pub(super) devices: Vec<Bytes>,
    pub(super) host: Bytes,
    pub(super) sure: bool,
}
pub(super) fn source(_sure: bool) -> Source {
    Source::Formula("ggml-alloc.c:ggml_gallocr_reserve_n @ b10605")
}
pub(super) fn compute(
    _r: &PlanRequest<'_>,
    model: &Model,
    _l: std::ops::Range<u32>,
    layout: &Layout,
    reserve: &Reserve,
    _f: bool,
) -> Compute {
    let copies = layout.copies;
    let rows = Bytes::new(4) * u64::from(model.hyper.vocabulary) * reserve.outputs * copies;
    Compute {
        devices: vec![rows; layout.devices.len()],
        host: rows,
        sure: false,
    }
}
