//! Reader of log lines of llama.cpp and other ggml programs: refused and allocated buffers, progress.
//!
//! ggml reports a refusal in up to three lines: first size and device, then buffer and purpose.

use plimsoll_base::Bytes;

use crate::facts::{Facts, FailedAllocation, LineSource, LoadStage, MemoryPlace, Purpose, Quote};
use crate::pattern::Pattern;
use crate::sizes::{after, all, count_after};

/// Lines between the refusal and its purpose.
const CLOSE: u64 = 12;

pub(super) fn read(facts: &mut Facts, pattern: Pattern, text: &str, quote: &Quote) {
    match pattern {
        Pattern::CardRefused | Pattern::VulkanRefused | Pattern::HostRefused | Pattern::BufferRefused => {
            device_refused(facts, pattern, text, quote);
        }
        // TensorFlow prints the size first and the driver's word after it, in one line.
        Pattern::RuntimeRefused if text.contains(" from device: ") => {}
        Pattern::RuntimeRefused => open(facts, MemoryPlace::Card, None, text, quote, true),
        Pattern::WeightsRefused => name_purpose(facts, of_tensors(facts.progress.stage, text), text, quote),
        Pattern::CacheRefused => name_purpose(facts, Purpose::Cache, text, quote),
        // ggml's scheduler reserves a larger graph after this line, and goes on.
        Pattern::GraphRefused if text.contains("graph, reserving") => {}
        Pattern::ComputeRefused | Pattern::GraphRefused => name_purpose(facts, Purpose::Compute, text, quote),
        Pattern::OutputRefused => name_purpose(facts, Purpose::Output, text, quote),
        Pattern::InPool | Pattern::PoolFunction => statement(facts, Purpose::Pool, quote),
        Pattern::VaReservation => statement(facts, Purpose::Address, quote),
        Pattern::InFunction => statement(facts, Purpose::Unknown, quote),
        Pattern::WorkingSet => working_set(facts, text),
        Pattern::Recovered => facts.forget_refusals(),
        // Builds of 2024 name no kind for the weights: `CUDA0 buffer size = 702.19 MiB`.
        Pattern::WeightsSize if is_of_other_kind(text) => {}
        Pattern::WeightsSize => buffer(facts, Purpose::Weights, text),
        Pattern::CacheSize => buffer(facts, Purpose::Cache, text),
        Pattern::ComputeSize => buffer(facts, Purpose::Compute, text),
        Pattern::Breakdown => breakdown(facts, text),
        _ => {}
    }
    progress(facts, pattern);
}

/// The order of llama.cpp's log: weights, context, cache, graph, serving.
fn progress(facts: &mut Facts, pattern: Pattern) {
    let progress = &mut facts.progress;
    let stage = match pattern {
        Pattern::NewAttempt => {
            progress.attempt += 1;
            progress.stage = LoadStage::Unknown;
            return;
        }
        // Weights after a context belong to a second model: a draft, an image encoder, or the next request's.
        Pattern::LoadsWeights | Pattern::LoadsEncoder
            if matches!(progress.stage, LoadStage::Context | LoadStage::Cache) =>
        {
            progress.stage = LoadStage::Weights;
            return;
        }
        Pattern::LoadsWeights => LoadStage::Weights,
        Pattern::MakesContext => LoadStage::Context,
        Pattern::MakesCache | Pattern::CacheSize => LoadStage::Cache,
        Pattern::ReservesGraph => LoadStage::Graph,
        Pattern::Serves | Pattern::Works => LoadStage::Serving,
        _ => return,
    };
    progress.stage = progress.stage.max(stage);
}

fn device_refused(facts: &mut Facts, pattern: Pattern, text: &str, quote: &Quote) {
    let (place, at_run_time) = match pattern {
        // A refusal of pinned memory is a warning for Vulkan as for CUDA; `mlock` is optional.
        Pattern::VulkanRefused if text.contains("pinned memory") => return,
        Pattern::HostRefused if text.contains("mlock") => return,
        // RAPIDS throws the C++ exception for host memory when a card refuses.
        Pattern::HostRefused if text.contains("out_of_memory: CUDA") => (MemoryPlace::Card, true),
        Pattern::HostRefused => (MemoryPlace::Host, false),
        Pattern::BufferRefused if text.contains("cpu_buffer") || text.contains("CPU") => {
            (MemoryPlace::Host, false)
        }
        _ => (MemoryPlace::Card, false),
    };
    let requested = size_requested(text).filter(|_| !at_run_time);
    open(facts, place, requested, text, quote, at_run_time);
}

/// `alloc_tensor_range` places weights, and the cache once the context is being made
/// (`ggml-alloc.c @ b10605`).
fn of_tensors(stage: LoadStage, text: &str) -> Purpose {
    let of_cache =
        matches!(stage, LoadStage::Context | LoadStage::Cache) && text.contains("alloc_tensor_range");
    if of_cache { Purpose::Cache } else { Purpose::Weights }
}

fn size_requested(text: &str) -> Option<Bytes> {
    let behind = |marker: &str, phrase| text.contains(marker).then(|| after(text, phrase)).flatten();
    after(text, "allocating ")
        .or_else(|| after(text, "buffer of size "))
        .or_else(|| behind(" from device: ", "failed to allocate "))
        .or_else(|| behind("ytes of memory on device", "allocate "))
        .or_else(|| after(text, "allocation of size "))
        .or_else(|| {
            ["buffer, size", "metal buffer of ", "attempting to allocate "]
                .iter()
                .find_map(|words| after(text, words))
        })
        .or_else(|| behind("radv/amdgpu", " size  "))
}

fn open(
    facts: &mut Facts,
    place: MemoryPlace,
    requested: Option<Bytes>,
    text: &str,
    quote: &Quote,
    at_run_time: bool,
) {
    if is_retold(facts, quote) {
        return;
    }
    // The line that names the buffer follows the device's own line and repeats the size.
    if let Some(last) = facts.recent_refusal(quote, CLOSE)
        && last.place == place
        && last.at_run_time == at_run_time
        && (requested.is_none() || last.requested.is_none() || last.quote.line == quote.line)
    {
        last.requested = last.requested.or(requested);
        return;
    }
    let device = count_after(text, "on device ");
    let refusal = refused(facts, Purpose::Unknown, place, requested, quote);
    facts.add_refusal(FailedAllocation { device, at_run_time, ..refusal });
}

fn refused(
    facts: &Facts,
    purpose: Purpose,
    place: MemoryPlace,
    requested: Option<Bytes>,
    quote: &Quote,
) -> FailedAllocation {
    let progress = &facts.progress;
    FailedAllocation {
        purpose,
        place,
        device: None,
        requested,
        stage: progress.stage,
        attempt: progress.attempt,
        at_run_time: false,
        statement: None,
        quote: quote.clone(),
    }
}

/// A description may repeat the log in other words; the log counts.
fn is_retold(facts: &Facts, quote: &Quote) -> bool {
    let described = quote.origin.source == LineSource::Context;
    described && (!facts.refusals.is_empty() || facts.torch.is_some())
}

fn name_purpose(facts: &mut Facts, purpose: Purpose, text: &str, quote: &Quote) {
    if is_retold(facts, quote) {
        return;
    }
    let requested = size_requested(text);
    // `failed to allocate Vulkan1 buffer of size`; a build for one card prints no number.
    let device = card_in(text).filter(|card| text.contains(&format!("{card} buffer")));
    // A cache is made of tensors too, so a later and more precise purpose replaces `weights`.
    if let Some(last) = facts.recent_refusal(quote, CLOSE)
        && (matches!(last.purpose, Purpose::Unknown | Purpose::Weights) || last.purpose == purpose)
    {
        last.purpose = purpose;
        last.requested = last.requested.or(requested);
        last.device = last.device.or(device);
        return;
    }
    let is_host = text.contains("CPU") || text.contains("_Host");
    let place = if is_host { MemoryPlace::Host } else { MemoryPlace::Card };
    let refusal = refused(facts, purpose, place, requested, quote);
    facts.add_refusal(FailedAllocation { device, ..refusal });
}

/// The statement that ggml prints after `CUDA error: …`; without such an error it means nothing.
fn statement(facts: &mut Facts, purpose: Purpose, quote: &Quote) {
    if let Some(last) = facts.recent_refusal(quote, CLOSE)
        && last.at_run_time
        && last.purpose != Purpose::Address
    {
        // The function of a failed call follows its error, and tells less than the call.
        last.purpose = if purpose == Purpose::Unknown { last.purpose } else { purpose };
        // A call's arguments say more than the name of its function.
        if last.statement.is_none() || quote.text.contains("cuMem") {
            last.statement = Some(quote.clone());
        }
    }
}

/// `allocated buffer, size =  4096.00 MiB, ( 7630.41 /  5461.34)`:
/// `ggml-metal-device.m:ggml_metal_log_allocated_size`.
fn working_set(facts: &mut Facts, text: &str) {
    let pair = || {
        let (allocated, limit) = text.rsplit_once('(')?.1.split_once('/')?;
        let mib = |figure: &str| Some(all(&format!("{} MiB", figure.trim())).next()?.0);
        Some((mib(allocated)?, mib(limit.split(')').next()?)?))
    };
    facts.working_set = facts.working_set.max(pair());
    // Builds of 2023 name the buffers: `allocated 'kv              ' buffer, size =    82.00 MB`.
    if let Some((name, rest)) = text.split_once("allocated '").and_then(|(_, rest)| rest.split_once('\'')) {
        let named = [("data", Purpose::Weights), ("kv", Purpose::Cache)];
        let purpose = named.iter().find(|(of, _)| *of == name.trim_end()).map(|(_, purpose)| *purpose);
        let size = after(rest, "buffer, size =").unwrap_or(Bytes::ZERO);
        facts.add_buffer(purpose.unwrap_or(Purpose::Compute), Some(0), size);
    }
    facts.add_card_size(after(text, "recommendedmaxworkingsetsize"));
}

fn is_of_other_kind(text: &str) -> bool {
    ["KV", "RS", "compute", "output"].iter().any(|kind| text.contains(&format!("{kind} buffer size")))
}

/// `CUDA0 model buffer size = 702.19 MiB`; `CUDA_Host` buffers are in host memory.
fn buffer(facts: &mut Facts, purpose: Purpose, text: &str) {
    let size = after(text, "buffer size").or_else(|| {
        let (_, behind) = text.split_once('=')?;
        all(behind).last().map(|(size, _)| size)
    });
    // The name of a buffer type starts with its backend (`ggml-backend.cpp:ggml_backend_buft_name`).
    if let Some(size) = size {
        facts.add_buffer(purpose, card_in(text).filter(|_| !text.contains("_Host")), size);
    }
}

/// The number of the card that a device's name ends with: `CUDA1`. A build for one card prints no number.
pub(super) fn card_in(text: &str) -> Option<u64> {
    const BACKENDS: [&str; 6] = ["CUDA", "ROCm", "Vulkan", "SYCL", "Metal", "MUSA"];
    let behind = BACKENDS.iter().find_map(|name| Some(text.split_once(name)?.1))?;
    let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
    Some(behind[..digits].parse().unwrap_or_default())
}

/// `|   - CUDA0 (RTX 4090)   | 24080 = 1234 + (22000 = 17000 +    4000 +    1000) + 846 |`: total, free,
/// weights, context and compute in MiB (`llama-context.cpp:llama_memory_breakdown_print @ b10605`).
fn breakdown(facts: &mut Facts, text: &str) {
    let mib = |word: &str| {
        let digits = word.trim_matches(|c: char| !c.is_ascii_digit());
        Some(Bytes::mib(digits.parse::<u32>().ok()?.into()))
    };
    let parts = || {
        let (before, rest) = text.rsplit_once('(')?;
        let (total, _) = before[before.rfind('|')?..].split_once('=')?;
        let (_, parts) = rest.split_once('=')?;
        let parts = parts.split(')').next()?.split('+');
        Some((mib(total)?, parts.filter_map(mib).collect::<Vec<_>>()))
    };
    let attempt = facts.progress.attempt;
    // The table repeats the sizes of the lines before it.
    let is_new = facts.buffers.iter().all(|buffer| buffer.attempt != attempt);
    let Some((total, sizes)) = parts().filter(|_| is_new) else {
        return;
    };
    if let [weights, cache, compute] = sizes[..] {
        facts.add_card_size(Some(total));
        let card = card_in(text).or(Some(0));
        facts.add_buffer(Purpose::Weights, card, weights);
        facts.add_buffer(Purpose::Cache, card, cache);
        facts.add_buffer(Purpose::Compute, card, compute);
    }
}
