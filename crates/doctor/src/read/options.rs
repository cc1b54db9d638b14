//! What an engine was asked for, and what it counted before it loaded: options on its command line, sizes of its model.

use plimsoll_base::Bytes;

use crate::evidence::Evidence;
use crate::saying::Saying;
use crate::sizes::{after, behind, count, count_after};

const MOST: usize = 64;

pub(super) fn read(evidence: &mut Evidence, saying: Saying, text: &str) {
    match saying {
        Saying::MicroBatch => micro_batch(evidence, text),
        Saying::ContextTokens => context_tokens(evidence, text),
        Saying::ModelSize => model_size(evidence, text),
        Saying::OllamaCard => ollama_card(evidence, text),
        Saying::VllmFlags => vllm_flags(evidence, text),
        Saying::VllmWeights => {
            let names = ["model weights take", "model weights took", "model loading took"];
            evidence.weights = names
                .iter()
                .find_map(|name| after(text, name))
                .or(evidence.weights);
        }
        _ => {}
    }
}

/// `-ub 8192`, `--ubatch-size 8192`, `n_ubatch = 8192`.
fn micro_batch(evidence: &mut Evidence, text: &str) {
    let tokens = ["-ub ", "--ubatch-size", "n_ubatch"]
        .iter()
        .filter_map(|name| count(behind(text, name)?.trim_start_matches([' ', '='])));
    evidence.micro_batch = evidence.micro_batch.max(tokens.max());
}

/// `-c 131072`, `--ctx-size 131072`, `n_ctx = 131072`, `num_ctx: 131072`, `--max-model-len=131072`, `max_model_len=131072`.
fn context_tokens(evidence: &mut Evidence, text: &str) {
    let names = [
        "-c ",
        "--ctx-size",
        "n_ctx ",
        "num_ctx",
        "max-model-len",
        "max_model_len",
        "context_length",
        "context-length",
        "max_seq_len",
    ];
    let tokens = names
        .iter()
        .filter_map(|name| count(behind(text, name)?.trim_start_matches([' ', '=', ':', '"'])));
    evidence.context_tokens = evidence.context_tokens.max(tokens.max());
}

/// `model size       = 38.00 GiB (4.82 BPW)`, `file size   = 4.58 GiB`.
fn model_size(evidence: &mut Evidence, text: &str) {
    let size = ["model size", "file size"]
        .iter()
        .find_map(|name| after(text, name));
    evidence.model = evidence.model.max(size.filter(|size| *size >= Bytes::mib(256)));
}

/// `msg="inference compute" … total="24.0 GiB" available="22.4 GiB"`.
fn ollama_card(evidence: &mut Evidence, text: &str) {
    if let Some(total) =
        after(text, "total=").filter(|_| evidence.cards.len() < MOST && !text.contains("library=cpu"))
    {
        evidence.cards.push(total);
    }
    evidence.card_free = evidence.card_free.max(after(text, "available="));
}

fn vllm_flags(evidence: &mut Evidence, text: &str) {
    for name in ["gpu-memory-utilization", "gpu_memory_utilization"] {
        let share = behind(text, name).map(|rest| rest.trim_start_matches([' ', '=', '(']));
        let digits = share.map(|rest| rest.split(|c: char| !c.is_ascii_digit() && c != '.').next());
        let share = digits.flatten().and_then(|word| word.parse::<f64>().ok());
        evidence.utilization = share
            .filter(|share| (0.01..=1.0).contains(share))
            .or(evidence.utilization);
    }
    if let Some(total) = after(text, "total_gpu_memory").filter(|_| evidence.cards.len() < MOST) {
        evidence.cards.push(total);
    }
    for name in ["tensor-parallel-size", "tensor_parallel_size"] {
        evidence.parallel = count_after(text, name).or(evidence.parallel);
    }
}
