//! What layers are put together from: norms, products with weights, and the weights themselves.

use plimsoll_model::Tensor;

use crate::compute::decoder::{BIAS, Decoder, WEIGHT};
use crate::compute::graph::{F32, OpKind, TensorId};
use crate::compute::sketch::ModelBlock;
use crate::layout::TensorDevice;
use crate::weights::row_padding;

impl Decoder<'_> {
    /// `build_norm`; nothing where the layer has no such weight.
    pub(in crate::compute) fn norm(&mut self, block: &ModelBlock<'_>, role: &str, of: TensorId) -> TensorId {
        match self.norm_weights(block, role) {
            Some(weights) => self.norm_by(block, weights, of),
            None => of,
        }
    }

    /// A norm's weight and bias. Falcon-H1 has one without the usual ending.
    pub(super) fn norm_weights(
        &mut self,
        block: &ModelBlock<'_>,
        role: &str,
    ) -> Option<(TensorId, Option<TensorId>)> {
        let weight = self.part(block, role, WEIGHT);
        let weight = weight.or_else(|| self.weight(block, role))?;
        Some((weight, self.part(block, role, BIAS)))
    }

    pub(in crate::compute) fn norm_by(
        &mut self,
        block: &ModelBlock<'_>,
        (weight, bias): (TensorId, Option<TensorId>),
        of: TensorId,
    ) -> TensorId {
        let subtracts_mean = bias.is_some() || self.variant.subtracts_mean;
        if self.quirks.is_lean && !subtracts_mean {
            let shape = self.graph.shape(of);
            let normed = self.graph.own(F32, shape, &[of, weight]);
            self.pin(normed, block);
            return normed;
        }
        let normed = self.bare_norm(of, subtracts_mean);
        self.pin(normed, block);
        let scaled = self.graph.in_place(&[normed, weight]);
        match bias {
            Some(bias) => self.graph.in_place(&[scaled, bias]),
            None => scaled,
        }
    }

    /// Norms that subtract the mean as well, as those with a bias do, cannot be done in place.
    pub(in crate::compute) fn bare_norm(&mut self, of: TensorId, subtracts_mean: bool) -> TensorId {
        match subtracts_mean {
            true => {
                let shape = self.graph.shape(of);
                self.graph.own(F32, shape, &[of])
            }
            false => self.graph.in_place(&[of]),
        }
    }

    /// `llama-context.cpp: graph_get_cb @ b10605`: with all layers on cards a norm belongs to its layer, not to the one
    /// before, so that one tensor less crosses from card to card.
    fn pin(&mut self, normed: TensorId, block: &ModelBlock<'_>) {
        const FEW_TOKENS: u64 = 32;
        if self.quirks.pins_norms && (self.sketch.all_on_cards() || self.tokens < FEW_TOKENS) {
            self.graph.pin(normed, block.place);
        }
    }

    /// `build_lora_mm` and its bias, where the layer has such a weight.
    pub(in crate::compute) fn linear(
        &mut self,
        block: &ModelBlock<'_>,
        role: &str,
        input: TensorId,
    ) -> Option<TensorId> {
        let weight = self.part(block, role, WEIGHT)?;
        let product = self.graph.multiply(weight, input);
        Some(match self.part(block, role, BIAS) {
            Some(bias) => self.graph.in_place(&[product, bias]),
            None => product,
        })
    }

    pub(in crate::compute) fn weight(&mut self, block: &ModelBlock<'_>, role: &str) -> Option<TensorId> {
        block.get(role).map(|(tensor, place)| self.stored(tensor, place))
    }

    /// The same by the two halves of its role.
    pub(in crate::compute) fn part(
        &mut self,
        block: &ModelBlock<'_>,
        role: &str,
        ending: &str,
    ) -> Option<TensorId> {
        block
            .part(role, ending)
            .map(|(tensor, place)| self.stored(tensor, place))
    }

    /// Frequencies of the rotary embedding, of which every device with a layer has its own.
    pub(in crate::compute) fn rope_factors(&mut self, place: TensorDevice) -> Option<TensorId> {
        let names = ["rope_freqs.weight", "rope_factors_long.weight"];
        let (tensor, _) = names.iter().find_map(|name| self.sketch.other(name))?;
        Some(self.stored(tensor, place))
    }

    pub(in crate::compute) fn stored(&mut self, tensor: &Tensor, place: TensorDevice) -> TensorId {
        let padding = row_padding(tensor.kind, tensor.shape[0]).get();
        self.graph
            .stored(OpKind::Weight(place), tensor.bytes.get(), padding, tensor.shape)
    }
}
