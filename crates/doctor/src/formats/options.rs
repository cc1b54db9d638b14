//! Reader of an engine's command-line options in a log, and of the size of its model file.

use plimsoll_base::Bytes;

use super::words::words;
use crate::facts::Facts;
use crate::pattern::Pattern;
use crate::sizes::{after, behind, count, count_after};

pub(super) fn read(facts: &mut Facts, pattern: Pattern, text: &str) {
    match pattern {
        Pattern::MicroBatch => {
            let tokens = largest(text, &["-ub ", "--ubatch-size", "n_ubatch"]);
            facts.options.micro_batch = facts.options.micro_batch.max(tokens);
        }
        Pattern::ContextTokens => {
            let names: Vec<&str> = words("context").iter().map(|(name, _)| *name).collect();
            facts.options.context_tokens = facts.options.context_tokens.max(largest(text, &names));
        }
        // `… can be stored in KV cache (45120)`, `the estimated maximum model length is 45120`:
        // `vllm/v1/core/kv_cache_utils.py:_check_enough_kv_cache_memory`.
        Pattern::LongestContext => {
            let names = ["can be stored in kv cache", "maximum model length is"];
            let tokens = names.iter().find_map(|name| count_after(text, name));
            facts.options.longest_context = tokens.or(facts.options.longest_context);
        }
        // `print_info: n_layer = 32`: the output layer is counted by -ngl as one more.
        Pattern::Layers => {
            let layers = count_after(text, "n_layer ").filter(|layers| (1..1000).contains(layers));
            facts.options.layers = layers.map(|layers| layers + 1).or(facts.options.layers);
        }
        // A draft model's context has sequences of its own, never more.
        Pattern::Slots => {
            let slots = count_after(text, "n_seq_max ").filter(|slots| (1..=4096).contains(slots));
            facts.options.slots = facts.options.slots.max(slots);
        }
        Pattern::ModelWidth => {
            let size = |name| count_after(text, name).filter(|size| (1..1 << 24).contains(size));
            let model = &mut facts.model;
            model.vocabulary = model.vocabulary.max(size("n_vocab "));
            model.embedding = model.embedding.max(size("n_embd "));
            model.is_dense |= count_after(text, "n_expert ") == Some(0);
        }
        // `model size       = 38.00 GiB (4.82 BPW)`, `file size   = 4.58 GiB`:
        // `llama-model-loader.cpp:print_info`.
        Pattern::ModelSize => {
            let size = ["model size", "file size"].iter().find_map(|name| after(text, name));
            let size = size.filter(|size| *size >= Bytes::mib(256));
            facts.model.file = facts.model.file.max(size);
        }
        _ => {}
    }
}

/// The largest number after one of `names`: `-c 131072`, `n_ctx = 131072`, `num_ctx: 131072`.
fn largest(text: &str, names: &[&str]) -> Option<u64> {
    let numbers =
        names.iter().filter_map(|name| count(behind(text, name)?.trim_start_matches([' ', '=', ':', '"'])));
    numbers.max()
}
