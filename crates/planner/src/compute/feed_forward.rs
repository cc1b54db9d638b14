//! The feed-forward half of a layer, dense or of experts.
//!
//! Mirrors `llama-graph.cpp: build_ffn, build_moe_ffn @ b10605`.

use super::decoder::{BIAS, Decoder, WEIGHT};
use super::graph::{F32, I32, TensorId};
use super::sketch::ModelBlock;

/// The tensors of a dense network, by their roles.
struct Roles {
    up: &'static str,
    gate: &'static str,
    down: &'static str,
}

const DENSE: Roles = Roles {
    up: "ffn_up",
    gate: "ffn_gate",
    down: "ffn_down",
};
const SHARED: Roles = Roles {
    up: "ffn_up_shexp",
    gate: "ffn_gate_shexp",
    down: "ffn_down_shexp",
};

impl Decoder<'_> {
    /// Everything between the second norm and the residual sum.
    pub(super) fn feed_forward(&mut self, block: &ModelBlock<'_>, input: TensorId) -> TensorId {
        if !block.has("ffn_gate_inp.weight") {
            return self.dense(block, input, &DENSE);
        }
        let experts = self.experts(block, input);
        if !block.has("ffn_up_shexp.weight") {
            return experts;
        }
        let mut shared = self.dense(block, input, &SHARED);
        if let Some(gate) = self.weight(block, "ffn_gate_inp_shexp.weight") {
            let gate = self.graph.multiply(gate, input);
            let gate = self.graph.in_place(&[gate]);
            shared = self.graph.in_place(&[shared, gate]);
        }
        self.graph.in_place(&[experts, shared])
    }

    fn dense(&mut self, block: &ModelBlock<'_>, input: TensorId, roles: &Roles) -> TensorId {
        let up = self.linear(block, roles.up, input);
        let Some(up) = up else {
            return input;
        };
        let width = self.graph.shape(up);
        let active = match self.linear(block, roles.gate, input) {
            Some(gate) => self.graph.own(F32, width, &[gate, up]),
            None => match block.part(roles.down, WEIGHT) {
                // gate and up are the halves of one matrix
                Some((down, _)) if down.shape[0].saturating_mul(2) == width[0] => {
                    let half = [down.shape[0], width[1], width[2], width[3]];
                    self.graph.own(F32, half, &[up])
                }
                _ => self.graph.in_place(&[up]),
            },
        };
        self.linear(block, roles.down, active).unwrap_or(active)
    }

    fn experts(&mut self, block: &ModelBlock<'_>, input: TensorId) -> TensorId {
        let [width, tokens, ..] = self.graph.shape(input);
        let Some(hyper) = &self.sketch.model.hyper.experts else {
            return input;
        };
        let (count, used) = (
            u64::from(hyper.count).max(1),
            u64::from(hyper.used).clamp(1, MOST_EXPERTS),
        );
        let (chosen, weights) = self.route(block, input, [count, used, tokens]);
        self.graph.expand(weights);
        let input = self.graph.view(input, [width, 1, tokens, 1]);
        let active = self.expert_activation(block, input, chosen);
        let Some(mut outputs) = self.expert_linear(block, "ffn_down_exps", active, chosen) else {
            return input;
        };
        outputs = self.graph.in_place(&[outputs, weights]);
        self.graph.expand(outputs);
        self.sum_experts(outputs, used)
    }

    /// The chosen experts and their weights.
    fn route(
        &mut self,
        block: &ModelBlock<'_>,
        input: TensorId,
        [count, used, tokens]: [u64; 3],
    ) -> (TensorId, TensorId) {
        let late_softmax = self.sketch.model.architecture == "gpt-oss";
        let logits = self.linear(block, "ffn_gate_inp", input).unwrap_or(input);
        let odds = if late_softmax {
            logits
        } else {
            self.graph.in_place(&[logits])
        };
        let ranked = match self.weight(block, "exp_probs_b.bias") {
            Some(bias) => self.graph.in_place(&[odds, bias]),
            None => odds,
        };
        let sorted = self.graph.own(I32, [count, tokens, 1, 1], &[ranked]);
        let chosen = self.graph.view(sorted, [used, tokens, 1, 1]);
        let odds = self.graph.view(odds, [1, count, tokens, 1]);
        let weights = self.graph.gather([1, used, tokens, 1], odds, chosen);
        let weights = self.graph.view(weights, [used, tokens, 1, 1]);
        let weights = if late_softmax {
            self.graph.in_place(&[weights])
        } else if !self.variant.weighs_experts {
            weights
        } else {
            let sum = self.graph.own(F32, [1, tokens, 1, 1], &[weights]);
            let sum = match self.quirks.clamps_views {
                true => self.graph.overwrite(&[sum], sum),
                false => self.graph.in_place(&[sum]),
            };
            self.graph.in_place(&[weights, sum])
        };
        let mut weights = self.graph.view(weights, [1, used, tokens, 1]);
        let experts = self.sketch.model.hyper.experts.as_ref();
        if experts.is_some_and(|experts| experts.scales_weights) {
            weights = self.graph.in_place(&[weights]);
        }
        (chosen, weights)
    }

    fn expert_activation(&mut self, block: &ModelBlock<'_>, input: TensorId, chosen: TensorId) -> TensorId {
        if let Some(both) = self.expert_linear(block, "ffn_gate_up_exps", input, chosen) {
            let [width, used, tokens, _] = self.graph.shape(both);
            let half = [width / 2, used, tokens, 1];
            let gate = self.graph.view(both, half);
            let up = self.graph.view(both, half);
            return self.graph.own(F32, half, &[gate, up]);
        }
        if let Some(active) = self.fused_activation(block, input, chosen) {
            return active;
        }
        let Some(up) = self.expert_linear(block, "ffn_up_exps", input, chosen) else {
            return input;
        };
        match self.expert_linear(block, "ffn_gate_exps", input, chosen) {
            Some(gate) => {
                let shape = self.graph.shape(gate);
                self.graph.own(F32, shape, &[gate, up])
            }
            None => self.graph.in_place(&[up]),
        }
    }

    /// `llama-build-context.cpp: llm_build_moe_ffn` of ik_llama.cpp (8337e4cd): where gate and up are of one type.
    fn fused_activation(
        &mut self,
        block: &ModelBlock<'_>,
        input: TensorId,
        chosen: TensorId,
    ) -> Option<TensorId> {
        let (up, _) = block.get("ffn_up_exps.weight")?;
        let (gate, _) = block.get("ffn_gate_exps.weight")?;
        if !self.quirks.fuses_experts || up.kind != gate.kind {
            return None;
        }
        let up = self.weight(block, "ffn_up_exps.weight")?;
        let gate = self.weight(block, "ffn_gate_exps.weight")?;
        let product = self.graph.multiply_both(up, gate, input, chosen);
        Some(self.weighed(product, chosen))
    }

    fn expert_linear(
        &mut self,
        block: &ModelBlock<'_>,
        role: &str,
        input: TensorId,
        chosen: TensorId,
    ) -> Option<TensorId> {
        let weight = self.part(block, role, WEIGHT)?;
        let product = self.graph.multiply_experts(weight, input, chosen);
        let product = self.weighed(product, chosen);
        Some(match self.part(block, role, BIAS) {
            Some(bias) => self.graph.in_place(&[product, bias, chosen]),
            None => product,
        })
    }

    /// `ggml-cuda.cu: ggml_backend_cuda_offload_op` of ik_llama.cpp (8337e4cd).
    fn weighed(&mut self, product: TensorId, chosen: TensorId) -> TensorId {
        let count = self
            .sketch
            .model
            .hyper
            .experts
            .as_ref()
            .map_or(1, |experts| experts.count);
        if self.quirks.shares_batch {
            let [used, tokens, ..] = self.graph.shape(chosen);
            let share = tokens.saturating_mul(used) / u64::from(count).max(1);
            self.graph.count_batch(product, share);
        }
        product
    }

    /// One view of each expert's output, all in order before the first sum.
    fn sum_experts(&mut self, outputs: TensorId, used: u64) -> TensorId {
        let [width, _, tokens, _] = self.graph.shape(outputs);
        let views: Vec<TensorId> = (0..used)
            .map(|_| self.graph.view(outputs, [width, tokens, 1, 1]))
            .collect();
        for &view in &views {
            self.graph.expand(view);
        }
        let Some((&first, rest)) = views.split_first() else {
            return outputs;
        };
        if rest.is_empty() {
            return self.graph.own(F32, [width, tokens, 1, 1], &[first]);
        }
        rest.iter().fold(first, |sum, &view| {
            let sum = self.graph.in_place(&[sum, view]);
            self.graph.expand(sum);
            sum
        })
    }
}

/// `LLAMA_MAX_EXPERTS`; the engine refuses more.
const MOST_EXPERTS: u64 = 512;
