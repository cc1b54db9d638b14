//! Counts the kernels of a layer from its tensors.
//!
//! The counts are those of the graphs of `llama-graph.cpp` and `src/models/*.cpp @ 0.5.0`.

use plimsoll_model::{HyperParameters, Tensor};

use super::formats::Product;
use super::work::AttentionWork;

/// Kernels of a token, in thousandths of one of a narrow norm.
pub(super) mod kernels {
    /// A product, and the kernel before it that quantises the activations.
    pub(in super::super) const PRODUCT: u64 = 1720;
    /// A product with plain floats.
    pub(in super::super) const FLOATS: u64 = 1500;
    /// A norm with its weight, or a residual sum.
    pub(in super::super) const ONE: u64 = 1000;
    /// Elements that a norm or a sum reads for a thousandth more.
    pub(in super::super) const WIDTH: u64 = 9;
    /// Rotation of the queries, rotation and storing of the keys, storing of the values, attention, and the
    /// sum of its parts.
    pub(super) const ATTENTION: u64 = 5 * ONE;
    /// The gate of attention (Qwen 3.5): copied, activated, multiplied.
    pub(super) const GATE: u64 = 3 * ONE;
    /// `mamba-base.cpp: build_mamba2_layer`: 13 kernels, of which the scan goes over its state in steps.
    pub(super) const MAMBA: u64 = 18 * ONE;
    /// `lfm2.cpp: build_shortconv_block`: two products by elements, the state's copies, the convolution.
    pub(super) const SHORT_CONVOLUTION: u64 = 7 * ONE;
    /// `delta-net-base.cpp`, `qwen35.cpp: build_layer_attn_linear`.
    pub(super) const DELTA_NET: u64 = 16 * ONE;
    /// The choice of experts, and the weighted sum of their outputs.
    pub(super) const ROUTING: u64 = 2 * ONE;
}

/// Vectors and convolutions of a state, which are no matrices though their tensors have two dimensions.
const STATE: [&str; 5] = ["ssm_conv1d.weight", "ssm_a", "ssm_d", "ssm_norm.weight", "shortconv.conv.weight"];

/// The matrix that is multiplied together with its gate (`ggml-cuda.cu: ggml_cuda_should_fuse_mul_mat @
/// 0.5.0`).
const PAIRS: [[&str; 2]; 3] = [
    ["ffn_up.weight", "ffn_gate.weight"],
    ["ffn_up_exps.weight", "ffn_gate_exps.weight"],
    ["ffn_up_shexp.weight", "ffn_gate_shexp.weight"],
];

/// Bytes of an element of a state.
const F32: u64 = 4;

/// The tensors of one layer.
#[derive(Clone, Debug, Default)]
pub(super) struct LayerTensors<'a>(pub(super) Vec<&'a Tensor>);

impl<'a> LayerTensors<'a> {
    /// The matrices by which a token is multiplied.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &'a Tensor> {
        let is_matrix = |tensor: &&Tensor| {
            let role = tensor.role().unwrap_or_default();
            tensor.shape[1] > 1 && role.ends_with(".weight") && !STATE.contains(&role)
        };
        self.0.iter().copied().filter(is_matrix)
    }

    pub(super) fn is_fused(&self, tensor: &Tensor) -> bool {
        PAIRS.iter().any(|[up, gate]| tensor.role() == Some(up) && self.has(gate))
    }

    /// The kernel by which a matrix is multiplied.
    pub(super) fn product(&self, tensor: &Tensor) -> Product {
        let is_of = |role: &&str| tensor.role() == Some(*role);
        let is_pair = |pair: &[&str; 2]| pair.iter().any(is_of) && pair.iter().all(|role| self.has(role));
        if tensor.kind.quantised() && PAIRS.iter().any(is_pair) { Product::Pair } else { Product::Single }
    }

    pub(super) fn attends(&self) -> bool {
        self.has("attn_output.weight") || self.has("attn_k.weight")
    }

    fn has(&self, role: &str) -> bool {
        self.rows(role).is_some()
    }

    fn rows(&self, role: &str) -> Option<u64> {
        self.0.iter().find(|tensor| tensor.role() == Some(role)).map(|tensor| tensor.shape[1])
    }

    /// Kernels besides those of the matrices.
    pub(super) fn kernels(&self, hyper: &HyperParameters, attention: Option<&AttentionWork>) -> u64 {
        // The norm before the mixer and the residual sum behind it.
        let width = u64::from(hyper.embedding) / kernels::WIDTH;
        let mut kernels = 2 * (kernels::ONE + width);
        if self.has("ssm_in.weight") {
            kernels += kernels::MAMBA;
        } else if self.has("ssm_beta.weight") || self.has("ssm_ba.weight") {
            kernels += kernels::DELTA_NET;
        } else if self.has("shortconv.in_proj.weight") {
            kernels += kernels::SHORT_CONVOLUTION;
        }
        if hyper.scales_residual {
            kernels += 2 * kernels::ONE;
        }
        if let Some(attention) = attention {
            kernels += kernels::ATTENTION;
            let gated = attention.heads.saturating_mul(attention.length).saturating_mul(2);
            if self.rows("attn_q.weight") == Some(gated) {
                kernels += kernels::GATE;
            }
        }
        kernels + self.feed_forward(hyper)
    }

    /// Bytes of the state that a token reads and writes: the scan, and a copy to its place that the delta net
    /// does by itself (`ggml-cuda.cu: ggml_cuda_try_gdn_cache_fusion @ 0.5.0`).
    pub(super) fn state_bytes(&self, hyper: &HyperParameters) -> u64 {
        let passes = match (self.has("ssm_in.weight"), self.has("ssm_out.weight")) {
            (true, _) => 4,
            (false, true) => 2,
            (false, false) => 0,
        };
        let state = hyper.recurrent.as_ref().map_or(0, |recurrent| recurrent.state);
        state.saturating_mul(F32).saturating_mul(passes)
    }

    fn feed_forward(&self, hyper: &HyperParameters) -> u64 {
        // Without a gate the activation is a kernel of its own; shared experts are added to the routed ones.
        let activates = self.has("ffn_up.weight") && !self.has("ffn_gate.weight");
        let routes = self.has("ffn_gate_inp.weight") && hyper.experts.is_some();
        let counts = [
            (self.has("ffn_norm.weight") || self.has("post_attention_norm.weight"), kernels::ONE),
            (routes, kernels::ROUTING),
            (activates, kernels::ONE),
            (self.has("ffn_up_shexp.weight"), kernels::ONE),
            (self.has("ffn_down.weight") || self.has("ffn_down_exps.weight"), kernels::ONE),
        ];
        counts.into_iter().filter(|(counts, _)| *counts).map(|(_, kernels)| kernels).sum()
    }
}
