//! Counts the kernels of a layer from its tensors.
//!
//! The counts are those of the graphs of `llama-graph.cpp` and `src/models/*.cpp @ 0.5.0`.

use plimsoll_model::{HyperParameters, Tensor};

use super::work::AttentionWork;

pub(super) mod kernels {
    /// A product, and the kernel before it that quantises the activations.
    pub(in super::super) const PRODUCT: u64 = 2;
    /// A norm with its weight, a residual sum, or a product with plain floats.
    pub(in super::super) const ONE: u64 = 1;
    /// Rotation of the queries, rotation and storing of the keys, storing of the values, attention, and the
    /// sum of its parts.
    pub(super) const ATTENTION: u64 = 5;
    /// The gate of attention (Qwen 3.5): copied, activated, multiplied.
    pub(super) const GATE: u64 = 3;
    /// `mamba-base.cpp: build_mamba2_layer`.
    pub(super) const MAMBA: u64 = 14;
    /// `delta-net-base.cpp`, `qwen35.cpp: build_layer_attn_linear`.
    pub(super) const DELTA_NET: u64 = 16;
    /// The choice of experts, and the weighted sum of their outputs.
    pub(super) const ROUTING: u64 = 2;
}

/// Vectors and convolutions of a state, which are no matrices though their tensors have two dimensions.
const STATE: [&str; 4] = ["ssm_conv1d.weight", "ssm_a", "ssm_d", "ssm_norm.weight"];

/// The matrix that is multiplied together with its gate (`ggml-cuda.cu: ggml_cuda_should_fuse_mul_mat @
/// 0.5.0`).
const PAIRS: [[&str; 2]; 3] = [
    ["ffn_up.weight", "ffn_gate.weight"],
    ["ffn_up_exps.weight", "ffn_gate_exps.weight"],
    ["ffn_up_shexp.weight", "ffn_gate_shexp.weight"],
];

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
        let mut kernels = 2 * kernels::ONE;
        if self.has("ssm_in.weight") {
            kernels += kernels::MAMBA;
        } else if self.has("ssm_beta.weight") || self.has("ssm_ba.weight") {
            kernels += kernels::DELTA_NET;
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
