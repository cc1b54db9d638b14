//! Parts of a layer in the compute graph: norms, products with weights, and the weight tensors.

use plimsoll_model::Tensor;

use crate::compute::decoder::{BIAS, Decoder, WEIGHT};
use crate::compute::graph::{Id, OpKind};
use crate::compute::model_layers::Layer;
use crate::layout::TensorDevice;
use crate::weights::row_padding;

impl Decoder<'_> {
    /// `build_norm`; returns the input itself if the layer has no such weight.
    pub(in crate::compute) fn norm(&mut self, block: &Layer<'_>, role: &str, of: Id) -> Id {
        match self.norm_weights(block, role) {
            Some(weights) => self.norm_by(block, weights, of),
            None => of,
        }
    }

    /// A norm's weight and bias. Falcon-H1 has one without the usual ending.
    pub(super) fn norm_weights(&mut self, block: &Layer<'_>, role: &str) -> Option<(Id, Option<Id>)> {
        let weight = self.part(block, role, WEIGHT);
        let weight = weight.or_else(|| self.weight(block, role))?;
        Some((weight, self.part(block, role, BIAS)))
    }

    pub(in crate::compute) fn norm_by(
        &mut self,
        block: &Layer<'_>,
        (weight, bias): (Id, Option<Id>),
        of: Id,
    ) -> Id {
        // A bias tells `ggml_norm` from `ggml_rms_norm`, except for the models that `variant` names.
        let subtracts_mean = bias.is_some() || self.variant.subtracts_mean;
        if self.quirks.is_lean && !subtracts_mean {
            let normed = self.graph.own_like(of, &[of, weight]);
            self.pin(normed, block);
            return normed;
        }
        let normed = self.bare_norm(of, subtracts_mean);
        self.pin(normed, block);
        let scaled = self.graph.in_place(&[normed, weight]);
        self.biased(scaled, bias)
    }

    /// A norm without its weight.
    pub(in crate::compute) fn bare_norm(&mut self, of: Id, subtracts_mean: bool) -> Id {
        match subtracts_mean {
            // `ggml_norm` cannot be done in place, `ggml_rms_norm` can (`ggml_op_can_inplace`).
            true => self.graph.own_like(of, &[of]),
            false => self.graph.in_place(&[of]),
        }
    }

    /// `llama-context.cpp: graph_get_cb @ b10605`: with all layers on cards a norm belongs to its own layer, so that one
    /// tensor less crosses from card to card.
    fn pin(&mut self, normed: Id, block: &Layer<'_>) {
        const FEW_TOKENS: u64 = 32;
        if self.quirks.pins_norms && (self.layers.all_on_cards() || self.tokens < FEW_TOKENS) {
            self.graph.node_mut(normed).pinned = Some(block.place);
        }
    }

    /// `build_lora_mm` and its bias, where the layer has such a weight.
    pub(in crate::compute) fn linear(&mut self, block: &Layer<'_>, role: &str, input: Id) -> Option<Id> {
        let weight = self.part(block, role, WEIGHT)?;
        let product = self.graph.multiply(weight, input);
        let bias = self.part(block, role, BIAS);
        Some(self.biased(product, bias))
    }

    pub(in crate::compute) fn biased(&mut self, of: Id, bias: Option<Id>) -> Id {
        match bias {
            Some(bias) => self.graph.in_place(&[of, bias]),
            None => of,
        }
    }

    pub(in crate::compute) fn weight(&mut self, block: &Layer<'_>, role: &str) -> Option<Id> {
        let (tensor, place) = block.get(role)?;
        Some(self.stored(tensor, place))
    }

    /// A weight by the two halves of its role.
    pub(in crate::compute) fn part(&mut self, block: &Layer<'_>, role: &str, ending: &str) -> Option<Id> {
        let (tensor, place) = block.part(role, ending)?;
        Some(self.stored(tensor, place))
    }

    /// A tensor outside of the layers.
    pub(in crate::compute) fn outer(&mut self, name: &str) -> Option<Id> {
        let (tensor, place) = self.layers.other(name)?;
        Some(self.stored(tensor, place))
    }

    /// Frequencies of the rotary embedding; every device with a layer has a copy.
    pub(in crate::compute) fn rope_factors(&mut self, place: TensorDevice) -> Option<Id> {
        // The reserved context is longer than any short factors apply to.
        let names = ["rope_freqs.weight", "rope_factors_long.weight"];
        let (tensor, _) = names.iter().find_map(|name| self.layers.other(name))?;
        Some(self.stored(tensor, place))
    }

    pub(in crate::compute) fn stored(&mut self, tensor: &Tensor, place: TensorDevice) -> Id {
        // A copy of the weight on another card has the padding of its last row as well.
        let padding = row_padding(tensor.kind, tensor.shape[0]).get();
        let kind = OpKind::Weight(place);
        self.graph.stored(kind, tensor.bytes.get(), padding, tensor.shape)
    }
}
