//! Reader of the memory figures and options that vLLM prints before it loads a model.

use crate::facts::{Facts, Quote, StartupCheck};
use crate::pattern::Pattern;
use crate::sizes::{after, all, behind, count_after};

pub(super) fn read(facts: &mut Facts, pattern: Pattern, text: &str, quote: &Quote) {
    match pattern {
        Pattern::VllmStartup => {
            if let Some(check) = startup(text, quote) {
                facts.startup = Some(check);
            }
        }
        Pattern::VllmFlags => flags(facts, text),
        Pattern::VllmWeights => {
            let names = ["model weights take", "model weights took", "model loading took", "mem usage="];
            let size = names.iter().find_map(|name| after(text, name));
            facts.model.weights = size.or(facts.model.weights);
            // SGLang prints the free memory before the load.
            if text.contains("Load weight begin") {
                facts.add_card_free(after(text, "avail mem="));
            }
        }
        // `the rest of the memory reserved for KV Cache is -0.65GiB`, `Available KV cache memory: -0.65 GiB`.
        Pattern::VllmNoBlocks => {
            let names = ["reserved for kv cache is -", "available kv cache memory: -"];
            let size = names.iter().find_map(|name| after(text, name));
            facts.model.lacking = size.or(facts.model.lacking);
        }
        _ => {}
    }
}

/// `Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization
/// (0.9, 19.84 GiB)`: `vllm/v1/worker/utils.py:request_memory`.
fn startup(text: &str, quote: &Quote) -> Option<StartupCheck> {
    let (before, behind) = text.split_once("on startup")?;
    let pair = &before[before.rfind('(')? + 1..];
    let (free, total) = pair.split_once('/')?;
    let total = all(total).next()?.0;
    // The unit stands after the second number only.
    let free = all(&format!("{} GiB", free.trim())).next()?.0;
    // Some reports break the line here; vLLM's default is nine tenths.
    let wanted = all(behind).next().map_or(total.scaled(9, 10), |(size, _)| size);
    Some(StartupCheck { free, total, wanted, quote: quote.clone() })
}

fn flags(facts: &mut Facts, text: &str) {
    for name in ["gpu-memory-utilization", "gpu_memory_utilization"] {
        let share = behind(text, name).and_then(share);
        facts.options.utilization = share.or(facts.options.utilization);
    }
    // The dump of vLLM's settings has both in one line.
    facts.add_card_size(after(text, "total_gpu_memory"));
    for name in ["tensor-parallel-size", "tensor_parallel_size"] {
        facts.options.parallel = count_after(text, name).or(facts.options.parallel);
    }
}

/// `=0.9`, ` (0.9`, "` to `0.8`": the number within a few characters.
fn share(rest: &str) -> Option<f64> {
    let at = rest.bytes().take(8).position(|byte| byte.is_ascii_digit())?;
    let digits = rest.get(at..)?.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let share = digits.trim_end_matches('.').parse::<f64>().ok()?;
    (0.01..=1.0).contains(&share).then_some(share)
}
