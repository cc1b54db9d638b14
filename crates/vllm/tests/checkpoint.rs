//! Writes the tensors of a checkpoint from its `config.json`, with the names that published checkpoints have.

use plimsoll_vllm::{DType, Tensor};
use serde_json::Value;

/// Form of the weights of linear layers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Bf16,
    /// 8 bits, with a scale for each output or for each square of 128.
    Fp8,
    /// 4 bits in words of 32, with a 16-bit scale and 4 bits of zero for each 128 inputs.
    Packed,
    Mxfp4,
}

/// Tensors of a checkpoint in this form: `bf16`, `fp8-block`, `fp8-channel`, `awq`, `gptq` or `mxfp4`.
pub(crate) fn checkpoint(config: &Value, form: &str) -> Vec<Tensor> {
    let form = match form {
        "bf16" => Form::Bf16,
        "mxfp4" => Form::Mxfp4,
        "awq" | "gptq" => Form::Packed,
        _ => Form::Fp8,
    };
    let text = config.get("text_config").unwrap_or(config);
    let mut writer = Writer { config: text.clone(), form, tensors: Vec::new() };
    let (hidden, words) = (writer.number("hidden_size"), writer.number("vocab_size"));
    writer.plain("model.embed_tokens.weight", &[words, hidden]);
    if text["tie_word_embeddings"] != true {
        writer.plain("lm_head.weight", &[words, hidden]);
    }
    for layer in 0..writer.number("num_hidden_layers") {
        writer.layer(layer);
    }
    if let Some(vision) = config.get("vision_config") {
        writer.vision(vision, hidden);
    }
    writer.tensors
}

struct Writer {
    config: Value,
    form: Form,
    tensors: Vec<Tensor>,
}

impl Writer {
    fn number(&self, field: &str) -> u64 {
        self.config[field].as_u64().unwrap_or_default()
    }

    fn put(&mut self, name: String, dtype: &str, shape: &[u64], bits: u64) {
        let bytes = (shape.iter().product::<u64>() * bits).div_ceil(8);
        let bytes = plimsoll_base::Bytes::new(bytes);
        self.tensors.push(Tensor {
            name,
            dtype: DType::from_name(dtype).unwrap(),
            shape: shape.to_vec(),
            bytes,
        });
    }

    fn plain(&mut self, name: &str, shape: &[u64]) {
        self.put(name.to_owned(), "BF16", shape, 16);
    }

    /// A linear layer of `inputs` and `outputs`.
    fn linear(&mut self, name: &str, inputs: u64, outputs: u64) {
        match self.form {
            Form::Bf16 | Form::Mxfp4 => self.plain(&format!("{name}.weight"), &[outputs, inputs]),
            Form::Fp8 => {
                self.put(format!("{name}.weight"), "F8_E4M3", &[outputs, inputs], 8);
                self.plain(&format!("{name}.weight_scale"), &[outputs, inputs.div_ceil(4096)]);
            }
            Form::Packed => {
                let groups = inputs.div_ceil(128);
                self.put(format!("{name}.qweight"), "I32", &[inputs / 8, outputs], 32);
                self.put(format!("{name}.qzeros"), "I32", &[groups, outputs / 8], 32);
                self.plain(&format!("{name}.scales"), &[groups, outputs]);
            }
        }
    }

    fn layer(&mut self, layer: u64) {
        let name = format!("model.layers.{layer}");
        let hidden = self.number("hidden_size");
        self.plain(&format!("{name}.input_layernorm.weight"), &[hidden]);
        self.plain(&format!("{name}.post_attention_layernorm.weight"), &[hidden]);
        let kind =
            usize::try_from(layer).ok().and_then(|layer| self.config["layer_types"].get(layer)).cloned();
        if kind.is_some_and(|kind| kind == "linear_attention") {
            self.recurrent(&name);
        } else if self.number("kv_lora_rank") > 0 {
            self.latent(&name);
        } else {
            self.heads(&name);
        }
        let experts =
            self.number("num_experts") + self.number("n_routed_experts") + self.number("num_local_experts");
        if experts > 0 && layer >= self.number("first_k_dense_replace") {
            self.experts(&name, experts);
        } else {
            self.mlp(&format!("{name}.mlp"), hidden, self.number("intermediate_size"));
        }
    }

    fn heads(&mut self, name: &str) {
        let (hidden, heads) = (self.number("hidden_size"), self.number("num_attention_heads"));
        let dim = self.config["head_dim"].as_u64().unwrap_or(hidden / heads);
        let gate = if self.config["attn_output_gate"] == true { 2 } else { 1 };
        let keys = self.number("num_key_value_heads") * dim;
        self.linear(&format!("{name}.self_attn.q_proj"), hidden, heads * dim * gate);
        self.linear(&format!("{name}.self_attn.k_proj"), hidden, keys);
        self.linear(&format!("{name}.self_attn.v_proj"), hidden, keys);
        self.linear(&format!("{name}.self_attn.o_proj"), heads * dim, hidden);
        if self.config["attention_bias"] == true {
            self.plain(&format!("{name}.self_attn.q_proj.bias"), &[heads * dim]);
            self.plain(&format!("{name}.self_attn.k_proj.bias"), &[keys]);
            self.plain(&format!("{name}.self_attn.v_proj.bias"), &[keys]);
        }
    }

    fn latent(&mut self, name: &str) {
        let (hidden, heads) = (self.number("hidden_size"), self.number("num_attention_heads"));
        let (rank, rope) = (self.number("kv_lora_rank"), self.number("qk_rope_head_dim"));
        let (plain, value) = (self.number("qk_nope_head_dim"), self.number("v_head_dim"));
        let queries = self.number("q_lora_rank");
        self.linear(&format!("{name}.self_attn.q_a_proj"), hidden, queries);
        self.linear(&format!("{name}.self_attn.q_b_proj"), queries, heads * (plain + rope));
        self.linear(&format!("{name}.self_attn.kv_a_proj_with_mqa"), hidden, rank + rope);
        self.linear(&format!("{name}.self_attn.kv_b_proj"), rank, heads * (plain + value));
        self.linear(&format!("{name}.self_attn.o_proj"), heads * value, hidden);
    }

    /// A gated delta net: projections of queries, keys, values and gates, a convolution, and the way out.
    fn recurrent(&mut self, name: &str) {
        let hidden = self.number("hidden_size");
        let values = self.number("linear_num_value_heads") * self.number("linear_value_head_dim");
        let keys = self.number("linear_num_key_heads") * self.number("linear_key_head_dim");
        let kernel = self.number("linear_conv_kernel_dim");
        self.linear(&format!("{name}.linear_attn.in_proj_qkv"), hidden, 2 * keys + values);
        self.linear(&format!("{name}.linear_attn.in_proj_z"), hidden, values);
        self.plain(
            &format!("{name}.linear_attn.in_proj_b.weight"),
            &[self.number("linear_num_value_heads"), hidden],
        );
        self.plain(
            &format!("{name}.linear_attn.in_proj_a.weight"),
            &[self.number("linear_num_value_heads"), hidden],
        );
        self.plain(&format!("{name}.linear_attn.conv1d.weight"), &[2 * keys + values, 1, kernel]);
        self.linear(&format!("{name}.linear_attn.out_proj"), values, hidden);
    }

    fn mlp(&mut self, name: &str, hidden: u64, inner: u64) {
        self.linear(&format!("{name}.gate_proj"), hidden, inner);
        self.linear(&format!("{name}.up_proj"), hidden, inner);
        self.linear(&format!("{name}.down_proj"), inner, hidden);
    }

    /// All experts of a layer as one tensor for each matrix, since the sizes are the same.
    fn experts(&mut self, name: &str, experts: u64) {
        let hidden = self.number("hidden_size");
        let inner = self.config["moe_intermediate_size"].as_u64().unwrap_or(self.number("intermediate_size"));
        self.plain(&format!("{name}.mlp.gate.weight"), &[experts, hidden]);
        if self.form == Form::Mxfp4 {
            for (part, outputs, inputs) in [("gate_up_proj", 2 * inner, hidden), ("down_proj", hidden, inner)]
            {
                let part = format!("{name}.mlp.experts.{part}");
                self.put(format!("{part}_blocks"), "U8", &[experts, outputs, inputs / 2], 8);
                self.put(format!("{part}_scales"), "U8", &[experts, outputs, inputs / 32], 8);
                self.plain(&format!("{part}_bias"), &[experts, outputs]);
            }
            return;
        }
        self.mlp(&format!("{name}.mlp.experts.all"), hidden, inner * experts);
        let shared = self.number("n_shared_experts") * inner + self.number("shared_expert_intermediate_size");
        if shared > 0 {
            self.mlp(&format!("{name}.mlp.shared_experts"), hidden, shared);
        }
    }

    fn vision(&mut self, vision: &Value, hidden: u64) {
        let of = |field: &str| vision[field].as_u64().unwrap_or_default();
        let (wide, inner) = (of("hidden_size"), of("intermediate_size"));
        for layer in 0..of("depth") + of("num_hidden_layers") {
            let name = format!("model.visual.blocks.{layer}");
            self.plain(&format!("{name}.attn.qkv.weight"), &[3 * wide, wide]);
            self.plain(&format!("{name}.attn.proj.weight"), &[wide, wide]);
            self.plain(&format!("{name}.mlp.linear_fc1.weight"), &[inner, wide]);
            self.plain(&format!("{name}.mlp.linear_fc2.weight"), &[wide, inner]);
        }
        self.plain("model.visual.merger.linear_fc1.weight", &[4 * wide, 4 * wide]);
        self.plain("model.visual.merger.linear_fc2.weight", &[hidden, 4 * wide]);
    }
}
