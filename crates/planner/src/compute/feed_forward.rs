//! Builds the feed-forward half of a layer in the compute graph: a dense network or a mixture of experts.
//!
//! The code mirrors `llama-graph.cpp: build_ffn, build_moe_ffn @ b10605`.

use std::ops::RangeInclusive;

use crate::compute::{BIAS, Decoder, I32, Id, WEIGHT};

/// Roles of a dense network: up, gate, down.
const DENSE: [&str; 3] = ["ffn_up", "ffn_gate", "ffn_down"];
const SHARED: [&str; 3] = ["ffn_up_shexp", "ffn_gate_shexp", "ffn_down_shexp"];

/// `LLAMA_MAX_EXPERTS`; the engine refuses more.
const MOST_EXPERTS: u64 = 512;

/// Experts of a token whose outputs one kernel weighs and sums (`ggml-cuda.cu:
/// ggml_cuda_match_moe_weighted_reduction @ b11063`).
const SUMMED_AT_ONCE: RangeInclusive<u64> = 2..=15;

/// True if one kernel chooses of so many experts (`topk-moe.cu: ggml_cuda_should_use_topk_moe @ b11063`).
const fn chosen_at_once(experts: u64) -> bool {
    experts.is_power_of_two() && experts <= MOST_EXPERTS || matches!(experts, 288 | 576)
}

impl Decoder<'_> {
    /// Everything between the second norm and the residual sum.
    pub(super) fn feed_forward(&mut self, input: Id) -> Id {
        if !self.block().has("ffn_gate_inp.weight") {
            return self.dense(input, DENSE);
        }
        let experts = self.experts(input);
        if !self.block().has("ffn_up_shexp.weight") {
            return experts;
        }
        let mut shared = self.dense(input, SHARED);
        if let Some(gate) = self.weight("ffn_gate_inp_shexp.weight") {
            let gate = self.graph.multiply(gate, input);
            let gate = self.graph.in_place(&[gate]);
            shared = self.graph.in_place(&[shared, gate]);
        }
        self.graph.in_place(&[experts, shared])
    }

    fn dense(&mut self, input: Id, roles: [&str; 3]) -> Id {
        let [up, gate, down] = roles;
        let Some(up) = self.linear(up, input) else { return input };
        let mut half = self.graph.shape(up);
        let active = match self.linear(gate, input) {
            Some(gate) => self.graph.own_like(up, &[gate, up]),
            None => match self.block().part(down, WEIGHT) {
                // Gate and up are the halves of one matrix (Phi 3, ModernBERT).
                Some((down, _)) if down.shape[0].saturating_mul(2) == half[0] => {
                    half[0] = down.shape[0];
                    self.graph.own(half, &[up])
                }
                _ => self.graph.in_place(&[up]),
            },
        };
        self.linear(down, active).unwrap_or(active)
    }

    fn experts(&mut self, input: Id) -> Id {
        let [width, tokens, ..] = self.graph.shape(input);
        let Some(hyper) = &self.layers.model.hyper.experts else { return input };
        let count = u64::from(hyper.count).max(1);
        let used = u64::from(hyper.used).clamp(1, MOST_EXPERTS);
        let (odds, chosen, weights) = self.route(input, [count, used, tokens]);
        self.graph.expand(weights);
        let input = self.graph.view(input, [width, 1, tokens, 1]);
        if self.quirks.keeps_experts && !self.variant.late_softmax && chosen_at_once(count) {
            let routing = self.graph.between(odds, weights);
            self.graph.keep(routing, input);
        }
        let active = self.expert_activation(input, chosen);
        let Some(mut outputs) = self.expert_linear("ffn_down_exps", active, chosen) else {
            return input;
        };
        let plain = outputs;
        outputs = self.graph.in_place(&[outputs, weights]);
        self.graph.expand(outputs);
        let sum = self.sum_experts(outputs, used);
        if self.quirks.keeps_experts && SUMMED_AT_ONCE.contains(&used) {
            self.graph.keep([plain, weights], sum);
        }
        sum
    }

    /// The odds of all experts, the chosen ones and their weights.
    fn route(&mut self, input: Id, [count, used, tokens]: [u64; 3]) -> (Id, Id, Id) {
        let late_softmax = self.variant.late_softmax;
        let mut odds = self.linear("ffn_gate_inp", input).unwrap_or(input);
        let first = odds;
        if !late_softmax {
            odds = self.graph.in_place(&[odds]);
        }
        // The bias decides the choice alone; the weights come from the odds without it (DeepSeek V3).
        let bias = self.weight("exp_probs_b.bias");
        let ranked = self.biased(odds, bias);
        let sorted = self.graph.own_of(I32, [count, tokens, 1, 1], &[ranked]);
        let chosen = self.graph.view(sorted, [used, tokens, 1, 1]);
        let odds = self.graph.view(odds, [1, count, tokens, 1]);
        let weights = self.graph.gather([1, used, tokens, 1], odds, chosen);
        let mut weights = self.graph.view(weights, [used, tokens, 1, 1]);
        if late_softmax {
            weights = self.graph.in_place(&[weights]);
        } else if !self.variant.keeps_weights {
            let sum = self.graph.own([1, tokens, 1, 1], &[weights]);
            // The sum is clamped, so that no weight is divided by zero.
            let sum = if self.quirks.clamps_views {
                self.graph.overwrite(&[sum], sum)
            } else {
                self.graph.in_place(&[sum])
            };
            weights = self.graph.in_place(&[weights, sum]);
        }
        weights = self.graph.view(weights, [1, used, tokens, 1]);
        let experts = self.layers.model.hyper.experts.as_ref();
        if experts.is_some_and(|experts| experts.scales_weights) {
            weights = self.graph.in_place(&[weights]);
        }
        (first, chosen, weights)
    }

    fn expert_activation(&mut self, input: Id, chosen: Id) -> Id {
        if let Some(both) = self.expert_linear("ffn_gate_up_exps", input, chosen) {
            let [width, used, tokens, _] = self.graph.shape(both);
            let half = [width / 2, used, tokens, 1];
            let [gate, up] = [(); 2].map(|()| self.graph.view(both, half));
            return self.graph.own(half, &[gate, up]);
        }
        if let Some(active) = self.fused_activation(input, chosen) {
            return active;
        }
        let Some(up) = self.expert_linear("ffn_up_exps", input, chosen) else { return input };
        match self.expert_linear("ffn_gate_exps", input, chosen) {
            Some(gate) => self.graph.own_like(gate, &[gate, up]),
            None => self.graph.in_place(&[up]),
        }
    }

    /// `llama-build-context.cpp: llm_build_moe_ffn` of ik_llama.cpp (8337e4cd): where gate and up are of one
    /// type.
    fn fused_activation(&mut self, input: Id, chosen: Id) -> Option<Id> {
        let [up, gate] = ["ffn_up_exps", "ffn_gate_exps"].map(|role| self.block().part(role, WEIGHT));
        if !self.quirks.fuses_experts || up?.0.kind != gate?.0.kind {
            return None;
        }
        let [up, gate] = [up?, gate?].map(|(tensor, place)| self.stored(tensor, place));
        // `ggml_moe_up_gate` computes two products for each expert of a token and keeps one result.
        let product = self.graph.multiply_experts(up, input, chosen);
        self.graph.node_mut(product).sources[3] = Some(gate);
        Some(self.share_batch(product, chosen))
    }

    fn expert_linear(&mut self, role: &str, input: Id, chosen: Id) -> Option<Id> {
        let weight = self.part(role, WEIGHT)?;
        let product = self.graph.multiply_experts(weight, input, chosen);
        let product = self.share_batch(product, chosen);
        let bias = self.part(role, BIAS);
        Some(bias.map_or(product, |bias| self.graph.in_place(&[product, bias, chosen])))
    }

    /// `ggml-cuda.cu: ggml_backend_cuda_offload_op` of ik_llama.cpp (8337e4cd).
    fn share_batch(&mut self, product: Id, chosen: Id) -> Id {
        let experts = self.layers.model.hyper.experts.as_ref();
        let count = experts.map_or(1, |experts| u64::from(experts.count).max(1));
        if self.quirks.is_lean {
            // An expert sees only its share of the batch, for which copying all experts may not be worth it.
            let [used, tokens, ..] = self.graph.shape(chosen);
            self.graph.node_mut(product).batch = tokens.saturating_mul(used) / count;
        }
        product
    }

    /// Sums the experts' outputs. Each output has one view, and all views precede the first sum.
    fn sum_experts(&mut self, outputs: Id, used: u64) -> Id {
        let [width, _, tokens, _] = self.graph.shape(outputs);
        let shape = [width, tokens, 1, 1];
        let views: Vec<Id> = (0..used).map(|_| self.graph.view(outputs, shape)).collect();
        for &view in &views {
            self.graph.expand(view);
        }
        match views.split_first() {
            None => outputs,
            // A single expert's view is no tensor of its own yet, so the engine copies it.
            Some((&only, [])) => self.graph.own(shape, &[only]),
            Some((&first, rest)) => rest.iter().fold(first, |sum, &view| {
                let sum = self.graph.in_place(&[sum, view]);
                self.graph.expand(sum);
                sum
            }),
        }
    }
}
