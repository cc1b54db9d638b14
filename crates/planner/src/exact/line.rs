//! Parser for the buffer sizes in an engine's log: `FUNCTION: PLACE KIND buffer size = N MiB`.
//!
//! A line must match completely, because the log also quotes texts of the model file.

use plimsoll_base::Bytes;

use super::transcript::{BufferKind, BufferPlace, CardInterface, Transcript};
use crate::EngineBuild;
use plimsoll_flags::device_number;

/// Longer lines are texts of the model file.
const LONGEST: usize = 512;

impl Transcript {
    /// Adds the next line; true if it matters.
    pub fn hear(&mut self, line: &str) -> bool {
        // The lines are those of `llama-model.cpp: load_tensors`, `llama-kv-cache.cpp`,
        // `llama-memory-recurrent.cpp`, `llama-kv-cache-dsv4.cpp`, `llama-context.cpp: sched_reserve`,
        // `llama-adapter.cpp`, `tools/mtmd/clip.cpp @ b10605, b8799`.
        let text = without_prefix(line.trim_end());
        if text.len() > LONGEST {
            return false;
        }
        match text.split_once(": ") {
            Some((function, rest)) if is_name(function) => self.of_function(function, rest.trim(), text),
            _ => self.announced(text),
        }
    }

    /// A line that begins with the name of one of the engine's functions.
    fn of_function(&mut self, function: &str, rest: &str, text: &str) -> bool {
        if let Some((place, kind, bytes)) = buffer(rest) {
            self.add(place, kind, bytes);
            return true;
        }
        match function {
            "llama_context" | "clip_ctx"
                if rest == "constructing llama_context" || rest.starts_with("CLIP using ") =>
            {
                self.parts = self.parts.saturating_add(1);
            }
            "sched_reserve" if is_graph_size(rest) => self.reserved = true,
            "llama_context" if rest.starts_with("n_ctx ") => {
                let tokens = rest.split_once('=').and_then(|(_, n)| n.trim().parse().ok());
                // The first context is the model's; those of drafts follow.
                self.context = self.context.or(tokens);
                return tokens.is_some();
            }
            "plimsoll_phantom" => return self.of_stand_in(rest).is_some(),
            // A draft model's context may switch it off without the model's doing so.
            _ if FLASH_ATTENTION_OFF.contains(&rest) => self.flash_attention_off |= self.parts == 1,
            _ if rest.starts_with("compute buffer allocation failed, retrying without pipeline") => {
                self.copies_dropped = true;
            }
            _ => return self.announced(text),
        }
        true
    }

    /// A line whose function name differs between builds. Lines after the slots quote the chat template.
    fn announced(&mut self, text: &str) -> bool {
        // These functions print metadata of the file, which may hold any words.
        let quotes_a_file = ["llama_model_loader:", "print_info:", "load:"];
        if quotes_a_file.iter().any(|function| text.starts_with(function)) {
            return false;
        }
        // The message follows the last colon: builds differ in the names before it.
        let words = text.rsplit(": ").next().unwrap_or(text).trim();
        if words.starts_with("initializing, n_slots") || words.starts_with("initializing slots, n_slots") {
            self.ready = true;
        } else if let Some(build) = build(words) {
            self.build = self.build.or(Some(build));
        // Logged for every backend that is linked in, because the engine first looks for it as a plugin.
        } else if text.contains("failed to find ggml_backend_init") {
            return false;
        } else if COMPLAINTS.iter().any(|word| text.contains(word)) {
            self.complain(text);
        } else {
            return false;
        }
        true
    }

    /// A line of phantom: `CUDA runtime 13`, `ROCm runtime`, `Vulkan device`, `static CUDA runtime`.
    fn of_stand_in(&mut self, words: &str) -> Option<()> {
        match words {
            // A device that is opened says more than a library that is loaded, and comes later.
            "ROCm runtime" => self.runtime = Some(CardInterface::Rocm),
            "Vulkan device" => self.runtime = Some(CardInterface::Vulkan),
            "static CUDA runtime" => self.static_runtime = true,
            _ => {
                let version = words.strip_prefix("CUDA runtime ")?.parse().ok()?;
                self.runtime = Some(CardInterface::Cuda(version));
            }
        }
        Some(())
    }
}

/// `graph nodes = 998` (b8799), `graph: nodes = 1382, …` and, where a prompt and a token differ,
/// `graph (pp bs=512, tg bs=1): nodes = 998 / 966, …` (llama-context.cpp:sched_reserve @ 0.5.0).
fn is_graph_size(words: &str) -> bool {
    words.strip_prefix("graph").is_some_and(|rest| {
        let rest = rest.rsplit_once(": ").map_or(rest, |(_, sizes)| sizes);
        rest.trim_start().starts_with("nodes")
    })
}

/// b8799 and b10605.
const FLASH_ATTENTION_OFF: [&str; 2] =
    ["Flash Attention was auto, set to disabled", "Flash Attention not supported, set to disabled"];

/// Words of error messages.
#[rustfmt::skip]
const COMPLAINTS: [&str; 14] = [
    "error", "failed", "fail to", "not supported", "unsupported", "not support", "requires", "invalid", "unable to",
    "unknown model", "not implemented", "couldn't", "GGML_ASSERT", "what():",
];

/// Removes a prefix like `0.00.129.365 E `.
fn without_prefix(line: &str) -> &str {
    let clock =
        |word: &str| word.len() >= 3 && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let text = match line.split_once(' ').filter(|(first, _)| clock(first)) {
        Some((first, rest)) if first.contains('.') => rest.trim_start(),
        Some(_) => return line,
        None => line,
    };
    let levels = ["I ", "W ", "E ", "D ", "T "];
    let level = levels.iter().find_map(|level| text.strip_prefix(level));
    level.unwrap_or(text).trim_start()
}

fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'~' | b':');
    !text.is_empty() && text.len() < 64 && text.bytes().all(letter)
}

/// `CUDA0 model buffer size =  4096.00 MiB`.
fn buffer(text: &str) -> Option<(BufferPlace, BufferKind, Bytes)> {
    let (what, size) = text.split_once(" buffer size = ")?;
    let (place, kind) = what.split_once(' ')?;
    let bytes = mebibytes(size.trim().strip_suffix(" MiB")?)?;
    Some((place_of(place)?, kind_of(kind.trim()), bytes))
}

fn kind_of(words: &str) -> BufferKind {
    match words {
        "model" => BufferKind::Weights,
        "LoRA" => BufferKind::Adapter,
        "KV" | "RS" => BufferKind::Cache,
        "compute" => BufferKind::Compute,
        "output" => BufferKind::Output,
        _ if words.ends_with(" state") => BufferKind::Cache,
        _ => BufferKind::Other,
    }
}

/// `CUDA0` is a card; `CUDA_Host`, `CPU`, `CPU_Mapped` and the like are the host's.
fn place_of(name: &str) -> Option<BufferPlace> {
    if let Some((_, number)) = device_number(name) {
        return Some(BufferPlace::Card(number));
    }
    let of_the_host = name == "Host" || name.starts_with("CPU") || name.ends_with("_Host");
    of_the_host.then_some(BufferPlace::Host)
}

/// A decimal number of mebibytes with up to four places, to the nearest byte.
fn mebibytes(text: &str) -> Option<Bytes> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text, "0"));
    let digits =
        |part: &str| (1..=12).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole.trim()) || !digits(fraction) || fraction.len() > 4 {
        return None;
    }
    // Integers throughout: a float would lose bytes of large buffers.
    let parts = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let whole = Bytes::mib(whole.trim().parse().ok()?);
    let fraction: u64 = fraction.parse().ok()?;
    Some(whole + Bytes::new(((fraction << 20) + parts / 2) / parts))
}

/// `build 10605 (unknown) with GNU …`, `b8799-abc`.
fn build(words: &str) -> Option<u32> {
    let rest = words.strip_prefix("build ").or(words.strip_prefix('b'))?;
    EngineBuild::number_in(rest).filter(|_| rest.contains([' ', '-'])).flatten()
}
