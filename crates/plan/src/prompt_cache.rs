//! Counts the host memory of llama-server's cache of idle prompts (`--cache-ram`), which no plan has.

use plimsoll_base::{Bytes, Card, PromptCache};
use plimsoll_flags::Options;

/// llama-server's own limit (`common.h: cache_ram_mib @ b11063`).
const USUAL: Bytes = Bytes::gib(8);
/// Part of the host's memory for the cache of one engine whose flags say nothing of it.
const PART: (u64, u64) = (1, 16);
const FLAG: &str = "--cache-ram";
/// Flags of engines that answer no prompts.
const WITHOUT: [&str; 2] = ["--embedding", "--rerank"];

/// The most that the engine keeps of idle prompts in the host's memory.
pub fn prompt_cache(flags: &Options, host: &Card) -> PromptCache {
    PromptCache { bytes: bytes(flags, host), is_set: flags.get(FLAG).is_some() }
}

fn bytes(flags: &Options, host: &Card) -> Bytes {
    if WITHOUT.iter().any(|flag| flags.get(flag).is_some()) {
        return Bytes::ZERO;
    }
    match flags.text(FLAG).map(|text| text.trim().parse::<i64>()) {
        Some(Ok(mebibytes)) => match u64::try_from(mebibytes) {
            Ok(mebibytes) => Bytes::mib(1).checked_mul(mebibytes).unwrap_or(Bytes::MAX),
            // No limit: a claim of everything would leave no room for any model.
            Err(_) => USUAL.min(host.total),
        },
        _ => usual_prompt_cache(host),
    }
}

/// The limit that `serve` sets for an engine whose flags give none. In whole MiB, as the engine takes it.
pub fn usual_prompt_cache(host: &Card) -> Bytes {
    Bytes::mib(USUAL.min(host.total.scaled(PART.0, PART.1)).whole_mib())
}
